"""`--shard 2/8`: the second of eight parts of what is collected, each test in exactly one of them.

Which part a test is in follows from its name alone: the cases of a function stay together where they are few, so that
what they share is made once.
"""

import zlib
from collections import Counter

import pytest

FEW = 12  # cases of a function that stay together


def parsed(text: str) -> tuple[int, int]:
    """(which, of how many), counted from 1; a pytest.UsageError if the text is none."""
    which, slash, count = text.partition("/")
    if not slash or not which.isdecimal() or not count.isdecimal() or not 1 <= int(which) <= int(count):
        raise pytest.UsageError(f"--shard {text}: write it as 2/8, the second of eight parts")
    return int(which), int(count)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="I/N", help="run only part I of N")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.getoption("--shard")
    if not chosen:
        return
    which, count = parsed(chosen)
    mine: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item, shard in zip(items, assigned([item.nodeid for item in items], count)):
        (mine if shard == which else others).append(item)
    items[:] = mine
    config.hook.pytest_deselected(items=others)


def assigned(ids: list[str], count: int) -> list[int]:
    """For each test's id the shard it is in, 1 … count."""
    functions = [name.partition("[")[0] for name in ids]
    cases = Counter(functions)
    keys = [function if cases[function] <= FEW else name for name, function in zip(ids, functions)]
    return [zlib.crc32(key.encode()) % count + 1 for key in keys]
