"""How well a model finds passages for queries in other words, and how far its cosines agree with people.

    python evaluate.py FOLDER [EVAL.json] [--quant q8]

For comparison, the same numbers for a bag of words: words' stems weighted by how rare they are among the passages.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import re
from pathlib import Path

import numpy as np

from tinyweb.models.embedding import Embedder


def ranks(scores: np.ndarray) -> np.ndarray:
    """For each query (row), how many passages come before the right one, which has its number."""
    right = np.diag(scores)[:, None]
    # a tie counts half: a bag of words scores many passages 0
    return (scores > right).sum(1) + ((scores == right).sum(1) - 1) / 2


def report(name: str, search: np.ndarray, similar: list[float], wanted: list[float]) -> None:
    r = ranks(search)
    order = [np.argsort(np.argsort(v)) for v in (similar, wanted)]
    print(f"{name:14} top 1: {np.mean(r < 0.5):.3f}  top 3: {np.mean(r < 2.5):.3f}  mean reciprocal rank: "
          f"{np.mean(1 / (1 + r)):.3f}  similarity (Spearman): {np.corrcoef(*order)[0, 1]:.3f}")  # fmt: skip


def bag(text: str) -> collections.Counter[str]:
    return collections.Counter(re.sub(r"(ing|ed|es|s)$", "", w) for w in re.findall(r"[a-z0-9]+", text.lower()))


def bag_cosines(left: list[str], right: list[str]) -> np.ndarray:
    bags = [bag(t) for t in left + right]
    df = collections.Counter(w for b in bags for w in b)
    weights = [{w: n * math.log(1 + len(bags) / df[w]) for w, n in b.items()} for b in bags]
    norm = [math.sqrt(sum(x * x for x in b.values())) or 1 for b in weights]
    one = range(len(left))
    return np.array([[sum(weights[i][w] * weights[j].get(w, 0) for w in weights[i]) / norm[i] / norm[j]
                      for j in range(len(left), len(bags))] for i in one])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("eval", type=Path, nargs="?")
    parser.add_argument("--quant")
    options = parser.parse_args()
    data = json.loads((options.eval or options.folder / "eval.json").read_text("utf-8"))
    queries, passages = [s["query"] for s in data["search"]], [s["passage"] for s in data["search"]]
    pairs = data["similarity"]
    a, b, wanted = [p["a"] for p in pairs], [p["b"] for p in pairs], [p["score"] for p in pairs]
    embedder = Embedder.from_folder(options.folder, options.quant)
    vectors = embedder.encode(queries, "query") @ embedder.encode(passages).T
    report(options.folder.name, vectors, list((embedder.encode(a) * embedder.encode(b)).sum(1)), wanted)
    report("bag of words", bag_cosines(queries, passages), list(np.diag(bag_cosines(a, b))), wanted)


if __name__ == "__main__":
    main()
