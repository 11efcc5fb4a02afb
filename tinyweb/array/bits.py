"""The bits of an array read as another dtype."""

from __future__ import annotations

from tinyweb.dtype import BY_NAME, DType, dtypes
from tinyweb.graph.ir import Ops, UOp, size_mul


def reinterpret(x: UOp, dtype: DType, method: str) -> UOp:
    """The bits of `x` as `dtype`. Between types of different widths the last axis grows or shrinks by their ratio, the
    first element in the low bits, as memory holds them.

    ValueError where a wider type does not divide the last axis, or there is none.
    """
    old, new = x.dtype.bits, dtype.bits
    if x.dtype is dtype:
        return x
    if old == new:
        return UOp(Ops.BITCAST, dtype, (x,))
    ratio = max(old, new) // min(old, new)
    last = x.shape[-1] if x.shape else None
    whole = last is not None and (new < old or (isinstance(last, int) and last % ratio == 0))
    if last is None or not whole:
        raise ValueError(
            f"{method}: {x.dtype.name} {x.shape} as {dtype.name}: the last axis must be a multiple of {ratio}"
            if x.shape
            else f"{method}: a 0-d {x.dtype.name} cannot be read as {dtype.name}, which has another width"
        )
    before, part, word = x.shape[:-1], BY_NAME[f"uint{min(old, new)}"], BY_NAME[f"uint{max(old, new)}"]
    raw = reinterpret(x, BY_NAME[f"uint{old}"], method)
    words = last if new < old else int(last) // ratio  # type: ignore[arg-type]
    shape = (*before, words, ratio)
    places = UOp(Ops.IOTA, dtypes.int32, (), ratio).cast(word) * min(old, new)
    amounts = _spread(UOp(Ops.RESHAPE, word, (places,), (*(1 for _ in shape[:-1]), ratio)), shape)
    if new < old:
        column = UOp(Ops.RESHAPE, word, (raw,), (*before, words, 1))
        parts = _spread(column, shape).alu(Ops.SHR, amounts).cast(part)
        flat = UOp(Ops.RESHAPE, part, (parts,), (*before, size_mul(words, ratio)))
    else:
        parts = UOp(Ops.RESHAPE, part, (raw,), shape).cast(word).alu(Ops.SHL, amounts)
        total = UOp(Ops.REDUCE, word, (parts,), (Ops.ADD, (len(shape) - 1,)))
        flat = UOp(Ops.RESHAPE, word, (total,), (*before, words))
    return reinterpret(flat, dtype, method)


def _spread(x: UOp, shape: tuple[int | UOp, ...]) -> UOp:
    return x if x.shape == shape else UOp(Ops.EXPAND, x.dtype, (x,), shape)
