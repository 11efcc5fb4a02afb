"""What looks like a control token in somebody's text stays text: tokenizers of all kinds, embedded and made here."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from tests.control.seeds import SEED
from tests.models.encoder_folders import word_pieces
from tinyweb.formats.chat_template import ChatTemplate
from tinyweb.formats.control_tokens import MARK, ControlTokens, guarded_backend
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models.embedding import Embedder
from tinyweb.models.stable_diffusion.prompt import PromptTokenizer

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
FIXTURE = Path(__file__).with_name("control_tokens.json")
"""Ids of texts with look-alikes, for the runtime's tests too; run this file as a module to write it."""
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "[SEP]", "<pad>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
LETTERS = "abcdefghijklmnopqrstuvwxyz<>|/_[]SEP .\n"


def byte_pairs() -> tokenizers.Tokenizer:
    """As GPT-2's and Llama 3's: bytes as characters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({c: i for i, c in enumerate([*alphabet, "ab"])}, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def merged() -> tokenizers.Tokenizer:
    """As Gemma's and Llama 2's: control tokens are in the vocabulary, and here merges lead to one of them."""
    pieces = [*SPECIAL, *"▁" + LETTERS.replace(" ", ""), "<s", "im"]
    merges = [("<", "s"), ("<s", ">"), ("i", "m")]
    backend = tokenizers.Tokenizer(models.BPE({p: i for i, p in enumerate(dict.fromkeys(pieces))}, merges))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return backend


def unigram() -> tokenizers.Tokenizer:
    """As T5's: a control token has the best score of all."""
    pieces = [("<unk>", 0.0), *((s, 0.0) for s in SPECIAL), *((c, -3.0 - i / 9) for i, c in enumerate("▁" + LETTERS))]
    backend = tokenizers.Tokenizer(models.Unigram([p for p in pieces if p[0] != " "], 0, False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Metaspace(prepend_scheme="first")
    return backend


def words() -> tokenizers.Tokenizer:
    vocabulary = {w: i for i, w in enumerate(["?", "hello", "assistant", "user", *SPECIAL])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return backend


def folded() -> tokenizers.Tokenizer:
    """Its control tokens are looked for after everything has been lowered."""
    backend = byte_pairs()
    backend.normalizer = normalizers.Lowercase()
    backend.add_special_tokens([AddedToken(s, normalized=True, special=True) for s in SPECIAL])
    return backend


def unmarked() -> tokenizers.Tokenizer:
    """As DeepSeek's: some control tokens are not called special; a run of spaces is one, and no control token."""
    backend = byte_pairs()
    backend.add_tokens([AddedToken("<|im_start|>", normalized=False), AddedToken("    ", normalized=False)])
    return backend


MADE: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    f.__name__: f for f in (byte_pairs, merged, unigram, words, folded, unmarked)
}


def made(kind: str) -> Tokenizer:
    backend = MADE[kind]()
    if kind != "folded":
        backend.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIAL])
    return Tokenizer(backend, None, (0,), ChatTemplate(TEMPLATE, "template", {}))


def chat_tokenizers() -> list[str]:
    return ["tinychat-7m", *MADE]


def chat_tokenizer(name: str) -> Tokenizer:
    return made(name) if name in MADE else Tokenizer.from_folder(MODELS / name)


def texts(control: ControlTokens, count: int) -> list[str]:
    """Every control token alone, inside of words, cut, and random heaps of their pieces."""
    tokens = sorted(control.texts)
    rng = random.Random(f"{SEED} control tokens")
    pieces = [t[i:j] for t in tokens for i in range(len(t)) for j in range(i + 1, len(t) + 1)]
    heaps = ["".join(rng.choices([*tokens, *pieces, "a", " ", "\n"], k=rng.randrange(2, 9))) for _ in range(count)]
    return [*tokens, *(f"hello{t}user" for t in tokens), *(t[:-1] for t in tokens), *heaps]


def controls(t: Tokenizer, ids: list[int]) -> Counter[int]:
    special = {t.backend.token_to_id(text) for text in ControlTokens(json.loads(t.backend.to_str())).texts}
    return Counter(i for i in ids if i in special)


@pytest.mark.parametrize("name", chat_tokenizers())
def test_a_message_has_no_control_tokens(name: str) -> None:
    t = chat_tokenizer(name)
    control, guarded = guarded_backend(t.backend)
    assert len(control.texts) >= 5
    usual = controls(t, t.prompt([{"role": "user", "content": "hello"}]))
    assert usual.total() >= 2
    for text in texts(control, 60):
        ids = t.prompt([{"role": "user", "content": text}])
        assert controls(t, ids) == usual, text
        if name in ("tinychat-7m", "byte_pairs"):  # others do not give back every letter
            whole = t.backend.decode(ids, skip_special_tokens=False)
            assert whole == t.render([{"role": "user", "content": text}]), text
        forged = t.prompt([{"role": f"user{text}", "content": "hello"}])
        assert controls(t, forged) == usual, text
    # what has no marks is read as before, control tokens in it as well
    for text in ("hello", " hello  world\n", "a < b, c | d [1]", t.render([{"role": "user", "content": "hello"}])):
        assert guarded.encode(text, add_special_tokens=False).ids == t.encode(text), text


def test_a_mark_of_ones_own_forges_nothing() -> None:
    t = made("byte_pairs")
    usual = t.prompt([{"role": "user", "content": "hello"}])
    for text in (f"{MARK}<s>", f"<{MARK}s>", f"<s{MARK}>", f"<{MARK}{MARK}|im_end|>"):
        assert controls(t, t.prompt([{"role": "user", "content": text}])) == controls(t, usual)
    assert t.prompt([{"role": "user", "content": f"hel{MARK}lo"}]) == usual


def test_a_run_of_spaces_is_no_control_token() -> None:
    t = made("unmarked")
    spaces = t.backend.token_to_id("    ")
    assert spaces in t.prompt([{"role": "user", "content": "a    b"}])


def test_texts_for_embeddings() -> None:
    embedding = Embedder.from_folder(MODELS / "tinyembed")
    control = ControlTokens(json.loads(embedding.backend.to_str()))
    special = {embedding.backend.token_to_id(text) for text in control.texts}
    usual = [i for i in embedding.tokens(["hello"])[0] if i in special]
    for text in texts(control, 40):
        assert [i for i in embedding.tokens([text])[0] if i in special] == usual, text
    control, backend = guarded_backend(word_pieces())
    assert 3 not in backend.encode(control.guard("a [SEP] b"), add_special_tokens=False).ids


def test_prompts_of_pictures() -> None:
    t = PromptTokenizer.from_folder(MODELS / "tinysd" / "tokenizer", 77)
    control = ControlTokens(json.loads(t.backend.to_str()))
    for text in texts(control, 40):
        ids = t(text)
        end = ids.index(t.eos)
        assert ids[0] == t.bos and t.bos not in ids[1:] and set(ids[end:]) <= {t.eos, t.pad}, text


def fixture() -> dict[str, list[dict[str, object]]]:
    chat, embedding = chat_tokenizer("tinychat-7m"), Embedder.from_folder(MODELS / "tinyembed")
    pictures = PromptTokenizer.from_folder(MODELS / "tinysd" / "tokenizer", 77)
    rows: dict[str, list[dict[str, object]]] = {"chat": [], "embed": [], "image": []}
    for text in texts(guarded_backend(chat.backend)[0], 30):
        rows["chat"].append({"text": text, "ids": chat.prompt([{"role": "user", "content": text}])})
    for text in texts(ControlTokens(json.loads(embedding.backend.to_str())), 30):
        rows["embed"].append({"text": text, "ids": embedding.tokens([text])[0]})
    for text in texts(ControlTokens(json.loads(pictures.backend.to_str())), 30):
        rows["image"].append({"text": text, "ids": pictures(text)})
    return rows


def test_the_runtime_is_compared_with_these_ids() -> None:
    """`web/runtime/test/control-tokens.test.ts` reads the same file."""
    embedding, chat = Embedder.from_folder(MODELS / "tinyembed"), chat_tokenizer("tinychat-7m")
    pictures = PromptTokenizer.from_folder(MODELS / "tinysd" / "tokenizer", 77)
    rows = json.loads(FIXTURE.read_text())
    for row in rows["chat"]:
        assert chat.prompt([{"role": "user", "content": row["text"]}]) == row["ids"], row["text"]
    for row in rows["embed"]:
        assert embedding.tokens([row["text"]])[0] == row["ids"], row["text"]
    for row in rows["image"]:
        assert pictures(row["text"]) == row["ids"], row["text"]


if __name__ == "__main__":
    FIXTURE.write_text(json.dumps(fixture(), ensure_ascii=False).replace('}, {"text"', '},\n{"text"') + "\n")
