"""Where a site is written: whole or not at all, and never over anything that is not a site."""

import errno
import json
from pathlib import Path

import pytest

from tinyweb.errors import ExportError
from tinyweb.export import site as site_module
from tinyweb.export.site import (
    LIBRARY,
    TASK_LIBRARY,
    check_output,
    check_page,
    copy_library,
    copy_page,
    looks_exported,
    new_site,
    write_json,
)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("/".join(path.parts[path.parts.index("built") + 1 :]))


def write_site(output: Path, text: str = "a", force: bool = False) -> None:
    with new_site(output, force) as work:
        (work / "model").mkdir()
        write_json(work / "model/manifest.json", {"format": "tinyweb-bundle"})
        (work / "index.html").write_text(text)


def test_a_new_site(tmp_path: Path) -> None:
    output = tmp_path / "a/b/site"
    write_site(output)
    assert (output / "index.html").read_text() == "a"
    assert names(output.parent) == ["site"]
    assert output.stat().st_mode & 0o777 == 0o755
    assert looks_exported(output)


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    write_site(tmp_path / "site")
    assert names(tmp_path) == ["site"] and names(tmp_path / "site") == ["index.html", "model"]


@pytest.mark.parametrize("error", [ExportError("x"), KeyboardInterrupt(), OSError(28, "full"), SystemExit(143)])
def test_nothing_is_left_of_a_failure(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), new_site(tmp_path / "a/b/site") as work:
        (work / "index.html").write_text("half")
        raise error
    assert names(tmp_path) == []


def test_a_failure_leaves_the_old_site(tmp_path: Path) -> None:
    write_site(tmp_path / "site", "old")
    with pytest.raises(KeyboardInterrupt), new_site(tmp_path / "site", force=True) as work:
        (work / "index.html").write_text("half")
        raise KeyboardInterrupt
    assert names(tmp_path) == ["site"] and (tmp_path / "site/index.html").read_text() == "old"


def test_force_replaces_a_site_only(tmp_path: Path) -> None:
    write_site(tmp_path / "site", "old")
    with pytest.raises(ExportError, match=r"is not empty.*--force"):
        write_site(tmp_path / "site", "new")
    write_site(tmp_path / "site", "new", force=True)
    assert (tmp_path / "site/index.html").read_text() == "new"
    assert names(tmp_path) == ["site"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    with pytest.raises(ExportError, match="does not hold an exported site"):
        write_site(tmp_path / "mine", force=True)
    assert names(tmp_path / "mine") == ["thesis.tex"]


def test_places_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="is a file"):
        check_output(tmp_path / "file", False)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ExportError, match="a link to nowhere"):
        check_output(tmp_path / "link", False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError, match="is the current folder"):
        check_output(Path("."), False)


def test_the_page_must_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "BUILT", tmp_path / "built")
    with pytest.raises(ExportError, match=r"export chat` has not been built.*index.html is missing.*make setup"):
        check_page("chat")
    for name in ("chat/index.html", "chat/assets/page-1.css", "detect/index.html"):
        write(tmp_path / "built" / name)
    with pytest.raises(ExportError, match=r"library/tinyweb.js is missing.*make setup"):
        check_page("chat")
    for name in {*TASK_LIBRARY["chat"], *TASK_LIBRARY["detect"], "licenses.txt"}:
        write(tmp_path / "built/library" / name)
    with pytest.raises(ExportError, match="`tinyweb export embed` has not been built"):
        check_page("embed")
    for task in ("chat", "detect"):
        (tmp_path / task).mkdir()
        copy_page(tmp_path / task, task)
    assert files(tmp_path / "chat") == [
        "assets/page-1.css",
        "assets/tinyweb-chat-worker.js",
        "assets/tinyweb.js",
        "index.html",
        "licenses.txt",
    ]
    assert (tmp_path / "chat/assets/page-1.css").read_text() == "chat/assets/page-1.css"
    assert "assets/tinyweb-detect.js" in files(tmp_path / "detect")


def test_licences_of_page_and_library_are_one_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "BUILT", tmp_path / "built")
    between = "\n" + "=" * 80 + "\n\n"
    write(tmp_path / "built/chat/index.html")
    for name in {*LIBRARY, *TASK_LIBRARY["chat"]}:
        write(tmp_path / "built/library" / name)
    with pytest.raises(ExportError, match=r"library/licenses.txt is missing.*make setup"):
        check_page("chat")
    (tmp_path / "built/chat/licenses.txt").write_text(between.join(["tinyweb 1\n", "preact 1\n", "shared 1\n"]))
    (tmp_path / "built/library/licenses.txt").write_text(between.join(["tinyweb 1\n", "jinja 1\n", "shared 1\n"]))
    (tmp_path / "site").mkdir()
    copy_page(tmp_path / "site", "chat")
    notices = (tmp_path / "site/licenses.txt").read_text().split(between)
    assert notices == ["tinyweb 1\n", "jinja 1\n", "preact 1\n", "shared 1\n"]
    (tmp_path / "function").mkdir()
    copy_library(tmp_path / "function")  # a bundle without a page
    assert (tmp_path / "function/licenses.txt").read_text().split(between) == ["tinyweb 1\n", "jinja 1\n", "shared 1\n"]


def test_what_a_models_folder_says_of_its_licence_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "BUILT", tmp_path / "built")
    between = "\n" + "=" * 80 + "\n\n"
    write(tmp_path / "built/chat/index.html")
    for name in (*TASK_LIBRARY["chat"], "licenses.txt"):
        write(tmp_path / "built/library" / name)
    model = tmp_path / "some-model"
    model.mkdir()
    for name in ("README.md", "config.json", "licensed.bin"):
        (model / name).touch()
    (model / "NOTICE").write_bytes(b"by somebody\r\n")
    (model / "LICENSE.txt").write_bytes("terms \xe9\n".encode("latin-1"))
    (model / "licence-of-data").mkdir()
    site = tmp_path / "site"
    site.mkdir()
    copy_page(site, "chat", model)
    own, of_model = (site / "licenses.txt").read_text(encoding="utf-8").split(between)
    assert own == "built/library/licenses.txt"[len("built/") :]
    assert of_model == "some-model, the model\n\nterms \ufffd\n\n" + "-" * 80 + "\n\nby somebody\n"
    assert files(site / "model") == ["LICENSE.txt", "NOTICE"]
    assert (site / "model/NOTICE").read_bytes() == b"by somebody\r\n"
    (model / "COPYING").write_bytes(b"x" * (site_module.MAX_NOTICE_BYTES + 1))
    with pytest.raises(ExportError, match=r"COPYING is 1 MiB: too large for a licence.*move it out"):
        copy_page(site, "chat", model)
    (tmp_path / "other").mkdir()
    copy_page(tmp_path / "other", "chat", model / "config.json")  # a single file says nothing
    assert not (tmp_path / "other/model").exists()


def test_licence_of_a_model_that_derives_from_another() -> None:
    """tinyembed is a changed part of all-MiniLM-L6-v2: its licence, and who made what, go wherever it goes."""
    folder = Path(__file__).parents[2] / "assets/models/tinyembed"
    licence, notice = ((folder / name).read_text() for name in ("LICENSE", "NOTICE"))
    assert "Apache License" in licence and "4. Redistribution" in licence and "END OF TERMS AND CONDITIONS" in licence
    assert all(part in notice for part in ("all-MiniLM-L6-v2", "Changes", "Apache License, Version 2.0", "Microsoft"))


def test_json_is_readable_and_right(tmp_path: Path) -> None:
    value = {
        "a": [{"id": i, "shape": [1, 2, 3], "name": "layer" * 4} for i in range(9)],
        "b": {},
        "c": [],
        "d": "é\n",
        "e": 1.5,
    }
    write_json(tmp_path / "x.json", value)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == value
    assert max(map(len, text.splitlines())) <= 120 and len(text.splitlines()) == 17


def test_a_place_that_cannot_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made on the way to it is gone again."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"x/site cannot be made: .*file is a file; choose another folder"):
        check_output(tmp_path / "file" / "x" / "site", force=False)

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    said = r"site cannot be made: .*: Permission denied; choose another folder"
    with pytest.raises(ExportError, match=said), new_site(tmp_path / "a" / "b" / "site"):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as raised, new_site(tmp_path / "site"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert raised.value.filename == str(tmp_path / "site") and list(tmp_path.iterdir()) == []
