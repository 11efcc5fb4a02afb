"""Bounds of sums of multiples are those of all their values; sums that may wrap around do not fit."""

from __future__ import annotations

from itertools import product

import pytest

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp, Variable
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


def test_a_gate_that_never_holds_leaves_the_expression() -> None:
    """Two sums that contradict each other, though each may hold."""
    for gate in ((N + M < 2) & (N >= 3), (N + M >= 10) & (M < 4), (N * 2 + M < 4) & (N >= 2)):
        for expr in (N // 3, M % 4, (N + M) // 2):
            assert simplify_given(expr, gate) is simplify(expr)
