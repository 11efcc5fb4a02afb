"""`--order-seed N`: the files in another order, the tests of each file too: none may need one before it."""

import zlib
from collections.abc import Sequence

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order-seed", type=int, metavar="N", help="run the tests in an order drawn from N")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--order-seed")
    if seed is not None:
        places = keys(seed, [(item.nodeid.partition("::")[0], item.nodeid) for item in items])
        items[:] = [item for _, item in sorted(zip(places, items), key=lambda pair: pair[0])]


def keys(seed: int, tests: Sequence[tuple[str, str]]) -> list[tuple[int, int, str]]:
    """What the tests, given as (file, name), are sorted by: the same in every worker."""
    return [
        (zlib.crc32(f"{seed}:{file}".encode()), zlib.crc32(f"{seed}:{name}".encode()), name) for file, name in tests
    ]
