"""Which messages of a long conversation a model still sees: the rule of the web runtime (web/runtime/src/fit.ts)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tinyweb.errors import TinywebError

Messages: TypeAlias = Sequence[Mapping[str, str]]
MIN_ANSWER = 16  # tokens; a prompt that leaves less room is too long


@dataclass(frozen=True)
class Fitted:
    """A prompt's ids, and how many of the oldest messages were left out for it."""

    ids: list[int]
    dropped: int


def fit_messages(messages: Messages, context: int, max_tokens: int, encode: Callable[[Messages], list[int]]) -> Fitted:
    """Drops the oldest turns until the prompt leaves room for the answer.

    System messages at the start and the last message always stay. Room for the answer is `max_tokens`, but no more than
    half of the context; when only the messages that must stay are left, a shorter answer is accepted.

    Raises TinywebError when even those do not fit.
    """
    first = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    reserve = min(max_tokens, context // 2)
    start = first
    while True:
        ids = encode([*messages[:first], *messages[start:]])
        if len(ids) + reserve <= context:
            return Fitted(ids, start - first)
        if start >= len(messages) - 1:
            if len(ids) + min(reserve, MIN_ANSWER) <= context:
                return Fitted(ids, start - first)
            raise TinywebError(
                f"The message is too long: it takes {len(ids)} tokens, and this model reads at most {context} "
                "including its answer: shorten it, or choose a larger --context."
            )
        # a turn ends where the user speaks again
        start += 1
        while start < len(messages) - 1 and messages[start]["role"] != "user":
            start += 1
