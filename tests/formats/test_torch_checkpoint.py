"""PyTorch checkpoints are read as data: nothing in them runs, and hostile ones are refused in a sentence."""

import io
import os
import pickle
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyweb.errors import ModelFormatError
from tinyweb.formats.torch_checkpoint import TorchCheckpoint
from tinyweb.formats.torch_pickle import Instance, Name, PickleError, read_pickle


def inert(data: bytes) -> Any:
    return read_pickle(data, {}, lambda identifier: ("outside", identifier))


@pytest.mark.parametrize("protocol", range(6))
def test_values(protocol: int) -> None:
    shared = ["a", 1]
    value: Any = {"none": None,
             "numbers": [0, 1, -5, 2**40, -(2**70), 1.5, True, False], "text": "äß", "bytes": b"\0\xff",
             "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), "twice": [shared, shared], 3: {}}  # fmt: skip
    if protocol < 3:
        del value["bytes"]  # made by a call there
    assert inert(pickle.dumps(value, protocol)) == value


def test_what_is_called_stays_inert(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    for protocol in range(6):
        found = inert(pickle.dumps({"x": Bomb()}, protocol))["x"]
        assert isinstance(found, Instance)
        assert found.kind.name == "system" and found.args == (f"touch {tmp_path / 'ran'}",)
    torch.save({"w": torch.ones(2), "bomb": Bomb()}, tmp_path / "bomb.pt")
    assert TorchCheckpoint(tmp_path / "bomb.pt").read("w", (2,)).tolist() == [1, 1]
    assert not (tmp_path / "ran").exists()


def test_tensors(tmp_path: Path) -> None:
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    held = {
        "whole": base, "turned": base.T, "part": base[1:3, ::2], "half": base.half(), "brain": base.bfloat16(),
        "double": base.double(), "scalar": torch.tensor(3.0), "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(base),
    }  # fmt: skip
    torch.save(held, tmp_path / "x.pt")
    checkpoint = TorchCheckpoint(tmp_path / "x.pt")
    for name, t in held.items():
        np.testing.assert_array_equal(checkpoint.read(name, tuple(t.shape)), t.detach().float().numpy())
    with pytest.raises(ModelFormatError, match=r"'whole' has shape \(4, 6\) where \(6, 4\) is expected"):
        checkpoint.read("whole", (6, 4))
    with pytest.raises(ModelFormatError, match="has no tensor 'other'"):
        checkpoint.read("other", (1,))


def test_modules(tmp_path: Path) -> None:
    """The names of state_dict(); the moving average counts."""
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 1), torch.nn.Sequential(torch.nn.BatchNorm2d(3)))
    vars(module)["names"] = {0: "cat"}  # as a detector has them: a module's annotations allow tensors alone
    for name, saved in {"alone": module, "model": {"model": module, "ema": None},
                        "ema": {"model": torch.nn.Linear(1, 1), "ema": module}}.items():  # fmt: skip
        torch.save(saved, tmp_path / f"{name}.pt")
        checkpoint = TorchCheckpoint(tmp_path / f"{name}.pt")
        assert {n: checkpoint.shape(n) for n in checkpoint} == {
            n: tuple(t.shape) for n, t in module.state_dict().items()
        }
        assert checkpoint.attribute("names") == {0: "cat"}
    torch.save({"state_dict": module.state_dict()}, tmp_path / "lightning.ckpt")
    assert "1.0.running_var" in TorchCheckpoint(tmp_path / "lightning.ckpt")


def archive(path: Path, description: bytes, compression: int = zipfile.ZIP_STORED, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as z:
        z.writestr("x/data.pkl", description)
        for name, content in files.items():
            z.writestr(f"x/data/{name}", content)
    return path


class _Outside(pickle.Pickler):
    def persistent_id(self, obj: object) -> object:
        return obj.identifier if isinstance(obj, Storage) else None


class Storage:
    def __init__(self, count: Any, key: str = "0", kind: Any = torch.FloatStorage):
        self.identifier = ("storage", kind, key, "cpu", count)


class Rebuilt:
    def __init__(self, *args: Any):
        self.args = args

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, (*self.args, False, OrderedDict())


def dump(value: object) -> bytes:
    out = io.BytesIO()
    _Outside(out, 2).dump(value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Storage(4), 0, (5,), (1,)), "beyond the 4 numbers"),
        ((Storage(4), 2, (2, 2), (2, 1)), "beyond the 4 numbers"),
        ((Storage(4), 0, (1 << 20, 1 << 20), (0, 0)), "repeats 4 numbers"),
        ((Storage(4), 0, (1 << 62,), (0,)), "cannot be"),
        ((Storage(4), -1, (2,), (1,)), "cannot be"),
        ((Storage(4), 3, (2,), (-1,)), "cannot be"),
        ((Storage(4), 0, (2,), (1, 1)), "cannot be"),
        ((Storage(4), 0, "ab", "cd"), "cannot be"),
        ((Storage(-4), 0, (2,), (1,)), "of a kind that is not known"),
        ((Storage(4, kind=os.system), 0, (2,), (1,)), "of a kind that is not known"),
        (([1, 2], 0, (2,), (1,)), "cannot be"),
    ],
)
def test_impossible_tensors(arguments: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=message):
        TorchCheckpoint(archive(tmp_path / "x.pt", dump({"w": Rebuilt(*arguments)}), **{"0": bytes(16)}))


def test_damaged_archives(tmp_path: Path) -> None:
    def refuse(path: Path, message: str) -> None:
        with pytest.raises(ModelFormatError, match=message):
            TorchCheckpoint(path).read("w", (4,))

    good = dump({"w": Rebuilt(Storage(4), 0, (4,), (1,))})
    assert TorchCheckpoint(archive(tmp_path / "good.pt", good, **{"0": bytes(16)})).read("w", (4,)).shape == (4,)
    refuse(tmp_path / "none.pt", "cannot be read: No such file")
    (tmp_path / "old.pt").write_bytes(pickle.dumps(1))
    refuse(tmp_path / "old.pt", "no PyTorch checkpoint of version 1.6 or later")
    refuse(archive(tmp_path / "missing.pt", good), "lacks data/0")
    refuse(archive(tmp_path / "short.pt", good, **{"0": bytes(12)}), "has 12 bytes where 16 are expected")
    bomb = archive(tmp_path / "bomb.pt", good, zipfile.ZIP_DEFLATED, **{"0": bytes(16)})
    refuse(bomb, "compressed or encrypted")
    refuse(archive(tmp_path / "empty.pt", dump({})), "holds no tensors by name")
    listed = archive(tmp_path / "listed.pt", good, **{"0": bytes(16)}).read_bytes()
    at = listed.rindex(b"PK\x01\x02") + 20  # where the archive's list has how many bytes of data/0 are stored
    (tmp_path / "listed.pt").write_bytes(listed[:at] + b"\xf0\xff\xff\x7f" + listed[at + 4 :])
    refuse(tmp_path / "listed.pt", "of which 2147483632 are stored")
    refuse(archive(tmp_path / "pickle.pt", b"\x80\x02}"), "its description is damaged")
    with zipfile.ZipFile(tmp_path / "zip.pt", "w") as z:
        z.writestr("readme", "x")
    refuse(tmp_path / "zip.pt", "no data.pkl")
    whole = (tmp_path / "good.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) - 30])
    refuse(tmp_path / "cut.pt", "truncated or damaged")
    at = whole.index(good)
    (tmp_path / "bit.pt").write_bytes(whole[: at + 5] + b"\xff" + whole[at + 6 :])
    refuse(tmp_path / "bit.pt", "cannot be read|damaged")


def nested(opcode: bytes, depth: int) -> bytes:
    return b"\x80\x02K\x01" + opcode * depth + b"."


def test_hostile_pickles() -> None:
    """Deep nesting, keys that hash slowly, modules without end."""
    assert inert(nested(b"\x85", 50_000)) is not None  # a tuple of a tuple of a tuple …
    with pytest.raises(PickleError, match="has a tuple as the key"):
        inert(b"\x80\x02}K\x01" + b"\x85" * 50_000 + b"K\x02s.")
    with pytest.raises(PickleError, match="has a int as the key"):
        inert(pickle.dumps({2**61 - 1: 0}))
    with pytest.raises(PickleError, match="more than"):
        inert(b"\x80\x02" + b"N0" * 500_100 + b"N.")
    with pytest.raises(PickleError, match="EXT1, which has no place"):
        inert(b"\x80\x02\x82\x01.")
    for damaged in (b".", b"\x80\x02.", b"0.", b"\x80\x02(.", b"h\x07.", b"\x80\x02(K\x01K\x02s.", b"}]s.", b"\xff"):
        with pytest.raises(PickleError):
            inert(damaged)


def test_modules_without_end(tmp_path: Path) -> None:
    """A module that contains itself; then twenty-five, each twice in the next: thirty million in all."""
    loop = torch.nn.Module()
    loop._modules["again"] = loop
    torch.save(loop, tmp_path / "loop.pt")
    with pytest.raises(ModelFormatError, match="nests modules without end"):
        TorchCheckpoint(tmp_path / "loop.pt")
    module = torch.nn.Module()
    for _ in range(25):
        outer = torch.nn.Module()
        outer._modules.update(a=module, b=module)
        module = outer
    torch.save(module, tmp_path / "tree.pt")
    with pytest.raises(ModelFormatError, match="nests modules without end"):
        TorchCheckpoint(tmp_path / "tree.pt")


def test_any_bytes_are_refused_or_read() -> None:
    """Damage anywhere in a real description ends in a value or in a PickleError, and in each of them often."""
    outcomes: Counter[bool] = Counter()
    with_damage(outcomes)
    assert min(outcomes[True], outcomes[False]) >= 20, outcomes


@settings(max_examples=300)
@given(data=st.data())
def with_damage(outcomes: Counter[bool], data: st.DataObject) -> None:
    good = dump({"w": Rebuilt(Storage(4), 0, (4,), (1,)), "more": [1, {"a": (2.5, None)}], "named": Name})
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        inert(bytes(changed))
        outcomes[True] += 1
    except PickleError:
        outcomes[False] += 1
