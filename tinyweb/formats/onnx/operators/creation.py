"""Operators that make values of nothing: constants, ranges, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyweb.array.threefry import Generator
from tinyweb.dtype import DType, dtypes, to_dtype
from tinyweb.formats.onnx.call import Call, Held, Host, lift
from tinyweb.formats.onnx.operators.common import cast, fixed, number, size_of
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.sizes import Sizes, quotient
from tinyweb.graph.ir import larger_size, size_add, size_max, size_sub
from tinyweb.tensor import Tensor


@op("Constant", raw=True)
def constant(call: Call) -> Any:
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        if call.has(name):
            return np.array(call.real(name) if dtype is np.float32 else call.integer(name), dtype)
    if call.has("value_floats"):
        return np.array(call.reals("value_floats"), np.float32)
    if call.has("value_ints"):
        return np.array(call.integers("value_ints"), np.int64)
    if call.has("value_string"):
        return np.array(call.text("value_string"), object)
    if call.has("value_strings"):
        return np.array(call.texts("value_strings"), object)
    if call.has("sparse_value"):
        return call.sparse("sparse_value")
    return call.tensor("value")


@op("ConstantOfShape", host=(0,), folds=True, sizes=True)
def constant_of_shape(call: Call, shape: Host) -> Any:
    value: Any = call.tensor("value") if call.has("value") else np.zeros(1, np.float32)
    kind = None
    if isinstance(value, Held):
        kind, value = value.kind, value.value
    if isinstance(shape, Sizes):
        return _full(call, shape, value, kind)
    sizes = [int(n) for n in shape.reshape(-1)]
    if min(sizes, default=0) < 0:
        raise call.error(f"shape {sizes} has sizes below 0")
    call.afford(size_of(sizes), 4)
    if isinstance(value, Tensor):
        return value.reshape(()).broadcast_to(tuple(sizes))
    filled = np.broadcast_to(value.reshape(()), sizes)
    return filled if kind is None else Held(filled, kind)


def _full(call: Call, shape: Sizes, value: Any, kind: Any) -> Any:
    """Of a shape that varies."""
    one = lift(value, call.device).reshape(())
    filled = call.part(one.broadcast_to(tuple(map(size_max, shape.reshape(-1)))), shape.reshape(-1).tolist())
    return filled if kind is None else Held(filled, kind)


@op("Range", host=(0, 1, 2), folds=True, sizes=True)
def lower_range(call: Call, start: Host, limit: Host, delta: Host) -> Any:
    if any(isinstance(v, Sizes) for v in (start, limit, delta)):
        return _varying_range(call, start, limit, delta)
    begin, end, step = number(start), number(limit), number(delta)
    if step == 0:
        raise call.error("steps of 0 lead nowhere")
    count = max(int(np.ceil((end - begin) / step)), 0)
    call.afford(count)
    steps: Host = begin + np.arange(count) * step
    return steps.astype(start.dtype)


def _varying_range(call: Call, start: Host, limit: Host, delta: Host) -> Tensor:
    begin, end = (v.reshape(-1).tolist()[0] for v in (start, limit))
    step = fixed(delta.reshape(-1).tolist()[0])
    if step == 0:
        raise call.error("steps of 0 lead nowhere")
    distance = size_sub(end, begin) if step > 0 else size_sub(begin, end)
    count = larger_size(0, quotient(size_add(distance, abs(step) - 1), abs(step)))
    kind = next(v.kind for v in (start, limit, delta) if isinstance(v, Sizes))
    steps = call.part(Tensor.arange(size_max(count), dtype=to_dtype(kind), device=call.device), [count])
    first = call.whole(begin, kind)
    return steps * step + first


@op("EyeLike")
def eye_like(call: Call, x: Tensor) -> Tensor:
    dtype = _dtype(call, x.dtype)
    rows, columns, k = fixed(x.shape[0]), fixed(x.shape[1]), call.integer("k", 0)
    call.afford(rows * columns)
    return Tensor(np.eye(rows, columns, k, dtype=np.float32), device=x.device).cast(dtype)


def _dtype(call: Call, default: DType) -> DType:
    if not call.has("dtype"):
        return default
    kind = call.kind(call.integer("dtype"))
    if kind.dtype is None or kind.held:
        raise call.unsupported(f"{kind.name} is not supported")
    return kind.dtype


def generator(call: Call) -> Generator | None:
    seed = call.real("seed", None)
    return None if seed is None else Generator(int(np.float32(seed).view(np.uint32)))


def _draw(call: Call, shape: list[int], default: DType, device: str) -> Tensor:
    source, dtype = generator(call), _dtype(call, default)
    if "Uniform" in call.op:
        low, high = call.real("low", 0.0), call.real("high", 1.0)
        x = Tensor.uniform(*shape, low=low, high=high, generator=source, device=device)
    else:
        mean, scale = call.real("mean", 0.0), call.real("scale", 1.0)
        x = Tensor.normal(*shape, mean=mean, std=scale, generator=source, device=device)
    return cast(x, dtype)


@op("RandomUniform", "RandomNormal", raw=True, draws=True)
def random(call: Call) -> Tensor:
    return _draw(call, call.integers("shape"), dtypes.float32, call.device)


@op("RandomUniformLike", "RandomNormalLike", keeps=True, draws=True)
def random_like(call: Call, x: Tensor) -> Tensor:
    return _draw(call, [fixed(n) for n in x.shape], x.dtype if x.dtype.is_float else dtypes.float32, x.device)


@op("Bernoulli", keeps=True, draws=True)
def bernoulli(call: Call, x: Tensor) -> Tensor:
    return cast(x.bernoulli(generator=generator(call)), _dtype(call, x.dtype))


@op("Multinomial", keeps=True, draws=True)
def multinomial(call: Call, x: Tensor) -> Tensor:
    dtype = _dtype(call, dtypes.int32)
    drawn = (
        x.cast(dtypes.float32)
        .softmax(-1)
        .multinomial(call.integer("sample_size", 1), replacement=True, generator=generator(call))
    )
    return cast(drawn, dtype)


@op("Dropout", keeps=True, draws=True)
def dropout(call: Call, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Any:
    everything = Tensor.ones(*x.shape, dtype=dtypes.bool, device=x.device)
    if training is None or not bool(number(call.known(training, "training_mode"))):
        return x, everything
    p = 0.5 if ratio is None else float(number(call.known(ratio, "ratio")))
    if p == 0:
        return x, everything
    seed = call.integer("seed", None)
    kept = Tensor.uniform(*x.shape, generator=None if seed is None else Generator(seed), device=x.device) >= p
    return cast(kept.where(x / (1 - p), 0), x.dtype), kept
