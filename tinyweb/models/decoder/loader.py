"""From a checkpoint's tensors to layers: names, shapes, the order of rows and the precision that is wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType
from tinyweb.errors import TinywebError
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.kinds import STORED
from tinyweb.models.decoder.config import (
    AttentionConfig,
    DecoderConfig,
    ExpertsConfig,
    LatentConfig,
    ModelConfig,
    Names,
    NormConfig,
    RotaryConfig,
)
from tinyweb.models.decoder.norm import Norm
from tinyweb.nn.layers import Linear, Stacked
from tinyweb.nn.parameters import parameter
from tinyweb.nn.precision import Precision, Recipe, as_floats
from tinyweb.nn.quantize import QuantizedWeight
from tinyweb.tensor import Tensor

Array = npt.NDArray[Any]
QUANTISED = 32  # rows that are no multiple of it cannot be quantised anew as blocks


class Loader:
    """Reads the parameters of one model. `count`: how many numbers have been read so far."""

    def __init__(
        self, config: ModelConfig, names: Names, checkpoint: Checkpoint, quant: str | Recipe | None, device: str | None
    ):
        self.config, self.names, self.checkpoint, self.device = config, names, checkpoint, device
        self.recipe = Recipe.of(quant)
        there = [p for p in (*names.prefixes, "") if f"{p}{names.embedding}.weight" in checkpoint]
        self.prefix = there[0] if there else names.prefixes[0]  # then errors say the usual names
        self.count = 0
        self.keeps = self.recipe.layers.kind == STORED  # quantised matrices as they are stored

    @property
    def stored(self) -> DType:
        """The type that the checkpoint has floats of: its embedding's."""
        return self.checkpoint.dtype(f"{self.prefix}{self.names.embedding}.weight")

    # -- parts of the model -------------------------------------------------------------------------------------------
    def embedding(self) -> Tensor | QuantizedWeight:
        shape = (self.config.vocab_size, self.config.hidden_size)
        return self._table(self._rows(self.prefix + self.names.embedding + ".weight", shape))

    def table(self, name: str, rows: int, width: int) -> Tensor | QuantizedWeight:
        """Rows by id."""
        return self._table(self._rows(name + ".weight", (rows, width)))

    def head(self, c: DecoderConfig, embedding: Tensor | QuantizedWeight) -> Linear:
        """From hidden states to logits: by the embedding, or a matrix (vocab, hidden) of its own."""
        name, precision = self.names.head, self.recipe.head or self.recipe.embedding
        if c.tied:
            if precision != self.recipe.embedding:
                raise TinywebError(
                    f"the head of this model is its embedding, which is {self.recipe.embedding.kind} and cannot be "
                    f"{precision.kind} too: leave out --quant-head, or give --quant-embedding {precision.kind}"
                )
            weight = embedding
        else:
            weight = self.matrix(self._rows(name + ".weight", (c.vocab_size, c.hidden_size)), precision)
        return Linear.of(weight, self.vector(name + ".bias", c.vocab_size) if c.head_bias else None)

    def norm(self, name: str, config: NormConfig, width: int | None = None) -> Norm:
        """A norm of hidden states, or of `width` elements."""
        shape = (width or self.config.hidden_size,)
        weight = self._read(name + ".weight", shape) if config.weight else None
        bias = self._read(name + ".bias", shape) if config.bias else None
        return self._norm(config, weight, bias, shape)

    # -- parts of a layer ---------------------------------------------------------------------------------------------
    def qkv(self, layer: str, c: AttentionConfig) -> Linear:
        """Query, key and value as one matrix, rows in this order, and behind them the gate, where there is one;
        elements of a head in the order of `head_order`. The query alone where keys and values are another layer's."""
        if c.keys_of is not None:
            return self._query(layer, c)
        rows = [c.heads * c.width * (2 if c.gated else 1), c.kv_heads * c.width, c.kv_heads * c.width]

        def read(width: int | None) -> list[Array]:
            query, key, value = self._stack(layer, self.names.qkv, rows, width, c.kv_heads)
            gate = []
            if c.gated:
                query, *gate = _of_groups(query, c.heads, [rows[0] // 2] * 2)
            return [self._turned(query, c), self._turned(key, c), value, *gate]

        return self._linear(read(self.config.hidden_size), np.concatenate(read(None)) if c.bias else None)

    def _query(self, layer: str, c: AttentionConfig) -> Linear:
        names, rows, hidden = self.names.qkv[:1], [c.heads * c.width], self.config.hidden_size
        bias = self._turned(self._stack(layer, names, rows, None)[0], c) if c.bias else None
        return self._linear([self._turned(self._stack(layer, names, rows, hidden)[0], c)], bias)

    def query_key_norms(self, layer: str, c: AttentionConfig) -> tuple[Norm | None, Norm | None, Norm | None]:
        """The norms of queries and of keys over all their heads; or one for both over each head by itself, whose
        weights are (heads + key/value heads, width)."""
        if c.norm is None:
            return None, None, None
        query = self._of_heads(layer + self.names.query_norm, c.heads, c, c.norm)
        if c.keys_of is not None:
            return None, None, self._norm(c.norm, query[0], query[1], (c.width,))
        key = self._of_heads(layer + self.names.key_norm, c.kv_heads, c, c.norm)
        if c.norm_of == "all heads":
            return self._over_all(c.norm, query), self._over_all(c.norm, key), None
        weight, bias = (None if q is None or k is None else np.concatenate([q, k]) for q, k in zip(query, key))
        return None, None, self._norm(c.norm, weight, bias, (c.width,))

    def _over_all(self, norm: NormConfig, parts: list[Array | None]) -> Norm:
        weight, bias = (None if part is None else part.reshape(-1) for part in parts)
        size = next(part.size for part in parts if part is not None)
        return self._norm(norm, weight, bias, (size,))

    def _of_heads(self, name: str, heads: int, c: AttentionConfig, norm: NormConfig) -> list[Array | None]:
        """Weight and bias, if there are any, of the norm of queries or keys for each element of each head (heads,
        width)."""

        def read(kind: str) -> Array:
            if c.norm_of == "head":
                return np.broadcast_to(self._read(f"{name}.{kind}", (c.width,)), (heads, c.width))
            if c.norm_of == "all heads":
                return self._read(f"{name}.{kind}", (heads * c.width,)).reshape(heads, c.width)
            if not self.names.each_norm:
                return self._read(f"{name}.{kind}", (heads, c.width))
            each = [f"{name}.{self.names.each_norm.format(i)}.{kind}" for i in range(heads)]
            return np.stack([self._read(one, (c.width,)) for one in each])

        there = (("weight", norm.weight), ("bias", norm.bias))
        return [self._turned(read(k).reshape(-1), c).reshape(heads, c.width) if has else None for k, has in there]

    def linears(self, layer: str, names: Sequence[str], rows: list[int], width: int, bias: bool) -> list[Linear]:
        """Matrices (rows, width), each under its own name or all below each other under one."""
        weights = self._stack(layer, names, rows, width)
        biases = self._stack(layer, names, rows, None) if bias else [None] * len(rows)
        return [self._linear([w], b) for w, b in zip(weights, biases, strict=True)]

    def by_groups(self, layer: str, rows: dict[str, list[int]], groups: int) -> Linear:
        """Matrices of parts of so many rows, group by group in the checkpoint, as one with part behind part."""
        found = []
        for name, counts in rows.items():
            values = self._rows(f"{layer}{name}.weight", (sum(counts), self.config.hidden_size))
            found += _of_groups(values, groups, counts)
        return self._linear(found, None)

    def latent_query(self, layer: str, c: LatentConfig) -> Linear:
        """Queries of all heads: the elements without positions, then those that are turned."""
        name = self.names.qkv[0] if c.query_rank is None else self.names.query_up
        shape = (c.heads * (c.plain + c.rotary.turned), c.query_rank or self.config.hidden_size)
        return self._linear([self._rows(f"{layer}{name}.weight", shape)[self._last_turned(c.heads, c.plain, c)]], None)

    def latent(self, layer: str, c: LatentConfig) -> Linear:
        """From hidden states to the latent and to the keys' part that is turned."""
        rows, order = c.rank + c.rotary.turned, self._last_turned(1, c.rank, c)
        weight = self._rows(f"{layer}{self.names.latent}.weight", (rows, self.config.hidden_size))
        bias = self._read(f"{layer}{self.names.latent}.bias", (rows,))[order] if c.bias else None
        return self._linear([weight[order]], bias)

    def latent_up(self, name: str, c: LatentConfig) -> list[Tensor | QuantizedWeight]:
        """(heads · rank, plain) from queries to latents, and (heads · value, rank) from latents to values."""
        both = self._read(name + ".weight", (c.heads * (c.plain + c.value), c.rank)).reshape(c.heads, -1, c.rank)
        key, value = both[:, : c.plain].swapaxes(1, 2), both[:, c.plain :]
        matrices = (key.reshape(-1, c.plain), value.reshape(-1, c.rank))
        return [self.matrix(self._nearest(np.ascontiguousarray(m), name + ".weight")) for m in matrices]

    def _last_turned(self, heads: int, plain: int, c: LatentConfig) -> npt.NDArray[np.intp]:
        """Rows of heads whose last elements are turned, in the order that rotary positions need."""
        head = np.concatenate([np.arange(plain), plain + head_order(c.rotary, c.rotary.turned)])
        each: npt.NDArray[np.intp] = (np.arange(heads)[:, None] * len(head) + head).reshape(-1)
        return each

    def taps(self, name: str, count: int, channels: int) -> Tensor:
        """The weights (count, channels) of a convolution of each channel on its own."""
        values = self._read(name + ".weight", (channels, 1, count)).reshape(channels, count)
        return parameter(np.ascontiguousarray(values.T), self.device)

    def router(self, name: str, c: ExpertsConfig) -> Linear:
        """From hidden states to the scores of experts, never quantised: it is small, and what it chooses matters."""
        weight = self._dense(self._read(name + ".weight", (c.count, self.config.hidden_size)))
        return Linear.of(weight, self.vector(name + ".bias", c.count) if c.router_bias else None)

    def experts(
        self, layer: str, names: Sequence[str], rows: list[int], width: int, c: ExpertsConfig
    ) -> list[tuple[Tensor | QuantizedWeight, Tensor | None]]:
        """Matrices (experts · rows, width) and vectors (experts · rows,), from any of the forms that `Names` has."""
        weights = self._experts(layer, names, rows, width, c.count)
        biases = self._experts(layer, names, rows, None, c.count) if c.mlp.bias else [None] * len(rows)
        return [
            (self.matrix(w), None if b is None else parameter(b, self.device))
            for w, b in zip(weights, biases, strict=True)
        ]

    def _experts(self, layer: str, names: Sequence[str], rows: list[int], width: int | None, count: int) -> list[Array]:
        if "{}" in names[0]:
            each = [self._stack(layer, [n.format(i) for n in names], rows, width) for i in range(count)]
            return [np.concatenate(parts) for parts in zip(*each, strict=True)]
        (name,), total = names, sum(rows)
        inner = () if width is None else (width,)
        turned, woven = self.names.experts_transposed, self.names.experts_woven
        end = ("_bias" if width is None else "") if turned else f".{'bias' if width is None else 'weight'}"
        shape = (count, *inner, total) if turned else (count, total, *inner)
        values = None if width is None else self._stored(layer + name + end, shape)
        if values is None:
            values = self._read(layer + name + end, shape)
            values = np.moveaxis(values, -1, 1) if turned else values
            values = values if width is None else self._nearest(values, layer + name + end)
        parts = (
            [values[:, i :: len(rows)] for i in range(len(rows))]
            if woven
            else np.split(values, np.cumsum(rows)[:-1], axis=1)
        )
        return [np.ascontiguousarray(part).reshape(-1, *part.shape[2:]) for part in parts]

    def vector(self, name: str, size: int) -> Tensor:
        return parameter(self._read(name, (size,)), self.device)

    def rows(self, names: Sequence[str]) -> Tensor:
        """Vectors of hidden states, (names, hidden): each has leading axes of 1 in some files."""
        hidden = self.config.hidden_size
        each = []
        for name in names:
            wide = name in self.checkpoint and len(self.checkpoint.entry(name).shape) == 3
            each.append(self._read(name, (1, 1, hidden) if wide else (hidden,)).reshape(hidden))
        return parameter(np.stack(each), self.device)

    def xielu(self, name: str) -> Tensor:
        """What `mlp.xielu` reads, (4,): the first two are stored as what a softplus makes them of."""
        above, below = (float(self._read(f"{name}.alpha_{sign}", (1,))[0]) for sign in "pn")
        slope, least = (
            float(self._read(f"{name}.{part}", ())) if f"{name}.{part}" in self.checkpoint else usual
            for part, usual in (("beta", 0.5), ("eps", -1e-6))
        )
        values = [np.logaddexp(0, above), slope + np.logaddexp(0, below), slope, least]
        return parameter(np.array(values, np.float32), self.device)

    def matrix_as_is(self, name: str, shape: tuple[int, int]) -> Tensor:
        """Numbers that are multiplied one by one."""
        return parameter(self._read(name, shape), self.device)

    def positions(self, rows: int) -> Tensor:
        """The table of learned positions, with as many rows as the cache has: those beyond the text are zeros."""
        name, unused = f"{self.prefix}{self.names.positions}.weight", self.names.unused_positions
        values = self._read(name, (unused + self.config.positions, self.config.hidden_size))[unused : unused + rows]
        return self._dense(np.pad(values, ((0, rows - len(values)), (0, 0))))

    # -- reading ------------------------------------------------------------------------------------------------------
    def _rows(self, name: str, shape: tuple[int, int], turned: bool = False) -> Array:
        """A matrix (out, in), which is `turned` in the checkpoint: numbers, or rows of blocks (formats/gguf/stored.py),
        which are indexed, divided and joined alike.
        """
        at = shape[::-1] if turned else shape
        found = self._stored(name, at)
        if found is not None:
            return found
        values = self._read(name, at)
        return self._nearest(values.T if turned else values, name)

    def _stored(self, name: str, shape: tuple[int, ...]) -> Array | None:
        """What is kept as it is stored."""
        rows = self.checkpoint.rows(name, shape) if self.keeps and name in self.checkpoint else None
        if rows is not None:
            self.count += math.prod(shape)
        return rows

    def _nearest(self, values: Array, name: str) -> Array:
        """Numbers of a type that cannot be kept, as rows of blocks of the nearest one that can."""
        kind = self.checkpoint.stored_type(name) if self.keeps else None
        if kind is None or values.shape[-1] % QUANTISED:
            return values
        from tinyweb.models.stored import nearest, requantised  # most models do without

        return requantised(values, nearest(kind))

    def _read(self, name: str, shape: tuple[int, ...]) -> Array:
        values = self.checkpoint.read(name, shape)
        self.count += values.size
        return values

    def _stack(
        self, layer: str, names: Sequence[str], rows: list[int], width: int | None, groups: int = 0
    ) -> list[Array]:
        """Matrices (rows, width), or vectors (rows,) where `width` is None. `groups`: key/value heads, if there are."""

        def read(name: str, count: int) -> Array:
            if width is None:
                return self._read(f"{layer}{name}.bias", (count,))
            return self._rows(f"{layer}{name}.weight", (count, width), self.names.transposed)

        if len(names) == len(rows):
            return [read(name, count) for name, count in zip(names, rows, strict=True)]
        (name,) = names
        values = read(name, sum(rows))
        if self.names.by_head and groups:
            return _of_groups(values, groups, rows)
        return np.split(values, np.cumsum(rows)[:-1])

    def _turned(self, values: Array, c: AttentionConfig) -> Array:
        """Rows of all heads, those of each in the order that rotary positions need."""
        if c.rotary is None:
            return values
        order = head_order(c.rotary, c.width)
        if (order == np.arange(c.width)).all():
            return values
        return values.reshape(-1, c.width, *values.shape[1:])[:, order].reshape(values.shape)

    # -- precision ----------------------------------------------------------------------------------------------------
    def _norm(self, config: NormConfig, weight: Array | None, bias: Array | None, over: tuple[int, ...]) -> Norm:
        if weight is not None and config.offset:
            weight = weight.astype(np.float32) + np.float32(config.offset)
        weights = [None if v is None else parameter(v, self.device) for v in (weight, bias)]
        return Norm(config, over, *weights)

    def _linear(self, weights: list[Array], bias: Array | None) -> Linear:
        """Of matrices below each other; those of one type become one."""
        alike: list[list[Array]] = []
        for weight in weights:
            if alike and (weight.dtype == alike[-1][0].dtype or not (is_rows(weight) or is_rows(alike[-1][0]))):
                alike[-1].append(weight)
            else:
                alike.append([weight])
        made = [self.matrix(np.concatenate(each)) for each in alike]
        whole = made[0] if len(made) == 1 else Stacked(tuple(made))
        return Linear.of(whole, None if bias is None else parameter(bias, self.device))

    def _table(self, values: Array) -> Tensor | QuantizedWeight:
        return self.matrix(values, self.recipe.embedding)

    def matrix(self, values: Array, precision: Precision | None = None) -> Tensor | QuantizedWeight:
        """A matrix (out, in) of a layer; or one with a precision of its own."""
        precision = precision or self.recipe.layers
        if is_rows(values):
            from tinyweb.models.stored import weight_of

            made: Tensor | QuantizedWeight = weight_of(values, self.device)
        else:
            made = precision.convert(values, self.device) or self._dense(values, precision)
        if self.recipe.watch is not None:
            self.recipe.watch(made, values)
        return made

    def _dense(self, values: Array, precision: Precision | None = None) -> Tensor:
        kind = (precision or self.recipe.layers).kind
        if kind == STORED:
            kind = "f32" if self.stored.bits > 16 else "f16"
        return as_floats(values, kind, self.device)


def _of_groups(values: Array, groups: int, rows: list[int]) -> list[Array]:
    """Parts of so many rows, of which each of the groups has some of each."""
    split = values.reshape(groups, -1, *values.shape[1:])
    parts = np.split(split, np.cumsum([count // groups for count in rows])[:-1], axis=1)
    return [part.reshape(-1, *values.shape[1:]) for part in parts]


def is_rows(values: Array) -> bool:
    """Whether an array is rows of blocks, and not numbers."""
    return values.dtype.names is not None


def head_order(rotary: RotaryConfig, width: int) -> npt.NDArray[np.intp]:
    """Which of a head's elements is stored where, so that element i is turned together with i + width/2.

    Scores are sums over these elements: any order will do that is the same for queries and keys. Elements that are not
    turned are pairs whose angle is 0.
    """
    elements = np.arange(width)
    turned, still = elements[: rotary.turned], elements[rotary.turned :]
    pairs = turned.reshape(-1, 2).T if rotary.interleaved else turned.reshape(2, -1)
    return np.concatenate([pairs, still.reshape(2, -1)], axis=1).reshape(-1)
