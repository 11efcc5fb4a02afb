"""The single-file layout of Stable Diffusion's authors: one checkpoint with all parts under names of their own, and no
configs. What a config would say is read off the shapes.

A part of the file (`OriginalPart`) is asked by the names that diffusers uses, which are those of the models here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.models.stable_diffusion.autoencoder import VAEConfig
from tinyweb.models.stable_diffusion.clip import TextConfig
from tinyweb.models.stable_diffusion.unet import UNetConfig

UNET, VAE = "model.diffusion_model.", "first_stage_model."
CLIP, OPEN_CLIP = "cond_stage_model.transformer.", "cond_stage_model.model."
SD1_HEADS, SD2_HEAD_WIDTH, TEXT_HEAD_WIDTH = 8, 64, 64

_RESNET = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0",
           "conv2": "out_layers.3", "conv_shortcut": "skip_connection"}  # fmt: skip
_UNET_ENDS = {"conv_in": "input_blocks.0.0", "time_embedding.linear_1": "time_embed.0",
              "time_embedding.linear_2": "time_embed.2", "conv_norm_out": "out.0", "conv_out": "out.2"}  # fmt: skip
_ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}
_OPEN_CLIP = {"layer_norm1": "ln_1", "layer_norm2": "ln_2", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj",
              "self_attn.out_proj": "attn.out_proj"}  # fmt: skip


@dataclass(frozen=True)
class OriginalPart:
    """Weights by diffusers' names. `place` gives the name in the file, and the third of a stacked matrix or None."""

    checkpoint: Checkpoint
    place: Callable[[str], tuple[str, int | None]]

    def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """As `Checkpoint.read`; matrices may be stored as 1×1 convolutions."""
        stored, third = self.place(name)
        if third is not None:
            rows = shape[0]
            return self.checkpoint.read(stored, (3 * rows, *shape[1:]))[third * rows : (third + 1) * rows]
        return read_matrix(self.checkpoint, stored, shape)


def read_matrix(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A tensor; a matrix that is stored as a 1×1 convolution, or the other way round, is read as either."""
    found = checkpoint.entry(name).shape
    if found != shape and found in ((*shape, 1, 1), shape[:2]) and shape[2:] in ((), (1, 1)):
        return checkpoint.read(name, found).reshape(shape)
    return checkpoint.read(name, shape)


def open_original(checkpoint: Checkpoint, where: str) -> tuple[OriginalPart, OriginalPart, OriginalPart, bool]:
    """Text encoder, UNet and VAE of a checkpoint, and whether it is a 2.x model; ModelFormatError where it is none."""
    for name in (f"{UNET}input_blocks.0.0.weight", f"{VAE}decoder.conv_in.weight"):
        if name not in checkpoint:
            raise ModelFormatError(f"{where} is no Stable Diffusion checkpoint: it has no tensor {name!r}")
    second = f"{OPEN_CLIP}token_embedding.weight" in checkpoint
    if not second and f"{CLIP}text_model.embeddings.token_embedding.weight" not in checkpoint:
        raise ModelFormatError(
            f"{where} has no text encoder ({CLIP}… or {OPEN_CLIP}…): it is a UNet alone or of another kind of model"
        )
    text = OriginalPart(checkpoint, _open_clip_place if second else lambda name: (CLIP + name, None))
    config = unet_config(checkpoint)
    return (
        text,
        OriginalPart(checkpoint, _unet_places(config)),
        OriginalPart(checkpoint, _vae_places(checkpoint)),
        second,
    )


# -- the UNet ---------------------------------------------------------------------------------------------------------
def unet_config(checkpoint: Checkpoint) -> UNetConfig:
    """Levels end where a downsampling stands; attention is where a projection is."""
    channels: list[int] = []
    layers: list[int] = []
    attention: list[bool] = []
    first = checkpoint.entry(f"{UNET}input_blocks.0.0.weight").shape
    count, i, attends, width, context, linear = 0, 1, False, 0, 0, False
    depth = 1
    while True:
        at = f"{UNET}input_blocks.{i}."
        ends = f"{at}0.op.weight" in checkpoint
        if f"{at}0.in_layers.2.weight" in checkpoint:
            count, width = count + 1, checkpoint.entry(f"{at}0.out_layers.3.weight").shape[0]
            if f"{at}1.proj_in.weight" in checkpoint:
                attends, linear = True, len(checkpoint.entry(f"{at}1.proj_in.weight").shape) == 2
                context = checkpoint.entry(f"{at}1.transformer_blocks.0.attn2.to_k.weight").shape[1]
                depth = max(depth, 1 + (f"{at}1.transformer_blocks.1.norm1.weight" in checkpoint))
        elif not ends:
            ends = True
        if ends:
            channels.append(width)
            layers.append(count)
            attention.append(attends)
            if f"{at}0.op.weight" not in checkpoint:
                break
            count, attends = 0, False
        i += 1
    if not context or not all(layers) or len(first) != 4 or depth > 1 or f"{UNET}label_emb.0.0.weight" in checkpoint:
        raise ModelFormatError(
            f"{checkpoint.folder}: the UNet in this checkpoint is not laid out as in Stable Diffusion 1.x or 2.x"
        )
    heads = tuple(w // SD2_HEAD_WIDTH if linear else SD1_HEADS for w in channels)
    if not all(heads):
        raise ModelFormatError(
            f"{checkpoint.folder}: levels of {min(channels)} channels leave no attention head of width {SD2_HEAD_WIDTH}"
        )
    return UNetConfig(
        in_channels=first[1],
        out_channels=checkpoint.entry(f"{UNET}out.2.weight").shape[0],
        block_out_channels=tuple(channels),
        layers_per_block=tuple(layers),
        attention=tuple(attention),
        attention_up=tuple(attention),
        heads=heads,
        transformer_layers=(1,) * len(channels),
        cross_attention_dim=context,
        use_linear_projection=linear,
    )


def _unet_places(c: UNetConfig) -> Callable[[str], tuple[str, int | None]]:
    """Blocks are counted through all levels there, one downsampling being a block, too."""
    starts, at = [], 1
    for count in c.layers_per_block:
        starts.append(at)
        at += count + 1
    ups, at = [], 0
    for count in c.layers_per_block[::-1]:
        ups.append(at)
        at += count + 1
    last = c.levels - 1

    def block(rest: str, prefix: str) -> str:
        kind, _, inner = _split(rest)
        if kind == "attentions":
            return f"{prefix}1.{inner}"
        name, _, leaf = inner.rpartition(".")
        return f"{prefix}0.{_RESNET[name]}.{leaf}"

    def place(name: str) -> tuple[str, int | None]:
        head, _, leaf = name.rpartition(".")
        if head in _UNET_ENDS:
            return f"{UNET}{_UNET_ENDS[head]}.{leaf}", None
        if name.startswith("mid_block."):
            kind, index, inner = _split(name[len("mid_block.") :])
            if kind == "attentions":
                return f"{UNET}middle_block.1.{inner}", None
            inner, _, leaf = inner.rpartition(".")
            return f"{UNET}middle_block.{2 * index}.{_RESNET[inner]}.{leaf}", None
        side, level, rest = _split(name)
        kind, index, _ = _split(rest)
        if side == "down_blocks":
            if kind == "downsamplers":
                return f"{UNET}input_blocks.{starts[level + 1] - 1}.0.op.{leaf}", None
            return UNET + block(rest, f"input_blocks.{starts[level] + index}."), None
        count = c.layers_per_block[last - level]
        if kind == "upsamplers":  # behind the last block of the level
            part = 2 if c.attention_up[last - level] else 1
            return f"{UNET}output_blocks.{ups[level] + count}.{part}.conv.{leaf}", None
        return UNET + block(rest, f"output_blocks.{ups[level] + index}."), None

    return place


def _split(name: str) -> tuple[str, int, str]:
    """ "resnets.3.conv1.weight" → ("resnets", 3, "conv1.weight")."""
    kind, index, rest = name.split(".", 2)
    return kind, int(index), rest


# -- the autoencoder --------------------------------------------------------------------------------------------------
def vae_config(checkpoint: Checkpoint) -> VAEConfig:
    """Channels and blocks of the encoder, level by level."""
    channels: list[int] = []
    while (name := f"{VAE}encoder.down.{len(channels)}.block.0.conv1.weight") in checkpoint:
        channels.append(checkpoint.entry(name).shape[0])
    layers = 0
    while f"{VAE}encoder.down.0.block.{layers}.conv1.weight" in checkpoint:
        layers += 1
    if not channels:
        raise ModelFormatError(f"{checkpoint.folder}: the checkpoint's autoencoder has no encoder")
    return VAEConfig(
        block_out_channels=tuple(channels),
        layers_per_block=layers,
        latent_channels=checkpoint.entry(f"{VAE}decoder.conv_in.weight").shape[1],
    )


def _vae_places(checkpoint: Checkpoint) -> Callable[[str], tuple[str, int | None]]:
    """Levels of the decoder are counted from the finest there."""
    last = len(vae_config(checkpoint).block_out_channels) - 1

    def place(name: str) -> tuple[str, int | None]:
        found = re.fullmatch(
            r"(encoder|decoder)\.(?:mid_block|(?:down|up)_blocks\.(\d+))"
            r"\.(resnets|attentions|downsamplers|upsamplers)\.(\d+)\.(.*)\.(weight|bias)",
            name,
        )
        if not found:
            return VAE + name.replace("conv_norm_out", "norm_out"), None
        side, level, kind, index, inner, leaf = found.groups()
        if level is None:
            if kind == "attentions":
                return f"{VAE}{side}.mid.attn_1.{_ATTENTION[inner]}.{leaf}", None
            return f"{VAE}{side}.mid.block_{int(index) + 1}.{inner}.{leaf}", None
        at = f"{VAE}{side}." + (f"down.{level}" if side == "encoder" else f"up.{last - int(level)}")
        if kind == "resnets":
            return f"{at}.block.{index}.{inner.replace('conv_shortcut', 'nin_shortcut')}.{leaf}", None
        return f"{at}.{'downsample' if kind == 'downsamplers' else 'upsample'}.conv.{leaf}", None

    return place


# -- the text encoder -------------------------------------------------------------------------------------------------
def text_config(checkpoint: Checkpoint, second: bool) -> TextConfig:
    """2.x models use the last layer but one, so that the last is not read."""
    if second:
        table, places = f"{OPEN_CLIP}token_embedding.weight", f"{OPEN_CLIP}positional_embedding"
        layer, inner = f"{OPEN_CLIP}transformer.resblocks.%d.", "mlp.c_fc.weight"
    else:
        table, places = (f"{CLIP}text_model.embeddings.{n}_embedding.weight" for n in ("token", "position"))
        layer, inner = f"{CLIP}text_model.encoder.layers.%d.", "mlp.fc1.weight"
    layers = 0
    while layer % layers + inner in checkpoint:
        layers += 1
    vocabulary, width = checkpoint.entry(table).shape
    if layers - second < 1 or width % TEXT_HEAD_WIDTH:
        raise ModelFormatError(f"{checkpoint.folder}: the checkpoint's text encoder is not that of Stable Diffusion")
    return TextConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=checkpoint.entry(layer % 0 + inner).shape[0],
        num_hidden_layers=layers - second,
        num_attention_heads=width // TEXT_HEAD_WIDTH,
        max_position_embeddings=checkpoint.entry(places).shape[0],
        hidden_act="gelu" if second else "quick_gelu",
    )


def _open_clip_place(name: str) -> tuple[str, int | None]:
    inner = name.removeprefix("text_model.")
    ends = {
        "embeddings.token_embedding.weight": "token_embedding.weight",
        "embeddings.position_embedding.weight": "positional_embedding",
        "final_layer_norm.weight": "ln_final.weight",
        "final_layer_norm.bias": "ln_final.bias",
    }
    if inner in ends:
        return OPEN_CLIP + ends[inner], None
    _, index, rest = _split(inner.removeprefix("encoder."))
    at = f"{OPEN_CLIP}transformer.resblocks.{index}."
    head, _, leaf = rest.rpartition(".")
    if head in _OPEN_CLIP:
        return f"{at}{_OPEN_CLIP[head]}.{leaf}", None
    third = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"].index(head)
    return f"{at}attn.in_proj_{leaf}", third
