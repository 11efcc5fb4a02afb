"""C in, shared objects and WebAssembly out: what compiles, what runs, what is cached, what is refused."""

import ctypes
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import wasmtime
from wasmtime import _ffi as ffi

from tinyweb import toolchain
from tinyweb.errors import ToolchainError
from tinyweb.toolchain import WASM_PAGE, compile_shared, compile_wasm, find_clang

SCALE = "void scale(float *out, const float *in, int n) { for (int i = 0; i < n; i++) out[i] = in[i] * 3.0f; }"

# What generated kernels are made of; `table` is static data, so the module has a data segment.
KERNELS = """
typedef float f4 __attribute__((vector_size(16)));
typedef int i4 __attribute__((vector_size(16)));
typedef signed char c4 __attribute__((vector_size(4)));
static const float table[5] = {1.5f, 2, 3, 4, 5.25f};
static int calls = 7;
void dot(float *out, const f4 *a, const c4 *b, int n) {
  f4 sum = {0};
  for (int i = 0; i < n; i++) sum += a[i] * __builtin_convertvector(b[i], f4);
  sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1);
  *out = sum[0] + sum[1];
}
void lengths(float *out, const float *x, int n) {
  for (int i = 0; i < n; i++) out[i] = __builtin_floorf(__builtin_sqrtf(x[i] * x[i] + 0.5f)) + table[i % 5];
}
void clear(float *out, int n) { for (int i = 0; i < n; i++) out[i] = 0; }
void copy(float *restrict out, const float *restrict in, int n) { for (int i = 0; i < n; i++) out[i] = in[i]; }
int count(void) { return ++calls; }
int deep(int n) { volatile int here[64]; here[0] = n; return n ? deep(n - 1) + here[0] : 0; }
"""
EXPORTS = ("dot", "lengths", "clear", "copy", "count", "deep")

ATOMIC = """
void add_many(int *p, int n) { while (n--) __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST); }
int wait_for(int *flag) { return __builtin_wasm_memory_atomic_wait32(flag, 0, 5000000000LL); }
int wake(int *flag) { return __builtin_wasm_memory_atomic_notify(flag, 9); }
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def forget_compiler() -> Iterator[None]:
    """The compiler is looked for anew in this test, and after it."""
    toolchain.find_clang.cache_clear()
    yield
    toolchain.find_clang.cache_clear()


def pointer(array: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


class SharedMemory(wasmtime.SharedMemory):
    """wasmtime 50's own cannot be given to an instance: it wraps a pointer where the C interface takes the pointer."""

    def _as_extern(self) -> ffi.wasmtime_extern_t:
        union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)


class Memory:
    """A linear memory, plain or shared, that modules can be instantiated on, each as a thread would."""

    def __init__(self, pages: int, shared: bool) -> None:
        config = wasmtime.Config()
        config.wasm_threads = True
        config.shared_memory = True
        config.wasm_relaxed_simd = True
        self.engine = wasmtime.Engine(config)
        self.store = wasmtime.Store(self.engine)
        kind = wasmtime.MemoryType(wasmtime.Limits(pages, pages), shared=shared)
        self.memory = SharedMemory(self.engine, kind) if shared else wasmtime.Memory(self.store, kind)
        in_store = [] if isinstance(self.memory, wasmtime.SharedMemory) else [self.store]
        address = self.memory.data_ptr(*in_store)
        self.bytes = np.ctypeslib.as_array(address, shape=(pages * WASM_PAGE,))

    def instantiate(self, module: bytes) -> "Instance":
        shared = isinstance(self.memory, wasmtime.SharedMemory)
        store = wasmtime.Store(self.engine) if shared else self.store
        instance = wasmtime.Instance(store, wasmtime.Module(self.engine, module), [self.memory])
        return Instance(store, instance.exports(store))

    def view(self, at: int, count: int, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        return self.bytes[at : at + count * np.dtype(dtype).itemsize].view(dtype)


class Instance:
    def __init__(self, store: wasmtime.Store, exports: Any) -> None:
        self.store = store
        self.exports = exports

    def call(self, name: str, *arguments: int) -> Any:
        return self.exports[name](self.store, *arguments)

    def value(self, name: str) -> Any:
        return self.exports[name].value(self.store)

    def set_stack(self, top: int) -> None:
        self.exports["__stack_pointer"].set_value(self.store, top)


# --- native -----------------------------------------------------------------------------------------------------------


def test_shared_object_runs(cache: Path) -> None:
    library = ctypes.CDLL(str(compile_shared(SCALE)))
    given = np.arange(1001, dtype=np.float32)
    result = np.empty_like(given)
    library.scale(pointer(result), pointer(given), 1001)
    np.testing.assert_array_equal(result, given * 3)


def test_shared_object_may_use_libm_and_compiler_headers(cache: Path) -> None:
    source = """#include <stdint.h>
    float expf(float);
    float f(uint8_t x) { return expf((float)x); }
    void zero(char *p) { __builtin_memset(p, 0, 100000); }"""
    library = ctypes.CDLL(str(compile_shared(source)))
    library.f.restype = ctypes.c_float
    assert library.f(2) == pytest.approx(np.exp(2), rel=1e-6)
    memory = np.ones(100001, np.int8)
    library.zero(pointer(memory))
    assert memory.sum() == 1


@pytest.mark.parametrize("flags", [(), ("-mno-f16c",)] if platform.machine() == "x86_64" else [()])
def test_half_precision_converts_like_numpy(cache: Path, flags: tuple[str, ...]) -> None:
    source = """void halves(_Float16 *out, float *back, const float *in, int n) {
      for (int i = 0; i < n; i++) { out[i] = (_Float16)in[i]; back[i] = (float)out[i]; } }"""
    library = ctypes.CDLL(str(compile_shared(source, flags=flags)))
    given = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ties = (np.arange(1, 2**15, dtype=np.uint32) << 12 | 0x33000000).view(np.float32)
    given = np.concatenate(
        [given, ties, -ties, np.array([65519.996, 65520, np.inf, -np.inf, 0, -0.0, np.nan], np.float32)]
    )
    halves, back = np.empty(given.size, np.float16), np.empty(given.size, np.float32)
    library.halves(pointer(halves), pointer(back), pointer(given), given.size)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = given.astype(np.float16)
    np.testing.assert_array_equal(halves, expected)
    np.testing.assert_array_equal(np.signbit(halves), np.signbit(expected))
    np.testing.assert_array_equal(back, expected.astype(np.float32))


# --- WebAssembly ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("pages", [None, 16])
def test_wasm_kernels_run(cache: Path, threads: bool, pages: int | None) -> None:
    module = compile_wasm(KERNELS, threads=threads, exports=[*EXPORTS, "__heap_base"], memory_pages=pages)
    memory = Memory(16, threads)
    instance = memory.instantiate(module)
    base = instance.value("__heap_base")
    assert 65536 < base < 2 * 65536
    base = 2 * 65536
    x, y = memory.view(base, 64), memory.view(base + 256, 64)
    x[:] = np.linspace(-3, 5, 64)
    weights = memory.view(base + 512, 64, np.int8)
    weights[:] = np.arange(-32, 32)
    instance.call("dot", base + 1024, base, base + 512, 16)
    assert memory.view(base + 1024, 1)[0] == pytest.approx(float(x @ weights), rel=1e-5)
    instance.call("lengths", base + 256, base, 64)
    table = np.array([1.5, 2, 3, 4, 5.25], np.float32)
    np.testing.assert_array_equal(y, np.floor(np.sqrt(x * x + np.float32(0.5))) + table[np.arange(64) % 5])
    instance.call("copy", base + 256, base, 64)
    np.testing.assert_array_equal(x, y)
    instance.call("clear", base, 64)
    assert not x.any()


def test_wasm_imports_only_its_memory(cache: Path) -> None:
    engine = Memory(1, True).engine
    for threads in (False, True):
        module = wasmtime.Module(engine, compile_wasm(KERNELS, threads=threads, exports=EXPORTS, memory_pages=16))
        assert [(i.module, i.name) for i in module.imports] == [("env", "memory")]
        kind = module.imports[0].type
        assert isinstance(kind, wasmtime.MemoryType)
        assert (kind.limits.min, kind.limits.max) == (16, 16)
        assert {e.name for e in module.exports} == {*EXPORTS, "__stack_pointer"}


def test_wasm_threads_share_static_data_and_have_their_own_stacks(cache: Path) -> None:
    module = compile_wasm(KERNELS + ATOMIC, threads=True, exports=[*EXPORTS, "add_many"], memory_pages=16)
    memory = Memory(16, True)

    def work(index: int) -> tuple[int, int]:
        instance = memory.instantiate(module)
        instance.set_stack(4 * WASM_PAGE + (index + 1) * WASM_PAGE)
        instance.call("add_many", 15 * WASM_PAGE, 20_000)
        return instance.call("deep", 100), instance.call("count")

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    assert memory.view(15 * WASM_PAGE, 1, np.int32)[0] == 80_000
    assert {deep for deep, _ in results} == {5050}
    assert max(calls for _, calls in results) > 8  # one counter, initialised once: a second copy would stay at 8
    assert memory.instantiate(module).call("count") == 12


def test_wasm_threads_wait_for_each_other_in_node(cache: Path, tmp_path: Path) -> None:
    module = compile_wasm(KERNELS + ATOMIC, threads=True, exports=["wait_for", "wake", "deep"], memory_pages=16)
    (tmp_path / "module.wasm").write_bytes(module)
    (tmp_path / "main.mjs").write_text(
        """
import { readFileSync } from "node:fs";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
const FLAG = 15 * 65536;
if (isMainThread) {
  const memory = new WebAssembly.Memory({ initial: 16, maximum: 16, shared: true });
  const module = new WebAssembly.Module(readFileSync(new URL("module.wasm", import.meta.url)));
  const reports = [0, 1].map((index) => new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: { memory, module, index } });
    worker.on("message", resolve);
    worker.on("error", reject);
  }));
  console.log(JSON.stringify(await Promise.all(reports)));
} else {
  const { memory, module, index } = workerData;
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  exports.__stack_pointer.value = (8 + index) * 65536;
  const deep = exports.deep(100);
  if (index === 0) parentPort.postMessage({ deep, waited: exports.wait_for(FLAG) });
  else {
    let woken = 0;
    while (!woken) woken = exports.wake(FLAG);
    parentPort.postMessage({ deep, woken });
  }
}
"""
    )
    done = subprocess.run(["node", "main.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    waiter, waker = json.loads(done.stdout)
    assert waiter == {"deep": 5050, "waited": 0}  # 0: woken; 1: the flag had changed; 2: waited in vain
    assert waker == {"deep": 5050, "woken": 1}


def test_wasm_static_data_goes_where_it_is_told(cache: Path) -> None:
    module = compile_wasm(
        KERNELS,
        threads=True,
        exports=["count", "__heap_base"],
        memory_pages=16,
        stack_bytes=1024,
        global_base=5 * WASM_PAGE,
    )
    memory = Memory(16, True)
    instance = memory.instantiate(module)
    assert instance.call("count") == 8
    assert instance.value("__stack_pointer") == 1024
    assert 5 * WASM_PAGE < instance.value("__heap_base") < 6 * WASM_PAGE
    assert np.flatnonzero(memory.bytes).min() >= 5 * WASM_PAGE
    assert np.flatnonzero(memory.bytes).max() < instance.value("__heap_base")


def test_relaxed_simd_is_used_only_on_request(cache: Path) -> None:
    source = """typedef float f4 __attribute__((vector_size(16)));
    void f(f4 *o, const f4 *a, const f4 *b) { *o = %s; }"""
    relaxed = source % "__builtin_wasm_relaxed_madd_f32x4(*a, *b, *o)"
    module = compile_wasm(relaxed, threads=False, relaxed_simd=True, exports=["f"], memory_pages=None)
    memory = Memory(2, False)
    memory.view(4096, 12)[:] = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    memory.instantiate(module).call("f", 4096, 4112, 4128)
    assert memory.view(4096, 4).tolist() == [7, 7, 7, 7]
    with pytest.raises(ToolchainError, match="relaxed-simd"):
        compile_wasm(relaxed, threads=False, exports=["f"], memory_pages=None)


# --- the cache --------------------------------------------------------------------------------------------------------


def test_wasm_is_the_same_bytes_wherever_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for place in ("one", "another folder"):
        monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path / place))
        made.append(compile_wasm(KERNELS, threads=True, exports=EXPORTS, memory_pages=16))
    assert made[0] == made[1]


def test_second_compile_runs_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compile_shared(SCALE)
    module = compile_wasm(SCALE, threads=False, exports=["scale"], memory_pages=None)
    before = sorted(cache.iterdir())

    def no_compiler(*_: object, **__: object) -> None:
        raise AssertionError("the compiler was run")

    monkeypatch.setattr(toolchain, "run_tool", no_compiler)
    assert compile_shared(SCALE) == path
    assert compile_wasm(SCALE, threads=False, exports=["scale"], memory_pages=None) == module
    assert sorted(cache.iterdir()) == before


def test_sources_are_compiled_while_others_are_written(cache: Path) -> None:
    def sources() -> Iterator[str]:
        yield SCALE
        end = time.monotonic() + 60
        while not list(cache.glob("*.o")) and time.monotonic() < end:
            time.sleep(0.01)
        assert list(cache.glob("*.o"))
        yield "int two(void) { return 2; }"

    library = ctypes.CDLL(str(compile_shared(sources())))
    assert library.two() == 2 and library.scale


def test_every_choice_is_part_of_the_key(cache: Path) -> None:
    modules = {
        compile_wasm(KERNELS, threads=threads, exports=exports, memory_pages=pages, stack_bytes=stack, global_base=base)
        for threads in (False, True)
        for exports in (["count"], ["count", "deep"])
        for pages in (None, 4)
        for stack in (65536, 32768)
        for base in (None, 65552)
    }
    assert len(modules) == 32
    assert compile_shared(SCALE) != compile_shared(SCALE, flags=["-O1"])
    assert compile_shared([(SCALE, ["-O1"])]) != compile_shared([SCALE])


def test_processes_compile_the_same_source_at_once(cache: Path) -> None:
    code = "import sys; from tinyweb.toolchain import compile_shared; print(compile_shared(sys.argv[1]))"
    command = [sys.executable, "-c", code, SCALE]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    paths = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert len(paths) == 1
    ctypes.CDLL(paths.pop())
    assert not list(cache.glob("building-*"))


def test_a_full_cache_loses_what_nobody_used_for_long(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain._prune.cache_clear()
    monkeypatch.setenv("TINYWEB_CACHE_BYTES", str(3 * toolchain.BLOCK))
    cache.mkdir()
    now = time.time()
    for age, name in enumerate(["recent.so", "young.so", "older.so", "oldest.wasm", "schedules.json"]):
        (cache / name).write_bytes(bytes(1500))
        os.utime(cache / name, (now - age * 4000, now - age * 4000))
    toolchain._prune(cache)
    left = {"recent.so", "young.so", "schedules.json"}
    assert {path.name for path in cache.iterdir()} == left | {"pruned"}
    monkeypatch.setenv("TINYWEB_CACHE_BYTES", "10")
    toolchain._prune.cache_clear()
    toolchain._prune(cache)  # it was looked through within the hour
    assert {path.name for path in cache.iterdir()} == left | {"pruned"}
    os.utime(cache / "pruned", (now - 9000, now - 9000))
    toolchain._prune.cache_clear()
    toolchain._prune(cache)
    assert (cache / "recent.so").exists()  # somebody may be about to load it
    assert not (cache / "young.so").exists()
    path = compile_shared(SCALE)
    os.utime(path, (now - 9000, now - 9000))
    assert compile_shared(SCALE) == path and path.stat().st_mtime >= now


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_wrong_source_shows_the_compilers_words_and_leaves_nothing(cache: Path) -> None:
    with pytest.raises(ToolchainError, match=r"refused the source.*\n.*error: expected"):
        compile_shared("int f( { return x; }")
    assert not [path for path in cache.iterdir() if path.suffix == ".so"]
    assert not list(cache.glob("building-*"))


def test_wasm_has_no_libc(cache: Path) -> None:
    with pytest.raises(ToolchainError, match="undefined symbol: expf"):
        compile_wasm(
            "float expf(float); float f(float x) { return expf(x); }", threads=False, exports=["f"], memory_pages=None
        )


def test_missing_export_is_named(cache: Path) -> None:
    with pytest.raises(ToolchainError, match="export not found: g"):
        compile_wasm("float f(float x) { return x; }", threads=True, exports=["g"], memory_pages=None)


def test_memory_too_small_for_the_stack(cache: Path) -> None:
    with pytest.raises(ToolchainError, match="memory too small"):
        compile_wasm(SCALE, threads=True, exports=["scale"], memory_pages=1, stack_bytes=2 * WASM_PAGE)


def test_static_data_inside_the_stack(cache: Path) -> None:
    with pytest.raises(ToolchainError, match="global-base cannot be less than stack size"):
        compile_wasm(SCALE, threads=False, exports=["scale"], memory_pages=None, stack_bytes=4096, global_base=1024)


def test_unwritable_cache_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ToolchainError, match=r"cannot be kept in .*set TINYWEB_CACHE"):
        compile_shared(SCALE)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (None, "does not exist; install the Python package ziglang"),
        ("Debian clang version 14.0.6", "Clang 16 or newer is needed"),
        ("Apple clang version 17.0.0 (clang-1700.0.13.3)", "Clang 16 or newer is needed"),
        ("Debian clang version 19.1.1", "no wasm-ld beside it"),
    ],
)
def test_unusable_compiler_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget_compiler: None, says: str | None, reason: str
) -> None:
    program = tmp_path / "clang"
    if says is not None:
        program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{says}" || echo wasm-ld-of-nowhere\n')
        program.chmod(0o755)
    monkeypatch.setenv("TINYWEB_CLANG", str(program))
    with pytest.raises(ToolchainError, match=reason):
        find_clang()


def test_a_chosen_system_compiler_is_called(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, forget_compiler: None
) -> None:
    """A stand-in with a system Clang's manners, made of the wheel's own compiler."""
    wheel = find_clang()
    toolchain.find_clang.cache_clear()
    linker = tmp_path / "wasm-ld"
    linker.write_text(f'#!/bin/sh\nexec {shlex.join(wheel.wasm_ld)} "$@"\n')
    program = tmp_path / "clang"
    program.write_text(
        f"""#!/bin/sh
case "$1" in
  --version) echo "Some clang version 22.1.8" ;;
  --print-prog-name=wasm-ld) echo {shlex.quote(str(linker))} ;;
  *) exec {shlex.join(wheel.clang)} "$@" ;;
esac
"""
    )
    for script in (linker, program):
        script.chmod(0o755)
    monkeypatch.setenv("TINYWEB_CLANG", str(program))
    assert find_clang().name == f"Some clang version 22.1.8 at {program}"
    module = compile_wasm(SCALE, threads=False, exports=["scale"], memory_pages=None)
    memory = Memory(2, False)
    memory.view(4096, 2)[:] = [1, 2]
    memory.instantiate(module).call("scale", 8192, 4096, 2)
    assert memory.view(8192, 2).tolist() == [3, 6]
