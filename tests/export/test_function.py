"""Any function as a bundle: what the exported module computes is what the Tensor does."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.test_bundle_runs import WasmBundle
from tinyweb.dtype import dtypes
from tinyweb.errors import ExportError
from tinyweb.export import export_function, export_functions
from tinyweb.export.function import load_maker
from tinyweb.export.inspect import inspect_site, table
from tinyweb.graph.ir import Variable
from tinyweb.models.convnet import RandomWeights, convolution
from tinyweb.nn.quantize import quantize
from tinyweb.tensor import Tensor


def run(
    site: Path, inputs: dict[str, np.ndarray], name: str = "run", variant: str = "simd", deterministic: bool = False
) -> dict[str, np.ndarray]:
    """One call of an exported function in wasmtime, knowing only the manifest."""
    return calls(site, [(name, inputs)], variant, deterministic)[0]


def calls(
    site: Path, made: list[tuple[str, dict[str, np.ndarray]]], variant: str = "simd", deterministic: bool = False
) -> list[dict[str, np.ndarray]]:
    bundle = WasmBundle(site / "model", variant, deterministic)
    results = []
    for name, given in made:
        section = bundle.manifest["functions"][name]
        assert given.keys() == {a["name"] for a in section["inputs"]}
        values: dict[str, int] = {}
        for a in section["inputs"]:
            array = given[a["name"]]
            for size, n in zip(a.get("sizes", ()), array.shape, strict=False):
                if isinstance(size, dict):
                    one, times = (size, 1) if "var" in size else size["args"]  # of an input, a multiple of a variable
                    assert values.setdefault(one["var"], n // times) * times == n
            whole = np.full(a["shape"], 77, array.dtype)  # what is not in use is never read
            whole[tuple(slice(0, n) for n in array.shape)] = array
            bundle.write(a["buffer"], whole.tobytes())
        bundle.run(name, **values)
        found: dict[str, np.ndarray] = {}
        for a in section["outputs"]:
            dtype = np.dtype(dtypes_by_short[a["dtype"]])
            size = int(np.prod(a["shape"])) * dtype.itemsize
            whole = np.frombuffer(bundle.read(a["buffer"], size), dtype).reshape(a["shape"])
            used = [_value(s, values) for s in a.get("sizes", a["shape"])]
            found[a["name"]] = whole[tuple(slice(0, n) for n in used)]
        results.append(found)
    return results


def _value(size: Any, values: dict[str, int]) -> int:
    """A size of a manifest as a number (docs/bundle.md)."""
    if isinstance(size, int):
        return size
    if "var" in size:
        return values[size["var"]]
    a, b = (_value(s, values) for s in size["args"])
    return {"add": a + b, "mul": a * b, "floordiv": a // (b or 1), "mod": a % (b or 1), "max": max(a, b)}[size["op"]]


dtypes_by_short = {"f32": np.float32, "i32": np.int32, "u8": np.uint8, "i64": np.int64, "f16": np.float16}


class Model:
    """Some layers, as a page's detector has them."""

    def __init__(self) -> None:
        self.conv = convolution(RandomWeights(1), "conv", "bn", (8, 3, 3), 2, 1e-5, None)
        self.mix = Tensor(np.random.default_rng(2).standard_normal((8, 5), np.float32)).realize()

    def __call__(self, image: Tensor, bias: Tensor) -> dict[str, Tensor]:
        pooled = self.conv(image / 255.0).silu().mean((2, 3))
        logits = pooled @ self.mix + bias
        return {"logits": logits, "best": logits.argmax(1).cast(dtypes.int32)}


def test_a_model(tmp_path: Path) -> None:
    model = Model()
    random = np.random.default_rng(3)
    image = random.integers(0, 256, (2, 3, 9, 11), np.uint8)
    bias = random.standard_normal((5,), np.float32)
    examples = {"image": Tensor.zeros(2, 3, 9, 11, dtype=dtypes.uint8), "bias": Tensor.zeros(5)}
    export_function(model, examples, tmp_path / "site", name="pooled")
    got = run(tmp_path / "site", {"image": image, "bias": bias})
    want = model(Tensor(image), Tensor(bias))
    np.testing.assert_allclose(got["logits"], want["logits"].numpy(), atol=1e-5)
    assert (got["best"] == want["best"].numpy()).all()

    report = inspect_site(tmp_path / "site", verify=True)
    assert (report["name"], report["task"], report["verified"]) == ("pooled", "function", True)
    assert report["model"] == {"parameters": 8 * 27 + 8 + 40} and report["kernels_per_call"]["run"] >= 2
    assert table(report).row_count
    manifest = json.loads((tmp_path / "site/model/manifest.json").read_text())
    weights = {b["name"]: b["shape"] for b in manifest["buffers"] if b["kind"] == "weight"}
    assert weights == {"conv.weight": [8, 3, 3, 3], "conv.bias": [8], "mix": [8, 5]}
    assert (tmp_path / "site/assets/tinyweb.js").is_file()

    export_function(model, examples, tmp_path / "again", name="pooled")
    for path in (tmp_path / "site").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(tmp_path / "site")).read_bytes(), path


def test_functions_share_weights_and_state(tmp_path: Path) -> None:
    weight = Tensor.arange(12).reshape(3, 4).cast(dtypes.float32).contiguous().realize()
    seen = Tensor.zeros(3).contiguous().realize()

    def encode(x: Tensor) -> Tensor:
        return seen.assign(seen + weight @ x) * 1

    def decode(y: Tensor, scale: Tensor) -> dict[str, Tensor]:
        return {"x": (y * scale) @ weight, "seen": seen + 0}

    functions = {"encode": (encode, [Tensor.zeros(4)]), "decode_3": (decode, [Tensor.zeros(3), Tensor.zeros(1)])}
    manifest = export_functions(functions, tmp_path / "site")
    kinds = [b["kind"] for b in manifest["buffers"] if not b["name"].startswith(("encode.", "decode_3."))]
    assert sorted(kinds) == ["state", "weight"]
    w, x, y, scale = weight.numpy(), np.arange(4, dtype=np.float32), np.ones(3, np.float32), np.full(1, 2, np.float32)
    made = [("encode", {"x": x}), ("decode_3", {"y": y, "scale": scale}), ("encode", {"x": x})]
    first, second, third = calls(tmp_path / "site", made)
    np.testing.assert_array_equal(first["output"], w @ x)
    np.testing.assert_array_equal(second["x"], (y * 2) @ w)
    np.testing.assert_array_equal(second["seen"], w @ x)
    np.testing.assert_array_equal(third["output"], 2 * (w @ x))
    assert inspect_site(tmp_path / "site")["kernels_per_call"].keys() == functions.keys()


def test_shaders_of_one_text_are_compiled_once(tmp_path: Path) -> None:
    """Functions of other sizes often differ by their grids alone."""
    functions = {f"add_{n}": (lambda x: x + 1.0, [Tensor.zeros(n)]) for n in (1024, 4096)}
    webgpu = export_functions(functions, tmp_path / "site")["targets"]["webgpu"]["variants"]["base"]
    assert len(webgpu["kernels"]) == 1
    grids = [entry["dispatches"][0]["grid"][0] for entry in webgpu["entry_points"].values()]
    assert grids[1] == 4 * grids[0]
    text = (tmp_path / "site" / "model" / webgpu["file"]).read_text()
    assert text.count("//# kernel") == 1 and f"//# kernel {webgpu['kernels'][0]['name']}\n" in text


def test_sizes_that_vary(tmp_path: Path) -> None:
    """One function for all of them; outputs may have shapes that are made of them."""
    rows, columns = Variable("rows", 1, 5).bind(1), Variable("columns", 0, 7).bind(0)
    weight = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()

    def function(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        joined = Tensor.cat(x, y, axis=0)
        return {"product": (joined @ weight).softmax(-1), "joined": joined, "flat": x.sum(-1).reshape(-1)}

    examples = {"x": Tensor.zeros(5, 3)[:rows], "y": Tensor.zeros(7, 3)[:columns]}
    made = export_function(function, examples, tmp_path / "site")
    product = next(a for a in made["functions"]["run"]["outputs"] if a["name"] == "product")
    assert product["shape"] == [12, 4] and product["sizes"][1] == 4
    assert {v["name"]: (v["min"], v["max"]) for v in made["variables"]} == {"rows": (1, 5), "columns": (0, 7)}
    random = np.random.default_rng(5)
    for m, n in ((5, 7), (1, 0), (2, 3)):
        x, y = (random.standard_normal((k, 3)).astype(np.float32) for k in (m, n))
        found = run(tmp_path / "site", {"x": x, "y": y})
        want = function(Tensor(x), Tensor(y))
        for name, array in found.items():
            np.testing.assert_allclose(array, want[name].numpy(), rtol=1e-5, atol=1e-6)
    loader = (tmp_path / "site/model/model.js").read_text()
    assert "rows × 3" in loader and "columns (0 … 7)" in loader


def test_names_of_functions(tmp_path: Path) -> None:
    for name in ("", "2d", "a-b", "a b", "*/", "x" * 65):
        with pytest.raises(ExportError, match="cannot name a function"):
            export_functions({name: (lambda x: x, [Tensor.zeros(2)])}, tmp_path / "site")
    with pytest.raises(ExportError, match="no function to export"):
        export_functions({}, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_results_that_are_no_kernels_own(tmp_path: Path) -> None:
    """An input handed through, a view, a weight, a constant, and one value twice."""
    weight = Tensor([1.0, 2.0, 3.0]).realize()

    def function(x: Tensor) -> list[Tensor]:
        total = x.sum(1)
        return [x, x.transpose(0, 1), weight, Tensor.full((2,), 7.0), total, total]

    manifest = export_function(function, [Tensor.zeros(2, 3)], tmp_path / "site", targets=["wasm"])
    assert [a["name"] for a in manifest["functions"]["run"]["inputs"]] == ["x"] and list(manifest["targets"]) == [
        "wasm"
    ]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = run(tmp_path / "site", {"x": x})
    want = [x, x.T, np.array([1, 2, 3]), np.full(2, 7), x.sum(1), x.sum(1)]
    for i, value in enumerate(want):
        np.testing.assert_array_equal(got[f"output{i}"], value)


def test_state_lives_from_call_to_call(tmp_path: Path) -> None:
    seen = Tensor.zeros(3).contiguous().realize()

    def function(x: Tensor) -> Tensor:
        return seen.assign(seen + x) * 2

    export_function(function, [Tensor.zeros(3)], tmp_path / "site", targets=["wasm"])
    first, second = calls(tmp_path / "site", [("run", {"x": np.array([1, 2, 3], np.float32)})] * 2)
    assert first["output"].tolist() == [2, 4, 6] and second["output"].tolist() == [4, 8, 12]
    assert seen.numpy().tolist() == [0, 0, 0]


def test_dtypes(tmp_path: Path) -> None:
    def function(a: Tensor, b: Tensor, c: Tensor) -> dict[str, Tensor]:
        return {"long": a * 3, "half": b * 2, "byte": c + 1}

    kinds = {"a": dtypes.int64, "b": dtypes.float16, "c": dtypes.uint8}
    export_function(function, {n: Tensor.zeros(5, dtype=d) for n, d in kinds.items()}, tmp_path / "site")
    values = {"a": np.arange(5) + 2**40, "b": np.arange(5, dtype=np.float16), "c": np.arange(252, 257).astype(np.uint8)}
    got = run(tmp_path / "site", values)
    np.testing.assert_array_equal(got["long"], values["a"] * 3)
    np.testing.assert_array_equal(got["half"], values["b"] * 2)
    np.testing.assert_array_equal(got["byte"], values["c"] + np.uint8(1))


def test_the_loader_is_javascript(tmp_path: Path) -> None:
    site = tmp_path / "site"

    def plus(**inputs: Tensor) -> Tensor:
        return inputs["odd name */"] + 1

    export_function(plus, {"odd name */": Tensor.zeros(2, 2)}, site, name="*/ plus\none")
    for folder in ("model", "assets"):
        (site / folder / "package.json").write_text('{"type": "module"}')
    (site / "assets/tinyweb.js").write_text(
        "export class TinywebError extends Error {}\n"
        "export const loadFunction = (url, options) => [url.href, options];\n"
    )
    address = json.dumps((site / "model/model.js").as_uri())
    script = f"import * as m from {address}; console.log(JSON.stringify([m.info, m.load()]))"
    done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    info, called = json.loads(done.stdout)
    plan = info["functions"]["run"]
    assert plan["inputs"] == {"odd name */": {"dtype": "f32", "shape": [2, 2]}} and plan["kernels"] == 1
    known = {"manifestSha256": hashlib.sha256((site / "model/manifest.json").read_bytes()).hexdigest()}
    assert called == [(site / "model").as_uri() + "/", known]


def refused(call: Any, match: str, tmp_path: Path, kind: type[Exception] = ExportError, **options: Any) -> None:
    function, inputs = call
    with pytest.raises(kind, match=match):
        export_function(function, inputs, tmp_path / "site", **options)
    assert not (tmp_path / "site").exists()


def test_errors(tmp_path: Path) -> None:
    one = [Tensor.zeros(2)]
    refused((lambda x: x, one), "no target 'cuda'", tmp_path, targets=["cuda"])
    refused((lambda x: x, one), "No target", tmp_path, targets=[])
    refused((lambda x: x, [1.0]), "example input 'x' is a float: give a Tensor", tmp_path)
    refused((lambda x: 3, one), "output is a int: return tensors", tmp_path)
    refused((lambda x: [], one), "returns nothing", tmp_path)
    refused((lambda x: {"x": x}, one), "both called 'x'", tmp_path)
    refused((lambda x: x.cast(dtypes.bfloat16), one), "output is bfloat16, for which JavaScript", tmp_path)
    refused((lambda x: Tensor.rand(2) + x, one), "random numbers", tmp_path, NotImplementedError)
    refused((lambda x: x[0].item(), one), "value cannot be read", tmp_path, RuntimeError)
    length = Variable("length", 1, 2).bind(1)
    refused((lambda x: x[:length], one), r"sizes that no input's shape tells \(length\)", tmp_path, NotImplementedError)
    counted = Tensor.ones(2).contiguous().realize()
    refused((lambda x: counted.assign(counted + x), one), "not zero at first", tmp_path, NotImplementedError)


def test_command_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from tinyweb import Tensor\n"
        "def make():\n"
        "    w = Tensor([2.0, 3.0]).realize()\n"
        "    return (lambda x: x * w), {'x': Tensor.zeros(2)}\n"
    )
    command = [sys.executable, "-m", "tinyweb.cli", "export", "function", "mine:make", "-o", "site", "--target", "wasm"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert run(tmp_path / "site", {"x": np.array([1, 1], np.float32)})["output"].tolist() == [2, 3]


def test_inputs_that_are_no_parameters(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"not the function's parameters \(x\): missing a required argument: 'x'"):
        export_function(lambda x: x, {"y": Tensor.zeros(2)}, tmp_path / "site")
    with pytest.raises(ExportError, match=r"not the function's parameters \(x\): too many"):
        export_function(lambda x: x, [Tensor.zeros(2), Tensor.zeros(2)], tmp_path / "site")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.py").write_text("number = 3\ndef make():\n    return 3\n")
    monkeypatch.chdir(tmp_path)
    wrong = {"theirs": "names no function", "theirs:other": "theirs has no 'other'", "none:make": "no module 'none'"}
    wrong |= {"theirs:number": "does not return", "theirs:make": "does not return"}
    for name, said in wrong.items():
        with pytest.raises(ExportError, match=said):
            load_maker(name)()


@pytest.mark.parametrize("groups", [8, 9])
@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_weights_with_and_without_relaxed_simd(tmp_path: Path, bits: int, groups: int) -> None:
    """Modules of either kind multiply rounded activations exactly; 4-bit integers of -8 and activations of ±127 too.
    Dots are summed as the engine does it best, which is otherwise where it has no choice of what relaxed SIMD means.
    """
    random, rows = np.random.default_rng(groups), 48
    made = [quantize(random.standard_normal((rows, 32 * groups), np.float32), bits) for _ in range(2)]
    a, b = (q for q in made if q is not None)

    def gated(x: Tensor) -> dict[str, Tensor]:
        one = a.product(x, "int8")
        return {"one": one, "gated": one.silu() * b.product(x, "int8"), "few": b.product(x * ramp, "int8")}

    ramp = Tensor(np.arange(1, 4, dtype=np.float32)[:, None])
    x = random.standard_normal((1, 32 * groups)).astype(np.float32)
    export_function(gated, {"x": Tensor(x)}, tmp_path / "site", targets=["wasm"])

    def rounded(values: np.ndarray) -> np.ndarray:
        grouped = values.reshape(len(values), groups, 32)
        steps = np.abs(grouped).max(-1, keepdims=True) * np.float32(1 / 127)
        return (np.rint(grouped / steps) * steps.astype(np.float64)).reshape(values.shape)

    first, second = (rounded(x) @ q.dense().numpy().astype(np.float64).T for q in (a, b))
    few = rounded(x * ramp.numpy()) @ b.dense().numpy().astype(np.float64).T
    for variant, deterministic in (("simd", False), ("relaxed", False), ("relaxed", True)):
        found = run(tmp_path / "site", {"x": x}, variant=variant, deterministic=deterministic)
        np.testing.assert_allclose(found["one"], first, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["gated"], first / (1 + np.exp(-first)) * second, rtol=2e-4, atol=2e-3)
        np.testing.assert_allclose(found["few"], few, rtol=1e-4, atol=1e-3)


def test_each_target_has_kernels_of_its_own(tmp_path: Path) -> None:
    """A border gets memory where processors read it, and none on GPUs."""
    w = Tensor(np.ones((32, 8, 3, 3), np.float32)).realize()
    export_function(lambda x: x.conv2d(w, padding=1), {"x": Tensor.zeros(1, 8, 16, 16)}, tmp_path / "site")
    targets = inspect_site(tmp_path / "site")["targets"]
    assert {n: t["entry_points"]["run"]["kernels"] for n, t in targets.items()} == {"webgpu": 1, "wasm": 2}
