"""Models by name, small for tests and of ordinary sizes for benchmarks, and their graphs as PyTorch exports them.

usage: python -m benchmarks.onnx.models NAME FOLDER [--small] [--dynamo]      (`--dynamo`: by the newer exporter)

`FOLDER` gets model.onnx and its inputs, inputs.npz.

Weights are random: speed does not depend on what a model has learned. Batch norms have statistics of their own.
"""

from __future__ import annotations

import argparse
import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn
from transformers.cache_utils import DynamicCache

from benchmarks.onnx.modules import MobileNetV3, Tagger, UNet, Yolo


@dataclass
class Model:
    """A network with its inputs by name, and the names of its outputs."""

    network: nn.Module
    inputs: dict[str, torch.Tensor]
    outputs: tuple[str, ...] = ("y",)

    def __call__(self) -> dict[str, Any]:
        """What PyTorch computes, as NumPy arrays."""
        with torch.no_grad():
            found = self.network(*self.inputs.values())
        found = found if isinstance(found, tuple) else (found,)
        return {n: t.numpy() for n, t in zip(self.outputs, found, strict=True)}

    def graph(self, dynamo: bool = False) -> bytes:
        """The ONNX file that PyTorch's exporter writes, by tracing or by torch.export."""
        file, given = io.BytesIO(), tuple(self.inputs.values())
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            if dynamo:
                made = torch.onnx.export(
                    self.network, given, dynamo=True, input_names=list(self.inputs), output_names=list(self.outputs),
                    opset_version=18, verbose=False,
                )  # fmt: skip
                assert made is not None
                return bytes(made.model_proto.SerializeToString())
            torch.onnx.export(
                self.network, given, file, dynamo=False, input_names=list(self.inputs),
                output_names=list(self.outputs), opset_version=17,
            )  # fmt: skip
        return file.getvalue()


class Of(nn.Module):
    """Some tensors of what a model of `transformers` gives, which takes its inputs by name."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], results: tuple[str, ...]):
        super().__init__()
        self.model, self.names, self.results = model, names, results

    def forward(self, *given: torch.Tensor) -> Any:
        found = self.model(**dict(zip(self.names, given)))
        results = tuple(getattr(found, r) for r in self.results)
        return results[0] if len(results) == 1 else results


class WithCache(nn.Module):
    """A decoder whose keys and values are inputs and outputs. Inputs: ids, then keys and values of each layer."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> Any:
        cache = DynamicCache([(past[i], past[i + 1]) for i in range(0, len(past), 2)])
        length = past[0].shape[2]
        positions = torch.arange(length, length + ids.shape[1])[None]
        found = self.model(input_ids=ids, past_key_values=cache, use_cache=True, position_ids=positions)
        present = [t for layer in found.past_key_values.layers for t in (layer.keys, layer.values)]
        return (found.logits, *present)


def image(size: int, batch: int = 1) -> torch.Tensor:
    return torch.linspace(-9, 9, batch * 3 * size * size).reshape(batch, 3, size, size).sin()


def ids(batch: int, length: int, words: int) -> torch.Tensor:
    return (torch.arange(batch * length) * 7919 % words).reshape(batch, length)


def hub(kind: str, config: Any, inputs: Mapping[str, torch.Tensor], *results: str) -> Model:
    """A model of `transformers` with random weights."""
    network = getattr(transformers, kind)(config)
    names = {n: f"{n}" for n in inputs}
    return Model(Of(network, tuple(names), results), dict(inputs), results if len(results) > 1 else ("y",))


def resnet(small: bool) -> Model:
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 2, 1]} if small else {}
    given = {"pixel_values": image(64 if small else 224)}
    return hub("ResNetForImageClassification", transformers.ResNetConfig(**sizes), given, "logits")


def mobilenet_v2(small: bool) -> Model:
    given = {"pixel_values": image(64 if small else 224)}
    return hub("MobileNetV2ForImageClassification", transformers.MobileNetV2Config(), given, "logits")


def mobilenet_v3(small: bool) -> Model:
    return Model(MobileNetV3(small), {"x": image(64 if small else 224)})


def convnext(small: bool) -> Model:
    sizes = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]} if small else {}
    given = {"pixel_values": image(64 if small else 224)}
    return hub("ConvNextForImageClassification", transformers.ConvNextConfig(**sizes), given, "logits")


def efficientnet(small: bool) -> Model:
    sizes = {"width_coefficient": 0.25, "depth_coefficient": 0.5, "hidden_dim": 320} if small else {
        "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280}  # fmt: skip
    given = {"pixel_values": image(64 if small else 224)}
    return hub("EfficientNetForImageClassification", transformers.EfficientNetConfig(**sizes), given, "logits")


def vit(small: bool) -> Model:
    size = 64 if small else 224
    config = transformers.ViTConfig(
        hidden_size=32 if small else 384, num_hidden_layers=2 if small else 12, num_attention_heads=4 if small else 6,
        intermediate_size=64 if small else 1536, image_size=size,
    )  # fmt: skip
    return hub("ViTForImageClassification", config, {"pixel_values": image(size)}, "logits")


def swin(small: bool) -> Model:
    sizes = (
        {"image_size": 64, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4} if small else {}
    )
    given = {"pixel_values": image(64 if small else 224)}
    return hub("SwinForImageClassification", transformers.SwinConfig(**sizes), given, "logits")


def detr(small: bool) -> Model:
    backbone = transformers.ResNetConfig(
        **({"embedding_size": 16, "hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 1, 1]} if small else {}),
        out_features=["stage4"],
    )  # fmt: skip
    wide = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_attention_heads": 4,
            "decoder_attention_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "num_queries": 10}  # fmt: skip
    config = transformers.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone,
        num_labels=5 if small else 91, **(wide if small else {}),
    )  # fmt: skip
    given = {"pixel_values": image(64 if small else 320)}
    return hub("DetrForObjectDetection", config, given, "logits", "pred_boxes")


def bert(small: bool) -> Model:
    small_ones = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    wide = small_ones if small else {
        "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}  # fmt: skip
    words, length = (100, 12) if small else (30522, 128)
    mask = torch.ones(2 if small else 1, length, dtype=torch.int64)
    mask[-1, length * 2 // 3 :] = 0
    given = {"input_ids": ids(*mask.shape, words), "attention_mask": mask}
    return hub("BertModel", transformers.BertConfig(vocab_size=words, **wide), given, "last_hidden_state")


def t5_encoder(small: bool) -> Model:
    wide = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4} if small else {}
    words = 100 if small else 8192
    given = {"input_ids": ids(2 if small else 1, 12 if small else 64, words)}
    return hub("T5EncoderModel", transformers.T5Config(vocab_size=words, **wide), given, "last_hidden_state")


def gpt2(small: bool) -> Model:
    """One token after 127, with the keys and values of those."""
    words, layers, heads, width = (100, 2, 4, 32) if small else (16384, 6, 12, 768)
    config = transformers.GPT2Config(vocab_size=words, n_layer=layers, n_head=heads, n_embd=width)
    shape = (1, heads, 7 if small else 127, width // heads)
    values = torch.linspace(-5, 5, shape[1] * shape[2] * shape[3]).reshape(shape).sin()
    past = {f"past.{i}.{n}": values * (1 + 0.1 * i) for i in range(layers) for n in ("key", "value")}
    outputs = ("logits", *(n.replace("past", "present") for n in past))
    return Model(WithCache(transformers.GPT2LMHeadModel(config)), {"input_ids": ids(1, 1, words) + 3, **past}, outputs)


def _whisper(small: bool) -> Any:
    wide = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
            "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 50,
            "num_mel_bins": 8, "vocab_size": 100} if small else {"vocab_size": 16384}  # fmt: skip
    return transformers.WhisperConfig(
        **wide, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip


def whisper_encoder(small: bool) -> Model:
    config = _whisper(small)
    model = transformers.WhisperModel(config).encoder
    shape = (1, config.num_mel_bins, 2 * config.max_source_positions)
    features = torch.linspace(-9, 9, shape[1] * shape[2]).reshape(shape).sin()
    return Model(Of(model, ("input_features",), ("last_hidden_state",)), {"input_features": features})


def whisper_decoder(small: bool) -> Model:
    config = _whisper(small)
    states = torch.linspace(-9, 9, config.max_source_positions * config.d_model).sin()
    given = {"input_ids": ids(1, 4 if small else 8, config.vocab_size),
             "encoder_hidden_states": states.reshape(1, -1, config.d_model)}  # fmt: skip
    return Model(Decoder(transformers.WhisperForConditionalGeneration(config)), given)


class Decoder(nn.Module):
    """A decoder beside an encoder's states, and its head."""

    def __init__(self, model: Any):
        super().__init__()
        self.decoder, self.head = model.model.decoder, model.proj_out

    def forward(self, ids: torch.Tensor, states: torch.Tensor) -> Any:
        mask = torch.ones_like(ids)  # without one, where sequences begin is looked for by what ONNX has not
        return self.head(self.decoder(ids, mask, encoder_hidden_states=states, use_cache=False)[0])


def yolo(small: bool) -> Model:
    return Model(Yolo(8 if small else 16, 5 if small else 80), {"images": image(64 if small else 320)})


def unet(small: bool) -> Model:
    return Model(UNet(8 if small else 32, 3 if small else 5), {"x": image(32 if small else 128)})


def diffusion_unet(small: bool) -> Model:
    from diffusers import UNet2DConditionModel

    widths, across = ((16, 32), 16) if small else ((128, 256, 512), 256)
    network = UNet2DConditionModel(
        sample_size=8 if small else 32, block_out_channels=widths, layers_per_block=1, cross_attention_dim=across,
        down_block_types=("DownBlock2D", *["CrossAttnDownBlock2D"] * (len(widths) - 1)),
        up_block_types=(*["CrossAttnUpBlock2D"] * (len(widths) - 1), "UpBlock2D"),
        attention_head_dim=8 if small else 64, norm_num_groups=8 if small else 32,
    )  # fmt: skip
    size, length = (8, 5) if small else (32, 77)
    states = torch.linspace(-9, 9, length * across).reshape(1, length, across).sin()
    given = {"sample": image(size).repeat(1, 2, 1, 1)[:, :4], "timestep": torch.tensor([17]),
             "encoder_hidden_states": states}  # fmt: skip
    return Model(Of(network, tuple(given), ("sample",)), given)


def lstm_tagger(small: bool) -> Model:
    words, width = (100, 16) if small else (8192, 128)
    return Model(Tagger(words, width), {"ids": ids(2 if small else 1, 12 if small else 64, words)})


MODELS: dict[str, Callable[[bool], Model]] = {
    make.__name__: make
    for make in (
        resnet, mobilenet_v2, mobilenet_v3, convnext, efficientnet, vit, swin, detr, bert, gpt2, t5_encoder,
        whisper_encoder, whisper_decoder, yolo, unet, lstm_tagger, diffusion_unet,
    )
}  # fmt: skip


def make(name: str, small: bool) -> Model:
    """The model of that name, ready for inference; the same on every call."""
    torch.manual_seed(0)
    model = MODELS[name](small)
    for module in model.network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    model.network.eval()
    return model


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx.models", description="Write a model's ONNX graph.")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--dynamo", action="store_true", help="by torch.export, not by tracing")
    given = parser.parse_args()
    model = make(given.name, given.small)
    given.folder.mkdir(parents=True, exist_ok=True)
    np.savez(given.folder / "inputs.npz", allow_pickle=False, **{n: t.numpy() for n, t in model.inputs.items()})
    (given.folder / "model.onnx").write_bytes(model.graph(given.dynamo))


if __name__ == "__main__":
    main()
