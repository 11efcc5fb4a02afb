"""Tokenizers: the embedded model's golden prompts, streaming of text, and damaged files."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tinyweb.errors import ModelFormatError
from tinyweb.formats.tokenizer import TextStream, Tokenizer

TEXTS = ["Hello, world!", "  two  spaces ", "naïve café — 北京 🦊🦊", "\n\n\tx = 3\n", "e\u0301", "👩‍👩‍👧", ""]


@pytest.fixture(scope="module")
def tokenizer(model_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(model_folder)


@pytest.fixture
def copy(model_folder: Path, tmp_path: Path) -> Path:
    """The model's small files in a folder that may be changed."""
    for file in model_folder.glob("*.json"):
        shutil.copyfile(file, tmp_path / file.name)
    return tmp_path


def test_golden_prompts(tokenizer: Tokenizer, model_folder: Path) -> None:
    items = json.loads((model_folder / "golden.json").read_text())["items"]
    assert len(items) >= 10
    for item in items:
        assert tokenizer.render(item["messages"]) == item["prompt_text"]
        assert tokenizer.prompt(item["messages"]) == item["prompt_ids"]
        assert tokenizer.decode(item["output_ids"]).strip() == item["output_text"].strip()


def test_facts(tokenizer: Tokenizer) -> None:
    assert (tokenizer.bos, tokenizer.eos, tokenizer.vocab_size) == (0, (4, 1), 4096)


@pytest.mark.parametrize("text", TEXTS)
def test_against_transformers(tokenizer: Tokenizer, model_folder: Path, text: str) -> None:
    reference = AutoTokenizer.from_pretrained(model_folder)
    ids = tokenizer.encode(text)
    assert ids == reference.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", TEXTS)
def test_stream_gives_the_whole_text(tokenizer: Tokenizer, text: str) -> None:
    stream = TextStream(tokenizer)
    pieces = [stream.push(i) for i in tokenizer.encode(text)]
    assert all("\ufffd" not in p for p in pieces)
    assert "".join(pieces) + stream.finish() == text


def test_stream_holds_back_half_a_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🦊")
    assert len(ids) > 1
    stream = TextStream(tokenizer)
    pieces = [stream.push(i) for i in ids]
    assert pieces[:-1] == [""] * (len(ids) - 1) and pieces[-1] == "🦊"
    stream = TextStream(tokenizer)
    assert [stream.push(i) for i in ids[:-1]] == [""] * (len(ids) - 1)
    assert stream.finish() == "\ufffd"


def test_stream_of_broken_bytes_does_not_wait_forever(tokenizer: Tokenizer) -> None:
    half = tokenizer.encode("🦊")[0]
    stream = TextStream(tokenizer)
    assert "\ufffd" in "".join(stream.push(half) for _ in range(40))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("{}", "no tokenizer this version understands"),
        (
            '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}',
            "no tokenizer this version understands",
        ),
        ('{"version": "1.0", "model": null}', "no tokenizer this version understands"),
    ],
)
def test_damaged_tokenizer(copy: Path, content: str, message: str) -> None:
    (copy / "tokenizer.json").write_text(content)
    with pytest.raises(ModelFormatError, match=message) as error:
        Tokenizer.from_folder(copy)
    assert "tokenizer.json" in str(error.value)


def test_missing_tokenizer(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(ModelFormatError, match=r"tokenizer\.json is missing"):
        Tokenizer.from_folder(copy)


def test_template_file_comes_first(copy: Path) -> None:
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert Tokenizer.from_folder(copy).render([{"role": "user", "content": "hi"}]) == "hi!"


def test_named_templates(copy: Path) -> None:
    config = json.loads((copy / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.from_folder(copy).render([]) == "D"


def test_base_model_has_no_template(copy: Path) -> None:
    (copy / "tokenizer_config.json").unlink()
    with pytest.raises(ModelFormatError, match="no chat template"):
        Tokenizer.from_folder(copy).render([])


def test_end_token_from_any_file(copy: Path) -> None:
    (copy / "generation_config.json").unlink()
    assert Tokenizer.from_folder(copy).eos == (4,)
    config = json.loads((copy / "config.json").read_text())
    config["eos_token_id"] = None
    (copy / "config.json").write_text(json.dumps(config))
    assert Tokenizer.from_folder(copy).eos == (4,)  # by its name in tokenizer_config.json
    (copy / "tokenizer_config.json").unlink()
    with pytest.raises(ModelFormatError, match="no end token"):
        Tokenizer.from_folder(copy)
