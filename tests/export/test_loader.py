"""The generated loader: what it says, that it parses, and that its types are those of the runtime library."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tinyweb.export.loader import write_loader
from tinyweb.export.site import TASK_LIBRARY, copy_library

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[[], Path]
ARRAYS = [("a b", 4, "f32", [4]), ("y", 3, "f32", [1, 32]), ("half", 0, "f16", [32, 8]), ("long", 5, "i64", [])]


def write(make_bundle: Make, name: str = "toy", **figures: object) -> Path:
    bundle = make_bundle() / "model"
    manifest = json.loads((bundle / "manifest.json").read_text()) | {"name": name}
    manifest["model"] |= figures
    write_loader(bundle, manifest)
    return bundle


def test_it_describes_the_model(make_bundle: Make) -> None:
    text = (write(make_bundle) / "model.js").read_text()
    for line in (
        " * toy: a llama chat model of 2,256 parameters (f16), exported by tinyweb.",
        " *   prefill_8            10  reads up to 8 tokens of the prompt       count, start_pos",
        " *   decode                8  reads one token: logits of the next      start_pos",
        " *   ids                    i32    24",
        " *   logits                 f32    1 × 32",
        " *   start_pos   0 … 15",
        " * One token costs 12 kernels; 4 bytes come back from the device.",
        'import { loadChat } from "../assets/tinyweb.js";',
        "  vocabSize: 32,",
        "    temperature: 0.7,",
    ):
        assert f"\n{line}" in text, line
    assert max(map(len, text.splitlines())) <= 120


def test_what_was_measured_beside_f32_is_in_it(make_bundle: Make) -> None:
    bundle = write(make_bundle, fidelity="perplexity +0.5 %")
    assert '\n  fidelity: "perplexity +0.5 %",' in (bundle / "model.js").read_text()
    assert "\n  fidelity: string;" in (bundle / "model.d.ts").read_text()
    assert "fidelity" not in "".join((write(make_bundle) / name).read_text() for name in ("model.js", "model.d.ts"))


def as_function(bundle: Path, several: bool) -> None:
    """Writes the loader of a function, or of two, that have this bundle's memory."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    arrays = [{"name": n, "buffer": b, "dtype": d, "shape": s} for n, b, d, s in ARRAYS]
    plans = {"decode": {"inputs": arrays[:1], "outputs": arrays[1:]}}
    if several:
        plans["sample"] = {"inputs": arrays[1:2], "outputs": arrays[3:]}
    write_loader(bundle, manifest | {"name": "toy", "task": "function", "functions": plans})


def import_it(bundle: Path, expression: str) -> object:
    """What an expression of the loader's module `m` gives in Node; its library only notes how it was called."""
    assets = bundle.parent / "assets"
    assets.mkdir(exist_ok=True)
    (assets / "package.json").write_text('{"type": "module"}')
    (bundle / "package.json").write_text('{"type": "module"}')
    (assets / "tinyweb.js").write_text(
        "export class TinywebError extends Error {}\nexport const loadChat = (url, options) => [url.href, options];\n"
        "export const loadFunction = loadChat;\n"
    )
    script = (
        f"import * as m from {json.dumps((bundle / 'model.js').as_uri())}; console.log(JSON.stringify({expression}))"
    )
    done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_loads_what_lies_beside_it(make_bundle: Make) -> None:
    bundle = write(make_bundle)
    known = {"manifestSha256": hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()}
    assert import_it(bundle, "m.load()") == [bundle.as_uri() + "/", known]
    assert import_it(bundle, "m.load({ backend: 'wasm' })") == [bundle.as_uri() + "/", {"backend": "wasm", **known}]
    assert import_it(bundle, "[m.info.kernelsPerToken, m.info.defaults.topK, Object.isFrozen(m.info)]") == [
        12,
        40,
        True,
    ]


@pytest.mark.parametrize(
    "name", ['quote " and \\', "*/ alert(1) /*", "</script>", "line\nbreak", "模型 é", "${x} {{ y }}"]
)
def test_any_name_is_only_a_name(make_bundle: Make, name: str) -> None:
    shown = import_it(write(make_bundle, name), "m.info.name")
    assert shown == name.replace("*/", "* /").replace("\n", " ")


CHAT_TYPES = """
const load: typeof model.load = (options?: model.LoadOptions) => tinyweb.loadChat("x", options);
const info = (value: tinyweb.ChatInfo): model.ChatInfo => value;
const use = async (chat: model.Chat): Promise<void> => {
  const messages = [{ role: "user", content: model.info.name }];
  for await (const { text } of chat.generate(messages, { temperature: 0 })) text.trim();
  // @ts-expect-error: no such option
  chat.generate([], { warmth: 1 });
};
void [load, info, use, model.TinywebError satisfies typeof tinyweb.TinywebError];
"""
FUNCTION_TYPES = """
const info = (value: tinyweb.FunctionInfo): model.FunctionInfo => value;
const use = async (f: model.Model): Promise<void> => {
  const { y, long } = await f.run({ "a b": new Float32Array(4) }, { outputs: ["y"] });
  const both: [Float32Array, BigInt64Array] = [y, long];
  // @ts-expect-error: another type of elements
  await f.run({ "a b": new Int32Array(4) });
  void [both, await f.dispose(), f.on("device-lost", () => undefined), model.info.functions.decode.kernels];
};
void [info, use];
"""
FUNCTIONS_TYPES = """
const use = async (f: model.Model): Promise<void> => {
  const { y } = await f.run({ "a b": new Float32Array(4) }, { function: "decode", outputs: ["y"] });
  const { long } = await f.run({ y: new Float32Array(32) }, { function: "sample" });
  // @ts-expect-error: the name is needed
  await f.run({ "a b": new Float32Array(4) });
  // @ts-expect-error: of the other function
  await f.run({ "a b": new Float32Array(4) }, { function: "sample" });
  const both: [Float32Array, BigInt64Array] = [y, long];
  void both;
};
void use;
"""
TYPES = {"chat": CHAT_TYPES, "function": FUNCTION_TYPES, "functions": FUNCTIONS_TYPES}
# what a project of TypeScript is begun with today, and nothing of this repository's
OPTIONS = {
    "strict": True,
    "noEmit": True,
    "target": "es2022",
    "module": "nodenext",
    "lib": ["es2023", "dom"],
    "types": [],
}


@pytest.mark.parametrize("task", TYPES)
def test_types_are_those_of_the_library(make_bundle: Make, tmp_path: Path, task: str) -> None:
    """A page of somebody else's, in TypeScript, beside an exported site."""
    bundle = write(make_bundle)
    if task != "chat":
        as_function(bundle, several=task == "functions")
    copy_library(bundle.parent)
    (bundle.parent / "package.json").write_text('{"type": "module"}')
    (bundle.parent / "check.ts").write_text(
        f"""import * as tinyweb from "./assets/tinyweb.js";
import * as model from "./model/model.js";
{TYPES[task]}"""
    )
    (bundle.parent / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "files": ["check.ts"]}))
    done = subprocess.run(
        [ROOT / "node_modules/.bin/tsc", "-p", bundle.parent], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("task", TASK_LIBRARY)
def test_a_site_has_the_declarations_that_its_types_import(tmp_path: Path, task: str) -> None:
    copy_library(tmp_path, TASK_LIBRARY[task])
    types = sorted((tmp_path / "assets").rglob("*.d.ts"))
    asked = {
        os.path.normpath(path.parent / found)
        for path in types
        for found in re.findall(r"""["'](\.[^"']+)\.js["']""", path.read_text())
    }
    assert {os.path.normpath(path).removesuffix(".d.ts") for path in types if path.parent.name != "assets"} == asked
    assert {path.with_suffix("").stem + ".js" for path in (tmp_path / "assets").glob("*.d.ts")} == {
        name for name in TASK_LIBRARY[task] if "worker" not in name
    }
