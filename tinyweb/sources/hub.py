"""Models on the Hugging Face hub, through `huggingface_hub`: its cache, its token. Large files go on after a break."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock
from huggingface_hub import (
    HfApi,
    constants,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    snapshot_download,
)
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is its connections' library's
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import tqdm as hub_progress  # type: ignore[attr-defined]  # documented, without __all__

from tinyweb.errors import SourceError
from tinyweb.sources import FULL, HubName, Progress
from tinyweb.sources.address import Download
from tinyweb.sources.wanted import Choice, Wanted

STEP = "downloading"
MAX_FILES = 100_000  # names of a repository that are looked through
LARGE = 1 << 16  # bytes of a file that goes on where it stopped
MARGIN = 64 << 20  # bytes of the disk that are left alone


def fetch(source: HubName, wanted: Wanted, progress: Progress) -> Path:
    """The folder, or the file, of a model on the hub, with what `wanted` names of it. Raises SourceError."""
    with _told(source):
        try:
            sizes = _listing(source)
        except (OfflineModeIsEnabled, HTTPError, ConnectionError, TimeoutError) as error:
            if isinstance(error, HfHubHTTPError) and not _passing(error):
                raise
            return _cached(source, wanted, error)
        choice = _choose(source, wanted, sizes)
        return _download(source, choice, sizes, progress)


def _listing(source: HubName) -> dict[str, int]:
    """Bytes of all files by name."""
    info = HfApi(endpoint=constants.ENDPOINT).model_info(
        source.repository, revision=source.revision, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
    )
    siblings = info.siblings or []
    if len(siblings) > MAX_FILES:
        raise SourceError(f"{source.repository} has {len(siblings)} files, more than {MAX_FILES}; refused")
    return {s.rfilename: s.size or 0 for s in siblings if _plain(s.rfilename)}


def _plain(name: str) -> bool:
    """Whether a name stays inside of the folder it is put into."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name and ":" not in name


def _choose(source: HubName, wanted: Wanted, names: dict[str, int] | list[str]) -> Choice:
    try:
        return wanted.of(names, source.choice)
    except SourceError as error:
        raise SourceError(f"{source.repository} cannot be read: {error}") from None


def _download(source: HubName, choice: Choice, sizes: dict[str, int], progress: Progress) -> Path:
    _check_room(source, choice, sizes)
    total = sum(sizes[name] for name in choice.files)
    before, folders = 0, set()
    told = _Bytes(progress, total)
    for name in choice.files:
        _keep_what_comes(source, name, sizes[name], told.after(before))
        at = hf_hub_download(
            source.repository, name, revision=source.revision, cache_dir=constants.HF_HUB_CACHE,
            endpoint=constants.ENDPOINT, library_name="tinyweb", tqdm_class=told.of_file(before),
        )  # fmt: skip
        before += sizes[name]
        folders.add(Path(at).parents[name.count("/")])
    if len(folders) != 1:
        raise SourceError(f"{source.repository} was changed while it was downloaded: run the same command again")
    (folder,) = folders
    return folder / choice.main if choice.main else folder


def _keep_what_comes(source: HubName, name: str, size: int, progress: Progress) -> None:
    """Puts a large file where `huggingface_hub` looks for it: what that downloads itself begins anew in each run."""
    if size < LARGE:
        return
    url = hf_hub_url(source.repository, name, revision=source.revision, endpoint=constants.ENDPOINT)
    told = get_hf_file_metadata(
        url, timeout=constants.HF_HUB_ETAG_TIMEOUT, library_name="tinyweb", endpoint=constants.ENDPOINT
    )
    # what the hub itself sends may need the token, which other hosts must not see
    if not told.etag or not told.commit_hash or urlsplit(told.location).netloc == urlsplit(constants.ENDPOINT).netloc:
        return
    repository = _folder(source)
    blob = repository / "blobs" / told.etag
    if blob.parent != repository / "blobs" or (repository / "snapshots" / told.commit_hash / name).exists():
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(repository / "download.lock"):
        if not blob.exists():
            Download(told.location, blob, f"{name} of {source.repository}", told.size, "HF_HOME").run(progress)


def _folder(source: HubName) -> Path:
    """Of a repository in the cache of `huggingface_hub`."""
    return Path(constants.HF_HUB_CACHE) / f"models--{source.repository.replace('/', '--')}"


@dataclass(frozen=True)
class _Bytes:
    """Tells of bytes as they come: not of files that are here already."""

    progress: Progress
    total: int

    def after(self, before: int) -> Progress:
        """That of one file, before which so many bytes came."""
        return lambda step, done, _: self.progress(step, min(before + done, self.total), self.total)

    def of_file(self, before: int) -> type[Any]:
        """A tqdm that draws nothing, for one file, before which so many bytes came."""
        progress, total = self.progress, self.total

        class Reporting(hub_progress):
            def __init__(self, *args: Any, **keywords: Any):
                keywords.pop("name", None)
                self.came = int(keywords.get("initial") or 0)
                super().__init__(*args, **{**keywords, "disable": True})  # type: ignore[no-untyped-call]

            def update(self, n: float | None = 1) -> bool | None:
                self.came += int(n or 0)
                progress(STEP, min(before + self.came, total), total)
                return None

        return Reporting


def _check_room(source: HubName, choice: Choice, sizes: dict[str, int]) -> None:
    """A download that cannot fit is not begun."""
    cache = Path(constants.HF_HUB_CACHE)
    here = sum(f.stat().st_size for f in (_folder(source) / "blobs").glob("*") if f.is_file())
    needed = sum(sizes[name] for name in choice.files) - here  # of other revisions, too: it is an estimate
    place = next((p for p in (cache, *cache.parents) if p.exists()), Path("/"))
    free = shutil.disk_usage(place).free
    if needed > free - MARGIN:
        raise SourceError(
            f"{source.repository} needs {needed / 1e9:.1f} GB and {cache} has room for {free / 1e9:.1f} GB: make room, "
            "or name another place by the environment variable HF_HOME"
        )


def _cached(source: HubName, wanted: Wanted, error: BaseException) -> Path:
    """What an earlier run has left, where the hub cannot be reached."""
    try:
        folder = Path(
            snapshot_download(
                source.repository, revision=source.revision, cache_dir=constants.HF_HUB_CACHE, local_files_only=True
            )
        )
    except (LocalEntryNotFoundError, FileNotFoundError):
        why, advice = "there is no connection", "Go online"
        if isinstance(error, OfflineModeIsEnabled):
            why = "HF_HUB_OFFLINE is set"
        elif isinstance(error, HfHubHTTPError) and error.response is not None:
            why, advice = f"it answers with status {error.response.status_code}", "Wait"
        raise SourceError(
            f"there is no folder {source.repository} here, and it cannot be fetched from {constants.ENDPOINT}: {why}, "
            f"and it was not downloaded before. {advice} and run the same command again; it goes on where it stopped"
        ) from None
    names = [str(PurePosixPath(*p.relative_to(folder).parts)) for p in folder.rglob("*") if p.is_file()]
    choice = _choose(source, wanted, names)
    return folder / choice.main if choice.main else folder


def _passing(error: HfHubHTTPError) -> bool:
    """Whether the hub itself is at fault."""
    return error.response is not None and error.response.status_code >= 500


@contextmanager
def _told(source: HubName) -> Iterator[None]:
    """Errors of the hub as sentences."""
    page, name = f"{constants.ENDPOINT}/{source.repository}", source.repository
    again = "run the same command again; it goes on where it stopped"
    try:
        yield
    except SourceError:
        raise
    except GatedRepoError:
        raise SourceError(
            f"{name} is gated: open {page}, accept its terms, then log in with `hf auth login` or set HF_TOKEN"
        ) from None
    except RepositoryNotFoundError:
        raise SourceError(
            f"there is no folder {name} here, and no model of that name on {constants.ENDPOINT}, or it is private: "
            "check the name, or log in with `hf auth login` or HF_TOKEN"
        ) from None
    except RevisionNotFoundError:
        raise SourceError(f"{name} has no revision {source.revision!r}: see {page}/tree/main") from None
    except LocalEntryNotFoundError as error:
        said = str(error.__cause__ or error).split(". ")[0]
        raise SourceError(f"the connection to {constants.ENDPOINT} broke while {name} came ({said}): {again}") from None
    except EntryNotFoundError:
        raise SourceError(f"a file of {name} is missing on {constants.ENDPOINT}: {again}") from None
    except HFValidationError as error:
        raise SourceError(f"{name} is no name on the hub: {error}") from None
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no"
        if status == 429:
            raise SourceError(f"{constants.ENDPOINT} allows no more downloads for now: wait, then {again}") from None
        raise SourceError(f"{constants.ENDPOINT} answered {name} with status {status}: {again}") from None
    except (HTTPError, ConnectionError, TimeoutError) as error:
        said = str(error) or type(error).__name__
        raise SourceError(f"the connection to {constants.ENDPOINT} broke while {name} came ({said}): {again}") from None
    except OSError as error:
        if error.errno in FULL:
            raise SourceError(
                f"the disk of {constants.HF_HUB_CACHE} is full: make room, or name another place by the environment "
                f"variable HF_HOME, and {again}"
            ) from None
        if error.strerror is not None:  # of the disk: the command line says it
            raise
        raise SourceError(f"{name} did not come whole: {again}") from None
