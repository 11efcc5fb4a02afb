"""One layer: what brings positions together, then an MLP, each added to what came in."""

from __future__ import annotations

import math

from tinyweb.graph.ir import Size
from tinyweb.models.decoder.attention import Attention
from tinyweb.models.decoder.cache import Cache, Start
from tinyweb.models.decoder.config import (
    AttentionConfig,
    ConvConfig,
    DeltaConfig,
    ExpertsConfig,
    LayerConfig,
    MixerConfig,
    MlpConfig,
    NormConfig,
    SelectiveConfig,
    SideConfig,
    StateSpaceConfig,
    StreamsConfig,
    TimeMixConfig,
)
from tinyweb.models.decoder.convolution import ShortConv
from tinyweb.models.decoder.delta import Delta
from tinyweb.models.decoder.experts import Experts
from tinyweb.models.decoder.latent import ByHead, LatentAttention
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.mlp import Mlp
from tinyweb.models.decoder.norm import Norm
from tinyweb.models.decoder.selective import Selective
from tinyweb.models.decoder.state import State, mixed_with_last
from tinyweb.models.decoder.state_space import StateSpace
from tinyweb.models.decoder.streams import LayerStreams
from tinyweb.models.decoder.time_mix import TimeMix
from tinyweb.nn.layers import Linear
from tinyweb.nn.rotary import Rotary
from tinyweb.nn.stack import Stack
from tinyweb.tensor import Tensor


class Layer:
    """A layer of a decoder, as its config says."""

    def __init__(
        self, config: LayerConfig, load: Loader, prefix: str, rotary: Rotary | None,
        streams: StreamsConfig | None = None,
    ):  # fmt: skip
        names = load.names

        def norm(name: str, config: NormConfig | None) -> Norm | None:
            return None if config is None else load.norm(prefix + name, config)

        self.config = config
        self.attention_norm = norm(names.before_attention, config.before_attention)
        self.mixer = _mixer(config.mixer, load, prefix, rotary)
        self.attention_after = norm(names.after_attention, config.after_attention)
        self.mlp_norm = norm(names.before_mlp, config.before_mlp)
        self.mlp = _mlp(config.mlp, load, prefix)
        shifted = isinstance(config.mlp, MlpConfig) and config.mlp.shifted
        self.mlp_shift = load.rows([prefix + names.mlp_shift]) if shifted else None
        self.hidden = load.config.hidden_size
        self.mlp_after = norm(names.after_mlp, config.after_mlp)
        self.side = None if config.side is None else Side(config.side, load, prefix)
        self.streams = None if streams is None else LayerStreams(streams, load, prefix)

    def memory(self, batch: int, positions: int, kind: str, device: str | None) -> Cache | State:
        """What this layer remembers of so many texts; `kind`: how it keeps each position."""
        if isinstance(self.mixer, StateSpace | Selective | Delta | TimeMix):
            more = {} if self.mlp_shift is None else {"mlp": (batch, 1, self.hidden)}
            return State(self.mixer.state_shapes(batch) | more, device)
        return self.mixer.new_cache(batch, positions, kind, device)

    def __call__(
        self, x: Tensor, start: Start, count: Size, memory: Cache | State, passed: dict[str, Tensor], activations: str,
        gift: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Hidden states (batch, tokens, hidden) after this layer, of those before it; the first `count` tokens are of
        the text. `passed`: what layers leave for those behind them. With streams: these, (streams, batch, tokens,
        hidden), and what the tokens give this layer."""
        if self.streams is None or gift is None:
            return self._one(x, start, count, memory, passed, activations)
        streams = self.streams.predicted(x)
        y = self._one(streams[self.streams.config.active], start, count, memory, passed, activations)
        return self.streams.corrected(streams, y, gift, activations)

    def _one(
        self, x: Tensor, start: Start, count: Size, memory: Cache | State, passed: dict[str, Tensor], activations: str
    ) -> Tensor:
        h = _through(self.attention_norm, x)
        if isinstance(self.mixer, StateSpace | Selective | Delta):
            assert isinstance(memory, State) and not isinstance(start, Tensor)
            mixed = self.mixer(h, start, count, memory, activations)
        elif isinstance(self.mixer, TimeMix):
            assert isinstance(memory, State) and not isinstance(start, Tensor)
            mixed = self.mixer(h, start, count, memory, passed, activations)
        else:
            assert isinstance(memory, Cache)
            mixed = self.mixer(h, start, memory, activations)
        mixed = _through(self.attention_after, mixed)
        if self.mlp is None:
            return self._add(x, mixed)
        if self.config.parallel:
            h = h if self.mlp_norm is None else self.mlp_norm(x)
            x = self._add(x, mixed)
        else:
            x = self._add(x, mixed)
            if self.side is not None:
                x = (x + self.side(h, activations)) * math.sqrt(0.5)
            h = _through(self.mlp_norm, x)
        if self.mlp_shift is not None:
            assert isinstance(memory, State) and not isinstance(start, Tensor)
            (h,), memory["mlp"] = mixed_with_last(h, self.mlp_shift, memory.before("mlp", start), count)
        return self._add(x, _through(self.mlp_after, self.mlp(h, activations)))

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + (y if self.config.residual == 1 else y * self.config.residual)

    def tensors(self) -> dict[str, Tensor]:
        """The parameters by name."""
        parts = {**vars(self), **vars(self.mixer), **({} if self.mlp is None else vars(self.mlp))}
        if isinstance(self.mlp, Experts) and self.mlp.shared is not None:
            parts |= {f"shared_{name}": part for name, part in vars(self.mlp.shared).items()}
        parts |= self.mixer.linears() if isinstance(self.mixer, TimeMix) else {}
        for name, inner in (("side", self.side), ("streams", self.streams)):
            parts |= {f"{name}_{part}": value for part, value in vars(inner).items()} if inner is not None else {}
        found = {n: p.tensors() for n, p in parts.items() if isinstance(p, Linear | Norm | Stack | ByHead)}
        tensors = {f"{name}.{kind}": tensor for name, each in found.items() for kind, tensor in each.items()}
        return tensors | {name: part for name, part in parts.items() if isinstance(part, Tensor)}


class Side:
    """Beside the mixer: what it reads, and a product of low rank with it (LAuReL, Menghani et al. 2024)."""

    def __init__(self, config: SideConfig, load: Loader, layer: str):
        hidden = load.config.hidden_size
        (self.left,) = load.linears(layer, ("laurel.linear_left",), [config.rank], hidden, False)
        (self.right,) = load.linears(layer, ("laurel.linear_right",), [hidden], config.rank, False)
        self.norm = load.norm(layer + "laurel.post_laurel_norm", config.norm)

    def __call__(self, h: Tensor, activations: str) -> Tensor:
        """Of h (batch, tokens, hidden); the same shape."""
        return h + self.norm(self.right(self.left(h, activations), activations))


def _mixer(
    config: MixerConfig, load: Loader, prefix: str, rotary: Rotary | None
) -> Attention | LatentAttention | ShortConv | StateSpace | Selective | Delta | TimeMix:
    if isinstance(config, ConvConfig):
        return ShortConv(config, load, prefix)
    if isinstance(config, StateSpaceConfig):
        return StateSpace(config, load, prefix)
    if isinstance(config, SelectiveConfig):
        return Selective(config, load, prefix)
    if isinstance(config, DeltaConfig):
        return Delta(config, load, prefix)
    if isinstance(config, TimeMixConfig):
        return TimeMix(config, load, prefix)
    if isinstance(config, AttentionConfig):
        return Attention(config, load, prefix, rotary)
    assert rotary is not None
    return LatentAttention(config, load, prefix, rotary)


def _mlp(config: MlpConfig | ExpertsConfig | None, load: Loader, prefix: str) -> Mlp | Experts | None:
    if isinstance(config, ExpertsConfig):
        return Experts(config, load, prefix)
    return None if config is None else Mlp(config, load, prefix, load.names.gate_up, load.names.down)


def _through(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)
