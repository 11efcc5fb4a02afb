"""Single operations on this processor: tinyweb beside NumPy, PyTorch and the bandwidth of memory.

All write into memory that is there, from inputs that are the same arrays.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.contestant import Absent, Arrays, Contestant
from benchmarks.harness import Check, Peer, Row, Side, Unit, close
from benchmarks.worker import Worker

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

EPSILON = 1e-5
SEARCH_SECONDS = 20.0


def inputs(operation: str, shape: Sequence[int]) -> list[Floats]:
    """The same arrays for everybody. matmul: shape (m, k, n); matvec: (rows, columns); others: (rows, columns)."""
    random = np.random.default_rng(0)

    def normal(*sizes: int) -> Floats:
        return random.standard_normal(sizes, dtype=np.float32)

    if operation == "matmul":
        m, k, n = shape
        return [normal(m, k), normal(k, n)]
    if operation == "matvec":
        return [normal(*shape), normal(shape[1])]
    if operation == "layer norm":
        return [normal(*shape), normal(shape[1]), normal(shape[1])]
    return [normal(*shape)]


def timed(step: Callable[[], object], repeat: int, wait: Callable[[], object] = lambda: None) -> float:
    """Seconds of `repeat` steps, the last of which is complete when `wait` returns."""
    begin = time.perf_counter()
    for _ in range(repeat):
        step()
    wait()
    return time.perf_counter() - begin


# -- contestants -------------------------------------------------------------------------------------------------------
class Ours(Contestant):
    """A jitted step that assigns the result to a tensor that is there.

    `search`: look for a better schedule first, in the first run, which is not counted but has the machine for itself.
    """

    def __init__(self, operation: str, shape: list[int], threads: int, device: str = "CPU", search: bool = False):
        from tinyweb.device import Device
        from tinyweb.errors import TinywebError
        from tinyweb.tensor import Tensor
        from tinyweb.tracing import jit

        try:
            self.device = Device[device]
        except TinywebError as error:
            raise Absent(str(error)) from error
        arrays = [Tensor(a, device=device).realize() for a in inputs(operation, shape)]
        compute = self.compute(operation)
        self.out: Any = compute(*arrays).realize()

        def step() -> Any:
            return self.out.assign(compute(*arrays))

        # both sides get operands that they have not seen before
        self.plain_step, self.step = step, jit(step, freeze=False)
        self.searching = search
        self.found: list[str] = []
        self.step()

    def _search(self) -> None:
        from tinyweb.tuning import tune

        with tempfile.TemporaryDirectory() as folder:
            self.found = [str(t) for t in tune(self.plain_step, SEARCH_SECONDS, path=Path(folder) / "found.json")]
        self.searching = False

    @staticmethod
    def compute(operation: str) -> Callable[..., Any]:
        table: dict[str, Callable[..., Any]] = {
            "matmul": lambda a, b: a @ b,
            "matvec": lambda a, x: a @ x,
            "softmax": lambda x: x.softmax(-1),
            "layer norm": lambda x, w, b: x.layernorm(eps=EPSILON) * w + b,
            "sum of rows": lambda x: x.sum(1),
            "sum of columns": lambda x: x.sum(0),
            "sum": lambda x: x.sum(),
            "gelu": lambda x: x.gelu(),
        }
        return table[operation]

    def run(self, task: str, repeat: int) -> float:
        if self.searching:
            self._search()
        return timed(self.step, repeat, self.device.runtime.synchronize)

    def notes(self, task: str) -> dict[str, Any]:
        return {"target": self.device.runtime.target.name} | ({"search": self.found} if self.found else {})

    def result(self, task: str) -> Arrays:
        self.step()
        return {"out": self.out.numpy()}


class Numpy(Contestant):
    """NumPy, whose matrix products are OpenBLAS."""

    def __init__(self, operation: str, shape: list[int], threads: int):
        arrays = inputs(operation, shape)
        table: dict[str, Callable[..., Any]] = {
            "matmul": np.matmul,
            "matvec": np.matmul,
            "softmax": self.softmax,
            "layer norm": self.layer_norm,
            "sum of rows": lambda x, out: np.sum(x, 1, out=out),
            "sum of columns": lambda x, out: np.sum(x, 0, out=out),
            "sum": lambda x, out: np.sum(x, out=out),
        }
        compute = table[operation]
        shapes = {"matmul": [shape[0], shape[-1]], "sum of columns": [shape[1]], "sum": []}
        whole = operation in ("softmax", "layer norm")
        self.out = np.empty(shape if whole else shapes.get(operation, [shape[0]]), np.float32)

        def step() -> Any:
            return compute(*arrays, out=self.out)

        self.step = step
        step()

    @staticmethod
    def softmax(x: Floats, out: Floats) -> None:
        np.subtract(x, x.max(1, keepdims=True), out=out)
        np.exp(out, out=out)
        np.divide(out, out.sum(1, keepdims=True), out=out)

    @staticmethod
    def layer_norm(x: Floats, w: Floats, b: Floats, out: Floats) -> None:
        np.subtract(x, x.mean(1, keepdims=True), out=out)
        variance = np.einsum("ij,ij->i", out, out)[:, None] / np.float32(x.shape[1])
        np.multiply(out, 1 / np.sqrt(variance + np.float32(EPSILON)), out=out)
        np.multiply(out, w, out=out)
        np.add(out, b, out=out)

    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__}

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat)

    def result(self, task: str) -> Arrays:
        return {"out": self.out}


class Torch(Contestant):
    """PyTorch, eager."""

    def __init__(self, operation: str, shape: list[int], threads: int):
        import torch
        from torch.nn import functional

        torch.set_num_threads(threads)
        arrays = [torch.from_numpy(a) for a in inputs(operation, shape)]
        table: dict[str, Callable[..., Any]] = {
            "matmul": torch.matmul,
            "matvec": torch.mv,
            "softmax": lambda x: torch.softmax(x, 1),
            "layer norm": lambda x, w, b: functional.layer_norm(x, w.shape, w, b, EPSILON),
            "sum of rows": lambda x: x.sum(1),
            "sum of columns": lambda x: x.sum(0),
            "sum": lambda x: x.sum(),
            "gelu": lambda x: functional.gelu(x),
        }
        compute, self.version = table[operation], torch.__version__
        with torch.inference_mode():
            self.out = compute(*arrays)

        def step() -> None:
            with torch.inference_mode():
                self.out = compute(*arrays)

        self.step = step

    def versions(self) -> dict[str, str]:
        return {"torch": self.version}

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat)

    def result(self, task: str) -> Arrays:
        return {"out": self.out.numpy()}


class Read(Contestant):
    """The bound of a product with a vector: reading the matrix once, with all threads, and adding its words up."""

    SOURCE = """
    typedef unsigned Words __attribute__((vector_size(32)));
    extern int pthread_create(unsigned long *, const void *, void *(*)(void *), void *);
    extern int pthread_join(unsigned long, void **);
    typedef struct { const Words *from; long count; int repeat; unsigned sum; } Part;

    static void *read_part(void *argument) {
      Part *part = argument;
      Words s[8] = {0};  // as many sums as hide the latency of an addition
      long quarter = part->count / 4;  // four streams at once: processors fetch ahead for each
      for (int again = 0; again < part->repeat; ++again) {
        __asm__ volatile("" ::: "memory");  // it may have changed: read it again
        const Words *p = part->from;
        for (long j = 0; j < quarter; j += 2)
          for (int i = 0; i < 8; ++i) s[i] += p[i / 2 * quarter + j + i % 2];
      }
      Words all = (s[0] + s[1]) + (s[2] + s[3]) + ((s[4] + s[5]) + (s[6] + s[7]));
      for (int i = 0; i < 8; ++i) part->sum += all[i];
      return 0;
    }

    // `words` vectors of 32 bytes, a multiple of 8 for each thread
    unsigned read_all(const void *memory, long words, int threads, int repeat) {
      Part parts[64] = {0};
      unsigned long handles[64];
      unsigned sum = 0;
      long each = (words / 8 + threads - 1) / threads * 8;
      for (int t = 0; t < threads; ++t) {
        long begin = t * each, end = begin + each < words ? begin + each : words;
        parts[t] = (Part){(const Words *)memory + begin, end > begin ? end - begin : 0, repeat, 0};
        if (t) pthread_create(&handles[t], 0, read_part, &parts[t]);
      }
      read_part(&parts[0]);
      for (int t = 0; t < threads; ++t) {
        if (t) pthread_join(handles[t], 0);
        sum += parts[t].sum;
      }
      return sum;
    }
    """

    def __init__(self, nbytes: int, threads: int):
        import ctypes

        from tinyweb.toolchain import compile_shared

        if threads > 64:
            raise ValueError(f"{threads} threads: at most 64")
        words = nbytes // 256 * 8
        memory = np.random.default_rng(0).integers(0, 2**32, words * 8 + 16, np.uint32)
        start = -memory.ctypes.data % 64 // 4
        self.memory = memory[start : start + words * 8]
        read = ctypes.CDLL(str(compile_shared(self.SOURCE))).read_all
        read.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
        read.restype = ctypes.c_uint32
        self.read: Callable[[int], int] = lambda repeat: read(self.memory.ctypes.data, words, threads, repeat)
        if self.read(3) != 3 * int(self.memory.sum(dtype=np.uint64)) % 2**32:
            raise AssertionError("the reader does not read everything")

    def run(self, task: str, repeat: int) -> float:
        return timed(lambda: self.read(repeat), 1)


# -- rows --------------------------------------------------------------------------------------------------------------
HERE = "benchmarks.native.kernels:"


def side(name: str, contestant: str, operation: str, shape: Sequence[int], threads: int, **more: Any) -> Side:
    none = {"TINYWEB_SCHEDULES": "none"} if contestant == "Ours" and not more.get("search") else {}
    worker = Worker.of(
        HERE + contestant, operation=operation, shape=tuple(shape), threads=threads, environment=none, **more
    )
    return Side(name, worker)


def against(
    name: str, contestant: str, operation: str, shape: Sequence[int], threads: int, target: float, check: Check
) -> Peer:
    return Peer(side(name, contestant, operation, shape, threads), target, check)


def matmul(m: int, k: int, n: int, threads: int, *, search: bool = False, priority: int = 2) -> Row:
    sizes, shape = (f"{m}" if m == k == n else f"{m}x{k}x{n}"), (m, k, n)
    suffix = "-searched" if search else ""
    target = 1.0 if search else 0.9
    return Row(
        name=f"matmul-f32-{sizes}-{threads}t{suffix}",
        group="kernels",
        work=f"f32 matmul {sizes.replace('x', '×')}, {_threads(threads)}{', searched' if search else ''}",
        ours=side("tinyweb", "Ours", "matmul", shape, threads, search=search),
        peers=(against("NumPy (OpenBLAS)", "Numpy", "matmul", shape, threads, target, close(1e-5)),),
        unit=Unit("GFLOP/s", 2 * m * k * n / 1e9),
        priority=priority,
        seconds=8 + 12 * m * k * n / 2048**3 + (SEARCH_SECONDS if search else 0),
        timing_seconds=12,
    )


def matvec(rows: int, columns: int, threads: int, priority: int) -> Row:
    nbytes, shape = rows * columns * 4, (rows, columns)
    bound = Side("reading the matrix", Worker.of(HERE + "Read", nbytes=nbytes, threads=threads))
    return Row(
        name=f"matvec-f32-{rows}x{columns}-{threads}t",
        group="kernels",
        work=f"f32 matvec {rows}×{columns}, {_threads(threads)}",
        ours=side("tinyweb", "Ours", "matvec", shape, threads),
        peers=(
            Peer(bound, 0.85, None),
            against("NumPy (OpenBLAS)", "Numpy", "matvec", shape, threads, 0.9, close(1e-5)),
        ),
        unit=Unit("GB/s", nbytes / 1e9),
        priority=priority,
        seconds=10,
    )


def along_rows(operation: str, rows: int, columns: int, threads: int, *peers: str) -> Row:
    """An operation whose bound is memory: shown as what it reads per second."""
    contestants = {"NumPy": "Numpy", "PyTorch": "Torch"}
    shape = (rows, columns)
    return Row(
        name=f"{operation.replace(' ', '-')}-{rows}x{columns}-{threads}t",
        group="kernels",
        work=f"{operation} of {rows}×{columns} f32, {_threads(threads)}",
        ours=side("tinyweb", "Ours", operation, shape, threads),
        peers=tuple(against(p, contestants[p], operation, shape, threads, 1.0, close(1e-5)) for p in peers),
        unit=Unit("GB/s read", rows * columns * 4 / 1e9),
        priority=3,
        seconds=10,
    )


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


ODD = ((1000, 1000, 1000), (127, 4096, 1021), (2048, 64, 2048), (33, 2048, 2048), (8, 2048, 8192))


def rows() -> list[Row]:
    found = [matmul(n, n, n, 2, priority=1) for n in (512, 1024, 2048)]
    found += [matmul(n, n, n, 2, search=True, priority=1) for n in (512, 1024, 2048)]
    found += [matmul(n, n, n, 1) for n in (512, 1024, 2048)]
    found += [matmul(*shape, threads=2) for shape in ODD]
    found += [matvec(4096, 4096, threads, priority=1) for threads in (2, 1)]
    for operation in ("softmax", "layer norm", "sum of rows", "sum of columns", "sum"):
        found.append(along_rows(operation, 4096, 1024, 2, "PyTorch", "NumPy"))
    found.append(along_rows("gelu", 4096, 1024, 2, "PyTorch"))
    return found
