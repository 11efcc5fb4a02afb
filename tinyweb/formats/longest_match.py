"""RWKV's tokenizer, of a text's bytes always the longest that a list has, as the content of a tokenizer.json.

WordPiece takes the longest piece from the left, too; over bytes, and without a mark of what goes on within a word, it
is the same, if a "word" ends where no token goes on. So a text is cut between two bytes that no token has side by side:
no token is cut there, and words stay short.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import tokenizers
from tokenizers import models
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.pre_tokenizers import Sequence as InOrder

from tinyweb.errors import ModelFormatError

Json = dict[str, Any]
VOCABULARY = "rwkv_vocab_v20230424.txt"
END = "<|rwkv_tokenizer_end_of_text|>"  # of the id 0, which is not in the list
TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content | trim }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""What the name `rwkv-world` stands for in GGUF files."""
_LINE = re.compile(r"(\d{1,9}) (b?(?:'.*'|\".*\")) (\d{1,9})")
_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{2}|[tnr\\'\"]|)")
_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r", "\\": b"\\", "'": b"'", '"': b'"'}
_PRINTED = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))


def _letters() -> list[str]:
    """The letter that stands for each byte in byte-level tokenizers (Radford et al. 2019): those that are printed for
    themselves, the others from U+0100 on."""
    others = iter(range(256, 512))
    return [chr(b) if b in _PRINTED else chr(next(others)) for b in range(256)]


LETTERS = _letters()


def hub_vocabulary(text: str, where: str) -> dict[bytes, int]:
    """Tokens to ids of a file whose lines are an id, a token as Python writes it, and how many bytes it has."""
    found: list[tuple[int, bytes]] = []
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        parts = _LINE.fullmatch(line.rstrip("\r"))
        token = None if parts is None else _literal(parts[2])
        if parts is None or token is None or len(token) != int(parts[3]):
            raise ModelFormatError(
                f"{where}, line {number}: must be an id, a token in quotes and its length in bytes, found {line[:60]!r}"
            )
        found.append((int(parts[1]), token))
    return _checked(found, where)


def _literal(written: str) -> bytes | None:
    """What Python would read, in UTF-8; None where that is no single string."""
    try:
        value = ast.literal_eval(written)
        return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def gguf_vocabulary(tokens: Iterable[tuple[int, str]], where: str) -> dict[bytes, int]:
    """Tokens to ids of a GGUF file, which writes those as Python does bytes."""
    return _checked([(i, _unescaped(token, where)) for i, token in tokens], where)


def _unescaped(token: str, where: str) -> bytes:
    parts = _ESCAPED.split(token)
    if "" in parts[1::2]:
        raise ModelFormatError(f"{where}: token {token[:60]!r} has a backslash that no byte can be read of")
    values = [
        part.encode() if i % 2 == 0 else _ESCAPES.get(part) or bytes([int(part[1:], 16)])
        for i, part in enumerate(parts)
    ]
    return b"".join(values)


def _checked(found: Sequence[tuple[int, bytes]], where: str) -> dict[bytes, int]:
    tokens: dict[bytes, int] = {}
    for i, token in found:
        if not token or token in tokens:
            raise ModelFormatError(f"{where} has a token {'that is empty' if not token else 'twice'}: {token[:60]!r}")
        tokens[token] = i
    missing = next((b for b in range(256) if bytes([b]) not in tokens), None)
    if missing is not None:
        raise ModelFormatError(f"{where} has no token for the byte 0x{missing:02x}: texts that have it cannot be read")
    if len(set(tokens.values())) < len(tokens):
        raise ModelFormatError(f"{where} has an id twice")
    return tokens


def tokenizer_json(tokens: Mapping[bytes, int], added: Sequence[Json], unknown: str, where: str) -> Json:
    """The content of tokenizer.json. `added`: tokens that are recognised wherever their text stands, of which `unknown`
    is one; no text needs it."""
    ids = {_spelled(token): i for token, i in tokens.items()}
    for token in added:
        if ids.setdefault(token["content"], token["id"]) != token["id"]:
            raise ModelFormatError(f"{where} has two ids for the token {token['content'][:60]!r}")
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    cut = {"type": "Split", "pattern": {"Regex": _together(tokens)}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [letters, cut]}, "post_processor": None,
        "decoder": letters,
        "model": {
            "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "",
            "max_input_chars_per_word": 1 << 30, "vocab": ids,
        },
    }  # fmt: skip


def _spelled(token: bytes) -> str:
    return "".join(LETTERS[b] for b in token)


def _together(tokens: Iterable[bytes]) -> str:
    """The pattern of as many letters as tokens could join."""
    behind: dict[int, set[int]] = {}
    for token in tokens:
        for a, b in pairwise(token):
            behind.setdefault(a, set()).add(b)
    alike: dict[frozenset[int], list[int]] = {}
    for a, others in behind.items():
        alike.setdefault(frozenset(others), []).append(a)
    steps = "|".join(f"{_one_of(first)}(?={_one_of(second)})" for second, first in alike.items())
    return f"(?:{steps})*." if steps else "."


def _one_of(values: Iterable[int]) -> str:
    return "[" + "".join(re.sub(r"[\\\[\]^-]", r"\\\g<0>", LETTERS[b]) for b in sorted(values)) + "]"


# -- long words --------------------------------------------------------------------------------------------------------
_PART = 512  # letters of a word that are searched at a time


def for_long_words(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A tokenizer of the same ids that takes a time in proportion to a word's letters: the library tries all ends of a
    word for each of its tokens. `backend` itself where that limits words, or marks what goes on within one. The other
    cannot be saved."""
    model = backend.model
    if not isinstance(model, models.WordPiece) or model.continuing_subword_prefix:
        return backend
    if model.max_input_chars_per_word <= _PART:
        return backend
    copy = tokenizers.Tokenizer.from_str(backend.to_str())
    before = [copy.pre_tokenizer] if copy.pre_tokenizer else []
    copy.pre_tokenizer = InOrder([*before, PreTokenizer.custom(_Parts(copy.get_vocab(with_added_tokens=False)))])
    return copy


class _Parts:
    """Cuts long words where a token ends."""

    def __init__(self, ids: Mapping[str, int]):
        self._ids, self._longest = ids, max(map(len, ids), default=0)

    def pre_tokenize(self, text: tokenizers.PreTokenizedString) -> None:
        text.split(self._parts)

    def _parts(self, _: int, word: tokenizers.NormalizedString) -> list[tokenizers.NormalizedString]:
        letters, ends = str(word), [0]
        while (end := ends[-1]) < len(letters):
            while end < min(len(letters), ends[-1] + _PART):
                if not (token := self._token(letters, end)):
                    return [word]  # unknown as a whole
                end += token
            ends.append(end)
        return [part for a, b in pairwise(ends) if (part := word[a:b]) is not None]

    def _token(self, letters: str, at: int) -> int:
        """The length of the longest at a place; 0 where none is there."""
        most = min(self._longest, len(letters) - at)
        return next((n for n in range(most, 0, -1) if letters[at : at + n] in self._ids), 0)
