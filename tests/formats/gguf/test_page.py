"""The page's tokenizer gives the ids and texts that Python's does, for every kind of tokenizer in a GGUF file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.formats.gguf.test_tokenizer import (
    MERGES,
    TEXTS,
    VOCABULARY,
    backend,
    model,
    sentencepiece,
)
from tinyweb.formats.gguf import GgufModel
from tinyweb.formats.gguf.pretokenizers import CUTS

SCRIPT = Path(__file__).with_name("page_ids.mjs")


def models(path: Path) -> dict[str, GgufModel]:
    found = {pre: model(path, "gpt2", VOCABULARY, pre=pre, merges=MERGES) for pre in CUTS}
    tokens, scores, types = sentencepiece(0)
    own: dict[str, Any] = {"scores": scores, "bos_token_id": 1, "eos_token_id": 2}
    found["llama"] = model(path, "llama", tokens, types, **own)
    found["gemma"] = model(path, "llama", tokens, types, add_space_prefix=False, **own)
    return found


def test_ids_of_the_page(tmp_path: Path) -> None:
    texts = [*TEXTS, "4 ½ months, ²³¼", "abcde ab  ü dé", "a</s>b c"]
    asked, expected = [], []
    for found in models(tmp_path / "m").values():
        files = [json.loads(found.text(f"{name}.json") or "") for name in ("tokenizer", "tokenizer_config")]
        asked.append({"json": files[0], "config": files[1], "texts": texts})
        ours = backend(found)
        ids = [ours.encode(text, add_special_tokens=False).ids for text in texts]
        expected.append([[i, ours.decode(i)] for i in ids])
    done = subprocess.run(["node", SCRIPT], input=json.dumps(asked), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for name, got, want in zip(models(tmp_path / "m"), json.loads(done.stdout), expected):
        for text, a, b in zip(texts, got, want):
            assert a == b, (name, text)
