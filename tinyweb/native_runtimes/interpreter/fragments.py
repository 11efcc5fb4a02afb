"""Matrices that the threads of subgroups have in their registers: arrays with a row for each thread."""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes, from_bits
from tinyweb.graph.ir import DescribedArg, Fragments, Layout, RowsArg
from tinyweb.graph.ir.shared_matrices import PATTERN

Array: TypeAlias = npt.NDArray[Any]

NAMED = 32  # threads that name the rows of matrices
COLUMNS = 4  # of these threads, each of which has a part of a row
_NARROW = {d.short: d for d in (dtypes.float8_e4m3, dtypes.float8_e5m2)}  # operands that are given as their bits


def multiplied(fragments: Fragments, a: Array, b: Array, sums: Array) -> Array:
    """The sums that threads have, with the product of A and B added, all as fragments."""
    if (narrow := _NARROW.get(fragments.name.rpartition("_")[2])) is not None:
        a, b = from_bits(a, narrow), from_bits(b, narrow)
    left, right = (_matrices(fragments, layout, x) for layout, x in ((fragments.a, a), (fragments.b, b)))
    wide = np.float64 if sums.dtype.kind == "f" else np.int64
    product = (left.astype(wide) @ right.astype(wide).swapaxes(1, 2)).astype(sums.dtype)
    group, rows, columns = _places(fragments, fragments.sums, len(sums))
    out: Array = sums + product[group, rows, columns]
    return out


def _matrices(fragments: Fragments, layout: Layout, values: Array) -> Array:
    """The matrix of each subgroup."""
    group, first, second = _places(fragments, layout, len(values))
    out = np.zeros((int(group.max()) + 1, *layout.shape), values.dtype)
    out[group, first, second] = values
    return out


def _places(fragments: Fragments, layout: Layout, threads: int) -> tuple[Array, Array, Array]:
    """Subgroup, row and column of all elements of all threads."""
    width, height, *several = fragments.threads
    thread = np.arange(threads)[:, None]
    elements = np.arange(layout.size)[None, :]
    within: Any = thread % width, thread // width % height, elements, thread // (width * height) % prod(several)
    first, second = layout.place(*within)
    shape = (threads, layout.size)
    group, first, second = (np.broadcast_to(x, shape) for x in (thread // prod(fragments.threads), first, second))
    return group, first, second


def described(arg: DescribedArg, index: Array, bits: int) -> Array:
    """The elements, of so many bits, of matrices that begin at each index."""
    part, width = 128 // bits, arg.width * 8 // bits
    row, step = np.divmod(np.arange(arg.rows * arg.steps), arg.steps)
    along, down = (step, row) if arg.along else (row, step)
    leading, stride = arg.leading * 8 // bits, arg.stride * 8 // bits
    place = along // width * leading + along % width + down // PATTERN * stride + down % PATTERN * width
    place = index[:, None] + place
    other = place * bits // 8 // 128 % (arg.width // 16)
    out: Array = place ^ other * part
    return out


def rows_of(arg: RowsArg, index: Array) -> Array:
    """The elements that each thread gets of rows that the threads of its subgroup name."""
    named = index.reshape(-1, NAMED)
    matrices = named.reshape(len(named), 4, -1)  # of each its rows
    each = arg.count // 4
    thread, element = np.arange(NAMED)[:, None, None], np.arange(each)
    row, part = thread // COLUMNS, thread % COLUMNS * each + element
    first, beside = np.broadcast_arrays(*((part, row) if arg.transposed else (row, part)))
    places = matrices[:, :, first[:, 0]] + beside[:, 0]  # subgroup, matrix, thread, element
    out: Array = places.transpose(0, 2, 1, 3).reshape(len(index), arg.count)
    return out
