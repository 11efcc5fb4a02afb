"""A model's tokenizer: text to token ids and back, chat messages to a prompt, and the ids at which an answer ends."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from tinyweb.errors import ModelFormatError
from tinyweb.formats.chat_template import MAX_TEMPLATE, ChatTemplate
from tinyweb.formats.control_tokens import MAX_ID, ControlTokens, guarded_backend, quiet, understood
from tinyweb.formats.huggingface import Config, ModelFolder, parse_json, read_text
from tinyweb.formats.longest_match import END, VOCABULARY, for_long_words, hub_vocabulary, tokenizer_json
from tinyweb.formats.source import open_model

MAX_GROWTH = 256  # of a text by what a tokenizer replaces in it
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class Tokenizer:
    """`tokenizer.json` with what belongs to it.

    Attributes: `eos`: ids that end an answer; `bos`: id that begins a text, or None; `vocab_size`: number of ids, added
    tokens included; `template`: the chat template, or None of a base model, whose prompt is a text that it continues;
    `begin`: ids that such a text begins with.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, bos: int | None, eos: tuple[int, ...], template: ChatTemplate | None,
        begin: Sequence[int] = (),
    ):  # fmt: skip
        self.backend, self.bos, self.eos, self.template, self.begin = backend, bos, eos, template, tuple(begin)
        self._reads = for_long_words(backend)
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)

    @classmethod
    def from_folder(cls, source: str | Path | ModelFolder, template: Path | None = None) -> Tokenizer:
        """Reads tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json and config.json of a
        folder, or what a GGUF file has of these. `template`: a file (Jinja2) in place of their chat template.

        Raises ModelFormatError naming the file that is missing or damaged.
        """
        folder = source if isinstance(source, ModelFolder) else open_model(source)
        backend = read_backend(folder)
        config = folder.read_config("tokenizer_config.json", required=False)
        tokens = {name: text for name in SPECIAL_TOKENS if (text := _token_text(config.values.get(name))) is not None}
        generation = folder.read_config("generation_config.json", required=False)
        eos = generation.ids("eos_token_id") or folder.config.ids("eos_token_id")
        with understood(config.where):
            bos, named = (backend.token_to_id(tokens[n]) if n in tokens else None for n in ("bos_token", "eos_token"))
        if named is not None and named not in eos:
            eos = (*eos, named)
        if not eos:
            raise ModelFormatError(f"{folder.path} names no end token: add 'eos_token_id' to generation_config.json")
        if template is None:
            chat = _template(folder, config, tokens)
        else:
            chat = ChatTemplate(_given_template(template), str(template), tokens)
        return cls(backend, bos, eos, chat, _beginning(backend, config, bos))

    @property
    def completes(self) -> bool:
        """Whether the model continues a text, as base models do, rather than answers messages."""
        return self.template is None

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens written in it are recognised, none are added."""
        with understood():
            return list(self._reads.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out. Bytes that are no UTF-8 become U+FFFD."""
        with understood():
            return str(self.backend.decode(list(ids), skip_special_tokens=True))

    def token_text(self, token: int) -> str:
        """Text of a token inside of a text, a special one's name; half a character is U+FFFD."""
        with understood():
            once, twice = (self.backend.decode([token] * n, skip_special_tokens=False) for n in (1, 2))
        return str(twice[len(once) :])

    def render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt's text for messages {"role": "system" | "user" | "assistant", "content": text}."""
        if self.template is None:
            raise ModelFormatError("the model folder has no chat template: it is a base model, which continues texts")
        return self.template.render(messages, add_generation_prompt)

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation up to where the assistant is to go on. Control tokens are those that the template
        writes: what looks like one in a message stays text. Of a base model the messages are pieces of one text.
        """
        control, backend = self._guarded
        guarded = [{key: control.guard(value) for key, value in message.items()} for message in messages]
        if self.template is None:
            begin, text = self.begin, "".join(message["content"] for message in guarded)
        else:
            begin, text = (), self.render(guarded)
        with understood():
            return [*begin, *backend.encode(text, add_special_tokens=False).ids]

    @cached_property
    def _guarded(self) -> tuple[ControlTokens, tokenizers.Tokenizer]:
        control, backend = guarded_backend(self.backend)
        return control, for_long_words(backend)


class TextStream:
    """Token ids in, pieces of text out. A piece is given out once it can no longer change: half a character is held
    back.
    """

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int] = ()):
        """`after`: ids that the text follows, where it continues one."""
        self._tokenizer = tokenizer
        # ids whose text is out already; decoders look back (spaces between words)
        self._context: list[int] = list(after)
        self._waiting: list[int] = []

    def push(self, token: int) -> str:
        """The text that becomes final with `token`; often empty."""
        self._waiting.append(token)
        piece = self._text()
        if piece.endswith("\ufffd") and len(self._waiting) < 16:
            return ""
        if piece:
            self._context, self._waiting = self._waiting, []
        return piece

    def finish(self) -> str:
        """What was held back; incomplete characters as U+FFFD."""
        piece = self._text()
        self._context, self._waiting = [], []
        return piece

    def _text(self) -> str:
        before = self._tokenizer.decode(self._context)
        return self._tokenizer.decode(self._context + self._waiting)[len(before) :]


def load_backend(path: Path) -> tokenizers.Tokenizer:
    """A tokenizer.json of any kind of model; ModelFormatError where it is missing, damaged or unknown."""
    return _backend(read_text(path), path)


def read_backend(folder: ModelFolder) -> tokenizers.Tokenizer:
    """The tokenizer.json of a model, or what a GGUF file has in its place."""
    return _backend(tokenizer_text(folder), folder.path / "tokenizer.json")


def tokenizer_text(folder: ModelFolder) -> str:
    """The tokenizer.json of a model, or what is made of the list of tokens that a model of RWKV has in its place."""
    text, tokens = folder.text("tokenizer.json"), None
    if text is None and (tokens := folder.text(VOCABULARY)) is not None:
        where = str(folder.path / VOCABULARY)
        added = _added_tokens(folder.read_config("tokenizer_config.json", required=False))
        return json.dumps(tokenizer_json(hub_vocabulary(tokens, where), added, added[0]["content"], where))
    return text or folder.text("tokenizer.json", required=True) or ""


def _added_tokens(config: Config) -> list[dict[str, Any]]:
    """Those that tokenizer_config.json adds to a list without them; the one of the id 0 first."""
    given = config.values.get("added_tokens_decoder")
    texts = {i: _token_text(token) for i, token in given.items()} if isinstance(given, dict) else {}
    tokens = {int(i): text for i, text in texts.items() if text and i.isdecimal() and len(i) < 10}
    tokens.setdefault(0, END)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [{"id": i, "content": text, **flags, "special": True} for i, text in sorted(tokens.items())]


def filled_with(folder: ModelFolder) -> int | None:
    """The token that a tokenizer.json says texts are filled with; None where it does not."""
    padding = parse_json(folder.text("tokenizer.json") or "{}", str(folder.path / "tokenizer.json")).get("padding")
    found = padding.get("pad_id") if isinstance(padding, dict) else None
    return found if type(found) is int else None


def _backend(text: str, path: Path) -> tokenizers.Tokenizer:
    content = parse_json(text, str(path))
    _check_ids(content, path)  # with clear messages
    for part in ("normalizer", "decoder"):
        if _growth(content.get(part), path) > MAX_GROWTH:
            raise ModelFormatError(
                f"{path}: its {part!r} makes texts more than {MAX_GROWTH} times as long, which could take all memory; "
                "refused"
            )
    with understood(path), quiet:
        backend = tokenizers.Tokenizer.from_str(text)
    # of training: a text is neither cut nor filled up, which could take all memory
    backend.no_padding()
    backend.no_truncation()
    return backend


def _growth(part: Any, path: Path) -> float:
    """How many times as long a text can become by a normalizer or a decoder that replaces what it finds."""
    if not isinstance(part, dict):
        return 1
    inner = part.get("normalizers", part.get("decoders"))
    if isinstance(inner, list):
        return math.prod(_growth(one, path) for one in inner)
    pattern, content = part.get("pattern"), part.get("content")
    if part.get("type") != "Replace" or not isinstance(pattern, dict) or not isinstance(content, str):
        return 1
    found = pattern.get("String")
    if found == "":
        raise ModelFormatError(
            f"{path} replaces an empty text, which is everywhere; the file is damaged, download it again"
        )
    return max(1, len(content) / len(found) if isinstance(found, str) else 1 + len(content))


def _check_ids(content: dict[str, Any], path: Path) -> None:
    """The library makes room for as many tokens as the largest id says."""
    model, added = content.get("model"), content.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids += [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    largest = max((i for i in ids if type(i) is int), default=0)
    if largest > MAX_ID:
        raise ModelFormatError(f"{path} has a token with the id {largest}, beyond the limit of {MAX_ID}; refused")


def _token_text(value: Any) -> str | None:
    """A special token as tokenizer_config.json has it: a string, or an object with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _beginning(backend: tokenizers.Tokenizer, config: Config, bos: int | None) -> list[int]:
    """Ids that a text of a base model begins with: as tokenizer_config.json says, else as tokenizer.json does it."""
    if isinstance(said := config.values.get("add_bos_token"), bool):
        return [bos] if said and bos is not None else []
    with understood(), quiet:
        plain, whole = (backend.encode("a", add_special_tokens=special).ids for special in (False, True))
    starts = (i for i in range(len(whole) - len(plain) + 1) if whole[i : i + len(plain)] == plain)
    return list(whole[: next(starts, 0)])


def _given_template(path: Path) -> str:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ModelFormatError(f"{path} {what}: give a file with a chat template (Jinja2)")
    return read_text(path, 4 * MAX_TEMPLATE)


def _template(folder: ModelFolder, config: Config, tokens: dict[str, str]) -> ChatTemplate | None:
    if (text := folder.text("chat_template.jinja", limit=4 * MAX_TEMPLATE)) is not None:
        return ChatTemplate(text, str(folder.path / "chat_template.jinja"), tokens)
    value = config.values.get("chat_template")
    if isinstance(value, list):  # several, by name
        named = [v.get("template") for v in value if isinstance(v, dict) and v.get("name") == "default"]
        value = named[0] if named else None
    if value is None:
        return None
    if not isinstance(value, str):
        raise ModelFormatError(f"{config.where}: 'chat_template' must be a string, found {type(value).__name__}")
    return ChatTemplate(value, config.where, tokens)
