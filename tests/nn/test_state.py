"""State dicts: names, loading, files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.tensor.ops import data
from tinyweb import Tensor, dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save


class Layer:
    def __init__(self, seed: int) -> None:
        self.weight, self.bias = Tensor(data(3, 2, seed=seed)), Tensor(data(2, seed=seed))
        self._cache = Tensor(data(1))


@dataclass
class Model:
    layers: list[Layer] = field(default_factory=lambda: [Layer(1), Layer(2)])
    table: dict[str, Any] = field(default_factory=lambda: {"a": Tensor([1, 2]), "b": (Tensor([1.5]),)})
    name: str = "model"


def test_names_are_paths() -> None:
    model = Model()
    assert list(get_state_dict(model)) == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "table.a", "table.b.0",
    ]  # fmt: skip
    assert get_state_dict(model, "x")["x.table.a"] is model.table["a"]


def test_a_model_may_refer_to_itself() -> None:
    layer: Any = Layer(0)
    layer.parent = {"child": layer}
    assert list(get_state_dict(layer)) == ["weight", "bias"]


def test_parameters() -> None:
    model = Model()
    assert len(get_parameters(model)) == 5  # all floats, as nothing says more
    model.layers[0].weight.requires_grad_()
    assert get_parameters([model, model]) == [model.layers[0].weight]


def test_loading_writes_into_the_memory_of_the_model() -> None:
    a, b = Model(), Model([Layer(5), Layer(6)])
    before = a.layers[1].bias * 1
    load_state_dict(a, get_state_dict(b))
    np.testing.assert_array_equal(a.layers[1].weight.numpy(), data(3, 2, seed=6))
    np.testing.assert_array_equal(b.layers[1].weight.numpy(), data(3, 2, seed=6))
    np.testing.assert_array_equal(before.numpy(), data(2, seed=2))


def test_nothing_changes_when_something_does_not_fit() -> None:
    model = Model()
    state = get_state_dict(Model([Layer(5), Layer(6)]))
    with pytest.raises(KeyError, match=r"missing from the state: layers\.0\.bias; unknown to the model: other"):
        load_state_dict(model, {**{k: v for k, v in state.items() if k != "layers.0.bias"}, "other": Tensor([1.0])})
    with pytest.raises(ValueError, match=r"layers\.1\.bias is \(3,\), the model needs \(2,\)"):
        load_state_dict(model, {**state, "layers.1.bias": Tensor(data(3))})
    np.testing.assert_array_equal(model.layers[0].weight.numpy(), data(3, 2, seed=1))
    load_state_dict(model, {"layers.0.bias": Tensor([7.0, 8.0]), "other": Tensor([1.0])}, strict=False)
    assert model.layers[0].bias.tolist() == [7.0, 8.0]


TYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
    "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2",
]  # fmt: skip


def test_files_hold_every_type(tmp_path: Path) -> None:
    state = {name: Tensor([[0, 1, 3]], dtype=getattr(dtypes, name)) for name in TYPES}
    state["empty"], state["number"] = Tensor(np.zeros((0, 3), np.float32)), Tensor(2.5)
    file = tmp_path / "a.safetensors"
    safe_save(state, file, {"made": "here"})
    loaded = safe_load(file)
    assert {n: (t.shape, t.dtype) for n, t in loaded.items()} == {n: (t.shape, t.dtype) for n, t in state.items()}
    for name, t in loaded.items():
        np.testing.assert_array_equal(t.numpy(), state[name].numpy())
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_files_are_those_of_pytorch(tmp_path: Path) -> None:
    safe_save({"w": Tensor(data(2, 3)), "h": Tensor(data(3), dtype=dtypes.bfloat16)}, tmp_path / "a.safetensors")
    theirs = safetensors.torch.load_file(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(theirs["w"].numpy(), data(2, 3))
    assert theirs["h"].dtype is torch.bfloat16
    safetensors.torch.save_file({"x": torch.arange(4).half()}, tmp_path / "b.safetensors")
    assert safe_load(tmp_path / "b.safetensors")["x"].tolist() == [0, 1, 2, 3]


def test_errors_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="w is int4, which safetensors files cannot hold"):
        safe_save({"w": Tensor([1, 2], dtype=dtypes.int4)}, tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "b.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(ModelFormatError, match="truncated"):
        safe_load(tmp_path / "b.safetensors")
