"""Bounds of sums of multiples are those of all their values; sums that may wrap around do not fit."""

from __future__ import annotations

from itertools import product

import pytest

from tests.graph.symbolic.oracle import RANGE, assert_same
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, Variable
from tinyweb.graph.symbolic import proves_less, simplify, simplify_given
from tinyweb.graph.symbolic.linear import fits, interval_of

N, M = Variable("n", -3, 4), Variable("m", 2, 7)


@pytest.mark.parametrize("factors", list(product((-3, -1, 0, 1, 2), repeat=2)))
def test_bounds_of_sums(factors: tuple[int, int]) -> None:
    values = [5 + factors[0] * n + factors[1] * m for n in range(-3, 5) for m in range(2, 8)]
    assert interval_of({N: factors[0], M: factors[1]}, 5) == (min(values), max(values))


def test_what_fits() -> None:
    assert interval_of({}, 7) == (7, 7) and interval_of({N: 2}) == (-6, 8)
    n = Variable("n", 0, 2**20)
    assert fits({n: 2**11 - 1}, 0, dtypes.int32) and not fits({n: 2**11}, 0, dtypes.int32)
    assert fits({n: -(2**11)}, 0, dtypes.int32) and not fits({n: -(2**11)}, -1, dtypes.int32)
    assert fits({}, 2**31 - 1, dtypes.int32) and not fits({}, 2**31, dtypes.int32)


def test_equality_of_ranges_that_do_not_meet() -> None:
    for a, b, want in ((N, M + 3, False), (N, M + 2, None), (N + 8, M - 3, False), (N + 7, M - 3, None), (N, N, True)):
        found = simplify(a.equal(b))
        assert want is None or found is UOp.const(want, dtypes.bool)
        assert want is not None or found.arg is None


def test_variables_alone_are_compared_as_polynomials() -> None:
    assert proves_less(N, simplify(N + 1)) and not proves_less(N, N) and not proves_less(N, simplify(N * 1 + 0))
    assert (
        proves_less(M, simplify(M * 2))
        and not proves_less(M, simplify(M * 2 - 2))
        and not proves_less(N, simplify(N * 2))
    )


@pytest.mark.parametrize("times", [1, 2, -3])
def test_quotients_and_remainders_by_a_variable_are_joined(times: int) -> None:
    """x // d · d + x % d is x, also in multiples and between other terms; not where d may be 0, or the parts differ."""
    x = RANGE("x", 40)
    for d in (Variable("d", 1, 9), Variable("d", 2, 9), simplify(N + 4)):
        for other in (UOp.const(0, dtypes.index), UOp.const(-5, dtypes.index), M * 2 + 1):
            assert simplify((x // d) * d * times + x % d * times + other) is simplify(x * times + other)
            assert simplify(other - x % d * times - d * (x // d) * times) is simplify(other - x * times)
        for apart in (x // d * d * times - x % d * times, x // d * d * (times + 1) + x % d * times, x // d + x % d):
            assert any(u.op is Ops.MOD for u in simplify(apart).toposort())
            assert_same(apart, simplify(apart))
    for d in (Variable("d", 0, 9), Variable("d", -3, 9), Variable("d", -3, 0)):
        assert any(u.op is Ops.MOD for u in simplify(x // d * d * times + x % d * times).toposort())


def test_a_range_below_another() -> None:
    """The size of an inner range depends on an outer one: the inner one goes first."""
    i = RANGE("i", Variable("rows", 1, 9), 0)
    for more in (1, 3):
        j = RANGE("j", simplify(i + more), 1)
        assert proves_less(j, simplify(i + more)) and not proves_less(j, simplify(i + more - 1))


def test_a_gate_that_never_holds_leaves_the_expression() -> None:
    """Two sums that contradict each other, though each may hold."""
    for gate in ((N + M < 2) & (N >= 3), (N + M >= 10) & (M < 4), (N * 2 + M < 4) & (N >= 2)):
        for expr in (N // 3, M % 4, (N + M) // 2):
            assert simplify_given(expr, gate) is simplify(expr)
