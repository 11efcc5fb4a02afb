"""Limits of what a file may ask for: exactly that much is read, one more is refused in words."""

from __future__ import annotations

import json
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.formats.test_safetensors import item, write
from tests.formats.test_torch_checkpoint import Rebuilt, Storage, archive, dump
from tinyweb.errors import ModelFormatError
from tinyweb.formats import torch_checkpoint
from tinyweb.formats.chat_template import ChatTemplate
from tinyweb.formats.huggingface import Checkpoint, Config, ModelFolder, parse_json_list, read_text
from tinyweb.formats.safetensors import SafetensorsFile
from tinyweb.formats.tensors import SafetensorsWeights
from tinyweb.formats.torch_checkpoint import TorchCheckpoint


# -- safetensors -------------------------------------------------------------------------------------------------------
def test_the_longest_header(tmp_path: Path) -> None:
    limit = 16 << 20
    assert SafetensorsFile(write(tmp_path / "a", b"{}" + b" " * (limit - 2))).entries == {}
    with pytest.raises(
        ModelFormatError, match=f"a header of {limit + 1} bytes is beyond the limit of {limit}; refused"
    ):
        SafetensorsFile(write(tmp_path / "a", b"{}" + b" " * (limit - 1)))


def test_shapes_of_safetensors(tmp_path: Path) -> None:
    for shape in ([1] * 8, [0, (1 << 62) - 1], []):
        size = 4 * int(0 not in shape)
        assert SafetensorsFile(write(tmp_path / "a", {"t": item(0, size, shape)}, bytes(size))).entries[
            "t"
        ].shape == tuple(shape)
    for shape in ([1] * 9, [0, 1 << 62], [1] * 100):
        with pytest.raises(ModelFormatError) as error:
            SafetensorsFile(write(tmp_path / "a", {"t": item(0, 4, shape)}, bytes(4)))
        assert f"'t' has the shape {str(shape)[:80]}, which is none" in str(error.value)
    with pytest.raises(ModelFormatError) as error:
        SafetensorsFile(write(tmp_path / "a", {"t": {**item(0, 4, [1]), "data_offsets": [0] * 99}}, bytes(4)))
    assert f"data_offsets {str([0] * 99)[:80]}, which" in str(error.value)
    with pytest.raises(ModelFormatError) as error:
        SafetensorsFile(write(tmp_path / "a", {"t": item(0, 4, [1], "ab" * 50)}, bytes(4)))
    assert f"dtype {('ab' * 20)!r}, which is not supported; known: BOOL, " in str(error.value)
    with pytest.raises(ModelFormatError, match=r"of shape \(3, 2\) and dtype F16 takes 12 bytes, but 4 are given"):
        SafetensorsFile(write(tmp_path / "a", {"t": item(0, 4, [3, 2], "F16")}, bytes(4)))


def test_bytes_are_where_the_header_says(tmp_path: Path) -> None:
    """Also those of types that NumPy lacks, which are read in another way; empty tensors lie between the others."""
    data = np.arange(1, 7, dtype=np.float32)
    bits = (data.view(np.uint32) >> 16).astype(np.uint16)
    header = {
        "b": item(24, 36, [2, 3], "BF16"),
        "z": item(24, 24, [0, 4]),
        "a": item(0, 24, [6]),
        "__metadata__": {"x": "y"},
    }
    file = SafetensorsFile(write(tmp_path / "a", header, data.tobytes() + bits.tobytes()))
    assert list(file.entries) == ["a", "z", "b"]
    np.testing.assert_array_equal(file.read("a"), data)
    np.testing.assert_array_equal(file.read("b"), data.reshape(2, 3))
    assert file.read("z").shape == (0, 4)
    begin = (tmp_path / "a").stat().st_size - 36
    assert [(e.begin - begin, e.end - begin) for e in file.entries.values()] == [(0, 24), (24, 24), (24, 36)]


def test_messages_name_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a", {"t": item(0, 8, [2])}, bytes(7))
    size = path.stat().st_size
    with pytest.raises(
        ModelFormatError, match=f"is truncated: tensor 't' ends at byte {size + 1}, the file at {size};"
    ):
        SafetensorsFile(path)
    (tmp_path / "b").write_bytes(struct.pack("<Q", 3) + b"{}")
    with pytest.raises(
        ModelFormatError, match="is truncated or no safetensors file: it has 10 bytes, its header alone"
    ):
        SafetensorsFile(tmp_path / "b")
    (tmp_path / "b").write_bytes(struct.pack("<Q", 2) + b"{}")
    assert SafetensorsFile(tmp_path / "b").entries == {}


def test_names_behind_a_prefix(tmp_path: Path) -> None:
    header = {"model.a": item(0, 4, [1]), "model.b": item(4, 12, [2]), "c": item(12, 16, [1], "I32")}
    file = SafetensorsWeights(write(tmp_path / "a", header, np.arange(4, dtype=np.float32).tobytes()))
    assert list(file) == ["model.a", "model.b", "c"] and "a" not in file and file.shape("c") == (1,)
    with pytest.raises(ModelFormatError, match="'c' holds int32, weights must be floating point: use the model that"):
        file.read("c", (1,))
    file.prefix = "model."
    assert list(file) == ["a", "b"] and "a" in file and "c" not in file and "model.a" not in file
    assert file.shape("b") == (2,) and file.read("b", (2,)).tolist() == [1, 2]
    with pytest.raises(ModelFormatError, match=r"has no tensor 'model\.c'"):
        file.shape("c")
    bad = SafetensorsWeights(write(tmp_path / "b", {"n": item(0, 4, [1])}, np.float32(np.nan).tobytes()))
    with pytest.raises(ModelFormatError, match="'n' holds infinities or NaNs"):
        bad.read("n", (1,))


# -- folders -----------------------------------------------------------------------------------------------------------
def test_the_largest_text(tmp_path: Path) -> None:
    limit = 64 << 20
    with (tmp_path / "a").open("wb") as f:
        f.truncate(limit)
    assert len(read_text(tmp_path / "a")) == limit
    with (tmp_path / "a").open("wb") as f:
        f.truncate(limit + 1)
    with pytest.raises(ModelFormatError, match=f"has {limit + 1} bytes, more than the {limit} such a file may have"):
        read_text(tmp_path / "a")


def test_lists(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("[1, 2]")
    assert parse_json_list(read_text(tmp_path / "a"), "a") == [1, 2]
    (tmp_path / "a").write_text("{}")
    with pytest.raises(ModelFormatError, match="holds no JSON array"):
        parse_json_list(read_text(tmp_path / "a"), "a")


def test_values_at_their_bounds() -> None:
    c = Config(
        {"i": 3, "f": 1.5, "none": None, "long": "x" * 99, "ids": [0, (1 << 31) - 1], "part": {"a": {"b": 7}}}, "c"
    )
    assert c.integer("i", 3, 3) == 3 and c.number("f", 1.5, 1.5) == 1.5 and c.number("none", 0, 7, 7) == 7.0
    assert c.ids("ids") == (0, (1 << 31) - 1) and isinstance(c.number("i", 0, 9), float)
    for low, high in ((4, 9), (0, 2)):
        with pytest.raises(ModelFormatError, match=f"'i' must be an integer from {low} to {high}, found 3"):
            c.integer("i", low, high)
        with pytest.raises(ModelFormatError, match=f"'i' must be a number from {low} to {high}, found 3"):
            c.number("i", low, high)
    with pytest.raises(ModelFormatError) as error:
        c.flag("long")
    assert str(error.value) == f"c: 'long' must be true or false, found \"{'x' * 59}"
    ids: Any
    for ids in (-1, 1 << 31, True, "1", [1, -1], [1, 1 << 31], [1, None], {}):
        with pytest.raises(ModelFormatError, match="'ids' must be a token id or a list of them"):
            Config({"ids": ids}, "c").ids("ids")
    assert Config({"ids": []}, "c").ids("ids") == ()
    key = "k" * 5000  # a name may be as long as the file, a message may not
    for refused in (Config({key: 5}, "c"), Config({key: {"a": 5}}, "c").section(key)):
        assert refused is not None
        with pytest.raises(ModelFormatError) as error:
            refused.section(key if key in refused.values else "a")
        assert len(str(error.value)) < 300
    part = c.section("part")
    assert part is not None and part.section("a").integer("b", 0, 9) == 7
    with pytest.raises(ModelFormatError, match=r"^c, part lacks 'z' .a string.: the file is incomplete"):
        part.word("z")
    with pytest.raises(ModelFormatError, match=r"^c lacks 'z' .true or false."):
        c.flag("z")
    with pytest.raises(ModelFormatError, match=r"^c lacks 'z' .a number from 0 to 1e.06."):
        c.number("z", 0, 1e6)


def test_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": 1}')
    folder = ModelFolder(str(tmp_path))
    assert folder.config.values == {"a": 1} and folder.config.where == str(tmp_path / "config.json")
    assert folder.read_config("b.json", required=False).values == {}
    with pytest.raises(ModelFormatError, match=r"b\.json is missing"):
        folder.read_config("b.json")
    (tmp_path / "b.json").write_text('{"b": 2}')
    assert folder.read_config("b.json", required=False).values == {"b": 2}
    write(tmp_path / "model.safetensors", {"t": item(0, 2, [1], "BF16")}, b"\x80\x3f")
    weights = folder.weights()
    assert weights.read("t", (1,)).tolist() == [1.0] and weights.dtype("t").name == "bfloat16"
    assert weights.entry("t").shape == (1,)
    assert list(Checkpoint.of_file(tmp_path / "model.safetensors")) == ["t"]
    with pytest.raises(ModelFormatError, match=f"the checkpoint in {tmp_path} has no tensor 'u'"):
        Checkpoint.of_file(tmp_path / "model.safetensors").entry("u")


def test_which_checkpoint_is_taken(tmp_path: Path) -> None:
    """The whole one, its shards, the one of half floats, its shards: the first there is."""
    names = ["m.safetensors.index.fp16.json", "m.fp16.safetensors", "m.safetensors.index.json", "m.safetensors"]
    with pytest.raises(ModelFormatError, match=r"holds no m\.safetensors and no m\.safetensors\.index\.json: download"):
        Checkpoint(tmp_path, "m")
    for i, name in enumerate(names):
        file = f"part{i}.safetensors" if name.endswith("json") else name
        write(tmp_path / file, {f"t{i}": item(0, 4, [1])}, bytes(4))
        if name.endswith("json"):
            (tmp_path / name).write_text(json.dumps({"weight_map": {f"t{i}": file}}))
        assert list(Checkpoint(tmp_path, "m")) == [f"t{i}"]


def test_as_many_shards_as_allowed(tmp_path: Path) -> None:
    def names(count: int) -> None:
        where = {str(i): f"{i:04}.safetensors" for i in range(count)}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))

    names(4096)
    with pytest.raises(ModelFormatError, match=r"0000\.safetensors cannot be read"):
        Checkpoint(tmp_path)
    names(4097)
    with pytest.raises(ModelFormatError, match="names 4097 files, more than the limit of 4096; refused"):
        Checkpoint(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "x/" * 99}}))
    with pytest.raises(ModelFormatError) as error:
        Checkpoint(tmp_path)
    assert f"names the file {('x/' * 40)!r}, which is no safetensors file" in str(error.value)
    for where in ({"a": 1}, {"a": "b.safetensors", "c": None}, "a"):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
        with pytest.raises(ModelFormatError, match="has no 'weight_map' from tensor names to files"):
            Checkpoint(tmp_path)


# -- checkpoints -------------------------------------------------------------------------------------------------------
def saved(path: Path, value: object, files: dict[str, bytes] | None = None, **data: bytes) -> TorchCheckpoint:
    archive(path / "x.pt", dump(value), **(data or {"0": np.arange(4, dtype=np.float32).tobytes()}))
    if files:
        with zipfile.ZipFile(path / "x.pt", "a") as z:
            for name, content in files.items():
                z.writestr(name, content)
    return TorchCheckpoint(path / "x.pt")


FITTING: list[tuple[tuple[Any, ...], Any]] = [
    ((0, (4,), (1,)), [0, 1, 2, 3]),
    ((3, (1,), (1,)), [3]),
    ((1, (3,), (1,)), [1, 2, 3]),
    ((0, (2, 2), (1, 2)), [[0, 2], [1, 3]]),
    ((0, (2,), (3,)), [0, 3]),
    ((1, (2, 2), (0, 1)), [[1, 2], [1, 2]]),
    ((1, (2,), (0,)), [1, 1]),
    ((2, (), ()), 2),
    ((0, (1,) * 8, (1,) * 8), [[[[[[[[0]]]]]]]]),
    ((9, (0, 3), (3, 1)), np.zeros((0, 3))),
    ((0, (0, (1 << 62) - 1), (1, 1)), None),
]
UNFITTING: list[tuple[tuple[Any, ...], str]] = [
    ((4, (1,), (1,)), r"a tensor of shape \(1,\) beyond the 4 numbers it is of"),
    ((2, (2,), (2,)), r"a tensor of shape \(2,\) beyond the 4 numbers it is of"),
    ((0, (5,), (0,)), r"a tensor of shape \(5,\) that repeats 4 numbers"),
    ((0, (1,) * 9, (1,) * 9), "cannot be"),
    ((0, (0, 1 << 62), (1, 1)), "cannot be"),
    ((0, (2,), (1 << 62,)), "cannot be"),
    ((True, (2,), (1,)), "cannot be"),
    ((0, (2,), (1.0,)), "cannot be"),
    ((0, (2,), [1]), "cannot be"),
    ((0, [2], (1,)), "cannot be"),
    ((0, (-1,), (1,)), "cannot be"),
    ((0, (2, 2), (1,)), "cannot be"),
]


@pytest.mark.parametrize(("view", "want"), FITTING, ids=lambda v: str(v)[:40])
def test_views_that_fit(view: tuple[Any, ...], want: Any, tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, {"w": Rebuilt(Storage(4), *view)})
    assert checkpoint.shape("w") == view[1]
    if want is not None:
        np.testing.assert_array_equal(checkpoint.read("w", view[1]), np.array(want, np.float32))


@pytest.mark.parametrize(("view", "message"), UNFITTING, ids=lambda v: str(v)[:40])
def test_views_that_do_not(view: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=message):
        saved(tmp_path, {"w": Rebuilt(Storage(4), *view)})


def test_every_type_of_storage(tmp_path: Path) -> None:
    for kind in ("Float", "Half", "Double", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"):
        storage = getattr(torch, f"{kind}Storage")
        values = torch.tensor([1, 0, 1], dtype=storage.dtype)
        bits = values.view(torch.uint8).numpy().tobytes()
        checkpoint = saved(tmp_path, {"w": Rebuilt(Storage(3, "k", storage), 0, (3,), (1,))}, k=bits)
        if values.dtype.is_floating_point:
            assert checkpoint.read("w", (3,)).tolist() == [1, 0, 1]
        else:
            name = str(values.dtype).removeprefix("torch.")
            with pytest.raises(ModelFormatError, match=f"'w' holds {name}, weights must be floating point"):
                checkpoint.read("w", (3,))
    for count in (-1, 1.5):
        with pytest.raises(ModelFormatError, match="its description holds numbers of a kind that is not known"):
            saved(tmp_path, {"w": Rebuilt(Storage(count), 0, (1,), (1,))})
    assert saved(tmp_path, {"w": Rebuilt(Storage(0, "k"), 0, (0,), (1,))}, k=b"").read("w", (0,)).size == 0


class OfType:
    """A tensor of a class of its own, as torch.save writes it."""

    def __init__(self, make: Any, args: Any):
        self.made: Any = (torch._tensor._rebuild_from_type_v2, (make, torch.nn.Parameter, args, {}))

    def __reduce__(self):
        return self.made


class StorageKey:
    def __reduce__(self):
        return torch._utils._rebuild_parameter, (Rebuilt(Storage(4), 1, (2,), (1,)), True, OrderedDict())


def test_tensors_of_other_kinds(tmp_path: Path) -> None:
    args: Any = (Storage(4), 1, (3,), (1,), False, OrderedDict())
    held = {"sub": OfType(torch._utils._rebuild_tensor_v2, args), "parameter": StorageKey()}
    checkpoint = saved(tmp_path, held)
    assert checkpoint.read("sub", (3,)).tolist() == [1, 2, 3] and checkpoint.read("parameter", (2,)).tolist() == [1, 2]
    for wrong in (OfType(torch.zeros, args), OfType(torch._utils._rebuild_tensor_v2, list(args)), OfType([], args)):
        with pytest.raises(ModelFormatError, match="describes a tensor of a kind that is not known"):
            saved(tmp_path, {"w": wrong})


def test_what_is_taken_of_a_dictionary(tmp_path: Path) -> None:
    """ema before model before state_dict, where these are dictionaries or modules; else the tensors in it."""
    one, two, three, four = (Rebuilt(Storage(4), i, (1,), (1,)) for i in range(4))
    whole: dict[str | None, Any] = {"ema": {"w": one}, "model": {"w": two}, "state_dict": {"w": three}, "w": four}
    for missing in (None, "ema", "model", "state_dict"):
        whole.pop(missing, None)
        want = next(["ema", "model", "state_dict", "w"].index(k) for k in whole)
        checkpoint = saved(tmp_path, whole)
        assert checkpoint.read("w", (1,)).tolist() == [want] and checkpoint.attribute("names") is None
    found = saved(
        tmp_path, {"ema": None, "model": 3, "state_dict": [1], "w": one, 5: two, "text": "x", "n": {"w": one}}
    )
    assert list(found) == ["w"]
    nothing: Any
    for nothing in ({}, {"ema": {}}, {"ema": {}, "w": one}, [one], {5: one}, one, "text"):
        with pytest.raises(ModelFormatError, match="holds no tensors by name: save the model or its state_dict"):
            saved(tmp_path, nothing)


def test_what_is_taken_of_a_module(tmp_path: Path) -> None:
    module: Any = torch.nn.Linear(2, 1, bias=False)
    inner = torch.nn.Linear(1, 1)
    module._modules.update({"in": inner, "none": None, "odd": 5})
    module._modules[7] = inner
    module._parameters[3] = inner.weight
    inner.__dict__["_buffers"] = 5
    odd = torch.nn.Linear(1, 1)
    odd.__dict__["_modules"] = [5]
    module._modules["list"] = odd
    torch.save(module, tmp_path / "x.pt")
    found = TorchCheckpoint(tmp_path / "x.pt")
    assert sorted(found) == ["in.bias", "in.weight", "list.bias", "list.weight", "weight"]
    assert found.attribute("in_features") == 2 and found.attribute("nothing") is None


def test_modules_in_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nest(depth: int) -> TorchCheckpoint:
        module: torch.nn.Module = torch.nn.Linear(1, 1)
        for _ in range(depth):
            outer = torch.nn.Module()
            outer._modules["m"] = module
            module = outer
        torch.save(module, tmp_path / "x.pt")
        return TorchCheckpoint(tmp_path / "x.pt")

    assert list(nest(64)) == ["m." * 64 + "weight", "m." * 64 + "bias"]
    with pytest.raises(ModelFormatError, match="nests modules without end"):
        nest(65)
    assert torch_checkpoint.MAX_TENSORS == 100_000
    monkeypatch.setattr(torch_checkpoint, "MAX_TENSORS", 5)
    assert len(list(nest(4))) == 2
    with pytest.raises(ModelFormatError, match="nests modules without end"):
        nest(5)


def test_files_of_an_archive(tmp_path: Path) -> None:
    good = {"w": Rebuilt(Storage(4), 0, (4,), (1,))}
    extra = {"x/byteorder": b"little", "x/.data/serialization_id": b"1", "x/y/data.pkl": b"", "readme": b""}
    assert saved(tmp_path, good, extra).read("w", (4,))[3] == 3
    with pytest.raises(ModelFormatError, match="was saved on a big-endian machine: save it again on another"):
        saved(tmp_path, good, {"x/byteorder": b"big"})
    with pytest.raises(ModelFormatError, match="was saved on a big-endian machine"):
        saved(tmp_path, good, {"x/byteorder": b"b" * 16})
    with pytest.raises(ModelFormatError, match="byteorder has 17 bytes where 16 are expected"):
        saved(tmp_path, good, {"x/byteorder": b"b" * 17})
    with pytest.raises(ModelFormatError, match=r"it has no data\.pkl"):
        saved(tmp_path, good, {"y/data.pkl": b"N."})
    for size in (15, 17):
        found = saved(tmp_path, good, **{"0": bytes(size)})
        with pytest.raises(ModelFormatError, match=f"data/0 has {size} bytes where 16 are expected"):
            found.read("w", (4,))
    limit = 32 << 20
    with pytest.raises(ModelFormatError, match="its description is damaged"):
        TorchCheckpoint(archive(tmp_path / "y.pt", b"." + bytes(limit - 1)))
    with pytest.raises(ModelFormatError, match=rf"data\.pkl has {limit + 1} bytes where {limit} are expected"):
        TorchCheckpoint(archive(tmp_path / "y.pt", b"." + bytes(limit)))


def test_flags_of_an_archive(tmp_path: Path) -> None:
    """Bit 0 says that a file is encrypted; the others are no reason to refuse."""
    good = {"w": Rebuilt(Storage(4), 0, (4,), (1,))}
    for bit in (0, 1, 11):
        saved(tmp_path, good)
        content = bytearray((tmp_path / "x.pt").read_bytes())
        for mark, place in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
            at = content.index(mark, content.index(mark) + 1) + place  # of data/0
            content[at : at + 2] = struct.pack("<H", struct.unpack_from("<H", content, at)[0] | 1 << bit)
        (tmp_path / "x.pt").write_bytes(content)
        if bit:
            assert TorchCheckpoint(tmp_path / "x.pt").read("w", (4,))[2] == 2
        else:
            with pytest.raises(
                ModelFormatError, match=r"data/0 is compressed or encrypted, which torch.save never does"
            ):
                TorchCheckpoint(tmp_path / "x.pt").read("w", (4,))
    (tmp_path / "x.pt").write_bytes(b"P")
    with pytest.raises(ModelFormatError, match=r"is no PyTorch checkpoint of version 1.6 or later"):
        TorchCheckpoint(tmp_path / "x.pt")
    (tmp_path / "x.pt").write_bytes(b"PK")
    with pytest.raises(ModelFormatError, match="is truncated or damaged: download the file again"):
        TorchCheckpoint(tmp_path / "x.pt")


# -- chat templates ----------------------------------------------------------------------------------------------------
def test_the_longest_template() -> None:
    limit = 1 << 20
    assert len(ChatTemplate("x" * limit, "t", {}).render([])) == limit
    with pytest.raises(
        ModelFormatError, match=f"t: a chat template of {limit + 1} characters is beyond the limit of {limit}"
    ):
        ChatTemplate("x" * (limit + 1), "t", {})
