"""From the tokenizer in a GGUF file's metadata to the content of tokenizer.json, tokenizer_config.json and what
generation_config.json says of end tokens and sampling.

What is notable, by `tokenizer.ggml.model`:
- `gpt2`: merges of bytes, in the order of the file. How a text is cut before is known by a name (`pretokenizers`).
- `llama`: SentencePiece's merges, likeliest result first, which follow from the scores of the pieces: a piece may be
  made of any two pieces.
- `t5`: the likeliest of all ways to cut a text into pieces.
- `rwkv`: the longest pieces of bytes from the left (`longest_match`).
- `bert`: the longest pieces from the left. GGUF files mark what begins a word (▁), tokenizer.json what goes on (##).
- Tokens of the types "control" and "user defined" are recognised wherever their text stands.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats import longest_match
from tinyweb.formats.gguf.facts import Facts
from tinyweb.formats.gguf.pretokenizers import CUTS, Json, byte_level

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"
LONGEST = 256  # letters of a piece that is made by merging; SentencePiece makes none longer than 16 unless told to
SPECIAL = {
    "bos": "bos",
    "eos": "eos",
    "unk": "unknown",
    "sep": "seperator",
    "pad": "padding",
    "cls": "cls",
    "mask": "mask",
}
# texts of tokens that end an answer, where the file names one end token of several
ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<end_of_turn>", "<|END_OF_TURN_TOKEN|>",
    "<|end_of_text|>", "<|return|>", "<|call|>", "<｜end▁of▁sentence｜>", "<|end_of_role|>",
)  # fmt: skip


class Vocabulary:
    """Tokens of a file with their types and scores. Raises ModelFormatError where these do not belong together."""

    def __init__(self, facts: Facts):
        self.facts, self.where = facts, f"{facts.file.paths[0]}, tokenizer"
        self.kind = facts.tokens.word("tokenizer.ggml.model", "none")
        if self.kind not in MODELS:
            raise ModelFormatError(
                f"{self.where}: 'tokenizer.ggml.model' {self.kind[:40]!r} is not supported; known: {', '.join(MODELS)}"
            )
        found = facts.tokens.values.get("tokenizer.ggml.tokens")
        if not isinstance(found, list) or not found or not all(isinstance(t, str) for t in found):
            raise ModelFormatError(f"{self.where}: 'tokenizer.ggml.tokens' must be a list of texts")
        self.tokens: list[str] = found
        self.special = {name: token for name, key in SPECIAL.items() if (token := self._id(key)) is not None}
        self.types = self._numbers("token_type", "iu", NORMAL)
        if "tokenizer.ggml.token_type" not in facts.tokens.values:
            self.types[list(self.special.values())] = CONTROL
        if self.kind == "bert":
            kept = (UNKNOWN, CONTROL, USER_DEFINED)
            self.tokens = [t if kind in kept else _word(t) for t, kind in zip(self.tokens, self.types)]

    def _id(self, key: str) -> int | None:
        key = f"tokenizer.ggml.{key}_token_id"
        if key not in self.facts.tokens.values:
            return None
        value = self.facts.tokens.integer(key, 0, (1 << 32) - 1)
        return value if value < len(self.tokens) else None

    def _numbers(self, key: str, kinds: str, default: float) -> Any:
        found = self.facts.tokens.values.get(f"tokenizer.ggml.{key}")
        if found is None:
            return np.full(len(self.tokens), default)
        if not isinstance(found, np.ndarray) or found.dtype.kind not in kinds or len(found) != len(self.tokens):
            raise ModelFormatError(
                f"{self.where}: 'tokenizer.ggml.{key}' must have a number for each of {len(self.tokens)} tokens"
            )
        return found

    def scores(self) -> list[float]:
        found = self._numbers("scores", "f", 0.0)
        if not np.isfinite(found).all():
            raise ModelFormatError(f"{self.where}: 'tokenizer.ggml.scores' holds infinities or NaNs")
        return [float(s) for s in found]

    def flag(self, key: str, default: bool) -> bool:
        return self.facts.tokens.flag(f"tokenizer.ggml.{key}", default)

    def text(self, name: str) -> str | None:
        """The text of a special token."""
        return self.tokens[self.special[name]] if name in self.special else None

    def ids(self) -> dict[str, int]:
        """Texts to ids, the first of equal texts; without those that stand for nothing."""
        found: dict[str, int] = {}
        for i, (token, kind) in enumerate(zip(self.tokens, self.types)):
            if kind != UNUSED:
                found.setdefault(token, i)
        return found

    def added(self) -> list[Json]:
        """Tokens that are recognised before all else. Those of Phi-3 take the spaces behind them, but for the first."""
        strip = self.facts.architecture == "phi3" and self.kind == "llama"
        kept = {"<unk>", "<s>", "<|endoftext|>"}
        ids = self.ids()
        return [
            {
                "id": i, "content": token, "single_word": False, "lstrip": False,
                "rstrip": bool(strip and kind == CONTROL and token not in kept), "normalized": False,
                "special": bool(kind != USER_DEFINED),
            }
            for i, (token, kind) in enumerate(zip(self.tokens, self.types))
            if kind in (UNKNOWN, CONTROL, USER_DEFINED) and token and ids[token] == i
        ]  # fmt: skip


# -- models ------------------------------------------------------------------------------------------------------------
def bytes_of_gpt2(v: Vocabulary) -> Json:
    name = v.facts.tokens.word("tokenizer.ggml.pre", "default")
    if name not in CUTS:
        raise ModelFormatError(
            f"{v.where}: how texts are cut, 'tokenizer.ggml.pre' {name[:40]!r}, is not known; known: {', '.join(CUTS)}"
        )
    cuts = CUTS[name]
    merges = v.facts.tokens.values.get("tokenizer.ggml.merges", [])
    if not isinstance(merges, list) or not all(isinstance(m, str) and " " in m[1:-1] for m in merges):
        raise ModelFormatError(f"{v.where}: 'tokenizer.ggml.merges' must be a list of two texts with a space between")
    pairs = [[m[:at], m[at + 1 :]] for m in merges if (at := m.index(" ", 1))]
    steps = list(cuts.steps)
    return {
        "normalizer": {"type": "NFC"} if cuts.composed else None,
        "pre_tokenizer": steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps},
        "post_processor": _begin_and_end(v, cuts.begins),
        "decoder": byte_level(True),
        "model": _merging(v.ids(), pairs, ignore_merges=cuts.whole),
    }


def _merging(vocabulary: Mapping[str, int], merges: list[list[str]], **more: Any) -> Json:
    return {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": vocabulary, "merges": merges,
    } | more  # fmt: skip


def pieces_of_llama(v: Vocabulary) -> Json:
    prefix = v.flag("add_space_prefix", True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    before = [{"type": "Prepend", "prepend": SPACE}] if prefix else []
    after: list[Json] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}
    ]  # fmt: skip
    if prefix:
        after.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    ids = v.ids()
    unknown = v.text("unk")
    if unknown is None and UNKNOWN in v.types:
        unknown = v.tokens[int(np.argmax(v.types == UNKNOWN))]
    model = _merging(ids, merges_by_score(v), byte_fallback=BYTE in v.types, fuse_unk=True, unk_token=unknown)
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, spaces]}, "pre_tokenizer": None,
        "post_processor": _begin_and_end(v, True), "decoder": {"type": "Sequence", "decoders": after}, "model": model,
    }  # fmt: skip


def merges_by_score(v: Vocabulary) -> list[list[str]]:
    """All pairs of pieces that make a piece, likeliest piece first, then the longest beginning."""
    ids = v.ids()
    found = [
        (-score, -at, at - len(token), token)
        for token, score, kind in zip(v.tokens, v.scores(), v.types)
        if kind in (NORMAL, USER_DEFINED) and len(token) <= LONGEST
        for at in range(1, len(token))
        if token[:at] in ids and token[at:] in ids
    ]
    return [[token[:-back], token[-back:]] for _, back, _, token in sorted(found, key=lambda m: m[:3])]


def pieces_of_t5(v: Vocabulary) -> Json:
    steps: list[Json] = []
    table = v.facts.tokens.values.get("tokenizer.ggml.precompiled_charsmap")
    if table is not None:
        if not isinstance(table, np.ndarray) or table.dtype.itemsize != 1:
            raise ModelFormatError(f"{v.where}: 'tokenizer.ggml.precompiled_charsmap' must be bytes")
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table.tobytes()).decode()})
    if v.flag("remove_extra_whitespaces", True):
        steps += [
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]
    scheme = "always" if v.flag("add_space_prefix", True) else "never"
    words = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    unknown = v.special.get("unk")
    if unknown is None and UNKNOWN in v.types:
        unknown = int(np.argmax(v.types == UNKNOWN))
    model = {
        "type": "Unigram", "unk_id": unknown, "byte_fallback": BYTE in v.types,
        "vocab": [[token, score] for token, score in zip(v.tokens, v.scores())],
    }  # fmt: skip
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None, "pre_tokenizer": words,
        "post_processor": _begin_and_end(v, False), "decoder": words, "model": model,
    }  # fmt: skip


def words_of_bert(v: Vocabulary) -> Json:
    # a vocabulary for texts without capital letters has none
    cased = any(t != t.lower() for t, kind in zip(v.tokens, v.types) if kind == NORMAL and t[:1] != "[")
    # files of later converters name the first and the last token as those of other models
    ends = ("cls" if "cls" in v.special else "bos", "sep" if "sep" in v.special else "eos")
    model = {
        "type": "WordPiece", "unk_token": v.text("unk") or "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": v.ids(),
    }  # fmt: skip
    return {
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": not cased,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": _around(v, *ends, False),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}, "model": model,
    }  # fmt: skip


def bytes_of_rwkv(v: Vocabulary) -> Json:
    tokens = [(i, t) for i, (t, kind) in enumerate(zip(v.tokens, v.types)) if kind == NORMAL]
    added = v.added()
    if not added:
        raise ModelFormatError(f"{v.where}: 'tokenizer.ggml.token_type' must say which token ends a text")
    found = longest_match.gguf_vocabulary(tokens, v.where)
    return longest_match.tokenizer_json(found, added, added[0]["content"], v.where)


def _word(token: str) -> str:
    """A token of BERT as tokenizer.json has it."""
    if token.startswith(SPACE):
        return token[1:]
    return token if token.startswith("[") and token.endswith("]") else "##" + token


def _begin_and_end(v: Vocabulary, begins: bool) -> Json | None:
    first = "bos" if v.flag("add_bos_token", begins) else None
    return _around(v, first, "eos" if v.flag("add_eos_token", v.kind == "t5") else None)


def _around(v: Vocabulary, first: str | None, last: str | None, each: bool = True) -> Json | None:
    """What stands before and behind a text, or of two (`each`) before both."""
    before, after = (v.text(name) if name else None for name in (first, last))
    if before is None and after is None:
        return None
    ids = {t: v.special[n] for t, n in ((before, first), (after, last)) if t is not None and n is not None}

    def around(sequence: str, type_id: int) -> list[Json]:
        parts: list[Json] = [{"Sequence": {"id": sequence, "type_id": type_id}}]
        if before is not None and (sequence == "A" or each):
            parts.insert(0, {"SpecialToken": {"id": before, "type_id": type_id}})
        return parts + ([{"SpecialToken": {"id": after, "type_id": type_id}}] if after is not None else [])

    return {
        "type": "TemplateProcessing", "single": around("A", 0), "pair": around("A", 0) + around("B", 1),
        "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in ids.items()},
    }  # fmt: skip


MODELS: Mapping[str, Callable[[Vocabulary], Json]] = {
    "gpt2": bytes_of_gpt2, "llama": pieces_of_llama, "t5": pieces_of_t5, "bert": words_of_bert,
    "rwkv": bytes_of_rwkv,
}  # fmt: skip


# -- files -------------------------------------------------------------------------------------------------------------
def tokenizer_json(facts: Facts) -> Json:
    """The content of tokenizer.json. Raises ModelFormatError for a tokenizer that is damaged or not known."""
    v = Vocabulary(facts)
    parts = MODELS[v.kind](v)
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": v.added(), **parts}


def tokenizer_config(facts: Facts) -> Json:
    """The content of tokenizer_config.json: texts of the special tokens, and the chat template."""
    v = Vocabulary(facts)
    found: Json = {f"{name}_token": v.text(name) for name in v.special}
    template = facts.tokens.values.get("tokenizer.chat_template")
    if template is not None:
        written = facts.tokens.word("tokenizer.chat_template")
        found["chat_template"] = longest_match.TEMPLATE if written == "rwkv-world" else written
    return found | {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}


def generation_config(facts: Facts) -> Json:
    """End tokens, and how the file suggests to sample."""
    v = Vocabulary(facts)
    ends = [t for key in ("eos", "eot", "eom") if (t := v._id(key)) is not None]
    known = set(ENDS)
    ends += [i for i, (t, kind) in enumerate(zip(v.tokens, v.types)) if kind in (CONTROL, USER_DEFINED) and t in known]
    suggested = {"top_k": "top_k", "top_p": "top_p", "temp": "temperature", "penalty_repeat": "repetition_penalty"}
    values = {name: facts.file.metadata.get(f"general.sampling.{name}") for name in suggested}
    found = {suggested[name]: value for name, value in values.items() if isinstance(value, int | float)}
    return {"eos_token_id": list(dict.fromkeys(ends))} | found
