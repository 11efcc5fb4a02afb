"""One layer: attention, then an MLP, each added to what came in."""

from __future__ import annotations

from tinyweb.models.decoder.config import AttentionConfig, LayerConfig, MlpConfig, NormConfig
from tinyweb.models.decoder.mlp import Mlp
from tinyweb.models.decoder.norm import Norm
from tinyweb.models.encoder.attention import Attention
from tinyweb.models.encoder.disentangled import DisentangledAttention, Places
from tinyweb.models.encoder.loader import EncoderLoader
from tinyweb.nn.rotary import Rotary
from tinyweb.tensor import Tensor


class Layer:
    """A layer of an encoder, as its config says. `norm_sums`: as of `EncoderConfig`."""

    def __init__(
        self, config: LayerConfig, load: EncoderLoader, prefix: str, rotary: Rotary | None, norm_sums: bool,
        places: Places | None = None,
    ):  # fmt: skip
        names = load.names
        assert isinstance(config.mixer, AttentionConfig) and isinstance(config.mlp, MlpConfig)

        def norm(name: str, config: NormConfig | None) -> Norm | None:
            return None if config is None else load.norm(prefix + name, config)

        self.norm_sums = norm_sums
        self.attention_norm = norm(names.before_attention, config.before_attention)
        self.attention = (
            Attention(config.mixer, load, prefix, rotary)
            if places is None
            else DisentangledAttention(config.mixer, load, prefix, places)
        )
        self.attention_after = norm(names.after_attention, config.after_attention)
        self.mlp_norm = norm(names.before_mlp, config.before_mlp)
        self.mlp = Mlp(config.mlp, load, prefix, names.gate_up, names.down)
        self.mlp_after = norm(names.after_mlp, config.after_mlp)

    def __call__(
        self, x: Tensor, mask: Tensor | None, activations: str, near: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Hidden states (batch, tokens, hidden) after this layer, of those before it; others: as of `Attention`."""
        # in memory what a product reads again and again
        h = x if self.attention_norm is None else self.attention_norm(x).contiguous()
        x = self._add(x, self.attention(h, mask, activations, near), self.attention_after).contiguous()
        h = x if self.mlp_norm is None else self.mlp_norm(x).contiguous()
        inner = self.mlp.inner(h, activations).contiguous()
        return self._add(x, self.mlp.down(inner, activations), self.mlp_after).contiguous()

    def _add(self, x: Tensor, y: Tensor, after: Norm | None) -> Tensor:
        if after is None:
            return x + y
        return after(x + y) if self.norm_sums else x + after(y)
