"""Convolutions, pools and resampling over grids of their options, beside PyTorch (see test_grids.py)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

from tests.tensor.ops import data
from tests.tensor.test_grids import check, function, method
from tinyweb import Tensor
from tinyweb.graph.schedule.work import executed
from tinyweb.graph.target import webgpu_target
from tinyweb.tracing import capture

GEOMETRY = list(itertools.product((1, 2, 3), (1, 2, 3), (0, 1, 2), (1, 2)))  # kernel, stride, padding, dilation


def test_windows_are_added_without_zeros_between_them() -> None:
    """Those of 64, 16 apart: an element is in four, and few more are read for it."""
    columns, x, upstream = Tensor.empty(1, 64, 61), Tensor.empty(1024), Tensor.empty(61, 64)

    def folded() -> Tensor:
        return columns.fold((1, 1024), (1, 64), stride=(1, 16))

    def slope() -> Tensor:
        return x.unfold(0, 64, 16).gradient(x, gradient=upstream)[0]

    for added in (folded, slope):
        plan = capture(added, webgpu_target())
        assert sum(executed(call.kernel) for call in plan.calls) <= 5 * 1024


def test_pools() -> None:
    k: Any
    s: Any
    p: Any
    d: Any
    x = data(1, 2, 7)
    for (k, s, p, d), up in [*itertools.product(GEOMETRY, (False, True))][::2] + [
        *itertools.product(GEOMETRY, (True,))
    ]:
        given = {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": up}
        pool: dict[str, Any] = {**given, "dilation": d}
        check([(f"max_pool1d {pool}", method("max_pool1d", **pool), function("max_pool1d", **pool), (x,))], 0)
        if d == 1:
            for whole in (False, True):
                mean = {**given, "count_include_pad": whole}
                check([(f"avg_pool1d {mean}", method("avg_pool1d", **mean), function("avg_pool1d", **mean), (x,))], 0)
    for k, s, p, d in (
        ((2, 3), (1, 2), (1, 1), (1, 2)),
        ((3, 1), (2, 1), (0, 0), (2, 1)),
        (2, None, 0, 1),
        ((2, 2), (3, 1), 1, 1),
    ):
        for up in (False, True):
            plane: dict[str, Any] = {"kernel_size": k, "stride": s, "padding": p, "dilation": d, "ceil_mode": up}
            theirs = function("max_pool2d", **plane, return_indices=True)
            check([(f"{plane}", method("max_pool2d", **plane, return_indices=True), theirs, (data(2, 2, 6, 5),))], 1)
            if d == 1:
                del plane["dilation"]
                for divisor in (None, 1, 3, -2):
                    m = {**plane, "divisor_override": divisor, "count_include_pad": up}
                    check([(f"{m}", method("avg_pool2d", **m), function("avg_pool2d", **m), (data(2, 6, 5),))], 1)
    for n in (1, 2, 3, 5, 7, 9):
        for pool_name in ("adaptive_avg_pool1d", "adaptive_max_pool1d"):
            check([(f"{pool_name} {n}", method(pool_name, n), function(pool_name, n), (x,))], 1)
        check(
            [
                (
                    "2d",
                    method("adaptive_avg_pool2d", (None, n)),
                    function("adaptive_avg_pool2d", (None, n)),
                    (data(2, 3, 7),),
                )
            ],
            1,
        )
    for power in (1.0, 2.0, 3.5):
        norm = (power, 3, 2)
        check([("lp", method("lp_pool1d", *norm), function("lp_pool1d", *norm), (np.abs(x),))], 1)


def test_convolutions() -> None:
    k: Any
    s: Any
    p: Any
    d: Any
    x = data(2, 4, 7)
    for groups, (k, s, p, d) in enumerate(GEOMETRY[1::4] + GEOMETRY[2::9]):
        groups = groups % 2 + 1
        w, v = data(6, 4 // groups, k), data(4, 6 // groups, k)
        given = {"stride": s, "padding": p, "dilation": d, "groups": groups}
        check([(f"conv1d {k} {given}", method("conv1d", **given), function("conv1d", **given), (x, w, data(6)))], 1)
        for extra in (0, 1, 2):
            more: dict[str, Any] = {**given, "output_padding": extra}
            back = function("conv_transpose1d", **more)
            check([(f"conv_transpose1d {k} {more}", method("conv_transpose1d", **more), back, (x, v, data(6)))], 0)
    plane = data(1, 2, 5, 6)
    for s, p, d in (
        ((1, 2), (0, 1), (1, 1)),
        ((2, 1), (1, 0), (2, 1)),
        ((2, 3), 1, (1, 2)),
        (1, "same", 2),
        (1, "valid", 1),
        (2, "same", 1),
    ):
        flat = {"stride": s, "padding": p, "dilation": d}
        check([(f"{flat}", method("conv2d", **flat), function("conv2d", **flat), (plane, data(3, 2, 2, 3)))], 0)
        if not isinstance(p, str):
            check(
                [
                    (
                        f"{flat}",
                        method("conv_transpose2d", **flat),
                        function("conv_transpose2d", **flat),
                        (plane, data(2, 3, 2, 3)),
                    )
                ],
                1,
            )
    for k, d, p, s in GEOMETRY:
        given = {"kernel_size": k, "dilation": d, "padding": p, "stride": s}
        check([(f"unfold {given}", method("im2col", **given), function("unfold", **given), (data(2, 2, 5, 4),))], 0)
    for (kh, kw), (sh, sw), around in itertools.product(((2, 5), (4, 3), (7, 1)), ((2, 3), (3, 2), (4, 1)), (0, 1)):
        geometry = {"kernel_size": (kh, kw), "padding": around, "stride": (sh, sw)}
        windows = ((9 + 2 * around - kh) // sh + 1) * ((8 + 2 * around - kw) // sw + 1)
        ours, theirs = method("fold", (9, 8), **geometry), function("fold", (9, 8), **geometry)
        check([(f"fold {geometry}", ours, theirs, (data(1, 2 * kh * kw, windows),))], 0)
    columns = data(1, 2 * 4, 9)
    check(
        [
            ("fold", method("fold", (4, 4), 2), function("fold", (4, 4), 2), (columns,)),
            ("fold", method("fold", (5, 4), (2, 2), 1, 1, 2), function("fold", (5, 4), (2, 2), 1, 1, 2), (columns,)),
        ],
        2,
    )


def test_resampling() -> None:
    for mode, shape in (
        ("nearest", (1, 2, 5)),
        ("nearest-exact", (1, 2, 5)),
        ("linear", (1, 2, 5)),
        ("area", (1, 2, 5)),
        ("bilinear", (1, 1, 4, 5)),
        ("bicubic", (1, 1, 4, 5)),
    ):
        smooth = "linear" in mode or "cubic" in mode
        for size in (1, 2, 3, 5, 8, 11):
            for corners in (False, True) if smooth else (None,):
                given: dict[str, Any] = {"size": size, "mode": mode, "align_corners": corners}
                check(
                    [(f"{given}", method("interpolate", **given), function("interpolate", **given), (data(*shape),))], 1
                )
            if mode in ("bilinear", "bicubic"):
                given = {"size": (size, 3), "mode": mode, "antialias": True}
                check(
                    [(f"{given}", method("interpolate", **given), function("interpolate", **given), (data(*shape),))], 1
                )
        for factor in (0.4, 0.5, 1.0, 1.5, 2.0, 2.7):
            for again in (None, True):
                given = {"scale_factor": factor, "mode": mode, "recompute_scale_factor": again}
                check(
                    [(f"{given}", method("interpolate", **given), function("interpolate", **given), (data(*shape),))], 1
                )
    grid = data(2, 3, 4, 2, low=-1.4, high=1.4)
    for mode, pad, corners in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)
    ):
        given = {"mode": mode, "padding_mode": pad, "align_corners": corners}
        check(
            [(f"{given}", method("grid_sample", **given), function("grid_sample", **given), (data(2, 2, 4, 5), grid))],
            1,
        )
    for corners in (False, True):
        check(
            [
                (
                    "affine_grid",
                    method("affine_grid", s, align_corners=corners),
                    function("affine_grid", s, align_corners=corners),
                    (data(2, n, n + 1),),
                )
                for n, s in ((2, (2, 1, 3, 4)), (2, (2, 1, 1, 4)), (3, (2, 1, 2, 3, 4)))
            ],
            3,
        )
    for r in (-1, 0, 1, 2, 3):
        check(
            [
                (f"shuffle {r}", method("pixel_shuffle", r), function("pixel_shuffle", r), (data(2, 8, 2, 3),)),
                (f"unshuffle {r}", method("pixel_unshuffle", r), function("pixel_unshuffle", r), (data(2, 4, 6),)),
            ],
            0,
        )
    for g in (1, 2, 3, 6):
        check(
            [
                (
                    f"channels {g}",
                    method("channel_shuffle", g),
                    lambda t, g=g: torch.nn.ChannelShuffle(g)(t),
                    (data(1, 6, 2),),
                )
            ],
            1,
        )
