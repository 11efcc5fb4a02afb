"""ONNX graphs as bundles, and what `tinyweb inspect` tells of them."""

from __future__ import annotations

import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from tests.export.test_function import calls
from tinyweb import Tensor, dtypes
from tinyweb.cli.common import sizes
from tinyweb.errors import ExportError, TinywebError
from tinyweb.export.about_graph import about
from tinyweb.export.inspect_source import inspect_source, next_line, source_table
from tinyweb.export.onnx_report import sized_report
from tinyweb.export.onnx_site import OnnxFunction, OnnxOptions, export_onnx
from tinyweb.formats.onnx import OnnxModel
from tinyweb.formats.onnx.texts import OTHER
from tinyweb.formats.words import Words
from tinyweb.quantization import QuantOptions

RANDOM = np.random.default_rng(0)
CONSTANTS = {
    "zero": np.array([0]), "one": np.array([1]), "rest": np.array([-1]),
    "conv": RANDOM.standard_normal((32, 3, 3, 3)).astype(np.float32),
    "head": RANDOM.standard_normal((10, 32)).astype(np.float32),
}  # fmt: skip
NODES = [
    helper.make_node("Shape", ["x"], ["s"]),
    helper.make_node("Slice", ["s", "zero", "one"], ["b"]),
    helper.make_node("Concat", ["b", "rest"], ["t"], axis=0),
    helper.make_node("Conv", ["x", "conv"], ["c"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["r"]),
    helper.make_node("GlobalAveragePool", ["r"], ["p"]),
    helper.make_node("Reshape", ["p", "t"], ["f"]),
    helper.make_node("Transpose", ["head"], ["turned"]),
    helper.make_node("MatMul", ["f", "turned"], ["y"]),
]


def write(path: Path, *more: Any) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])
    held = [numpy_helper.from_array(v, n) for n, v in CONSTANTS.items()]
    graph = helper.make_graph([*NODES, *more], "g", [x], [y], held)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]), path
    )
    return path


def test_a_graph_with_two_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "small.onnx")
    made = export_onnx(path, tmp_path / "site", OnnxOptions({"batch": [1, 2]}, targets=["wasm"]))
    weights = {b["name"]: b["shape"] for b in made["buffers"] if b["kind"] == "weight"}
    assert weights == {"weights.conv": [32, 3, 3, 3], "weights.turned": [32, 10]}, "once, laid out at export"
    x = [RANDOM.standard_normal((n, 3, 8, 8)).astype(np.float32) for n in (1, 2)]
    got = calls(tmp_path / "site", [("run_1", {"x": x[0]}), ("run_2", {"x": x[1]})])
    model = OnnxModel(path)
    for given, found in zip(x, got):
        np.testing.assert_allclose(found["y"], model(x=Tensor(given))["y"].numpy(), rtol=1e-4, atol=1e-5)


def test_a_batch_that_varies(tmp_path: Path) -> None:
    """One function, whose outputs have the shapes of the call."""
    path = write(tmp_path / "small.onnx")
    made = export_onnx(path, tmp_path / "site", OnnxOptions({"batch": range(1, 5)}, targets=["wasm"]))
    assert made["functions"]["run"]["outputs"][0]["sizes"] == [{"var": "batch"}, 10]
    x = [RANDOM.standard_normal((n, 3, 8, 8)).astype(np.float32) for n in (4, 1, 3)]
    model = OnnxModel(path)
    for given, found in zip(x, calls(tmp_path / "site", [("run", {"x": g}) for g in x])):
        want = model(x=Tensor(given))["y"].numpy()
        assert found["y"].shape == want.shape
        np.testing.assert_allclose(found["y"], want, rtol=1e-4, atol=1e-5)


def test_sides_that_vary_in_steps(tmp_path: Path) -> None:
    """What goes down and up again fits where sizes are multiples: the page gives pictures of any such size."""
    nodes = [
        helper.make_node("Conv", ["x", "down"], ["half"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["half"], ["small"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["small", "", "twice"], ["large"], mode="nearest"),
        helper.make_node("Concat", ["half", "large"], ["both"], axis=1),
        helper.make_node("SpaceToDepth", ["both"], ["y"], blocksize=2),
    ]
    held = {"down": RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32), "twice": np.float32([1, 1, 2, 2])}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "height", "width"])
    constants = [numpy_helper.from_array(v, n) for n, v in held.items()]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], constants)
    path = tmp_path / "sides.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    with pytest.raises(NotImplementedError, match=r"Concat.*--dim height=16,64, or take steps .*height=64:640:32"):
        export_onnx(path, tmp_path / "none", OnnxOptions({n: range(8, 25) for n in ("height", "width")}))
    dims = {"height": range(8, 25, 4), "width": [16]}
    made = export_onnx(path, tmp_path / "site", OnnxOptions(dims, targets=["wasm"]))
    assert made["variables"] == [{"name": "height / 4", "min": 2, "max": 6}]
    model = OnnxModel(path)
    for height in (24, 8, 12):
        given = RANDOM.standard_normal((1, 3, height, 16)).astype(np.float32)
        (found,) = calls(tmp_path / "site", [("run", {"x": given})])
        np.testing.assert_allclose(found["y"], model(x=Tensor(given))["y"].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_recurrent_layer_of_any_length(tmp_path: Path) -> None:
    """Its steps are a loop, which texts that end before it do not change."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["length", "batch", 3])
    ends = [helper.make_empty_tensor_value_info(n) for n in ("y", "h")]
    held = {n: (RANDOM.standard_normal(s) * 0.5).astype(np.float32) for n, s in (("w", (1, 20, 3)), ("r", (1, 20, 5)))}
    layer = helper.make_node("LSTM", ["x", *held], ["y", "h"], hidden_size=5, direction="reverse")
    graph = helper.make_graph([layer], "g", [x], ends, [numpy_helper.from_array(v, n) for n, v in held.items()])
    path = tmp_path / "lstm.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    dims = {"length": range(1, 25), "batch": range(1, 4)}
    made = export_onnx(path, tmp_path / "site", OnnxOptions(dims, targets=["wasm"]))
    assert {b["name"] for b in made["buffers"] if b["kind"] == "state"} == {"x", "y", "h"}
    model = OnnxModel(path)
    given = [RANDOM.standard_normal((n, b, 3)).astype(np.float32) for n, b in ((24, 3), (3, 1), (9, 2))]
    for array, found in zip(given, calls(tmp_path / "site", [("run", {"x": a}) for a in given])):
        for name, want in model(x=Tensor(array)).items():
            np.testing.assert_allclose(found[name], want.numpy(), rtol=1e-4, atol=1e-5)


def test_half_floats(tmp_path: Path) -> None:
    path = write(tmp_path / "small.onnx")
    sizes_of = []
    for quant in (None, "f16"):
        made = export_onnx(path, tmp_path / str(quant), OnnxOptions({"batch": [1]}, quant=quant, targets=["wasm"]))
        sizes_of.append(sum(b["bytes"] for b in made["buffers"] if b["kind"] == "weight"))
    assert sizes_of[0] == 2 * sizes_of[1]


def words(path: Path) -> Path:
    """A table of words, and two matrices."""
    table, first, second = (RANDOM.standard_normal(n).astype(np.float32) for n in ((64, 32), (32, 96), (8, 96)))
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("MatMul", ["e", "first"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "second"], ["y"], transB=1),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 8])
    held = [numpy_helper.from_array(v, n) for n, v in (("table", table), ("first", first), ("second", second))]
    graph = helper.make_graph(nodes, "words", [ids], [y], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.mark.parametrize("quant, bits", [("q8", (8, 8)), ("q4", (4, 8)), ("mixed", None)])
def test_matrices_are_quantised(quant: str, bits: tuple[int, int] | None, tmp_path: Path) -> None:
    path, told = words(tmp_path / "words.onnx"), list[Any]()
    options = QuantOptions(bytes=5000 if quant == "mixed" else None)
    made = export_onnx(path, tmp_path / "site", OnnxOptions(
        quant=quant, targets=["wasm"], quantization=options, told=told.append))  # fmt: skip
    report = json.loads((tmp_path / "site" / "report.json").read_text())
    assert report["quant"] == quant and told[0].record() == report
    layers = {layer["name"]: layer for layer in report["layers"]}
    assert layers.keys() == {"table", "first", "second"} and all(0 < x["error"] < 0.2 for x in layers.values())
    assert report["bytes"]["weights"] < report["bytes"]["f32"] / 3
    assert report["evaluation"]["cosine"]["least"] > 0.97
    assert made["weights"]["bytes"] <= report["bytes"]["weights"] + 1024
    if bits is None:
        assert report["bytes"]["weights"] <= 5000
    else:
        assert [layers[n]["kind"] for n in ("first", "table")] == [f"q{b}" for b in bits]


def test_options_that_a_graph_has_not(tmp_path: Path) -> None:
    path = words(tmp_path / "words.onnx")
    for quant, options, message in (
        ("q4", QuantOptions(calibrate=path), "--calibrate and --quant-head are for chats"),
        ("q4", QuantOptions(evaluate=path), r"--evaluate .* is no .npz file of the model's inputs \(ids\)"),
        ("mixed", QuantOptions(), "mixed needs --bytes"),
    ):
        with pytest.raises(TinywebError, match=message):
            export_onnx(path, tmp_path / "site", OnnxOptions(quant=quant, quantization=options))


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    path = write(tmp_path / "small.onnx")
    for dims, quant, message in (
        ({}, None, r"Sizes are left open: .*--dim batch=1, with your numbers"),
        ({"b": [1]}, None, "no size called 'b'; it has batch"),
        ({"batch": list(range(1, 20))}, None, "make 19 functions"),
        ({"batch": range(4, 4)}, None, "name at least one number"),
        ({"batch": range(3, 9, 2)}, None, "begins with 3: .* multiples of the step, from 4"),
        ({"batch": [1]}, "q9", "--quant q9 is not"),
    ):
        with pytest.raises(ExportError, match=message):
            export_onnx(path, tmp_path / "site", OnnxOptions(dims, quant=quant))
    odd = [helper.make_node("Odd", ["y"], ["q"], domain="own"), helper.make_node("Even", ["q"], ["e"], name="second")]
    path = write(tmp_path / "odd.onnx", *odd)
    with pytest.raises(ExportError, match=r"2 operators are not supported: Even .*at second; own.Odd .*at Odd#9"):
        export_onnx(path, tmp_path / "site", OnnxOptions({"batch": [1]}))
    found = inspect_source(path)
    assert not found["supported"] and "own.Odd" in found["reason"]
    assert [(u["operator"], u["nodes"]) for u in found["unsupported"]] == [("Even", ["second"]), ("own.Odd", ["Odd#9"])]


def test_inspect(tmp_path: Path) -> None:
    path = write(tmp_path / "small.onnx", helper.make_node("Unique", ["y"], ["n"], name="where"))
    found = inspect_source(path)
    assert (found["kind"], found["export"], found["supported"]) == ("graph", "onnx", True)
    assert found["operators"]["Conv"] == 1 and sum(found["operators"].values()) == 10
    assert found["inputs"] == [{"name": "x", "type": "tensor(float)", "dtype": "float32", "shape": ["batch", 3, 8, 8]}]
    assert found["dynamic"] == {"batch": ["x[0]", "y[0]"]}
    assert found["host"] == [{"operator": "Unique", "version": 17, "count": 1, "nodes": ["where"]}]
    assert found["stored"] == {"int64": 3, "float": 1184} and found["initializer_bytes"] == 3 * 8 + 1184 * 4
    assert found["bytes"] == path.stat().st_size
    assert json.dumps(found) and source_table(found).row_count > 5


def test_names_are_no_markup_and_no_command(tmp_path: Path) -> None:
    """Neither the terminal nor the shell that a line is pasted into obeys what a file calls its sizes and operators."""
    x = helper.make_tensor_value_info("x[/x]", TensorProto.FLOAT, ["$(id)\x1b[2J[b]'"])
    path = graph_of(tmp_path / "m.onnx", [helper.make_node("Relu", ["x[/x]"], ["y[/y]"])], [x], ["y[/y]"])
    console = Console(width=200, record=True, file=io.StringIO())
    found = inspect_source(path)
    console.print(source_table(found))
    text = console.export_text()
    assert "x[/x]: tensor(float)" in text and "\x1b" not in text
    assert "--dim '$(id)\x1b[2J[b]'\"'\"'=1" in str(next_line(found))


def test_inspect_tells_memory(tmp_path: Path) -> None:
    """Of sizes that are guessed, or given: weights, inputs and outputs, temporaries, and devices with as much."""
    path = write(tmp_path / "small.onnx")
    guessed, given = inspect_source(path), inspect_source(path, {"batch": range(1, 5)})
    assert (guessed["assumed"], given["assumed"]) == ({"batch": [1, 1]}, {"batch": [1, 4]})
    for target in ("webgpu", "wasm"):
        small, large = guessed["memory"][target], given["memory"][target]
        assert small["weights"] == large["weights"] == 4 * (32 * 27 + 320)
        assert (small["state"], large["state"]) == (4 * (3 * 64 + 10), 16 * (3 * 64 + 10))
        assert large["temporaries"] >= small["temporaries"] > 0
    assert len(given["devices"]) == 6 and all(d["fits"] and d["needs"] > 2**26 for d in given["devices"])
    printed = Console(width=200, record=True, file=io.StringIO())
    printed.print(source_table(given))
    assert "taken as 1 … 4" in (text := printed.export_text()) and "WebAssembly, 2 GiB" in text
    assert "devices" not in inspect_source(
        write(tmp_path / "own.onnx", helper.make_node("Odd", ["y"], ["z"], domain="own"))
    )


def test_what_goes_along(tmp_path: Path) -> None:
    """The page, labels of the metadata or else of config.json, a tokenizer of the folder above, symbolic sizes."""
    folder = tmp_path / "model" / "onnx"
    folder.mkdir(parents=True)
    path = write(folder / "small.onnx")
    (folder.parent / "tokenizer.json").write_text("{}")
    (folder.parent / "config.json").write_text('{"id2label": {"0": "cat", "1": "dog"}}')
    made = export_onnx(path, tmp_path / "site", OnnxOptions({"batch": [1, 2]}, targets=["wasm"]))
    graph = made["graph"]
    assert graph["inputs"] == [{"name": "x", "type": "tensor(float)", "shape": ["batch", 3, 8, 8]}]
    assert (graph["labels"], graph["sizes"]) == (["cat", "dog"], {"run_1": {"batch": 1}, "run_2": {"batch": 2}})
    assert graph["tokenizer"] and made["files"] == {"tokenizer": "tokenizer.json"}
    assert (tmp_path / "site/model/tokenizer.json").read_text() == "{}" and "tokenizer.json" in made["integrity"]
    assert (tmp_path / "site/index.html").is_file()

    model = onnx.load(path)
    for key, value in {"names": "{0: 'sun', 1: 'moon'}", "author": "nobody", "long": "x" * 5000}.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.save(model, tmp_path / "told.onnx")
    options = OnnxOptions({"batch": [1]}, targets=["wasm"], page=False)
    graph = export_onnx(tmp_path / "told.onnx", tmp_path / "bare", options)["graph"]
    assert graph["labels"] == ["sun", "moon"] and set(graph["metadata"]) == {"names", "author"}
    assert not graph["tokenizer"] and not (tmp_path / "bare/index.html").exists()
    assert (tmp_path / "bare/assets/tinyweb.js").is_file()


def test_a_condition_and_an_input_that_is_fixed(tmp_path: Path) -> None:
    """Fixed, one branch is left; given by the page, both are computed and one is chosen."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None]),
              helper.make_tensor_value_info("rate", TensorProto.INT64, [])]  # fmt: skip
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["x"], [out])], name, [], [helper.make_empty_tensor_value_info(out)]
        )
        for name, op, out in (("then_branch", "Neg", "a"), ("else_branch", "Exp", "b"))
    }
    nodes = [helper.make_node("Equal", ["rate", "wanted"], ["c"]), helper.make_node("If", ["c"], ["y"], **branches)]
    wanted = numpy_helper.from_array(np.array(16000), "wanted")
    path = tmp_path / "rate.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, [y], [wanted]), opset_imports=opsets), path)
    x = np.array([1.0, 2.0], np.float32)
    dims = {"x[0]": [2]}
    export_onnx(path, tmp_path / "fixed", OnnxOptions(dims, {"rate": 16000}, targets=["wasm"]))
    assert calls(tmp_path / "fixed", [("run", {"x": x})])[0]["y"].tolist() == [-1.0, -2.0]
    export_onnx(path, tmp_path / "open", OnnxOptions(dims, targets=["wasm"]))
    rates = [np.array(r, np.int64) for r in (8000, 16000)]
    got = calls(tmp_path / "open", [("run", {"x": x, "rate": r}) for r in rates])
    np.testing.assert_allclose(got[0]["y"], np.exp(x), rtol=1e-5)
    assert got[1]["y"].tolist() == [-1.0, -2.0]
    with pytest.raises(ExportError, match="no input of numbers called 'r'"):
        export_onnx(path, tmp_path / "no", OnnxOptions(dims, {"r": 1}))
    for value in (0.5, 1e30, float("nan")):
        with pytest.raises(ExportError, match="'rate' is of int64, which cannot be"):
            export_onnx(path, tmp_path / "no", OnnxOptions(dims, {"rate": value}))
    with pytest.raises(ExportError, match=r"'x' has the shape \[1\]: 2 numbers"):
        export_onnx(path, tmp_path / "no", OnnxOptions(dims, {"x": [1.0, 2.0]}))
    for given in ("loud", [[1, 2], [3]]):
        with pytest.raises(ExportError, match="'x' is of float32, which cannot be"):
            export_onnx(path, tmp_path / "no", OnnxOptions(dims, {"x": given}))


def graph_of(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[str], **held: Any) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    known = [numpy_helper.from_array(v, n) for n, v in held.items()]
    graph = helper.make_graph(nodes, "g", inputs, ends, known)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_an_output_that_is_an_input(tmp_path: Path) -> None:
    """Its other name is none that the graph has."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    path = graph_of(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["x_out"])], [x], ["x", "x_out"])
    made = export_onnx(path, tmp_path / "site", OnnxOptions(targets=["wasm"], page=False))
    assert [o["name"] for o in made["functions"]["run"]["outputs"]] == ["x_out_out", "x_out"]


def test_what_quantised_graphs_are_compared_on(tmp_path: Path) -> None:
    """Files of other shapes or types are told; what is no number is left out."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Log", ["y"], ["z"])]
    weights = RANDOM.standard_normal((64, 64)).astype(np.float32)
    path, file = graph_of(tmp_path / "m.onnx", nodes, [x], ["z"], w=weights), tmp_path / "e.npz"
    told: list[Any] = []
    options = OnnxOptions(quant="q8", targets=["wasm"], page=False, told=told.append)
    export_onnx(path, tmp_path / "site", options)
    assert 0.99 < told[0].evaluation["cosine"]["least"] <= 1.0001
    given = replace(options, quantization=QuantOptions(evaluate=file))
    for wrong in (np.zeros((2, 63), np.float32), np.array([["x"] * 64])):
        np.savez(file, x=wrong)
        with pytest.raises(ExportError, match=r"--evaluate .*e\.npz"):
            export_onnx(path, tmp_path / "no", given)


def test_the_report_of_a_long_range(tmp_path: Path) -> None:
    found = sized_report(OnnxModel(write(tmp_path / "m.onnx")), {"batch": range(1, 1 << 31)})
    assert found["assumed"] == {"batch": [1, (1 << 31) - 1]}


def test_sizes_on_the_command_line() -> None:
    assert sizes(["a=1", "b=16,64,16", "c=2:4"]) == {"a": [1], "b": [16, 64], "c": range(2, 5)}
    assert sizes(["a=32:640:32", "x[0]=y[0]"]) == {"a": range(32, 641, 32), "x[0]": "y[0]"}
    for wrong in (
        "a",
        "a=",
        "=1",
        "a=1x",
        "a=4:2",
        "a=-1",
        "a=1,-1",
        "a=-1:4",
        "a=1:2:3:4",
        "a=1:2:0",
        "a=1:9:-1",
        f"a=1:{1 << 80}",
    ):
        with pytest.raises(ExportError, match="--dim"):
            sizes([wrong])


def test_sizes_that_are_the_same(tmp_path: Path) -> None:
    """Columns of a table, say, whose sizes an exporter gave no names."""
    columns = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 1]) for n in ("a", "b")]
    path = graph_of(tmp_path / "m.onnx", [helper.make_node("Concat", ["a", "b"], ["y"], axis=1)], columns, ["y"])
    dims: dict[str, Any] = {"a[0]": range(1, 9), "b[0]": "a[0]"}
    made = export_onnx(path, tmp_path / "site", OnnxOptions(dims, targets=["wasm"], page=False))
    assert [v["name"] for v in made["variables"]] == ["a[0]"]
    assert inspect_source(path, dims)["assumed"] == {"a[0]": [1, 8]}
    for wrong in ({"b[0]": "c"}, {"b[0]": "a[0]", "a[0]": "b[0]"}):
        with pytest.raises(ExportError, match="cannot be the same as"):
            export_onnx(path, tmp_path / "no", OnnxOptions(wrong))


def test_names_that_are_markup(tmp_path: Path) -> None:
    """They are data: in the page, in the loader's text and its comments, and on the terminal."""
    name = "<script>alert(1)</script>`${x}`{{7*7}}[/bold]\n*/ throw 1 //"
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ((name, [name, 3]), (name + "y", None))]
    graph = helper.make_graph([helper.make_node("Neg", [name], [name + "y"], name=name)], name, ports[:1], ports[1:])
    path = tmp_path / "markup.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    shown = io.StringIO()
    Console(file=shown, width=200).print(source_table(inspect_source(path)))
    assert "[/bold]" in shown.getvalue()
    made = export_onnx(path, tmp_path / "site", OnnxOptions({name: range(1, 4)}, targets=["wasm"]))
    assert [a["name"] for a in made["functions"]["run"]["inputs"]] == [name]
    pages = list((tmp_path / "site").rglob("*.html"))
    assert pages and not any("<script>alert" in page.read_text() for page in pages)
    script = f"await import({json.dumps(str(tmp_path / 'site' / 'model' / 'model.js'))})"
    done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_text_is_words_of_a_list(tmp_path: Path) -> None:
    """What goes in and what comes out; maps are given as the matrix below them; what is printed anew is left out."""
    ml, names = "ai.onnx.ml", ["no", "yes", "maybe"]
    nodes = [
        helper.make_node("OneHotEncoder", ["colour"], ["c"], domain=ml, cats_strings=["red", "blue"]),
        helper.make_node("Reshape", ["c", "flat"], ["x"]),
        helper.make_node("LinearClassifier", ["x"], ["l", "s"], domain=ml, coefficients=[0.0, 0, 1, 0, 0, 1],
                         intercepts=[0.5, 0.0, 0.0], classlabels_strings=names),
        helper.make_node("Identity", ["l"], ["label"]),
        helper.make_node("LabelEncoder", ["l"], ["n"], domain=ml, keys_strings=names[:2], values_int64s=[7, 8]),
        helper.make_node("ZipMap", ["s"], ["maps"], domain=ml, classlabels_strings=names),
        helper.make_node("Cast", ["s"], ["printed"], to=TensorProto.STRING),
    ]  # fmt: skip
    colour = helper.make_tensor_value_info("colour", TensorProto.STRING, [3])
    text = [helper.make_tensor_value_info(n, TensorProto.STRING, None) for n in ("label", "printed")]
    outputs = [*text, *(helper.make_empty_tensor_value_info(n) for n in ("maps", "n"))]
    flat = helper.make_tensor("flat", TensorProto.INT64, [2], [-1, 2])
    graph = helper.make_graph(nodes, "g", [colour], outputs, [flat])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ml, 3)]
    path = tmp_path / "labels.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    remarks = inspect_source(path)["remarks"]
    assert len(remarks) == 2 and "printed is text" in remarks[0] and "maps is the matrix" in remarks[1]
    made = export_onnx(path, tmp_path / "site", OnnxOptions(targets=["wasm"], page=False))
    ends = made["functions"]["run"]
    assert [(e["name"], e["dtype"], e.get("texts")) for e in (*ends["inputs"], *ends["outputs"])] == [
        ("colour", "i32", ["red", "blue", *names[:2]]), ("label", "i32", names), ("maps", "f32", None),
        ("n", "i64", None),
    ]  # fmt: skip
    assert made["graph"]["labels"] == names
    script = tmp_path / "run.mjs"
    tools = json.dumps(str(Path(__file__).parents[2] / "tools" / "node_web.mjs"))
    script.write_text(
        f"import {{ install }} from {tools};"
        + """
      install({ gpu: false });
      const { load } = await import("./site/model/model.js");
      const model = await load({ backend: "wasm-single" });
      const { label, n } = await model.run({ colour: ["blue", "red", "green"] });
      console.log(JSON.stringify([label.data, [...label], Array.from(n, Number)]));
      await model.dispose();
      process.exit();
    """
    )
    done = subprocess.run(["node", str(script)], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout or done.stderr) == [["maybe", "yes", "no"], [2, 1, 0], [-1, 8, 7]]


def test_text_that_nothing_computes() -> None:
    """The same in every call; given through as it is, which no list has; an input's numbers, which is left out."""
    text = [helper.make_tensor_value_info(n, TensorProto.STRING, None) for n in ("same", "printed", "given")]
    same = helper.make_tensor("same", TensorProto.STRING, [2, 2], [b"b", b"a", b"", b"b"])
    x, words = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]), helper.make_tensor_value_info("w", 8, [2])
    nodes = [helper.make_node("Cast", ["x"], ["printed"], to=TensorProto.STRING)]

    def function(*outputs: Any) -> OnnxFunction:
        graph = helper.make_graph(
            [*nodes, helper.make_node("Identity", ["w"], ["given"])], "g", [x, words], [*outputs], [same]
        )
        data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
        return OnnxFunction(OnnxModel(data), given, {})

    given = {"x": Tensor([1.0, 2.0]), "w": Words(np.array(["a", OTHER], object), Tensor(np.array([0, 1], np.int32)))}
    (found,) = function(*text[:2])(**given).values()
    assert isinstance(found, Words) and found.places.dtype is dtypes.int32
    assert found.table[found.places.numpy()].tolist() == [["b", "a"], ["", "b"]]
    with pytest.raises(NotImplementedError, match="output 'given' has text of an input"):
        function(*text)(**given)


@pytest.mark.parametrize(("nodes", "want"), [
    ([("ZipMap", {"classlabels_int64s": [3, 5, 9]})], ["3", "5", "9"]),
    ([("ZipMap", {"classlabels_int64s": [0, 1, 2]})], []),
    ([("SVMClassifier", {"classlabels_strings": ["a", "b"]}), ("ZipMap", {"classlabels_int64s": [0, 1]})], ["a", "b"]),
    ([("LabelEncoder", {"keys_int64s": [1, 0], "values_strings": ["one", "none"]})], ["none", "one"]),
    ([("LabelEncoder", {"keys_int64s": [4, 0], "values_strings": ["four", "none"]})], []),
    ([("LabelEncoder", {"keys_strings": ["x"], "values_int64s": [7]})], []),
    ([("ArrayFeatureExtractor", {})], ["sun", "moon"]),
])  # fmt: skip
def test_names_of_classes(nodes: list[tuple[str, Any]], want: list[str], tmp_path: Path) -> None:
    """Of a graph's classifiers, where the file says nothing else."""
    made = [helper.make_node(op, ["words", "x"][op == "ZipMap" :], [f"y{i}"], domain="ai.onnx.ml", **attributes)
            for i, (op, attributes) in enumerate(nodes)]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
    words = helper.make_tensor("words", TensorProto.STRING, [2], [b"sun", b"moon"])
    graph = helper.make_graph(made, "g", [x], [helper.make_empty_tensor_value_info("y0")], [words])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = OnnxModel(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    assert about(model, tmp_path / "model.onnx", {})[0]["labels"] == want
