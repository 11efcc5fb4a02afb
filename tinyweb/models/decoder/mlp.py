"""What follows attention in a layer: each token on its own."""

from __future__ import annotations

from collections.abc import Callable

from tinyweb.models.decoder.config import MlpConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.nn.layers import Linear
from tinyweb.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": lambda x: x.silu(),
    "gelu": lambda x: x.gelu(),
    "gelu_tanh": lambda x: x.gelu("tanh"),
    "relu": lambda x: x.relu(),
}


class Mlp:
    """Two layers, or three where one gates another (Shazeer 2020)."""

    gate: Linear | None

    def __init__(self, config: MlpConfig, load: Loader, layer: str):
        c, names, hidden = config, load.names, load.config.hidden_size
        rows = [c.width, c.width] if c.gated else [c.width]
        *gate, self.up = load.linears(layer, names.gate_up, rows, hidden, c.bias)
        self.gate = gate[0] if gate else None
        (self.down,) = load.linears(layer, (names.down,), [hidden], c.width, c.bias)
        self.activation = ACTIVATIONS[c.activation]

    def __call__(self, h: Tensor, activations: str) -> Tensor:
        """Of h (…, hidden); the same shape."""
        if self.gate is None:
            return self.down(self.activation(self.up(h, activations)), activations)
        gated = self.activation(self.gate(h, activations)) * self.up(h, activations)
        return self.down(gated, activations)
