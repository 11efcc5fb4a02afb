"""Damage anywhere in a model's files ends in what can be read or in a sentence: soon, in little memory, and with
nothing of the file executed. Each format 1,000 times in `make test`, 100,000 times in `make test-all`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.damage import pick
from tests.fuzz.files import FORMATS, Sample
from tests.fuzz.watched import bounded, watched
from tinyweb.errors import ModelFormatError

FEW, MANY, PARTS = 1_000, 100_000, 10
LONGEST = 2000  # characters of a message


def outcome(sample: Sample, folder: Path) -> bool:
    """Whether the folder can be read; what else there is but a sentence fails."""
    try:
        with watched():
            sample.read(folder)
    except (ModelFormatError, NotImplementedError) as error:  # damaged, or of a kind that is not supported
        assert 0 < len(str(error)) < LONGEST, str(error)[:LONGEST]
        return False
    return True


def write(folder: Path, sample: Sample) -> None:
    for name, content in sample.files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)


def check(format: str, times: int, tmp_path: Path) -> None:
    samples = list(FORMATS[format](tmp_path))
    homes = []
    for i, sample in enumerate(samples):
        homes.append(tmp_path / f"sample{i}")
        write(homes[-1], sample)
        assert outcome(sample, homes[-1]), f"sample {i} is whole"
    random = np.random.default_rng(np.random.randint(1 << 31))
    outcomes: Counter[bool] = Counter()
    with bounded():
        for _ in range(times):
            which = int(random.integers(len(samples)))
            sample, home = samples[which], homes[which]
            name = pick(random, sample.damaged)
            content = sample.damage(sample.files[name], random)
            (home / name).write_bytes(content)
            try:
                outcomes[outcome(sample, home)] += 1
            except BaseException as error:
                kept = tmp_path / "found"
                kept.write_bytes(content)
                error.add_note(f"sample {which}, {name} as in {kept}: {content[:3000]!r}")
                raise
            (home / name).write_bytes(sample.files[name])
    assert min(outcomes[True], outcomes[False]) >= times / 50, outcomes


@pytest.mark.parametrize("format", FORMATS)
def test_a_thousand(format: str, tmp_path: Path) -> None:
    check(format, FEW, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("format", FORMATS)
def test_a_hundred_thousand(format: str, part: int, tmp_path: Path) -> None:
    check(format, MANY // PARTS, tmp_path)
