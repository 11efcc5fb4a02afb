"""What is published: the sdist and the wheel hold all that exporting needs, and work where no clone is.

Dependencies are links to this environment's, only those that the package asks for; the slow test lets pip find them.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import build_backend  # tools/build_backend.py
import pytest

from tests.export.small_model import write_small_model
from tinyweb.export.site import LICENSES, TASK_LIBRARY

ROOT = Path(__file__).resolve().parents[2]
EPOCH = 1_700_000_000
MODELS = ROOT / "assets" / "models"
SOURCES = ("tinyweb", "tools/build_backend.py", "pyproject.toml", "MANIFEST.in", "*.md", "LICENSE*", "NOTICE*")


def tracked(*patterns: str) -> list[str]:
    """Files that a clone has."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def clone(folder: Path, pages: bool = True) -> Path:
    """What a clone holds of the package, with or without the built pages; in `folder`."""
    for name in tracked(*SOURCES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    if pages:
        shutil.copytree(ROOT / build_backend.SITE, folder / build_backend.SITE)
    return folder


def run(command: Sequence[str | Path], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program in `folder` that sees nothing of the repository or of this environment; it may fail."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "SPEC", "TINYWEB_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)} | variables
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=500)


def succeed(command: Sequence[str | Path], folder: Path, **variables: str) -> str:
    done = run(command, folder, **variables)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def publish(source: Path, folder: Path, epoch: int = EPOCH) -> tuple[Path, Path]:
    """The sdist of `source`, and the wheel made of it, as `make wheel` makes them."""
    folder.mkdir()
    succeed([sys.executable, "tools/build_backend.py", folder], source, SOURCE_DATE_EPOCH=str(epoch))
    (sdist,) = folder.glob("*.tar.gz")
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-cache-dir",
        "--no-index",
    ]
    succeed([*pip, "-w", folder, sdist], folder, SOURCE_DATE_EPOCH=str(epoch))
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("published")
    return publish(clone(folder / "clone"), folder / "dist")


@dataclass(frozen=True)
class Installed:
    python: Path
    tinyweb: Path
    folder: Path  # outside of the repository


def install(wheel: Path, folder: Path) -> Installed:
    venv.create(folder / "venv", with_pip=False, symlinks=os.name != "nt")
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    (folder / "work").mkdir()
    return Installed(programs / "python", programs / "tinyweb", folder / "work")


@pytest.fixture(scope="module")
def installed(published: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment that has nothing else but what requirements.lock names."""
    made = install(published[1], tmp_path_factory.mktemp("installed"))
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", made.python]
    succeed([*pip, "install", "--no-deps", "--no-index", published[1]], made.folder)
    packages = Path(
        succeed([made.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], made.folder).strip()
    )
    for name in re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE):
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # of another platform
            continue
        tops = {Path(str(file)).parts[0] for file in package.files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (packages / top).exists():
                (packages / top).symlink_to(package.locate_file(top))
    return made


# --- what is in them --------------------------------------------------------------------------------------------------


def test_wheel_holds_the_package_the_pages_and_nothing_else(published: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(published[1]) as wheel:
        held = {i.filename for i in wheel.infolist() if ".dist-info/" not in i.filename}
        about = {i.filename.split(".dist-info/")[1] for i in wheel.infolist() if ".dist-info/" in i.filename}
    pages = {p.relative_to(ROOT).as_posix() for p in (ROOT / build_backend.SITE).rglob("*") if p.is_file()}
    assert len(pages) > 40
    assert held == {*tracked("tinyweb"), *pages}
    licences = {Path(name).name for name in tracked("LICENSE*", "NOTICE*") if "/" not in name}
    assert {f"licenses/{name}" for name in licences} <= about
    assert "LICENSE" in licences


def test_sdist_holds_what_a_wheel_is_made_of(published: tuple[Path, Path]) -> None:
    with tarfile.open(published[0]) as sdist:
        held = {m.name.partition("/")[2] for m in sdist if m.isfile()}
    with zipfile.ZipFile(published[1]) as wheel:
        package = {name for name in wheel.namelist() if name.startswith("tinyweb/")}
    assert package | {"pyproject.toml", "tools/build_backend.py", "README.md", "LICENSE"} <= held
    assert not [name for name in held if name.startswith(("tests", "web", "assets", "benchmarks"))]
    assert [name for name in held if name.startswith("tools/")] == ["tools/build_backend.py"]


def test_backend_asks_for_what_exports_take() -> None:
    assert set(build_backend.PAGES) == set(TASK_LIBRARY)
    always = {name for names in TASK_LIBRARY.values() for name in names if name == "tinyweb.js" or "worker" in name}
    assert {f"library/{name}" for name in (*always, LICENSES)} <= set(build_backend.NEEDED)


def test_same_commit_gives_the_same_bytes(published: tuple[Path, Path], tmp_path: Path) -> None:
    source = clone(tmp_path / "elsewhere" / "a clone")
    for path in source.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            os.utime(path, (1_600_000_000, 1_600_000_000))
    (source / "build/lib/tinyweb").mkdir(parents=True)  # left by an earlier build
    (source / "build/lib/tinyweb/stale.py").write_text("")
    again = publish(source, tmp_path / "again")
    for one, other in zip(published, again):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes()


# --- without pages ----------------------------------------------------------------------------------------------------


def test_build_without_pages_says_what_to_do(tmp_path: Path) -> None:
    source = clone(tmp_path / "clone", pages=False)
    (tmp_path / "dist").mkdir()
    hook = f"import build_backend; build_backend.build_wheel({str(tmp_path / 'dist')!r})"
    done = run([sys.executable, "-c", hook], source, PYTHONPATH="tools", PATH="")
    assert done.returncode == 1
    assert "the pages are not built (tinyweb/export/site/library/tinyweb.js is missing)" in done.stderr
    assert "their sources are not here" in done.stderr
    assert "Node.js 20.19 or newer" in done.stderr
    (source / "tools/build_web.sh").write_text("exit 1")
    done = run([sys.executable, "-c", hook], source, PYTHONPATH="tools", PATH="")
    assert "bash was not found" in done.stderr
    assert "Traceback" not in done.stderr
    assert not any((tmp_path / "dist").iterdir())


def test_build_with_pages_of_older_sources_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = (f"{build_backend.SITE}/{name}" for name in build_backend.NEEDED)
    for name in (*pages, "tools/build_web.sh", "web/chat/src/page.ts", "web/chat/test/t.ts"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (EPOCH, EPOCH))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    os.utime("web/chat/test/t.ts")  # no part of the pages
    build_backend.ensure_pages()
    os.utime("web/chat/src/page.ts", (EPOCH + 1, EPOCH + 1))
    with pytest.raises(SystemExit, match=r"older than web/chat/src/page\.ts and cannot be built here: bash was not"):
        build_backend.ensure_pages()


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for npm is a shell script")
def test_build_without_pages_makes_them(tmp_path: Path) -> None:
    source = clone(tmp_path / "clone", pages=False)
    shutil.copytree(ROOT / build_backend.SITE, tmp_path / "site")
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text('#!/bin/sh\necho "$@" >>asked.txt\n')
    npm.chmod(0o755)
    (source / "tools/build_web.sh").write_text(f'npm run build; cp -R "{tmp_path}/site" {build_backend.SITE}\n')
    (tmp_path / "dist").mkdir()
    hook = f"import build_backend; print(build_backend.build_wheel({str(tmp_path / 'dist')!r}))"
    path = f"{npm.parent}{os.pathsep}{os.environ['PATH']}"
    name = succeed([sys.executable, "-c", hook], source, PYTHONPATH="tools", PATH=path).splitlines()[-1]
    assert (source / "asked.txt").read_text().startswith("ci ")
    with zipfile.ZipFile(tmp_path / "dist" / name) as wheel:
        assert "tinyweb/export/site/chat/index.html" in wheel.namelist()


# --- installed --------------------------------------------------------------------------------------------------------


def test_installed_package_is_the_wheels(installed: Installed) -> None:
    where = succeed(
        [
            installed.python,
            "-c",
            "import tinyweb; from tinyweb import Tensor; print(tinyweb.__file__, Tensor([2.0]).item())",
        ],
        installed.folder,
    )
    assert str(ROOT) not in where
    assert where.startswith(str(installed.python.parent.parent))
    assert where.endswith(" 2.0\n")


def test_installed_kernels_compile(installed: Installed) -> None:
    told = run([installed.tinyweb, "doctor"], installed.folder, TINYWEB_CACHE=str(installed.folder / "cache"))
    for device in ("CPU", "WASM", "INTERPRETER"):
        assert re.search(rf"{device}\b.*first kernel", told.stdout), told.stdout + told.stderr
    assert {path.suffix for path in (installed.folder / "cache").iterdir()} >= {".so", ".wasm"}


def check_site(site: Path, task: str) -> None:
    assert (site / "index.html").is_file()
    for name in TASK_LIBRARY[task]:
        assert (site / "assets" / name).is_file()
    manifest = json.loads((site / "model/manifest.json").read_text())
    assert manifest["format"] == "tinyweb-bundle"
    assert any((site / "model").rglob("*.wasm")) and any((site / "model").rglob("*.wgsl"))


def test_installed_package_exports_a_page(installed: Installed) -> None:
    write_small_model(installed.folder / "small", like=MODELS / "tinychat-7m")
    succeed([installed.tinyweb, "export", "chat", "small", "--context", "32", "-o", "chat-small"], installed.folder)
    check_site(installed.folder / "chat-small", "chat")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "model"), [("chat", "tinychat-7m"), ("detect", "tinyyolo"), ("image", "tinysd"), ("embed", "tinyembed")]
)
def test_installed_package_exports_embedded_models(installed: Installed, task: str, model: str) -> None:
    shutil.copytree(MODELS / model, installed.folder / model)
    succeed([installed.tinyweb, "export", task, model, "-o", task], installed.folder)
    check_site(installed.folder / task, task)


@pytest.mark.slow
def test_pip_installs_the_wheel_with_what_it_needs(published: tuple[Path, Path], tmp_path: Path) -> None:
    made = install(published[1], tmp_path)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", made.python]
    succeed([*pip, "install", published[1]], made.folder)
    succeed([*pip, "check"], made.folder)
    assert "first kernel" in run([made.tinyweb, "doctor"], made.folder).stdout
    shutil.copytree(MODELS / "tinychat-7m", made.folder / "model")
    succeed([made.tinyweb, "export", "chat", "model", "-o", "site"], made.folder)
    check_site(made.folder / "site", "chat")


@pytest.mark.slow
def test_pip_installs_from_a_clean_clone(tmp_path: Path) -> None:
    """As `pip install git+…` does: the pages are built from web/."""
    source = tmp_path / "clone"
    for name in tracked(*SOURCES, "web", "tools", "package.json", "package-lock.json"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-cache-dir",
    ]
    succeed([*pip, "-w", tmp_path, source], tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as made:
        assert {f"{build_backend.SITE.as_posix()}/{name}" for name in build_backend.NEEDED} <= set(made.namelist())
