"""Programs over few tensors used many times compute on every runtime what NumPy says.

`make test` sees the same few each time. Here a shard of `make test-all` runs 10,000 with a seed of its own, which the
head of the report names: TINYWEB_TEST_SEED=… with the test's name repeats them, and a failure prints the program.
"""

from __future__ import annotations

import pytest

from tests.control.seeds import SEED
from tests.fuzz.few_tensors import Limits, check_all, program
from tinyweb.device import Device, OpenDevice

TOGETHER = 25  # programs whose kernels are compiled in one go
LIMITS = {
    "CPU": Limits(),
    "WASM": Limits(),
    "WEBGPU": Limits(1 << 15, 1 << 21, 4, 1000),
    "INTERPRETER": Limits(1 << 12, 1 << 16, 4, 300),
}
# parts of how many programs: (device, threads or 0 for what the device has, parts, programs of each)
ALL = [("CPU", 1, 5, 600), ("CPU", 2, 5, 600), ("CPU", 0, 2, 600), ("WASM", 0, 3, 600),
       ("WEBGPU", 0, 3, 200), ("INTERPRETER", 0, 2, 200)]  # fmt: skip
PARTS = [(device, threads, part, count) for device, threads, parts, count in ALL for part in range(parts)]
FEW = [("CPU", 1, 24), ("CPU", 2, 12), ("WASM", 0, 12), ("WEBGPU", 0, 6), ("INTERPRETER", 0, 12)]


def check(device: str, threads: int, part: int, count: int, patch: pytest.MonkeyPatch) -> None:
    if threads:
        patch.setenv("TINYWEB_THREADS", str(threads))
        patch.setitem(Device._open, device, OpenDevice(device))
    limits, kind = LIMITS[device], sorted(LIMITS).index(device)
    for first in range(0, count, TOGETHER):
        numbers = [(SEED, kind, threads, part, i) for i in range(first, min(first + TOGETHER, count))]
        check_all([program(n, limits) for n in numbers], device)


@pytest.mark.parametrize(("device", "threads", "count"), FEW)
def test_few(device: str, threads: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(device, threads, 99, count, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "threads", "part", "count"), PARTS)
def test_many(device: str, threads: int, part: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(device, threads, part, count, monkeypatch)


def test_there_are_ten_thousand_and_of_all_kinds() -> None:
    """What is claimed of the programs: how many, over how few tensors, how large, of what ranks and types."""
    assert sum(count for *_, count in PARTS) == 10_000
    made = [program((0, i), LIMITS["CPU"]) for i in range(250)]
    values = [v for p in made for v in p.values.values()]
    assert all(1 <= len(p.inputs) <= 3 and p.lines for p in made)
    assert {len(v.shape) for v in values} >= set(range(6))
    assert {v.dtype.name for v in values} >= {"float32", "float16", "int8", "int32"}
    assert max(max(v.shape, default=0) for v in values) >= 2000
    lines = [line for p in made for line in p.lines]
    for word in ("@", "einsum", "softmax", "conv2d", "+=", "argmax", ".flip(", ".T", "permute", "% "):
        assert sum(word in line for line in lines) >= 1, word
    assert repr(made[3].lines) == repr(program((0, 3), LIMITS["CPU"]).lines)
