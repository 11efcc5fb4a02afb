"""Methods with windows, along an axis whose size is a Variable: what each fixed size gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinyweb import Tensor, jit
from tinyweb.graph.ir import Variable

LOW, HIGH = 4, 21
RANDOM = np.random.default_rng(0)
W = RANDOM.standard_normal((2, 3, 3)).astype(np.float32)
METHODS: dict[str, Callable[[Tensor], Any]] = {
    "conv1d": lambda x: x.conv1d(Tensor(W), stride=2, padding=1),
    "conv_transpose1d": lambda x: x.conv_transpose1d(Tensor(W.swapaxes(0, 1)), stride=2, output_padding=1),
    "max_pool1d": lambda x: x.max_pool1d(3, 2, 1, return_indices=True),
    "max_pool2d": lambda x: x.max_pool2d((2, 3), (1, 2), (0, 1), ceil_mode=True, return_indices=True),
    "avg_pool1d": lambda x: x.avg_pool1d(3, 2, 1, count_include_pad=False),
    "avg_pool1d, ceil": lambda x: x.avg_pool1d(4, 3, ceil_mode=True),
    "unfold": lambda x: x.unfold(2, 4, 3),
    "reflect": lambda x: x.pad((3, 2), mode="reflect"),
    "replicate": lambda x: x.pad((5, 1), mode="replicate"),
    "circular": lambda x: x.pad((2, 4), mode="circular"),
    "slice": lambda x: x[:, :, 1::3],
    "unfolded": lambda x: x.unsqueeze(1).im2col((2, 3), padding=(0, 1), stride=(1, 2)),
}


@pytest.mark.parametrize("name", METHODS)
def test_as_each_fixed_size(name: str) -> None:
    def several(x: Tensor) -> list[Tensor]:
        found = METHODS[name](x)
        return list(found) if isinstance(found, tuple) else [found]

    run, whole = jit(several), RANDOM.standard_normal((2, 3, HIGH)).astype(np.float32)
    memory = Tensor(whole).realize()
    for n in (HIGH, LOW, 10):
        found = run(memory.shrink([(0, 2), (0, 3), (0, Variable("n", LOW, HIGH).bind(n))]))
        for got, want in zip(found, several(Tensor(whole[:, :, :n])), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6, err_msg=str(n))
    assert len(run.traces) == 1


def test_pictures_of_any_height() -> None:
    """A pooling's places lie in the plane of the size at hand."""
    run, memory = jit(lambda x: x.max_pool2d(2, return_indices=True)), Tensor(RANDOM.standard_normal((1, 1, 6, 9)))
    memory.realize()
    for h, w in ((6, 9), (2, 4), (5, 7)):
        ends = [(0, 1), (0, 1), (0, Variable("h", 2, 6).bind(h)), (0, Variable("w", 3, 9).bind(w))]
        fixed = Tensor(memory.numpy()[:, :, :h, :w]).max_pool2d(2, return_indices=True)
        for got, want in zip(run(memory.shrink(ends)), fixed, strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_kernel_that_never_fits() -> None:
    x = Tensor.zeros(1, 3, 2).realize().shrink([(0, 1), (0, 3), (0, Variable("n", 1, 2).bind(1))])
    with pytest.raises(ValueError, match="larger than the padded input"):
        x.conv1d(Tensor(W))
    with pytest.raises(IndexError, match="goes forwards"):
        x[:, :, ::-2]
