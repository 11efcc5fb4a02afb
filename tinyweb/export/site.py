"""The folder an export writes: made under another name beside its place, moved there when all of it is written."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tinyweb
from tinyweb.errors import ExportError
from tinyweb.sources import model_name

BUILT = Path(__file__).parent / "site"  # what `make setup` builds from web/: library/, and a folder for each page
LIBRARY = ("tinyweb.js", "tinyweb-worker.js")  # what runs a bundle of functions
CHAT_LIBRARY = ("tinyweb.js", "tinyweb-chat-worker.js")
TASK_LIBRARY: dict[str, tuple[str, ...]] = {
    "chat": CHAT_LIBRARY,
    "completion": CHAT_LIBRARY,
    "detect": (*LIBRARY, "tinyweb-detect.js"),
    "image": (*LIBRARY, "tinyweb-image.js"),
    "embed": (*LIBRARY, "tinyweb-embed.js"),
    "function": LIBRARY,
}
"""The files of the library that each task's page and loader import. "completion" is the page of base models."""
ASSETS = "assets"  # where a site has the library
FACTS, WORKER = "site.json", "sw.js"  # what a page knows of its site; what keeps the site for use without a network
LICENSES = "licenses.txt"  # whose code a site holds, with the texts of their licences
BETWEEN_LICENSES = f"\n{'=' * 80}\n\n"  # as web/shell/licenses.mjs writes it
REPORT = "report.json"  # what became of a model's weights
MODEL = "model"  # where a site has its bundle
MANIFEST = f"{MODEL}/manifest.json"
# files of a model's folder that go along; of names that an address spells as they are
NOTICES = re.compile(r"(licen[cs]e|copying|notice)s?([-._][\w.-]*)?", re.IGNORECASE | re.ASCII)
MAX_NOTICE_BYTES = 1 << 20
FORMAT, VERSION = "tinyweb-bundle", 2


def looks_exported(folder: Path) -> bool:
    """Whether `folder` holds a site that an export wrote."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return f'"{FORMAT}"'.encode() in head


def check_page(task: str) -> None:
    """ExportError where the page that goes into every site of `task` has not been built."""
    if not (BUILT / task / "index.html").is_file():
        command = "chat" if task == "completion" else task
        raise ExportError(
            f"The page of `tinyweb export {command}` has not been built ({task}/index.html is missing): "
            "run `make setup` in tinyweb's folder first."
        )
    check_library(TASK_LIBRARY[task])


def check_library(files: Iterable[str] = LIBRARY) -> None:
    """ExportError where one of the library's `files` has not been built."""
    for name in (*files, LICENSES):
        if not (BUILT / "library" / name).is_file():
            raise ExportError(
                f"The runtime library has not been built (library/{name} is missing): "
                "run `make setup` in tinyweb's folder first."
            )


def check_output(output: Path, force: bool) -> None:
    """ExportError where a site cannot be written at `output`; nothing is touched."""
    if output.is_symlink() and not output.exists():
        raise ExportError(f"{output} is a link to nowhere: choose another folder with -o.")
    above = next(p for p in (output.absolute(), *output.absolute().parents) if os.path.lexists(p))
    if not output.exists():
        if not above.is_dir():
            raise ExportError(f"{output} cannot be made: {above} is a file; choose another folder with -o.")
        if not os.access(above, os.W_OK | os.X_OK):
            raise ExportError(
                f"{output} cannot be made: {above} must not be written to; choose another folder with -o."
            )
        return
    if not output.is_dir():
        raise ExportError(f"{output} is a file: choose another name for the site's folder with -o.")
    if output.resolve() == Path.cwd():
        raise ExportError(f"{output} is the current folder: choose a folder below it for the site with -o.")
    if not any(output.iterdir()):
        return
    if not force:
        raise ExportError(
            f"{output} is not empty: choose another folder with -o, or replace an exported site with --force."
        )
    if not looks_exported(output):
        raise ExportError(
            f"{output} does not hold an exported site, so --force will not replace it: choose another folder with -o."
        )


@contextmanager
def new_site(output: Path, force: bool = False) -> Iterator[Path]:
    """An empty folder to write the site into; on a clean exit it becomes `output`, on any other it disappears."""
    check_output(output, force)
    output = output.resolve()
    made = [p for p in (output.parent, *output.parent.parents) if not p.exists()]  # innermost first
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".partial", dir=output.parent))
    except OSError as error:
        _remove_empty(made)
        raise ExportError(
            f"{output} cannot be made: {output.parent}: {error.strerror}; choose another folder with -o."
        ) from None
    try:
        yield work
        if (work / WORKER).is_file():
            seal(work)
        work.chmod(0o755)  # a temporary folder is private; a site is not
        _move_into_place(work, output)
    except BaseException as error:
        shutil.rmtree(work, ignore_errors=True)
        _remove_empty(made)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
            error.filename = str(output)  # writes to a file that is open do not say it
        raise


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _move_into_place(work: Path, output: Path) -> None:
    if not output.exists():
        work.rename(output)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".old", dir=output.parent))
    output.rename(old / output.name)
    try:
        work.rename(output)
    except BaseException:
        (old / output.name).rename(output)
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def copy_page(site: Path, task: str, source: Path | None = None) -> None:
    """Put the built page of `task` ("chat", "completion", "detect", "image", "embed", "function") and the library it
    needs into `site`, and the licences of what is in them and of the model that was read from `source`.
    """
    check_page(task)
    shutil.copytree(BUILT / task, site, dirs_exist_ok=True, copy_function=shutil.copyfile)
    copy_library(site, TASK_LIBRARY[task])
    if source is not None:
        copy_notices(site, source)


def copy_notices(site: Path, source: Path) -> None:
    """Let what a model's folder says of its licence (LICENSE, NOTICE, COPYING, with any ending) go along: in the site's
    bundle, which others may use without the page, and in licenses.txt. A `source` that is one file says nothing.

    Raises ExportError for a file that is no text of a licence by its size.
    """
    if not source.is_dir():
        return
    files = sorted(path for path in source.iterdir() if NOTICES.fullmatch(path.name) and path.is_file())
    told = []
    for path in files:
        if path.stat().st_size > MAX_NOTICE_BYTES:
            raise ExportError(
                f"{path} is {path.stat().st_size >> 20} MiB: too large for a licence, which the site would carry. "
                "Shorten it, or move it out of the model's folder."
            )
        (site / MODEL).mkdir(exist_ok=True)
        shutil.copyfile(path, site / MODEL / path.name)
        told.append(path.read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n").strip())
    if told:
        text = f"\n\n{'-' * 80}\n\n".join(told)
        with (site / LICENSES).open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{BETWEEN_LICENSES}{model_name(source)}, the model\n\n{text}\n")


def seal(site: Path) -> None:
    """Tell the page and its service worker what the finished `site` consists of: site.json, and the head of sw.js.

    The worker keeps every file but the weights (the runtime keeps those) and checks each against its SHA-256, so that
    files of two exports at one address are never mixed. Equal sites are sealed equally.
    """
    files = {path.relative_to(site).as_posix(): path for path in sorted(site.rglob("*")) if path.is_file()}
    kept = {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        if name not in (FACTS, WORKER) and "/weights/" not in name and not name.endswith(".d.ts")
    }
    manifests = {name: json.loads(path.read_bytes()) for name, path in files.items() if path.name == "manifest.json"}
    facts = {
        "hash": hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16],
        "tinyweb": tinyweb.__version__,
        "format": VERSION,
        "bundles": [
            {"manifest": name, "sha256": read["weights"]["sha256"], "bytes": read["weights"]["bytes"]}
            for name, read in manifests.items()
            if "weights" in read
        ],
    }
    write_json(site / FACTS, facts)
    kept[FACTS] = hashlib.sha256((site / FACTS).read_bytes()).hexdigest()
    head = f"globalThis.SITE = {json.dumps({'hash': facts['hash'], 'files': kept}, indent=1)};\n"
    worker = (site / WORKER).read_text(encoding="utf-8")
    (site / WORKER).write_text(head + worker, encoding="utf-8", newline="\n")


def copy_library(site: Path, files: Iterable[str] = LIBRARY) -> None:
    """Put `files` of the runtime library into `site`, and the licences of what is in them, beside those of the page."""
    files = tuple(files)
    check_library(files)
    (site / ASSETS).mkdir(exist_ok=True)
    for name in files:
        shutil.copyfile(BUILT / "library" / name, site / ASSETS / name)
    _copy_types(site / ASSETS, [name.replace(".js", ".d.ts") for name in files])
    told = [
        path.read_text(encoding="utf-8") for path in (site / LICENSES, BUILT / "library" / LICENSES) if path.is_file()
    ]
    own, *others = [notice for text in told for notice in text.split(BETWEEN_LICENSES)]
    merged = BETWEEN_LICENSES.join([own, *sorted({*others} - {own})])
    (site / LICENSES).write_text(merged, encoding="utf-8", newline="\n")


def _copy_types(assets: Path, wanted: list[str]) -> None:
    """The declarations of the library's files, for those who build pages of their own, and all that these import. Files
    that nobody imports, such as the worker, have none."""
    copied: set[Path] = set()
    waiting = [BUILT / "library" / name for name in wanted]
    while waiting:
        source = waiting.pop()
        if source in copied or not source.is_file():
            continue
        copied.add(source)
        target = assets / source.relative_to(BUILT / "library")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        relative = r"""from "(\.\.?/[^"]+)\.js"|import\("(\.\.?/[^"]+)\.js"\)"""
        imported = re.findall(relative, source.read_text("utf-8"))
        waiting += [Path(os.path.normpath(source.parent / f"{a or b}.d.ts")) for a, b in imported]


def write_json(path: Path, value: object, width: int = 120) -> None:
    """JSON for machines and people: equal values give equal text; what fits in `width` columns stays on one line."""
    path.write_text(_json(value, width, "") + "\n", encoding="utf-8", newline="\n")


def _json(value: object, width: int, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(indent) + len(line) <= width or not isinstance(value, dict | list) or not value:
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        rows = [f"{json.dumps(k, ensure_ascii=False)}: {_json(v, width, deeper)}" for k, v in value.items()]
        return "{\n" + ",\n".join(deeper + row for row in rows) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _json(v, width, deeper) for v in value) + f"\n{indent}]"
