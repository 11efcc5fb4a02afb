"""Small encoders of random weights as folders of sentence-transformers; `transformers` saves and judges them."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedModel

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


@dataclass(frozen=True)
class Small:
    """An architecture and what of its config differs from SIZES."""

    architecture: str
    changes: dict[str, Any] = field(default_factory=dict)

    def model(self, **changes: Any) -> PreTrainedModel:
        """Weights large enough that a mistake shows, norms and biases that are not their neutral values."""
        torch.manual_seed(1)
        name, head = self.architecture.partition("Model")[0].partition("For")[0], "Model" in self.architecture
        config = getattr(transformers, name + "Config")(**{**SIZES, **self.changes, **changes})
        without_pooler = {"add_pooling_layer": False} if head and name in POOLED else {}
        model: PreTrainedModel = getattr(transformers, self.architecture)(config, **without_pooler)
        with torch.no_grad():
            for name, p in model.named_parameters():
                one = p.ndim == 1 and "norm" in name.lower() and name.endswith("weight")
                p.copy_(torch.rand_like(p) + 0.5 if one else torch.randn_like(p) * 0.15)
        return model.eval()


POOLED = ("Bert", "Roberta", "XLMRoberta", "MPNet", "Camembert")
OLD_NAMES = {"dim": 48, "hidden_dim": 72, "n_layers": 2, "n_heads": 4}
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "layer_norm_eps": 1e-7}
ENCODERS = {
    "BERT": Small("BertModel", {"type_vocab_size": 3, "layer_norm_eps": 1e-2}),
    "RoBERTa": Small("RobertaModel", {"pad_token_id": 1, "type_vocab_size": 1}),
    "XLM-RoBERTa": Small("XLMRobertaModel", {"pad_token_id": 1, "type_vocab_size": 1}),
    "DistilBERT": Small("DistilBertModel", OLD_NAMES),
    "DistilBERT, waves": Small("DistilBertModel", {**OLD_NAMES, "sinusoidal_pos_embds": True, "activation": "relu"}),
    "ModernBERT": Small("ModernBertModel", {
        "num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
        "cls_token_id": 2, "sep_token_id": 3,
    }),
    "ModernBERT, biases": Small("ModernBertModel", {
        "local_attention": 6, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2,
        "sep_token_id": 3, "attention_bias": True, "mlp_bias": True, "norm_bias": True, "hidden_activation": "silu",
        "layer_types": ["sliding_attention", "full_attention"],
    }),
    "MPNet": Small("MPNetModel", {"max_position_embeddings": 200}),
    "DeBERTa": Small("DebertaV2Model", {**DEBERTA, "position_buckets": 8, "norm_rel_ebd": "layer_norm",
                                        "share_att_key": True, "position_biased_input": False}),
    "DeBERTa, matrices for positions": Small("DebertaV2Model", {**DEBERTA, "type_vocab_size": 2,
                                                                "max_relative_positions": 12}),
    "DeBERTa, keys of positions": Small("DebertaV2Model", {**DEBERTA, "pos_att_type": "c2p", "share_att_key": True,
                                                           "position_buckets": 16}),
    "Nomic": Small("NomicBertModel"),
    "GTE": Small("GteModel", {"type_vocab_size": 1}),
}  # fmt: skip


def random_model(kind: str = "BERT", **changes: Any) -> PreTrainedModel:
    changes = {"type_vocab_size": 2, "layer_norm_eps": 1e-12, **changes} if kind == "BERT" else changes
    return ENCODERS[kind].model(**changes)


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
