"""A GGUF file in the place of a Hugging Face model folder: the same configuration, checkpoint and tokenizer files."""

from __future__ import annotations

import json
from collections import Counter
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf.config import config_of, pooling_of
from tinyweb.formats.gguf.facts import Facts
from tinyweb.formats.gguf.file import read
from tinyweb.formats.gguf.tokenizer import generation_config, tokenizer_config, tokenizer_json
from tinyweb.formats.gguf.weights import FLOATS, INTS, GgufWeights
from tinyweb.formats.huggingface import MAX_JSON, Checkpoint, Config, ModelFolder

PLAIN = {**FLOATS, **INTS}  # types that are not quantised


class GgufModel(ModelFolder):
    """What `ModelFolder` is for a folder: `config`, `weights()`, and texts by the names of their files."""

    def __init__(self, path: str | Path):
        self._facts = Facts(read(path))
        self.path = self._facts.file.paths[0]
        self.config = Config(config_of(self._facts), str(self.path))

    def stored_types(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for tensor in self._facts.file.tensors.values():
            if tensor.type not in PLAIN:
                found[tensor.type] += prod(tensor.shape)
        return dict(found.most_common())

    def weights(self) -> Checkpoint:
        return Checkpoint.of(GgufWeights(self._facts))

    def text(self, name: str, required: bool = False, limit: int = MAX_JSON) -> str | None:
        content = self._files.get(name)
        if content is None and required:
            raise ModelFormatError(f"{self.path} holds nothing that would be {name}: use a file with its tokenizer")
        return content if content is None or isinstance(content, str) else json.dumps(content, ensure_ascii=False)

    @cached_property
    def _files(self) -> dict[str, Any]:
        found: dict[str, Any] = {"config.json": self.config.values}
        if self._facts.tokens.word("tokenizer.ggml.model", "none") != "none":
            made = {"tokenizer": tokenizer_json, "tokenizer_config": tokenizer_config}
            made["generation_config"] = generation_config
            found |= {f"{name}.json": make(self._facts) for name, make in made.items()}
        if pooling := pooling_of(self._facts):
            found["1_Pooling/config.json"] = {"pooling_mode": pooling}
        return found
