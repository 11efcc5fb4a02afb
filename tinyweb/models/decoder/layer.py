"""One layer: what brings positions together, then an MLP, each added to what came in."""

from __future__ import annotations

from tinyweb.graph.ir import Size
from tinyweb.models.decoder.attention import Attention
from tinyweb.models.decoder.config import ConvConfig, ExpertsConfig, LatentConfig, LayerConfig, NormConfig
from tinyweb.models.decoder.convolution import ShortConv
from tinyweb.models.decoder.experts import Experts, Stack
from tinyweb.models.decoder.latent import ByHead, LatentAttention
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.mlp import Mlp
from tinyweb.models.decoder.norm import Norm
from tinyweb.nn.layers import Linear
from tinyweb.nn.rotary import Rotary
from tinyweb.tensor import Tensor


class Layer:
    """A layer of a decoder, as its config says."""

    def __init__(self, config: LayerConfig, load: Loader, prefix: str, rotary: Rotary | None):
        names = load.names

        def norm(name: str, config: NormConfig | None) -> Norm | None:
            return None if config is None else load.norm(prefix + name, config)

        self.config = config
        self.attention_norm = norm(names.before_attention, config.before_attention)
        self.mixer: Attention | LatentAttention | ShortConv
        if isinstance(config.mixer, ConvConfig):
            self.mixer = ShortConv(config.mixer, load, prefix)
        elif isinstance(config.mixer, LatentConfig):
            assert rotary is not None
            self.mixer = LatentAttention(config.mixer, load, prefix, rotary)
        else:
            self.mixer = Attention(config.mixer, load, prefix, rotary)
        self.attention_after = norm(names.after_attention, config.after_attention)
        self.mlp_norm = norm(names.before_mlp, config.before_mlp)
        self.mlp = (
            Experts(config.mlp, load, prefix)
            if isinstance(config.mlp, ExpertsConfig)
            else Mlp(config.mlp, load, prefix, names.gate_up, names.down)
        )
        self.mlp_after = norm(names.after_mlp, config.after_mlp)

    def __call__(self, x: Tensor, start: Size, cache: Tensor, activations: str) -> Tensor:
        """Hidden states (batch, tokens, hidden) after this layer, of those before it."""
        h = _through(self.attention_norm, x)
        mixed = _through(self.attention_after, self.mixer(h, start, cache, activations))
        if self.config.parallel:
            h = h if self.mlp_norm is None else self.mlp_norm(x)
            x = self._add(x, mixed)
        else:
            x = self._add(x, mixed)
            h = _through(self.mlp_norm, x)
        return self._add(x, _through(self.mlp_after, self.mlp(h, activations)))

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + (y if self.config.residual == 1 else y * self.config.residual)

    def tensors(self) -> dict[str, Tensor]:
        """The parameters by name."""
        parts = {**vars(self), **vars(self.mixer), **vars(self.mlp)}
        if isinstance(self.mlp, Experts) and self.mlp.shared is not None:
            parts |= {f"shared_{name}": part for name, part in vars(self.mlp.shared).items()}
        found = {n: p.tensors() for n, p in parts.items() if isinstance(p, Linear | Norm | Stack | ByHead)}
        tensors = {f"{name}.{kind}": tensor for name, each in found.items() for kind, tensor in each.items()}
        return tensors | {name: part for name, part in parts.items() if isinstance(part, Tensor)}


def _through(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)
