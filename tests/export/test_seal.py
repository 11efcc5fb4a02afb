"""What an exported site says of itself to its page and to its service worker."""

import hashlib
import json
from pathlib import Path

from tinyweb.export.site import new_site, seal, write_json

FILES = {
    "index.html": "<p>",
    "sw.js": "work();\n",
    "site.json": "null\n",
    "assets/tinyweb.js": "run();",
    "model/model.js": "load();",
    "model/model.d.ts": "types",
    "model/weights/000.bin": "w" * 100,
    "model/unet/weights/000.bin": "u" * 100,
}


def write_files(site: Path, **changed: str) -> None:
    for name, text in (FILES | changed).items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    weights = {"sha256": "ab" * 32, "bytes": 100}
    write_json(site / "model/manifest.json", {"format": "tinyweb-bundle", "parts": {"unet": "unet/"}})
    write_json(site / "model/unet/manifest.json", {"format": "tinyweb-bundle", "weights": weights})


def listed(site: Path) -> tuple[str, dict[str, str]]:
    head, _, rest = (site / "sw.js").read_text().partition(";\n")
    assert rest == "work();\n"
    site_list = json.loads(head.removeprefix("globalThis.SITE = "))
    return site_list["hash"], site_list["files"]


def test_the_worker_gets_every_file_but_the_weights(tmp_path: Path) -> None:
    with new_site(tmp_path / "site") as work:
        write_files(work)
    site = tmp_path / "site"
    digest, files = listed(site)
    assert sorted(files) == [
        "assets/tinyweb.js", "index.html", "model/manifest.json", "model/model.js", "model/unet/manifest.json",
        "site.json",
    ]  # fmt: skip
    for name, sha256 in files.items():
        assert hashlib.sha256((site / name).read_bytes()).hexdigest() == sha256
    facts = json.loads((site / "site.json").read_text())
    assert facts["hash"] == digest
    assert facts["bundles"] == [{"manifest": "model/unet/manifest.json", "sha256": "ab" * 32, "bytes": 100}]


def test_equal_sites_are_sealed_equally_and_others_are_not(tmp_path: Path) -> None:
    for name, changed in {"a": {}, "b": {}, "c": {"model/model.js": "load(2);"}}.items():
        write_files(tmp_path / name, **changed)
        seal(tmp_path / name)
    a, b, c = (listed(tmp_path / name)[0] for name in "abc")
    assert a == b != c
    assert (tmp_path / "a/sw.js").read_bytes() == (tmp_path / "b/sw.js").read_bytes()


def test_a_site_without_a_page_has_no_worker(tmp_path: Path) -> None:
    with new_site(tmp_path / "site") as work:
        write_json(work / "manifest.json", {})
    assert [p.name for p in (tmp_path / "site").iterdir()] == ["manifest.json"]
