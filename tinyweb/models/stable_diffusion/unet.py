"""The denoiser of Stable Diffusion: a U-shaped network of residual blocks and attention (Rombach et al. 2022), with the
layout and parameter names of diffusers' `UNet2DConditionModel`.

What is notable:
- Each level of the way down keeps what it computes; the way up gets these maps beside its own, and ends at the size it
  began with.
- At levels that have attention, pixels look at all pixels of their map and then at the states of the prompt's tokens.
- The timestep goes into every residual block, as sines and cosines that two linear layers have mixed.
- `attention_head_dim` of a config is the number of heads (of all levels, or of each), unless `num_attention_heads` is
  there: the name is an old mistake that files have kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.stable_diffusion.layers import Reader, ResnetBlock, Upsample, attend, timestep_embedding
from tinyweb.nn.layers import Linear
from tinyweb.tensor import Tensor

DOWN = {"DownBlock2D": False, "CrossAttnDownBlock2D": True}  # with attention?
UP = {"UpBlock2D": False, "CrossAttnUpBlock2D": True}
MID = ("UNetMidBlock2DCrossAttn",)
TRANSFORMER_EPS = 1e-6  # of the group norm before attention, whatever norm_eps is
# what a config may ask for and is not built: field → what it may be
_UNBUILT: dict[str, tuple[Any, ...]] = {
    "class_embed_type": (), "addition_embed_type": (), "num_class_embeds": (), "encoder_hid_dim": (),
    "encoder_hid_dim_type": (), "time_cond_proj_dim": (), "timestep_post_act": (), "time_embedding_act_fn": (),
    "time_embedding_dim": (), "time_embedding_type": ("positional",), "resnet_time_scale_shift": ("default",),
    "resnet_skip_time_act": (False,), "resnet_out_scale_factor": (1,), "mid_block_scale_factor": (1,),
    "dual_cross_attention": (False,), "only_cross_attention": (False,), "mid_block_only_cross_attention": (False,),
    "cross_attention_norm": (), "attention_type": ("default",), "class_embeddings_concat": (False,),
    "conv_in_kernel": (3,), "conv_out_kernel": (3,), "center_input_sample": (False,), "act_fn": ("silu", "swish"),
    "downsample_padding": (1,), "reverse_transformer_layers_per_block": (),
}  # fmt: skip


@dataclass(frozen=True)
class UNetConfig:
    """The numbers that make a UNet. Tuples have an element for each level, the finest first.

    `attention`: levels that have attention on the way down; `attention_up`: on the way up, in the same order.
    """

    in_channels: int
    out_channels: int
    block_out_channels: tuple[int, ...]
    layers_per_block: tuple[int, ...]
    attention: tuple[bool, ...]
    attention_up: tuple[bool, ...]
    heads: tuple[int, ...]
    transformer_layers: tuple[int, ...]
    cross_attention_dim: int
    use_linear_projection: bool = False
    mid_attention: bool = True
    norm_num_groups: int = 32
    norm_eps: float = 1e-5
    flip_sin_to_cos: bool = True
    freq_shift: float = 0.0
    sample_size: int = 64

    @property
    def levels(self) -> int:
        return len(self.block_out_channels)

    @classmethod
    def from_json(cls, c: Config) -> Self:
        """Checks a unet/config.json: ModelFormatError names the field that is missing or wrong, NotImplementedError
        one that asks for what is not built."""
        for field, built in _UNBUILT.items():
            value = c.values.get(field)
            if value is not None and value not in built:
                raise NotImplementedError(f"{c.where}: {field!r} {str(value)[:60]!r} is not supported by the UNet")
        channels = integers(c, "block_out_channels", None, (320, 640, 1280, 1280))
        levels = len(channels)
        down = _kinds(c, "down_block_types", DOWN, levels, ["CrossAttnDownBlock2D"] * (levels - 1) + ["DownBlock2D"])
        up = _kinds(c, "up_block_types", UP, levels, ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * (levels - 1))
        mid = c.values.get("mid_block_type", MID[0])
        if mid not in (*MID, None):
            raise NotImplementedError(f"{c.where}: 'mid_block_type' {str(mid)[:60]!r} is not supported by the UNet")
        heads = integers(
            c, "attention_head_dim" if c.values.get("num_attention_heads") is None else "num_attention_heads", levels, 8
        )
        groups = c.integer("norm_num_groups", 1, 1024, 32)
        for width, count, attention in zip(channels, heads, down, strict=True):
            if width % groups or (attention and width % count):
                raise ModelFormatError(
                    f"{c.where}: {width} channels do not divide into {groups} groups and {count} heads"
                )
        return cls(
            in_channels=c.integer("in_channels", 1, 64, 4),
            out_channels=c.integer("out_channels", 1, 64, 4),
            block_out_channels=channels,
            layers_per_block=integers(c, "layers_per_block", levels, 2),
            attention=down,
            attention_up=up[::-1],
            heads=heads,
            transformer_layers=integers(c, "transformer_layers_per_block", levels, 1),
            cross_attention_dim=integers(c, "cross_attention_dim", 1, 1280)[0],
            use_linear_projection=c.flag("use_linear_projection", False),
            mid_attention=mid is not None,
            norm_num_groups=groups,
            norm_eps=c.number("norm_eps", 0, 1, 1e-5),
            flip_sin_to_cos=c.flag("flip_sin_to_cos", True),
            freq_shift=c.number("freq_shift", 0, 1, 0),
            sample_size=integers(c, "sample_size", None, 64)[0],
        )


def integers(c: Config, field: str, count: int | None, default: Any) -> tuple[int, ...]:
    """A list of `count` positive integers (any number where None), or one that stands for all of them."""
    value = c.values.get(field)
    value = default if value is None else value
    found = tuple(value) if isinstance(value, list | tuple) else (value,) * (count or 1)
    if not 1 <= len(found) <= 64 or (count and len(found) != count) or any(
        type(v) is not int or not 1 <= v <= 1 << 16 for v in found
    ):  # fmt: skip
        wanted = f"{count} of them" if count and count > 1 else "a list of them"
        raise ModelFormatError(
            f"{c.where}: {field!r} must be an integer from 1 to 65536 or {wanted}, found {str(value)[:60]}"
        )
    return found


def _kinds(c: Config, field: str, known: dict[str, bool], levels: int, default: list[str]) -> tuple[bool, ...]:
    value = c.values.get(field, default)
    if not isinstance(value, list) or len(value) != levels or not all(isinstance(v, str) for v in value):
        raise ModelFormatError(f"{c.where}: {field!r} must name {levels} blocks, as many as 'block_out_channels' has")
    if unknown := [v for v in value if v not in known]:
        raise NotImplementedError(f"{c.where}: {field!r} {unknown[0][:60]!r} is not supported by the UNet")
    return tuple(known[v] for v in value)


class TransformerBlock:
    """Attention to the map itself, attention to the prompt, and an MLP whose halves are multiplied (GEGLU)."""

    def __init__(self, read: Reader, width: int, heads: int, context: int):
        self.norm1, self.norm2, self.norm3 = (read.layer_norm(f"norm{i}", width) for i in (1, 2, 3))
        own, other = read.at("attn1"), read.at("attn2")
        self.qkv = own.linear(["to_q", "to_k", "to_v"], width, width, bias=False)
        self.out1 = own.linear("to_out.0", width, width)
        self.query = other.linear("to_q", width, width, bias=False)
        self.kv = other.linear(["to_k", "to_v"], width, context, bias=False)
        self.out2 = other.linear("to_out.0", width, width)
        self.proj = read.linear("ff.net.0.proj", 8 * width, width)
        self.out3 = read.linear("ff.net.2", width, 4 * width)
        self._heads = heads

    def __call__(self, x: Tensor, states: Tensor) -> Tensor:
        qkv = self.qkv(self.norm1(x)).contiguous()
        x = x + self.out1(attend(*qkv.chunk(3, axis=-1), heads=self._heads))
        query, kv = self.query(self.norm2(x)), self.kv(states).contiguous()
        x = x + self.out2(attend(query, *kv.chunk(2, axis=-1), heads=self._heads))
        value, gate = self.proj(self.norm3(x)).contiguous().chunk(2, axis=-1)
        return x + self.out3((value * gate.gelu()).contiguous())


class Transformer:
    """Blocks of attention over the pixels of a map (N, C, H, W), added to it."""

    def __init__(self, read: Reader, c: UNetConfig, level: int):
        width = c.block_out_channels[level]
        self.norm = read.group_norm("norm", c.norm_num_groups, width, TRANSFORMER_EPS)
        # a 1×1 convolution is the same matrix: older checkpoints store it as one
        shape = () if c.use_linear_projection else (1, 1)
        self.proj_in, self.proj_out = (_projection(read, name, width, shape) for name in ("proj_in", "proj_out"))
        self.transformer_blocks = [
            TransformerBlock(read.at("transformer_blocks", i), width, c.heads[level], c.cross_attention_dim)
            for i in range(c.transformer_layers[level])
        ]

    def __call__(self, x: Tensor, states: Tensor) -> Tensor:
        n, c, h, w = x.shape
        y = self.proj_in(self.norm(x).reshape(n, c, -1).transpose(1, 2))
        for block in self.transformer_blocks:
            y = block(y, states)
        out: Tensor = self.proj_out(y).transpose(1, 2).reshape(n, c, h, w)
        return x + out


def _projection(read: Reader, name: str, width: int, trailing: tuple[int, ...]) -> Linear:
    weight = read.values(f"{name}.weight", width, width, *trailing).reshape(width, width)
    return Linear.of(read.stored(weight), read.vector(f"{name}.bias", width))


class Level:
    """The blocks of one level, on the way down or up."""

    def __init__(self, read: Reader, c: UNetConfig, level: int, inputs: list[int], attention: bool):
        """`inputs`: channels that go into each residual block."""
        width, time = c.block_out_channels[level], 4 * c.block_out_channels[0]
        self.resnets = [
            ResnetBlock(read.at("resnets", i), channels, width, c.norm_num_groups, c.norm_eps, time)
            for i, channels in enumerate(inputs)
        ]
        self.attentions = [Transformer(read.at("attentions", i), c, level) for i in range(len(inputs)) if attention]

    def block(self, i: int, x: Tensor, time: Tensor, states: Tensor) -> Tensor:
        x = self.resnets[i](x, time)
        return self.attentions[i](x, states) if self.attentions else x


class UNet:
    """Noisy latents (N, C, H, W), timesteps (N or 1,) and states (N, L, D) to the output (N, C', H, W), float32."""

    def __init__(self, config: UNetConfig, read: Reader):
        self.config = c = config
        channels, last = c.block_out_channels, c.levels - 1
        time = 4 * channels[0]
        self.conv_in = read.convolution("conv_in", channels[0], c.in_channels)
        self.linear_1 = read.linear("time_embedding.linear_1", time, channels[0])
        self.linear_2 = read.linear("time_embedding.linear_2", time, time)
        self.down_blocks, self.downsamplers = [], []
        kept, width = [channels[0]], channels[0]  # channels of the maps that the way up will get
        for i, out in enumerate(channels):
            at, count = read.at("down_blocks", i), c.layers_per_block[i]
            self.down_blocks.append(Level(at, c, i, [width] + [out] * (count - 1), c.attention[i]))
            kept += [out] * (count + (i < last))
            if i < last:
                self.downsamplers.append(at.convolution("downsamplers.0.conv", out, out, stride=2))
            width = out
        mid = read.at("mid_block")
        self.mid = [
            ResnetBlock(mid.at("resnets", i), width, width, c.norm_num_groups, c.norm_eps, time)
            for i in range(2 * c.mid_attention)
        ]
        self.mid_attention = Transformer(mid.at("attentions", 0), c, last) if c.mid_attention else None
        self.up_blocks, self.upsamplers = [], []
        for i in range(c.levels):
            level = last - i
            at, out, inputs = read.at("up_blocks", i), channels[level], []
            for _ in range(c.layers_per_block[level] + 1):
                inputs.append(width + kept.pop())
                width = out
            self.up_blocks.append(Level(at, c, level, inputs, c.attention_up[level]))
            if level:
                self.upsamplers.append(Upsample(at, out))
        self.conv_norm_out = read.group_norm("conv_norm_out", c.norm_num_groups, channels[0], c.norm_eps)
        self.conv_out = read.convolution("conv_out", c.out_channels, channels[0])

    def __call__(self, latents: Tensor, timestep: Tensor, states: Tensor) -> Tensor:
        c = self.config
        if latents.ndim != 4 or latents.shape[1] != c.in_channels or states.shape[-1] != c.cross_attention_dim:
            raise ValueError(
                f"the UNet needs latents (N, {c.in_channels}, H, W) and states (N, L, {c.cross_attention_dim}), "
                f"got {latents.shape} and {states.shape}"
            )
        time = timestep_embedding(timestep, c.block_out_channels[0], c.flip_sin_to_cos, c.freq_shift)
        # every residual block takes it through SiLU first
        time = self.linear_2(self.linear_1(time).silu().contiguous()).silu().contiguous()
        x = self.conv_in(latents.float())
        kept = [x]
        for i, level in enumerate(self.down_blocks):
            for j in range(len(level.resnets)):
                x = level.block(j, x, time, states)
                kept.append(x)
            if i < len(self.downsamplers):
                x = self.downsamplers[i](x)
                kept.append(x)
        if self.mid_attention is not None:
            x = self.mid[1](self.mid_attention(self.mid[0](x, time), states), time)
        for i, level in enumerate(self.up_blocks):
            for j in range(len(level.resnets)):
                x = level.block(j, Tensor.cat([x, kept.pop()], axis=1), time, states)
            if i < len(self.upsamplers):
                x = self.upsamplers[i](x, kept[-1].shape[2:])
        return self.conv_out(self.conv_norm_out(x).silu())
