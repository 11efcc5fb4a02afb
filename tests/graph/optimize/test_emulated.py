"""Schedules for processors that play GPU: text is worth its compilation only where a kernel does much."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tinyweb import Tensor
from tinyweb.graph.ir import AxisKind, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import apply, heuristic
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.target import webgpu_target
from tinyweb.render_wgsl import render
from tinyweb.tracing import capture

TARGET = webgpu_target(emulated=True)


def scheduled(compute: Callable[[], Tensor]) -> UOp:
    """The last kernel, as the heuristic would have it."""
    kernel = capture(lambda: compute().realize()).calls[-1].kernel
    return apply(kernel, heuristic(kernel, TARGET))


def text(compute: Callable[[], Tensor]) -> str:
    """Its shader."""
    return render(lower(scheduled(compute), TARGET), {})


def rows(count: int, length: int) -> Tensor:
    return Tensor.empty(count, length).softmax(-1)


def square(size: int) -> Tensor:
    return Tensor.empty(size, size) @ Tensor.empty(size, size)


def test_the_tile_of_a_product_grows_with_its_work() -> None:
    sizes = [text(partial(square, n)).count("fma(") for n in (32, 128, 1024)]
    assert sizes == sorted(sizes) and sizes[0] * 8 <= sizes[-1] == 256


@pytest.mark.parametrize("size", [5, 10, 20])
def test_small_images_have_tiles_too(size: int) -> None:
    """Whatever the width of the image, an input or a weight that is read serves several outputs."""
    kernel = scheduled(lambda: Tensor.empty(1, 64, size + 2, size + 2).conv2d(Tensor.empty(64, 64, 3, 3)))
    tile = [
        r.src[0].arg for r in ranges_of(kernel) if r.arg.kind in (AxisKind.VECTOR, AxisKind.UNROLL) and not r.arg.reduce
    ]
    assert len(tile) == 2 and min(tile) >= 4


def test_what_is_done_with_sums_counts() -> None:
    """A function of every element is a page of text for each."""
    plain, activated = text(partial(square, 256)), text(lambda: square(256).silu())
    assert activated.count("\n") < 3 * plain.count("\n")


def test_threads_share_a_row_no_further_than_they_run_together() -> None:
    for shape, threads in (((1, 4096), 4), ((64, 64), 64)):
        program = text(partial(rows, *shape))
        assert f"@workgroup_size({threads}, 1, 1)" in program
        assert ("workgroupBarrier" in program) == (threads == 4)
