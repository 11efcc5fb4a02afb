"""Tensor: the lazy array people write models with.

Methods carry the names and semantics PyTorch users know. A method composes a few primitive operations; nothing is
computed
before `.realize()`, `.numpy()`, `.item()` or `.tolist()` asks for a value.

    from tinyweb import Tensor
    a = Tensor([[1.0, 2.0], [3.0, 4.0]])
    print((a @ a.T).relu().sum().item())
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.array.core import realize_all
from tinyweb.array.creation import Creation
from tinyweb.array.movement import Movement


class Tensor(Creation):
    """A lazy n-dimensional array on a device."""

    __slots__ = ()

    def cat(self: Tensor | Sequence[Tensor], *others: Tensor | Sequence[Tensor], dim: int = 0) -> Tensor:
        """Joined along an axis: `a.cat(b, c, dim=1)` or `Tensor.cat([a, b], dim=1)`."""
        joined = Movement.cat(self, *others, dim=dim)
        assert isinstance(joined, Tensor)
        return joined

    def stack(self: Tensor | Sequence[Tensor], *others: Tensor | Sequence[Tensor], dim: int = 0) -> Tensor:
        """Joined along a new axis."""
        joined = Movement.stack(self, *others, dim=dim)
        assert isinstance(joined, Tensor)
        return joined


__all__ = ["Tensor", "realize_all"]
