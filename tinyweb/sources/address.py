"""One file from an address of the web, kept in tinyweb's cache.

A download that broke goes on from its last byte if the server still has the same file (RFC 9110, ranges with
`If-Range`); what is complete is asked for again by its `ETag`, and used as it is where there is no network.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import platformdirs
from filelock import FileLock

import tinyweb
from tinyweb.errors import SourceError
from tinyweb.sources import FULL, Progress

STEP = "downloading"
ENDINGS = (".gguf", ".safetensors", ".onnx", ".pt")
CHUNK = 1 << 20
TRIES = 5
TIMEOUT_S = 30
MARGIN = 64 << 20  # bytes of the disk that are left alone
BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


def cache_folder() -> Path:
    return Path(os.environ.get("TINYWEB_CACHE") or platformdirs.user_cache_dir("tinyweb")) / "downloads"


def fetch(address: str, progress: Progress) -> Path:
    """The file of an http or https address that ends in .gguf, .safetensors, .onnx or .pt. Raises SourceError."""
    name = unquote(urlsplit(address).path).rpartition("/")[2]
    if not name.endswith(ENDINGS) or name.startswith(".") or "\\" in name or "\0" in name:
        raise SourceError(f"{address[:200]} names no file that can be read: its path must end in {', '.join(ENDINGS)}")
    folder = cache_folder() / hashlib.sha256(address.encode()).hexdigest()[:24]
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        return Download(address, folder / name).run(progress)


class Download:
    """The file of an address, put where `target` is once it is whole. `name`: what messages call it; `size`: bytes that
    it must have; `variable`: that of the environment that names its place."""

    def __init__(
        self, address: str, target: Path, name: str | None = None, size: int | None = None,
        variable: str = "TINYWEB_CACHE",
    ):  # fmt: skip
        self.address, self.target, self.name, self.size, self.variable = (
            address,
            target,
            name or address,
            size,
            variable,
        )
        self.part, self.facts = target.with_name(target.name + ".part"), target.with_name(target.name + ".json")

    def run(self, progress: Progress) -> Path:
        for attempt in range(TRIES):
            had = self._had()
            try:
                self._once(progress)
                return self.target
            except urllib.error.HTTPError as error:
                if error.code >= 500 and self.target.exists():
                    return self.target
                if error.code < 500 or attempt == TRIES - 1:
                    raise self._refused(error) from None
                time.sleep(attempt)
            except BROKEN as error:
                if self.target.exists():  # it was complete before: the network is not needed
                    return self.target
                if attempt == TRIES - 1 or (attempt and self._had() == had):
                    said = getattr(error, "reason", None) or error
                    raise SourceError(
                        f"{self.name} did not come whole ({said}): run the same command again; it goes on where it "
                        "stopped"
                    ) from None
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise SourceError(
                    f"the disk of {self.target.parent} is full: make room, or name another place by the environment "
                    f"variable {self.variable}, and run the same command again; it goes on where it stopped"
                ) from None
        raise AssertionError

    def _had(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _refused(self, error: urllib.error.HTTPError) -> SourceError:
        if error.code in (401, 403):
            return SourceError(f"{self.name} is not for everybody (status {error.code}): download it yourself")
        if error.code in (404, 410):
            return SourceError(f"there is nothing at {self.name} (status {error.code}): check the address")
        return SourceError(f"the server answered {self.name} with status {error.code}: try again later")

    def _tag(self) -> str | None:
        try:
            tag = json.loads(self.facts.read_text("utf-8")).get("etag")
        except (OSError, ValueError, AttributeError):
            return None
        return tag if isinstance(tag, str) else None

    def _once(self, progress: Progress) -> None:
        request = urllib.request.Request(self.address, headers={"User-Agent": f"tinyweb/{tinyweb.__version__}"})
        tag, had = self._tag(), self._had()
        if self.target.exists():
            if tag:
                request.add_header("If-None-Match", tag)
        elif had and tag and not tag.startswith("W/"):  # a weak tag does not promise the same bytes
            request.add_header("Range", f"bytes={had}-")
            request.add_header("If-Range", tag)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                if answer.status == 206 and not (answer.headers.get("Content-Range") or "").startswith(f"bytes {had}-"):
                    self.part.unlink(missing_ok=True)  # from its beginning
                    raise ConnectionError("another part came than was asked for")
                self._receive(answer, had if answer.status == 206 else 0, progress)
        except urllib.error.HTTPError as error:
            if error.code == 304:
                return
            if error.code == 416:  # the file is another by now: from its beginning
                self.part.unlink(missing_ok=True)
                raise ConnectionError("the file was changed") from None
            raise

    def _receive(self, answer: Any, had: int, progress: Progress) -> None:
        length = answer.headers.get("Content-Length")
        total = had + int(length) if length and length.isdigit() else self.size
        if self.size not in (None, total):
            self.part.unlink(missing_ok=True)
            raise SourceError(
                f"{self.name} did not come whole (the server has {total} bytes of {self.size}): run the same command "
                "again"
            )
        free = shutil.disk_usage(self.target.parent).free
        if total is not None and total - had > free - MARGIN:
            raise SourceError(
                f"{self.name} has {total / 1e9:.1f} GB and {self.target.parent} room for {free / 1e9:.1f} GB: make "
                f"room, or name another place by the environment variable {self.variable}"
            )
        self.facts.write_text(json.dumps({"etag": answer.headers.get("ETag")}), "utf-8")
        with self.part.open("r+b" if had else "wb") as file:
            file.truncate(had)
            file.seek(had)
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                had += len(chunk)
                progress(STEP, had, total or had)
                if total is None and had > free - MARGIN:
                    raise SourceError(f"{self.name} does not end before the disk is full: make room")
        if total is not None and had != total:
            raise ConnectionError(f"{had} of {total} bytes came")
        os.replace(self.part, self.target)
        if self.size is not None:  # it is not asked for again
            self.facts.unlink()
