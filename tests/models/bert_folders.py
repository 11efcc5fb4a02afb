"""Small encoders of random weights as folders of sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedModel, RobertaConfig, RobertaModel

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz.,:?", *(f"##{c}" for c in "abcdefghijklm"),
          "##n", "the", "cat", "sat", "query", "passage", "tree", "##s"]  # fmt: skip


def random_model(kind: str = "bert", **changes: Any) -> PreTrainedModel:
    """Weights large enough that a mistake shows, norms and biases that are not their neutral values."""
    torch.manual_seed(1)
    sizes = {**SIZES, **changes}
    model: PreTrainedModel = (
        BertModel(BertConfig(**sizes), add_pooling_layer=False)
        if kind == "bert"
        else RobertaModel(RobertaConfig(**sizes), add_pooling_layer=False)
    )
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.rand_like(p) + 0.5 if "LayerNorm.weight" in name else torch.randn_like(p) * 0.15)
    return model.eval()


def word_pieces() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece({p: i for i, p in enumerate(PIECES)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    backend.add_special_tokens(PIECES[:4])
    return backend


def write_folder(folder: Path, model: PreTrainedModel, modules: bool = True, **pooling: Any) -> Path:
    """`pooling`: fields of 1_Pooling/config.json; none: the mean."""
    model.save_pretrained(folder)
    word_pieces().save(str(folder / "tokenizer.json"))
    if modules:
        kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
        entries = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(kinds.items())
        ]
        (folder / "modules.json").write_text(json.dumps(entries))
        (folder / "1_Pooling").mkdir()
        write_json(folder / "1_Pooling" / "config.json", pooling or {"pooling_mode_mean_tokens": True})
    return folder


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
