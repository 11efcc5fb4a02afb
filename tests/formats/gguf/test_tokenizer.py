"""Tokenizers in GGUF files give the ids of those they were made from."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file
from tokenizers import models, normalizers, pre_tokenizers
from transformers import BertTokenizer, CohereTokenizer, GPT2Tokenizer, GPTNeoXTokenizer, Qwen2Tokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.tokenization_utils_base import generate_merges

from tests.export.small_model import write_small_model
from tests.formats.gguf.converted import convert, metadata_of, types_of
from tests.formats.gguf.files import Kind, write
from tests.formats.gguf.test_model import EMBEDDING, SIZES
from tinyweb import Tensor
from tinyweb.errors import ModelFormatError
from tinyweb.export.chat import ExportOptions, export_chat
from tinyweb.formats.gguf import GgufModel
from tinyweb.formats.gguf.pretokenizers import CUTS
from tinyweb.formats.source import open_model
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load

ROOT = Path(__file__).resolve().parents[3]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
TEXTS = [
    "", " ", "Hello, world!", "  two  spaces ", "I'm sure they'LL say we've 3 33 333 3333", "new\nlines\n\n \n\ttabs\t",
    "Zürich, naïve café — “quotes” …", "日本語のテキスト。", "🦙🦙‍🌫️ emoji", "a\u0301 combined, ﬁ ligature",
    "x=1;y+=2//z  # §",
    "don't DON'T Don'T", "\r\nwindows\r\n", "[CLS] <|eot_id|> </s> <s>", "Ünïcödé ΑΒΓ αβγ абв ابج", "1.000,50 €",
    "\x00\x7f",
]  # fmt: skip


def model(
    path: Path, kind: str, tokens: list[str], types: list[int] | None = None, architecture: str = "llama", **more: Any
) -> GgufModel:
    """A model of no use but its tokenizer. `more`: keys below `tokenizer.ggml.`"""
    sizes = {f"{architecture}.{k}": v for k, v in SIZES.items()}
    own: dict[str, Any] = {"model": kind, "tokens": tokens} | more
    if types is not None:
        own["token_type"] = types
    metadata = {"general.architecture": architecture, **sizes} | {f"tokenizer.ggml.{k}": v for k, v in own.items()}
    if "template" in own:
        metadata["tokenizer.chat_template"] = metadata.pop("tokenizer.ggml.template")
    return GgufModel(write(path, metadata, EMBEDDING))


def backend(found: GgufModel) -> Any:
    return tokenizers.Tokenizer.from_str(found.text("tokenizer.json", required=True) or "")


def same(ours: Any, theirs: Any, texts: list[str] = TEXTS) -> None:
    for text in texts:
        a, b = ours.encode(text, add_special_tokens=False), theirs.encode(text, add_special_tokens=False)
        assert a.ids == b.ids, (text, a.tokens, b.tokens)
        for skip in (True, False):
            assert ours.decode(a.ids, skip_special_tokens=skip) == theirs.decode(a.ids, skip_special_tokens=skip)


# -- bytes -------------------------------------------------------------------------------------------------------------
def test_the_embedded_chat_model(tmp_path: Path, model_folder: Path) -> None:
    """Ids, texts, prompts and end tokens."""
    path = convert(model_folder, tmp_path / "m.gguf", "llama", Kind.F16, metadata_of(model_folder))
    ours, theirs = Tokenizer.from_folder(path), Tokenizer.from_folder(model_folder)
    assert (ours.eos, ours.bos, ours.vocab_size) == (theirs.eos, theirs.bos, theirs.vocab_size)
    texts = TEXTS + [(model_folder / "README.md").read_text()]
    same(ours.backend, theirs.backend, texts)
    messages = [{"role": "user", "content": "Tell me <|eot_id|> a story."}, {"role": "assistant", "content": "Once"}]
    assert ours.prompt(messages) == theirs.prompt(messages)
    # and the logits behind the prompt
    ids = Tensor(np.array([ours.prompt(messages)], np.int32))
    got, want = (load(open_model(found), context=64)(ids).numpy() for found in (path, model_folder))
    np.testing.assert_allclose(got, want, atol=1e-3)


@pytest.mark.slow
def test_the_exported_site_is_the_same(tmp_path: Path, model_folder: Path) -> None:
    """That of a file and that of the folder it was made from, but for the form of the tokenizer's JSON."""
    folder = write_small_model(tmp_path / "small", model_folder)
    weights = load_file(folder / "model.safetensors")  # GGUF files keep norms in float32
    save_file({n: v if v.ndim > 1 else v.astype(np.float32) for n, v in weights.items()}, folder / "model.safetensors")
    path = convert(folder, tmp_path / "small.gguf", "llama", Kind.F16, metadata_of(model_folder))
    for source, name in ((folder, "a"), (path, "b")):
        export_chat(source, tmp_path / name, ExportOptions("q8", 24, name="small"), lambda step, done, total: None)
    sites = [{p.relative_to(s): p for p in s.rglob("*") if p.is_file()} for s in (tmp_path / "a", tmp_path / "b")]
    assert sites[0].keys() == sites[1].keys()
    differ = {str(n) for n in sites[0] if sites[0][n].read_bytes() != sites[1][n].read_bytes()}
    texts = {"model/tokenizer.json", "model/tokenizer_config.json"}
    assert texts <= differ <= texts | {"model/manifest.json", "model/model.js", "site.json", "sw.js"}


LETTERS = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
MERGES = [
    "Ġ t",
    "h e",
    "Ġt he",
    "l l",
    "l o",
    "ll o",
    "1 1",
    "3 3",
    "33 3",
    "i n",
    "in g",
    "' s",
    "Ġ Ġ",
    "ĠĠ ĠĠ",
    "Ċ Ċ",
    "Ã ¼",
]
VOCABULARY = LETTERS + [m.replace(" ", "") for m in MERGES]
IDS = {token: i for i, token in enumerate(VOCABULARY)}
PAIRS = [tuple(m.split()) for m in MERGES]


@pytest.mark.parametrize(
    ("pre", "peer"),
    [("gpt-2", GPT2Tokenizer), ("qwen2", Qwen2Tokenizer), ("olmo", GPTNeoXTokenizer), ("command-r", CohereTokenizer)],
)
def test_bytes_like_transformers(pre: str, peer: Any, tmp_path: Path) -> None:
    """Tokenizers that `transformers` builds for the same vocabulary and merges."""
    theirs = peer(vocab=IDS, merges=PAIRS).backend_tokenizer
    ours = backend(model(tmp_path / "m", "gpt2", VOCABULARY, pre=pre, merges=MERGES))
    for text in TEXTS:
        if pre == "gpt-2" and text.startswith("["):
            continue  # whose end token the peer adds by itself
        a, b = ours.encode(text, add_special_tokens=False), theirs.encode(text, add_special_tokens=False)
        assert [t for t in a.tokens if t in IDS] == [t for t in b.tokens if t in IDS], text


@pytest.mark.parametrize("pre", sorted(GGUF_PRE_TOKENIZER_SPLITS.keys() & CUTS.keys()))
def test_patterns_of_transformers(pre: str) -> None:
    first, last = CUTS[pre].steps
    assert first["pattern"]["Regex"] == GGUF_PRE_TOKENIZER_SPLITS[pre] and first["behavior"] == "Isolated"
    assert last["type"] == "ByteLevel" and not last["use_regex"]


@pytest.mark.parametrize("pre", CUTS)
def test_every_cut_is_read(pre: str, tmp_path: Path) -> None:
    """Nothing of a text is lost, whatever the pattern."""
    ours = backend(model(tmp_path / "m", "gpt2", VOCABULARY, pre=pre, merges=MERGES))
    for text in TEXTS:
        encoded = ours.encode(text)
        whole = ours.normalizer.normalize_str(text) if ours.normalizer else text
        assert ours.decode(encoded.ids) == whole


def test_cuts_of_numbers(tmp_path: Path) -> None:
    def cut(pre: str, text: str) -> list[str]:
        found = backend(model(tmp_path / "m", "gpt2", VOCABULARY, pre=pre, merges=MERGES))
        return [piece for piece, _ in found.pre_tokenizer.pre_tokenize_str(text)]

    assert cut("llama-bpe", "a 12345") == ["a", "Ġ", "123", "45"]
    assert cut("starcoder", "a 123") == ["a", "Ġ", "1", "2", "3"]
    assert cut("falcon", "a 12345x") == ["a", "Ġ", "123", "45", "x"]
    assert cut("deepseek-llm", "a ab12日") == ["a", "Ġab", "1", "2", "æĹ¥"]
    assert cut("deepseek-v3", "1234日本x") == ["123", "4", "æĹ¥æľ¬", "x"]


def test_whole_pieces(tmp_path: Path) -> None:
    """Of Llama 3: a piece that is a token needs no merges."""
    tokens = [*VOCABULARY, "hello"]
    kept = backend(model(tmp_path / "a", "gpt2", tokens, pre="llama-bpe", merges=MERGES))
    assert kept.encode("hello").ids == [len(VOCABULARY)]
    merged = backend(model(tmp_path / "a", "gpt2", tokens, pre="qwen2", merges=MERGES))
    assert merged.encode("hello").tokens == ["he", "llo"]


def test_tokens_beside_the_text(tmp_path: Path) -> None:
    """Those of the user are kept, control tokens are left out of texts; unused ones are none."""
    tokens = [*VOCABULARY, "<|a|>", "<think>", "[PAD9]", "    "]
    types = [*[NORMAL] * len(VOCABULARY), CONTROL, USER_DEFINED, UNUSED, USER_DEFINED]
    n = len(VOCABULARY)
    ours = backend(model(tmp_path / "a", "gpt2", tokens, types, pre="qwen2", merges=MERGES))
    ids = ours.encode("<|a|><think>    [PAD9]").ids
    assert ids[:3] == [n, n + 1, n + 3] and n + 2 not in ids
    assert ours.decode(ids) == "<think>    [PAD9]"
    assert ours.get_vocab_size() == n + 3


def test_begin_and_end_tokens(tmp_path: Path) -> None:
    """Added where the file, or else the kind of tokenizer, says so."""
    tokens, types = [*VOCABULARY, "<b>", "<e>"], [*[NORMAL] * len(VOCABULARY), CONTROL, CONTROL]
    n = len(VOCABULARY)

    def ids(pre: str, **more: Any) -> list[int]:
        own = {"pre": pre, "merges": MERGES, "bos_token_id": n, "eos_token_id": n + 1} | more
        return [i for i in backend(model(tmp_path / "a", "gpt2", tokens, types, **own)).encode("a").ids if i >= n]

    assert ids("qwen2") == [] and ids("llama-bpe") == [n]
    assert ids("qwen2", add_bos_token=True, add_eos_token=True) == [n, n + 1]
    assert ids("llama-bpe", add_bos_token=False) == []


# -- pieces ------------------------------------------------------------------------------------------------------------
def sentencepiece(seed: int) -> tuple[list[str], list[float], list[int]]:
    """A vocabulary with bytes, letters, and pieces that are made of two others; scores by rank, as training gives."""
    drawn = random.Random(seed)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    pieces = list("▁abcdeü")
    while len(pieces) < 150:
        made = drawn.choice(pieces) + drawn.choice(pieces)
        if made not in pieces and "▁" not in made[1:].strip("▁") and len(made) < 12:
            pieces.append(made)
    scores = [0.0] * len(tokens) + [-float(i) for i in range(len(pieces))]
    return tokens + pieces, scores, types + [NORMAL] * len(pieces)


def merged(text: str, tokens: list[str], scores: list[float]) -> list[str]:
    """SentencePiece's algorithm as it is defined: of all neighbours that make a piece, the likeliest, and of equal ones
    the first."""
    score = dict(zip(tokens, scores))
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        found = [(-score[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in score]
        if not found:
            return parts
        at = min(found)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@pytest.mark.parametrize("seed", range(4))
def test_pieces_by_their_scores(seed: int, tmp_path: Path) -> None:
    tokens, scores, types = sentencepiece(seed)
    found = model(tmp_path / "m", "llama", tokens, types, scores=scores, bos_token_id=1, eos_token_id=2)
    ours, drawn = backend(found), random.Random(seed)
    for _ in range(200):
        text = "".join(drawn.choices("abcdeü ", k=drawn.randrange(1, 30)))
        assert ours.encode(text, add_special_tokens=False).tokens == merged(text, tokens, scores)
        assert ours.decode(ours.encode(text).ids) == text
    made = json.loads(found.text("tokenizer.json") or "")["model"]["merges"]
    ids = {t: i for i, t in enumerate(tokens)}
    assert [tuple(m) for m in made] == generate_merges(ids, dict(zip(tokens, scores)))


def test_bytes_of_what_has_no_piece(tmp_path: Path) -> None:
    tokens, scores, types = sentencepiece(0)
    ours = backend(model(tmp_path / "m", "llama", tokens, types, scores=scores, bos_token_id=1, eos_token_id=2))
    encoded = ours.encode("a日<s>")
    assert encoded.tokens[0] == "<s>" and encoded.tokens[-1] == "<s>"
    assert [t for t in encoded.tokens if t.startswith("<0x")] == ["<0xE6>", "<0x97>", "<0xA5>"]
    assert ours.decode(encoded.ids) == "a日"
    few = [(t, s, k) for t, s, k in zip(tokens, scores, types) if k != BYTE]
    ours = backend(model(tmp_path / "m", "llama", [t for t, _, _ in few], [k for _, _, k in few],
                         scores=[s for _, s, _ in few]))  # fmt: skip
    assert ours.encode("日本", add_special_tokens=False).tokens == ["▁", "<unk>"]


def test_spaces_before_texts(tmp_path: Path) -> None:
    """Of Gemma, no space is put before a text."""
    tokens, scores, types = sentencepiece(1)
    for prefix in (True, False):
        ours = backend(model(tmp_path / "m", "llama", tokens, types, scores=scores, add_space_prefix=prefix))
        encoded = ours.encode("ab </s>ab", add_special_tokens=False)
        assert "".join(t for t in encoded.tokens).replace("</s>", "|") == ("▁ab▁|▁ab" if prefix else "ab▁|ab")
        assert ours.decode(ours.encode(" ab").ids) == " ab"


def test_spaces_behind_control_tokens(tmp_path: Path) -> None:
    """Those of Phi-3 take them, but for the first tokens."""
    tokens, scores, types = sentencepiece(2)
    found = model(tmp_path / "m", "llama", tokens, types, "phi3", scores=scores, eos_token_id=2)
    ours = backend(found)
    assert ours.encode("ab</s>  ab").ids == ours.encode("ab</s>ab").ids
    assert ours.encode("<s> ab").ids != ours.encode("<s>ab").ids


@pytest.mark.parametrize("prefix", [True, False])
def test_likeliest_pieces(prefix: bool, tmp_path: Path) -> None:
    drawn = random.Random(5)
    pieces = ["<unk>", *"▁abcdef", *{"".join(drawn.choices("▁abcdef", k=drawn.randrange(2, 5))) for _ in range(80)}]
    scores = [0.0, *(-drawn.uniform(1, 9) * len(p) ** 0.5 for p in pieces[1:])]
    scores = [float(np.float32(s)) for s in scores]
    types = [UNKNOWN, *[NORMAL] * (len(pieces) - 1)]
    theirs: Any = tokenizers.Tokenizer(models.Unigram(list(zip(pieces, scores)), 0))
    theirs.normalizer = normalizers.Sequence([
        normalizers.Strip(), normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
    ])  # fmt: skip
    theirs.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if prefix else "never")
    found = model(tmp_path / "m", "t5", pieces, types, scores=scores, add_space_prefix=prefix, unknown_token_id=0)
    for _ in range(200):
        text = "".join(drawn.choices("abcdefz ", k=drawn.randrange(1, 40)))
        assert backend(found).encode(text).ids == theirs.encode(text).ids


# -- words -------------------------------------------------------------------------------------------------------------
def phantom(token: str) -> str:
    """A token of BERT as llama.cpp's converter writes it."""
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[2:] if token.startswith("##") else "▁" + token


def test_the_embedded_embedding_model(tmp_path: Path) -> None:
    folder = ROOT / "assets/models/tinyembed"
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {t: vocabulary[t] for t in ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")}
    names = ("unknown", "cls", "seperator", "padding", "mask")
    own = {f"{name}_token_id": i for name, i in zip(names, special.values())}
    types = types_of(content, len(tokens))
    found = model(tmp_path / "m", "bert", list(map(phantom, tokens)), types, **own)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.no_truncation()
    theirs.no_padding()
    ours = backend(found)
    for text in [*TEXTS, (folder / "README.md").read_text()]:
        a, b = ours.encode(text), theirs.encode(text)
        assert (a.ids, a.type_ids) == (b.ids, b.type_ids), text
    assert ours.encode("a", "b").ids == theirs.encode("a", "b").ids
    assert json.loads(found.text("tokenizer_config.json") or "")["cls_token"] == "[CLS]"


def test_words_with_capital_letters(tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "##s", "É", "a"]
    for extra in ([], ["Hello"]):
        every = tokens[: 7 if not extra else 9] + extra
        ids = {t: i for i, t in enumerate(every)}
        theirs = BertTokenizer(vocab=ids, do_lower_case=not extra).backend_tokenizer
        types = [CONTROL] * 5 + [NORMAL] * (len(every) - 5)
        found = model(tmp_path / "m", "bert", list(map(phantom, every)), types, unknown_token_id=1, cls_token_id=2,
                      seperator_token_id=3)  # fmt: skip
        for text in ("Hello hellos É", "HELLO", "é a"):
            assert backend(found).encode(text).ids == theirs.encode(text).ids


# -- damage ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "plamo2"}, "'tokenizer.ggml.model' 'plamo2' is not supported; known: gpt2, llama, t5, bert, rwkv"),
        ({"model": 3}, "'tokenizer.ggml.model' must be a string"),
        ({"pre": "my-own"}, "'tokenizer.ggml.pre' 'my-own', is not known; known: "),
        ({"tokens": [1, 2]}, "'tokenizer.ggml.tokens' must be a list of texts"),
        ({"token_type": [1, 1]}, "'tokenizer.ggml.token_type' must have a number for each of 273 tokens"),
        ({"token_type": "x"}, "'tokenizer.ggml.token_type' must have a number for each"),
        ({"merges": ["ab"]}, "'tokenizer.ggml.merges' must be a list of two texts with a space between"),
        ({"merges": [" a"]}, "'tokenizer.ggml.merges' must be a list of two texts"),
        ({"merges": ["q qqq"]}, "is no tokenizer this version understands"),
        ({"add_bos_token": 1}, "'tokenizer.ggml.add_bos_token' must be true or false"),
        ({"eos_token_id": -1.5}, "'tokenizer.ggml.eos_token_id' must be an integer"),
        ({"template": 5}, "'tokenizer.chat_template' must be a string"),
        ({"model": "llama", "scores": [float("nan")] * 273}, "'tokenizer.ggml.scores' holds infinities or NaNs"),
        ({"model": "llama", "scores": [1, 2]}, "'tokenizer.ggml.scores' must have a number for each of 273 tokens"),
        ({"model": "t5", "precompiled_charsmap": "x"}, "'tokenizer.ggml.precompiled_charsmap' must be bytes"),
        ({"model": "t5", "precompiled_charsmap": [1, 2]}, "'tokenizer.ggml.precompiled_charsmap' must be bytes"),
    ],
)
def test_tokenizers_that_cannot_be(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert len(VOCABULARY) + 1 == 273
    own = {"model": "gpt2", "tokens": [*VOCABULARY, "<e>"], "merges": MERGES, "pre": "gpt-2", "eos_token_id": 272}
    own |= changes
    with pytest.raises(ModelFormatError, match=message):
        Tokenizer.from_folder(model(tmp_path / "m", own.pop("model"), own.pop("tokens"), **own))


def test_a_file_without_a_tokenizer(tmp_path: Path) -> None:
    metadata = {"general.architecture": "llama"} | {f"llama.{k}": v for k, v in SIZES.items()}
    with pytest.raises(ModelFormatError, match=r"holds nothing that would be tokenizer\.json"):
        Tokenizer.from_folder(GgufModel(write(tmp_path / "m", metadata, EMBEDDING)))


def test_end_tokens_and_sampling(tmp_path: Path) -> None:
    """All that end an answer: those with a key of their own, and those known by their texts."""
    tokens = [*VOCABULARY, "<e>", "<|im_end|>", "<t>", "<|end|>"]
    n = len(VOCABULARY)
    own = {"pre": "gpt-2", "merges": MERGES, "eos_token_id": n, "eot_token_id": n + 2, "eom_token_id": 9999}
    types = [*[NORMAL] * n, CONTROL, USER_DEFINED, CONTROL, NORMAL]
    found = model(tmp_path / "m", "gpt2", tokens, types, **own)
    assert Tokenizer.from_folder(found).eos == (n, n + 2, n + 1)
