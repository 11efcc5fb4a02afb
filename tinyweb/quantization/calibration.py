"""What the matrices of a model are multiplied with while it reads a text: second moments of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.quantization.sites import Owner, Site
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit

Floats = npt.NDArray[np.float32]
Forward = Callable[[Tensor], Any]
MEMORY = 1 << 30  # bytes of moments that are collected in one reading of the text


class _Observed:
    """A layer that notes what it is called with."""

    def __init__(self, layer: Any, notes: list[tuple[str, Tensor]], name: str):
        self.layer, self.notes, self.name = layer, notes, name
        self.weight = layer.weight

    def __call__(self, x: Tensor, *rest: Any) -> Any:
        self.notes.append((self.name, x))
        return self.layer(x, *rest)


@contextmanager
def _observed(sites: Sequence[Site]) -> Iterator[list[tuple[str, Tensor]]]:
    notes: list[tuple[str, Tensor]] = []
    owners: list[Owner] = []
    try:
        for site in sites:
            if (owner := site.multiplied) is not None:
                owners.append(owner)
                owner.put(_Observed(owner.layer, notes, site.name))
        yield notes
    finally:
        for owner in owners:
            owner.put(owner.layer)


def second_moments(
    forward: Forward, sites: Sequence[Site], texts: Sequence[npt.NDArray[np.int32]], device: str | None,
    diagonal: bool = False, each: Callable[[], None] = lambda: None,
) -> dict[str, Floats]:  # fmt: skip
    """The mean of x xᵀ (in, in), or of x² (in,) where `diagonal`, over the inputs x of every matrix by its name, while
    `forward` reads token ids (1, tokens), `texts` being of one length. Matrices that nothing is multiplied with in this
    way have none. `each`: is called after every text.
    """
    with _observed(sites) as notes:
        names: dict[str, int] = {}

        def inputs(ids: Tensor) -> list[Tensor]:
            forward(ids)
            distinct: dict[int, tuple[int, Tensor]] = {}
            for name, x in notes:
                names[name] = distinct.setdefault(id(x), (len(distinct), x))[0]
            notes.clear()  # nothing from the inside of a traced function may stay
            return [x.float().contiguous() for _, x in distinct.values()]

        run = jit(inputs, freeze=False)
        sums: list[Floats] = []
        counts: list[int] = []
        for text in texts:
            found = [_rows(x) for x in run(Tensor(text[None], device=device))]
            if not sums:
                sums = [np.zeros(x.shape[1] if diagonal else (x.shape[1],) * 2, np.float32) for x in found]
                counts = [0] * len(found)
            for i, x in enumerate(found):
                sums[i] += (x * x).sum(0) if diagonal else x.T @ x
                counts[i] += len(x)
            each()
    return {name: sums[i] / np.float32(max(counts[i], 1)) for name, i in names.items()}


def _rows(x: Tensor) -> Floats:
    values: Floats = x.numpy()
    return values.reshape(-1, values.shape[-1])


def in_readings(sites: Sequence[Site]) -> list[list[Site]]:
    """Matrices in their order, as many at a time as have moments that fit into `MEMORY`."""
    found: list[list[Site]] = [[]]
    room = MEMORY
    for site in sites:
        need = 4 * site.shape[1] ** 2
        if found[-1] and need > room:
            found.append([])
            room = MEMORY
        found[-1].append(site)
        room -= need
    return found
