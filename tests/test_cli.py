"""The command line: what a user can get wrong, and what is left behind then."""

import codecs
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.main import get_command

from tests.export.small_model import write_small_model
from tinyweb.cli import _printable, app, main

MODELS = Path(__file__).parents[1] / "assets" / "models"
COMMAND = [sys.executable, "-m", "tinyweb.cli"]


def run(*arguments: str | Path, input: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=300, input=input)


Refused = Callable[..., str]


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """What a command says that must end with exit code 2 and one sentence. Runs it in this process."""

    def run_it(*arguments: str | Path) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capfd.readouterr()
        assert ended.value.code == 2, err
        assert out == ""
        said = [
            line
            for line in err.splitlines()
            if not re.match(r"tinyweb: (reading the model|planning|compiling|measuring)", line)
        ]
        assert len(said) == 1 and said[0].startswith("tinyweb: "), err
        assert said[0].endswith((".", "!", "?"))
        return said[0]

    return run_it


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command that goes well prints. Runs it in this process, which keeps its kernels."""

    def run_it(*arguments: str | Path) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capfd.readouterr()
        assert not ended.value.code, err
        return out

    return run_it


@pytest.fixture
def small_model(tmp_path: Path, model_folder: Path) -> Path:
    return write_small_model(tmp_path / "models" / "small", model_folder)


def test_help_is_quick() -> None:
    code = (
        "import sys, tinyweb.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    for command in ("export", "serve", "run", "inspect", "doctor"):
        assert command in done.stdout
    heavy = {"numpy", "jinja2", "wgpu", "wasmtime", "tokenizers", "safetensors", "tinyweb.tensor", "http.server"}
    assert heavy.isdisjoint(done.stderr.split())


@pytest.mark.parametrize(
    "command",
    [["export", "chat"], ["serve"], ["run", "chat"], ["chat"], ["bench"], ["inspect"], ["completion"], ["doctor"]],
)
def test_every_option_is_documented(command: list[str]) -> None:
    found = get_command(app)
    for word in command:
        found = found.commands[word]  # type: ignore[attr-defined]
    assert found.help
    for parameter in found.params:
        assert getattr(parameter, "help", None), parameter.name


def test_version() -> None:
    import tinyweb

    assert run("--version").stdout == f"tinyweb {tinyweb.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["foo"], "No such command 'foo'"),
        (["serve"], "Missing argument 'SITE'"),
        (["serve", ".", "--allow-host", "box.example:8000"], "'box.example:8000' is no name of a host"),
        (["api", "m", "--allow-host", "::1", "--allow-host", "http://box"], "'http://box' is no name of a host"),
        (["serve", "nowhere"], "There is no folder nowhere"),
        (["serve", "nowhere", "--port", "http"], "'--port'"),
        (["serve", "nowhere", "--port", "65536"], "'--port'"),
        (["serve", "nowhere", "--prot", "1"], "--prot"),
        (
            ["export", "chat", "nowhere", "-o", "x", "--quant", "q9"],
            "'q9' is not one of 'stored', 'f32', 'f16', 'q8', 'q6', 'q5', 'q4', 'q3', 'mixed'",
        ),
        (["export", "chat", "nowhere", "-o", "x"], "nowhere does not exist"),
        (["export", "chat", "nowhere"], "Missing option"),
        (["export", "chat", "nowhere", "-o", "x", "--shard-bytes", "12"], "--shard-bytes"),
        (["run", "chat", "nowhere", "--prompt", "x"], "nowhere does not exist"),
        (["run", "chat", "nowhere", "--json"], "--json needs a --prompt"),
        (["run", "chat", "nowhere", "--prompt", "x", "--temperature", "-1"], "'--temperature'"),
        (["run", "chat", "nowhere", "--prompt", "x", "--tune", "0"], "'--tune'"),
        (["tune", "chat", "nowhere"], "nowhere does not exist"),
        (["tune", "chat", "nowhere", "--seconds", "0"], "'--seconds'"),
        (["tune", "function", "nowhere:nothing"], "nowhere"),
        (["inspect", "nowhere"], "nowhere does not exist"),
        (["inspect", "nowhere", "--verify"], "nowhere is no exported site"),
        (["export", "chat", MODELS / "tinyembed", "-o", "x"], "`tinyweb export embed` and `tinyweb run embed` take it"),
        (["export", "embed", MODELS / "tinyyolo", "-o", "x"], "is an object detector, not a model of vectors"),
        (["export", "detect", MODELS / "tinychat-7m", "-o", "x"], "is a language model, not an object detector"),
        (["export", "image", MODELS / "tinychat-7m", "-o", "x"], "`tinyweb export chat` and `tinyweb run chat` take"),
        (["run", "chat", MODELS / "tinysd", "--prompt", "x"], "is a model that paints, not a language model"),
        (["tune", "chat", MODELS / "tinyembed"], "is a model of vectors (embeddings), not a language model"),
        (["run", "image", MODELS / "tinysd", "x", "-o", MODELS], "is a folder: give the name of a picture"),
    ],
)
def test_wrong_words(refused: Refused, arguments: list[str | Path], says: str) -> None:
    assert says in refused(*arguments)


THEIRS = """from tinyweb import Tensor

def raises():
    raise KeyError("w")

def wrong():
    return (lambda x: x @ Tensor.ones(3, 3)), {"x": Tensor.zeros(2, 2)}

def random():
    return (lambda x: x + Tensor.rand(2)), {"x": Tensor.zeros(2)}
"""


def test_what_a_users_own_code_raises(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_code.py").write_text(THEIRS)
    (tmp_path / "own_typo.py").write_text("x = 1\ndef make(:\n")
    (tmp_path / "own_import.py").write_text("import math\n\nmath.nothing\n")
    monkeypatch.chdir(tmp_path)
    for maker, said in {
        "own_code:raises": "own_code.py, line 4: KeyError: 'w' (--debug shows more).",
        "own_code:wrong": "own_code.py, line 7: ",
        "own_code:random": "a bundle has no source of them yet; make them an input.",
        "own_typo:make": "own_typo.py, line 2: SyntaxError: invalid syntax",
        "own_import:make": "own_import.py, line 3: AttributeError: module 'math' has no attribute 'nothing'",
    }.items():
        assert said in refused("export", "function", maker, "-o", "site")
    assert "own_code.py, line 4: " in refused("tune", "function", "own_code:raises")
    assert not (tmp_path / "site").exists()


def test_an_output_that_cannot_be(refused: Refused, small_model: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("x")
    assert "is not empty" in refused("export", "chat", small_model, "-o", full)
    assert "does not hold an exported site" in refused("export", "chat", small_model, "-o", full, "--force")
    assert "is a file" in refused("export", "chat", small_model, "-o", full / "thesis.tex")
    assert [p.name for p in full.iterdir()] == ["thesis.tex"]


def _edit_json(name: str, **changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        value = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({k: v for k, v in value.items() if v is not None}))

    return edit


def _cut(name: str, size: int) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:size])

    return edit


def _weights(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return edit


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "config.json"),
    "config cut off": (_cut("config.json", 40), "config.json"),
    "another architecture": (_edit_json("config.json", architectures=["RwkvForCausalLM"]), "RwkvForCausalLM"),
    "no hidden size": (_edit_json("config.json", hidden_size=None), "hidden_size"),
    "hidden size is a word": (_edit_json("config.json", hidden_size="32"), "hidden_size"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json"),
    "tokenizer cut off": (_cut("tokenizer.json", 5000), "tokenizer.json"),
    "tokenizer of another kind": (_edit_json("tokenizer.json", model=None), "tokenizer.json"),
    "template is no Jinja2": (_edit_json("tokenizer_config.json", chat_template="{% for %}"), "chat template"),
    "temperature is a word": (_edit_json("generation_config.json", do_sample=True, temperature="hot"), "temperature"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "safetensors"),
    "weights cut off": (_cut("model.safetensors", 100_000), "model.safetensors"),
    "header cut off": (_cut("model.safetensors", 30), "model.safetensors"),
    "empty weights": (_cut("model.safetensors", 0), "model.safetensors"),
    "a tensor is missing": (_weights(lambda t: t.pop("model.norm.weight")), "model.norm.weight"),
    "a tensor of another shape": (
        _weights(lambda t: t.update({"model.norm.weight": np.ones(31, np.float16)})),
        "model.norm.weight",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model(refused: Refused, small_model: Path, tmp_path: Path, damage: str) -> None:
    edit, says = DAMAGES[damage]
    edit(small_model)
    assert says in refused("export", "chat", small_model, "-o", tmp_path / "out" / "site")
    assert says in refused("run", "chat", small_model, "--prompt", "Hello!")
    assert not (tmp_path / "out").exists()


def test_a_context_that_is_too_long(refused: Refused, small_model: Path, tmp_path: Path) -> None:
    assert "1 to 64" in refused("export", "chat", small_model, "-o", tmp_path / "site", "--context", "65")
    assert "65 tokens" in refused("run", "chat", small_model, "--prompt", "x", "--context", "65")
    assert not (tmp_path / "site").exists()


def test_a_prompt_that_is_too_long(refused: Refused, small_model: Path) -> None:
    said = refused("run", "chat", small_model, "--prompt", "word " * 100)
    assert "is too long by 62 tokens: the prompt takes 110 (100 the message)" in said


def test_debug_shows_where(tmp_path: Path) -> None:
    for arguments in (["--debug", "serve", "nowhere"], ["serve", "nowhere", "--debug"]):
        done = run(*arguments)
        assert done.returncode == 1 and "Traceback" in done.stderr and "There is no folder nowhere" in done.stderr


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_export_that_is_stopped(small_model: Path, tmp_path: Path, by: signal.Signals, code: int) -> None:
    out = tmp_path / "out"
    command = [*COMMAND, "export", "chat", str(small_model), "-o", str(out / "site")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not list(out.glob(".site.*/model")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(by)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == code and "Traceback" not in stderr
    assert not out.exists()


@pytest.mark.parametrize("busy", [0, 0.1])
@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_within_a_finaliser_is_not_lost(by: signal.Signals, code: int, busy: float) -> None:
    """Python ignores what a finaliser raises; three times over the signal arrives in one. On a busy machine what is
    sent again comes before the hook that sends it has returned."""
    script = f"""
import signal, time
from tinyweb.cli import _printable, app, main

set_timer = signal.setitimer
def slowly(*arguments):
    set_timer(*arguments)
    time.sleep({busy})
signal.setitimer = slowly

class Last:
    def __del__(self):
        signal.raise_signal({int(by)})

@app.command()
def work() -> None:
    for _ in range(3):
        Last()
    time.sleep(30)

main(["work"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (code, "")


def test_export_and_inspect(refused: Refused, said: Callable[..., str], small_model: Path, tmp_path: Path) -> None:
    """Twice the same bytes, whatever the site is called; what inspect says of it; --force."""
    sites = [tmp_path / "one", tmp_path / "else/two"]
    for site in sites:
        done = run(
            "export", "chat", small_model, "-o", site, "--quant", "q8", "--context", "32", "--shard-bytes", "40000"
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "" and "kernels per token" in done.stderr
    first, second = ({p.relative_to(s): p.read_bytes() for p in s.rglob("*") if p.is_file()} for s in sites)
    assert first.keys() == second.keys()
    assert [str(p) for p in first if first[p] != second[p]] == []
    assert str(tmp_path).encode() not in b"".join(data for path, data in first.items() if path.parts[0] == "model")

    report = json.loads(said("inspect", sites[0], "--json", "--verify"))
    assert report["verified"] is True
    assert report["model"] | {"parameters": 0} == {
        "architecture": "llama", "parameters": 0, "layers": 1, "vocab_size": 4096, "context": 32, "quant": "q8",
        "cache": "f16",
    }  # fmt: skip
    assert report["weights"]["shards"] == -(-report["bytes"]["download"] // 39936)
    assert 0 < report["kernels_per_token"] <= 16 * 1 + 8  # where activations are rounded, on processors
    assert report["limits"]["maxStorageBuffersPerShaderStage"] <= 8
    assert "kernels per token" in said("inspect", sites[0])

    assert "is not empty" in refused("export", "chat", small_model, "-o", sites[0])
    said("export", "chat", small_model, "-o", sites[0], "--quant", "q8", "--context", "32", "--force")
    assert json.loads(said("inspect", sites[0], "--json"))["weights"]["shards"] == 1 < report["weights"]["shards"]


def test_run_chat_answers(model_folder: Path, said: Callable[..., str]) -> None:
    arguments = [
        "run",
        "chat",
        model_folder,
        "--prompt",
        "What is 7 plus 5?",
        "--max-tokens",
        "24",
        "--temperature",
        "0",
    ]
    answer = json.loads(said(*arguments, "--json"))
    assert re.search(r"\b12\b", answer["text"])
    assert answer["tokens"][-1] == 4 and all(isinstance(t, int) for t in answer["tokens"])
    assert answer["prompt_tokens"] == len(answer["prompt_ids"]) > 10
    assert answer["tokens_per_second"] > 0
    assert run(*arguments).stdout == answer["text"] + "\n"


def test_run_chat_with_a_system_prompt_and_a_seed(small_model: Path, said: Callable[..., str]) -> None:
    asked = ["--prompt", "Tell me a story.", "--max-tokens", "12", "--json", "--temperature", "1.5"]

    def answer(*more: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(said("run", "chat", small_model, *asked, *more))
        return found

    system = ["--system", "You are TinyChat.", "--top-k", "0", "--top-p", "1", "--repetition-penalty", "1.1"]
    first, again, other = (answer(*system, "--seed", seed) for seed in ("1", "1", "2"))
    assert first["tokens"] == again["tokens"] != other["tokens"]
    assert first["prompt_tokens"] > answer("--seed", "1")["prompt_tokens"]


def test_run_chat_without_a_prompt_reads_the_input(model_folder: Path) -> None:
    done = run("run", "chat", model_folder, "--temperature", "0", input="Hello, my name is Mira!\nWhat is my name?\n")
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == 2 and all("Mira" in a for a in answers)


def test_doctor(said: Callable[..., str]) -> None:
    report = json.loads(run("doctor", "--json").stdout)
    assert {"CPU", "WASM", "WEBGPU", "INTERPRETER", "toolchain"} <= report["works"].keys()
    assert report["works"]["CPU"] and report["works"]["INTERPRETER"]
    for finding in report["findings"]:
        assert finding["detail"] if finding["works"] else finding["reason"]
    shown = said("doctor")
    assert "CPU" in shown and "works" in shown


@pytest.mark.skipif(os.name == "nt", reason="names of files are text there")
def test_console_without_the_characters(tmp_path: Path) -> None:
    """In a C locale without UTF-8: text that cannot be shown is a question mark, bytes of a name stay as they are."""
    folder = os.fsencode(tmp_path) + b"/a\xff"
    env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([*COMMAND, "run", "chat", folder], capture_output=True, timeout=300, env=env)
    assert done.returncode == 2
    assert b"/a\xff" in done.stderr.replace(b"\n", b"")
    assert b"Traceback" not in done.stderr
    codecs.register_error("tinyweb", _printable)
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", errors="tinyweb")
    stream.write("ü\udcffa…")
    stream.flush()
    assert stream.buffer.getvalue() == b"?\xffa?"  # type: ignore[attr-defined]
