"""What layers keep of each position, in floats and in integers: what is read of it, and what it costs."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from tests.models.decoder_folders import CONVOLUTIONS, EXPERTS, LATENTS, LLAMA_LIKE, OTHERS
from tests.samples import slow_unless
from tinyweb import Tensor, Variable, dtypes, jit
from tinyweb.errors import TinywebError
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.kinds import CACHES
from tinyweb.models import load
from tinyweb.models.decoder.cache import Cache
from tinyweb.tensor import realize_all
from tinyweb.tracing import Plan, capture

MODELS = LLAMA_LIKE | OTHERS | EXPERTS | CONVOLUTIONS | LATENTS
SAMPLES = ("Mistral", "Gemma 3", "gpt-oss", "LFM2", "DeepSeek-V3")  # windows, sinks, convolutions, latent attention
TARGETS = {
    "CPU": cpu_target(),
    "WASM": wasm_target(),
    "WEBGPU": webgpu_target(),
    "WEBGPU, f16": webgpu_target(f16=True),
}
BYTES = {"f32": 4.0, "f16": 2.0, "q8": 1 + 2 / 32, "q4": 0.5 + 4 / 32}  # of an element, in groups of 32
SHAPES = [(2, 2, 24, 64), (2, 1, 24, 8), (1, 24, 40), (3, 24, 7)]
PROMPT, STEPS = 9, 12


# -- rows --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "device"),
    slow_unless(
        lambda kind, device: device == "CPU" or kind in ("f16", "q4"), CACHES, ("CPU", "WASM", "WEBGPU", "INTERPRETER")
    ),
)
def test_rows_are_written_where_they_belong(kind: str, device: str) -> None:
    """At places known and not known when kernels are made; rows before and behind stay as they are."""
    for shape in SHAPES if device == "CPU" else SHAPES[CACHES.index(kind) % 2 :: 2]:
        rng = np.random.default_rng(sum(shape))
        rows_of, held = Cache(shape, kind, device), np.zeros(shape, np.float32)
        *outer, positions, width = shape
        zeros = np.zeros((*outer, positions, width), np.float32)
        rows_of.write(0, Tensor(zeros, device=device))
        for at, count in ((0, 5), (9, 1), (4, 3), (23, 1)):
            rows = np.float32(10.0 ** rng.integers(-2, 3)) * rng.standard_normal((*outer, count, width), np.float32)
            start = Variable("start", 0, positions - count).bind(at)
            rows_of.write(start, Tensor(rows, device=device))
            held[..., at : at + count, :] = rows
            every, some = rows_of.read(0, positions), rows_of.read(start, start + count)
            realize_all([every, some])
            got = every.numpy()
            np.testing.assert_array_less(np.abs(got - held), tolerance(held, kind, rows_of.group) + 1e-30)
            np.testing.assert_array_equal(some.numpy(), got[..., at : at + count, :])


def tolerance(rows: np.ndarray, kind: str, group: int) -> np.ndarray:
    """What elements may differ by: half a step, and what scales and least values are rounded to."""
    if kind == "f32":
        return np.zeros_like(rows)
    if kind == "f16":
        return np.abs(rows) * 2.0**-11 + 2.0**-25
    grouped = rows.reshape(*rows.shape[:-1], -1, group)
    largest = np.abs(grouped).max(-1, keepdims=True)
    low, high = grouped.min(-1, keepdims=True), grouped.max(-1, keepdims=True)
    step = largest / 127 if kind == "q8" else (high - low + np.abs(low) / 128) / 15
    rounded = largest if kind == "q8" else high - low + 3 * np.abs(low)
    return np.broadcast_to(step * 0.51 + rounded / 256, grouped.shape).reshape(rows.shape)


@pytest.mark.parametrize("kind", CACHES)
def test_extreme_rows(kind: str) -> None:
    """Equal elements, zeros, tiny and large numbers, and one that is far from the others."""
    rows = np.zeros((6, 32), np.float32)
    rows[1], rows[2], rows[3], rows[4], rows[5, 7] = 3.5, 1e-30, -1e6, np.linspace(1000, 1001, 32), 250.0
    cache = Cache((6, 32), kind, "CPU")
    cache.write(0, Tensor(rows))
    got = cache.read(0, 6).numpy()
    assert np.isfinite(got).all()
    want = np.clip(rows, -65504, 65504) if kind == "f16" else rows
    np.testing.assert_array_less(np.abs(got - want), tolerance(want, kind, 32) + 1e-20)
    assert (got[0] == 0).all()


# -- models ------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tmp_path_factory.mktemp("model") for name in SAMPLES}
    for name, folder in made.items():
        MODELS[name].write(folder)
    return made


@functools.cache
def logits(folder: Path, kind: str, device: str) -> np.ndarray:
    """Of a text whose beginning is read at once, the rest token by token."""
    model = load(folder, context=PROMPT + STEPS, device=device, cache=kind)
    ids = np.random.default_rng(5).integers(0, 67, (1, PROMPT + STEPS)).astype(np.int32)
    out = [model(Tensor(ids[:, :PROMPT], device=device)).numpy()[0]]
    model.ids[: PROMPT + STEPS] = Tensor(ids[0], device=device)
    start, decode = Variable("start_pos", 0, model.context - 1), jit(model.decode, freeze=False)
    out += [decode(start.bind(at)).numpy().copy() for at in range(PROMPT, PROMPT + STEPS)]
    return np.concatenate(out)


@pytest.mark.parametrize(  # but of gpt-oss tokens change experts
    "name", ["Mistral", *(pytest.param(n, marks=pytest.mark.slow) for n in ("DeepSeek-V3", "Gemma 3", "LFM2"))]
)
def test_errors_grow_with_fewer_bits(folders: dict[str, Path], name: str) -> None:
    """Of most positions, beside the spread of logits: random weights magnify errors."""
    want = logits(folders[name], "f32", "CPU")
    found = {k: np.abs(logits(folders[name], k, "CPU") - want).mean(-1) for k in ("f16", "q8", "q4")}
    errors = {k: np.median(each) / want.std() for k, each in found.items()}
    assert 0 < errors["f16"] < 1e-3 < errors["q8"] < 0.04 < errors["q4"] * 2 < 1


@pytest.mark.parametrize(
    ("name", "kind", "device"),
    slow_unless(
        lambda name, kind, device: name == SAMPLES[0] and (kind == "q4" or (kind == "q8") == (device == "WASM")),
        SAMPLES, ("f16", "q8", "q4"), ("WASM", "WEBGPU"),
    ),
)  # fmt: skip
def test_devices_agree(folders: dict[str, Path], name: str, kind: str, device: str) -> None:
    """An element near the middle between two integers may become either: nearly all logits are the same."""
    want, got = logits(folders[name], kind, "CPU"), logits(folders[name], kind, device)
    close = np.abs(got - want).max(-1) < 1e-3 * want.std()
    assert close.mean() > 0.5, np.abs(got - want).max(-1)


@pytest.mark.parametrize("kind", CACHES)
def test_bytes_of_the_state(folders: dict[str, Path], kind: str) -> None:
    for name in ("Mistral", "DeepSeek-V3", "LFM2"):
        model = load(folders[name], context=64, cache=kind)
        assert model.cache == kind
        state = {n: t for n, t in model.state.items() if n.startswith("layer")}
        assert len(state) == sum(len(c.tensors()) for c in model.caches)
        for i, (layer, cache) in enumerate(zip(model.layers, model.caches, strict=True)):
            elements = int(np.prod([int(s) for s in cache.rows.shape]))
            held = "q8" if kind == "q4" and layer.mixer.cache_name == "conv" else kind
            extra = {"q8": 2, "q4": 4}.get(held, 0) / cache.group - {"q8": 2, "q4": 4}.get(held, 0) / 32
            size = sum(t.nbytes() for n, t in state.items() if n.startswith(f"layer{i}."))
            assert size == elements * (BYTES[held] + extra)


def plans(folder: Path, kind: str, target: Target) -> tuple[Plan, Plan, int]:
    """Of a decoded token and of a block of 8; and the bytes of a layer's rows as floats."""
    model = load(folder, context=64, cache=kind)
    start, count = Variable("start_pos", 0, 55).bind(0), Variable("count", 1, 8).bind(1)
    decode = capture(lambda: model.decode(start), target)
    floats = min(4 * int(np.prod([int(s) for s in c.rows.shape])) for c in model.caches)
    return decode, capture(lambda: model.prefill(8, start, count), target), floats


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["Mistral", "DeepSeek-V3"])
def test_integers_are_read_as_they_lie(folders: dict[str, Path], name: str, target: str) -> None:
    """No memory between kernels has room for a row's floats at all positions; half floats cost no kernel."""
    for kind in ("q8", "q4"):
        *made, floats = plans(folders[name], kind, TARGETS[target])
        *others, _ = plans(folders[name], "f32", TARGETS[target])
        for plan, before in zip(made, others, strict=True):
            assert isinstance(plan, Plan) and isinstance(before, Plan)
            assert sum(plan.pool_bytes) < sum(before.pool_bytes) + floats // 8
    half, _, _ = plans(folders[name], "f16", TARGETS[target])
    full, _, _ = plans(folders[name], "f32", TARGETS[target])
    assert len(half.calls) == len(full.calls) and half.pool_bytes == full.pool_bytes


def test_several_sequences_beside_each_other(folders: dict[str, Path]) -> None:
    model = load(folders["Mistral"], context=32, cache="q8")
    ids = np.random.default_rng(1).integers(0, 67, (2, 12)).astype(np.int32)
    both = model(Tensor(ids)).numpy()
    alone = [model(Tensor(ids[i : i + 1])).numpy() for i in range(2)]
    np.testing.assert_allclose(both, np.concatenate(alone), atol=2e-2 * both.std())


def test_what_is_kept_without_a_choice(folders: dict[str, Path]) -> None:
    """Half floats, but beside weights of full precision."""
    folder = folders["Mistral"]
    assert [load(folder, quant, context=8).cache for quant in (None, "f32", "f16", "q8")] == [
        "f32",
        "f32",
        "f16",
        "f16",
    ]
    with pytest.raises(TinywebError, match="unknown cache 'f8': choose one of f16, f32, q8, q4"):
        load(folder, cache="f8")


def test_rows_of_every_type(folders: dict[str, Path]) -> None:
    types = {"f16": dtypes.float16, "f32": dtypes.float32, "q8": dtypes.int8, "q4": dtypes.uint4}
    for kind, dtype in types.items():
        assert load(folders["gpt-oss"], context=8, cache=kind).state["layer0.kv"].dtype is dtype
