"""How the CPU's programs are compiled."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

import tinyweb.native_runtimes.cpu.runtime as cpu
from tinyweb import Tensor
from tinyweb.toolchain import SCATTERED_FLAGS, compile_shared


@pytest.mark.parametrize(("parts", "flags"), [(2, ()), (32, SCATTERED_FLAGS)])
def test_text_of_many_scattered_lanes_is_not_searched_for_vectors(
    parts: int, flags: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """32 vectors of which each lane is a load of its own."""
    told: list[Sequence[str]] = []

    def compiled(sources: Iterable[tuple[str, Sequence[str]]]) -> Path:
        given = list(sources)
        told.extend(own for _, own in given)
        return compile_shared(given)

    monkeypatch.setattr(cpu, "compile_shared", compiled)
    x = np.random.default_rng(0).standard_normal((64, parts)).astype(np.float32)
    t = Tensor(x, device="CPU").realize()
    found = sum((t[:, i] for i in range(1, parts)), t[:, 0])
    np.testing.assert_allclose(found.numpy(), x.sum(1), rtol=1e-4, atol=1e-5)
    assert told == [flags]
