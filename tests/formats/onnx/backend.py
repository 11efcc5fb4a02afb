"""The tests of the `onnx` package, run on OnnxModel: its backend interface, cases by name, and what came of each."""

from __future__ import annotations

import functools
import importlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, helper
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from tinyweb import Tensor
from tinyweb.formats.onnx import OnnxModel, Port

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "onnx.md"


class Prepared(BackendRep):
    """A model whose inputs and outputs are NumPy arrays of ONNX's types, those of `ml_dtypes` among them."""

    def __init__(self, model: OnnxModel, device: str):
        self.model, self.device = model, device

    def run(self, inputs: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        ports = self.model.graph.inputs
        given = {p.name: self.given(x, p) for p, x in zip(ports, inputs)}
        results = self.model(**given)
        return tuple(self.plain(results[p.name], p) for p in self.model.outputs)

    def given(self, x: Any, port: Port) -> Any:
        if x is None or isinstance(x, list):
            return x if x is None else [self.given(v, port) for v in x]
        x = np.asarray(x)
        if port.dtype is None:
            return x.astype(object)
        held = np.ascontiguousarray(x.astype(port.dtype.numpy)).reshape(x.shape)
        return Tensor(held, dtype=port.dtype, device=self.device)

    def plain(self, x: Any, port: Port) -> Any:
        if isinstance(x, list):
            return [self.plain(v, port) for v in x]
        if not isinstance(x, Tensor):
            return x
        values = np.asarray(x.numpy())
        return values if port.kind is None else values.astype(helper.tensor_dtype_to_np_dtype(port.kind.number))


class TinywebBackend(Backend):
    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> Prepared:
        return Prepared(OnnxModel(model.SerializeToString()), device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def run_node(case: TestCase, device: str) -> None:
    """Raises where a case of one node gives something else than it should."""
    assert case.data_sets is not None
    prepared = TinywebBackend.prepare(case.model, device)
    Tensor.manual_seed(0)  # what draws without a seed fails every time, or never
    for inputs, wanted in case.data_sets:
        got = prepared.run([_array(x) for x in inputs])
        compare([_array(x) for x in wanted], got, case)


def compare(wanted: Sequence[Any], got: Sequence[Any], case: TestCase) -> None:
    """As the package compares, which fails by itself for a sequence that holds a number."""
    assert len(wanted) == len(got)
    for w, g in zip(wanted, got):
        if isinstance(w, list):
            compare(w, g, case)
        else:
            Runner.assert_similar_outputs([w], [g], case.rtol, case.atol)


def _array(x: Any) -> Any:
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else x


@functools.cache
def node_cases() -> dict[str, TestCase]:
    """All cases of one node. Making them takes the package 15 seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {c.name: c for c in load_model_tests(kind="node")}


def cases_of(modules: Iterable[str]) -> dict[str, TestCase]:
    """The cases of some operators alone, by the modules that make them."""
    from onnx.backend.test.case import node

    names = set(modules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            importlib.import_module(f"onnx.backend.test.case.node.{name}")
    return {c.name: c for c in node._NodeTestCases}


def file_cases(kind: str) -> dict[str, TestCase]:
    return {c.name: c for c in load_model_tests(kind=kind) if c.model_dir is not None}


def run_file(case: TestCase, device: str) -> None:
    """The same for a model in a folder, with its inputs and outputs."""
    import onnx
    from onnx import numpy_helper

    assert case.model_dir is not None
    folder = Path(case.model_dir)
    prepared = Prepared(OnnxModel(folder / "model.onnx"), device)
    types = onnx.load(folder / "model.onnx").graph

    def read(path: Path, kind: Any) -> Any:
        if kind.HasField("sequence_type"):
            sequence = onnx.SequenceProto()
            sequence.ParseFromString(path.read_bytes())
            return numpy_helper.to_list(sequence)
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(tensor)

    def all_of(data: Path, name: str, ports: Any) -> list[Any]:
        count = len(list(data.glob(f"{name}_*.pb")))
        return [read(data / f"{name}_{i}.pb", ports[i].type) for i in range(count)]

    for data in sorted(folder.glob("test_data_set*")):
        got = prepared.run(all_of(data, "input", types.input))
        compare(all_of(data, "output", types.output), got, case)


def failures(cases: dict[str, TestCase], run: Callable[[TestCase, str], None], device: str) -> dict[str, str]:
    """Names of cases that fail, and how."""
    found = {}
    for name, case in cases.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run(case, device)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as e:
            found[name] = f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
    return found


def listed(device: str = "CPU") -> set[str]:
    """The cases that docs/onnx.md says do not pass: `| device, or all | reason | cases |`."""
    found: set[str] = set()
    for line in DOCUMENT.read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 3 and (cells[0] == "all" or device in cells[0]):
            found.update(re.findall(r"`(test_\w+)`", cells[2]))
    return found


os.environ.setdefault("ONNX_HOME", "/nonexistent")  # nothing is fetched
