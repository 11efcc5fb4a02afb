"""tools/run_bundle.mjs: an exported bundle in Node, with the site's own runtime library."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.small_model import write_small_model
from tinyweb import Tensor
from tinyweb.export import export_function
from tinyweb.export.chat import ExportOptions, export_chat
from tinyweb.graph.ir import Variable

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str | Path) -> dict[str, Any]:
    command = ["node", ROOT / "tools/run_bundle.mjs", *arguments, "--runs", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


@pytest.fixture(scope="module")
def chat_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    model = write_small_model(folder / "model", ROOT / "assets/models/tinychat-7m")
    export_chat(model, folder / "site", ExportOptions(quant="f32", context=48), lambda *_: None)
    return folder / "site"


def test_a_chat_is_measured(chat_site: Path) -> None:
    result = run(chat_site, "--backend", "wasm", "--threads", "2", "--prompt-tokens", "20", "--tokens", "9")
    assert (result["backend"], result["adapter"]) == ("wasm", "2 CPU threads")
    assert (result["promptTokens"], result["tokens"], result["stopReason"]) == (20, 9, "max-tokens")
    assert result["tokensPerSecond"] > 0 and result["firstTokenMs"] > 0 and result["kernelsPerToken"] > 8
    manifest = json.loads((chat_site / "model/manifest.json").read_text())
    rotary = next(b["bytes"] for b in manifest["buffers"] if b["name"] == "rotary")
    assert result["weightBytesPerToken"] == manifest["weights"]["bytes"] - rotary
    start = result["start"]
    assert 0 < start["manifestMs"] < min(start["weightsMs"], start["kernelsMs"]) <= start["readyMs"]


def test_a_function_is_measured(tmp_path: Path) -> None:
    weight = Tensor([[1.0, 2.0], [3.0, 4.0]])
    export_function(lambda x: x @ weight, {"x": Tensor.zeros(3, 2)}, tmp_path / "site")
    result = run(tmp_path / "site", "--backend", "wasm-single")
    assert (result["task"], result["kernels"]) == ("function", 1)
    assert 0 < result["runMs"] <= result["withCopiesMs"]


def test_sizes_that_vary_in_node(tmp_path: Path) -> None:
    """Shapes say what they are, or the number of elements does; outputs have those of the call."""
    rows, columns = Variable("rows", 1, 3).bind(1), Variable("columns", 1, 5).bind(1)

    def function(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"z": x + y, "turned": x.transpose(0, 1) * 2, "sums": x.sum(1)}

    examples = {"x": Tensor.zeros(3, 5)[:rows, :columns], "y": Tensor.zeros(5)[:columns]}
    export_function(function, examples, tmp_path / "site", targets=["wasm"])
    script = """
      const { install } = await import(process.argv[3]);
      install({ gpu: false });
      const { load } = await import(process.argv[2]);
      const model = await load({ backend: "wasm-single" });
      const y = Float32Array.of(10, 20, 30, 40, 50);
      const told = [];
      for (const [m, n] of [[3, 5], [2, 3], [1, 1]]) {
        const data = Float32Array.from({ length: m * n }, (_, i) => i);
        const out = await model.run({ x: { data, shape: [m, n] }, y: y.subarray(0, n) });
        told.push(...Object.values(out).map(({ data, shape }) => [[...data], shape]));
      }
      const kept = await model.run({ x: { data: y.subarray(0, 2), shape: [2, 1] } });
      told.push([[...kept.z], kept.z.shape]);
      const failed = (x) => model.run({ x }).catch(({ code, message }) => told.push(`${code}: ${message}`));
      await failed({ data: y, shape: [1, 5] });
      await failed({ data: y, shape: [5, 1] });
      console.log(JSON.stringify([told, model.info.functions.run.inputs, model.info.variables]));
      await model.dispose();
    """
    (tmp_path / "call.mjs").write_text(script)
    files = (tmp_path / "site/model/model.js", ROOT / "tools/node_web.mjs")
    command = ["node", tmp_path / "call.mjs", *(f.as_uri() for f in files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told, inputs, variables = json.loads(done.stdout)
    want: list[Any] = []
    for m, n in ((3, 5), (2, 3), (1, 1)):
        x, y = np.arange(m * n).reshape(m, n), np.arange(10, 60, 10)[:n]
        want += [[a.ravel().tolist(), list(a.shape)] for a in (x + y, x.T * 2, x.sum(1))]
    assert told[:9] == want and told[9] == [[20, 30], [2, 1]]
    assert told[10].startswith('bad-argument: The inputs "x" and "y" have columns = 5 and columns = 1')
    assert told[11] == 'bad-argument: The input "x" has rows = 5; this model takes 1 … 3.'
    assert inputs[0] == {"name": "x", "dtype": "f32", "shape": [3, 5], "sizes": ["rows", "columns"]}
    assert variables == {"columns": {"min": 1, "max": 5}, "rows": {"min": 1, "max": 3}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give one exported site"),
        (["nowhere"], "no exported site"),
        (["SITE", "--tokens", "x"], "--tokens must be"),
    ],
)
def test_it_says_what_is_wrong(chat_site: Path, arguments: list[str], message: str) -> None:
    given = [str(chat_site) if a == "SITE" else a for a in arguments]
    command = ["node", str(ROOT / "tools/run_bundle.mjs"), *given, "--backend", "wasm-single"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1
