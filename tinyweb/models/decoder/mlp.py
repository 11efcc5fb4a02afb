"""What follows attention in a layer: each token on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyweb.models.decoder.config import MlpConfig
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

    def __call__(self, h: Tensor, activations: str) -> Tensor:
        """Of h (…, hidden); the same shape."""
        return self.down(self.inner(h, activations), activations)

    def inner(self, h: Tensor, activations: str) -> Tensor:
        """What `down` reads: (…, width)."""
        if self.gate is None:
            return ACTIVATIONS[self.config.activation](self.up(h, activations))
        return gated(self.config, self.gate(h, activations), self.up(h, activations))


def gated(c: MlpConfig, gate: Tensor, up: Tensor) -> Tensor:
    """The activation of `gate` times `up`."""
    if c.cut is not None:
        mean = gate.mean(-1, keepdim=True)
        deviation = ((gate - mean) * (gate - mean)).mean(-1, keepdim=True).sqrt()
        gate = (gate - (mean + deviation * c.cut)).relu()
    if c.limit is not None:
        gate, up = gate.minimum(c.limit), up.clamp(-c.limit, c.limit)
    return ACTIVATIONS[c.activation](gate) * (up + c.shift if c.shift else up)
