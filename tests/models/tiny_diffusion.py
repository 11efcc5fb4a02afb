"""Stable Diffusions of random weights in diffusers' layout, small enough to run in seconds.

`write_tiny_diffusion(folder, kind)` always writes the same files for the same kind.
"""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tinyweb.formats.huggingface import Config
from tinyweb.models.stable_diffusion.autoencoder import Decoder, Encoder, VAEConfig
from tinyweb.models.stable_diffusion.clip import TextConfig, TextEncoder
from tinyweb.models.stable_diffusion.layers import Reader
from tinyweb.models.stable_diffusion.unet import UNet, UNetConfig

TEXT_LENGTH = 16
# "sd1": convolutions around attention, 8 heads everywhere. "sd2": linear layers, heads of width 64, v prediction.
# "turbo": as sd2, with the noise predicted, for one step.
KINDS: dict[str, dict[str, Any]] = {
    "sd1": {
        "text": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 1, "hidden_act": "quick_gelu"},
        "unet": {"attention_head_dim": 8, "block_out_channels": [32, 64]},
        "scheduler": {"_class_name": "PNDMScheduler", "steps_offset": 1, "set_alpha_to_one": False},
        "pad": "<|endoftext|>",
    },
    "sd2": {
        "text": {"hidden_size": 128, "intermediate_size": 160, "num_attention_heads": 2, "hidden_act": "gelu"},
        "unet": {"attention_head_dim": [1, 2], "block_out_channels": [64, 128], "use_linear_projection": True},
        "scheduler": {"_class_name": "DDIMScheduler", "steps_offset": 1, "prediction_type": "v_prediction"},
        "pad": "!",
    },
    "turbo": {
        "text": {"hidden_size": 128, "intermediate_size": 160, "num_attention_heads": 2, "hidden_act": "gelu"},
        "unet": {"attention_head_dim": [1, 2], "block_out_channels": [64, 128], "use_linear_projection": True},
        "scheduler": {"_class_name": "EulerDiscreteScheduler", "timestep_spacing": "trailing"},
        "pad": "!",
    },
}
WORDS = ("red", "blue", "circle", "square", "cat", "of", "the", "on", "left")


class Drawn:
    """Gives weights for every name and shape asked for, and keeps them. Equal names have equal values."""

    def __init__(self) -> None:
        self.values: dict[str, np.ndarray] = {}

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        random = np.random.default_rng(zlib.crc32(name.encode()))
        if len(shape) > 1:
            made = random.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
        elif "norm" in name and name.endswith("weight"):
            made = random.uniform(0.5, 1.5, shape)
        else:
            made = random.standard_normal(shape) * 0.1
        self.values[name] = made.astype(np.float32)
        return self.values[name]


def vocabulary() -> tuple[dict[str, int], list[str]]:
    """CLIP's byte tokens, each alone and at a word's end, and merges that make a few words one token."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in kept] + [chr(256 + i) for i in range(256 - len(kept))]
    tokens = letters + [f"{c}</w>" for c in letters]
    merges = []
    for word in WORDS:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            merges.append(f"{parts[0]} {parts[1]}")
            parts[:2] = [parts[0] + parts[1]]
            tokens.append(parts[0])
    tokens = list(dict.fromkeys([*tokens, "<|startoftext|>", "<|endoftext|>"]))
    return {t: i for i, t in enumerate(tokens)}, list(dict.fromkeys(merges))


def write_tiny_diffusion(folder: Path, kind: str = "sd1", half: bool = False) -> Path:
    """Write a model of a KIND into `folder`; `half`: weights as half floats, in files called `.fp16.safetensors`."""
    given = KINDS[kind]
    vocab, merges = vocabulary()
    bos, eos = vocab["<|startoftext|>"], vocab["<|endoftext|>"]
    text = {
        "architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "vocab_size": len(vocab),
        "num_hidden_layers": 2, "max_position_embeddings": TEXT_LENGTH, "layer_norm_eps": 1e-5,
        "projection_dim": 32, "bos_token_id": bos, "eos_token_id": eos, "pad_token_id": vocab[given["pad"]],
        **given["text"],
    }  # fmt: skip
    unet = {
        "_class_name": "UNet2DConditionModel", "sample_size": 8, "in_channels": 4, "out_channels": 4,
        "layers_per_block": 1, "cross_attention_dim": text["hidden_size"], "norm_num_groups": 32,
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], **given["unet"],
    }  # fmt: skip
    vae = {
        "_class_name": "AutoencoderKL", "block_out_channels": [32, 32, 64], "layers_per_block": 1, "sample_size": 32,
        "latent_channels": 4, "scaling_factor": 0.18215, "norm_num_groups": 32, "in_channels": 3, "out_channels": 3,
        "down_block_types": ["DownEncoderBlock2D"] * 3, "up_block_types": ["UpDecoderBlock2D"] * 3,
    }  # fmt: skip
    scheduler = {
        "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
        "clip_sample": False, **given["scheduler"],
    }  # fmt: skip
    index = {
        "_class_name": "StableDiffusionPipeline", "scheduler": ["diffusers", scheduler["_class_name"]],
        "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"],
        "safety_checker": [None, None], "feature_extractor": [None, None],
    }  # fmt: skip
    _json(folder / "model_index.json", index)
    _json(folder / "scheduler" / "scheduler_config.json", scheduler)
    drawn = {"text_encoder": (text, "model"), "unet": (unet, "diffusion_pytorch_model"),
             "vae": (vae, "diffusion_pytorch_model")}  # fmt: skip
    for part, (config, stem) in drawn.items():
        _json(folder / part / "config.json", config)
        weights = Drawn()
        read, c = Reader(weights, "f32", "INTERPRETER"), Config(config, part)
        if part == "text_encoder":
            TextEncoder(TextConfig.from_json(c), read)
        elif part == "unet":
            UNet(UNetConfig.from_json(c), read)
        else:
            Encoder(VAEConfig.from_json(c), read)
            Decoder(VAEConfig.from_json(c), read)
        values = {n: v.astype(np.float16) for n, v in weights.values.items()} if half else weights.values
        save_file(values, folder / part / f"{stem}{'.fp16' if half else ''}.safetensors", {"format": "pt"})
    tokenizer = folder / "tokenizer"
    _json(tokenizer / "vocab.json", vocab)
    (tokenizer / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{m}\n" for m in merges), encoding="utf-8")
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
               "pad_token": given["pad"]}  # fmt: skip
    _json(tokenizer / "special_tokens_map.json", special)
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": TEXT_LENGTH, "do_lower_case": True, **special}
    _json(tokenizer / "tokenizer_config.json", settings)
    return folder


def _json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
