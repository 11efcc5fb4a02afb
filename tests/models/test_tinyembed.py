"""The default embedding model: what its README says of it."""

import json
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from tinyweb.models.embedding import Embedder

FOLDER = Path(__file__).parents[2] / "assets" / "models" / "tinyembed"


def test_finds_passages_by_meaning() -> None:
    """Queries that share hardly a word with their passage."""
    data = json.loads((FOLDER / "eval.json").read_text("utf-8"))
    embedder = Embedder.from_folder(FOLDER, "q8")
    queries = embedder.encode([s["query"] for s in data["search"]], "query")
    passages = embedder.encode([s["passage"] for s in data["search"]])
    np.testing.assert_allclose(np.linalg.norm(passages, axis=1), 1, atol=1e-4)
    scores = queries @ passages.T
    rank = (scores > np.diag(scores)[:, None]).sum(1)
    assert (rank == 0).mean() >= 0.75 and (rank < 3).mean() >= 0.88
    pairs = data["similarity"]
    cosines = (embedder.encode([p["a"] for p in pairs]) * embedder.encode([p["b"] for p in pairs])).sum(1)
    order = [np.argsort(np.argsort(v)) for v in (cosines, [p["score"] for p in pairs])]
    assert np.corrcoef(np.array(order, np.float64))[0, 1] > 0.6


def test_same_vectors_as_transformers() -> None:
    texts = ["Leaves turn light into sugar.", "where do trains run"]
    tokenizer, model = AutoTokenizer.from_pretrained(FOLDER), AutoModel.from_pretrained(FOLDER).float().eval()
    read = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**read).last_hidden_state
    mask = read["attention_mask"].unsqueeze(-1)
    want = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).numpy()
    np.testing.assert_allclose(Embedder.from_folder(FOLDER).encode(texts), want, atol=1e-4)
