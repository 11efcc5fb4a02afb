"""Graphs as PyTorch exports them, with small random weights, give what PyTorch gives."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from tinyweb import Tensor, jit
from tinyweb.formats.onnx import OnnxModel

IMAGE = torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64).sin()
IDS = torch.arange(24).reshape(2, 12) * 7 % 90
MASK = torch.ones(2, 12, dtype=torch.int64)
MASK[1, 8:] = 0


class Of(nn.Module):
    """One tensor of what a model of `transformers` gives."""

    def __init__(self, model: nn.Module, result: str, *names: str):
        super().__init__()
        self.model, self.result, self.names = model, result, names

    def forward(self, *given: torch.Tensor) -> Any:
        return getattr(self.model(**dict(zip(self.names, given))), self.result)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.lstm = nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True)
        self.gru, self.head = nn.GRU(48, 20, batch_first=True), nn.Linear(20, 7)

    def forward(self, ids: torch.Tensor) -> Any:
        return self.head(self.gru(self.lstm(self.embed(ids))[0])[0])


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.down, self.up, self.last = (
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ConvTranspose2d(32, 16, 2, 2),
            nn.Conv2d(32, 2, 1),
        )

    def forward(self, x: torch.Tensor) -> Any:
        a = self.first(x)
        b = self.down(a).relu()
        wide = nn.functional.interpolate(b, scale_factor=2, mode="bilinear")[:, :16]
        return self.last(torch.cat([a, self.up(b) + nn.functional.interpolate(wide, size=a.shape[2:])], 1))


def image(kind: str, config: Any) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    model = getattr(transformers, kind)(config)
    return Of(model, "logits", "pixel_values"), (IMAGE,)


def resnet() -> Any:
    return image("ResNetForImageClassification", transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 2, 1], num_labels=10))  # fmt: skip


def mobilenet() -> Any:
    return image("MobileNetV2ForImageClassification", transformers.MobileNetV2Config(num_labels=10))


def convnext() -> Any:
    return image("ConvNextForImageClassification", transformers.ConvNextConfig(
        hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1], num_labels=10))  # fmt: skip


def vit() -> Any:
    return image("ViTForImageClassification", transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=64, num_labels=10,
    ))  # fmt: skip


def swin() -> Any:
    return image("SwinForImageClassification", transformers.SwinConfig(
        image_size=64, embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=4, num_labels=10))  # fmt: skip


def bert() -> Any:
    config = transformers.BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                     intermediate_size=64)  # fmt: skip
    return Of(transformers.BertModel(config), "last_hidden_state", "input_ids", "attention_mask"), (IDS, MASK)


def t5_encoder() -> Any:
    config = transformers.T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    return Of(transformers.T5EncoderModel(config), "last_hidden_state", "input_ids"), (IDS,)


def whisper_encoder() -> Any:
    config = transformers.WhisperConfig(
        vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=50, num_mel_bins=8,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    model = transformers.WhisperModel(config).encoder
    return Of(model, "last_hidden_state", "input_features"), (IMAGE[:, 0, :8].repeat(1, 1, 2)[..., :100],)


def tagger() -> Any:
    return Tagger(), (IDS,)


def unet() -> Any:
    return UNet(), (IMAGE,)


SLOW = (resnet, mobilenet, convnext, vit, swin, bert, t5_encoder, whisper_encoder, tagger)


@pytest.mark.parametrize("make", [unet, *(pytest.param(m, marks=pytest.mark.slow) for m in SLOW)])
def test_as_pytorch(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model, given = make()
    model.eval()
    names = [f"x{i}" for i in range(len(given))]
    file = io.BytesIO()
    axes = {n: {0: "batch", 1: "length"} if t.dtype is torch.int64 else {0: "batch"} for n, t in zip(names, given)}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        want = model(*given).numpy()
        torch.onnx.export(model, given, file, input_names=names, output_names=["y"], dynamic_axes=axes,
                          dynamo=False, opset_version=17)  # fmt: skip
    graph = OnnxModel(file.getvalue())
    run = jit(lambda **inputs: graph(**inputs)["y"])
    got = run(**{n: Tensor(t.numpy()) for n, t in zip(names, given)}).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
