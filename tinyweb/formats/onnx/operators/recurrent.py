"""Recurrent layers: RNN, GRU, LSTM. Few steps are unrolled, many a loop; products with the whole input are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.common import fixed
from tinyweb.formats.onnx.operators.steps import is_long, looped
from tinyweb.formats.onnx.registry import op
from tinyweb.graph.ir import Size, size_max
from tinyweb.tensor import Tensor

NODES = 8  # of a graph that a step would be
Activation = Callable[[Tensor], Tensor]


def _activation(call: Call, name: str, alpha: float | None, beta: float | None) -> Activation:
    def a(default: float) -> float:
        return default if alpha is None else alpha

    def b(default: float) -> float:
        return default if beta is None else beta

    known: dict[str, Activation] = {
        "relu": lambda x: x.relu(),
        "tanh": lambda x: x.tanh(),
        "sigmoid": lambda x: x.sigmoid(),
        "affine": lambda x: x * a(1.0) + b(0.0),
        "leakyrelu": lambda x: x.leaky_relu(a(0.01)),
        "thresholdedrelu": lambda x: x.threshold(a(1.0), 0.0),
        "scaledtanh": lambda x: (x * b(1.0)).tanh() * a(1.0),
        "hardsigmoid": lambda x: (x * a(0.2) + b(0.5)).clamp(0, 1),
        "elu": lambda x: (x > 0).where(x, x.minimum(0).expm1() * a(1.0)),
        "softsign": lambda x: x.softsign(),
        "softplus": lambda x: x.softplus(),
    }
    if name.lower() not in known:
        raise call.error(f"activation {name!r} is none that ONNX has")
    return known[name.lower()]


def _activations(call: Call, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    names = call.texts("activations") or list(defaults) * directions
    if len(names) != len(defaults) * directions:
        raise call.error(f"activations {names} are not {len(defaults)} for each direction")
    alphas, betas = iter(call.reals("activation_alpha", [])), iter(call.reals("activation_beta", []))
    takes_alpha = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
    takes_beta = {"affine", "scaledtanh", "hardsigmoid"}
    found = [
        _activation(
            call, n, next(alphas, None) if n.lower() in takes_alpha else None,
            next(betas, None) if n.lower() in takes_beta else None,
        )
        for n in names
    ]  # fmt: skip
    each = len(defaults)
    return [found[i * each : (i + 1) * each] for i in range(directions)]


@dataclass
class Layer:
    """One direction: inputs for its gates (steps, batch, gates · hidden), what is multiplied with the state, biases of
    the state, and activations."""

    call: Call
    hidden: int
    own: Tensor
    r: Tensor
    bias: Tensor | None
    f: list[Activation]
    peephole: Tensor | None = None

    def held(self, x: Tensor) -> Tensor:
        clip = self.call.real("clip", None)
        return x if clip is None else x.clamp(-clip, clip)

    def gate(self, x: Tensor, i: int) -> Tensor:
        return x[:, i * self.hidden : (i + 1) * self.hidden]

    def state(self, h: Tensor) -> Tensor:
        y = h.matmul(self.r.transpose(0, 1))
        return y if self.bias is None else y + self.bias


Step = Callable[[Layer, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def _rnn(layer: Layer, own: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return layer.f[0](layer.held(own + layer.state(h))), c


def _gru(layer: Layer, own: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    n, f, g = layer.hidden, layer.f[0], layer.f[1]
    if layer.call.integer("linear_before_reset", 0):
        before = layer.state(h).contiguous()
        z = f(layer.held(layer.gate(own, 0) + layer.gate(before, 0)))
        r = f(layer.held(layer.gate(own, 1) + layer.gate(before, 1)))
        new = g(layer.held(layer.gate(own, 2) + r * layer.gate(before, 2)))
    else:
        before = h.matmul(layer.r[: 2 * n].transpose(0, 1))
        before = before if layer.bias is None else before + layer.bias[: 2 * n]
        z = f(layer.held(layer.gate(own, 0) + layer.gate(before, 0)))
        r = f(layer.held(layer.gate(own, 1) + layer.gate(before, 1)))
        last = (r * h).matmul(layer.r[2 * n :].transpose(0, 1))
        last = last if layer.bias is None else last + layer.bias[2 * n :]
        new = g(layer.held(layer.gate(own, 2) + last))
    return (1 - z) * new + z * h, c


def _lstm(layer: Layer, own: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    gates = (own + layer.state(h)).contiguous()
    i, o, f, g = (layer.gate(gates, k) for k in range(4))
    p, n = layer.peephole, layer.hidden
    if p is not None:
        i, f = i + p[:n] * c, f + p[2 * n :] * c
    i = layer.f[0](layer.held(i))
    f = 1 - i if layer.call.integer("input_forget", 0) else layer.f[0](layer.held(f))
    c = (f * c + i * layer.f[1](layer.held(g))).contiguous()
    if p is not None:
        o = o + p[n : 2 * n] * c
    return layer.f[0](layer.held(o)) * layer.f[2](c), c


def _run(layer: Layer, step: Step, h: Tensor, c: Tensor, lengths: Tensor | None, reverse: bool) -> Any:
    steps = layer.own.shape[0]
    if not isinstance(steps, int) or is_long(steps, NODES):
        return _loop(layer, step, h, c, lengths, reverse)
    outputs: list[Tensor] = [h] * steps
    for t in range(steps)[:: -1 if reverse else 1]:
        given, h, c = _one(layer, step, layer.own[t], h, c, None if lengths is None else lengths > t)
        h, c = h.contiguous(), c if lengths is None else c.contiguous()  # it is memory already
        outputs[t] = h if lengths is None else given
    return Tensor.stack(*outputs, axis=0), h, c


def _one(layer: Layer, step: Step, own: Tensor, h: Tensor, c: Tensor, inside: Tensor | None) -> Any:
    """What a step gives, and the state after it; outside of a text nothing changes."""
    new_h, new_c = step(layer, own, h, c)
    if inside is None:
        return new_h, new_h, new_c
    inside = inside.reshape(-1, 1)
    return inside.where(new_h, 0.0), inside.where(new_h, h), inside.where(new_c, c)


def _loop(layer: Layer, step: Step, h: Tensor, c: Tensor, lengths: Tensor | None, reverse: bool) -> Any:
    call, own = layer.call, layer.own
    steps = own.shape[0]
    last = steps - 1 if isinstance(steps, int) else call.whole(steps, np.dtype(np.int32)) - 1
    cell = step is _lstm

    def one(at: Tensor, state: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        t = last - at if reverse else at
        given, new_h, new_c = _one(
            layer, step, own.take(t, 0).reshape(*own.shape[1:]), state[0], state[-1],
            None if lengths is None else lengths > t,
        )  # fmt: skip
        return [new_h, new_c] if cell else [new_h], [given]

    read = [t for t in (own, layer.r, layer.bias, layer.peephole, lengths) if t is not None]
    state, rows = looped(call, steps, [h, c] if cell else [h], one, read, [reverse])
    return rows[0], state[0], state[-1]


_GATES: dict[str, tuple[int, list[str], Step]] = {
    "RNN": (1, ["Tanh"], _rnn),
    "GRU": (3, ["Sigmoid", "Tanh"], _gru),
    "LSTM": (4, ["Sigmoid", "Tanh", "Tanh"], _lstm),
}


@op("RNN", "GRU", "LSTM")
def recurrent(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h0: Tensor | None = None, c0: Tensor | None = None, peepholes: Tensor | None = None, *, kind: str = "",
) -> Any:  # fmt: skip
    gates, defaults, step = _GATES[kind or call.op]
    direction = call.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
    batch_first = call.integer("layout", 0)
    x = x.permute(1, 0, 2) if batch_first else x
    n, directions, batch = fixed(r.shape[-1]), 2 if direction == "bidirectional" else 1, x.shape[1]
    if fixed(w.shape[0]) != directions or fixed(w.shape[1]) != gates * n:
        raise call.error(f"weights of shape {list(w.shape)} are not those of {directions} × {gates} gates of {n}")
    f = _activations(call, defaults, directions)
    found = []
    for d in range(directions):
        own = x.linear(w[d])
        bias = None
        if b is not None:
            own, bias = own + b[d, : gates * n], b[d, gates * n :]
        layer = Layer(call, n, own.contiguous(), r[d], bias, f[d], None if peepholes is None else peepholes[d])
        h, c = (_state(call, s, d, batch, n, x) for s in (h0, c0))
        at = None if lengths is None else lengths.cast(dtypes.int32)
        found.append(_run(layer, step, h, c, at, direction == "reverse" or d == 1))
    y = Tensor.stack(*(y for y, _, _ in found), axis=1) if directions > 1 else found[0][0].unsqueeze(1)
    h, c = (Tensor.stack(*(s[i] for s in found), axis=0) for i in (1, 2))
    if batch_first:
        y, h, c = y.permute(2, 0, 1, 3), h.permute(1, 0, 2), c.permute(1, 0, 2)
    return y, h, c


def _state(call: Call, state: Tensor | None, d: int, batch: Size, n: int, x: Tensor) -> Tensor:
    if state is None:
        return call.part(Tensor.zeros(size_max(batch), n, dtype=x.dtype, device=x.device), [batch, n])
    return (state.permute(1, 0, 2) if call.integer("layout", 0) else state)[d]
