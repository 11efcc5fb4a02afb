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


@dataclass(frozen=True)
class Activation:
    """One of ONNX's functions, with its parameters."""

    name: str
    alpha: float | None
    beta: float | None

    def __call__(self, x: Tensor) -> Tensor:
        return _FUNCTIONS[self.name.lower()](x, self.alpha, self.beta)


def _or(given: float | None, default: float) -> float:
    return default if given is None else given


_FUNCTIONS: dict[str, Callable[[Tensor, float | None, float | None], Tensor]] = {
    "relu": lambda x, a, b: x.relu(),
    "tanh": lambda x, a, b: x.tanh(),
    "sigmoid": lambda x, a, b: x.sigmoid(),
    "affine": lambda x, a, b: x * _or(a, 1.0) + _or(b, 0.0),
    "leakyrelu": lambda x, a, b: x.leaky_relu(_or(a, 0.01)),
    "thresholdedrelu": lambda x, a, b: x.threshold(_or(a, 1.0), 0.0),
    "scaledtanh": lambda x, a, b: (x * _or(b, 1.0)).tanh() * _or(a, 1.0),
    "hardsigmoid": lambda x, a, b: (x * _or(a, 0.2) + _or(b, 0.5)).clamp(0, 1),
    "elu": lambda x, a, b: (x > 0).where(x, x.minimum(0).expm1() * _or(a, 1.0)),
    "softsign": lambda x, a, b: x.softsign(),
    "softplus": lambda x, a, b: x.softplus(),
}


def _activations(call: Call, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    names = call.texts("activations") or list(defaults) * directions
    if len(names) != len(defaults) * directions:
        raise call.error(f"activations {names} are not {len(defaults)} for each direction")
    if unknown := [n for n in names if n.lower() not in _FUNCTIONS]:
        raise call.error(f"activation {unknown[0]!r} is none that ONNX has")
    alphas, betas = iter(call.reals("activation_alpha", [])), iter(call.reals("activation_beta", []))
    takes_alpha = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
    takes_beta = {"affine", "scaledtanh", "hardsigmoid"}
    found = [
        Activation(
            n, next(alphas, None) if n.lower() in takes_alpha else None,
            next(betas, None) if n.lower() in takes_beta else None,
        )
        for n in names
    ]  # fmt: skip
    each = len(defaults)
    return [found[i * each : (i + 1) * each] for i in range(directions)]


@dataclass
class Layer:
    """All directions of a layer, which step together: inputs for the gates (steps, directions, batch, gates · hidden),
    what the state is multiplied with (directions, gates · hidden, hidden), biases (directions, 1, …), activations, and
    which directions begin at the end."""

    call: Call
    hidden: int
    own: Tensor
    r: Tensor
    bias: Tensor | None
    activations: list[list[Activation]]
    peephole: Tensor | None
    reverse: list[bool]

    def f(self, i: int, x: Tensor) -> Tensor:
        """The i-th activation of each direction."""
        mine = [f[i] for f in self.activations]
        if all(f == mine[0] for f in mine):
            return mine[0](x)
        return Tensor.stack(*(f(x[d]) for d, f in enumerate(mine)), axis=0)

    def held(self, x: Tensor) -> Tensor:
        clip = self.call.real("clip", None)
        return x if clip is None else x.clamp(-clip, clip)

    def gate(self, x: Tensor, i: int) -> Tensor:
        return x[..., i * self.hidden : (i + 1) * self.hidden]

    def state(self, h: Tensor, begin: int = 0, end: int | None = None) -> Tensor:
        """What the gates `begin` … `end` get from a state (directions, batch, hidden)."""
        rows = slice(begin * self.hidden, None if end is None else end * self.hidden)
        y = h.matmul(self.r[:, rows].transpose(1, 2))
        return y if self.bias is None else y + self.bias[..., rows]

    def at(self, t: Sequence[Any]) -> Tensor:
        """The inputs (directions, batch, gates · hidden) of a step of each direction: numbers, or Tensors (1,)."""
        rows = [
            self.own[n, d] if isinstance(n, int) else self.own[:, d].take(n, 0).reshape(*self.own.shape[2:])
            for d, n in enumerate(t)
        ]
        return Tensor.stack(*rows, axis=0)


Step = Callable[[Layer, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def _rnn(layer: Layer, own: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return layer.f(0, layer.held(own + layer.state(h))), c


def _gru(layer: Layer, own: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    before_reset = bool(layer.call.integer("linear_before_reset", 0))
    before = layer.state(h).contiguous() if before_reset else layer.state(h, 0, 2)
    z = layer.f(0, layer.held(layer.gate(own, 0) + layer.gate(before, 0)))
    r = layer.f(0, layer.held(layer.gate(own, 1) + layer.gate(before, 1)))
    last = r * layer.gate(before, 2) if before_reset else layer.state(r * h, 2)
    new = layer.f(1, layer.held(layer.gate(own, 2) + last))
    return (1 - z) * new + z * h, c


def _lstm(layer: Layer, own: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    gates = (own + layer.state(h)).contiguous()
    i, o, f, g = (layer.gate(gates, k) for k in range(4))
    p, n = layer.peephole, layer.hidden
    if p is not None:
        i, f = i + p[..., :n] * c, f + p[..., 2 * n :] * c
    i = layer.f(0, layer.held(i))
    f = 1 - i if layer.call.integer("input_forget", 0) else layer.f(0, layer.held(f))
    c = (f * c + i * layer.f(1, layer.held(g))).contiguous()
    if p is not None:
        o = o + p[..., n : 2 * n] * c
    return layer.f(0, layer.held(o)) * layer.f(2, c), c


def _run(layer: Layer, step: Step, h: Tensor, c: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """What all steps give (steps, directions, batch, hidden), and the states after them."""
    steps = layer.own.shape[0]
    if not isinstance(steps, int) or is_long(steps, NODES):
        return _loop(layer, step, h, c, lengths)
    outputs = [[h[d]] * steps for d in range(len(layer.reverse))]
    for at in range(steps):
        t = [steps - 1 - at if back else at for back in layer.reverse]
        given, h, c = _one(layer, step, t, h, c, lengths)
        h, c = h.contiguous(), c if lengths is None else c.contiguous()  # it is memory already
        for d, n in enumerate(t):
            outputs[d][n] = (h if lengths is None else given)[d]
    return Tensor.stack(*(Tensor.stack(*o, axis=0) for o in outputs), axis=1), h, c


def _one(layer: Layer, step: Step, t: Sequence[Any], h: Tensor, c: Tensor, lengths: Tensor | None) -> Any:
    """What a step gives, and the state after it; outside of a text nothing changes."""
    new_h, new_c = step(layer, layer.at(t), h, c)
    if lengths is None:
        return new_h, new_h, new_c
    inside = Tensor.stack(*(lengths > n for n in t), axis=0).unsqueeze(-1)
    return inside.where(new_h, 0.0), inside.where(new_h, h), inside.where(new_c, c)


def _loop(layer: Layer, step: Step, h: Tensor, c: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    call, steps, reverse = layer.call, layer.own.shape[0], layer.reverse
    last = steps - 1 if isinstance(steps, int) else call.whole(steps, np.dtype(np.int32)) - 1
    cell = step is _lstm

    def one(at: Tensor, state: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        t = [last - at if back else at for back in reverse]
        given, new_h, new_c = _one(layer, step, t, state[0], state[-1], lengths)
        return [new_h, new_c] if cell else [new_h], [given]

    read = [t for t in (layer.own, layer.r, layer.bias, layer.peephole, lengths) if t is not None]
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
    own, bias = x.linear(w.reshape(directions * gates * n, -1)), None
    if b is not None:
        own, bias = own + b[:, : gates * n].reshape(-1), b[:, gates * n :].unsqueeze(1)
    own = own.reshape(*x.shape[:2], directions, gates * n).permute(0, 2, 1, 3).contiguous()
    layer = Layer(
        call, n, own, r, bias, _activations(call, defaults, directions),
        None if peepholes is None else peepholes.unsqueeze(1), [direction == "reverse", True][:directions],
    )  # fmt: skip
    h, c = (_state(call, s, directions, batch, n, x) for s in (h0, c0))
    y, h, c = _run(layer, step, h, c, None if lengths is None else lengths.cast(dtypes.int32))
    if batch_first:
        y, h, c = y.permute(2, 0, 1, 3), h.permute(1, 0, 2), c.permute(1, 0, 2)
    return y, h, c


def _state(call: Call, state: Tensor | None, directions: int, batch: Size, n: int, x: Tensor) -> Tensor:
    if state is None:
        zeros = Tensor.zeros(directions, size_max(batch), n, dtype=x.dtype, device=x.device)
        return call.part(zeros, [directions, batch, n])
    return state.permute(1, 0, 2) if call.integer("layout", 0) else state
