"""Matrices of many experts, of which each token multiplies with a few."""

from __future__ import annotations

from tinyweb.nn.quantized_weight import QuantizedWeight
from tinyweb.tensor import Tensor


class Stack:
    """Matrices (out, in) of all experts, one below the other: `weight` is (experts · out, in), `bias` (experts · out,).

    What multiplies are rows of the chosen experts, which are never copied together: a kernel reads them where they are.
    """

    def __init__(self, weight: Tensor | QuantizedWeight, rows: int, bias: Tensor | None):
        self.weight, self.rows, self.bias = weight, rows, bias
        size = weight.shape[0]
        assert isinstance(size, int)
        self.count = size // rows

    def __call__(self, x: Tensor, chosen: Tensor) -> Tensor:
        """x (tokens, 1 or chosen, in) through the experts `chosen` (tokens, chosen) → (tokens, chosen, out)."""
        # bounds that kernels know of: they need no gates
        first = chosen.clamp(0, self.count - 1).unsqueeze(-1) * self.rows
        row = first + Tensor.arange(self.rows, device=x.device)
        weight = self.weight.rows(row) if isinstance(self.weight, QuantizedWeight) else self.weight[row].float()
        y = (x.unsqueeze(-2) * weight).sum(-1)
        return y if self.bias is None else y + self.bias[row]

    def tensors(self) -> dict[str, Tensor]:
        """The memory, by name."""
        found = self.weight.tensors() if isinstance(self.weight, QuantizedWeight) else {"weight": self.weight}
        return found if self.bias is None else {**found, "bias": self.bias}
