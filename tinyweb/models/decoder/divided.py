"""A decoder divided among devices: each has some of the heads and of the MLP's columns (Shoeybi et al., Megatron-LM,
2019).

Queries, keys, values, gates and what they meet are rows of matrices, divided among devices as the heads are, with the
cache; the matrices behind them are divided along their columns, so that each product is a sum over devices: one
all-reduce after attention's output and one after the MLP's. Embedding, norms, head and hidden states are whole on each.
Parts differ where they must: three heads on two devices are two and one. Where there are more devices than heads of
keys and values, each of these is on several, beside the queries that read it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tinyweb.device import Device
from tinyweb.errors import TinywebError
from tinyweb.graph.ir import size_max
from tinyweb.graph.schedule import even_sizes
from tinyweb.models.decoder.attention import Attention
from tinyweb.models.decoder.cache import Cache, Start
from tinyweb.models.decoder.config import AttentionConfig
from tinyweb.models.decoder.layer import Layer
from tinyweb.models.decoder.mlp import Mlp
from tinyweb.models.decoder.model import Decoder
from tinyweb.models.decoder.norm import Norm
from tinyweb.nn.layers import Linear, Stacked
from tinyweb.nn.quantized_weight import QuantizedWeight
from tinyweb.tensor import Tensor

TILE = 64  # columns of which parts of different sizes have whole ones: their rows begin where vectors do
PARTS = 8  # tiles of a device at least: else smaller ones, so that no device has much more than another


def shard_decoder(model: Decoder, devices: str | Sequence[str]) -> Decoder:
    """Divides a model among devices, in place: from now on it lies and runs there. Its caches are empty again.

    `devices`: their names, as of `Tensor.shard`; at most as many as there are heads of queries, columns of an MLP, and
    groups of quantised columns: TinywebError if there are more. NotImplementedError for layers other than attention
    with an MLP, where queries are gated, and where layers share keys.
    """
    members = Device.members(devices)
    name = ",".join(members)
    if len(members) < 2:
        raise TinywebError(f"a model is divided among at least two devices, not {name}")
    for i, layer in enumerate(model.layers):
        _check(layer, i, len(members))
    put = _Shared(name)
    for attribute in ("embedding", "learned", "embedding_norm", "norm", "head", "rotaries"):
        setattr(model, attribute, _mapped(getattr(model, attribute), put))
    for rotary in model.rotaries.values():
        rotary.device = name
    for layer in model.layers:
        _divide(layer, members, name)
    for attribute in ("ids", "logits", "sampling_f", "sampling_i", "verified"):
        held: Tensor = getattr(model, attribute)
        setattr(model, attribute, Tensor.empty(*map(size_max, held.shape), dtype=held.dtype, device=name))
    model.device = name
    model.forget()
    return model


def _check(layer: Layer, number: int, count: int) -> None:
    """Whether a layer can be divided."""
    mixer, mlp = layer.mixer, layer.mlp
    if not isinstance(mixer, Attention) or mixer.config.gated or mixer.config.keys_of is not None:
        what = type(mixer).__name__ if not isinstance(mixer, Attention) else "attention with gates or shared keys"
        raise NotImplementedError(f"layer {number} has {what}: only plain attention is divided among devices so far")
    if not isinstance(mlp, Mlp) or layer.side is not None or layer.streams is not None or layer.mlp_shift is not None:
        raise NotImplementedError(f"layer {number} has more than an MLP: such layers are not divided among devices yet")
    heads = _units(mixer.output, _copied_heads(mixer.config, count))
    for what, size in (("heads", heads), ("columns of the MLP", _units(mlp.down, mlp.config.width))):
        if size < count:
            raise TinywebError(
                f"layer {number} has {size} {what} that can be divided, which are too few for {count} devices: choose "
                "fewer devices, or a quantisation of smaller groups"
            )


def _divide(layer: Layer, members: tuple[str, ...], name: str) -> None:
    put = _Shared(name)
    mlp = layer.mlp
    assert isinstance(layer.mixer, Attention) and isinstance(mlp, Mlp)
    layer.mixer = DividedAttention(layer.mixer, members, name)
    width, count = mlp.config.width, len(members)
    units = _units(mlp.down, width)
    while units % count and units % 2 == 0 and width // units < TILE and units // 2 >= PARTS * count:
        units //= 2
    shares = even_sizes(units, count)
    mlp.gate = None if mlp.gate is None else _rows(mlp.gate, members, shares)
    mlp.up, mlp.down = _rows(mlp.up, members, shares), _columns(mlp.down, members, shares)
    mlp.curve = _mapped(mlp.curve, put)
    for attribute in ("attention_norm", "attention_after", "mlp_norm", "mlp_after"):
        setattr(layer, attribute, _mapped(getattr(layer, attribute), put))


class DividedAttention(Attention):
    """Attention whose heads are divided among devices. Queries, keys and values have matrices of their own."""

    def __init__(self, whole: Attention, members: tuple[str, ...], name: str):
        vars(self).update(vars(whole))
        c, put = whole.config, _Shared(name)
        del self.qkv
        self.members = members
        held = _copied_heads(c, len(members))
        self.config = dataclasses.replace(c, kv_heads=held)
        self.shares = shares = even_sizes(_units(whole.output, held), len(members))
        bounds = [0, c.heads * c.width, (c.heads + c.kv_heads) * c.width, (c.heads + 2 * c.kv_heads) * c.width]
        query, *others = (_some(whole.qkv, begin, end) for begin, end in pairwise(bounds))
        copies = _Copies(held // c.kv_heads, c.width)
        self.query = _rows(query, members, shares)
        self.key, self.value = (_rows(copies.linear(part), members, shares) for part in others)
        self.output = _columns(whole.output, members, shares)
        self.query_head_norm = self.key_head_norm = self.head_norm = None
        if whole.head_norm is not None:
            self.query_head_norm = _mapped(_some_heads(whole.head_norm, 0, c.heads), put)
            of_keys = _some_heads(whole.head_norm, c.heads, c.heads + c.kv_heads)
            self.key_head_norm = _mapped(_Copies(held // c.kv_heads, 1).norm(of_keys), put)
        if whole.key_norm is not None:
            self.key_norm = copies.norm(whole.key_norm)
        for attribute in ("query_norm", "key_norm", "sinks", "slopes", "rotary"):
            setattr(self, attribute, _mapped(getattr(self, attribute), put))

    def new_cache(self, batch: int, positions: int, kind: str, device: str | None) -> Cache:
        """An empty one, of which each device has its heads."""
        cache = super().new_cache(batch, positions, kind, device)
        for attribute in ("rows", "scales", "least"):
            t = getattr(cache, attribute)
            if t is not None:
                empty = Tensor.zeros(*map(size_max, t.shape), dtype=t.dtype, device=self.members[0])
                sizes = _scaled(self.shares, size_max(t.shape[1])) if batch == 1 else None
                setattr(cache, attribute, empty.shard(self.members, 1, sizes).realize())
        return cache

    def made(self, h: Tensor, start: Start, activations: str) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        c = self.config
        query, key, value = (
            part(h, activations).reshape(*h.shape[:2], heads, c.width)
            for part, heads in ((self.query, c.heads), (self.key, c.kv_heads), (self.value, c.kv_heads))
        )
        norms = self.query_head_norm, self.key_head_norm
        if norms[0] is not None and norms[1] is not None:
            if c.norm_turned:
                query, key = self._positioned(query, start), self._positioned(key, start)
                return norms[0](query), norms[1](key), self._clipped(value), None
            query, key = norms[0](query), norms[1](key)
        return *self.placed(query, key, self._clipped(value), start), None


class _Shared:
    """Puts tensors whole onto each device; one that is met again is the same again."""

    def __init__(self, name: str):
        self.name = name
        self.done: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, t: Tensor) -> Tensor:
        if t.device == self.name:
            return t
        if id(t) not in self.done:
            self.done[id(t)] = t, t.shard(self.name).realize()
        return self.done[id(t)][1]


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same parts of a model with their tensors changed; objects that are no records are changed themselves."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_mapped(v, change) for v in value)
    if isinstance(value, dict):
        return {k: _mapped(v, change) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{k: _mapped(v, change) for k, v in vars(value).items()})
    if type(value).__module__.startswith("tinyweb.") and hasattr(value, "__dict__"):
        for k, v in vars(value).items():
            setattr(value, k, _mapped(v, change))
    return value


def _copied_heads(config: AttentionConfig, count: int) -> int:
    """Heads of keys and values, copies included: at least as many as devices, if there are as many queries."""
    held = (k for k in range(config.kv_heads, config.heads, config.kv_heads) if config.heads % k == 0 and k >= count)
    return next(held, config.heads)


class _Copies:
    """Heads of `width` rows, each several times."""

    def __init__(self, count: int, width: int):
        self.count, self.width = count, width

    def __call__(self, t: Tensor) -> Tensor:
        if self.count == 1:
            return t
        heads = t.reshape(-1, 1, self.width, *t.shape[1:])
        return heads.expand(-1, self.count, *heads.shape[2:]).reshape(-1, *t.shape[1:]).contiguous()

    def linear(self, linear: Linear) -> Linear:
        found: Linear = _mapped(Linear.of(linear.weight, linear.bias), self)
        return found

    def norm(self, norm: Norm) -> Norm:
        """Of all heads, or of each: squares of copies have the mean of what they are copies of."""
        if self.count == 1 or (self.width == 1 and (norm.weight is None or norm.weight.ndim < 2)):
            return norm
        over = norm.over if self.width == 1 else (norm.over[0] * self.count,)
        return Norm(norm.config, over, *(None if t is None else self(t) for t in (norm.weight, norm.bias)))


def _units(linear: Linear, count: int) -> int:
    """Into how many equal parts the columns of a matrix can be divided, which belong to `count` things."""
    return math.gcd(count, *(size_max(t.shape[1]) for t in Linear.of(linear.weight).tensors().values()))


def _scaled(shares: Sequence[int], size: int) -> tuple[int, ...]:
    return tuple(size * s // sum(shares) for s in shares)


def _sharded(members: tuple[str, ...], axis: int, shares: Sequence[int]) -> Callable[[Tensor], Tensor]:
    return lambda t: t.shard(members, axis, _scaled(shares, size_max(t.shape[axis]))).realize()


def _rows(linear: Linear, members: tuple[str, ...], shares: Sequence[int]) -> Linear:
    """Each device has some of the rows, which make some of the results."""
    found: Linear = _mapped(Linear.of(linear.weight, linear.bias), _sharded(members, 0, shares))
    return found


def _columns(linear: Linear, members: tuple[str, ...], shares: Sequence[int]) -> Linear:
    """Each device has some of the columns, which meet some of what is multiplied with them."""
    weight = _mapped(linear.weight, _sharded(members, 1, shares))
    return Linear.of(weight, None if linear.bias is None else linear.bias.shard(members).realize())


def _some(linear: Linear, begin: int, end: int) -> Linear:
    """Rows `begin` … `end` - 1."""
    bias = None if linear.bias is None else linear.bias[begin:end]
    return Linear.of(_some_rows(linear.weight, begin, end), bias)


def _some_rows(weight: Tensor | QuantizedWeight | Stacked, begin: int, end: int) -> Tensor | QuantizedWeight:
    if not isinstance(weight, Stacked):
        some: Tensor | QuantizedWeight = _mapped(weight, lambda t: t[begin:end])
        return some
    at = 0
    for part in weight.parts:
        size = part.shape[0]
        assert isinstance(size, int)
        if at <= begin and end <= at + size:
            return _some_rows(part, begin - at, end - at)
        at += size
    raise NotImplementedError("heads of one layer that are stored in several precisions are not divided among devices")


def _some_heads(norm: Norm, begin: int, end: int) -> Norm:
    """The norm of some heads, where each has a weight of its own."""
    weight, bias = (t if t is None or t.ndim < 2 else t[begin:end] for t in (norm.weight, norm.bias))
    return Norm(norm.config, norm.over, weight, bias)
