"""What follows attention in a layer: each token on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyweb.models.decoder.config import XIELU, MlpConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.nn.layers import Linear
from tinyweb.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": lambda x: x.silu(),
    "gelu": lambda x: x.gelu(),
    "gelu_tanh": lambda x: x.gelu("tanh"),
    "gelu_sigmoid": lambda x: x * (x * 1.702).sigmoid(),
    "relu": lambda x: x.relu(),
    "relu_squared": lambda x: x.relu() * x.relu(),
    "tanh": lambda x: x.tanh(),
}


class Mlp:
    """Two layers, or three where one gates another (Shazeer 2020), called `gate_up` and `down` in the checkpoint."""

    gate: Linear | None

    def __init__(self, config: MlpConfig, load: Loader, layer: str, gate_up: Sequence[str], down: str):
        c, hidden = config, load.config.hidden_size
        rows = [c.width, c.width] if c.gated else [c.width]
        self.config = config
        *gate, self.up = load.linears(layer, gate_up, rows, hidden, c.bias)
        self.gate = gate[0] if gate else None
        down_bias = c.bias if c.down_bias is None else c.down_bias
        (self.down,) = load.linears(layer, (down,), [hidden], c.width, down_bias)
        self.curve = load.xielu(layer + load.names.activation) if c.activation == XIELU else None

    def __call__(self, h: Tensor, activations: str) -> Tensor:
        """Of h (…, hidden); the same shape."""
        return self.down(self.inner(h, activations), activations)

    def inner(self, h: Tensor, activations: str) -> Tensor:
        """What `down` reads: (…, width)."""
        if self.curve is not None:
            return xielu(self.up(h, activations), self.curve)
        if self.gate is None:
            return ACTIVATIONS[self.config.activation](self.up(h, activations))
        return gated(self.config, self.gate(h, activations), self.up(h, activations))


def xielu(x: Tensor, curve: Tensor) -> Tensor:
    """αp · x² + β · x above 0, αn · (exp(min(x, ε)) − 1 − x) + β · x else, of `curve` (αp, αn, β, ε) (Huang and Schlag
    2024, arXiv 2411.13010)."""
    above, below, slope, least = (curve[i] for i in range(4))
    return (x > 0).where(above * x * x, (x.minimum(least).expm1() - x) * below) + slope * x


def gated(c: MlpConfig, gate: Tensor, up: Tensor) -> Tensor:
    """The activation of `gate` times `up`."""
    if c.cut is not None:
        mean = gate.mean(-1, keepdim=True)
        deviation = ((gate - mean) * (gate - mean)).mean(-1, keepdim=True).sqrt()
        gate = (gate - (mean + deviation * c.cut)).relu()
    if c.limit is not None:
        gate, up = gate.minimum(c.limit), up.clamp(-c.limit, c.limit)
    return ACTIVATIONS[c.activation](gate) * (up + c.shift if c.shift else up)
