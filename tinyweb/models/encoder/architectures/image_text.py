"""CLIP (Radford et al. 2021) and SigLIP (Zhai et al. 2023), SigLIP 2 of one resolution: towers for texts and pictures.

Fields that a file leaves out are those of the models first published: files of SigLIP say what differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import LayerConfig, NormConfig
from tinyweb.models.encoder.config import EncoderConfig, EncoderNames, ImageConfig

TEXT, IMAGE = "text_model.", "vision_model."
NAMES: dict[str, Any] = {
    "positions": "embeddings.position_embedding", "layer": "encoder.layers.{}.", "before_attention": "layer_norm1",
    "output": "self_attn.out_proj", "before_mlp": "layer_norm2", "gate_up": ("mlp.fc1",), "down": "mlp.fc2",
}  # fmt: skip
TEXT_NAMES = EncoderNames((TEXT,), "embeddings.token_embedding", norm="final_layer_norm", **NAMES)
IMAGE_NAMES = EncoderNames((IMAGE,), "embeddings.patch_embedding", norm="post_layernorm", **NAMES)
DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "CLIP": {
        "text": {
            "vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
            "num_attention_heads": 8, "max_position_embeddings": 77, "hidden_act": "quick_gelu",
            "layer_norm_eps": 1e-5, "eos_token_id": 49407,
        },
        "image": {
            "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
            "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
        },
    },
    "Siglip": {
        "text": {
            "vocab_size": 32000, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
            "num_attention_heads": 12, "max_position_embeddings": 64, "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": 1e-6, "pad_token_id": 1,
        },
        "image": {
            "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
            "image_size": 224, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
        },
    },
}  # fmt: skip
# by `architectures`: the family, and which towers a file of that kind has
ARCHITECTURES = {
    "CLIPModel": ("CLIP", "text image"),
    "CLIPTextModelWithProjection": ("CLIP", "text"),
    "CLIPVisionModelWithProjection": ("CLIP", "image"),
    "SiglipModel": ("Siglip", "text image"),
    "SiglipTextModel": ("Siglip", "text"),
    "SiglipVisionModel": ("Siglip", "image"),
}
HIGHEST = -1
MODEL_TYPES = {"clip": "CLIPModel", "siglip": "SiglipModel"}


@dataclass(frozen=True)
class ImageTextConfig:
    """A model of texts and pictures, or one of its towers. `width`: numbers of a vector. `filled`: a text has as many
    tokens as there are positions, those behind it `pad` unless the tokenizer says otherwise. `end`: a text's vector is
    that of the first such token; HIGHEST: of the token with the highest number (as of a file whose number for the end
    was never right).
    """

    family: str
    text: EncoderConfig | None
    image: ImageConfig | None
    width: int
    filled: bool = False
    pad: int = 1
    end: int | None = None


def architecture(c: Config) -> str | None:
    """The row of ARCHITECTURES that a config.json names; None where there is none."""
    named = c.values.get("architectures")
    if not named:
        return MODEL_TYPES.get(c.word("model_type", ""))
    names = named if isinstance(named, list) else []
    return next((name for name in names if isinstance(name, str) and name in ARCHITECTURES), None)


def is_image_text(c: Config) -> bool:
    """Whether a config.json names a model of texts and pictures, or a tower of one."""
    return architecture(c) is not None


def read_image_text(c: Config) -> ImageTextConfig:
    """The towers that a config.json describes. Raises ModelFormatError for fields that are wrong or not supported."""
    name = architecture(c)
    if name is None:
        raise ModelFormatError(f"{c.where} names no model of texts and pictures; known: {', '.join(ARCHITECTURES)}")
    family, parts = ARCHITECTURES[name]
    towers = parts.split()
    sections = {
        tower: _section(c, "text" if tower == "text" else "vision", DEFAULTS[family][tower], len(towers) > 1)
        for tower in towers
    }
    text, image = sections.get("text"), sections.get("image")
    clip = family == "CLIP"
    if clip:
        width = c.integer("projection_dim", 1, 1 << 16, 512)
    else:
        widths = {
            t.integer("projection_size", 1, 1 << 16, fields.hidden_size(t)) if t is text else fields.hidden_size(t)
            for t in sections.values()
        }
        width = widths.pop()
        if widths:
            raise ModelFormatError(
                f"{c.where}: vectors of texts and of pictures have {widths.pop()} and {width} numbers"
            )
    return ImageTextConfig(
        family,
        _text(text, clip) if text else None,
        _image(image, clip) if image else None,
        width,
        filled=not clip,
        pad=text.integer("pad_token_id", 0, 1 << 22) if text and not clip else 1,
        end=_end(text) if text and clip else None,
    )


def _end(c: Config) -> int:
    """`eos_token_id`; 2 stands for another in the files of the first models."""
    ids = c.ids("eos_token_id")
    if len(ids) != 1:
        raise ModelFormatError(f"{c.where}: 'eos_token_id' must be one token, found {len(ids)}")
    return HIGHEST if ids[0] == 2 else ids[0]


def _section(c: Config, part: str, defaults: dict[str, Any], nested: bool) -> Config:
    """The fields of a tower: of the whole file, or of a section, which files of some age have twice."""
    if not nested:
        return Config({**defaults, **_given(c)}, c.where)
    found, older = (c.section(f"{part}_config{end}") for end in ("", "_dict"))
    where = f"{c.where}, {part}_config"
    return Config({**defaults, **_given(found), **_given(older)}, where)


def _given(c: Config | None) -> dict[str, Any]:
    return {} if c is None else {key: value for key, value in c.values.items() if value is not None}


def _layers(c: Config) -> tuple[LayerConfig, ...]:
    norm = fields.layer_norm(c)
    attention = fields.attention(c, lambda width: None, bias=True, output_bias=True)
    mlp = fields.mlp(c, gated=False, bias=True)
    return (LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm),) * fields.layer_count(c)


def _text(c: Config, clip: bool) -> EncoderConfig:
    return EncoderConfig(
        vocab_size=c.integer("vocab_size", 1, 1 << 22),
        hidden_size=fields.hidden_size(c),
        positions=fields.positions(c),
        layers=_layers(c),
        model_type="clip" if clip else "siglip",
        norm=fields.layer_norm(c),
        first_position=0,
        causal=clip,
    )


def _image(c: Config, clip: bool) -> ImageConfig:
    size, patch = (_side(c, key) for key in ("image_size", "patch_size"))
    if patch > size:
        raise ModelFormatError(f"{c.where}: 'patch_size' {patch} is more than 'image_size' {size}")
    for key, value in {"num_channels": 3, "vision_use_head": True}.items():
        if c.values.get(key, value) != value:
            raise ModelFormatError(f"{c.where}: {key!r} {str(c.values[key])[:40]!r} is not supported, only {value}")
    norm: NormConfig = fields.layer_norm(c)
    count = (size // patch) ** 2
    return ImageConfig(
        vocab_size=0, hidden_size=fields.hidden_size(c), positions=count + clip, layers=_layers(c), size=size,
        patch=patch, norm=norm, first_norm=norm if clip else None, first_token=clip,
    )  # fmt: skip


def _side(c: Config, key: str) -> int:
    """A size of squares, given as one number or two equal ones."""
    value = c.values[key]
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
        c = Config({key: value[0]}, c.where)
    return c.integer(key, 1, 1 << 12)
