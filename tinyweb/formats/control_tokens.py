"""Text that only looks like a control token stays text: who writes a message cannot end a turn, or begin one.

A tokenizer recognises its control tokens wherever their text stands, in what a template writes and in what a user does.
`guard` therefore puts a mark, a character that no text has, into what looks like one, and the tokenizer gets a
normalizer that takes the mark out again after control tokens have been recognised.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tokenizers

from tinyweb.errors import ModelFormatError

MAX_ID = 1 << 24  # of a token; the largest vocabularies have a sixtieth of that
MARK = "\ufdd0"  # a noncharacter: not for interchange (Unicode, 23.7)
_BETWEEN_BARS = re.compile(r"<[|｜].+[|｜]>", re.DOTALL)  # control tokens that some models do not call special


class ControlTokens:
    """Those of a tokenizer: the ones that its tokenizer.json calls special, and what is written as they are, <|…|>.
    A token of one character cannot be told from text.
    """

    def __init__(self, content: Mapping[str, Any]):
        added = content.get("added_tokens") or []
        texts = [
            token["content"] for token in added if token.get("special") or _BETWEEN_BARS.fullmatch(token["content"])
        ]
        self.texts = frozenset(text for text in texts if len(text) > 1)
        self._by_first: dict[str, list[str]] = {}
        for text in sorted(self.texts):
            self._by_first.setdefault(text[0], []).append(text)
        self._first = re.compile(f"[{''.join(map(re.escape, self._by_first))}]") if self.texts else None

    def guard(self, text: str) -> str:
        """`text` with a mark in all that looks like a control token, or at the end like the beginning of one."""
        text = text.replace(MARK, "")
        if self._first is None:
            return text
        return self._first.sub(lambda found: self._marked(text, found.start()), text)

    def _marked(self, text: str, at: int) -> str:
        likely = self._by_first[text[at]]
        same = any(text.startswith(token, at) or token.startswith(text[at : at + len(token)]) for token in likely)
        return text[at] + MARK if same else text[at]

    def guarded(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The tokenizer.json `content` for texts with marks; texts without get the same ids as before."""
        model = dict(content["model"])
        if model.get("type") == "WordLevel":
            return dict(content)  # a word with a mark in it is an unknown one, which is what a look-alike should be
        if "merges" in model:  # no merge makes a control token
            pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
            model["merges"] = [pair for pair in pairs if "".join(pair) not in self.texts]
        elif isinstance(model.get("vocab"), list):  # nor is one more likely than its letters
            least = min(0.0, *(score for _, score in model["vocab"]))
            model["vocab"] = [
                [piece, least * len(piece) - 1 if piece in self.texts else score] for piece, score in model["vocab"]
            ]
        remove = {"type": "Replace", "pattern": {"String": MARK}, "content": ""}
        before = content.get("normalizer")
        normalizer = {"type": "Sequence", "normalizers": [remove, before]} if before else remove
        added = content.get("added_tokens") or []
        added = [{**t, "normalized": False} if t["content"] in self.texts else t for t in added]
        return {**content, "model": model, "normalizer": normalizer, "added_tokens": added}


class _Quiet:
    """While open, what is written to standard error goes nowhere: a panic of the library is written there with its
    stack, before it is an exception here. Threads may have it open side by side; what others write is lost meanwhile,
    so that it is for reading files alone."""

    def __init__(self) -> None:
        self._lock, self._open, self._kept = threading.Lock(), 0, -1

    def __enter__(self) -> None:
        with self._lock:
            self._open += 1
            if self._open > 1:
                return
            with suppress(OSError):  # there is none, or too many files are open
                self._kept = os.dup(2)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 2)
                os.close(nowhere)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._open -= 1
            if self._open or self._kept < 0:
                return
            os.dup2(self._kept, 2)
            os.close(self._kept)
            self._kept = -1


quiet = _Quiet()


@contextmanager
def understood(where: str | Path = "tokenizer.json") -> Iterator[None]:
    """ModelFormatError, which names the file, where the library finds in here that a tokenizer is damaged."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, TypeError, ModelFormatError):
        raise
    except BaseException as e:
        # the library reports damage as a plain Exception, or (a Rust panic) as a BaseException of its own
        raise ModelFormatError(
            f"{where} is no tokenizer this version understands ({str(e)[:200]}): download it again"
        ) from None


def guarded_backend(backend: tokenizers.Tokenizer) -> tuple[ControlTokens, tokenizers.Tokenizer]:
    """The control tokens of `backend`, and a copy of it for texts that they have guarded. ModelFormatError where its
    parts do not fit together."""
    content = json.loads(backend.to_str())
    control = ControlTokens(content)
    with understood(), quiet:
        return control, tokenizers.Tokenizer.from_str(json.dumps(control.guarded(content), ensure_ascii=False))
