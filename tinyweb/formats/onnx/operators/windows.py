"""Where the windows of convolutions and poolings lie: kernels, steps, borders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyweb.formats.onnx.call import Call
from tinyweb.graph.ir import (
    Size,
    larger_size,
    size_add,
    size_div,
    size_max,
    size_mul,
    size_sub,
    smaller_size,
)
from tinyweb.tensor import Tensor


@dataclass(frozen=True)
class Windows:
    """Along each axis: the kernel, the step, how far its elements are apart, and what is put around (`beyond`: what a
    last window needs on top of that)."""

    kernel: tuple[int, ...]
    step: tuple[int, ...]
    apart: tuple[int, ...]
    around: tuple[tuple[Size, Size], ...]
    beyond: tuple[Size, ...]

    @property
    def padding(self) -> list[tuple[Size, Size]]:
        return [(before, size_add(after, more)) for (before, after), more in zip(self.around, self.beyond)]


def windows(call: Call, sizes: Sequence[Size], kernel: Sequence[int] | None = None) -> Windows:
    """What the attributes say of windows over the last axes, `sizes`."""
    n = len(sizes)
    k = list(kernel) if kernel is not None else call.integers("kernel_shape")
    step, apart = call.integers("strides", [1] * n), call.integers("dilations", [1] * n)
    pads, how = call.integers("pads", [0] * (2 * n)), call.choice(
        "auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")
    )  # fmt: skip
    if not len(k) == len(step) == len(apart) == n or len(pads) != 2 * n or min((*k, *step, *apart), default=1) < 1:
        raise call.error(f"kernel {k}, strides {step}, dilations {apart} and pads {pads} do not go with {n} axes")
    around, beyond = list[tuple[Size, Size]](), list[Size]()
    for i, size in enumerate(sizes):
        reach = (k[i] - 1) * apart[i] + 1
        if how.startswith("SAME"):
            last = size_mul(size_sub(size_div(size_add(size, step[i] - 1), step[i]), 1), step[i])  # where it begins
            missing = larger_size(size_sub(size_add(last, reach), size), 0)
            less = size_div(missing, 2)
            rest = size_sub(missing, less)
            around.append((rest, less) if how == "SAME_LOWER" else (less, rest))
        else:
            around.append((0, 0) if how == "VALID" else (pads[i], pads[i + n]))
        padded = size_add(size, size_add(*around[-1]))
        more: Size = 0
        if call.integer("ceil_mode", 0):
            count = size_add(size_div(size_add(size_sub(padded, reach), step[i] - 1), step[i]), 1)
            # windows begin inside
            count = smaller_size(count, size_div(size_add(size_add(size, around[-1][0]), step[i] - 1), step[i]))
            last = size_mul(size_sub(count, 1), step[i])
            more = larger_size(size_sub(size_add(last, reach), padded), 0)
            if isinstance(padded, int) and more and count == 1:  # cut where the plane and its border end
                k[i], step[i], more = (padded - 1) // apart[i] + 1, padded, 0
                reach = (k[i] - 1) * apart[i] + 1
        beyond.append(more)
        if size_max(size_add(padded, more)) < reach:
            raise call.error(f"a window of {reach} does not fit into {padded}, axis {i} with its border")
    return Windows(tuple(k), tuple(step), tuple(apart), tuple(around), tuple(beyond))


def cut(x: Tensor, w: Windows) -> Tensor:
    """(N, C, n…), its borders around it, as windows: (N, C, o…, k…)."""
    n, first = len(w.kernel), x.ndim - len(w.kernel)
    for i, (k, s, d) in enumerate(zip(w.kernel, w.step, w.apart)):
        x = x.unfold(first + i, (k - 1) * d + 1, s)
        x = x[(*(slice(None),) * (x.ndim - 1), slice(None, None, d))] if d > 1 else x
    assert x.ndim == first + 2 * n
    return x


def border(x: Tensor, w: Windows, value: float = 0.0) -> Tensor:
    around = [(0, 0)] * (x.ndim - len(w.kernel)) + w.padding
    return x.pad(around, value=value) if any(n != 0 for pair in around for n in pair) else x
