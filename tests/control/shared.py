"""What is expensive to make and the same for every test: made once in a run, whichever worker needs it first."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

LIMIT_S = 1200  # of what another worker makes

Shared = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """`shared(name, make)`: a path of that name, which `make(path)` has filled. Not to be changed by tests.

    All workers of a run use one folder; the others wait while one of them makes it. What failed is tried by the next.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)

    def get(name: str, make: Callable[[Path], None]) -> Path:
        path = folder / name
        done = folder / f"{name}.made"
        with FileLock(folder / f"{name}.lock", timeout=LIMIT_S):
            if not done.exists():
                make(path)
                done.touch()
        return path

    return get
