"""Small CLIP and SigLIP of random weights as folders; `transformers` saves and judges them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from tests.models.encoder_folders import word_pieces

TOWER = {"hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {**TOWER, "vocab_size": 64, "max_position_embeddings": 20, "pad_token_id": 0, "bos_token_id": 2}
IMAGE = {**TOWER, "image_size": 28, "patch_size": 8, "layer_norm_eps": 1e-3}
WIDER = {**IMAGE, "hidden_size": 56, "image_size": 32, "hidden_act": "gelu"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "CLIP": ("CLIPModel", {
        "text_config": {**TEXT, "eos_token_id": 3}, "vision_config": WIDER, "projection_dim": 24,
    }),
    "CLIP, end by number": ("CLIPModel", {
        "text_config": {**TEXT, "eos_token_id": 2}, "vision_config": IMAGE, "projection_dim": 24,
    }),
    "SigLIP": ("SiglipModel", {"text_config": TEXT, "vision_config": {**IMAGE}}),
    "CLIP, texts": ("CLIPTextModelWithProjection", {**TEXT, "eos_token_id": 3, "projection_dim": 24}),
    "CLIP, pictures": ("CLIPVisionModelWithProjection", {**WIDER, "projection_dim": 24}),
    "SigLIP, texts": ("SiglipTextModel", {**TEXT}),
    "SigLIP, pictures": ("SiglipVisionModel", {**IMAGE}),
}  # fmt: skip


def random_model(name: str) -> PreTrainedModel:
    """Weights large enough that a mistake shows, norms and biases that are not their neutral values."""
    torch.manual_seed(1)
    architecture, changes = MODELS[name]
    kind = architecture.partition("Model")[0]
    config = getattr(transformers, kind + "Config")(**changes)
    model: PreTrainedModel = getattr(transformers, architecture)(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            one = p.ndim == 1 and "norm" in name.lower() and name.endswith("weight")
            p.copy_(torch.rand_like(p) + 0.5 if one else torch.randn_like(p) * 0.15)
    return model.eval()


def write_folder(folder: Path, model: PreTrainedModel, **preprocessing: Any) -> Path:
    """With what pictures go through, as `transformers` writes it; `preprocessing`: what is otherwise."""
    model.save_pretrained(folder)
    word_pieces().save(str(folder / "tokenizer.json"))
    processor(model, **preprocessing).save_pretrained(folder)
    return folder


def processor(model: PreTrainedModel, **changes: Any) -> Any:
    """What makes pixels for the model of pictures."""
    c = getattr(model.config, "vision_config", model.config)
    size = getattr(c, "image_size", 28)
    if model.config.model_type.startswith("clip"):
        found = {"size": {"shortest_edge": size}, "crop_size": {"height": size, "width": size}}
        return transformers.CLIPImageProcessorPil(**{**found, **changes})
    return transformers.SiglipImageProcessorPil(**{"size": {"height": size, "width": size}, **changes})


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
