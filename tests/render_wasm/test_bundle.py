"""The bundle's module: entry points over baked addresses, alone in wasmtime and with threads in Node."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import wasmtime

from tests.native_runtimes.programs import Writer
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError, ExportError
from tinyweb.graph.ir import Variable
from tinyweb.graph.program import Program
from tinyweb.render_wasm import BundleCall, bundle_source, compile_bundle, static_data_bytes
from tinyweb.render_wasm.bundle import _with_loops

I32 = dtypes.int32
N = 20011  # not a multiple of any number of threads, and enough work for threads to get in each other's way
VARIABLES, CONTROL, STACKS, STACK_BYTES, STATIC, FIRST = 1024, 2048, 4096, 16384, 3 * 65536, 4 * 65536
PAGES = 12
SLOTS = {"unused": 0, "n": 1, "by": 2}


def address(buffer: int) -> int:
    return FIRST + 81920 * buffer


def step(name: str, serial: bool = False) -> Program:
    """out[i] = a[(i * 7 + by) % N] * 3 + i for i < n: depends on all of `a`, so order matters."""
    n, by = Variable("n", 0, N), Variable("by", 0, 5)
    w = Writer()
    out, a = w.param(I32, N), w.param(I32, N)
    i = w.grid(1 if serial else n)
    if serial:
        i = w.loop(n)
    w.store(out, i, w.load(a, (i * 7 + by) % N) * 3 + i.cast(I32))
    if serial:
        w.end(i)
    return w.program(name, (1 if serial else n, 1, 1))


PROGRAMS = [step("wide"), step("serial", serial=True)]
# a chain through buffers 0 … 2 with serial launches in between, and launches that are independent of each other
CHAIN = [(0, 1, 0), (0, 2, 1), (1, 0, 2), (1, 1, 0), (0, 2, 1), (0, 0, 2), (0, 1, 0), (0, 3, 0), (0, 4, 0)] * 5
ENTRY_POINTS = {
    "chain": [BundleCall(p, (address(out), address(a))) for p, out, a in CHAIN],
    "once": [BundleCall(0, (address(5), address(0)))],
}


def source() -> str:
    return bundle_source(PROGRAMS, ENTRY_POINTS, SLOTS, VARIABLES, CONTROL)


def module(threads: bool) -> bytes:
    return compile_bundle(
        source(), list(ENTRY_POINTS), threads=threads, pages=PAGES, static_base=STATIC, static_bytes=4096
    )


def expected(n: int, by: int, repeat: int = 1) -> np.ndarray:
    buffers = np.zeros((6, N), np.int32)
    buffers[0] = np.arange(N)
    i = np.arange(n)
    for _, out, a in [*CHAIN, (0, 5, 0)] * repeat:
        buffers[out][:n] = buffers[a][(i * 7 + by) % N] * np.int32(3) + i.astype(np.int32)
    return buffers


def test_the_module_imports_memory_alone_and_is_the_same_each_time() -> None:
    assert source() == source()
    engine = wasmtime.Engine()
    found = wasmtime.Module(engine, module(threads=False))
    assert [(i.module, i.name) for i in found.imports] == [("env", "memory")]
    limits = found.imports[0].type.limits
    assert (limits.min, limits.max) == (PAGES, PAGES)
    assert {e.name for e in found.exports} == {"chain", "once", "__stack_pointer"}


@pytest.mark.parametrize(("n", "by"), [(N, 2), (1, 0), (0, 1), (3, 5)])
def test_one_thread(n: int, by: int) -> None:
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(PAGES, PAGES)))
    exports = wasmtime.Instance(store, wasmtime.Module(engine, module(threads=False)), [memory]).exports(store)
    exports["__stack_pointer"].set_value(store, STACKS + STACK_BYTES)
    memory.write(store, np.array([7, n, by], np.int32).tobytes(), VARIABLES)
    memory.write(store, np.arange(N, dtype=np.int32).tobytes(), address(0))
    exports["chain"](store, 0, 1)
    exports["once"](store, 0, 1)
    for b, values in enumerate(expected(n, by)):
        got = np.frombuffer(bytes(memory.read(store, address(b), address(b) + 4 * N)), np.int32)
        np.testing.assert_array_equal(got, values, err_msg=f"buffer {b}")


# All threads call each entry point as the loader does; the main thread only waits, as a page's main thread would.
NODE = """
const { Worker, isMainThread, workerData, parentPort } = require("node:worker_threads");
const fs = require("node:fs");
const job = isMainThread ? JSON.parse(process.argv[2]) : workerData.job;
if (isMainThread) {
  const memory = new WebAssembly.Memory({ initial: job.pages, maximum: job.pages, shared: true });
  const words = new Int32Array(memory.buffer);
  words.set(job.values, job.variables / 4);
  for (let i = 0; i < job.count; i++) words[job.buffers[0] / 4 + i] = i;
  const module = new WebAssembly.Module(fs.readFileSync(job.module));
  let left = job.threads;
  for (let thread = 0; thread < job.threads; thread++) {
    const worker = new Worker(__filename, { workerData: { job, memory, module, thread } });
    worker.on("error", (e) => { console.error(e); process.exit(1); });
    worker.on("exit", () => {
      if (--left) return;
      const control = Array.from(words.slice(job.control / 4, job.control / 4 + 32));
      const out = job.buffers.map((b) => Array.from(words.slice(b / 4, b / 4 + job.count)));
      console.log(JSON.stringify({ control, out }));
    });
  }
} else {
  const { memory, module, thread } = workerData;
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  exports.__stack_pointer.value = job.stacks + (thread + 1) * job.stackBytes;
  const ready = new Int32Array(memory.buffer, job.control + 16, 1);  // begin together
  if (Atomics.add(ready, 0, 1) + 1 === job.threads) Atomics.notify(ready, 0);
  for (let seen; (seen = Atomics.load(ready, 0)) < job.threads; ) Atomics.wait(ready, 0, seen, 100);
  for (let i = 0; i < job.repeat; i++) for (const name of job.calls) exports[name](thread, job.threads);
}
"""


@pytest.mark.parametrize(("threads", "n", "by"), [(1, N, 2), (2, N, 2), (4, N, 1), (8, 3, 5), (3, 0, 1)])
def test_threads_in_node(tmp_path: Path, threads: int, n: int, by: int) -> None:
    node = shutil.which("node")
    assert node is not None, "the tests need Node 20"
    (tmp_path / "bundle.wasm").write_bytes(module(threads=True))
    (tmp_path / "run.cjs").write_text(NODE)
    job = {
        "module": str(tmp_path / "bundle.wasm"), "pages": PAGES, "threads": threads, "calls": ["chain", "once"],
        "values": [7, n, by], "variables": VARIABLES, "control": CONTROL, "stacks": STACKS, "stackBytes": STACK_BYTES,
        "buffers": [address(b) for b in range(6)], "count": N, "repeat": 5,
    }  # fmt: skip
    done = subprocess.run(
        [node, tmp_path / "run.cjs", json.dumps(job)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    np.testing.assert_array_equal(result["out"], expected(n, by, 5))
    module_words = result["control"][:4] + result["control"][16:]
    assert module_words == [0, 0, 2 * job["repeat"]] + [0] * 17  # two calls have ended, and nobody is left waiting


def test_variables_must_have_slots() -> None:
    with pytest.raises(DeviceError, match="no slot was given for the variable by"):
        bundle_source(PROGRAMS, ENTRY_POINTS, {"n": 0}, VARIABLES, CONTROL)


def test_a_call_needs_an_address_for_each_parameter() -> None:
    with pytest.raises(ExportError, match="takes 2 buffers and was given 1"):
        bundle_source(PROGRAMS, {"bad": [BundleCall(0, (address(0),))]}, SLOTS, VARIABLES, CONTROL)
    with pytest.raises(ExportError, match="function's name"):
        bundle_source(PROGRAMS, {"not-a-name": []}, SLOTS, VARIABLES, CONTROL)


def test_static_data_has_its_place() -> None:
    table = ", ".join(str(i * i) for i in range(300))
    entry = f"void entry(int thread, int threads) {{ *(int *){FIRST} = table[thread]; }}"
    text = f"const int table[300] = {{{table}}}; {entry}"
    given = {"threads": False, "pages": PAGES, "static_base": STATIC}
    built = compile_bundle(text, ["entry"], **given, static_bytes=2048)
    assert 1200 <= static_data_bytes(built) <= 1300
    with pytest.raises(ExportError, match="bytes of static data"):
        compile_bundle(text, ["entry"], **given, static_bytes=1024)
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(PAGES, PAGES)))
    exports = wasmtime.Instance(store, wasmtime.Module(engine, built), [memory]).exports(store)
    exports["entry"](store, 7, 1)
    assert int.from_bytes(memory.read(store, FIRST, FIRST + 4), "little") == 49
    assert set(memory.read(store, 0, STATIC)) == {0} and set(memory.read(store, STATIC + 1300, FIRST)) == {0}


def test_launches_that_come_again_and_again_are_a_loop() -> None:
    """Within one another, too; others stay as they are."""
    loop = "  for (int i = 0; i < {}; ++i) {{\n{}\n  }}"
    assert _with_loops(list("ab" + "xyyyyz" * 50 + "cd")) == ["a", "b", loop.format(50, "\n".join("xyyyyz")), "c", "d"]
    alone = [str(i) for i in range(500)]
    assert _with_loops(alone) == alone and _with_loops(list("aaa")) == list("aaa") and _with_loops([]) == []
    body = [str(i) for i in range(5)] + ["y"] * 9
    rolled = _with_loops((body + ["z"]) * 7)
    assert rolled == [loop.format(7, "\n".join([*body, "z"]))]
