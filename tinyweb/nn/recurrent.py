"""Recurrent layers, with PyTorch's arguments, names and initial weights.

A step is a few kernels whose results lie in memory; the products with the whole input are one.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import size_max
from tinyweb.nn.parameters import uniform
from tinyweb.tensor import Tensor

JOINED = 6  # parts that one kernel joins: it can bind 8 buffers


def _stacked(parts: list[Tensor]) -> Tensor:
    """Along a new first axis."""
    rows = [p.unsqueeze(0) for p in parts]
    while len(rows) > 1:
        groups = [rows[i : i + JOINED] for i in range(0, len(rows), JOINED)]
        rows = [Tensor.cat(g).contiguous() if len(g) > 1 else g[0] for g in groups]
    return rows[0]


class _Cell:
    """One step: gates of the input and of the state before, `gates` times `hidden_size` of them."""

    gates: ClassVar[int]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, device: str | None = None,
        dtype: DType = dtypes.float32,
    ):  # fmt: skip
        self.hidden_size = hidden_size
        bound, rows = 1 / math.sqrt(max(hidden_size, 1)), self.gates * hidden_size
        self.weight_ih = uniform((rows, input_size), bound, device, dtype)
        self.weight_hh = uniform((rows, hidden_size), bound, device, dtype)
        self.bias_ih = uniform((rows,), bound, device, dtype) if bias else None
        self.bias_hh = uniform((rows,), bound, device, dtype) if bias else None

    def _zeros(self, x: Tensor) -> Tensor:
        return Tensor.zeros(*x.shape[:-1], self.hidden_size, dtype=x.dtype, device=x.device)


class RNNCell(_Cell):
    """h' = tanh(W x + b + U h + c), or relu: x (…, in), h (…, hidden) (zeros if None) → (…, hidden)."""

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", **options: Any
    ):
        super().__init__(input_size, hidden_size, bias, **options)
        self.nonlinearity = _known(nonlinearity)

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        h = self._zeros(x) if h is None else h
        own = x.linear(self.weight_ih, self.bias_ih) + h.linear(self.weight_hh, self.bias_hh)
        return own.tanh() if self.nonlinearity == "tanh" else own.relu()


class GRUCell(_Cell):
    """A gated recurrent unit (Cho et al. 2014): x (…, in), h (…, hidden) (zeros if None) → (…, hidden)."""

    gates = 3

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        h = self._zeros(x) if h is None else h
        return _gru(x.linear(self.weight_ih, self.bias_ih), h.linear(self.weight_hh, self.bias_hh), h)


class LSTMCell(_Cell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997): x (…, in), (h, c) of (…, hidden) (zeros if None) →
    (h', c')."""

    gates = 4

    def __call__(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = (self._zeros(x), self._zeros(x)) if state is None else state
        return _lstm(x.linear(self.weight_ih, self.bias_ih) + h.linear(self.weight_hh, self.bias_hh), c)


def _known(nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f'RNN: nonlinearity must be "tanh" or "relu", got {nonlinearity!r}')
    return nonlinearity


def _lstm(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = gates.contiguous().chunk(4, -1)
    c = (f.sigmoid() * c + i.sigmoid() * g.tanh()).contiguous()
    return o.sigmoid() * c.tanh(), c


def _gru(own: Tensor, before: Tensor, h: Tensor) -> Tensor:
    (r, z, n), (rh, zh, nh) = own.contiguous().chunk(3, -1), before.contiguous().chunk(3, -1)
    update = (z + zh).sigmoid()
    new = (n + (r + rh).sigmoid() * nh).tanh()
    return new + update * (h - new)


class _Recurrent:
    """Layers of cells along a sequence: (L, N, in), (N, L, in) with `batch_first`, or (L, in)."""

    gates: ClassVar[int]

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, *, device: str | None = None,
        dtype: DType = dtypes.float32,
    ):  # fmt: skip
        name = type(self).__name__
        if num_layers < 1 or not 0 <= dropout <= 1 or not 0 <= proj_size < hidden_size:
            raise ValueError(
                f"{name}: needs num_layers of at least 1, dropout within 0 and 1, proj_size below hidden_size; got "
                f"{num_layers}, {dropout} and {proj_size}"
            )
        self.hidden_size, self.num_layers, self.batch_first = hidden_size, num_layers, batch_first
        self.dropout, self.directions, self.proj_size = dropout, 2 if bidirectional else 1, proj_size
        self.with_bias = bias
        bound, rows, out = 1 / math.sqrt(max(hidden_size, 1)), self.gates * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            for end in self._ends(layer):
                width = input_size if layer == 0 else out * self.directions
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
                shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
                for kind, shape in shapes.items():
                    setattr(self, kind + end, uniform(shape, bound, device, dtype))

    def _ends(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.directions]

    def _step(self, own: Tensor, h: Tensor, c: Tensor | None, end: str) -> tuple[Tensor, Tensor | None]:
        """The next state, given the input's gates."""
        raise NotImplementedError

    def _before(self, h: Tensor, end: str) -> Tensor:
        return h.linear(getattr(self, "weight_hh" + end), getattr(self, "bias_hh" + end, None))

    def _run(self, x: Tensor, h0: Tensor | None, c0: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        name = type(self).__name__
        if x.ndim not in (2, 3) or not all(isinstance(s, int) for s in x.shape) or x.shape[-1] != self._width():
            raise ValueError(f"{name}: needs (L, N, {self._width()}) or (L, {self._width()}), got {x.shape}")
        if x.ndim == 2:
            h0, c0 = (None if t is None else t.unsqueeze(1) for t in (h0, c0))
            wide = x.unsqueeze(0 if self.batch_first else 1)
            y, last_h, last_c = self._run(wide, h0, c0)
            cell = None if last_c is None else last_c.squeeze(1)
            return y.squeeze(0 if self.batch_first else 1), last_h.squeeze(1), cell
        sequence = x.transpose(0, 1) if self.batch_first else x
        length, batch, _ = (size_max(s) for s in sequence.shape)
        if length == 0:
            raise ValueError(f"{name}: the sequence of {x.shape} has no elements")
        count, out = self.num_layers * self.directions, self.proj_size or self.hidden_size
        for state, width in ((h0, out), (c0, self.hidden_size)):
            if state is not None and state.shape != (count, batch, width):
                raise ValueError(f"{name}: the state must be {(count, batch, width)}, got {state.shape}")
        hs: list[Tensor] = []
        cs: list[Tensor] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction, end in enumerate(self._ends(layer)):
                at = layer * self.directions + direction
                h = Tensor.zeros(batch, out, dtype=x.dtype, device=x.device) if h0 is None else h0[at]
                c: Tensor | None = None
                if self.gates == 4:
                    zeros = Tensor.zeros(batch, self.hidden_size, dtype=x.dtype, device=x.device)
                    c = zeros if c0 is None else c0[at]
                weight, bias = getattr(self, "weight_ih" + end), getattr(self, "bias_ih" + end, None)
                gates = sequence.linear(weight, bias).contiguous()
                found: list[Tensor] = []
                for t in range(length)[:: -1 if direction else 1]:
                    h, c = self._step(gates[t], h, c, end)
                    h = h.contiguous()
                    found.append(h)
                outputs.append(_stacked(found[:: -1 if direction else 1]))
                hs.append(h)
                if c is not None:
                    cs.append(c)
            sequence = outputs[0] if len(outputs) == 1 else Tensor.cat(outputs, axis=-1)
            if layer < self.num_layers - 1:
                sequence = sequence.dropout(self.dropout)
        y = sequence.transpose(0, 1) if self.batch_first else sequence
        return y, _stacked(hs), _stacked(cs) if cs else None

    def _width(self) -> int:
        return int(self.weight_ih_l0.shape[1])  # type: ignore[attr-defined]


class RNN(_Recurrent):
    """h' = tanh(W x + b + U h + c), or relu, for every element of a sequence: input, h0 (zeros if None) → (outputs,
    last states (layers · directions, N, hidden))."""

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *, device: str | None = None,
        dtype: DType = dtypes.float32,
    ):  # fmt: skip
        self.nonlinearity = _known(nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )  # fmt: skip

    def __call__(self, x: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._run(x, h0, None)[:2]

    def _step(self, own: Tensor, h: Tensor, c: Tensor | None, end: str) -> tuple[Tensor, Tensor | None]:
        total = own + self._before(h, end)
        return total.tanh() if self.nonlinearity == "tanh" else total.relu(), c


class GRU(_Recurrent):
    """Gated recurrent units along a sequence (Cho et al. 2014); see RNN."""

    gates = 3

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, *, device: str | None = None,
        dtype: DType = dtypes.float32,
    ):  # fmt: skip
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )  # fmt: skip

    def __call__(self, x: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._run(x, h0, None)[:2]

    def _step(self, own: Tensor, h: Tensor, c: Tensor | None, end: str) -> tuple[Tensor, Tensor | None]:
        return _gru(own, self._before(h, end), h), c


class LSTM(_Recurrent):
    """Long short-term memory along a sequence (Hochreiter and Schmidhuber 1997): input, (h0, c0) (zeros if None) →
    (outputs, (last h, last c)). With `proj_size` the states h have that width (Sak et al. 2014)."""

    gates = 4

    def __call__(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, h, c = self._run(x, *((None, None) if state is None else state))
        assert c is not None
        return y, (h, c)

    def _step(self, own: Tensor, h: Tensor, c: Tensor | None, end: str) -> tuple[Tensor, Tensor | None]:
        assert c is not None
        h, c = _lstm(own + self._before(h, end), c)
        return (h.linear(getattr(self, "weight_hr" + end)) if self.proj_size else h), c
