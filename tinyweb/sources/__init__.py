"""Where models come from: a path, a name on the Hugging Face hub, or an address.

    locate("SmolLM2-135M-Instruct", CHAT)                     a folder, or a file, on this machine
    locate("HuggingFaceTB/SmolLM2-135M-Instruct", CHAT)       on the hub; `@revision` may follow
    locate("bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M", CHAT)    its GGUF of that quantisation; or `:FILE`
    locate("https://example.org/model.gguf", CHAT)

What is downloaded is kept: the hub's files in `huggingface_hub`'s own cache, those of other addresses in tinyweb's.
Only what the task needs is fetched, an interrupted download goes on where it stopped, and what is there already serves
where there is no network.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tinyweb.errors import SourceError
from tinyweb.sources.wanted import CHAT, DETECT, EMBED, GRAPH, IMAGE, IMAGE_HALF, Wanted

__all__ = [
    "CHAT",
    "DETECT",
    "EMBED",
    "GRAPH",
    "IMAGE",
    "IMAGE_HALF",
    "HubName",
    "Progress",
    "Wanted",
    "locate",
    "model_name",
    "parse",
]

FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))  # what a disk says that has no room
Progress = Callable[[str, int, int], None]  # step, bytes done, bytes in all

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_HUB = re.compile(
    rf"(?P<repository>{_PART}/{_PART})(?:@(?P<revision>[^:@\s]{{1,200}}))?(?::(?P<choice>[^:@\s]{{1,200}}))?"
)
_HUB_HOSTS = ("huggingface.co", "hf.co", "www.huggingface.co")


@dataclass(frozen=True)
class HubName:
    """A repository on the hub. `choice`: one of its files, or a quantisation that a file's name has."""

    repository: str
    revision: str = "main"
    choice: str | None = None


def parse(source: str) -> Path | HubName | str:
    """What a source means: a path, a name on the hub, or an address. SourceError where it can be none of them.

    What exists on this machine is a path, whatever it looks like.
    """
    if source and Path(source).exists():
        return Path(source)
    if re.match(r"https?://", source):
        return _of_address(source)
    if found := _HUB.fullmatch(source):
        return HubName(found["repository"], found["revision"] or "main", found["choice"])
    raise SourceError(
        f"{source[:200]} does not exist: give a folder or file on this machine, a name on the hub "
        "(organisation/model, organisation/model:Q4_K_M), or an https address"
    )


def _of_address(source: str) -> HubName | str:
    """Pages and files of the hub are names on it."""
    parts = urlsplit(source)
    if parts.hostname not in _HUB_HOSTS:
        return source
    repository, *rest = _repository([unquote(p) for p in parts.path.split("/") if p])
    if not rest:
        return HubName(repository)
    if rest[0] in ("tree", "blob", "resolve") and len(rest) > 1:
        return HubName(repository, rest[1], "/".join(rest[2:]) or None)
    raise SourceError(f"{source[:200]} is no model's page on the hub: give https://huggingface.co/organisation/model")


def _repository(path: list[str]) -> list[str]:
    if len(path) < 2 or not re.fullmatch(rf"{_PART}/{_PART}", "/".join(path[:2])):
        raise SourceError("the address names no model on the hub: give https://huggingface.co/organisation/model")
    return ["/".join(path[:2]), *path[2:]]


def model_name(path: Path) -> str:
    """What a model at a path is called: its folder, its file without the ending, or in the hub's cache its repository.

    A file of a split model is called by what the parts have in common.
    """
    path = path.resolve() if path.is_dir() else path.parent.resolve() / path.name  # files of the cache are links
    if path.parent.name == "snapshots" and path.parents[1].name.startswith("models--"):
        return path.parents[1].name.rpartition("--")[2]
    return path.name if path.is_dir() else re.sub(r"-\d{5}-of-\d{5}$", "", path.stem)


def locate(source: str | Path, wanted: Wanted, progress: Progress | None = None) -> Path:
    """A model's folder, or its file (of a split one the first), with what a task needs; downloaded if it is not here.

    Raises SourceError saying what to do: the source does not exist, is gated or private, has none of the files, cannot
    be reached, or does not fit on the disk.
    """
    found = source if isinstance(source, Path) else parse(source)
    report = progress or (lambda step, done, total: None)
    if isinstance(found, HubName):
        from tinyweb.sources.hub import fetch

        return fetch(found, wanted, report)
    if isinstance(found, str):
        from tinyweb.sources.address import fetch as fetch_address

        return fetch_address(found, report)
    if not found.exists():
        raise SourceError(f"{found} does not exist: give the path of a model's folder or file")
    return found
