"""Where the windows of poolings lie."""

from __future__ import annotations

from typing import Any

from tinyweb.array.convolution import positive, spread
from tinyweb.array.core import TensorCore
from tinyweb.graph.ir import Size, larger_size, size_add, size_div, size_max, size_sub, smaller_size


class Grid:
    """Where windows lie along some axes."""

    def __init__(self, sizes: tuple[Size, ...], kernel: tuple[int, ...], steps: tuple[int, ...],
                 pads: tuple[int, ...], apart: tuple[int, ...], counts: tuple[Size, ...]):  # fmt: skip
        self.sizes, self.kernel, self.steps, self.pads, self.apart = sizes, kernel, steps, pads, apart
        self.counts = counts

    @classmethod
    def of(
        cls,
        x: TensorCore,
        method: str,
        n: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        half: bool = True,
    ) -> Grid:
        """Checks the arguments of a pooling method. `half`: at most half a kernel of padding."""
        if x.ndim not in (n + 1, n + 2):
            raise ValueError(f"{method}: needs {n + 1} or {n + 2} axes, got {x.shape}")
        sizes = x.shape[x.ndim - n :]
        kernel, apart = positive(kernel_size, n, method, "kernel_size"), positive(dilation, n, method, "dilation")
        steps = kernel if stride is None or stride == () else positive(stride, n, method, "stride")
        pads = spread(padding, n, method, "padding")
        if any(p < 0 or (half and p > k // 2) for p, k in zip(pads, kernel, strict=True)):
            raise ValueError(f"{method}: padding must be 0 to half of kernel_size {kernel}, got {padding}")
        counts = list[Size]()
        for size, k, s, p, d in zip(sizes, kernel, steps, pads, apart, strict=True):
            room = size_sub(size, d * (k - 1) + 1 - 2 * p)
            count = size_add(size_div(size_add(room, s - 1) if ceil_mode else room, s), 1)
            if ceil_mode:  # a window must begin inside
                count = smaller_size(count, size_div(size_add(size, p + s - 1), s))
            if size_max(count) < 1 or (size_max(room) < 0 and not ceil_mode):
                raise ValueError(
                    f"{method}: a kernel of {kernel} with dilation {apart} is larger than the padded input {x.shape}"
                )
            counts.append(larger_size(count, 0))
        return cls(sizes, kernel, steps, pads, apart, tuple(counts))

    @property
    def overlap(self) -> bool:
        """Whether an element may lie in several windows."""
        return any(k > 1 and (k > s or d > 1) for k, s, d in zip(self.kernel, self.steps, self.apart, strict=True))

    def largest(self) -> Grid:
        """That of the largest sizes."""
        sizes, counts = (tuple(map(size_max, s)) for s in (self.sizes, self.counts))
        return Grid(sizes, self.kernel, self.steps, self.pads, self.apart, counts)

    def around(self) -> list[tuple[int, int]]:
        """The padding of each axis that makes all windows whole."""
        last = [
            (size_max(c) - 1) * s + d * (k - 1) + 1
            for c, s, d, k in zip(self.counts, self.steps, self.apart, self.kernel, strict=True)
        ]
        return [
            (p, max(e - p - n, 0) if isinstance(n, int) else p)
            for p, e, n in zip(self.pads, last, self.sizes, strict=True)
        ]
