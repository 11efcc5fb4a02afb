"""RWKV's tokenizer, always the longest of a list of byte strings: from the hub's list and from GGUF files, in Python
and in the page."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from tests.formats.gguf.test_page import SCRIPT
from tests.formats.gguf.test_tokenizer import CONTROL, NORMAL, TEXTS, UNUSED, model
from tinyweb.errors import ModelFormatError
from tinyweb.formats.longest_match import END, LETTERS, VOCABULARY
from tinyweb.formats.source import open_model
from tinyweb.formats.tokenizer import Tokenizer, tokenizer_text

WORDS = [
    "\n\n",
    " the",
    " they",
    "they",
    "eyes",
    "th",
    "the ",
    "]^-[\\&&~|{}()/",
    "日本",
    "語の",
    "é",
    "é🦊",
    "'\"",
    "    ",
]


def vocabulary() -> dict[bytes, int]:
    """All bytes; words; parts of letters; and joined bits of all of them, so that tokens overlap in every way."""
    random = np.random.default_rng(0)
    found = {bytes([b]): b + 1 for b in range(256)}
    parts = [w.encode() for w in WORDS] + [" ".join(TEXTS).encode()[i : i + 3] for i in range(0, 200, 2)]
    joined = [b"".join(parts[j] for j in random.integers(len(parts), size=2)) for _ in range(300)]
    for token in (*parts, *joined, b"a" * 7, b"=" * 16, b" " * 32):
        found.setdefault(token, len(found) + 1)
    return found


TOKENS = vocabulary()
LONG = ["a" * 40_001, "日" * 5_000, "é🦊=" * 3_000]  # the library alone would take minutes


def longest(text: str) -> list[int]:
    """By the definition."""
    data, ids, at = text.encode(), [], 0
    while at < len(data):
        end = next(e for e in range(min(len(data), at + 40), at, -1) if data[at:e] in TOKENS)
        ids.append(TOKENS[data[at:end]])
        at = end
    return ids


def listed(tokens: dict[bytes, int]) -> str:
    """As the hub's file has them: texts where the bytes are one, bytes otherwise."""

    def written(token: bytes) -> str:
        try:
            return repr(token.decode())
        except UnicodeDecodeError:
            return repr(token)

    return "".join(f"{i} {written(token)} {len(token)}\n" for token, i in tokens.items())


@pytest.fixture
def folder(tmp_path: Path, model_folder: Path) -> Path:
    shutil.copytree(model_folder, tmp_path / "model", ignore=shutil.ignore_patterns("tokenizer*", "*.safetensors"))
    (tmp_path / "model" / VOCABULARY).write_text(listed(TOKENS), "utf-8")
    return tmp_path / "model"


def texts() -> list[str]:
    random, parts = np.random.default_rng(1), list(TOKENS)
    mixed = [b"".join(parts[i] for i in random.integers(len(parts), size=30)) for _ in range(100)]
    return [*TEXTS, *(m.decode(errors="ignore") for m in mixed), "a" * 100, "=" * 40 + " " * 70]


def test_the_list_of_the_hub(folder: Path) -> None:
    ours = Tokenizer.from_folder(folder)
    assert ours.backend.token_to_id(END) == 0
    for text in [*texts(), *LONG]:
        assert ours.encode(text) == longest(text), text[:99]
        assert ours.decode(longest(text)) == text


def test_added_tokens(folder: Path) -> None:
    own = {
        "added_tokens_decoder": {"0": {"content": "<|end|>"}, "900": {"content": "<|think|>"}},
        "eos_token": "<|end|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
    ours = Tokenizer.from_folder(folder)
    assert ours.encode("the <|think|>the<|end|>") == [*longest("the "), 900, *longest("the"), 0]
    assert 0 in ours.eos


def test_a_gguf_file_and_the_page(folder: Path, tmp_path: Path) -> None:
    written = ["<s>", *(repr(token)[2:-1] for token in TOKENS), "[PAD]"]
    types = [CONTROL, *[NORMAL] * len(TOKENS), UNUSED]
    found = model(
        tmp_path / "m", "rwkv", written, types, eos_token_id=0, eot_token_id=TOKENS[b"\n\n"], template="rwkv-world"
    )
    ours = Tokenizer.from_folder(found)
    assert ours.eos == (0, TOKENS[b"\n\n"])
    for text in texts():
        assert ours.encode(text) == longest(text) or "<s>" in text, text
    said = [
        {"role": "user", "content": " Hi "},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "?"},
    ]
    assert ours.render(said) == "User: Hi\n\nAssistant: Ho\n\nUser: ?\n\nAssistant:"
    asked = []
    for files in (open_model(folder), found):
        config = json.loads(files.text("tokenizer_config.json") or "{}") | {"clean_up_tokenization_spaces": False}
        asked.append({"json": json.loads(tokenizer_text(files)), "config": config, "texts": texts()})
    done = subprocess.run(["node", SCRIPT], input=json.dumps(asked), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    hub, gguf = json.loads(done.stdout)
    for text, (ids, decoded), (others, _) in zip(texts(), hub, gguf, strict=True):
        assert (ids, decoded) == (longest(text), text)
        assert others == ids or "<s>" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.replace("1 '\\x00' 1\n", ""), "has no token for the byte 0x00"),
        (
            lambda s: s + "999 'the' 4\n",
            "must be an id, a token in quotes and its length in bytes, found \"999 'the' 4\"",
        ),
        (lambda s: s + "999 __import__('os') 3\n", "must be an id, a token in quotes"),
        (lambda s: s + "999 'a' + 'b' 2\n", "must be an id, a token in quotes"),
        (lambda s: s + "999 '\\N{no such}' 2\n", "must be an id, a token in quotes"),
        (lambda s: s + "999 'they' 4\n", "has a token twice: b'they'"),
        (lambda s: s + "7 'xyzzy' 5\n", "has an id twice"),
        (lambda s: s + "9 '' 0\n", "has a token that is empty"),
        (lambda s: s + "999999999 'xyzzy' 5\n", "beyond the limit of"),
        (lambda s: "", "line 1: must be an id"),
    ],
)
def test_damaged_lists(folder: Path, change: Callable[[str], str], message: str) -> None:
    path = folder / VOCABULARY
    path.write_text(change(path.read_text("utf-8")), "utf-8")
    with pytest.raises(ModelFormatError, match=message):
        Tokenizer.from_folder(folder)


@pytest.mark.parametrize(
    ("token", "message"),
    [("\\q", "has a backslash that no byte can be read of"), ("\\xg0", "has a backslash"), ("they", "token twice")],
)
def test_damaged_tokens_of_gguf_files(token: str, message: str, tmp_path: Path) -> None:
    written = ["<s>", *(repr(t)[2:-1] for t in TOKENS), token]
    types = [CONTROL, *[NORMAL] * (len(written) - 1)]
    with pytest.raises(ModelFormatError, match=message):
        Tokenizer.from_folder(model(tmp_path / "m", "rwkv", written, types, eos_token_id=0))
    with pytest.raises(ModelFormatError, match="must say which token ends a text"):
        Tokenizer.from_folder(model(tmp_path / "n", "rwkv", written[1:-1], types[1:-1]))


def test_letters_are_those_of_byte_level_tokenizers() -> None:
    assert sorted(LETTERS) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    cut = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    every = "".join(map(chr, range(1, 0x2000)))
    assert cut.pre_tokenize_str(every)[0][0] == "".join(LETTERS[b] for b in every.encode())
