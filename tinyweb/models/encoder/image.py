"""A picture to a vector, by the layers of texts (Dosovitskiy et al. 2021)."""

from __future__ import annotations

import numpy as np

from tinyweb.device import Device
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.models.decoder.config import AttentionConfig, MlpConfig
from tinyweb.models.decoder.mlp import Mlp
from tinyweb.models.encoder.config import EncoderNames, ImageConfig
from tinyweb.models.encoder.layer import Layer
from tinyweb.models.encoder.loader import EncoderLoader
from tinyweb.nn.layers import Linear
from tinyweb.nn.parameters import parameter
from tinyweb.nn.precision import Recipe
from tinyweb.nn.quantize import activations_for
from tinyweb.tensor import Tensor


class ImageLoader(EncoderLoader):
    """Reads the parameters of one network of pictures."""

    config: ImageConfig

    def patches(self) -> Linear:
        """A matrix (hidden, patch · patch · 3) for what patches are, colours of a pixel together; never quantised, so
        that pixels are not rounded."""
        c = self.config
        values = self._read(f"{self.prefix}{self.names.embedding}.weight", (c.hidden_size, 3, c.patch, c.patch))
        weight = np.ascontiguousarray(values.transpose(0, 2, 3, 1)).reshape(c.hidden_size, -1)
        name = f"{self.prefix}{self.names.embedding}.bias"
        return Linear.of(self._dense(weight), None if c.first_token else self.vector(name, c.hidden_size))

    def projection(self, name: str, rows: int, bias: bool) -> Linear:
        """A matrix (rows, hidden) behind the network."""
        (made,) = self.linears("", (name,), [rows], self.config.hidden_size, bias)
        return made


class AttentionPool:
    """One learned query asks all patches; what it finds goes through an MLP (Zhai et al. 2022)."""

    def __init__(self, load: ImageLoader, attention: AttentionConfig, mlp: MlpConfig):
        c, name = load.config, load.prefix + "head."
        hidden = c.hidden_size
        probe = load._read(name + "probe", (1, 1, hidden)).astype(np.float32).reshape(hidden)
        rows = load._read(name + "attention.in_proj_weight", (3 * hidden, hidden))
        bias = load._read(name + "attention.in_proj_bias", (3 * hidden,)).astype(np.float32)
        query = rows[:hidden].astype(np.float32) @ probe + bias[:hidden]
        self.heads, self.width, self.scale = attention.heads, attention.width, attention.scale
        self.query = parameter(query.reshape(1, attention.heads, 1, attention.width), load.device)
        self.both = load._linear([np.ascontiguousarray(rows[hidden:])], bias[hidden:])
        self.output = load.projection(name + "attention.out_proj", hidden, True)
        self.norm = load.norm(name + "layernorm", c.norm)
        self.mlp = Mlp(mlp, load, name, load.names.gate_up, load.names.down)

    def __call__(self, x: Tensor, activations: str) -> Tensor:
        """(batch, patches, hidden) → (batch, hidden)."""
        batch, patches, hidden = x.shape
        both = self.both(x, activations).reshape(batch, patches, 2, self.heads, self.width)
        key, value = (both[:, :, i].permute(0, 2, 1, 3).contiguous() for i in range(2))
        query = self.query.expand(batch, self.heads, 1, self.width).contiguous()
        found = query.scaled_dot_product_attention(key, value, scale=self.scale)
        y = self.output(found.permute(0, 2, 1, 3).reshape(batch, hidden), activations).contiguous()
        return (y + self.mlp(self.norm(y).contiguous(), activations)).contiguous()


class ImageEncoder:
    """A loaded network of pictures. `activations`: as of `Encoder`."""

    def __init__(
        self, config: ImageConfig, names: EncoderNames, checkpoint: Checkpoint, quant: str | Recipe | None,
        device: str | None = None, activations: str | None = None,
    ):  # fmt: skip
        self.config, self.device = config, device
        c, load = config, ImageLoader(config, names, checkpoint, quant, device)
        self.load = load
        self.patches = load.patches()
        self.activations = activations or activations_for(Device[device or Device.DEFAULT].runtime.target, load.stored)
        self.positions = load.table(names.positions, c.positions)
        self.first = load.vector(load.prefix + "embeddings.class_embedding", c.hidden_size) if c.first_token else None
        self.first_norm = load.norm(load.prefix + "pre_layrnorm", c.first_norm) if c.first_norm else None
        self.layers = [
            Layer(layer, load, load.prefix + names.layer.format(i), None, False) for i, layer in enumerate(c.layers)
        ]
        self.norm = load.norm(load.prefix + names.norm, c.norm)
        mixer, mlp = c.layers[0].mixer, c.layers[0].mlp
        assert isinstance(mixer, AttentionConfig) and isinstance(mlp, MlpConfig)
        self.pool = None if c.first_token else AttentionPool(load, mixer, mlp)
        load.check_all_read(load.prefix + names.layer.partition("{}")[0])

    @property
    def parameter_count(self) -> int:
        """Numbers it was trained to hold."""
        return self.load.count

    def __call__(self, pixels: Tensor) -> Tensor:
        """Vectors (batch, hidden), float32, of pixels (batch, size, size, 3) as floats."""
        c, batch = self.config, pixels.shape[0]
        side = c.size // c.patch
        x = pixels[:, : side * c.patch, : side * c.patch].reshape(batch, side, c.patch, side, c.patch, 3)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(batch, side * side, c.patch * c.patch * 3).contiguous()
        x = self.patches(x, "float")
        if self.first is not None:
            x = self.first.reshape(1, 1, -1).expand(batch, 1, c.hidden_size).cat(x, axis=1)
        x = x + self.positions
        x = (x if self.first_norm is None else self.first_norm(x)).contiguous()
        for layer in self.layers:
            x = layer(x, None, self.activations)
        if self.pool is None:
            return self.norm(x[:, 0]).contiguous()
        return self.pool(self.norm(x).contiguous(), self.activations)
