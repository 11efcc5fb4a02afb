"""Answers as OpenAI's protocol has them: whole ones, and the chunks of streams."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import tinyweb
from tinyweb.api.generation import ChosenToken, Piece, TokenChance

Json = dict[str, Any]


def event(content: Json | str) -> bytes:
    """One of a stream of events (text/event-stream)."""
    data = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return f"data: {data}\n\n".encode()


def usage(prompt: int, produced: int | None) -> Json:
    """What a request took, in tokens."""
    found = {"prompt_tokens": prompt, "total_tokens": prompt + (produced or 0)}
    return found if produced is None else {**found, "completion_tokens": produced}


class Answer:
    """The JSON of one request's answers; `kind`: "chat" or "completion"."""

    def __init__(self, kind: str, model: str, chances: int | None, with_usage: bool):
        self.chat, self.chances, self.with_usage = kind == "chat", chances, with_usage
        prefix, name = ("chatcmpl-", "chat.completion") if self.chat else ("cmpl-", "text_completion")
        self.head: Json = {
            "id": prefix + secrets.token_hex(12),
            "object": name,
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"tinyweb-{tinyweb.__version__}",
        }

    def whole(self, answers: Sequence[Sequence[Piece]], prompt: int) -> Json:
        """All answers at once, each of its pieces; `prompt`: tokens read."""
        choices = []
        for index, pieces in enumerate(answers):
            text, tokens = "".join(p.text for p in pieces), [t for p in pieces for t in p.tokens]
            said = {"message": {"role": "assistant", "content": text, "refusal": None}} if self.chat else {"text": text}
            choices.append(self._choice(index, said, tokens, pieces[-1].finish))
        produced = sum(pieces[-1].produced for pieces in answers)
        return {**self.head, "choices": choices, "usage": usage(prompt, produced)}

    def begin(self, index: int) -> Json | None:
        """The first chunk of an answer, where the protocol has one."""
        return (
            self._chunk(self._choice(index, {"delta": {"role": "assistant", "content": ""}}, (), None))
            if self.chat
            else None
        )

    def chunks(self, index: int, piece: Piece) -> Iterable[Json]:
        """Those that a piece becomes."""
        if self.chat and (piece.text or piece.tokens):
            yield self._chunk(self._choice(index, {"delta": {"content": piece.text}}, piece.tokens, None))
        if self.chat and piece.finish:
            yield self._chunk(self._choice(index, {"delta": {}}, (), piece.finish))
        if not self.chat and (piece.text or piece.tokens or piece.finish):
            yield self._chunk(self._choice(index, {"text": piece.text}, piece.tokens, piece.finish))

    def end(self, prompt: int, produced: int) -> Json:
        """The chunk with the usage, of those who asked for it."""
        return {**self._chunk(), "usage": usage(prompt, produced)}

    def _chunk(self, *choices: Json) -> Json:
        name = self.head["object"] + (".chunk" if self.chat else "")
        found = {**self.head, "object": name, "choices": list(choices)}
        return {**found, "usage": None} if self.with_usage else found

    def _choice(self, index: int, said: Json, tokens: Sequence[ChosenToken], finish: str | None) -> Json:
        told = None
        if self.chances is not None and (tokens or finish):
            told = _chat_logprobs(tokens) if self.chat else _completion_logprobs(tokens, self.chances)
        return {"index": index, **said, "logprobs": told, "finish_reason": finish}


def _chat_logprobs(tokens: Sequence[ChosenToken]) -> Json:
    content = [{**_chance(t.chance), "top_logprobs": [_chance(o) for o in t.others]} for t in tokens]
    return {"content": content, "refusal": None}


def _chance(chance: TokenChance) -> Json:
    return {"token": chance.text, "logprob": chance.logprob, "bytes": list(chance.text.encode())}


def _completion_logprobs(tokens: Sequence[ChosenToken], count: int) -> Json:
    return {
        "tokens": [t.chance.text for t in tokens],
        "token_logprobs": [t.chance.logprob for t in tokens],
        "top_logprobs": [{o.text: o.logprob for o in t.others} for t in tokens] if count else None,
        "text_offset": [t.offset for t in tokens],
    }


def embeddings(model: str, vectors: npt.NDArray[np.float32], tokens: int, encoded: bool) -> Json:
    """Vectors (texts, dimensions); `encoded`: as the base64 of float32, the lowest byte first."""
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": base64.b64encode(v.astype("<f4").tobytes()).decode() if encoded else [float(x) for x in v],
        }
        for i, v in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": model, "usage": usage(tokens, None)}
