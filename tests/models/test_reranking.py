"""Scores of pairs beside `transformers`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from tests.models.encoder_folders import ENCODERS, Small, word_pieces
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Config
from tinyweb.models import load
from tinyweb.models.encoder.head import read_head
from tinyweb.models.reranking import Reranker

PAIRS = [("the cat sat", "a tree"), ("a", "the cat sat: the cats, the trees, a b c d e"), ("", "cat"),
         ("a b c d e f g h i j k l m", "n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q")]  # fmt: skip
MODERN = ENCODERS["ModernBERT"].changes
MODELS = {
    "BERT": Small("BertForSequenceClassification", {"num_labels": 1}),
    "XLM-RoBERTa": Small("XLMRobertaForSequenceClassification", {
        **ENCODERS["XLM-RoBERTa"].changes, "pad_token_id": 0, "num_labels": 1,
    }),
    "DeBERTa": Small("DebertaV2ForSequenceClassification", {**ENCODERS["DeBERTa"].changes, "num_labels": 1}),
    "ModernBERT": Small("ModernBertForSequenceClassification", {**MODERN, "num_labels": 1}),
    "ModernBERT, mean": Small("ModernBertForSequenceClassification", {
        **MODERN, "num_labels": 1, "classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True,
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sigmoid", [True, False])
def test_against_transformers(name: str, sigmoid: bool, tmp_path: Path) -> None:
    model = MODELS[name].model()
    model.save_pretrained(tmp_path)
    backend = word_pieces()
    both = name == "BERT"  # the others have no types of tokens
    backend.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", f"[CLS] $A [SEP] $B:{int(both)} [SEP]:{int(both)}", [("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    path = tmp_path / "config.json"
    if not sigmoid:
        own = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
        path.write_text(json.dumps({**json.loads(path.read_text()), **own}))
    reranker = load(tmp_path)
    assert isinstance(reranker, Reranker)
    longest = reranker.max_length
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", model_max_length=longest,
                                   model_input_names=["input_ids", "token_type_ids", "attention_mask"])  # fmt: skip
    want = []
    for pair in PAIRS:
        read = fast(*pair, truncation=True, return_tensors="pt")
        given = {n: read[n] for n in ("input_ids", "attention_mask", *(["token_type_ids"] if both else []))}
        with torch.no_grad():
            want.append(model(**given).logits[0, 0])
    expected = torch.stack(want)
    got = reranker.score(PAIRS)
    assert got.dtype == np.float32 and got.shape == (4,)
    np.testing.assert_allclose(got, (expected.sigmoid() if sigmoid else expected).numpy(), atol=1e-4)
    with pytest.raises(TinywebError, match="pairs of 99 tokens"):
        load(tmp_path, context=99)


def test_what_is_refused() -> None:
    one = {"id2label": {"0": "LABEL_0"}}
    for values, message in [
        ({"architectures": ["BertForSequenceClassification"]}, "'id2label' has 2 classes"),
        ({"architectures": ["MPNetForSequenceClassification"], **one}, "names MPNetForSequenceClassification"),
        ({"architectures": ["ModernBertForSequenceClassification"], "classifier_pooling": "max", **one}, "'max'"),
    ]:
        with pytest.raises(ModelFormatError, match=message):
            read_head(Config(values, "config.json"))
