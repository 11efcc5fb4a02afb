"""The autoencoder of Stable Diffusion (a KL-regularised VAE, Rombach et al. 2022): pixels to latents and back, with the
layout and parameter names of diffusers' `AutoencoderKL`.

What is notable:
- Convolutions that halve the size see a border of one pixel at the right and at the bottom alone.
- Latents are in the scale of the UNet throughout: `scaling_factor` is applied here and nowhere else.
- Large pictures go through in overlapping tiles (`tiles.py`); norms then have each tile's own statistics, and the
  overlaps are blended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.stable_diffusion.layers import AttentionBlock, Reader, ResnetBlock, Upsample
from tinyweb.models.stable_diffusion.unet import integers
from tinyweb.tensor import Tensor

EPS = 1e-6  # of all norms
_UNBUILT: dict[str, tuple[Any, ...]] = {
    "latents_mean": (), "latents_std": (), "shift_factor": (0,), "act_fn": ("silu", "swish"),
}  # fmt: skip


@dataclass(frozen=True)
class VAEConfig:
    """The numbers that make an autoencoder; channels are those of the finest level first."""

    block_out_channels: tuple[int, ...]
    layers_per_block: int
    in_channels: int = 3
    latent_channels: int = 4
    norm_num_groups: int = 32
    scaling_factor: float = 0.18215
    use_quant_conv: bool = True
    use_post_quant_conv: bool = True
    mid_attention: bool = True

    @property
    def factor(self) -> int:
        """Pixels along one side of a latent pixel."""
        return 1 << (len(self.block_out_channels) - 1)

    @classmethod
    def from_json(cls, c: Config) -> Self:
        """Checks a vae/config.json: ModelFormatError names the field that is missing or wrong, NotImplementedError
        one that asks for what is not built."""
        for field, built in _UNBUILT.items():
            value = c.values.get(field)
            if value is not None and value not in built:
                raise NotImplementedError(f"{c.where}: {field!r} {str(value)[:60]!r} is not supported by the VAE")
        channels = integers(c, "block_out_channels", None, 64)
        for field, kind in (("down_block_types", "DownEncoderBlock2D"), ("up_block_types", "UpDecoderBlock2D")):
            kinds = c.values.get(field, [kind] * len(channels))
            if kinds != [kind] * len(channels):
                raise NotImplementedError(
                    f"{c.where}: {field!r} must be {kind} for each of {len(channels)} levels, found {str(kinds)[:60]}"
                )
        groups = c.integer("norm_num_groups", 1, 1024, 32)
        if len(channels) > 8 or (odd := [n for n in channels if n % groups]):
            raise ModelFormatError(
                f"{c.where}: 'block_out_channels' must be at most 8 multiples of {groups}, "
                f"found {list(channels) if len(channels) > 8 else odd[0]}"
            )
        if c.integer("in_channels", 1, 4, 3) != 3 or c.integer("out_channels", 1, 4, 3) != 3:
            raise NotImplementedError(f"{c.where}: pictures must have 3 channels")
        return cls(
            block_out_channels=channels,
            layers_per_block=c.integer("layers_per_block", 1, 64, 1),
            latent_channels=c.integer("latent_channels", 1, 64, 4),
            norm_num_groups=groups,
            scaling_factor=c.number("scaling_factor", 1e-6, 1e6, 0.18215),
            use_quant_conv=c.flag("use_quant_conv", True),
            use_post_quant_conv=c.flag("use_post_quant_conv", True),
            mid_attention=c.flag("mid_block_add_attention", True),
        )


class Middle:
    """Two residual blocks with attention between them."""

    def __init__(self, read: Reader, c: VAEConfig):
        width, groups = c.block_out_channels[-1], c.norm_num_groups
        self.resnets = [ResnetBlock(read.at("resnets", i), width, width, groups, EPS) for i in (0, 1)]
        self.attention = AttentionBlock(read.at("attentions", 0), width, groups, EPS) if c.mid_attention else None

    def __call__(self, x: Tensor) -> Tensor:
        x = self.resnets[0](x)
        return self.resnets[1](x if self.attention is None else self.attention(x))


class Encoder:
    """Pictures (N, 3, H, W) from −1 to 1, sides multiples of `factor`, to the mean and the standard deviation of their
    latents (N, C, H / factor, W / factor)."""

    def __init__(self, config: VAEConfig, read: Reader):
        self.config = c = config
        at, width, groups = read.at("encoder"), c.block_out_channels[0], c.norm_num_groups
        self.conv_in = at.convolution("conv_in", width, c.in_channels)
        self.down_blocks: list[list[ResnetBlock]] = []
        self.downsamplers = []
        for i, out in enumerate(c.block_out_channels):
            level = at.at("down_blocks", i)
            inputs = [width] + [out] * (c.layers_per_block - 1)
            self.down_blocks.append(
                [ResnetBlock(level.at("resnets", j), n, out, groups, EPS) for j, n in enumerate(inputs)]
            )
            if i < len(c.block_out_channels) - 1:
                border = ((0, 1), (0, 1))
                self.downsamplers.append(level.convolution("downsamplers.0.conv", out, out, stride=2, padding=border))
            width = out
        self.mid_block = Middle(at.at("mid_block"), c)
        self.conv_norm_out = at.group_norm("conv_norm_out", groups, width, EPS)
        self.conv_out = at.convolution("conv_out", 2 * c.latent_channels, width)
        twice = 2 * c.latent_channels
        self.quant_conv = read.convolution("quant_conv", twice, twice, 1) if c.use_quant_conv else None

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv_in(x.float())
        for i, level in enumerate(self.down_blocks):
            for block in level:
                x = block(x)
            if i < len(self.downsamplers):
                x = self.downsamplers[i](x)
        x = self.conv_out(self.conv_norm_out(self.mid_block(x)).silu())
        x = x if self.quant_conv is None else self.quant_conv(x)
        mean, spread = x.contiguous().chunk(2, axis=1)
        scale = self.config.scaling_factor
        return mean * scale, (spread.clamp(-30, 20) * 0.5).exp() * scale


class Decoder:
    """Latents (N, C, h, w) in the UNet's scale to pictures (N, 3, h · factor, w · factor), about −1 to 1."""

    def __init__(self, config: VAEConfig, read: Reader):
        self.config = c = config
        at, width, groups = read.at("decoder"), c.block_out_channels[-1], c.norm_num_groups
        channels = c.latent_channels
        self.post_quant_conv = (
            read.convolution("post_quant_conv", channels, channels, 1) if c.use_post_quant_conv else None
        )
        self.conv_in = at.convolution("conv_in", width, channels)
        self.mid_block = Middle(at.at("mid_block"), c)
        self.up_blocks: list[list[ResnetBlock]] = []
        self.upsamplers = []
        for i, out in enumerate(c.block_out_channels[::-1]):
            level = at.at("up_blocks", i)
            inputs = [width] + [out] * c.layers_per_block
            self.up_blocks.append(
                [ResnetBlock(level.at("resnets", j), n, out, groups, EPS) for j, n in enumerate(inputs)]
            )
            if i < len(c.block_out_channels) - 1:
                self.upsamplers.append(Upsample(level, out))
            width = out
        self.conv_norm_out = at.group_norm("conv_norm_out", groups, width, EPS)
        self.conv_out = at.convolution("conv_out", c.in_channels, width)

    def __call__(self, latents: Tensor) -> Tensor:
        x = latents.float() * (1 / self.config.scaling_factor)
        x = self.conv_in(x if self.post_quant_conv is None else self.post_quant_conv(x))
        x = self.mid_block(x)
        for i, level in enumerate(self.up_blocks):
            for block in level:
                x = block(x)
            if i < len(self.upsamplers):
                x = self.upsamplers[i](x)
        return self.conv_out(self.conv_norm_out(x).silu())
