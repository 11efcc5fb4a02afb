"""Reading and writing parts against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, Variable, dtypes, jit

A, B, C, V, D = data(3, 4), data(5, 4), data(2, 3, 4), data(7), data(2, 3, 4, 5)
INTS = np.arange(12, dtype=np.int32).reshape(3, 4)
MASK = A > 0
ROW = np.array([True, False, True])
I1 = np.array([2, 0, -1, 2], np.int32)
I2 = np.array([[0, 1], [1, -2]], np.int32)
J = np.array([1, 3, 0, -1], np.int32)


def key(*items: Any) -> Any:
    """An index whose arrays become tensors of the library at hand; lists stay lists."""

    def build(t: Any) -> Any:
        def convert(k: Any) -> Any:
            if not isinstance(k, np.ndarray):
                return k
            if isinstance(t, Tensor):
                return Tensor(k, device=t.device)
            return torch.from_numpy(np.array(k)) if k.dtype == bool else torch.from_numpy(np.array(k)).long()

        found = tuple(convert(k) for k in items)
        return found[0] if len(found) == 1 else found

    return build


def read(*items: Any) -> Any:
    return lambda a: a[key(*items)(a)]


def write(*items: Any) -> Any:
    """A copy of the first tensor in which the second (or a number) stands at the index."""

    return lambda a, v=7: written(a, key(*items)(a), v)


def written(a: Any, k: Any, v: Any) -> Any:
    """A copy of `a` with `v` at the index."""
    t = Tensor.empty(*a.shape, dtype=a.dtype, device=a.device).assign(a) if isinstance(a, Tensor) else a.clone()
    t[k] = v
    return t


KEYS: dict[str, tuple[np.ndarray, tuple[Any, ...]]] = {
    "number": (A, (1,)),
    "negative": (A, (-1, -2)),
    "slice": (A, (slice(1, None), slice(None, -1))),
    "far_slice": (A, (slice(-9, 9),)),
    "empty_slice": (A, (slice(2, 1),)),
    "step": (A, (slice(None), slice(None, None, 2))),
    "step_odd": (V, (slice(None, None, 2),)),
    "step_from": (V, (slice(1, None, 3),)),
    "step_fits": (V, (slice(1, 6, 3),)),
    "none": (A, (Ellipsis, None, 1)),
    "none_none": (A, (None, slice(None), None)),
    "dots": (C, (Ellipsis, 1)),
    "dots_middle": (C, (0, Ellipsis, slice(1, 3))),
    "everything": (A, (Ellipsis,)),
    "vector": (A, (I1 % 3,)),
    "matrix": (A, (slice(None), I2)),
    "list": (A, ([0, -1],)),
    "list_second": (C, (slice(None), [2, 0, 2])),
    "empty_list": (A, ([],)),
    "pair": (C, (I2 % 2, I2)),
    "pair_broadcast": (C, (np.array([[0], [1]]), np.array([0, 2, 1]))),
    "pair_apart": (C, (I1 % 2, slice(None), J)),
    "pair_with_number": (D, (slice(None), I1, 2, J)),
    "pair_after_slice": (C, (slice(1, None), I1, J)),
    "pair_none": (C, (I1 % 2, None, I1)),
    "triple": (C, (I1 % 2, I1, J)),
    "number_then_vector": (C, (0, slice(None), J)),
    "tensor_number": (C, (np.array(1),)),
    "tensor_numbers": (C, (np.array(1), slice(None), np.array(-2))),
    "tensor_numbers_vector": (D, (np.array(1), np.array(0), J)),
    "tensor_number_vector": (C, (np.array(-1), slice(None), J)),
    "mask": (A, (MASK,)),
    "mask_row": (A, (ROW,)),
    "mask_list": (A, ([True, False, True],)),
    "mask_column": (A, (slice(None), np.array([True, False, False, True]))),
    "mask_inner": (D, (slice(None), C[0] > 0)),
    "mask_nothing": (A, (A > 9,)),
    "mask_and_number": (C, (1, MASK)),
    "mask_and_vector": (C, (np.array([True, True]), np.array([2, 0]))),
    "two_masks": (A, (np.array([False, True, True]), np.array([True, False, False, True]))),
    "true": (A, (True,)),
    "false": (A, (False,)),
    "step_and_vector": (C, (slice(None), slice(None, None, 2), J)),
}
SAMPLE = {"step", "pair", "pair_apart", "mask", "mask_row", "matrix", "step_odd", "list"}

OPS = [
    *(Op(f"read_{n}", read(*k), (x,), sample=n in SAMPLE, exact=True) for n, (x, k) in KEYS.items()),
    *(Op(f"write_{n}", write(*k), (x,), sample=n in SAMPLE, exact=True) for n, (x, k) in KEYS.items()),
    # PyTorch has no negative steps
    Op("read_backwards", lambda a: a[::-1, ::-2], (A,), lambda a: a.flip(0, 1)[:, ::2], sample=True),
    Op("read_backwards_part", lambda a: a[5:0:-2], (V,), lambda a: a[1:6].flip(0)[::2]),
    Op("read_int_array_halves", read(I1 % 3), (A.astype(np.float16),)),
    Op("read_bools", read(I1 % 3), (MASK,)),
    Op("read_empty_axis", read(slice(0, 0), J), (A,), gradient=False),
    # values that are arrays
    Op("write_row", write(1), (A, data(4)), exact=True),
    Op("write_ones_in_front", write(slice(None), 1), (A, data(1, 3)), exact=True),
    Op("write_column", write(slice(None), slice(1, 3)), (A, data(3, 1)), exact=True),
    Op("write_step", write(slice(None, None, 2), slice(None, None, 3)), (data(5, 7), data(3, 3)),
       sample=True, exact=True),
    Op("write_vector_rows", write(np.array([2, 0])), (A, data(2, 4)), sample=True, exact=True),
    Op("write_vector_columns", write(slice(None), np.array([[3, 0], [1, 2]])), (A, data(3, 2, 2)), exact=True),
    Op("write_pair", write(np.array([0, 1, 1]), np.array([2, 0, -1])), (A, data(3)), sample=True, exact=True),
    Op("write_pair_apart", write(np.array([0, 1]), slice(None), np.array([2, 0])), (C, data(2, 3)), exact=True),
    Op("write_pair_number", write(slice(None), np.array([0, 1]), 2, np.array([3, 0])), (D, data(2, 2)), exact=True),
    Op("write_tensor_number", write(np.array(1), slice(None), np.array([3, 0])), (C, data(3, 2)), exact=True),
    Op("write_mask_listed", write(MASK), (A, data(int(MASK.sum()))), sample=True, exact=True),
    Op("write_mask_rows", write(ROW), (A, data(2, 4)), exact=True),
    Op("write_mask_inner", write(slice(None), C[0] > 0), (D, data(2, int((C[0] > 0).sum()), 1)), exact=True),
    Op("write_mask_row_broadcast", write(ROW), (A, data(4)), exact=True),
    Op("write_mask_one", write(MASK), (A, data(1)), exact=True),
    Op("write_int", write(np.array([1, 2])), (INTS, np.float32([[1.5], [2.5]])),
       lambda a, v: written(a, [1, 2], v.int()),
       gradient=False),
    Op("write_backwards", lambda a, v: written(a, slice(None, None, -2), v), (V, data(4)),
       lambda a, v: written(a, slice(None, None, 2), v.flip(0)), exact=True),
    # -- picks by method
    Op("gather", lambda a, i: a.gather(1, i), (A, np.array([[0, 3], [1, 1], [2, 0]])),
       sample=True, exact=True),
    Op("gather_first", lambda a, i: a.gather(0, i), (C, np.array([[[1, 0, 1], [0, 0, 1]]] * 5, np.int64)), exact=True),
    Op("gather_dim", lambda a, i: a.gather(dim=-1, index=i), (A, np.zeros((2, 9), np.int64)), exact=True),
    Op("gather_expanded", lambda a, i: a.gather(1, i[None, :, None].expand(2, 4, 3)),
       (C, np.array([2, 0, 1, 1])), exact=True),
    Op("gather_expanded_partly", lambda a, i: a.gather(1, i[:, :, None].expand(2, 4, 3)),
       (C, np.array([[2, 0, 1, 1], [0, 0, 0, 2]])), exact=True),
    Op("gather_number", lambda a, i: a.gather(0, i), (data(), np.array(0)), exact=True),
    Op("gather_none", lambda a, i: a.gather(1, i), (A, np.zeros((3, 0), np.int64)), exact=True),
    Op("take", lambda a, i: a.take(i), (A, np.array([[0, 11], [-1, 5]])), exact=True, sample=True),
    Op("take_axis", lambda a, i: a.take(i, 1), (C, np.array([[0, 2], [-1, 1]])), lambda a, i: a[:, i], exact=True),
    Op("index_select", lambda a, i: a.index_select(1, i), (C, np.array([2, 0, 2])), exact=True),
    Op("index_select_dim", lambda a, i: a.index_select(dim=-1, index=i), (A, np.array(2)), exact=True),
    Op("take_along_dim", lambda a, i: a.take_along_dim(i, dim=1), (A, np.array([[1], [0], [3]])), exact=True),
    Op("take_along_dim_broadcast", lambda a, i: a.take_along_dim(i, 2), (C, np.array([[[1, 0, 3]]])), exact=True),
    Op("take_along_dim_flat", lambda a, i: a.take_along_dim(i), (A, np.array([[1, 11]])), exact=True),
    Op("masked_select", lambda a, m: a.masked_select(m), (A, MASK), exact=True, sample=True),
    Op("masked_select_broadcast", lambda a, m: a.masked_select(m), (data(3, 1), MASK), exact=True),
    Op("nonzero", lambda a: a.nonzero(), (INTS % 3,), gradient=False),
    Op("nonzero_tuple", lambda a: a.nonzero(as_tuple=True), (INTS % 3,), gradient=False),
    Op("nonzero_number", lambda a: a.nonzero(), (np.float32(2),), gradient=False),
    Op("argwhere", lambda a: a.argwhere(), (MASK,), gradient=False),
    Op("repeat_interleave", lambda a: a.repeat_interleave(2, 1), (A,), exact=True, sample=True),
    Op("repeat_interleave_flat", lambda a: a.repeat_interleave(3), (A,), exact=True),
    Op("repeat_interleave_counts", lambda a, n: a.repeat_interleave(n, dim=0), (A, np.array([2, 0, 3])), exact=True),
    Op("repeat_interleave_zero", lambda a: a.repeat_interleave(0, 0), (A,), exact=True),
    Op("combinations", lambda a: a.combinations(2), (data(4),), torch.combinations, exact=True),
    Op("combinations_with", lambda a: a.combinations(3, with_replacement=True), (data(3),),
       lambda a: torch.combinations(a, 3, with_replacement=True), exact=True),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint32, dtypes.int64])
def test_indices_of_any_integer_type(dtype: Any) -> None:
    x = data(300)
    at = np.array([3, 100, 0])
    np.testing.assert_array_equal(Tensor(x)[Tensor(at, dtype=dtype)].numpy(), x[at])
    if dtype.is_signed:
        np.testing.assert_array_equal(Tensor(x)[Tensor(-at - 1, dtype=dtype)].numpy(), x[-at - 1])


def test_indices_outside_read_zeros_and_write_nothing() -> None:
    x = Tensor(A)
    at = Tensor([0, 7, -4, 2])
    want = np.stack([A[0], 0 * A[0], 0 * A[0], A[2]])
    np.testing.assert_array_equal(x[at].numpy(), want)
    np.testing.assert_array_equal(x[at, Tensor([0, 0, 0, 9])].numpy(), [A[0, 0], 0, 0, 0])
    t = Tensor(A)
    t[at, Tensor([1, 1, 1, 4])] = 5
    want = A.copy()
    want[0, 1] = 5
    np.testing.assert_array_equal(t.numpy(), want)


def test_last_of_several_writes_wins() -> None:
    t = Tensor.zeros(4).contiguous().realize()
    t[[1, 3, 1, 1]] = Tensor([1.0, 2.0, 3.0, 4.0])
    assert t.tolist() == [0, 4, 0, 2]


def test_numpy_arrays_and_ranges_are_indices() -> None:
    x = Tensor(A)
    np.testing.assert_array_equal(x[np.array([2, 0]), 1].numpy(), A[[2, 0], 1])
    np.testing.assert_array_equal(x[range(2)].numpy(), A[:2])
    np.testing.assert_array_equal(x[np.int64(1), np.array([True, False, True, True])].numpy(), A[1][[0, 2, 3]])


def test_symbolic_bounds() -> None:
    n = Variable("n", 1, 3)
    for k in (1, 2, 3):
        x, at = Tensor(B), n.bind(k)
        np.testing.assert_array_equal(x[at].numpy(), B[k])
        np.testing.assert_array_equal(x[1 : at + 1, ::2].numpy(), B[1 : k + 1, ::2])
        part = x[:at]
        np.testing.assert_array_equal(part[Tensor([0, -1])].numpy(), B[:k][[0, -1]])
        np.testing.assert_array_equal(part[:, Tensor([3, 0])].numpy(), B[:k][:, [3, 0]])
        np.testing.assert_array_equal(part[::-1].numpy(), B[:k][::-1])
        t = Tensor(B)
        t[at, 1:3] = 9
        t[at : at + 1, [0]] = 8
        want = B.copy()
        want[k, 1:3], want[k, 0] = 9, 8
        np.testing.assert_array_equal(t.numpy(), want)


def test_masks_in_a_recording() -> None:
    x, mask = Tensor(A), Tensor(MASK)

    @jit
    def select(a: Tensor, m: Tensor) -> Tensor:
        return a[m]

    with pytest.raises(RuntimeError, match="the shape of the result depends on values"):
        select(x, mask)

    @jit
    def fill(a: Tensor, m: Tensor) -> Tensor:
        t = a.contiguous()
        return m.where(0, t).realize()

    np.testing.assert_array_equal(fill(x, mask).numpy(), np.where(MASK, 0, A))


T = Tensor(A)
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: T[3], IndexError, r"index 3 is outside of axis 0 of \(3, 4\)"),
    (lambda: T[0, -5], IndexError, "index -5 is outside of axis 1"),
    (lambda: T[0, 0, 0], IndexError, r"too many indices \(3\)"),
    (lambda: T[..., ...], IndexError, "one Ellipsis"),
    (lambda: T["a"], IndexError, "cannot index with str"),
    (lambda: T[1.5], IndexError, "cannot index with float"),
    (lambda: T[::0], IndexError, "nonzero integer"),
    (lambda: T[0.5:], IndexError, "bounds are integers"),
    (lambda: T[[0, 4]], IndexError, "index 4 is outside of axis 0"),
    (lambda: T[:, np.array([-5])], IndexError, "index -5 is outside of axis 1"),
    (lambda: T[[0.5]], IndexError, "must hold integers or bools"),
    (lambda: T[[[0], [1, 2]]], IndexError, "rows of equal length"),
    (lambda: T[Tensor([0.5])], IndexError, "must hold integers, got float32"),
    (lambda: T[[0, 1], [0, 1, 2]], ValueError, "do not broadcast"),
    (lambda: T[Tensor([True, False])], IndexError, r"a mask of shape \(2,\) does not go with \(3, 4\)"),
    (lambda: T[Tensor([0], device="INTERPRETER")], ValueError, "move one with"),
    (lambda: T.gather(0, Tensor([0])), ValueError, "as many axes"),
    (lambda: T.gather(0, Tensor([[0] * 5])), ValueError, "larger than"),
    (lambda: T.gather(2, Tensor([[0]])), IndexError, "gather: axis 2"),
    (lambda: T.take(Tensor([0.5])), IndexError, "take: an index must hold integers"),
    (lambda: T.index_select(0, Tensor([[0]])), ValueError, "must be a vector"),
    (lambda: T.take_along_dim(Tensor([[0], [1]]), 1), ValueError, "do not broadcast"),
    (lambda: T.masked_select(Tensor([1, 0, 1, 0])), TypeError, "dtype bool"),
    (lambda: T.repeat_interleave(-1), ValueError, "must not be negative"),
    (lambda: T.repeat_interleave([1, 2], 0), ValueError, "2 repeats for axis 0"),
    (lambda: T.combinations(), ValueError, "needs a vector"),
    (
        lambda: T.__setitem__((slice(2), 0), Tensor([1.0, 2, 3])),
        ValueError,
        r"shape \(3,\) does not broadcast to \(2,\)",
    ),
    (lambda: T.__setitem__(Tensor(MASK), Tensor([1.0, 2.0])), ValueError, "a mask that is true"),
    (lambda: T.__setitem__(0, Tensor(1.0, device="INTERPRETER")), ValueError, "the value is on INTERPRETER"),
]


@pytest.mark.parametrize(("call", "error", "says"), WRONG, ids=[w[2] for w in WRONG])
def test_errors_name_the_rule(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_an_index_that_is_computed_from_no_memory_is_data() -> None:
    """Bounds of a maximum's identity are no number of elements."""
    zeros = Tensor(np.ones((257, 1), np.float32)).triu(2).flip(0)
    np.testing.assert_array_equal(zeros[zeros.argmax(0)].numpy(), [[0.0]])
