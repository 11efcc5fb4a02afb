"""Tokenizers of a few words, built in memory: special tokens, end tokens, templates, and the stream of text."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

from tinyweb.errors import ModelFormatError
from tinyweb.formats.control_tokens import quiet, understood
from tinyweb.formats.tokenizer import TextStream, Tokenizer, load_backend


def folder(path: Path, config: dict[str, Any] | None = None, eos: Any = 3, generation: Any = None) -> Path:
    path.mkdir(exist_ok=True)
    backend: Any = tokenizers.Tokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    backend.pre_tokenizer = WhitespaceSplit()
    backend.add_special_tokens(["<end>", "<begin>"])
    backend.post_processor = TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", 4)])
    backend.save(str(path / "tokenizer.json"))
    (path / "config.json").write_text(json.dumps({} if eos is None else {"eos_token_id": eos}))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_ids_and_text(tmp_path: Path) -> None:
    t = Tokenizer.from_folder(folder(tmp_path))
    assert t.vocab_size == 5 and t.bos is None and t.eos == (3,) and t.template is None
    assert t.encode("a b <end>") == [0, 1, 3]  # none added, those written are recognised
    assert t.decode([4, 0, 1, 3]) == "a b" and t.decode((1,)) == "b"
    with pytest.raises(ModelFormatError, match="the model folder has no chat template: it is a base model"):
        t.render([])


def test_texts_are_neither_cut_nor_filled_up(tmp_path: Path) -> None:
    """Whatever tokenizer.json has from training; a multiple of 2³¹ would take all memory."""
    path = folder(tmp_path) / "tokenizer.json"
    backend: Any = tokenizers.Tokenizer.from_file(str(path))
    backend.enable_truncation(2)
    backend.enable_padding(pad_to_multiple_of=1 << 31)
    backend.save(str(path))
    t = Tokenizer.from_folder(tmp_path)
    assert t.encode("a b a b") == [0, 1, 0, 1] and t.prompt([{"role": "user", "content": "b a b"}]) == [4, 1, 0, 1]


def test_the_largest_id(tmp_path: Path) -> None:
    """The library makes room for all ids up to it."""
    path = folder(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())
    for parts, limit in ((content["model"]["vocab"], 1 << 24), (content["added_tokens"][0], (1 << 32) - 1)):
        key = "a" if "a" in parts else "id"
        usual, parts[key] = parts[key], limit
        if key == "a":
            path.write_text(json.dumps(content))
            assert Tokenizer.from_folder(tmp_path).encode("a") == [limit]
            parts[key] = limit + 1
        path.write_text(json.dumps(content))
        with pytest.raises(ModelFormatError, match=f"a token with the id {parts[key]}, beyond the limit of {1 << 24}"):
            Tokenizer.from_folder(tmp_path)
        parts[key] = usual


def test_texts_that_would_grow(tmp_path: Path) -> None:
    """By a factor that a normalizer, or several, put in for what they find."""
    path = folder(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())

    def read(part: str, kind: str, *replaced: tuple[dict[str, str], str]) -> None:
        inner = [{"type": "Replace", "pattern": pattern, "content": put} for pattern, put in replaced]
        path.write_text(json.dumps({**content, part: {"type": "Sequence", kind: [*inner, *inner]}}))
        Tokenizer.from_folder(tmp_path)

    read("normalizer", "normalizers", ({"String": "ab"}, "c" * 32))  # 16 times 16
    read("decoder", "decoders", ({"Regex": "[ab]"}, "c" * 15))
    read("normalizer", "normalizers", ({"String": "a" * 9}, "c"), ({"String": "b"}, "d" * 16))
    for pattern, put in (({"String": "ab"}, "c" * 33), ({"Regex": "a"}, "c" * 16)):
        with pytest.raises(
            ModelFormatError, match=r"tokenizer\.json: its 'normalizer' makes texts more than 256 times"
        ):
            read("normalizer", "normalizers", (pattern, put))
        with pytest.raises(ModelFormatError, match="its 'decoder' makes texts more than 256 times as long"):
            read("decoder", "decoders", (pattern, put))
    with pytest.raises(ModelFormatError, match="replaces an empty text, which is everywhere"):
        read("normalizer", "normalizers", ({"String": ""}, "a"))


def test_what_the_library_prints(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A panic's stack goes nowhere while a file is read; what else is printed comes, also while texts are."""
    path = folder(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}))
    with pytest.raises(ModelFormatError, match="no tokenizer this version understands"):
        Tokenizer.from_folder(tmp_path)
    with quiet, quiet:
        os.write(2, b"hidden")
    os.write(2, b"shown")
    with understood():
        os.write(2, b", too")
    assert capfd.readouterr().err == "shown, too"


def test_printing_where_no_more_files_can_be_opened(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as m:
        m.setattr(os, "devnull", str(tmp_path / "none"))
        with quiet:
            os.write(2, b"shown")
    with quiet:
        os.write(2, b"hidden")
    os.write(2, b", too")
    assert capfd.readouterr().err == "shown, too"


def test_a_base_model_continues_a_text(tmp_path: Path) -> None:
    """It begins as tokenizer.json, or tokenizer_config.json, says; what looks like an end token is text."""
    pieces = [{"role": "user", "content": text} for text in ("a ", "b <end>")]
    t = Tokenizer.from_folder(folder(tmp_path))
    assert t.completes and t.begin == (4,) and t.prompt(pieces) == [4, 0, 1, 2]
    assert t.prompt([]) == [4]
    for said, begin in ((True, (0,)), (False, ())):
        config = {"add_bos_token": said, "bos_token": "a", "eos_token": "<end>"}
        assert Tokenizer.from_folder(folder(tmp_path / str(said), config=config)).begin == begin


ENDS: list[tuple[Any, Any, Any, tuple[int, ...]]] = [
    (None, 3, None, (3,)),
    (None, [3, 1], None, (3, 1)),
    (None, 3, 1, (1,)),  # generation_config.json comes first
    (None, 3, [], (3,)),
    ("<end>", None, None, (3,)),
    ("<end>", 1, None, (1, 3)),
    ("<end>", [3, 1], None, (3, 1)),
    ({"content": "<end>"}, 0, None, (0, 3)),
    ("unknown", 1, None, (1,)),
    (5, 1, None, (1,)),
    ({"content": 5}, 1, None, (1,)),
]


@pytest.mark.parametrize(("named", "eos", "generation", "want"), ENDS)
def test_end_tokens(named: Any, eos: Any, generation: Any, want: tuple[int, ...], tmp_path: Path) -> None:
    config = {
        "eos_token": named,
        "bos_token": "<begin>",
        "chat_template": "{{ eos_token }}|{{ bos_token }}|{{ pad_token }}",
    }
    t = Tokenizer.from_folder(folder(tmp_path, config, eos, generation))
    assert t.eos == want and t.bos == 4
    end = named["content"] if isinstance(named, dict) else named
    assert t.render([]) == f"{end if isinstance(end, str) else ''}|<begin>|"
    assert t.render([], False) == t.render([]) and t.prompt([])[-1] == 2


def test_no_end_token(tmp_path: Path) -> None:
    with pytest.raises(
        ModelFormatError, match=f"{tmp_path} names no end token: add 'eos_token_id' to generation_config"
    ):
        Tokenizer.from_folder(folder(tmp_path, {"eos_token": "unknown"}, None))


TEMPLATES: list[tuple[Any, str | None]] = [
    ("T", "T"), ("", ""), (None, None), ([], None), ([{"name": "tools", "template": "X"}], None),
    ([{"name": "tools", "template": "X"}, {"name": "default", "template": "D"}], "D"),
    ([5, {"name": "default", "template": "D"}, {"name": "default", "template": "E"}], "D"),
    ([{"name": "default"}], None),
]  # fmt: skip


@pytest.mark.parametrize(("given", "want"), TEMPLATES)
def test_templates(given: Any, want: str | None, tmp_path: Path) -> None:
    t = Tokenizer.from_folder(folder(tmp_path, {"chat_template": given}))
    assert (t.template is None) if want is None else (t.render([]) == want)


@pytest.mark.parametrize(("given", "kind"), [(5, "int"), ({}, "dict"), ([{"name": "default", "template": 5}], "int")])
def test_templates_that_are_none(given: Any, kind: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=f"config.json: 'chat_template' must be a string, found {kind}"):
        Tokenizer.from_folder(folder(tmp_path, {"chat_template": given}))


def test_the_longest_template_file(tmp_path: Path) -> None:
    """A million characters, in four bytes each."""
    limit = 1 << 20
    file = folder(tmp_path) / "chat_template.jinja"
    file.write_text("🦊" * limit, "utf-8")
    assert Tokenizer.from_folder(tmp_path).render([]) == "🦊" * limit
    file.write_text("🦊" * limit + "x", "utf-8")
    with pytest.raises(ModelFormatError, match=f"has {4 * limit + 1} bytes, more than the {4 * limit} such a file may"):
        Tokenizer.from_folder(tmp_path)
    file.write_text("x" * (limit + 1))
    with pytest.raises(
        ModelFormatError, match=f"a chat template of {limit + 1} characters is beyond the limit of {limit}"
    ):
        Tokenizer.from_folder(tmp_path)


def test_what_the_library_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred characters of it; who interrupts is no damage."""

    class Broken:
        error: BaseException = ValueError("x" * 300)

        @classmethod
        def from_str(cls, text: str) -> Any:
            raise cls.error

    monkeypatch.setattr(tokenizers, "Tokenizer", Broken)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFormatError) as error:
        load_backend(tmp_path / "tokenizer.json")
    assert f"no tokenizer this version understands ({'x' * 200}): download it again" in str(error.value)
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        Broken.error = kind()
        with pytest.raises(kind):
            load_backend(tmp_path / "tokenizer.json")
    Broken.error = BaseException("a panic")
    with pytest.raises(ModelFormatError, match="a panic"):
        load_backend(tmp_path / "tokenizer.json")


class Bytes:
    """A tokenizer whose ids are the bytes of the text."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


def stream() -> TextStream:
    return TextStream(Bytes())


def test_text_comes_when_it_is_final() -> None:
    s, text = stream(), "a é 🦊."
    pieces = [s.push(b) for b in text.encode()]
    assert pieces == ["a", " ", "", "é", " ", "", "", "", "🦊", "."] and s.finish() == ""
    assert s.push(0xF0) == "" and s.finish() == "\ufffd" and s.finish() == ""
    assert s.push(ord("x")) == "x"


def test_broken_bytes_are_held_back_for_sixteen_tokens() -> None:
    s = stream()
    assert [s.push(0x80) for _ in range(15)] == [""] * 15
    assert s.push(0x80) == "\ufffd" * 16
    assert [s.push(0x80) for _ in range(15)] == [""] * 15 and s.finish() == "\ufffd" * 15


def test_decoders_look_back() -> None:
    """A space stands before a word only where there is a word before it."""

    class Words:
        def decode(self, ids: list[int]) -> str:
            return " ".join(str(i) for i in ids if i)

    s = TextStream(Words())
    assert [s.push(i) for i in (7, 8, 0, 9)] == ["7", " 8", "", " 9"] and s.finish() == ""
