"""Pooling and windows as columns against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor

F = torch.nn.functional


def pool(name: str, x: np.ndarray, *arguments, sample: bool = False, gradient: bool = True, **keywords) -> Op:
    """One pooling, by the name of its method."""
    method = name.split(" ")[0]
    return Op(
        name.replace(" ", "_"),
        lambda t: getattr(t, method)(*arguments, **keywords),
        (x,),
        lambda t: getattr(F, method)(t, *arguments, **keywords),
        sample=sample,
        gradient=gradient,
    )


LINE, PLANE, CUBE = data(2, 3, 11), data(2, 3, 7, 8), data(1, 2, 5, 6, 4)
TIES = np.float32([[[[0, 0, 1, 1], [0, 0, 1, 1], [2, 3, 3, 0], [3, 3, 0, 0]]]])
LARGE = data(2, 3, 24, 20)
NAN = np.float32([[[1, np.nan, 2, 3, -np.inf, np.inf]]])
INTS = np.random.default_rng(0).integers(-50, 50, (1, 2, 5, 5)).astype(np.int32)


def pooled_and_back(t: Tensor) -> Tensor:
    values, places = t.max_pool2d(2, 2, return_indices=True)
    unpooled: Tensor = values.max_unpool2d(places, 2, 2, output_size=(7, 8))
    return unpooled


OPS = [
    pool("max_pool1d", LINE, 3, sample=True),
    pool("max_pool1d overlap", LINE, 3, 2, 1, 2),
    pool("max_pool1d indices", LINE, 3, 1, 1, return_indices=True),
    pool("max_pool1d nan", NAN, 2, gradient=False),
    pool("max_pool2d", PLANE, 2, sample=True),
    pool("max_pool2d ties", TIES, 2),
    pool("max_pool2d ties overlap", TIES, 3, 1, 1, sample=True),
    pool("max_pool2d ceil", PLANE, 3, 2, 1, ceil_mode=True),
    pool("max_pool2d ceil outside", PLANE, 2, 3, 1, ceil_mode=True),
    pool("max_pool2d indices", PLANE, (3, 2), (2, 1), (1, 0), return_indices=True, sample=True),
    pool("max_pool2d dilated indices", PLANE, 2, 1, 1, 3, return_indices=True),
    pool("max_pool2d wide step", PLANE, 2, 3),
    pool("max_pool2d unbatched", data(3, 4, 4), 2),
    pool("max_pool2d whole", data(1, 2, 4, 4), 4),
    pool("max_pool2d relu", np.maximum(PLANE, 0), 2, 2),
    pool("max_pool2d axis after axis", np.where(LARGE > 1.99, np.float32(np.nan), LARGE), 7, 1, 3, gradient=False),
    pool("max_pool2d axis after axis indices", LARGE, (5, 6), 1, (2, 0), (2, 1), return_indices=True, gradient=False),
    pool("max_pool3d", CUBE, 2, sample=True),
    pool("max_pool3d indices", CUBE, (2, 3, 2), (1, 2, 2), (0, 1, 1), return_indices=True),
    Op("max_pool2d_int", lambda t: t.max_pool2d(3, 2, 1), (INTS,), lambda t: F.max_pool2d(t.float(), 3, 2, 1).int()),
    Op("max_pool2d_half", lambda t: t.max_pool2d(2), (PLANE.astype(np.float16),), lambda t: F.max_pool2d(t, 2)),
    pool("avg_pool1d", LINE, 4, sample=True),
    pool("avg_pool1d padded", LINE, 4, 3, 2, True, False),
    pool("avg_pool2d", PLANE, 2, sample=True),
    pool("avg_pool2d overlap", PLANE, 3, 2, 1),
    pool("avg_pool2d no pad", PLANE, 3, 2, 1, count_include_pad=False, sample=True),
    pool("avg_pool2d ceil", PLANE, (3, 4), 2, (1, 2), True),
    pool("avg_pool2d ceil no pad", PLANE, 3, 3, 1, True, False),
    pool("avg_pool2d divisor", PLANE, 2, divisor_override=3),
    pool("avg_pool2d unbatched", data(3, 4, 4), 2),
    pool("avg_pool3d", CUBE, 2, sample=True),
    pool("avg_pool3d ceil", CUBE, 3, 2, 1, True, False),
    Op("avg_pool2d_half", lambda t: t.avg_pool2d(3, 1), (PLANE.astype(np.float16),), lambda t: F.avg_pool2d(t, 3, 1),
       rtol=1e-3, atol=1e-3),
    Op("lp_pool1d", lambda t: t.lp_pool1d(3, 2), (data(2, 3, 8, low=0.1),), lambda t: F.lp_pool1d(t, 3, 2)),
    Op("lp_pool2d", lambda t: t.lp_pool2d(2, 3, 2), (data(2, 3, 8, 7),), lambda t: F.lp_pool2d(t, 2.0, 3, 2)),
    Op("lp_pool2d_ceil", lambda t: t.lp_pool2d(2, 3, 2, ceil_mode=True), (data(2, 3, 8, 7),),
       lambda t: F.lp_pool2d(t, 2.0, 3, 2, True)),
    Op("lp_pool3d", lambda t: t.lp_pool3d(1.5, 2), (data(1, 2, 4, 4, 4, low=0.1),), lambda t: F.lp_pool3d(t, 1.5, 2)),
    pool("adaptive_avg_pool1d", LINE, 4, sample=True),
    pool("adaptive_avg_pool1d more", data(1, 2, 3), 5),
    pool("adaptive_avg_pool2d", PLANE, (3, 5), sample=True),
    pool("adaptive_avg_pool2d none", PLANE, (None, 2)),
    pool("adaptive_avg_pool2d global", PLANE, 1),
    pool("adaptive_avg_pool2d unbatched", data(3, 6, 6), 3),
    pool("adaptive_avg_pool3d", CUBE, (2, 4, 3)),
    pool("adaptive_max_pool1d", LINE, 4, sample=True),
    pool("adaptive_max_pool1d more", data(1, 2, 3), 5),
    pool("adaptive_max_pool2d", PLANE, (3, 5)),
    pool("adaptive_max_pool2d indices", PLANE, (3, 5), return_indices=True, sample=True),
    pool("adaptive_max_pool2d even", PLANE, (7, 4), return_indices=True),
    pool("adaptive_max_pool2d global", PLANE, 1),
    pool("adaptive_max_pool3d", CUBE, (2, 4, 3), return_indices=True),
    Op("max_unpool1d", lambda t, i: t.max_unpool1d(i, 3), (data(2, 3, 3), np.tile(np.int32([1, 3, 8]), (2, 3, 1))),
       lambda t, i: F.max_unpool1d(t, i.long(), 3)),
    Op("max_unpool2d",
       lambda t: pooled_and_back(t),
       (PLANE,), lambda t: F.max_unpool2d(*F.max_pool2d(t, 2, 2, return_indices=True), 2, 2, output_size=(7, 8)),
       sample=True),
    Op("max_unpool3d", lambda t: Tensor.max_unpool3d(*t.max_pool3d(2, return_indices=True), 2), (data(1, 2, 4, 2, 4),),
       lambda t: F.max_unpool3d(*F.max_pool3d(t, 2, return_indices=True), 2)),
    Op("im2col", lambda t: t.im2col(2), (PLANE,), lambda t: F.unfold(t, 2), sample=True),
    Op("im2col_all", lambda t: t.im2col((3, 2), (2, 1), (4, 1), (1, 2)), (PLANE,),
       lambda t: F.unfold(t, (3, 2), (2, 1), (4, 1), (1, 2))),
    Op("fold", lambda t: t.fold((4, 5), 2), (data(2, 12, 12),), lambda t: F.fold(t, (4, 5), 2), sample=True),
    Op("fold_step", lambda t: t.fold((7, 6), (3, 2), 2, 1, (2, 1)), (data(1, 12, 18),),
       lambda t: F.fold(t, (7, 6), (3, 2), 2, 1, (2, 1))),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)

ERRORS = [
    (lambda x: x.lp_pool2d(0, 2), ValueError, "lp_pool2d: norm_type must be above 0, got 0"),
    (lambda x: x.max_pool2d(3, padding=2), ValueError, r"max_pool2d: padding must be 0 to half of kernel_size"),
    (lambda x: x.max_pool2d(9), ValueError, r"max_pool2d: a kernel of \(9, 9\) with dilation \(1, 1\) is larger than"),
    (lambda x: x.avg_pool3d(2)[0].avg_pool3d(2), ValueError, "avg_pool3d: "),
    (lambda x: x.avg_pool1d(2), ValueError, r"avg_pool1d: needs 2 or 3 axes, got \(2, 3, 7, 8\)"),
    (lambda x: x.max_pool2d((1, 2, 3)), ValueError, "max_pool2d: kernel_size must be a whole number or 2 of them"),
    (lambda x: x.max_pool2d(2, 0), ValueError, "max_pool2d: stride must be at least 1, got 0"),
    (lambda x: x.avg_pool2d(2, divisor_override=0), ValueError, "avg_pool2d: divisor_override must not be 0"),
    (lambda x: x.adaptive_avg_pool2d((2, 3, 4)), ValueError, "adaptive_avg_pool2d: output_size must be 2 numbers"),
    (lambda x: x[0].fold((4, 4), 2), ValueError, r"fold: needs columns \(N, C · 4, windows\), got \(3, 7, 8\)"),
    (lambda x: Tensor.ones(1, 4, 7).fold((4, 4), 2), ValueError, r"fold: an output of \(4, 4\) has \(3, 3\) windows"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call(Tensor(PLANE))
