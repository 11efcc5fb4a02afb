"""What users build on Tensor, and arguments that are nearly right."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinyweb import Tensor, dtypes


def test_methods_of_a_subclass_take_what_they_like() -> None:
    class Mine(Tensor):
        def scaled(self, k: "int") -> "Mine":
            return self * k

        def without_self() -> int:  # type: ignore[misc]
            return 3

    assert Mine([2.0]).scaled(2.5).tolist() == [5.0]


def test_numbers_in_arrays_of_no_axes() -> None:
    x = Tensor([[1.0, -2.0], [3.0, -4.0]], device="INTERPRETER")
    np.testing.assert_allclose(x.leaky_relu(np.array(0.5)).numpy(), [[1, -1], [3, -2]])
    assert x.flip(dims=0).tolist() == [[3.0, -4.0], [1.0, -2.0]]
    assert x.to(device="CPU").device == "CPU"
    assert x.to("float16").dtype is dtypes.float16


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: x.cat(np.ones((2, 2), np.float32)), "cat: needs tensors, got ndarray"),
        (lambda x: x.permute(np.array([1, 0])), "sizes and axes are integers"),
        (lambda x: Tensor.zeros(np.array([2, 3])), "integers"),
        (lambda x: x.cast(np.array([1, 2])), "cast: dtype must be a dtype"),
        (lambda x: x.to(np.array([1, 2])), "to: needs a device, a dtype or a tensor"),
    ],
)
def test_arrays_where_none_belong(call: Callable[[Tensor], Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        call(Tensor([[1.0, 2.0], [3.0, 4.0]]))
