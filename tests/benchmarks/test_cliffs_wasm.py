"""Works in WebAssembly: their ONNX graphs, what is exported together, our side in Chromium, the table."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cliffs.onnx_graph import Graph, NoGraph, graph_of
from benchmarks.cliffs.wasm import OURS, TOGETHER, TOGETHER_BYTES, Pages, Result, batches, identifier, line, summary
from benchmarks.cliffs.work import Work, alike, needs, normal
from benchmarks.cliffs.works import WORKS
from tinyweb.tensor import Tensor


def ops(graph: Graph) -> Counter[str]:
    return Counter(op for op, *_ in graph.nodes if op != "Identity")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("matmul-tiny-5x7x3", {"MatMul": 1}),
        ("gelu-tanh", {"Gelu": 1}),
        ("conv-depthwise-5x5", {"Conv": 1}),
        ("layer-norm-384", {"LayerNormalization": 1}),
        ("attention-head-32", {"Mul": 1, "Transpose": 1, "MatMul": 2, "Softmax": 1}),
        (
            "attention-grouped-256x256",
            {"Mul": 1, "Transpose": 1, "MatMul": 2, "Softmax": 1, "Reshape": 4, "Expand": 2},
        ),
        ("topk-8-of-10000", {"TopK": 1}),
        ("interpolate-bilinear-2", {"Resize": 1}),
        ("scatter-add", {"ScatterElements": 1}),
        ("pad-reflect", {"Pad": 1}),
    ],
)
def test_graphs(name: str, expected: dict[str, int]) -> None:
    """Every value is made before it is read, and inputs have the shapes and dtypes of the work's."""
    graph, arrays = graph_of(WORKS[name]), WORKS[name].arrays()
    assert ops(graph) == expected
    known = {"", *graph.inputs, *graph.constants}
    for _, inputs, outputs, _ in graph.nodes:
        assert known.issuperset(inputs)
        known.update(outputs)
    assert known.issuperset(graph.outputs) and graph.outputs
    for input, shape in graph.inputs.items():
        given = arrays[int(input[1:])]
        assert shape == given.shape and graph.types[input] == str(given.dtype)


@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_stay_so(bits: int, tmp_path: Path) -> None:
    """The peer multiplies with the same integers and scales: unpacked they are what PyTorch gets."""
    work = WORKS[f"q{bits}-group-32-rows-16"]
    graph = graph_of(work)
    assert ops(graph) == {"com.microsoft::MatMulNBits": 1} and list(graph.inputs) == ["a0"]
    _, inputs, _, attributes = graph.nodes[0]
    packed, scales = (graph.constants[name] for name in inputs[1:])
    integers = packed if bits == 8 else np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)
    dense = (integers - np.float32(1 << (bits - 1))) * scales[..., None]
    np.testing.assert_array_equal(dense.reshape(1024, 1024), work.arrays()[3])
    assert attributes == {"K": 1024, "N": 1024, "bits": bits, "block_size": 32, "accuracy_level": 1}
    rounded = graph_of(WORKS[f"q{bits}-group-32-rows-1-int8-activations"])
    assert rounded.nodes[0][3]["accuracy_level"] == 4
    record = json.loads(graph.save(tmp_path / "made").read_text())
    assert record["inputs"] == {"a0": [16, 1024]} and record["outputs"] == {"output": [16, 1024]}
    assert record["types"] == {"a0": "float32", "output": "float32"}


def test_weights_are_constants(tmp_path: Path) -> None:
    """Of a scale for each channel the peer gets what PyTorch gets, as a constant; inputs that nothing reads are left
    out.
    """
    work = WORKS["int8-per-channel-8x1024x1024"]
    graph = graph_of(work)
    assert list(graph.inputs) == ["a0"]
    assert any(np.array_equal(c, work.arrays()[3]) for c in graph.constants.values())
    record = json.loads(graph.save(tmp_path / "made").read_text())
    assert record["inputs"] == {"a0": [8, 1024]} and record["types"]["output"] == "float32"
    with np.load(tmp_path / "made" / "graph.npz") as file:
        assert set(file.files) == set(graph.constants)
    unread = alike("unread", normal((3,), (4,)), lambda x, y: x + 1, needs())
    assert list(graph_of(unread).inputs) == ["a0"]


def test_what_has_no_graph() -> None:
    for work in (WORKS["cumprod-200x5000"], alike("digamma", normal((3,)), lambda x: x.digamma(), needs())):
        with pytest.raises(NoGraph, match="aten"):
            graph_of(work)


def test_batches() -> None:
    """Every work once, in order; few enough together, unless one alone is large."""
    one = alike("one", normal((2,)), lambda x: x, needs())
    large = replace(one, inputs=lambda random: [np.broadcast_to(np.float32(1), (TOGETHER_BYTES // 4 - 1,))])
    works = [one] * (TOGETHER + 1) + [large, large, one]
    found = list(batches(works))
    assert [w for some in found for w in some] == works
    assert [len(some) for some in found] == [TOGETHER, 1, 1, 1, 1]
    for some in found:
        assert len(some) == 1 or sum(a.nbytes for w in some for a in w.arrays()) <= TOGETHER_BYTES


def test_our_side_in_chromium(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Works exported as one bundle, each called with its inputs."""
    monkeypatch.setenv("TINYWEB_BENCH_BUNDLES", str(tmp_path))
    # in a thread of its own: Playwright allows one browser per thread, and other tests have theirs in this one
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(_in_chromium).result()


def _in_chromium() -> None:
    works = [WORKS["add-small"], WORKS["matmul-tiny-5x7x3"], WORKS["embedding-sum"]]
    pages = Pages()
    try:
        pages.export(works, "some", 1)
        for work in works:
            (found,) = (pages.result(f"{work.name}/{OURS}/1") or {}).values()
            (expected,) = [work.ours(*map(Tensor, work.arrays())).numpy()]
            np.testing.assert_allclose(found, expected.ravel(), rtol=1e-4, atol=1e-4)
            assert pages.run(f"{work.name}/{OURS}/1", 2) > 0
            pages.leave()
    finally:
        pages.close()


def test_table() -> None:
    """Ratios 0.25 and 4, one work that has no peer and one that failed."""
    results = [
        Result("fast", ours=[1.0] * 3, theirs=[4.0] * 3),
        Result("slow", ours=[1.0] * 3, theirs=[0.25] * 3),
        Result("alone", no_peer="no ONNX graph: aten.x", ours=[1.0] * 3),
        Result("broken", problem="ExportError: no"),
    ]
    found = summary(results).splitlines()
    assert found[0] == "4 works, 2 with a peer, geometric mean of the ratios 1.00 (of the fastest turns 1.00)"
    assert found[1] == "Ratio below 0.4: 1"
    assert "Without a peer: alone (no ONNX graph: aten.x)" in found and "Not timed: broken (ExportError: no)" in found
    assert [row.split()[1] for row in found[-2:]] == ["slow", "fast"]
    assert line(results[1]) == "| slow | 1e+03 | 250 | 0.25 | 0.25 |"
    assert "aten.x" in line(results[2]) and "ExportError" in line(results[3])


def test_names_of_functions() -> None:
    made = {identifier(name) for name in WORKS}
    assert len(made) == len(WORKS) and all(name.isidentifier() for name in made)


def test_works_are_traced_as_they_are_written() -> None:
    """What is done to shapes is a few operations of ONNX, whatever PyTorch makes of it."""
    work = Work(
        "shapes",
        normal((2, 3, 4)),
        lambda x: x,
        lambda x: x[:, 1:].transpose(0, 1).flip(0).roll((1,), (0,)).reshape(-1),
        needs(),
    )
    assert ops(graph_of(work)) == {"Slice": 2, "Transpose": 1, "Split": 1, "Concat": 1, "Reshape": 1}
