"""Updates in place: who sees them, who keeps the value before, and what happens when something fails."""

from __future__ import annotations

import inspect
import itertools
import os
import signal
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tensor.aliasing import Program
from tinyweb import Device, Tensor, Variable, dtypes
from tinyweb.array.core import live_tensors
from tinyweb.errors import ToolchainError
from tinyweb.memory import BUFFERS
from tinyweb.tracing import capture

DEVICES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")


def overlapping(a: Any) -> list[Any]:
    a[1:] = a[:-1] + 0
    a[:-1] = a[1:] * 2
    return [a]


def strided(a: Any) -> list[Any]:
    a[::2] = a[1::2] + 1
    return [a]


def strided_odd(a: Any) -> list[Any]:
    b = a[:5]
    b[::2] = -1
    b[1::3] *= 5
    return [a, b]


def reversed_(a: Any) -> list[Any]:
    a[:] = a.flip(0) + 0
    return [a]


def swap(a: Any) -> list[Any]:
    b = a * 3
    kept = a + 0
    a[:] = b
    b[:] = kept
    return [a, b, kept]


def chain(a: Any) -> list[Any]:
    seen = []
    for i in range(10):
        seen.append(a * 1)
        a[:] = a * 0.5 + i
    return [a, *seen]


def itself(a: Any) -> list[Any]:
    a[:] = a + a.sum()
    return [a]


def diamond(a: Any) -> list[Any]:
    old = a * 2
    a[2:4] = old[0:2]
    middle = a + old
    a[0:2] = middle[2:4]
    return [a, old, middle, a + old + middle]


def views(a: Any) -> list[Any]:
    whole = a.reshape(2, 3)
    left, across, back = whole[:, :2], whole.T, a.flip(0)
    kept = across + 0
    left[1] = 7
    across[0] -= 100
    return [a, whole, left, across, back, kept]


def views_of_computed(a: Any) -> list[Any]:
    x, same = a * 2, a * 2
    first = x[0:2]
    x[0] = 1
    first[1] = 50
    return [a, x, same, first, x.reshape(3, 2)]


def fresh_zeros(a: Any) -> list[Any]:
    z = a * 0
    z[1:3] = 5
    z += 1
    return [z, a]


def broadcast_reads(a: Any) -> list[Any]:
    wide = a.reshape(6, 1).expand(6, 3)
    kept = wide.sum(0)
    a[0] = 1000
    return [wide, kept, wide.sum(0)]


def detached(a: Any) -> list[Any]:
    d = a.detach()
    d[0] = 9
    a[1] = 8
    return [a, d]


PROGRAMS: list[Callable[[Any], list[Any]]] = [
    overlapping, strided, strided_odd, reversed_, swap, chain, itself, diamond, views, views_of_computed, fresh_zeros,
    broadcast_reads, detached,
]  # fmt: skip


@pytest.mark.parametrize("order", ["forwards", "backwards", "together"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("device", DEVICES)
def test_programs(device: str, program: Callable[[Any], list[Any]], order: str) -> None:
    if device != "CPU" and order != "backwards":
        return  # the order of asking is none of the device's business
    x = np.arange(1, 7, dtype=np.float32)
    want = [t.clone() for t in _with_flips(program, torch.tensor(x))]
    got = program(Tensor(x, device=device))
    if order == "together":
        got[0].realize(*got[1:])
    pairs = list(zip(got, want, strict=True))
    for g, w in pairs if order != "backwards" else reversed(pairs):
        np.testing.assert_array_equal(g.numpy(), w.numpy())


def _with_flips(program: Callable[[Any], list[Any]], a: torch.Tensor) -> list[torch.Tensor]:
    """PyTorch's flip copies; here it is a view, which only `views` looks at."""
    got = program(a)
    if program is views:
        got[4] = a.flip(0)
    return got


def test_matrix_becomes_its_transpose() -> None:
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    t = Tensor(x)
    t.assign(t.T)
    np.testing.assert_array_equal(t.numpy(), x.T)


@pytest.mark.parametrize("device", DEVICES)
def test_one_variable_with_many_values(device: str) -> None:
    at, cache = Variable("at", 0, 13), Tensor.empty(16, 3, device=device)
    want, seen = np.zeros((16, 3), np.float32), []
    for i in (0, 5, 13):
        p = at.bind(i)
        cache[p : p + 3] = Tensor.full((3, 3), float(i + 1), device=device)
        want[i : i + 3] = i + 1
        seen.append((cache[0 : p + 3].sum(0), want[: i + 3].sum(0)))
    np.testing.assert_array_equal(cache.numpy(), want)
    for got, expected in seen:
        np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize(("device", "examples"), [("CPU", 12), ("WASM", 4), ("WEBGPU", 8), ("INTERPRETER", 60)])
def test_random_programs(device: str, examples: int) -> None:
    _random_programs(device, examples, 12)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "examples"), [("CPU", 100), ("WASM", 60), ("WEBGPU", 100), ("INTERPRETER", 1500)])
def test_many_random_programs(device: str, examples: int) -> None:
    _random_programs(device, examples, 25)


def _random_programs(device: str, examples: int, steps: int) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 1 << 32))
    def check(seed: int) -> None:
        Program(Random(seed), device).run(steps)

    check()


# methods whose results share memory with the tensor: they only rename its elements, or return the tensor
VIEWS = {
    "alpha_dropout", "as_strided", "assign", "atleast_1d", "atleast_2d", "atleast_3d", "bool", "broadcast_tensors",
    "broadcast_to", "byte", "cartesian_prod", "cast", "center_crop", "channel_shuffle", "chunk", "conj", "detach",
    "diag", "diag_embed", "diagflat", "diagonal", "double", "dropout", "dropout1d", "dropout2d", "dropout3d",
    "dsplit", "expand", "expand_as", "feature_alpha_dropout", "flatten", "flip", "fliplr", "flipud", "float",
    "grayscale_to_rgb", "half", "hflip", "hsplit", "im2col", "int", "interpolate", "long", "mT", "meshgrid",
    "moveaxis", "movedim", "narrow", "pad", "permute", "pixel_shuffle", "pixel_unshuffle", "positive", "ravel",
    "real", "realize", "rearrange", "repeat", "repeat_interleave", "requires_grad_", "reshape", "reshape_as",
    "resolve_conj", "roll", "rot90", "select", "short", "shrink", "split", "squeeze", "swapaxes", "swapdims", "t",
    "tensor_split", "tile", "to", "transpose", "type", "type_as", "unbind", "unflatten", "unfold", "unsqueeze",
    "vflip", "view", "view_as", "vsplit",
}  # fmt: skip


COMPUTED = {
    name: method
    for name, method in inspect.getmembers(Tensor, inspect.isfunction)
    if not name.startswith("_") and not name.endswith("_") and name not in VIEWS
}
LINE, SQUARE, STACK, IMAGE = (Tensor(np.ones(s, np.float32)) for s in ((4,), (4, 4), (2, 4, 4), (1, 4, 4, 4)))
PLACES = Tensor(np.zeros((4, 4), np.int32))
PLACE = PLACES[0].contiguous()
MASK = Tensor(np.ones((4, 4), bool))
NUMBERS: list[tuple[Any, ...]] = [(), (0,), (1,), (1.0,), (0, 1)]
TENSORS: list[tuple[Any, ...]] = [
    (LINE,), (LINE, LINE), (SQUARE,), (SQUARE, LINE), (SQUARE, SQUARE), (STACK,), (STACK, STACK), (IMAGE,), (0, LINE),
    (0, PLACES, SQUARE), (0, PLACE, SQUARE), (0, PLACE, 1.0), (0, PLACE, SQUARE, "amax"), (0, PLACES, SQUARE, "sum"),
    ((PLACE, PLACE), LINE), (MASK,), (MASK, 1.0), (MASK, SQUARE), ([SQUARE, SQUARE],), (dtypes.int32,), (2,), (PLACE,),
    ((2, 3), 1.0),
]  # fmt: skip
DECOMPOSED = {"cond", "lstsq", "matrix_rank", "pinv", "svd", "svdvals"}
# what nothing above fits: these have arguments that only tests of their own give
OTHERS = {
    "affine_grid", "backward", "box_convert", "col2im", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "crop", "cross", "ctc_loss", "fold", "grid_sample", "lp_pool1d", "lp_pool2d", "lp_pool3d",
    "manual_seed", "max_unpool1d", "max_unpool2d", "max_unpool3d", "normalize_channels", "rgb_to_grayscale",
    "shard", "solve_triangular", "train",
}  # fmt: skip


def shared(names: Iterable[str], start: np.ndarray, arguments: Sequence[tuple[Any, ...]]) -> set[str]:
    """Which methods take any of the arguments; fails if a result lies in the tensor's memory."""
    reached = set()
    for name, args in itertools.product(names, arguments):
        t = Tensor(start)
        try:
            found = COMPUTED[name](t, *args)
        except (AttributeError, IndexError, TypeError, ValueError):
            continue  # not what it is called with
        reached.add(name)
        for r in found if isinstance(found, list | tuple) else [found]:
            assert not isinstance(r, Tensor) or r.storage is not t.storage, f"{name}{args} of {start.dtype}"
    return reached


def test_what_is_computed_shares_no_memory() -> None:
    reached = set()
    for i, shape in enumerate(((), (1,), (1, 4), (3, 4), (1, 1, 4, 4))):
        reached |= shared(COMPUTED, np.ones(shape, np.float32), NUMBERS)
        # decompositions have thousands of operations, of which one type shows enough
        reached |= shared(COMPUTED.keys() - DECOMPOSED, np.ones(shape, (np.bool_, np.int32)[i % 2]), NUMBERS)
    for tensor in (LINE, SQUARE, STACK, IMAGE):
        reached |= shared(COMPUTED.keys() - reached, tensor.numpy(), TENSORS)
    assert len(reached) > 300 and COMPUTED.keys() - reached <= OTHERS


# -- types, shapes ----------------------------------------------------------------------------------------------------
def test_values_are_cast_where_python_would() -> None:
    t = Tensor([1, 2, 3])
    t[0] = 7.9
    t[1:] = np.array([1.5, -2.5])
    assert t.tolist() == [7, 1, -2]
    t[0] = Tensor(3.7)
    assert t.tolist() == [3, 1, -2] and t.dtype is dtypes.int32
    t.assign([4, 5, 6])
    assert t.tolist() == [4, 5, 6]


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (3, 0, 2)])
def test_small_and_empty_tensors(shape: tuple[int, ...]) -> None:
    t, want = Tensor.ones(*shape), np.ones(shape, np.float32)
    kept = t + 1
    t[...] = 4
    want[...] = 4
    t.assign(t * 2)
    np.testing.assert_array_equal(t.numpy(), want * 2)
    np.testing.assert_array_equal(kept.numpy(), np.full(shape, 2, np.float32))


@pytest.mark.parametrize("name", ["bool", "int8", "uint8", "int16", "int64", "float16", "bfloat16", "float64"])
def test_every_type_is_written_beside_its_neighbours(name: str) -> None:
    t = Tensor([0, 1, 0, 1, 1, 0, 1], dtype=getattr(dtypes, name))
    kept = t[2:5].contiguous()
    t[1:6:2] = t[0:5:2]
    t[6] = 0
    assert [int(x) for x in t.tolist()] == [0, 0, 0, 0, 1, 1, 0] and [int(x) for x in kept.tolist()] == [0, 1, 1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [3, 4, 8])
def test_parts_of_a_word_that_are_stored_apart(device: str, width: int) -> None:
    """Both halves of a row lie in one word of 4-bit integers, and are computed and stored in two loops."""
    values = np.random.default_rng(width).integers(0, 16, (6, width)).astype(np.float32)
    half = Tensor(values, device=device)
    row = half.cat(half.flip(-1), axis=-1)
    row = row * row.max(-1, keepdim=True) / row.max(-1, keepdim=True)
    held = Tensor.full((9, 2 * width), 5, dtype=dtypes.int32, device=device).cast(dtypes.uint4).contiguous().realize()
    held[2:8] = (row + 0.25).cast(dtypes.uint4)
    want = np.full((9, 2 * width), 5)
    want[2:8] = np.concatenate([values, values[:, ::-1]], axis=1)
    np.testing.assert_array_equal(held.numpy(), want)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda a: a.assign(Tensor.ones(7)), ValueError, r"assign: a value of shape \(7,\) does not broadcast"),
        (lambda a: a.assign(Tensor.ones(1, 3, 4)), ValueError, r"assign: a value of shape \(1, 3, 4\)"),
        (lambda a: a.assign(Tensor.ones(3, 4, dtype=dtypes.int32)), TypeError, "assign: value has dtype int32"),
        (lambda a: a.assign(Tensor.ones(3, 4, device="INTERPRETER")), ValueError, "assign: the value is on"),
        (lambda a: a[0].expand(3, 4).assign(0), ValueError, r"broadcast tensor \(3, 4\) share memory"),
        (lambda a: a.__setitem__(5, 0), IndexError, "outside"),
        (lambda a: a.__setitem__((0, slice(0, 2)), Tensor.ones(3)), ValueError, "broadcast"),
        (lambda a: a.cast(dtypes.int32).add_(0.5), TypeError, "add_: the result is float32, which this int32"),
        (lambda a: a[0].add_(a), ValueError, r"add_: a value of shape \(3, 4\) does not broadcast to \(4,\)"),
    ],
)  # fmt: skip
def test_errors_come_at_the_call_and_change_nothing(wrong: Any, error: type[Exception], says: str) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    a = Tensor(x)
    before = a.uop
    with pytest.raises(error, match=says):
        wrong(a)
    assert a.uop is before
    np.testing.assert_array_equal(a.numpy(), x)


# -- what is computed, and how often ----------------------------------------------------------------------------------
@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many kernels each run of the CPU has launched."""
    counts: list[int] = []
    runtime = Device["CPU"].runtime
    prepare = runtime.prepare

    def counted(executables: Any, *rest: Any) -> Any:
        counts.append(len(executables))
        return prepare(executables, *rest)

    monkeypatch.setattr(runtime, "prepare", counted)
    yield counts


def test_what_is_computed_once_is_not_computed_again(launches: list[int]) -> None:
    x = Tensor(np.ones((8, 8), np.float32))
    product = x @ x
    after, before = product + 1, (x @ x).sum()
    product.realize()
    assert launches == [1]
    after.realize()
    assert before.item() == 512 and launches == [1, 1, 1]  # each reads the product


def test_nobody_pays_for_readers_that_nobody_holds(launches: list[int]) -> None:
    t = Tensor(np.ones(4, np.float32))
    for _ in range(3):
        _ = t * 2
    del _
    t.assign(t + 1)
    t.realize()
    assert launches == [1]


def test_small_readers_are_computed_large_ones_get_a_copy(launches: list[int]) -> None:
    t = Tensor(np.ones((16, 16), np.float32))
    small, large = t.sum(), t.reshape(16, 16, 1).expand(16, 16, 64) + 0
    t.assign(t + 1)
    t.realize()
    assert launches == [3]  # the sum, the copy, the update
    assert small.is_realized() and not large.is_realized()
    assert float(large.sum().item()) == 16 * 16 * 64 and small.item() == 256


def test_memory_goes_with_the_last_who_needs_it() -> None:
    t = Tensor(np.ones(64, np.float32))
    y = t * 2
    z = y + 1
    y.realize()
    gone = weakref.ref(Device[y.device].memory(y.uop.buffer))
    del y
    assert gone() is not None  # z reads it
    z.realize()
    assert gone() is None


def test_realised_values_keep_their_gradients() -> None:
    w, x = Tensor([1.0, 2.0, 3.0]).requires_grad_(), Tensor([2.0, 2.0, 2.0])
    hidden = w * x
    loss = (hidden * hidden).sum()
    assert loss.item() == 56
    hidden.realize()
    loss.backward()
    assert w.grad is not None and w.grad.tolist() == [8.0, 16.0, 24.0]
    (g,) = loss.gradient(hidden)
    assert g.tolist() == [4.0, 8.0, 12.0]
    hidden[0] = 0
    (g,) = (hidden * hidden).sum().gradient(w)
    assert g.tolist() == [0.0, 16.0, 24.0]
    w.assign(w * 2).realize()
    with pytest.raises(ValueError, match=r"backward: .* updated since"):
        loss.backward()
    assert loss.item() == 56


def test_history_does_not_pile_up() -> None:
    w = Tensor([1.0, 2.0]).requires_grad_()

    def step() -> None:
        loss = (w - 3).square().sum()
        loss.item()
        loss.backward()
        assert w.grad is not None
        w.assign(w - w.grad * 0.25).realize()
        w.grad = None

    step()
    held = len(live_tensors())
    for _ in range(5):
        step()
    assert len(live_tensors()) == held and len(w.uop.toposort()) <= 2
    np.testing.assert_allclose(w.numpy(), [3 - 2 / 2**6, 3 - 1 / 2**6])


# -- failures ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [ToolchainError("no"), MemoryError("no"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["compile", "allocate"])
def test_a_failed_realize_can_be_repeated(monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException) -> None:
    number = next(_different)
    t = Tensor(np.arange(7, dtype=np.float32))
    kept, total = t * number, (t + number).sum()
    t.assign(t.flip(0) + number)
    t[1:3] = kept[3:5]

    def fail(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Device["CPU"].runtime, where, fail)
        with pytest.raises(type(error)):
            t.realize()
        with pytest.raises(type(error)):
            total.realize(kept)
    want = np.arange(7, dtype=np.float32)[::-1] + number
    want[1:3] = np.arange(3, 5) * number
    np.testing.assert_allclose(t.numpy(), want)
    np.testing.assert_allclose(kept.numpy(), np.arange(7) * number)
    assert total.item() == 21 + 7 * number


_different = itertools.count(1000)  # kernels that no test has compiled


def test_an_interrupt_waits_until_memory_and_graph_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Device["CPU"].runtime
    prepare = runtime.prepare

    def interrupted(*launches: Any) -> Any:
        run = prepare(*launches)

        def replay(*given: Any) -> None:
            run(*given)
            os.kill(os.getpid(), signal.SIGINT)

        return replay

    t = Tensor(np.ones(3, np.float32))
    t.assign(t + 1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(runtime, "prepare", interrupted)
            t.realize()
    finally:
        signal.signal(signal.SIGINT, before)
    assert t.tolist() == [2, 2, 2]  # once, not twice


@pytest.mark.parametrize("device", DEVICES)
def test_too_large_says_how_many_bytes(device: str) -> None:
    a = Tensor.ones(10**6, device=device)
    for wrong, number in (
        (lambda: Tensor.zeros(10**6, 10**6, device=device).realize(), 4 * 10**12),
        (lambda: (a.unsqueeze(0) * a.unsqueeze(1)).contiguous().realize(), 4 * 10**12),
        (lambda: Tensor.zeros(10**10, device=device).realize(), 4 * 10**10),
        (lambda: Tensor.empty(10**7, 10**6, device=device).numpy(), 4 * 10**13),
    ):
        with pytest.raises(MemoryError, match=rf"{number} bytes .* on {device}"):
            wrong()
    assert a[5].item() == 1


def test_all_results_of_a_schedule_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device["CPU"].runtime, "free_bytes", lambda: 100 << 20)
    parts = [Tensor.full((16 << 20,), i, dtype=dtypes.float32) for i in range(2)]  # 64 MiB each
    with pytest.raises(MemoryError, match=rf"{2 * (64 << 20)} bytes .* on CPU"):
        parts[0].realize(parts[1])
    assert not parts[0].is_realized()
    x = Tensor(np.ones((1, 4), np.float32))
    hidden = (x.expand(4 << 20, 4) * 3).contiguous()  # a temporary of 64 MiB, another of 64 MiB
    with pytest.raises(MemoryError, match=r"needs .* bytes"):
        (hidden.flip(0).contiguous() @ Tensor(np.ones((4, 1), np.float32))).realize()


def test_no_index_runs_over() -> None:
    wide = Tensor.ones(70000, 1).expand(70000, 70000)
    with pytest.raises(NotImplementedError, match="64-bit"):
        wide.reshape(-1)[-5:].tolist()
    with pytest.raises(NotImplementedError, match="64-bit"):
        (wide + 1).reshape(-1).sum().realize()
    assert (wide + 1)[69999, 69999].item() == 2


# -- recordings -------------------------------------------------------------------------------------------------------
def test_capture_leaves_no_trace_when_it_fails() -> None:
    state, pending = Tensor(np.ones(3, np.float32)), Tensor(np.ones(3, np.float32)) * 5
    state.requires_grad_()

    def wrong() -> None:
        state.assign(state + pending)
        (state * 2).sum().backward()
        raise KeyError("wrong")

    with pytest.raises(KeyError):
        capture(wrong)
    assert state.tolist() == [1, 1, 1] and state.grad is None and pending.tolist() == [5, 5, 5]


def test_pending_values_are_no_part_of_a_plan() -> None:
    state = Tensor(np.ones(3, np.float32))
    state.assign(state + 1)  # pending
    scale = state * 10  # pending
    plan = capture(lambda: [state.assign(state * scale)])
    assert len(plan.calls) == 1
    assert state.tolist() == [2, 2, 2] and scale.tolist() == [20, 20, 20]


def test_memory_is_owned_by_a_table_not_by_the_node() -> None:
    t = (Tensor([1.0, 2.0, 3.0]) * 2).realize()
    node = t.uop.buffer
    buffer = Device[t.device].memory(node)
    assert (buffer.device, buffer.size, buffer.dtype) == (Device[t.device].runtime.name, 3, dtypes.float32)
    assert node in BUFFERS and BUFFERS.get(node) is buffer and buffer not in vars(node).values()
    BUFFERS.withdraw(node, "gone with its trace")
    gone = weakref.ref(buffer)
    del buffer
    assert gone() is None and node not in BUFFERS
    with pytest.raises(RuntimeError, match="gone with its trace"):
        t.numpy()


def test_a_node_takes_its_entry_with_it() -> None:
    before = len(BUFFERS)
    t = Tensor([1.0, 2.0, 3.0])
    assert len(BUFFERS) == before + 1
    gone = weakref.ref(Device[t.device].memory(t.uop.buffer))
    del t
    assert gone() is None and len(BUFFERS) == before


def test_a_strided_view_of_what_is_padded_is_memory_of_that() -> None:
    """The view has padding of its own, that it takes away again, above the padding that shows."""
    padded = Tensor(np.arange(4, dtype=np.float32)).pad((1, 0))
    seen, view = padded[::2].realize(), padded[::2]
    view += 1
    np.testing.assert_array_equal(padded.numpy(), [1, 0, 2, 2, 4])
    np.testing.assert_array_equal(seen.numpy(), [1, 2, 4])


@pytest.mark.parametrize("realized", ["what is padded", "the copy", "nothing"])
@pytest.mark.parametrize("around", [(1, 0), (0, 2), (0, 0), (-1, 0), (1, -1)])
def test_what_is_padded_is_a_copy(around: tuple[int, int], realized: str) -> None:
    """Also for views that leave the padding out again."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    a, peer = Tensor(x), torch.tensor(x)
    padded, theirs = a.pad(around), torch.nn.functional.pad(peer, around)
    before = max(around[0], 0)
    view, their_view = padded[:, before : before + 2], theirs[:, before : before + 2]
    if realized != "nothing":
        (a if realized == "what is padded" else padded).realize()
    padded[:, before] = 50.0
    theirs[:, before] = 50.0
    view += 1
    their_view += 1
    a *= 2
    peer *= 2
    for mine, other in ((a, peer), (padded, theirs), (view, their_view)):
        np.testing.assert_array_equal(mine.numpy(), other.numpy())
