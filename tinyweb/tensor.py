"""Tensor: the lazy array people write models with.

Methods carry the names and semantics PyTorch users know. A method composes a few primitive operations; nothing is
computed
before `.realize()`, `.numpy()`, `.item()` or `.tolist()` asks for a value.

    from tinyweb import Tensor
    a = Tensor([[1.0, 2.0], [3.0, 4.0]])
    print((a @ a.T).relu().sum().item())
"""

from __future__ import annotations

from tinyweb.array.attention import Attention
from tinyweb.array.core import realize_all
from tinyweb.array.ctc import Sequences
from tinyweb.array.differentiation import Differentiation
from tinyweb.array.einsum import Einsum
from tinyweb.array.image import Image
from tinyweb.array.inplace import InPlace
from tinyweb.array.loss import Loss
from tinyweb.array.selection import Selection
from tinyweb.array.spectral import Spectral


class Tensor(Image, InPlace, Attention, Loss, Einsum, Spectral, Selection, Sequences, Differentiation):
    """A lazy n-dimensional array on a device."""

    __slots__ = ()


__all__ = ["Tensor", "realize_all"]
