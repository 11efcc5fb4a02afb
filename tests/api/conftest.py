"""One server for the tests of its answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.running import Running, running, served


@pytest.fixture(scope="session")
def server(model_folder: Path) -> Iterator[Running]:
    """Of the embedded models of chat and of vectors."""
    models = [
        served(model_folder, "tinychat", parallel=64, cache_tokens=4096),
        served(model_folder.parent / "tinyembed", "tinyembed"),
    ]
    with running(models) as found:
        yield found
