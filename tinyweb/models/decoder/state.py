"""What a layer remembers of a text beside keys and values: memory whose size does not grow with it."""

from __future__ import annotations

from tinyweb.graph.ir import Size
from tinyweb.tensor import Tensor


class State:
    """Named float32 memory of one layer, updated in place. It stands behind the last token that was read, and cannot go
    back; a text that begins at position 0 finds zeros, whatever was there.
    """

    def __init__(self, shapes: dict[str, tuple[int, ...]], device: str | None):
        self.parts = {name: Tensor.empty(*shape, device=device) for name, shape in shapes.items()}

    def before(self, name: str, start: Size) -> Tensor:
        """What the tokens before `start` left."""
        part = self.parts[name]
        if isinstance(start, int):
            return part if start else Tensor.zeros(*part.shape, device=part.device)
        return (Tensor(start, device=part.device) > 0).where(part, 0.0)

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.parts[name].assign(value)

    def tensors(self) -> dict[str, Tensor]:
        """The memory, by name."""
        return self.parts


def shifted(x: Tensor, taps: Tensor, before: Tensor, count: Size) -> tuple[Tensor, Tensor]:
    """A convolution over the last positions, channel by channel: of x (batch, tokens, channels), weights (taps,
    channels), and `before` (batch, taps - 1, channels), the inputs ahead of x. The result, and the last inputs of the
    first `count` tokens."""
    tokens, reach = x.shape[1], before.shape[1]
    assert isinstance(tokens, int) and isinstance(reach, int)
    joined = before.cat(x, axis=1)
    mixed = joined[:, reach:] * taps[reach]
    for i in range(reach):
        mixed = mixed + joined[:, i : i + tokens] * taps[i]
    return mixed, joined[:, count : count + reach]


def mixed_with_last(x: Tensor, shares: Tensor, before: Tensor, count: Size) -> tuple[list[Tensor], Tensor]:
    """x (batch, tokens, hidden) with `shares` (kinds, hidden) of the token before in its place, `before` (batch, 1,
    hidden) being that ahead of x; for each kind. And the last of the first `count` tokens."""
    tokens, kinds = x.shape[1], shares.shape[0]
    assert isinstance(tokens, int) and isinstance(kinds, int)
    joined = before.cat(x, axis=1)
    change = joined[:, :tokens] - x
    return [x + change * shares[i] for i in range(kinds)], joined[:, count : count + 1]
