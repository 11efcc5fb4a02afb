"""Folders of ONNX graphs that make texts and vectors, in transformers.js's layout, with what goes into them.

tests/formats/onnx/peer_texts.py asks onnxruntime what comes out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.models import encoder_folders, onnx_folders, onnx_seq2seq_folders

FILE = Path(__file__).parents[1] / "formats/onnx/peer_texts.npz"
PROMPT = [0, 2, 275, 3, 261, 499, 5, 4, 2, 277, 3]  # a block of 8, and what is left
COUNT = 12
TEXTS = ["the cat sat.", "trees, trees, trees: a b c d e f g h", ""]
_RANDOM = np.random.default_rng(3)
GIVEN: dict[str, dict[str, np.ndarray]] = {
    "whisper": {"input_features": _RANDOM.standard_normal((1, 8, 40)).astype(np.float32)},
    "t5": {"input_ids": _RANDOM.integers(2, 96, (1, 7)), "attention_mask": np.ones((1, 7), np.int64)},
}


def _grouped(folder: Path, like: Path) -> Path:
    """Integers of 4 bits and grouped attention, with the numbers in a file of their own. onnxruntime turns heads of
    at least 16 numbers."""
    model = onnx_folders.llama(width=64)
    onnx_folders.write_folder(folder, model, like)
    onnx_folders.grouped(model, folder / "onnx/model_q4.onnx", bits=4, data=True)
    return folder


def _varied(model: Any, times: float) -> Any:
    """With larger matrices, so that ids do not only repeat."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim > 1 and "wte" not in name:
                p.mul_(times)
    return model


def _joined(kind: str, times: float) -> Callable[[Path, Path], Path]:
    def write(folder: Path, like: Path) -> Path:
        model = _varied(getattr(onnx_folders, kind)(), times)
        onnx_folders.write_folder(folder, model, like)
        onnx_folders.export_graph(model, folder / "onnx/model.onnx")
        return folder

    return write


CHATS = {"chat-grouped": _grouped, "chat-llama": _joined("llama", 1), "chat-gpt2": _joined("gpt2", 3)}


def _seq2seq(kind: str, times: float) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        model = _varied(getattr(onnx_seq2seq_folders, kind)(), times)
        return onnx_seq2seq_folders.write_folder(folder, model)

    return write


LOOPS = {"loop-whisper": (_seq2seq("whisper", 4), "whisper", [1]), "loop-t5": (_seq2seq("t5", 1), "t5", [0])}


class _Hidden(nn.Module):
    def __init__(self, model: Any, names: tuple[str, ...]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *given: torch.Tensor) -> Any:
        return self.model(**dict(zip(self.names, given))).last_hidden_state


def write_encoder(model: Any, path: Path, names: tuple[str, ...]) -> None:
    """The graph from inputs of these names to hidden states."""
    ids = torch.ones(2, 7, dtype=torch.int64)
    axes = {n: {0: "batch_size", 1: "sequence_length"} for n in (*names, "last_hidden_state")}
    path.parent.mkdir()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Hidden(model, names).eval(), (ids, ids, ids * 0)[: len(names)], path, dynamo=False,
            input_names=list(names), output_names=["last_hidden_state"], dynamic_axes=axes, opset_version=17,
        )  # fmt: skip


NAMES = ("input_ids", "attention_mask", "token_type_ids")


def embedder(folder: Path, kind: str = "BERT", names: tuple[str, ...] = NAMES) -> Path:
    """A graph without a checkpoint. A vector is the first hidden state, and the mean of all, behind one another."""
    model = encoder_folders.ENCODERS[kind].model()
    encoder_folders.write_folder(folder, model, pooling_mode_cls_token=True, pooling_mode_mean_tokens=True)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    write_encoder(model, folder / "onnx/model.onnx", names)
    return folder


def vector(hidden: np.ndarray) -> np.ndarray:
    """What `embedder` says of hidden states (1, tokens, width)."""
    joined = np.concatenate([hidden[0, 0], hidden[0].mean(0)])
    return joined / np.linalg.norm(joined)
