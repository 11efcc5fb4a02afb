"""Static hosts: what each allows and sends, and the files that tell it what a site needs (docs/hosting.md).

Limits and headers are those that the hosts document; tests serve a site as each does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tinyweb.errors import ExportError
from tinyweb.export.inspect import read_manifest

MIB, GB = 1 << 20, 10**9
ISOLATION: Mapping[str, str] = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What threads in WebAssembly ask for."""
HEADERS: Mapping[str, str] = {
    **ISOLATION,
    "X-Content-Type-Options": "nosniff",
    # names are stable across exports: browsers ask, and only what has changed is sent
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class Host:
    """`headers`: whether a site's own can be set. `file_bytes`, `files`, `site_bytes`: the most that is taken, None: no
    limit that a site would reach. `isolates`: what makes the page cross-origin isolated on a first visit."""

    name: str
    title: str
    headers: bool
    file_bytes: int | None
    files: int | None
    site_bytes: int | None
    write: Callable[[str], Mapping[str, str]]

    @property
    def isolates(self) -> str:
        return "headers" if self.headers else "service worker"


def _pages(name: str) -> Mapping[str, str]:
    return {".nojekyll": ""}


def _headers_file(name: str) -> Mapping[str, str]:
    """The file `_headers` of Cloudflare Pages and Netlify."""
    return {"_headers": "/*\n" + "".join(f"  {key}: {value}\n" for key, value in HEADERS.items())}


def _space(name: str) -> Mapping[str, str]:
    custom = "".join(f"  {key.lower()}: {value}\n" for key, value in ISOLATION.items())
    title = name.replace('"', "'")
    card = f'---\ntitle: "{title}"\nsdk: static\npinned: false\ncustom_headers:\n{custom}---\n'
    large = "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in ("*.bin", "model/tokenizer.json"))
    return {
        "README.md": f"{card}\n{name}, in the browser: a static site that tinyweb wrote.\n",
        ".gitattributes": large,
    }


def _nginx(name: str) -> Mapping[str, str]:
    headers = "".join(f'add_header {key} "{value}" always;\n' for key, value in HEADERS.items())
    return {
        "nginx.conf": "# In the server {} of the site: include …/nginx.conf;\n"
        "types {\n"
        "    text/html html; text/css css; text/javascript js mjs; application/json json; application/wasm wasm;\n"
        "    application/manifest+json webmanifest; image/svg+xml svg; image/png png; text/plain txt wgsl jinja;\n"
        "}\n"
        "default_type application/octet-stream;\n"
        f"{headers}"
        "gzip on;\n"
        "gzip_vary on;\n"
        "gzip_types text/css text/javascript application/json application/wasm application/manifest+json image/svg+xml "
        "text/plain;\n"
    }


def _cloudfront(name: str) -> Mapping[str, str]:
    return {}


HOSTS = (
    Host("github-pages", "GitHub Pages", False, 100 * MIB, None, GB, _pages),
    Host("cloudflare-pages", "Cloudflare Pages", True, 25 * MIB, 20_000, None, _headers_file),
    Host("netlify", "Netlify", True, None, 54_000, None, _headers_file),
    Host("huggingface-spaces", "Hugging Face Spaces", True, None, None, None, _space),
    Host("nginx", "nginx", True, None, None, None, _nginx),
    Host("s3", "S3 with CloudFront", True, None, None, None, _cloudfront),
)


def named_host(name: str) -> Host:
    """ExportError where there is none of that name."""
    found = next((h for h in HOSTS if h.name == name), None)
    if found is None:
        raise ExportError(f"there is no host {name!r}: choose one of {', '.join(h.name for h in HOSTS)}")
    return found


def prepare(site: Path, host: Host) -> list[str]:
    """Writes the host's files into an exported site; their names. ExportError, before anything is written, where
    the site is beyond the host's limits, or is none."""
    manifest = read_manifest(site)
    check_limits(site, host)
    made = host.write(str(manifest["name"]))
    for name, text in made.items():
        (site / name).write_text(text, encoding="utf-8", newline="\n")
    return list(made)


def check_limits(site: Path, host: Host) -> None:
    """ExportError that says which file is too large, or what there is too much of, and what to do."""
    files = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}
    large = max(files, key=lambda path: files[path])
    if host.file_bytes is not None and files[large] > host.file_bytes:
        todo = (
            f"export it with --shard-bytes {host.file_bytes} or less"
            if "weights" in large.relative_to(site).parts
            else "this file cannot be divided: take another host"
        )
        raise ExportError(
            f"{large.relative_to(site)} has {files[large] / MIB:.0f} MiB, and {host.title} takes files of at most "
            f"{host.file_bytes / MIB:.0f} MiB: {todo}"
        )
    if host.files is not None and len(files) > host.files:
        raise ExportError(
            f"{site} has {len(files)} files, and {host.title} takes at most {host.files}: export it with a larger "
            "--shard-bytes"
        )
    total = sum(files.values())
    if host.site_bytes is not None and total > host.site_bytes:
        raise ExportError(
            f"{site} has {total / GB:.2f} GB, and {host.title} takes at most {host.site_bytes / GB:.0f} GB: take a "
            "smaller --quant, or another host"
        )
