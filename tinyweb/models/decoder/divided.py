"""A decoder divided among devices: each has some of the heads and of the MLP's columns (Shoeybi et al., Megatron-LM,
2019).

Queries, keys, values, gates and what they meet are rows of matrices, divided among devices as the heads are, with the
cache; the matrices behind them are divided along their columns, so that each product is a sum over devices: one
all-reduce after attention's output and one after the MLP's. Embedding, norms, head and hidden states are whole on each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tinyweb.device import Device
from tinyweb.errors import TinywebError
from tinyweb.graph.ir import size_max
from tinyweb.models.decoder.attention import Attention
from tinyweb.models.decoder.cache import Cache, Start
from tinyweb.models.decoder.layer import Layer
from tinyweb.models.decoder.mlp import Mlp
from tinyweb.models.decoder.model import Decoder
from tinyweb.models.decoder.norm import Norm
from tinyweb.nn.layers import Linear, Stacked
from tinyweb.nn.quantized_weight import QuantizedWeight
from tinyweb.tensor import Tensor


def shard_decoder(model: Decoder, devices: str | Sequence[str]) -> Decoder:
    """Divides a model among devices, in place: from now on it lies and runs there. Its caches are empty again.

    `devices`: their names, as of `Tensor.shard`. The heads of keys and the width of each MLP must be multiples of their
    number: TinywebError if not. NotImplementedError for layers other than attention with an MLP, where queries are
    gated, and where layers share keys.
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
    for what, size in (("heads of keys", mixer.config.kv_heads), ("columns of the MLP", mlp.config.width)):
        if size % count:
            raise TinywebError(
                f"layer {number} has {size} {what}, which {count} devices do not divide: choose a number that does"
            )


def _divide(layer: Layer, members: tuple[str, ...], name: str) -> None:
    put = _Shared(name)
    mlp = layer.mlp
    assert isinstance(layer.mixer, Attention) and isinstance(mlp, Mlp)
    layer.mixer = DividedAttention(layer.mixer, members, name)
    mlp.gate = None if mlp.gate is None else _rows(mlp.gate, members)
    mlp.up, mlp.down = _rows(mlp.up, members), _columns(mlp.down, members, name)
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
        bounds = [0, c.heads * c.width, (c.heads + c.kv_heads) * c.width, (c.heads + 2 * c.kv_heads) * c.width]
        self.query, self.key, self.value = (
            _rows(_some(whole.qkv, begin, end), members) for begin, end in pairwise(bounds)
        )
        self.output = _columns(whole.output, members, name)
        self.query_head_norm, self.key_head_norm = (
            _mapped(None if whole.head_norm is None else _some_heads(whole.head_norm, begin, end), put)
            for begin, end in ((0, c.heads), (c.heads, c.heads + c.kv_heads))
        )
        self.head_norm = None
        for attribute in ("query_norm", "key_norm", "sinks", "slopes", "rotary"):
            setattr(self, attribute, _mapped(getattr(self, attribute), put))

    def new_cache(self, batch: int, positions: int, kind: str, device: str | None) -> Cache:
        """An empty one, of which each device has its heads."""
        cache = super().new_cache(batch, positions, kind, device)
        for attribute in ("rows", "scales", "least"):
            t = getattr(cache, attribute)
            if t is not None:
                empty = Tensor.zeros(*map(size_max, t.shape), dtype=t.dtype, device=self.members[0])
                setattr(cache, attribute, empty.shard(self.members, 1).realize())
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


def _rows(linear: Linear, members: tuple[str, ...]) -> Linear:
    """Each device has some of the rows, which make some of the results."""
    found: Linear = _mapped(Linear.of(linear.weight, linear.bias), lambda t: t.shard(members, 0).realize())
    return found


def _columns(linear: Linear, members: tuple[str, ...], name: str) -> Linear:
    """Each device has some of the columns, which meet some of what is multiplied with them."""
    put = _Shared(name)
    try:
        weight = _mapped(linear.weight, lambda t: t.shard(members, 1).realize())
    except ValueError as e:
        raise TinywebError(
            f"quantised columns cannot be divided among {len(members)} devices: their groups are too few ({e})"
        ) from e
    return Linear.of(weight, None if linear.bias is None else put(linear.bias))


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
