"""RWKV-7's time mixing in place of attention (Peng et al. 2025, arXiv 2503.14456): a state that each token rewrites.

Of a head's state S, (width, width), each token makes S · (diag(w) + a ⊗ b) + v ⊗ k, and reads S · r of it. Where a
chunk's tokens are read at once, the chunk's whole transition is a matrix too: with keys and queries multiplied and
divided by the decay since the chunk's beginning, what tokens add to each other solves a triangular system (the WY form,
Yang et al. 2024). All chunks are made side by side; one product for each carries the state through them.
"""

from __future__ import annotations

from tinyweb.graph.ir import Size
from tinyweb.models.decoder.config import TimeMixConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.state import State, mixed_with_last
from tinyweb.nn.layers import Linear
from tinyweb.tensor import Tensor

CHUNK = 8  # tokens of a triangular system; powers of larger ones lose digits
PIECE = 256  # tokens whose states between chunks are kept at once
SLOWEST = -0.6065306597126334  # exp(-0.5): the logarithm of the fastest decay, for the sigmoid that is between
SHIFTS = ("r", "w", "k", "v", "a", "g")  # what inputs are mixed for: receptance, decay, key, value, rate, gate


class LowRank:
    """A matrix of low rank, with a function between its halves."""

    def __init__(self, load: Loader, name: str, rank: int, bias: bool):
        hidden = load.config.hidden_size
        (self.down,) = load.linears(name, ("lora.0",), [rank], hidden, False)
        (self.up,) = load.linears(name, ("lora.2",), [hidden], rank, bias)

    def __call__(self, x: Tensor, activations: str, between: str = "") -> Tensor:
        h = self.down(x, activations)
        h = h.tanh() if between == "tanh" else h.sigmoid() if between == "sigmoid" else h
        return self.up(h, activations)


class TimeMix:
    """The mixer of one layer. Its state, float32: `last` (batch, 1, hidden), what went in last, and `sums` (batch,
    heads, width, width), values along the first axis of a head, keys along the second."""

    cache_name = "state"

    def __init__(self, config: TimeMixConfig, load: Loader, layer: str):
        c, hidden, name = config, load.config.hidden_size, layer + "attn."
        self.config = c
        self.shifts = load.rows([f"{name}x_{kind}" for kind in SHIFTS])
        square = [load.linears(name, (f"{kind}_proj",), [hidden], hidden, False)[0] for kind in "rkvo"]
        self.query, self.key, self.value, self.output = square
        self.decay = LowRank(load, f"{name}w_lora.", c.decay_rank, True)
        self.rate = LowRank(load, f"{name}a_lora.", c.rate_rank, True)
        self.gate = LowRank(load, f"{name}g_lora.", c.gate_rank, False)
        self.first = None if c.first else LowRank(load, f"{name}v_lora.", c.value_rank, True)
        self.key_scale, self.key_rate = load.vector(name + "k_k", hidden), load.vector(name + "k_a", hidden)
        self.bonus = load.matrix_as_is(name + "r_k", (c.heads, c.width))
        self.head_norm = load.norm(name + "g_norm", c.norm)

    def state_shapes(self, batch: int) -> dict[str, tuple[int, ...]]:
        c = self.config
        return {"last": (batch, 1, c.heads * c.width), "sums": (batch, c.heads, c.width, c.width)}

    def linears(self) -> dict[str, Linear]:
        """The halves of matrices of low rank, by name."""
        parts = {"decay": self.decay, "rate": self.rate, "gate": self.gate, "first": self.first}
        return {f"{n}_{half}": getattr(p, half) for n, p in parts.items() if p is not None for half in ("down", "up")}

    def __call__(
        self, h: Tensor, start: Size, count: Size, state: State, passed: dict[str, Tensor], activations: str
    ) -> Tensor:
        """Of h (batch, tokens, hidden) at positions start, start + 1, …; the same shape.

        The first `count` tokens go into the state, which must be that of all positions before `start`. `passed`: what
        layers leave for those behind them: values of the first one.
        """
        c = self.config
        batch, tokens = h.shape[:2]
        assert isinstance(batch, int) and isinstance(tokens, int)
        heads = (batch, tokens, c.heads, c.width)
        mixed, state["last"] = mixed_with_last(h, self.shifts, state.before("last", start), count)
        receptance, decay, key, value, rate, gate = mixed
        r, k, v = self.query(receptance, activations), self.key(key, activations), self.value(value, activations)
        w = self.decay(decay, activations, "tanh").sigmoid() * SLOWEST
        if self.first is None:
            passed["values"] = v
        else:
            v = v + (passed["values"] - v) * self.first(value, activations).sigmoid()
        a = self.rate(rate, activations).sigmoid()
        removed = (k * self.key_scale).reshape(*heads)
        removed = removed / (removed * removed).sum(-1, keepdim=True).sqrt().maximum(1e-12)
        k = k * ((a - 1) * self.key_rate + 1)
        if not isinstance(count, int):  # what is not of the text changes nothing
            inside = (Tensor.arange(tokens, device=h.device) < Tensor(count, device=h.device)).reshape(tokens, 1)
            w, k = inside.where(w, 0.0), inside.where(k, 0.0)
            removed = inside.unsqueeze(-1).where(removed, 0.0)
        r, w, k, v, a = (x.reshape(*heads) for x in (r, w, k, v, a))
        y = self._read(r, w, k, v, -removed, removed * a, start, state)
        y = self._normed(y) + (r * k * self.bonus).sum(-1, keepdim=True) * v
        y = y.reshape(batch, tokens, c.heads * c.width) * self.gate(gate, activations, "sigmoid")
        return self.output(y, activations)

    def _normed(self, y: Tensor) -> Tensor:
        """The norm of each head (…, heads, width), with weights of its own."""
        c, norm = self.config, self.head_norm
        y = y.layer_norm((c.width,), eps=norm.config.eps)
        for part, add in ((norm.weight, False), (norm.bias, True)):
            if part is not None:
                part = part.reshape(c.heads, c.width)
                y = y + part if add else y * part
        return y

    def _read(
        self, r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, start: Size, state: State
    ) -> Tensor:
        """What tokens read; everything is (batch, tokens, heads, width), w the logarithm of the decay."""
        tokens, sums = r.shape[1], state.before("sums", start)
        assert isinstance(tokens, int)
        r, w, k, v, a, b = (x.transpose(1, 2) for x in (r, w, k, v, a, b))
        if tokens == 1:
            gone = (sums * a).sum(-1).unsqueeze(-1)
            sums = sums * w.exp() + gone * b + v.transpose(-1, -2) * k
            state["sums"] = sums
            return (sums * r).sum(-1).unsqueeze(1)
        read = []
        for at in range(0, tokens, PIECE):
            r1, w1, k1, v1, a1, b1 = (x[:, :, at : min(at + PIECE, tokens)] for x in (r, w, k, v, a, b))
            y, sums = piece(r1, w1, k1, v1, a1, b1, sums)
            read.append(y if tokens <= PIECE else y.contiguous())  # sums are not made for what other pieces have
        state["sums"] = sums
        return (read[0] if len(read) == 1 else read[0].cat(*read[1:], axis=2)).transpose(1, 2)


def piece(r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """What tokens (batch, heads, tokens, width) read, and the state (batch, heads, width, width) behind them."""
    tokens, width = r.shape[-2:]
    assert isinstance(tokens, int) and isinstance(width, int)
    count = -(-tokens // CHUNK)
    if count * CHUNK > tokens:  # tokens of zeros leave the state as it is
        r, w, k, v, a, b = (x.pad((0, 0, 0, count * CHUNK - tokens)) for x in (r, w, k, v, a, b))
    r, w, k, v, a, b = (x.reshape(*x.shape[:2], count, CHUNK, width) for x in (r, w, k, v, a, b))
    decay = w.cumsum(-2)
    a, r = a * (decay - w).exp(), r * decay.exp()
    k, b = (x * (-decay).exp() for x in (k, b))
    turned_k, turned_b = k.transpose(-1, -2), b.transpose(-1, -2)
    solved = inverse((a @ turned_b).tril(-1))
    removed, added = solved @ a, solved @ ((a @ turned_k).tril(-1) @ v)
    seen = (r @ turned_b).tril()
    last = decay[..., -1:, :].exp()
    carry = (removed.transpose(-1, -2) @ b + Tensor.eye(width, device=r.device)) * last
    more = (added.transpose(-1, -2) @ b + v.transpose(-1, -2) @ k) * last
    states = [sums]
    for i in range(count):
        states.append(states[-1] @ carry[:, :, i] + more[:, :, i])
    before = Tensor.stack(*states[:-1], axis=2)
    read = (r + seen @ removed) @ before.transpose(-1, -2) + seen @ added + (r @ turned_k).tril() @ v
    return read.reshape(*read.shape[:2], count * CHUNK, width)[:, :, :tokens], states[-1]


def inverse(strict: Tensor) -> Tensor:
    """(I - L)⁻¹ of strictly lower triangular L (…, CHUNK, CHUNK): (I + L) (I + L²) (I + L⁴) …, as far as there are
    powers that are not 0."""
    found, power, reach = strict + Tensor.eye(CHUNK, device=strict.device), strict, 2
    while reach < CHUNK:
        power = power @ power
        found = found + power @ found
        reach *= 2
    return found
