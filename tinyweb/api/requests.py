"""What is asked for: the fields of OpenAI's requests, checked. What cannot be followed is refused, never ignored."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinyweb.api.errors import ApiError, unsupported, wrong
from tinyweb.api.fields import Fields, text
from tinyweb.models.chat import Settings

MESSAGES, PROMPTS, TEXTS = 4096, 64, 2048  # of one request at most
CHOICES = 64  # answers to one request, of all prompts
STOPS, STOP_LENGTH = 16, 512  # texts, and characters of each
CHANCES = {"chat": 20, "completion": 5}
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
# fields that would change the answer, and the values that do not
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],), "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},), "logit_bias": ({},), "frequency_penalty": (0,), "presence_penalty": (0,),
    "modalities": (["text"],), "audio": (), "prediction": (), "web_search_options": (), "echo": (False,),
    "suffix": ("",),
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What chat and completion requests have in common. `max_tokens`: None: as many as fit."""

    settings: Settings
    max_tokens: int | None
    count: int
    stops: tuple[str, ...]
    chances: int | None
    stream: bool
    usage: bool  # whether a stream ends with the usage


def asked(fields: Fields, defaults: Settings, kind: str) -> Asked:
    """The settings of a request; what it does not say, the model's folder does."""
    for name, neutral in NEUTRAL.items():
        value = fields.get(name)
        if value is not None and not any(
            value == n and isinstance(value, bool) == isinstance(n, bool) for n in neutral
        ):
            raise unsupported(name, "is not supported by this server: leave it out")
    count = fields.integer("n", 1, CHOICES, 1) or 1
    best_of = fields.integer("best_of", 1, CHOICES, None)
    if best_of not in (None, count):
        raise unsupported("best_of", "is not supported by this server, unless it is 'n'")
    seed = fields.integer("seed", -(2**63), 2**63 - 1, None)
    top_k = fields.integer("top_k", 0, 2**31 - 1, defaults.top_k)
    settings = replace(
        defaults,
        temperature=fields.number("temperature", 0, 2, defaults.temperature),
        top_p=fields.number("top_p", 0, 1, defaults.top_p),
        top_k=defaults.top_k if top_k is None else top_k,
        repetition_penalty=fields.number("repetition_penalty", 0.01, 100, defaults.repetition_penalty),
        seed=secrets.randbits(31) if seed is None else seed,
    )
    stream = fields.flag("stream")
    options = fields.inner("stream_options")
    if fields.get("stream_options") is not None and not stream:
        raise wrong("stream_options", "needs 'stream': true")
    usual = 16 if kind == "completion" else None
    most = fields.integer("max_tokens", 1, 2**31 - 1, usual)
    most = fields.integer("max_completion_tokens", 1, 2**31 - 1, most)
    return Asked(
        settings, most, count, _stops(fields.get("stop")), _chances(fields, kind), stream, options.flag("include_usage")
    )


def _stops(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or len(given) > STOPS:
        raise wrong("stop", f"must be a string, or an array of at most {STOPS}")
    found = tuple(text(s, "stop") for s in given)
    if any(not 1 <= len(s) <= STOP_LENGTH for s in found):
        raise wrong("stop", f"must have 1 to {STOP_LENGTH} characters in each string")
    return found


def _chances(fields: Fields, kind: str) -> int | None:
    if kind == "completion":
        return fields.integer("logprobs", 0, CHANCES[kind], None)
    wanted = fields.flag("logprobs")
    most = fields.integer("top_logprobs", 0, CHANCES[kind], None)
    if most is not None and not wanted:
        raise wrong("top_logprobs", "needs 'logprobs': true")
    return (most or 0) if wanted else None


def messages(fields: Fields) -> list[dict[str, str]]:
    """The conversation of a chat request."""
    given = fields.need("messages")
    if not isinstance(given, list) or not 1 <= len(given) <= MESSAGES:
        raise wrong("messages", f"must be an array of 1 to {MESSAGES} messages")
    return [_message(m, f"messages[{i}]") for i, m in enumerate(given)]


def _message(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise wrong(where, "must be an object with a role and content")
    fields = Fields(value, where)
    role = fields.need("role")
    if not isinstance(role, str) or role not in ROLES:
        raise wrong(fields.path("role"), f"must be one of {', '.join(ROLES)}")
    for name in ("tool_calls", "function_call", "audio"):
        if fields.get(name):
            raise unsupported(fields.path(name), "is not supported by this server")
    content = fields.need("content")
    if isinstance(content, list):
        content = "".join(_part(p, f"{where}.content[{i}]") for i, p in enumerate(content))
    return {"role": ROLES[role], "content": text(content, fields.path("content"))}


def _part(value: Any, where: str) -> str:
    if not isinstance(value, dict) or "type" not in value:
        raise wrong(where, "must be an object with a type")
    if value["type"] != "text":
        raise unsupported(where, "is no text: this server reads texts only")
    return text(value.get("text"), f"{where}.text")


def prompts(fields: Fields, vocabulary: int) -> list[str | list[int]]:
    """Those of a completion request: texts, or token ids."""
    given = fields.need("prompt")
    if isinstance(given, str) or (isinstance(given, list) and given and all(type(t) is int for t in given)):
        given = [given]
    if not isinstance(given, list) or not 1 <= len(given) <= PROMPTS:
        raise wrong("prompt", f"must be a string, an array of token ids, or an array of 1 to {PROMPTS} of these")
    return [_prompt(p, "prompt" if len(given) == 1 else f"prompt[{i}]", vocabulary) for i, p in enumerate(given)]


def _prompt(value: Any, where: str, vocabulary: int) -> str | list[int]:
    if not isinstance(value, list):
        return text(value, where)
    if not value or not all(type(t) is int and 0 <= t < vocabulary for t in value):
        raise wrong(where, f"must have token ids from 0 to {vocabulary - 1}")
    return list(value)


@dataclass(frozen=True)
class EmbeddingsAsked:
    """Texts of which vectors are asked for. `kind`: what they are, of a model that tells queries from passages."""

    texts: list[str]
    base64: bool
    kind: str


def embeddings(fields: Fields, dimensions: int) -> EmbeddingsAsked:
    """An embeddings request to a model whose vectors have so many numbers."""
    given = fields.need("input")
    given = [given] if isinstance(given, str) else given
    if not isinstance(given, list) or not 1 <= len(given) <= TEXTS:
        raise wrong("input", f"must be a string, or an array of 1 to {TEXTS} strings")
    if any(type(t) is int or isinstance(t, list) for t in given):
        raise unsupported("input", "has token ids: this server reads texts only")
    texts = [text(t, "input" if len(given) == 1 else f"input[{i}]") for i, t in enumerate(given)]
    if not all(texts):
        raise wrong("input", "must have no empty string")
    wanted = fields.integer("dimensions", 1, 2**31 - 1, dimensions)
    if wanted != dimensions:
        raise unsupported("dimensions", f"cannot be {wanted}: vectors of this model have {dimensions}")
    form = fields.choice("encoding_format", ("float", "base64"), "float")
    return EmbeddingsAsked(texts, form == "base64", fields.choice("input_type", ("query", "passage"), "passage"))


def check_count(answers: int) -> None:
    """ApiError for more answers than one request may ask for."""
    if answers > CHOICES:
        raise wrong("n", f"for each prompt makes {answers} answers: one request may have {CHOICES}")


def check_length(prompt: Sequence[int], context: int, where: str) -> None:
    """ApiError for a prompt that is empty, or that leaves no room for a token more."""
    if not prompt:
        raise wrong(where, "is empty")
    if len(prompt) > context:
        said = (
            f"This model's context is {context} tokens, and '{where}' has {len(prompt)}: shorten it, or start the "
            "server with a larger --context"
        )
        raise ApiError(400, said, where, "context_length_exceeded")
