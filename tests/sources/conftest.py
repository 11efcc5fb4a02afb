import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from tests.sources.hub_server import Hub, running_hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub of its own, with an empty cache."""
    with running_hub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.address)
        template = f"{running.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        yield running


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`full_disk(n)`: files that are being downloaded find no room beyond n bytes."""
    opened = Path.open

    class Full:
        def __init__(self, file: Any, room: int):
            self.file, self.room = file, room

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, chunk: bytes) -> None:
            if self.file.tell() > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.file.write(chunk)

    def fill(room: int) -> None:
        def opening(path: Path, *args: Any, **keywords: Any) -> Any:
            file = opened(path, *args, **keywords)
            return Full(file, room) if path.name.endswith(".part") else file

        monkeypatch.setattr(Path, "open", opening)

    return fill
