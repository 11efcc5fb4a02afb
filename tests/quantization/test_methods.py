"""Rounding that knows the inputs: less error of the outputs than rounding to nearest, by the definitions."""

from dataclasses import replace

import numpy as np
import pytest

from tinyweb.nn.precision import Precision
from tinyweb.quantization.descent import refine
from tinyweb.quantization.methods import Rounded, feed_back, output_error, search, weight_error


def inputs(width: int, seed: int = 0) -> np.ndarray:
    """Inputs that depend on each other, some channels of which are large, and one of which is always 0."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((512, width // 4)) @ random.standard_normal((width // 4, width))
    x *= np.exp(random.standard_normal(width))
    x[:, 5] = 0
    return (x + 0.1 * random.standard_normal((512, width)) * (np.arange(width) != 5)).astype(np.float32)


def matrix(rows: int, width: int) -> np.ndarray:
    return np.random.default_rng(9).standard_normal((rows, width)).astype(np.float32)


def rounded(made: Rounded | None) -> Rounded:
    assert made is not None
    return made


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("group", [32, 64, None])
@pytest.mark.parametrize("kind", ["q6", "q4", "q3"])
def test_what_is_known_of_the_inputs_saves_error(kind: str, group: int | None, zero_points: bool) -> None:
    weight, x = matrix(24, 192), inputs(192)
    moments = x.T @ x / len(x)
    precision = Precision(kind, group, zero_points)
    plain = rounded(search(weight, precision))
    aware = rounded(search(weight, precision, np.diagonal(moments)))
    fed = rounded(feed_back(weight, precision, moments))
    refined = refine(weight, fed, moments)
    every = (plain, aware, fed, refined)
    errors = [np.linalg.norm(x @ (r.dense() - weight).T) / np.linalg.norm(x @ weight.T) for r in every]
    assert errors[1] < errors[0] and errors[2] < 0.8 * errors[0] and errors[3] < errors[2]
    for made, error in zip(every, errors):
        assert output_error(weight, made.dense(), moments) == pytest.approx(error, rel=1e-2)
        held = made.weight("INTERPRETER")
        np.testing.assert_array_equal(held.dense().numpy(), made.dense())
        assert held.bits == int(kind[1:]) and (held.zeros is not None) == zero_points


def test_feedback_by_definition() -> None:
    """Column after column of the largest diagonal first, errors solved for with the columns that are left."""
    weight, x = matrix(3, 32), inputs(32, 1)
    moments = (x.T @ x / len(x)).astype(np.float32)
    made = rounded(feed_back(weight, Precision("q4"), moments))
    scale = made.scales[:, 0].astype(np.float64)
    damped = moments.astype(np.float64) + 0.01 * np.diagonal(moments).mean() * np.eye(32)
    rest, left = weight.astype(np.float64), list(np.argsort(-np.diagonal(moments), kind="stable"))
    while left:
        column, *left = left
        value = np.clip(np.round(rest[:, column] / scale), -8, 7) * scale
        error, rest[:, column] = value - rest[:, column], value
        if left:  # what minimises the energy of the error with the columns that are left
            rest[:, left] -= np.outer(error, np.linalg.solve(damped[np.ix_(left, left)], damped[left, column]))
    np.testing.assert_allclose(made.dense(), rest, atol=1e-3)


def test_descent_by_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """No integer that is one more or one less, and no other scale, has less error; some rows at a time as all."""
    weight, x = matrix(5, 64), inputs(64, 3)
    moments = (x.T @ x / len(x)).astype(np.float32)
    damped = moments.astype(np.float64) + 0.01 * np.diagonal(moments).mean() * np.eye(64)

    def error(dense: np.ndarray) -> np.ndarray:
        wrong = dense.astype(np.float64) - weight
        found: np.ndarray = ((wrong @ damped) * wrong).sum(1)
        return found

    made = rounded(feed_back(weight, Precision("q4", 16), moments))
    for _ in range(8):
        before, made = made, refine(weight, made, moments)
        assert (error(made.dense()) <= error(before.dense()) * 1.002).all()
    least = error(made.dense())
    for column in range(64):
        for change in (-1, 1):
            values = made.values.copy().reshape(5, 64)
            values[:, column] = np.clip(values[:, column] + change, -8, 7)
            assert (error(replace(made, values=values.reshape(made.values.shape)).dense()) > least * 0.999).all()
    for factor in (0.99, 1.01):
        for group in range(4):
            scales = made.scales.copy()
            scales[:, group] *= np.float16(factor)
            assert (error(replace(made, scales=scales).dense()) > least * 0.999).all()
    monkeypatch.setattr("tinyweb.quantization.descent.SYSTEMS", 32)
    again = refine(weight, made, moments)
    np.testing.assert_allclose(again.dense(), made.dense(), atol=0.02)


def test_inputs_that_say_nothing_leave_rounding_to_the_nearest() -> None:
    weight = matrix(8, 64)
    plain = rounded(search(weight, Precision("q4")))
    for moments in (np.eye(64, dtype=np.float32), np.zeros((64, 64), np.float32)):
        fed = rounded(feed_back(weight, Precision("q4"), moments))
        assert np.abs(refine(weight, fed, moments).values.astype(int) - plain.values).max() <= 1
        assert weight_error(weight, fed.dense()) <= weight_error(weight, plain.dense())
    assert weight_error(weight, plain.dense()) < 0.1 and weight_error(weight, weight) == 0


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("kind", ["q8", "q4", "q3"])
def test_rows_of_one_number(kind: str, zero_points: bool) -> None:
    """Zeros and constants are exact, with feedback as without."""
    weight = np.repeat(np.array([[0], [0.37], [-0.37], [1e5]], np.float32), 64, 1)
    weight[2, ::3] = 0
    moments = inputs(64).T @ inputs(64) / 512
    for group in (16, None):
        precision = Precision(kind, group, zero_points)
        np.testing.assert_allclose(rounded(search(weight, precision)).dense(), weight, rtol=2e-3)
        fed = refine(weight, rounded(feed_back(weight, precision, moments)), moments)
        assert not fed.dense()[0].any()
        steps = np.abs(np.repeat(fed.scales.astype(np.float32), group or 64, 1))
        assert (np.abs(fed.dense() - weight) <= 3 * steps).all()


def test_rows_that_do_not_divide() -> None:
    assert search(matrix(2, 20), Precision("q4")) is None
    assert feed_back(matrix(2, 20), Precision("q4"), np.eye(20, dtype=np.float32)) is None
    assert search(matrix(2, 32), Precision("f16")) is None
