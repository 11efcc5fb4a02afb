"""Several hidden states for each token, of which a layer computes with one (AltUp, Baykal et al. 2023), and what a
token gives each layer from a table of its own (Gemma 3n).

Before a layer every stream is predicted as a mixture of all; behind it each is corrected by what the layer has changed
in the active one.
"""

from __future__ import annotations

import math

from tinyweb.models.decoder.config import StreamsConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.mlp import ACTIVATIONS
from tinyweb.models.decoder.norm import Norm
from tinyweb.nn.layers import Embedding, Linear
from tinyweb.tensor import Tensor

LEAST = 1e-5  # of a mean square that is divided by


class Streams:
    """From one hidden state to all streams, and back; and what a token gives each layer."""

    def __init__(self, config: StreamsConfig, load: Loader, layers: int):
        c, hidden = config, load.config.hidden_size
        self.config, self.hidden, self.count = c, hidden, layers
        others = range(c.count - 1)

        def square(name: str) -> list[Linear]:
            return [load.linears(load.prefix, (f"{name}.{i}",), [hidden], hidden, False)[0] for i in others]

        self.into, self.back = square("altup_projections"), square("altup_unembed_projections")
        self.table = Embedding.of(load.table(load.prefix + "embed_tokens_per_layer", c.rows, layers * c.width))
        (self.given,) = load.linears(load.prefix, ("per_layer_model_projection",), [layers * c.width], hidden, False)
        self.given_norm = load.norm(load.prefix + "per_layer_projection_norm", c.norm, c.width)

    def divided(self, x: Tensor, activations: str) -> Tensor:
        """Streams (count, batch, tokens, hidden) of embeddings (batch, tokens, hidden): each as large as these."""
        streams = Tensor.stack(x, *(_as_large(into(x, activations), x) for into in self.into))
        return streams.contiguous()  # mixtures read each many times

    def joined(self, streams: Tensor, activations: str) -> Tensor:
        """Hidden states (batch, tokens, hidden): the mean of all streams, each as large as the first."""
        each = [_as_large(back(streams[i + 1], activations), streams[0]) for i, back in enumerate(self.back)]
        return sum(each, streams[0]) * (1 / self.config.count)

    def gifts(self, tokens: Tensor, x: Tensor, activations: str) -> Tensor:
        """What each layer is given, (batch, tokens, layers, width), of ids and their embeddings."""
        c = self.config
        shape = (*tokens.shape, self.count, c.width)
        own = self.table((tokens < c.rows).where(tokens, 0)).reshape(*shape) * math.sqrt(c.width)
        made = self.given_norm((self.given(x, activations) * self.hidden**-0.5).reshape(*shape))
        return (made + own) * math.sqrt(0.5)

    def tensors(self) -> dict[str, Tensor]:
        """The parameters by name."""
        parts: dict[str, Embedding | Linear | Norm] = {
            "table": self.table,
            "given": self.given,
            "given_norm": self.given_norm,
        }
        parts |= {f"into.{i}": one for i, one in enumerate(self.into)}
        parts |= {f"back.{i}": one for i, one in enumerate(self.back)}
        return {f"{name}.{kind}": tensor for name, part in parts.items() for kind, tensor in part.tensors().items()}


class LayerStreams:
    """What one layer does with the streams around it."""

    def __init__(self, config: StreamsConfig, load: Loader, layer: str):
        c, hidden = config, load.config.hidden_size
        self.config, self.hidden = c, hidden

        def linear(name: str, rows: int, width: int) -> Linear:
            return load.linears(layer, (name,), [rows], width, False)[0]

        self.router = linear("altup.modality_router", c.count, hidden)
        self.router_norm = load.norm(layer + "altup.router_norm", c.norm)
        self.predicts = linear("altup.prediction_coefs", c.count**2, c.count)
        self.corrects = linear("altup.correction_coefs", c.count, c.count)
        self.scale = load.vector(layer + "altup.correct_output_scale", hidden)
        self.gate = linear("per_layer_input_gate", c.width, hidden)
        self.projection = linear("per_layer_projection", hidden, c.width)
        self.projection_norm = load.norm(layer + "post_per_layer_input_norm", c.norm)

    def _routed(self, x: Tensor) -> Tensor:
        return self.router(self.router_norm(x) * (1 / self.hidden)).tanh()

    def predicted(self, streams: Tensor) -> Tensor:
        """Streams (count, batch, tokens, hidden) ahead of the layer."""
        n = self.config.count
        mixture = self.predicts(self._routed(streams[self.config.active]))
        mixture = mixture.reshape(*mixture.shape[:-1], n, n, 1).permute(2, 3, 0, 1, 4)
        return streams + (mixture * streams.unsqueeze(0)).sum(1)

    def corrected(self, streams: Tensor, x: Tensor, gift: Tensor, activations: str) -> Tensor:
        """Predicted streams, corrected by the layer's output x (batch, tokens, hidden) and `gift` (batch, tokens,
        width)."""
        c = self.config
        shares = (self.corrects(self._routed(x)) + 1).permute(2, 0, 1).unsqueeze(-1)
        streams = streams + (x - streams[c.active]) * shares
        first = streams[c.active] * self.scale if c.scaled else streams[c.active]
        gate = ACTIVATIONS[c.activation](self.gate(first, activations))
        more = self.projection_norm(self.projection(gate * gift, activations))
        return streams[:1].cat(streams[1:] + more, axis=0).contiguous()


def _as_large(x: Tensor, like: Tensor) -> Tensor:
    """x with the mean square of `like`, along the last axis."""
    size, wanted = ((t * t).mean(-1, keepdim=True) for t in (x, like))
    return x * wanted.sqrt() / size.maximum(LEAST).sqrt()
