"""Programs that once went wrong, as small as they became."""

from __future__ import annotations

import numpy as np
import pytest

from tinyweb import Tensor, Variable, dtypes, jit

DEVICES = pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
ramp = np.arange(5, dtype=np.float32)


def test_a_realized_value_of_symbolic_size_is_read_again() -> None:
    n = Variable("n", 0, 5)
    t = (Tensor(ramp)[: n.bind(3)] * 2).realize()
    assert t.numpy().tolist() == [0, 2, 4]
    assert (t + 1).numpy().tolist() == [1, 3, 5]


def test_results_of_symbolic_size_have_the_size_of_their_call() -> None:
    n = Variable("n", 0, 5)
    double = jit(lambda x, k: (x[:k] * 2).realize())
    for k in (3, 5, 0, 1):
        assert double(Tensor(ramp), n.bind(k)).numpy().tolist() == (ramp[:k] * 2).tolist()


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_nothing_is_padded(shape: tuple[int, int]) -> None:
    empty = np.zeros(shape, np.float32)
    want = np.pad(empty, ((1, 1), (2, 0)))
    np.testing.assert_array_equal(Tensor(empty).pad([(1, 1), (2, 0)]).numpy(), want)


@DEVICES
def test_what_lies_outside_of_a_computed_table_is_zero(device: str) -> None:
    """The table is computed where it is read: what is not read must not be computed on."""
    table = Tensor(ramp, device=device) + 0.5
    picks = Tensor(np.array([2, 5, -6, -1], np.int32), device=device)
    assert table[picks].tolist() == [2.5, 0, 0, 4.5]
    assert (Tensor(ramp, device=device).exp())[picks].log().tolist()[1:3] == [-np.inf, -np.inf]


@DEVICES
def test_a_vector_plus_one_sum(device: str) -> None:
    x = np.array([1505919583, 588245967], np.int32)
    t = Tensor(x, device=device)
    assert (t + t.sum()).tolist() == (x + x.sum(dtype=np.int32)).tolist()


def test_reductions_of_reductions_share_no_threads() -> None:
    """The argmin of a quotient by a sum: two reductions in one value cannot run over one thread index."""
    x = np.array([-33, 2, 66], np.int8)
    t = Tensor(x, device="WEBGPU")
    quotients = t.sum() // (t.cast(dtypes.int32) | 1)
    found = Tensor.cat([quotients, quotients]).argmin(-1) + t.minimum(0).cast(dtypes.int32)
    assert found.tolist() == [-33, 0, 0]


@DEVICES
def test_a_sum_that_is_padded(device: str) -> None:
    """Rows of narrow numbers are read once: there is nothing to stage."""
    x = np.arange(8, dtype=np.int8).reshape(4, 2)
    got = Tensor(x, device=device).sum(-1, keepdim=True).pad([(0, 1), (0, 2)]).numpy()
    np.testing.assert_array_equal(got, np.pad(x.sum(-1, dtype=np.int32, keepdims=True), ((0, 1), (0, 2))))


@DEVICES
def test_a_sum_over_what_depends_on_a_reduction_inside(device: str) -> None:
    """The length is no multiple of a vector, and the reduction inside depends on the place in it."""
    x = np.random.default_rng(86).integers(0, 2, (16, 17)).astype(bool)
    every, more = Tensor(x, device=device).all((0, 1)), np.array([True, False, True])
    row = every.unsqueeze(0).expand(3)
    joined = Tensor.cat([row.roll(-6, 0), ~row, Tensor(more, device=device)])
    count = joined.sum(0, keepdim=True)
    joined.realize(count)
    want = np.concatenate([np.full(3, x.all()), np.full(3, not x.all()), more])
    assert joined.tolist() == want.tolist() and count.tolist() == [int(want.sum())]


@pytest.mark.parametrize("device", ["CPU", "WASM"])
def test_an_outer_product_times_itself(device: str) -> None:
    """Both operands are products of loads, of which some do not vary along what is summed: they are not staged."""
    x = np.float32(np.random.default_rng(6553).integers(-8, 9, (512, 512)) / 8)
    rows = Tensor(x, device=device)[264].unsqueeze(1) * Tensor(x, device=device)[168].unsqueeze(0)
    got = ((rows @ rows.transpose(-1, -2)[0:512, 54:116]) * 0.0625).numpy()
    outer = np.outer(x[264], x[168]).astype(np.float64)
    np.testing.assert_allclose(got, outer @ outer.T[:, 54:116] * 0.0625, rtol=1e-4, atol=1e-4)


def test_long_sums_of_which_one_is_the_same_in_all_steps() -> None:
    """Two sums over equal steps share a loop; of the second, a part does not depend on the steps further out."""
    rng = np.random.default_rng(218)
    x, y = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((7, 5), (300, 5)))
    t, u = Tensor(x), Tensor(y)
    wide = t.unsqueeze(1).expand(7, 300, 5)
    got = ((wide * u).sum((1, 2)) + (wide * wide.maximum(0.5)).sum((1, 2))).numpy()
    want = (x[:, None] * y).sum((1, 2)) + 300 * (x * np.maximum(x, 0.5)).sum(1)
    np.testing.assert_array_equal(got, want)


@DEVICES
def test_an_update_of_one_place_or_none(device: str) -> None:
    """A loop of one step or none is gone from what it stores: the store has a condition."""
    n = Variable("n", 0, 1)
    for k in (0, 1):
        t = Tensor(ramp, device=device).contiguous().realize()
        t[: n.bind(k)] += 10
        rows = Tensor(np.zeros((3, 4), np.float32), device=device).contiguous().realize()
        rows[: n.bind(k)] = 7
        assert t.tolist() == [10 * k, 1, 2, 3, 4] and rows.sum(1).tolist() == [28 * k, 0, 0]


@DEVICES
@pytest.mark.parametrize("most", [1, 2, 4])
def test_reductions_of_few_elements_or_none(most: int, device: str) -> None:
    """Short ones are written out where their length is known."""
    n, values = Variable("n", 0, most), np.arange(3, 11, dtype=np.float32).reshape(4, 2)
    x = Tensor(values, device=device)
    for k in range(most + 1):
        part, want = x[: n.bind(k)], values[:k]
        assert part.sum(0).tolist() == want.sum(0).tolist() and part.prod().tolist() == want.prod()
        assert part.max(0).tolist() == want.max(0, initial=-np.inf).tolist()


@DEVICES
def test_attention_over_no_keys_is_zero(device: str) -> None:
    """One block or none: the loop around it is gone, and what fills it happens even so. A sum of nothing is 0, though
    one pass divides it by the sum of no weights; also where parts of a long row are apart."""
    for most, rows in ((5, 4), (3000, 1)):
        n = Variable("n", 0, most)
        q, k = (Tensor(np.ones((2, m, 16), np.float32), device=device) for m in (rows, most))
        for length in (0, 2):
            keys = k[:, : n.bind(length)]
            scores = (q @ keys.transpose(1, 2)) - 2
            e = (scores - scores.max(-1, keepdim=True)).exp()
            found = [q.scaled_dot_product_attention(keys, keys), scores.softmax(-1) @ keys, e @ keys / 2]
            for f in found:  # each a kernel of its own
                f.realize()
            assert all(((f - (length > 0)).abs() < 1e-4).all().item() for f in found)


@DEVICES
@pytest.mark.parametrize("shape", [(20, 61), (33, 100), (10, 40)])
def test_what_is_computed_twice_is_the_same_number(device: str, shape: tuple[int, int]) -> None:
    """The larger of neighbours, which are sums of two products, is equal to one of them: as in edge detection."""
    x = Tensor(np.random.default_rng(0).standard_normal(shape, np.float32), device=device)[None, None]
    right, below = x[..., 1:-1, 2:] - x[..., 1:-1, :-2], x[..., 2:, 1:-1] - x[..., :-2, 1:-1]
    steep = right.square() + below.square()
    found = (steep.max_pool2d(3, stride=1, padding=1) == steep).numpy()
    values = steep.numpy()
    border = np.pad(values, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-1)
    rows, columns = values.shape[2:]
    windows = [border[:, :, i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    np.testing.assert_array_equal(found, np.max(windows, 0) == values)
