"""`tinyweb bench`, `tinyweb completion`, and `tinyweb inspect` of what is no site."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from tests.export.small_model import write_small_model
from tests.test_cli import COMMAND, Refused, refused, run
from tinyweb.cli.completion import VARIABLE
from tinyweb.export.choices import bits, quants
from tinyweb.export.estimate import Shapes, choices
from tinyweb.export.inspect_source import inspect_source
from tinyweb.formats.source import open_model
from tinyweb.models.decoder.architectures import read_config

assert refused  # a fixture
MODELS = Path(__file__).resolve().parents[1] / "assets" / "models"
FAST = ["--prompt-tokens", "16", "--tokens", "4", "--runs", "1"]


@pytest.fixture
def small_model(tmp_path: Path, model_folder: Path) -> Path:
    return write_small_model(tmp_path / "models" / "small", model_folder)


def test_bench_by_device_and_threads(small_model: Path) -> None:
    arguments = ["bench", small_model, "--device", "CPU", "--device", "WASM", "--threads", "1", "--threads", "2", *FAST]
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [(r["device"], r["threads"]) for r in report["results"]] == [("CPU", 1), ("CPU", 2), ("WASM", None)]
    for row in report["results"]:
        assert row["tokens_per_second"] > 0 and row["prompt_tokens_per_second"] > 0 and row["first_token_seconds"] > 0
        assert row["peak_bytes"] > row["weight_bytes"] + row["state_bytes"] > 100_000
    shown = run("bench", small_model, *FAST).stdout
    assert "16 tokens read, 4 made" in shown and "CPU" in shown and "MiB" in shown


def test_bench_says_what_cannot_be(small_model: Path, refused: Refused, tmp_path: Path) -> None:
    assert "more than the context of 64" in refused("bench", small_model, "--tokens", "63", "--prompt-tokens", "2")
    assert "unknown device" in refused("bench", small_model, "--device", "ABACUS", *FAST)
    assert "does not exist" in refused("bench", "nowhere")
    assert "not a language model" in refused("bench", MODELS / "tinyembed", *FAST)
    done = run("bench", small_model, "--device", "ABACUS", "--device", "CPU", *FAST, "--json")
    broken, works = json.loads(done.stdout)["results"]
    assert "unknown device" in broken["error"] and works["tokens_per_second"] > 0


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("tinyweb ", {"export", "chat", "bench", "inspect", "serve", "completion"}),
        ("tinyweb export ", {"chat", "embed", "detect", "image", "function"}),
        ("tinyweb export chat x --quant ", {"q8", "q4"}),
        ("tinyweb be", {"bench"}),
        ("tinyweb run chat --temp", {"--temperature"}),
    ],
)
def test_shells_complete(words: str, found: set[str]) -> None:
    ask: dict[str, dict[str, str]] = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(len(f"{words}x".split()) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    for shell, variables in ask.items():
        env = os.environ | variables | {VARIABLE: f"complete_{shell}"}
        done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=120, env=env)
        for word in found:
            assert word in done.stdout, (shell, done)


def test_scripts_of_shells(refused: Refused) -> None:
    for shell in ("bash", "zsh", "fish", "powershell"):
        script = run("completion", shell).stdout
        assert VARIABLE in script and "tinyweb" in script
    assert "'tcsh' is not one of" in refused("completion", "tcsh")


def test_bash_completes(tmp_path: Path) -> None:
    """The script in a bash: choices of commands, and files where a command has none to offer."""
    command = tmp_path / "tinyweb"
    command.write_text(f'#!/bin/sh\nexec {COMMAND[0]} -m tinyweb.cli "$@"\n')
    command.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    asks = (
        'eval "$(tinyweb completion bash)"; COMP_WORDS=(tinyweb ins); COMP_CWORD=1; '
        '_tinyweb_completion tinyweb; echo "${COMPREPLY[@]}"; complete -p tinyweb'
    )
    done = subprocess.run(["bash", "-c", asks], capture_output=True, text=True, timeout=120, env=env)
    assert done.stdout.splitlines()[0] == "inspect" and "-o default" in done.stdout, done


def test_inspect_tells_what_a_model_is(small_model: Path, tmp_path: Path) -> None:
    report = json.loads(run("inspect", small_model, "--json").stdout)
    assert report["kind"] == report["export"] == "chat" and report["supported"] and report["chat_template"]
    assert report["architecture"] == "LlamaForCausalLM" and report["layers"] == 1 and report["context"] == 64
    assert report["stored"] == {"float16": report["parameters"]} and report["bytes"] > 2 * report["parameters"]
    assert all(d["fits"] and d["quant"] == "q8" and d["context"] == 64 for d in report["devices"])
    shown = run("inspect", small_model).stdout
    assert "LlamaForCausalLM" in shown and "recent phone" in shown and "chat template" in shown
    config = json.loads((small_model / "tokenizer_config.json").read_text())
    config.pop("chat_template")
    (small_model / "tokenizer_config.json").write_text(json.dumps(config))
    assert inspect_source(small_model)["kind"] == "completion"
    (small_model / "config.json").write_text(json.dumps({"architectures": ["NoSuchModel"]}))
    unknown = inspect_source(small_model)
    assert not unknown["supported"] and "NoSuchModel" in unknown["reason"]


@pytest.mark.parametrize(
    ("name", "kind"), [("tinyembed", "embedding"), ("tinyyolo", "detection"), ("tinysd", "pictures")]
)
def test_inspect_knows_other_models(name: str, kind: str) -> None:
    report = inspect_source(MODELS / name)
    assert report["kind"] == kind and report["supported"] and report["bytes"] > 1e6
    assert json.loads(json.dumps(report)) == report
    if kind == "detection":
        assert "apple" in report["labels"] or len(report["labels"]) > 10


def test_inspect_a_gguf_and_what_is_none(tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "model.gguf"
    writer = GGUFWriter(str(file), "nosuch")
    writer.add_tensor("token_embd.weight", np.zeros((8, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "nosuch" in refused("inspect", file)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "is neither an exported site nor a model" in refused("inspect", empty)
    assert "is no exported site" in refused("inspect", empty, "--verify")


def test_estimates_are_near_what_is_exported(model_folder: Path, tmp_path: Path) -> None:
    """Weights to a hundredth, all memory to a tenth, but no less."""
    source = open_model(model_folder)
    shapes = Shapes.of(read_config(source.config)[0], source.weights())
    site = tmp_path / "site"
    assert run("export", "chat", model_folder, "-o", site, "--quant", "q4").returncode == 0
    made = json.loads(run("inspect", site, "--json").stdout)["targets"]["wasm"]["bytes"]
    assert shapes.weights.bytes("q4") == pytest.approx(made["weights"], rel=0.05)
    assert 0.9 * made["total"] < shapes.needs("q4", 512) < 1.3 * made["total"]


def test_choices_lose_as_little_as_they_can(model_folder: Path) -> None:
    source = open_model(model_folder)
    shapes = Shapes.of(read_config(source.config)[0], source.weights())
    best, least = quants()[0], quants()[-1]
    assert bits(best) > bits(least)
    first = next(choices(shapes, 1 << 40))
    assert (first.quant, first.context) == (best, 512) and first.needs == shapes.needs(best, 512)
    tight = shapes.needs(least, 512)
    found = next(choices(shapes, tight))
    assert found.needs <= tight and found.context == 512 and bits(found.quant) < bits(best)
    assert next(choices(shapes, tight, quant=best), None) is None or shapes.needs(best, 256) <= tight
    assert list(choices(shapes, 1000)) == []
    assert next(choices(shapes, 1 << 40, context=128)).context == 128
