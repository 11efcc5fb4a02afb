"""Products of 8-bit integers with scales and zero points, as sums of integers that instructions for dots compute.

Σ (x − zx) · (w − zw) is Σ x · w − zx · Σ w − zw · Σ x + K · zx · zw, whose sums of weights are known. Integers without
a sign are taken less 128, so that both factors are int8. Convolutions have their channels innermost: what is multiplied
lies side by side then, whatever the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyweb.dtype import DType, dtypes
from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.operators.common import dtype_of, fixed
from tinyweb.formats.onnx.operators.windows import cut, windows
from tinyweb.formats.onnx.sizes import size_low
from tinyweb.formats.onnx.stored import Scaled, place_of
from tinyweb.graph.optimize.instructions import INSTRUCTIONS
from tinyweb.tensor import Tensor

BYTES = (dtypes.int8, dtypes.uint8)
MIDDLE = 128  # what unsigned bytes are taken less
STEPS = 4  # products that an instruction adds up
FILLED = 3  # channels there are for each that is put beside them, at least


def how_many(value: Any) -> int:
    """How many numbers a scale or zero point has; 1 where there is none."""
    return 1 if value is None else math.prod(fixed(n) for n in value.shape)


def centre(call: Call, zero: Any, like: DType, form: DType = dtypes.int8) -> Any:
    """The integer that stands for 0 among those of a type in another form, int32: a number where it is known."""
    middle = _apart(like, form)
    if zero is None:
        return -middle
    if isinstance(zero, np.ndarray):
        return int(zero.reshape(())) - middle
    return call.given(zero).reshape(()).cast(dtypes.int32) - middle


def _apart(like: DType, form: DType) -> int:
    """What bytes of a type are taken less in a form."""
    return 0 if like is form else MIDDLE if form is dtypes.int8 else -MIDDLE


def in_form(x: Tensor, form: DType = dtypes.int8) -> Tensor:
    """Bytes in memory with a sign or without it, as products read them again and again."""
    less = _apart(x.dtype, form)
    return ((x.cast(dtypes.int32) - less).cast(form) if less else x).contiguous()


def form_of(call: Call) -> DType:
    """The bytes that are multiplied with int8: without a sign where the device has an instruction for them."""
    return dtypes.uint8 if any(INSTRUCTIONS[n].unsigned_bytes for n in call.target.instructions) else dtypes.int8


class Weights:
    """Known bytes (out, …, in) as int8 less their zero points, with the sums of each output's.

    `zero`: what is still to be subtracted of all, 0 where the integers less their zero points are int8.
    """

    def __init__(self, call: Call, values: Host, zeros: Host | None, order: Callable[[Host], Host], name: str):
        self.call, self.values, self.order, self.name = call, values, order, name
        self.key = (place_of(values), None if zeros is None else zeros.tobytes(), call.node.op, call.node.path)
        self.zero = 0
        if zeros is None:
            zeros = np.zeros((), values.dtype)
        whole = zeros.astype(np.int32)
        self.less: Host = whole.reshape(-1, *(1,) * (values.ndim - 1)) if whole.size != 1 else whole.reshape(())
        if not _are_bytes(values, whole):
            middle = MIDDLE if values.dtype == np.uint8 else 0
            self.zero, self.less = int(whole.flat[0]) - middle, np.array(middle, np.int32)

    def _integers(self) -> Host:
        return self.order((self.values.astype(np.int16) - self.less.astype(np.int16)).astype(np.int8))

    def tensor(self) -> Tensor:
        """int8, in the order of `order`."""
        return self.call.around.kept.derived(("bytes", *self.key), self.name, self._integers)

    def sums(self) -> Tensor:
        """(out,) int32."""
        return self.call.around.kept.derived(("sums", *self.key), f"{self.name}.sums", self._sums)

    def _sums(self) -> Host:
        integers = self._integers()
        sums: Host = integers.sum(tuple(range(1, integers.ndim)), dtype=np.int32)
        return sums


def _are_bytes(values: Host, zeros: Host) -> bool:
    """Whether integers less their zero points are int8."""
    if not zeros.size:
        return True
    lowest, highest = int(values.min(initial=0)) - int(zeros.max()), int(values.max(initial=0)) - int(zeros.min())
    return lowest >= -MIDDLE and highest < MIDDLE


def _has_one_zero(values: Host, zeros: Host | None) -> bool:
    """Whether `Weights` can hold integers with these zero points: several cannot be taken off the sums."""
    if zeros is None or zeros.size < 2 or (zeros == zeros.flat[0]).all():
        return True
    return _are_bytes(values, zeros)


def corrected(sums: Tensor, zero: Any, w: Weights, of_inputs: Callable[[], Tensor], count: int) -> Tensor:
    """Σ x · w (…, out) less what zero points add; `of_inputs`: Σ x (…, 1) of `count` terms."""
    if not isinstance(zero, int) or zero:
        sums = sums - w.sums() * zero
    if w.zero:
        sums = sums - of_inputs().contiguous() * w.zero
        sums = sums + (zero * w.zero * count if isinstance(zero, Tensor) else w.zero * count * zero)
    return sums


def known_product(call: Call, x: Tensor, zero: Any, w: Host, w_zero: Host | None, name: str) -> Tensor:
    """x (…, in) bytes times known bytes w (out, in): int32 (…, out)."""
    weights = Weights(call, w, w_zero, np.ascontiguousarray, name)
    form = form_of(call)
    xs, z = in_form(x, form).cast(dtypes.int32), centre(call, zero, x.dtype, form)
    sums = xs.matmul(weights.tensor().cast(dtypes.int32).transpose(0, 1), dtype=dtypes.int32)
    return corrected(sums, z, weights, lambda: xs.sum(-1, True), w.shape[1])


def computed_product(call: Call, a: Tensor, a_zero: Any, b: Tensor, b_zero: Any) -> Tensor:
    """a (…, m, k) times b (…, k, n), both bytes: int32 (…, m, n)."""
    form = form_of(call)
    x, y = in_form(a, form).cast(dtypes.int32), in_form(b).cast(dtypes.int32)
    za, zb = centre(call, a_zero, a.dtype, form), centre(call, b_zero, b.dtype)
    sums = x.matmul(y, dtype=dtypes.int32)
    if not isinstance(za, int) or za:
        sums = sums - y.sum(-2, True).contiguous() * za
    if not isinstance(zb, int) or zb:
        sums = sums - x.sum(-1, True).contiguous() * zb + za * zb * fixed(a.shape[-1])
    return sums


def matrix_product(call: Call, a: Any, a_zero: Any, place: int, b: Any, b_zero: Any, turned: bool = False) -> Any:
    """int32 sums of bytes a (…, in) times b, the input at `place`, whose last axes are turned if so; None where they
    are not to be computed so."""
    if dtype_of(a) not in BYTES or dtype_of(b) not in BYTES or how_many(a_zero) != 1 or len(a.shape) < 1:
        return None
    x, known = call.given(a), None if isinstance(b, Tensor) else call.array(place, b)
    if known is not None and known.ndim == 2 and (b_zero is None or isinstance(b_zero, np.ndarray)):
        w = known if turned else known.T
        if how_many(b_zero) in (1, len(w)) and _has_one_zero(w, b_zero):
            return known_product(call, x, a_zero, w, None if b_zero is None else b_zero.reshape(-1), name(call, place))
    if how_many(b_zero) != 1 or len(b.shape) < 2 or x.ndim < 2:
        return None
    y = call.given(b)
    return computed_product(call, x, a_zero, y.transpose(-1, -2) if turned else y, b_zero)


def name(call: Call, place: int) -> str:
    return call.node.inputs[place] if place < len(call.node.inputs) else call.node.path


def scaled_product(call: Call, a: Scaled, b: Scaled, turned: bool) -> Tensor | None:
    """a · b of values that are scaled bytes, float32; None where they are not to be computed so."""
    outputs = 0 if turned else len(b.shape) - 1
    along = how_many(b.scale) == 1 or (len(b.shape) == 2 and b.axis == outputs)
    if how_many(a.scale) != 1 or not along:
        return None
    sums: Tensor | None = matrix_product(call, a.integers, a.zero, 1, b.integers, b.zero, turned)
    return None if sums is None else sums.cast(dtypes.float32) * factor(call, a.scale, b.scale)


def factor(call: Call, a: Any, b: Any, below: Any = None) -> Tensor:
    """The scale of products of scaled integers, one or one for each output, float32: a · b, divided by a third."""
    every = [s for s in (a, b, below) if s is not None]
    if all(isinstance(s, np.ndarray) for s in every):
        found: Host = a.reshape(-1).astype(np.float32) * b.reshape(-1).astype(np.float32)
        found = found if below is None else found / below.reshape(()).astype(np.float32)
        if found.size == 1:
            return call.lift(found.reshape(()))
        return call.around.kept.derived(("scale", found.tobytes()), f"{call.node.path}.scale", lambda: found)
    x, y = (call.given(s).cast(dtypes.float32).reshape(-1) for s in (a, b))
    z: Tensor = x * y if below is None else x * y / call.given(below).cast(dtypes.float32).reshape(-1)
    return z.reshape(()) if z.numel() == 1 else z


def convolution(call: Call, x: Any, zero: Any, place: int, w: Any, w_zero: Any) -> Tensor | None:
    """int32 sums (N, o…, out) of windows of bytes x (N, C, n…) times known bytes w (out, C, k…), channels last; None
    where they are not to be computed so."""
    known = isinstance(w, np.ndarray) and call.array(place, w) is not None
    known = known and (w_zero is None or isinstance(w_zero, np.ndarray))
    n = len(x.shape) - 2
    fits = dtype_of(x) in BYTES and dtype_of(w) in BYTES and how_many(zero) == 1 and len(w.shape) == n + 2 and n >= 1
    if not known or not fits or call.integer("group", 1) != 1 or how_many(w_zero) not in (1, len(w)):
        return None
    if not _has_one_zero(w, w_zero):
        return None
    kernel, channels = [int(k) for k in w.shape[2:]], fixed(x.shape[1])
    at = windows(call, x.shape[2:], kernel)
    if channels != w.shape[1] or any(size_low(p) < 0 for pair in at.padding for p in pair):
        return None
    last = [0, *range(2, n + 2), 1]
    form, short = form_of(call), -channels % STEPS
    whole = FILLED * short <= channels  # channels of nothing cost less than windows side by side
    image, more = in_form(call.given(x).permute(*last), form), short if whole else 0
    z = centre(call, zero, dtype_of(x), form)
    if more or any(p != 0 for pair in at.padding for p in pair):  # borders stand for 0
        padded = (image.cast(dtypes.int32) - z).pad([(0, 0), *at.padding, (0, more)]) + z
        image = padded.cast(form).contiguous() if whole else padded.cast(form)
    patches = cut(channels_first(image), at)  # (N, C, o…, k…)
    outputs, count = patches.shape[2 : 2 + n], math.prod((channels, *kernel))
    patches = patches.permute(0, *range(2, 2 + 2 * n), 1).cast(dtypes.int32)
    missing = 0 if whole else -count % STEPS

    def order(values: Host) -> Host:
        rows = np.pad(values.transpose(last), [(0, 0)] * (n + 1) + [(0, more)])
        flat = rows if whole else np.pad(rows.reshape(len(rows), -1), [(0, 0), (0, missing)])
        return np.ascontiguousarray(flat)

    weights = Weights(call, w, None if w_zero is None else w_zero.reshape(-1), order, name(call, place))
    bytes_of = weights.tensor().cast(dtypes.int32)
    if whole:
        t = patches.unsqueeze(1 + n)
        sums = (t * bytes_of.reshape(1, *(1,) * n, len(w), *kernel, channels + more)).sum(tuple(range(-n - 1, 0)))
    else:
        rows = patches.reshape(patches.shape[0], *outputs, count).pad([(0, 0)] * (n + 1) + [(0, missing)])
        t = rows.cast(form).contiguous().cast(dtypes.int32)
        sums = t.matmul(bytes_of.transpose(0, 1), dtype=dtypes.int32)
        return corrected(sums, z, weights, lambda: t.sum(-1, True), count)
    return corrected(
        sums, z, weights, lambda: patches[..., :channels].sum(tuple(range(-n - 1, 0))).unsqueeze(-1), count
    )


def channels_first(y: Tensor) -> Tensor:
    """(N, o…, C) → (N, C, o…)."""
    return y.permute(0, y.ndim - 1, *range(1, y.ndim - 1))
