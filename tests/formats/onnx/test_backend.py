"""The backend tests of the `onnx` package: all of them but those that docs/onnx.md lists pass, and those do not."""

from __future__ import annotations

import pytest

from tests.formats.onnx.backend import cases_of, failures, file_cases, listed, node_cases, run_file, run_node

# a few operators of every family, whose cases are made quickly
SAMPLE = (
    "abs", "add", "argmax", "averagepool", "castlike", "clip", "compress", "concat", "constantofshape", "cumsum",
    "depthtospace", "dynamicquantizelinear", "einsum", "eyelike", "gathernd", "gemm", "globalaveragepool", "hardmax",
    "if_", "isinf", "loop", "lrn", "matmulinteger", "nonmaxsuppression", "onehot", "optionalgetelement", "pad",
    "qlinearconv", "rangeop", "reshape", "reversesequence", "rnn", "scan", "scatternd", "sequenceinsert", "shape",
    "slice", "softplus", "spacetodepth", "split", "squeeze", "string_split", "tile", "topk", "transpose", "trilu",
    "unique", "where",
)  # fmt: skip
ONE_OF = 6  # cases of the sample, of which one runs


def test_a_sample_of_the_nodes() -> None:
    cases = cases_of(SAMPLE)
    assert len(cases) > 150
    some = {name: case for i, (name, case) in enumerate(sorted(cases.items())) if i % ONE_OF == 0}
    assert failures(some, run_node, "CPU") == {}


def test_the_list_names_cases_that_exist() -> None:
    assert len(listed("CPU")) < 38, "more than 2 % do not pass"
    assert all(name.startswith("test_") for name in listed("CPU") | listed("WASM") | listed("WEBGPU"))


@pytest.mark.slow
@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU"])
def test_every_node(device: str) -> None:
    cases = node_cases()
    failed = failures(cases, run_node, device)
    least = 0.98 if device == "CPU" else 0.95
    assert len(failed) <= (1 - least) * len(cases)
    unexpected = {name: how for name, how in failed.items() if name not in listed(device)}
    assert unexpected == {}, f"{len(unexpected)} cases fail that docs/onnx.md does not list"
    assert listed(device) & cases.keys() <= failed.keys(), "docs/onnx.md lists cases that pass"


@pytest.mark.slow
@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU"])
@pytest.mark.parametrize("kind", ["simple", "pytorch-operator", "pytorch-converted"])
def test_every_file(kind: str, device: str) -> None:
    failed = failures(file_cases(kind), run_file, device)
    assert {name: how for name, how in failed.items() if name not in listed(device)} == {}
    assert listed(device) & file_cases(kind).keys() <= failed.keys()
