"""Tuning for real: what it writes is used, and computes the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import linear
from tinyweb import Device, Tensor, jit
from tinyweb.cli import main
from tinyweb.errors import DeviceError
from tinyweb.export import export_function
from tinyweb.graph.ir import AxisKind, UOp
from tinyweb.graph.optimize import Bind, Split, heuristic, optimize
from tinyweb.graph.target import webgpu_target
from tinyweb.models.chat import usual_calls
from tinyweb.native_runtimes.webgpu import WebGpuRuntime
from tinyweb.native_runtimes.webgpu.backend import Adapter
from tinyweb.native_runtimes.webgpu.runtime import target_of
from tinyweb.schedules import Database, DatabaseError, forget_file, remembered
from tinyweb.tracing import capture
from tinyweb.tuning import tune, tune_kernels
from tinyweb.tuning.plans import _launches, _remember, tune_for
from tinyweb.tuning.search import Found


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "schedules.json"
    monkeypatch.setenv("TINYWEB_SCHEDULES", str(path))
    forget_file()
    yield path
    forget_file()


def operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((48, 40), np.float32), rng.standard_normal((40, 56), np.float32)


@pytest.mark.parametrize("device", ["CPU", pytest.param("WASM", marks=pytest.mark.slow)])
def test_tune_a_function(file: Path, device: str) -> None:
    x, y = operands()
    a, b = Tensor(x, device=device).realize(), Tensor(y, device=device).realize()
    steps: list[tuple[str, int, int]] = []
    done = tune(lambda: (a @ b).relu().realize(), seconds=4, progress=lambda *s: steps.append(s))
    assert len(done) == 1 and done[0].launches == 1 and done[0].seconds > 0
    assert done[0].found.timed > 0 and 0 < done[0].found.ratio <= 1.0
    target = Device[device].runtime.target
    if done[0].found.ratio < 1.0:
        assert remembered(done[0].kernel, target) == done[0].found.schedule
        assert optimize(done[0].kernel, target, remembered(done[0].kernel, target)).arg.schedule == tuple(
            map(str, done[0].found.schedule)
        )
    else:
        assert done[0].found.schedule == heuristic(done[0].kernel, target) and not file.exists()
    assert {s[0] for s in steps} == {f"timing kernels on {device}", f"tuning for {target.name}"}
    np.testing.assert_allclose((a @ b).relu().numpy(), np.maximum(x @ y, 0), rtol=1e-4, atol=1e-4)


def test_what_is_compiled_already_becomes_faster_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = operands()
    a, b = Tensor(x).realize(), Tensor(y).realize()
    step = jit(lambda p, q: (p @ q).realize())
    step(a, b)
    plan = capture(lambda: (a @ b).realize())
    better = (Split("i1", 8), Bind("i1.1", AxisKind.VECTOR))

    def found(kernel: UOp, *rest: object) -> Found:
        return Found(better, 0.5, 0.0, 1, 1, 0)

    monkeypatch.setattr("tinyweb.tuning.plans._search", found)
    tune_kernels(plan, seconds=60)
    (kernel,) = plan.kernels
    assert Device["CPU"].compiled[kernel][0].schedule == tuple(map(str, better))
    np.testing.assert_allclose(step(a, b).numpy(), x @ y, rtol=1e-4, atol=1e-4)


def test_the_heuristic_is_remembered_only_against_another_schedule(file: Path) -> None:
    kernel, target = linear(4, 8, 16).kernel, Device["CPU"].runtime.target
    usual = Found(heuristic(kernel, target), 1.0, 0.0, 1, 1, 0)
    database = Database()
    _remember(database, file, kernel, target, usual)
    assert not file.exists()
    _remember(database, file, kernel, target, Found((Split("i0", 2),), 0.5, 0.0, 1, 1, 0))
    assert remembered(kernel, target) == (Split("i0", 2),)
    _remember(database, file, kernel, target, usual)  # tuned again: it is no better than the heuristic's any more
    assert remembered(kernel, target) == usual.schedule


def test_what_cannot_be_tuned(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="INTERPRETER is not tuned"):
        tune_kernels([linear(2, 4, 8).kernel], "INTERPRETER")
    monkeypatch.setenv("TINYWEB_SCHEDULES", "none")
    with pytest.raises(DatabaseError, match="TINYWEB_SCHEDULES"):
        tune_kernels([linear(2, 4, 8).kernel], "CPU")
    monkeypatch.setenv("TINYWEB_SCHEDULES", str(file))
    file.write_text("{")
    with pytest.raises(DatabaseError, match="damaged"):
        tune_kernels([linear(2, 4, 8).kernel], "CPU", 1)


def test_calls_weigh_plans() -> None:
    first, second = (capture(lambda n=n: Tensor.ones(n).contiguous() * 2) for n in (8, 9))  # type: ignore[misc]
    launches = _launches({"prefill_64": first, "decode": second}, usual_calls(["prefill_64", "decode"]))
    assert {launches[k] for k in first.kernels} == {1} and {launches[k] for k in second.kernels} == {64}


MAKER = """
from tinyweb import Tensor

def make():
    return (lambda x: (x @ Tensor.ones(16, 8).contiguous()).relu()), [Tensor.ones(4, 16)]
"""


def test_the_command_line(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "made_for_tuning.py").write_text(MAKER)
    monkeypatch.syspath_prepend(file.parent)
    better = (Split("i1", 4), Bind("i1.1", AxisKind.VECTOR))
    monkeypatch.setattr("tinyweb.tuning.plans._search", lambda *rest: Found(better, 0.5, 0.01, 1, 7, 0))
    with pytest.raises(SystemExit) as ended:
        main(["tune", "function", "made_for_tuning:make", "--seconds", "60", "--json"])
    assert not ended.value.code
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["ratio"] == 0.5 and rows[0]["schedule"] == ["split(i1, 4)", "bind(i1.1, vector)"]
    with pytest.raises(SystemExit):
        main(["tune", "function", "made_for_tuning:make", "--seconds", "60"])
    assert "takes 0.50 (± 0.01) of that with split(i1, 4); bind(i1.1, vector)" in capsys.readouterr().out
    assert len(Database.load(file).targets) == 1


@pytest.mark.slow
def test_an_export_that_is_tuned(file: Path, tmp_path: Path) -> None:
    x = Tensor.ones(32, 48)
    weight = Tensor(operands()[0]).realize()
    export_function(lambda x: x @ weight, [x], tmp_path / "site", targets=["wasm"], tune=6)
    assert (tmp_path / "site" / "model" / "manifest.json").exists()


@pytest.mark.slow
def test_tune_on_webgpu(file: Path) -> None:
    done = tune_kernels([linear(16, 64, 64).kernel], "WEBGPU", 8)
    assert len(done) == 1 and done[0].found.ratio <= 1.0


def test_a_gpu_is_asked_about_targets_whose_features_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = {f"{s:d}{f:d}": webgpu_target(subgroups=s, f16=f) for s in (False, True) for f in (False, True)}
    asked: list[object] = []
    monkeypatch.setattr("tinyweb.tuning.plans.tune_kernels", lambda *_, target, **__: asked.append(target))
    for features, name, want in (
        (("shader-f16", "subgroups"), "GPU", ["00", "01", "10", "11"]),
        (("shader-f16",), "GPU", ["00", "01"]),
        (("subgroups",), "GPU", ["00", "10"]),
        (("shader-f16", "subgroups"), "llvmpipe", []),
    ):
        runtime = object.__new__(WebGpuRuntime)
        runtime.adapter = Adapter(name, features, 1 << 28, 1 << 27)
        runtime.target = target_of(runtime.adapter)
        monkeypatch.setattr("tinyweb.tuning.plans.Device", {"WEBGPU": SimpleNamespace(runtime=runtime)})
        asked.clear()
        for target in targets.values():
            tune_for(target, {}, {}, 1.0, lambda *_: None)
        assert asked == [targets[t] for t in want]
