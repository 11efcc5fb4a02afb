"""The build backend of this package: setuptools, and the pages of web/, without which nothing can be exported.

A wheel and an sdist hold the built pages (tinyweb/export/site), which git does not. Where they are missing, or older
than their sources, they are built, which takes Node.js; where that fails, so does the build, with one sentence. An
editable install does without: it sees the pages when they are built (`make setup`). A wheel made from an sdist needs no
Node.js.

With SOURCE_DATE_EPOCH the same commit gives the same bytes: `make wheel` takes the commit's time.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import build_editable as build_editable
from setuptools.build_meta import get_requires_for_build_editable as get_requires_for_build_editable
from setuptools.build_meta import get_requires_for_build_sdist as get_requires_for_build_sdist
from setuptools.build_meta import get_requires_for_build_wheel as get_requires_for_build_wheel
from setuptools.build_meta import prepare_metadata_for_build_editable as prepare_metadata_for_build_editable
from setuptools.build_meta import prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel

SITE = Path("tinyweb/export/site")  # builds run in the project's folder
PAGES = ("chat", "completion", "detect", "image", "embed", "function")
NEEDED = (
    "library/tinyweb.js",
    "library/tinyweb-worker.js",
    "library/tinyweb-chat-worker.js",
    "library/licenses.txt",
    *(f"{p}/index.html" for p in PAGES),
)
NO_SOURCES = {"node_modules", "dist", "test", "test-results"}  # in web/
Settings = dict[str, Any] | None


def build_wheel(folder: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Write the wheel into `folder`; returns its name."""
    ensure_pages()
    shutil.rmtree("build/lib", ignore_errors=True)  # setuptools would take what earlier builds left there
    name: str = build_meta.build_wheel(folder, settings, metadata)
    if (epoch := _epoch()) is not None:
        _rewrite_wheel(Path(folder) / name, epoch)
    return name


def build_sdist(folder: str, settings: Settings = None) -> str:
    """Write the sdist into `folder`; returns its name."""
    ensure_pages()
    for old in Path().glob("*.egg-info/SOURCES.txt"):
        old.unlink()  # setuptools would take what it lists
    name: str = build_meta.build_sdist(folder, settings)
    if (epoch := _epoch()) is not None:
        _rewrite_sdist(Path(folder) / name, epoch)
    return name


def missing_pages() -> list[str]:
    """What has to be in SITE and is not."""
    return [name for name in NEEDED if not (SITE / name).is_file()]


def newer_source() -> Path | None:
    """A file that the pages are made of and that was changed after they were built."""
    sources = [Path("tools/build_web.sh")]
    if not sources[0].is_file():  # an sdist: nothing can be built here
        return None
    for folder, folders, files in os.walk("web"):
        folders[:] = sorted(set(folders) - NO_SOURCES)
        sources += [Path(folder, name) for name in sorted(files) if not name.endswith(".md")]
    built = min((SITE / name).stat().st_mtime_ns for name in NEEDED)
    return next((s for s in sources if s.stat().st_mtime_ns > built), None)


def ensure_pages() -> None:
    """Build the pages if they are not there, or not of these sources. Ends the build with a sentence where that cannot
    be done."""
    if missing := missing_pages():
        wrong = f"not built ({SITE}/{missing[0]} is missing)"
    elif newer := newer_source():
        wrong = f"older than {newer.as_posix()}"
    else:
        return
    why = _build_pages()
    if why or missing_pages():
        sys.exit(
            f"tinyweb: the pages are {wrong} and cannot be built here: "
            f"{why or 'tools/build_web.sh did not make them'}; run `make wheel` in a clone of tinyweb where Node.js "
            "20.19 or newer is installed, or install a finished wheel."
        )


def _build_pages() -> str:
    """Why the pages could not be built, "" if they were."""
    if not Path("tools/build_web.sh").is_file():
        return "their sources are not here"
    for program in ("bash", "npm"):
        if shutil.which(program) is None:
            return f"{program} was not found"
    npm = str(shutil.which("npm"))
    steps = [["bash", "tools/build_web.sh"]]
    if not Path("node_modules/.stamp").is_file():
        steps.insert(0, [npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"])
    for step in steps:
        done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        if done.returncode != 0:
            print(*done.stdout.splitlines()[-25:], sep="\n", file=sys.stderr)
            return f"`{' '.join([Path(step[0]).stem, *step[1:]])}` failed"
    return ""


def _epoch() -> int | None:
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    return int(text) if text.isdecimal() else None


def _mode(executable: bool) -> int:
    return 0o755 if executable else 0o644


def _rewrite_wheel(path: Path, epoch: int) -> None:
    """Times and permissions of a working tree are no part of what is published."""
    with zipfile.ZipFile(path) as wheel:
        held = [(info, wheel.read(info)) for info in wheel.infolist()]
    moment = max(time.gmtime(epoch)[:6], (1980, 1, 1, 0, 0, 0))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for info, data in held:
            new = zipfile.ZipInfo(info.filename, moment)
            new.create_system = 3  # Unix, wherever it is made: permissions are read
            new.external_attr = (0o100000 | _mode(bool(info.external_attr >> 16 & 0o100))) << 16
            new.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(new, data)


def _rewrite_sdist(path: Path, epoch: int) -> None:
    with tarfile.open(path) as archive:
        held = [(m, archive.extractfile(m)) for m in sorted(archive, key=lambda m: m.name)]
        text = io.BytesIO()
        with tarfile.open(fileobj=text, mode="w", format=tarfile.PAX_FORMAT) as copy:
            for member, data in held:
                new = tarfile.TarInfo(member.name)
                new.type, new.size, new.mtime = member.type, member.size, epoch
                new.mode = _mode(member.isdir() or bool(member.mode & 0o100))
                copy.addfile(new, data)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, epoch) as packed:
        packed.write(text.getvalue())


if __name__ == "__main__":  # python tools/build_backend.py FOLDER: the sdist, for `make wheel`
    print(build_sdist(sys.argv[1]))
