"""Which messages of a long conversation a model still sees: the rule of the web runtime (web/runtime/src/fit.ts)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from tinyweb.errors import TinywebError

Messages: TypeAlias = Sequence[Mapping[str, str]]
MIN_ANSWER = 16  # tokens; a prompt that leaves less room is too long
PIECE = 160  # characters, about


@dataclass(frozen=True)
class Fitted:
    """A prompt's ids, and how many of the oldest messages were left out for it."""

    ids: list[int]
    dropped: int


def pieces(text: str) -> list[dict[str, str]]:
    """The messages of a text that a base model is to continue: what joined gives the text again, cut before spaces and
    lines, so that the oldest of what is too long can be left out."""
    parts: list[str] = []
    start = 0
    while start < len(text):
        last = min(start + 2 * PIECE, len(text))
        end = next((i for i in range(start + PIECE, last) if text[i].isspace()), last)
        parts.append(text[start:end])
        start = end
    return [{"role": "user", "content": part} for part in parts or [""]]


def fit_messages(messages: Messages, context: int, max_tokens: int, encode: Callable[[Messages], list[int]]) -> Fitted:
    """Drops the oldest turns until the prompt leaves room for the answer.

    System messages at the start and the last message always stay. Room for the answer is `max_tokens`, but no more than
    half of the context; when only the messages that must stay are left, a shorter answer is accepted.

    A template may look at all messages, so only whole prompts are counted: that of all messages first, then, from where
    lengths of the messages say that the kept part begins, others until one fits and the one with a turn more does not.

    Raises TinywebError when even what must stay does not fit; it says which of it is too long, and by how much.
    """
    first = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    reserve = min(max_tokens, context // 2)
    end = len(messages) - 1
    # where the kept part may begin: the first message, every question after it, and the last message
    starts = [first, *(i for i in range(first + 1, end + 1) if messages[i]["role"] == "user" or i == end)]

    def prompt(turn: int) -> list[int]:
        return encode([*messages[:first], *messages[starts[turn] :]])

    whole = prompt(0)
    if len(whole) + reserve <= context:
        return Fitted(whole, 0)
    # the prompt from `low` does not fit; the one from `high` does, or must do, or was refused by the template
    low, high = 0, len(starts) - 1
    found: list[int] | None = None
    refusal: TinywebError | None = None
    turn, step, halving, before = _guess(messages, starts, len(whole), context - reserve), 1, False, None
    while high - low > 1:
        # away from the guess in growing steps until the border is passed, then halving
        turn = (low + high) // 2 if halving else min(max(turn, low + 1), high - 1)
        try:
            ids = prompt(turn)
            enough = len(ids) + reserve <= context
            if enough:
                found, refusal = ids, None
        except TinywebError as error:
            # no reason to leave out more: the rule comes here only if nothing longer fits
            enough, refusal = True, error
        low, high = (low, turn) if enough else (turn, high)
        halving = halving or before is (not enough)
        before = enough
        turn += -step if enough else step
        step *= 2
    if refusal:
        raise refusal
    if found is None:
        found = whole if high == 0 else prompt(high)
        least = min(reserve, MIN_ANSWER)
        if len(found) + least > context:
            raise _too_long(messages[:first], messages[max(first, end) :], len(found), context, least, encode)
    return Fitted(found, starts[high] - first)


def _guess(messages: Messages, starts: Sequence[int], tokens: int, room: int) -> int:
    """The turn from which a prompt takes about `room` tokens, if these are spread over the letters of all messages."""
    letters = [0, *accumulate(len(m["content"]) for m in messages)]
    spare = letters[-1] * (1 - room / tokens)
    return next((turn for turn, start in enumerate(starts) if letters[start] >= spare), len(starts))


def _too_long(
    head: Messages, last: Messages, total: int, context: int, least: int, encode: Callable[[Messages], list[int]]
) -> TinywebError:
    """Says which of what must stay is too long, and by how much."""

    def silent(part: Messages) -> Messages:
        return [{**m, "content": ""} for m in part]

    # what goes if they say nothing
    system = total - len(encode([*silent(head), *last])) if head else 0
    message = total - len(encode([*head, *silent(last)])) if last else 0
    excess = total + least - context
    if not last or (system >= excess > message):
        what, it = "The system prompt is", "it"
    elif not head or (message >= excess > system):
        what, it = "The message is", "it"
    else:
        what, it = "The system prompt and the message together are", "them"
    shares = ([f"{system} the system prompt"] if head else []) + ([f"{message} the message"] if last else [])
    return TinywebError(
        f"{what} too long by {excess} tokens: the prompt takes {total} ({', '.join(shares)}), and this model reads at "
        f"most {context} including its answer, for which {least} are kept: shorten {it}, or choose a larger --context."
    )
