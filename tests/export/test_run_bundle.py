"""tools/run_bundle.mjs: an exported bundle in Node, with the site's own runtime library."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.export.small_model import write_small_model
from tinyweb import Tensor
from tinyweb.export import export_function
from tinyweb.export.chat import ExportOptions, export_chat

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
