"""Where byte-level tokenizers cut a text before they merge bytes: `tokenizer.ggml.pre` names one of these patterns.

Each is what the tokenizer.json of the models named so has as its `pre_tokenizer` and `normalizer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # of English words
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
# words with at most one change from capital to small letters; marks belong to letters
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*")


@dataclass(frozen=True)
class Cuts:
    """`steps`: pre-tokenizers, one after the other; bytes are mapped to letters in the last one, or before. `whole`:
    a piece that is a token is not merged from its bytes. `begins`: texts begin with the begin token unless said
    otherwise."""

    steps: tuple[Json, ...]
    composed: bool = False
    whole: bool = False
    begins: bool = False


def split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def byte_level(cut: bool) -> Json:
    """Bytes to letters; `cut`: GPT-2's pattern before that."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": cut}


def pattern(*alternatives: str) -> tuple[Json, ...]:
    return split("|".join(alternatives)), byte_level(False)


GPT2 = (byte_level(True),)
LLAMA3 = pattern(_ENDS, _WORD, r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", _TAIL)
QWEN2 = pattern(_ENDS, _WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", _TAIL)
QWEN35 = pattern(_ENDS, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _TAIL)
SINGLE_DIGITS = (split(r"\p{N}"), byte_level(True))
FALCON = (
    {"type": "Punctuation", "behavior": "Contiguous"},
    byte_level(True),
    split(r"\p{N}+"),  # of letters that stand for bytes: ¼ and others are numbers, too
    split("[0-9][0-9][0-9]"),
)
GPT4O = pattern(*(c + _ENDS + "?" for c in _CASED), r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", _TAIL)
TEKKEN = pattern(*_CASED, r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", _TAIL)
DEEPSEEK3 = (
    split(r"\p{N}{1,3}"),
    split("[一-龥\u3040-ゟ゠-ヿ]+"),
    split(
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
        + _TAIL
    ),
    byte_level(False),
)

DEEPSEEK_CODER = (
    *map(split, (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u0800-一가-\ud7ff]+", r"\p{N}")),
    byte_level(False),
)

DEEPSEEK = (
    *map(split, (r"[\r\n]", r"\s?[\p{Lu}\p{Ll}\p{Lt}]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$")),
    *map(split, ("[一-龥\u0800-一가-\ud7ff]+", r"\p{N}")),
    byte_level(False),
)

BLOOM = pattern(r" ?[^(\s|.,!?…。，、।۔،)]+")

LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2")
CUTS: Mapping[str, Cuts] = {
    **dict.fromkeys(("default", "falcon"), Cuts(FALCON)),
    **dict.fromkeys(("gpt-2", "phi-2", "jina-v1-en", "jina-v2-code", "mpt", "jais", "trillion"), Cuts(GPT2)),
    **dict.fromkeys(LLAMA3_NAMES, Cuts(LLAMA3, whole=True, begins=True)),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), Cuts(LLAMA3)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "megrez"), Cuts(QWEN2, composed=True)),
    **dict.fromkeys(("stablelm2", "hunyuan", "grok-2"), Cuts(QWEN2)),
    **dict.fromkeys(("starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b"), Cuts(SINGLE_DIGITS)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), Cuts(DEEPSEEK3)),
    "deepseek-llm": Cuts(DEEPSEEK),
    "deepseek-coder": Cuts(DEEPSEEK_CODER),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), Cuts(GPT4O)),
    "qwen35": Cuts(QWEN35, composed=True),
    **dict.fromkeys(("bloom", "gpt3-finnish"), Cuts(BLOOM)),
    "olmo": Cuts(GPT2, composed=True),
    "command-r": Cuts(SINGLE_DIGITS, composed=True),
    "tekken": Cuts(TEKKEN, whole=True, begins=True),
}
