"""Convolutions and windows as columns against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, Variable

F = torch.nn.functional


def conv(name: str, x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, sample: bool = False, **keywords) -> Op:
    """One convolution, by the name of its method."""
    method = name.split(" ")[0]
    outputs = w[0] if "transpose" not in method else w[1] * keywords.get("groups", 1)
    inputs = [data(*x), data(*w, seed=1), *([data(outputs, seed=2)] if bias else [])]
    return Op(
        name.replace(" ", "_"),
        lambda *t: getattr(t[0], method)(*t[1:], **keywords),
        inputs,
        lambda *t: getattr(F, method)(*t, **keywords),
        sample=sample,
        atol=5e-6,
    )


OPS = [
    conv("conv1d", (2, 3, 11), (4, 3, 3), sample=True),
    conv("conv1d unbatched", (3, 8), (2, 3, 2)),
    conv("conv1d step", (2, 4, 17), (6, 2, 4), stride=3, padding=2, dilation=2, groups=2),
    conv("conv2d", (2, 3, 7, 6), (4, 3, 3, 3), padding=1, sample=True),
    conv("conv2d no bias", (1, 2, 5, 5), (3, 2, 3, 2), bias=False),
    conv("conv2d step", (2, 3, 9, 8), (5, 3, 3, 3), stride=2, padding=1, sample=True),
    conv("conv2d tuples", (1, 2, 9, 11), (3, 2, 2, 3), stride=(2, 3), padding=(1, 2), dilation=(2, 1)),
    conv("conv2d dilated", (1, 2, 9, 9), (3, 2, 3, 3), dilation=2, padding=2),
    conv("conv2d wide step", (1, 2, 11, 10), (3, 2, 2, 2), stride=3),
    conv("conv2d same", (1, 2, 6, 7), (3, 2, 4, 3), padding="same", dilation=(1, 2)),
    conv("conv2d valid", (1, 2, 6, 7), (3, 2, 4, 3), padding="valid", stride=2),
    conv("conv2d depthwise", (2, 4, 6, 6), (4, 1, 3, 3), padding=1, groups=4, sample=True),
    conv("conv2d groups", (2, 4, 6, 5), (6, 2, 3, 3), padding=1, groups=2),
    conv("conv2d point", (2, 5, 4, 3), (7, 5, 1, 1)),
    conv("conv2d point step", (2, 3, 5, 5), (4, 3, 1, 1), stride=2),
    conv("conv2d whole", (2, 3, 4, 5), (4, 3, 4, 5)),
    conv("conv2d unbatched", (3, 5, 5), (2, 3, 3, 3), padding=1),
    conv("conv2d many outputs", (1, 8, 9, 9), (24, 8, 3, 3), padding=1, sample=True),
    conv("conv2d one", (1, 1, 1, 1), (1, 1, 1, 1)),
    conv("conv2d empty batch", (0, 3, 5, 5), (2, 3, 3, 3)),
    conv("conv3d", (1, 2, 4, 5, 6), (3, 2, 2, 3, 3), padding=1, sample=True),
    conv("conv3d step", (1, 2, 5, 5, 6), (4, 1, 3, 2, 1), stride=(2, 1, 3), groups=2),
    conv("conv_transpose1d", (2, 3, 7), (3, 4, 3), stride=2, padding=1, output_padding=1, sample=True),
    conv("conv_transpose1d dilated", (1, 2, 5), (2, 3, 3), stride=2, dilation=3, padding=2),
    conv("conv_transpose1d groups", (2, 4, 5), (4, 3, 2), groups=2, stride=3, output_padding=2),
    conv("conv_transpose2d", (1, 3, 4, 5), (3, 2, 3, 3), sample=True),
    conv("conv_transpose2d step", (2, 3, 4, 5), (3, 4, 2, 2), stride=2, sample=True),
    conv("conv_transpose2d overlap", (1, 2, 4, 3), (2, 3, 4, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
    conv("conv_transpose2d far", (1, 2, 3, 3), (2, 1, 2, 2), stride=3, output_padding=(2, 1), bias=False),
    conv("conv_transpose2d unbatched", (2, 3, 3), (2, 3, 2, 2)),
    conv("conv_transpose3d", (1, 2, 2, 3, 3), (2, 2, 2, 3, 2), stride=(1, 2, 1), padding=(0, 1, 0)),
    Op("conv2d_half", lambda x, w: x.conv2d(w, padding=1),
       (data(1, 3, 5, 5).astype(np.float16), data(2, 3, 3, 3).astype(np.float16)),
       lambda x, w: F.conv2d(x, w, padding=1), rtol=2e-3, atol=2e-3),
    Op("conv2d_per_side", lambda x, w: x.conv2d(w, padding=((1, 0), (0, 2))), (data(1, 2, 5, 5), data(3, 2, 3, 3)),
       lambda x, w: F.conv2d(F.pad(x, (0, 2, 1, 0)), w)),
    Op("conv2d_of_relu", lambda x, w: x.relu().conv2d(w, padding=1).relu(), (data(1, 4, 6, 6), data(8, 4, 3, 3)),
       sample=True, theirs=lambda x, w: F.conv2d(x.relu(), w, padding=1).relu()),
]  # fmt: skip

IN_PLACE = [
    Op(f"conv_transpose2d_in_place_{stride}_{padding}",
       lambda x, w, s=stride, p=padding, n=size:
           Tensor.empty(1, 20, n, n, device=x.device).assign(x.conv_transpose2d(w, None, s, p)),
       (data(1, 18, 9, 9), data(18, 20, 4, 4)),
       lambda x, w, s=stride, p=padding: F.conv_transpose2d(x, w, None, s, p), sample=True, atol=2e-5)
    for stride, padding, size in ((2, 1, 18), (2, 0, 20), (3, 1, 26), (4, 0, 36), (1, 1, 10))
]  # fmt: skip

test_values = values_test([*OPS, *IN_PLACE])
test_gradients = gradients_test(OPS)


def test_the_batch_may_be_symbolic() -> None:
    x, w, n = data(4, 3, 6, 6), data(5, 3, 3, 3), Variable("n", 1, 4)
    for count in (3, 1):
        part = Tensor(x)[: n.bind(count)]
        got = part.conv2d(Tensor(w), padding=1).max_pool2d(2).numpy()
        want = F.max_pool2d(F.conv2d(torch.from_numpy(x[:count]), torch.from_numpy(w), padding=1), 2)
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


X, W = Tensor(data(2, 4, 6, 6)), Tensor(data(8, 4, 3, 3))
ERRORS = [
    (
        lambda: X.conv2d(Tensor(data(8, 3, 3, 3))),
        r"conv2d: input \(2, 4, 6, 6\) and weight \(8, 3, 3, 3\) with groups=1",
    ),
    (lambda: X.conv1d(W), r"conv1d: input \(2, 4, 6, 6\) and weight \(8, 4, 3, 3\): needs 3 axes each"),
    (lambda: X.conv2d(W, stride=0), "conv2d: stride must be at least 1, got 0"),
    (lambda: X.conv2d(W, stride=(1, 2, 3)), "conv2d: stride must be a whole number or 2 of them"),
    (lambda: X.conv2d(W, padding="same", stride=2), "conv2d: padding must be numbers"),
    (lambda: X.conv2d(W, padding=-1), "conv2d: padding must be at least 0"),
    (lambda: X.conv2d(W, dilation=3), r"conv2d: a kernel of \(3, 3\) with dilation \(3, 3\) is larger than"),
    (lambda: X.conv2d(W, Tensor.ones(4)), r"conv2d: bias \(4,\) needs one element per output channel"),
    (lambda: X.conv2d(W, groups=0), "conv2d: groups must be at least 1, got 0"),
    (lambda: X.conv_transpose2d(W), r"conv_transpose2d: input \(2, 4, 6, 6\) and weight \(8, 4, 3, 3\)"),
    (lambda: X.conv_transpose2d(Tensor(data(4, 2, 3, 3)), output_padding=1), "output_padding .* must be less than"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
