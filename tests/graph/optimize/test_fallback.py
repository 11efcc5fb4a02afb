"""A rule of thumb that is wrong about a kernel: an error where graphs are checked, else a warning and a plainer way."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import CASES, check, linear, supports
from tinyweb import Tensor
from tinyweb.graph.ir import AxisKind, Space, UOp
from tinyweb.graph.lower import lower, program_for
from tinyweb.graph.optimize import (
    FallbackWarning,
    ScheduleError,
    Stage,
    choose,
    heuristic,
    optimize,
)
from tinyweb.graph.optimize.actions import apply
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.choose import RULES, Rule
from tinyweb.graph.optimize.cost import excess
from tinyweb.graph.optimize.merge import prepared
from tinyweb.graph.target import Target, cpu_target, interpreter_target, wasm_target, webgpu_target

TARGETS = [cpu_target(8, 1), cpu_target(8, 4), wasm_target(1), webgpu_target(), interpreter_target()]
BIG = linear(64, 512, 256)


def break_with(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rule goes wrong in a way of its own."""
    for language, usual in RULES.items():
        monkeypatch.setitem(RULES, language, (rule, *usual))


def no_such_axis(b: Builder) -> bool:
    b.bind("i9", AxisKind.VECTOR)
    return True


def stores_there(b: Builder) -> bool:
    b.do(Stage(0, "i0", Space.REGISTER))
    return True


def crashes(b: Builder) -> bool:
    raise IndexError("list index out of range")


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users: graphs are not checked."""
    monkeypatch.setattr(choose, "spec_level", lambda: 0)


BROKEN = pytest.mark.parametrize("rule", [no_such_axis, stores_there, crashes])


@BROKEN
def test_it_is_an_error_in_tests(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    break_with(rule, monkeypatch)
    for function in (optimize, program_for, heuristic):
        with pytest.raises(ScheduleError, match="a defect of tinyweb") as caught:
            function(BIG.kernel, cpu_target())
        assert caught.value.__cause__ is not None


@BROKEN
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.name} {t.parallel_threads}")
def test_users_get_the_next_schedule(
    rule: Rule, target: Target, monkeypatch: pytest.MonkeyPatch, unchecked: None
) -> None:
    usual = optimize(BIG.kernel, target)
    break_with(rule, monkeypatch)
    with pytest.warns(FallbackWarning, match="used instead") as seen:
        assert optimize(BIG.kernel, target) is usual
    assert len(seen) == 1 and target.name in str(seen[0].message)


def test_it_is_said_once(monkeypatch: pytest.MonkeyPatch, unchecked: None) -> None:
    break_with(no_such_axis, monkeypatch)
    with warnings.catch_warnings(record=True) as seen:
        warnings.resetwarnings()
        for _again in range(3):
            optimize(BIG.kernel, cpu_target())
    assert [w.category for w in seen] == [FallbackWarning]


@pytest.mark.parametrize("target", [cpu_target(8, 4), wasm_target(4), webgpu_target()], ids=lambda t: t.name)
def test_every_rule_is_right_by_itself(target: Target) -> None:
    """What comes after a rule that fails is legal, fits the target, and computes the same; the last are no actions."""
    done = 0
    for case in CASES:
        if not supports(case, target):
            continue
        k = Analysis(prepared(case.kernel))
        made = [b for rule in RULES[target.family] if rule(b := Builder(k, target))]
        assert made[-1].actions == ()
        for schedule in dict.fromkeys(b.actions for b in made[1:] if b.actions):
            check(case, choose._checked(apply(case.kernel, schedule), target, excess), target)
            done += 1
    assert done >= 3, done


def test_what_lowering_refuses_gives_way_too(monkeypatch: pytest.MonkeyPatch, unchecked: None) -> None:
    """A limit that only lowering sees."""
    tried: list[UOp] = []

    def refuses(scheduled: UOp) -> object:
        tried.append(scheduled)
        if len(tried) == 1:
            raise ValueError("too much shared memory")
        return lower(scheduled, target)

    target = webgpu_target()
    with pytest.warns(FallbackWarning, match="too much shared memory"):
        made = choose.optimize_then(BIG.kernel, target, refuses)
    assert len(tried) == 2 and made.name == lower(tried[1], target).name  # type: ignore[attr-defined]


def test_what_no_schedule_can_mend_is_raised_as_it_is(unchecked: None) -> None:
    def refuses(scheduled: UOp) -> object:
        raise NotImplementedError("no such type")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NotImplementedError, match="no such type"):
            choose.optimize_then(BIG.kernel, cpu_target(), refuses)


def test_a_tensor_is_computed_all_the_same(monkeypatch: pytest.MonkeyPatch, unchecked: None, tmp_path: Path) -> None:
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path))  # what is kept was made by the real rules
    break_with(no_such_axis, monkeypatch)
    x = np.random.default_rng(3).standard_normal((61, 67)).astype(np.float32)
    with pytest.warns(FallbackWarning):
        got = (Tensor(x) @ Tensor(x).T * 3).numpy()
    np.testing.assert_allclose(got, x @ x.T * 3, rtol=1e-4, atol=1e-3)
