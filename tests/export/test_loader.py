"""The generated loader: what it says, that it parses, and that its types are those of the runtime library."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tinyweb.export.loader import write_loader

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[[], Path]
ARRAYS = [("a b", 4, "f32", [4]), ("y", 3, "f32", [1, 32]), ("half", 0, "f16", [32, 8]), ("long", 5, "i64", [])]


def write(make_bundle: Make, name: str = "toy") -> Path:
    bundle = make_bundle() / "model"
    manifest = json.loads((bundle / "manifest.json").read_text()) | {"name": name}
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
    assert import_it(bundle, "m.load()") == [bundle.as_uri() + "/", {}]
    assert import_it(bundle, "m.load({ backend: 'wasm' })") == [bundle.as_uri() + "/", {"backend": "wasm"}]
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
const back = (value: model.ChatInfo): tinyweb.ChatInfo => value;
const options = (value: model.GenerateOptions): tinyweb.GenerateOptions => value;
const optionsBack = (value: tinyweb.GenerateOptions): model.GenerateOptions => value;
const loading = (value: tinyweb.LoadOptions): model.LoadOptions => value;
void [load, info, back, options, optionsBack, loading];
"""
FUNCTION_TYPES = """
const info = (value: tinyweb.FunctionInfo): model.FunctionInfo => value;
const back = (value: model.FunctionInfo): tinyweb.FunctionInfo => value;
const inputs = (value: model.Functions["decode"]["inputs"]): tinyweb.Arrays => ({ ...value }) as tinyweb.Arrays;
const loading = (value: tinyweb.LoadOptions): model.LoadOptions => value;
const use = async (f: model.Model, t: tinyweb.FunctionModel): Promise<void> => {
  const { y, long } = await f.run({ "a b": new Float32Array(4) }, { outputs: ["y"] });
  const both: [Float32Array, BigInt64Array] = [y, long];
  const same: Parameters<typeof t.run>[1] = { outputs: ["y"] } satisfies Parameters<typeof f.run>[1];
  void [both, same, await t.dispose(), await f.dispose()];
};
void [info, back, inputs, loading, use];
"""


FUNCTIONS_TYPES = """
const use = async (f: model.Model, t: tinyweb.FunctionModel): Promise<void> => {
  const { y } = await f.run({ "a b": new Float32Array(4) }, { function: "decode", outputs: ["y"] });
  const { long } = await f.run({ y: new Float32Array(32) }, { function: "sample" });
  // @ts-expect-error: the name is needed
  await f.run({ "a b": new Float32Array(4) });
  // @ts-expect-error: of the other function
  await f.run({ "a b": new Float32Array(4) }, { function: "sample" });
  const both: [Float32Array, BigInt64Array] = [y, long];
  const same: Parameters<typeof t.run>[1] = { function: "sample" } satisfies Parameters<typeof f.run>[1];
  void [both, same];
};
void use;
"""
TYPES = {"chat": CHAT_TYPES, "function": FUNCTION_TYPES, "functions": FUNCTIONS_TYPES}


@pytest.mark.parametrize("task", TYPES)
def test_types_are_those_of_the_library(make_bundle: Make, tmp_path: Path, task: str) -> None:
    """model.d.ts stands on its own; this holds it against the library's own types, in both directions that matter."""
    bundle = write(make_bundle)
    if task != "chat":
        as_function(bundle, several=task == "functions")
    (tmp_path / "check.ts").write_text(
        f"""import * as tinyweb from "{ROOT}/web/runtime/src/index.js";
import * as model from "{bundle}/model.js";
{TYPES[task]}"""
    )
    config = {
        "extends": f"{ROOT}/web/runtime/tsconfig.build.json",
        "compilerOptions": {"noEmit": True, "declaration": False, "emitDeclarationOnly": False, "rootDir": "/"},
        "include": [],
        "files": ["check.ts", f"{ROOT}/web/runtime/src/page.d.ts"],
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps(config))
    done = subprocess.run(
        [ROOT / "node_modules/.bin/tsc", "-p", tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT / "web/runtime",
    )
    assert done.returncode == 0, done.stdout
