"""Model folders: sharded checkpoints, typed configuration fields, and what is missing or wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Checkpoint, Config, ModelFolder, read_json, read_text


def test_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="does not exist"):
        ModelFolder(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFormatError, match="is a file"):
        ModelFolder(tmp_path / "file")
    with pytest.raises(ModelFormatError, match=r"config\.json is missing"):
        ModelFolder(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "not valid JSON"), (b"[1]", "no JSON object"), (b"\xff", "not UTF-8"), (b"[" * 100_000, "not valid JSON")],
)
def test_damaged_json(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ModelFormatError, match=message):
        read_json(tmp_path / "a.json")


def test_large_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("12345")
    assert read_text(tmp_path / "a.txt", 5) == "12345"
    with pytest.raises(ModelFormatError, match="more than the 4"):
        read_text(tmp_path / "a.txt", 4)


CONFIG: dict[str, Any] = {
    "count": 3, "name": "x", "rate": 0.5, "on": True, "nothing": None, "nan": float("nan"), "big": 10**30,
    "part": {"a": 1}, "end": [4, 1], "one": 2,
}  # fmt: skip


def test_config_fields() -> None:
    c = Config(CONFIG, "config.json")
    assert c.integer("count", 1, 3) == 3
    assert c.integer("nothing", 1, 9, 7) == 7
    assert c.number("rate", 0, 1) == 0.5
    assert c.number("count", 0, 9) == 3.0
    assert c.flag("on") is True
    assert c.flag("absent", False) is False
    assert c.word("name") == "x"
    assert c.ids("end") == (4, 1)
    assert c.ids("one") == (2,)
    assert c.ids("absent") == ()
    part = c.section("part")
    assert part is not None and part.integer("a", 0, 1) == 1
    assert c.section("absent") is None


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c: c.integer("absent", 0, 9), "lacks 'absent' .an integer from 0 to 9."),
        (lambda c: c.integer("nothing", 0, 9), "lacks 'nothing'"),
        (lambda c: c.integer("name", 0, 9), "'name' must be an integer from 0 to 9, found \"x\""),
        (lambda c: c.integer("on", 0, 9), "'on' must be an integer"),
        (lambda c: c.integer("rate", 0, 9), "'rate' must be an integer"),
        (lambda c: c.integer("big", 0, 9), "'big' must be"),
        (lambda c: c.number("nan", 0, 9), "'nan' must be a number"),
        (lambda c: c.number("rate", 1, 9), "'rate' must be a number from 1 to 9"),
        (lambda c: c.flag("count"), "'count' must be true or false"),
        (lambda c: c.word("count"), "'count' must be a string"),
        (lambda c: c.section("count"), "'count' must be an object"),
        (lambda c: c.ids("rate"), "'rate' must be a token id"),
        (lambda c: c.ids("big"), "'big' must be a token id"),
    ],
)
def test_config_refuses(ask: Any, message: str) -> None:
    with pytest.raises(ModelFormatError, match=message) as error:
        ask(Config(CONFIG, "config.json"))
    assert str(error.value).startswith("config.json")


def shards(folder: Path, where: Any = None) -> Path:
    """A checkpoint in two files."""
    save_file({"a": np.ones((2, 3), np.float32)}, folder / "model-1.safetensors")
    save_file({"b": np.full(4, 2, np.float16)}, folder / "model-2.safetensors")
    where = where or {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


def test_sharded_checkpoint(tmp_path: Path) -> None:
    c = Checkpoint(shards(tmp_path))
    assert sorted(c) == ["a", "b"] and "a" in c and "c" not in c
    np.testing.assert_array_equal(c.read("a", (2, 3)), np.ones((2, 3)))
    np.testing.assert_array_equal(c.read("b", (4,)), np.full(4, 2))


@pytest.mark.parametrize(
    "name", ["../model-1.safetensors", "/etc/passwd", "", "..", "a\\b.safetensors", "model-1.bin", "x/y.safetensors"]
)
def test_index_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFormatError, match="no safetensors file of this folder"):
        Checkpoint(shards(tmp_path, {"a": name}))


def test_index_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="puts tensor 'b' into model-1"):
        Checkpoint(shards(tmp_path, {"b": "model-1.safetensors"}))
    with pytest.raises(ModelFormatError, match=r"model-3\.safetensors cannot be read: No such file"):
        Checkpoint(shards(tmp_path, {"b": "model-3.safetensors"}))
    with pytest.raises(ModelFormatError, match="no 'weight_map'"):
        Checkpoint(shards(tmp_path, [1]))


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=r"holds no model\.safetensors"):
        Checkpoint(tmp_path)


def test_tensor_that_does_not_fit(tmp_path: Path) -> None:
    values = {
        "a": np.ones((2, 3), np.float32),
        "i": np.ones(2, np.int32),
        "n": np.array([1, np.nan], np.float32),
        "f": np.array([1, np.inf], np.float16),
    }
    save_file(values, tmp_path / "model.safetensors")
    c = Checkpoint(tmp_path)
    with pytest.raises(ModelFormatError, match=r"'a' has shape \(2, 3\), config.json makes it \(3, 2\)"):
        c.read("a", (3, 2))
    with pytest.raises(ModelFormatError, match="'i' holds int32"):
        c.read("i", (2,))
    with pytest.raises(ModelFormatError, match="no tensor 'z'"):
        c.read("z", (2,))
    for name in ("n", "f"):
        with pytest.raises(ModelFormatError, match="infinities or NaNs"):
            c.read(name, (2,))
