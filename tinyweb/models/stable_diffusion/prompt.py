"""CLIP's tokenizer: prompts to ids of a fixed length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from tinyweb.errors import ModelFormatError
from tinyweb.formats.control_tokens import MAX_ID, ControlTokens, guarded_backend, understood
from tinyweb.formats.huggingface import Config, read_json, read_text

BOS, EOS = "<|startoftext|>", "<|endoftext|>"
# contractions, runs of letters, single digits, runs of anything else
WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
MAX_LENGTH = 4096


@dataclass(frozen=True)
class PromptTokenizer:
    """`backend` adds bos and eos and neither cuts nor pads; `length` is that of every result."""

    backend: tokenizers.Tokenizer
    bos: int
    eos: int
    pad: int
    length: int

    @classmethod
    def from_folder(cls, folder: Path, length: int) -> Self:
        """Reads tokenizer.json, or vocab.json and merges.txt; `length`: what the text encoder takes at most.

        ModelFormatError names the file that is missing or damaged.
        """
        settings = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
        special = folder / "special_tokens_map.json"
        texts = (read_json(special) if special.is_file() else {}) | settings
        first, last = _text(texts.get("bos_token"), BOS), _text(texts.get("eos_token"), EOS)
        filler = _text(texts.get("pad_token"), last)
        if (folder / "tokenizer.json").is_file():
            backend = _from_json(folder / "tokenizer.json")
        elif (folder / "vocab.json").is_file():
            backend = _from_merges(folder, (first, last, filler))
        else:
            raise ModelFormatError(f"{folder} holds no tokenizer.json and no vocab.json: the tokenizer is missing")
        bos, eos, pad = (_id(backend, text, folder) for text in (first, last, filler))
        # a model_max_length of 10³⁰ is transformers' way to say that there is none
        given = settings.get("model_max_length")
        limit = length if type(given) is not int or given > MAX_LENGTH else given
        limit = Config({"model_max_length": limit}, str(folder / "tokenizer_config.json")).integer(
            "model_max_length", 2, MAX_LENGTH
        )
        with understood(folder):
            backend.post_processor = processors.TemplateProcessing(
                single=[first, "$A", last], special_tokens=[(first, bos), (last, eos)]
            )
        return cls(backend, bos, eos, pad, min(limit, length))

    def __call__(self, prompt: str) -> list[int]:
        """bos, the prompt's ids (what does not fit is cut off), eos, padding: `length` ids."""
        control, backend = self._guarded  # a prompt that names a special token is text
        with understood():
            ids = list(backend.encode(control.guard(prompt)).ids)
        if len(ids) > self.length:
            ids = [*ids[: self.length - 1], self.eos]
        return ids + [self.pad] * (self.length - len(ids))

    @cached_property
    def _guarded(self) -> tuple[ControlTokens, tokenizers.Tokenizer]:
        return guarded_backend(self.backend)


def _text(value: Any, default: str) -> str:
    """A special token: a string, or an object with `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else default


def _id(backend: tokenizers.Tokenizer, text: str, folder: Path) -> int:
    with understood(folder):
        found = backend.token_to_id(text)
    if found is None:
        raise ModelFormatError(f"{folder}: the tokenizer has no token {text[:40]!r}: its files are not of one model")
    return int(found)


def _from_json(path: Path) -> tokenizers.Tokenizer:
    from tinyweb.formats.tokenizer import load_backend

    return load_backend(path)


def _from_merges(folder: Path, special: tuple[str, ...]) -> tokenizers.Tokenizer:
    """`special`: tokens that are recognised where a prompt has them written out, the padding among them."""
    vocabulary = read_json(folder / "vocab.json")
    if not all(type(i) is int and 0 <= i <= MAX_ID for i in vocabulary.values()):
        raise ModelFormatError(f"{folder / 'vocab.json'} does not give every token a number: download it again")
    lines = read_text(folder / "merges.txt").split("\n")
    split = [line.split() for line in lines if line.strip() and not line.startswith("#version")]
    if not all(len(p) == 2 for p in split):
        raise ModelFormatError(f"{folder / 'merges.txt'} has a line that is no pair of tokens: download it again")
    try:
        model = models.BPE(
            vocab=vocabulary, merges=[(a, b) for a, b in split], unk_token=EOS if EOS in vocabulary else None,
            continuing_subword_prefix="", end_of_word_suffix="</w>",
        )  # fmt: skip
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as e:  # a Rust panic is none of Exception
        raise ModelFormatError(
            f"{folder / 'merges.txt'} does not fit vocab.json ({str(e)[:100]}): download both again"
        ) from None
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special if t in vocabulary])
    return backend
