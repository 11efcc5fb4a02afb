"""Shapes, views, joins, cuts and padding against PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, Variable, dtypes

F = torch.nn.functional
A, B, C, V = data(3, 4), data(5, 4), data(2, 3, 4), data(7)
EMPTY, NUMBER = data(0, 3), data()
INTS = np.arange(12, dtype=np.int32).reshape(3, 4) - 5
BOOLS = INTS % 3 == 0
HALVES = A.astype(np.float16)
SPECIAL = np.float32([[1, np.nan, -np.inf], [-0.0, np.inf, 2]])


def same(name: str, function: Any, *inputs: np.ndarray, **options: Any) -> Op:
    return Op(name, function, inputs, exact=True, **options)


def static(name: str, *arguments: Any, **keywords: Any) -> Any:
    """The function `name` of a list of tensors, in both libraries."""

    def call(*tensors: Any) -> Any:
        home = Tensor if isinstance(tensors[0], Tensor) else torch
        return getattr(home, name)(list(tensors), *arguments, **keywords)

    return call


def spread(name: str, *arguments: Any, **keywords: Any) -> Any:
    """The function `name` of tensors one by one, in both libraries."""

    def call(*tensors: Any) -> Any:
        home = Tensor if isinstance(tensors[0], Tensor) else torch
        return getattr(home, name)(*tensors, *arguments, **keywords)

    return call


def padded(padding: tuple[int, ...], mode: str = "constant", value: float = 0.0) -> Any:
    def call(a: Any) -> Any:
        if isinstance(a, Tensor):
            return a.pad(padding, mode, value)
        return F.pad(a, padding, mode, value) if mode == "constant" else F.pad(a, padding, mode)

    return call


OPS = [
    same("reshape", lambda a: a.reshape(2, -1), A, sample=True),
    same("reshape_scalar", lambda a: a.reshape(()), data(1, 1)),
    same("reshape_empty", lambda a: a.reshape(-1, 3), EMPTY),
    same("reshape_as", lambda a, b: a.reshape_as(b), A, data(2, 6)),
    same("view", lambda a: a.view(4, 3) * 2, A),
    same("view_as", lambda a, b: a.view_as(b), A, data(2, 6)),
    Op("view_dtype", lambda a: a.view(dtypes.int32), (A,), lambda a: a.view(torch.int32), gradient=False),
    same("permute", lambda a: a.permute(2, 0, 1).reshape(4, 6), C, sample=True),
    same("permute_dims", lambda a: a.permute(dims=(-1, 0, 1)), C),
    same("permute_none", lambda a: a.permute(()), NUMBER),
    same("transpose", lambda a: a.transpose(0, -1), C),
    same("transpose_number", lambda a: a.transpose(0, 0), NUMBER),
    same("swapaxes", lambda a: a.swapaxes(0, 1), C),
    same("swapdims", lambda a: a.swapdims(-1, 1), C),
    same("T", lambda a: a.T, A),
    same("mT", lambda a: a.mT, C),
    same("t", lambda a: a.t(), A),
    same("t_vector", lambda a: a.t(), V),
    same("movedim", lambda a: a.movedim(0, -1), C),
    same("movedim_several", lambda a: a.movedim((0, 1), (2, 0)), C),
    same("moveaxis", lambda a: a.moveaxis(-1, 0), C),
    same("expand", lambda a: a.unsqueeze(1).expand(3, 2, 4), A),
    same("expand_keeps", lambda a: a.expand(2, -1, 4), A),
    same("expand_zero", lambda a: a.expand(0, 4), data(1, 4)),
    same("expand_as", lambda a, b: a.expand_as(b), data(1, 4), A),
    same("broadcast_to", lambda a: a.broadcast_to((2, 3, 4)), data(3, 1)),
    same("flip", lambda a: a.flip(0, 1), A, sample=True),
    same("flip_dims", lambda a: a.flip(dims=(-1,)), A),
    same("flip_number", lambda a: a.flip(()), NUMBER),
    same("fliplr", lambda a: a.fliplr(), A),
    same("flipud", lambda a: a.flipud(), V),
    *(same(f"rot90_{k}", lambda a, k=k: a.rot90(k, (0, 2)), C) for k in (-1, 0, 1, 2, 3)),
    same("squeeze", lambda a: a.squeeze(), data(1, 3, 1)),
    same("squeeze_axis", lambda a: a.squeeze(-1), data(1, 3, 1)),
    same("squeeze_dim", lambda a: a.squeeze(dim=(0, 1)), data(1, 3, 1)),
    same("squeeze_number", lambda a: a.squeeze(0), NUMBER),
    same("unsqueeze", lambda a: a.unsqueeze(dim=-1), A),
    same("unsqueeze_number", lambda a: a.unsqueeze(0), NUMBER),
    same("flatten", lambda a: a.flatten(1), C),
    same("flatten_range", lambda a: a.flatten(start_dim=0, end_dim=-2), C),
    same("flatten_number", lambda a: a.flatten(), NUMBER),
    same("ravel", lambda a: a.ravel(), C),
    same("unflatten", lambda a: a.unflatten(-1, (2, -1)), A),
    same("unflatten_empty", lambda a: a.unflatten(1, (3, 1)), EMPTY),
    *(
        Op(f"atleast_{n}d_{x.ndim}", lambda a, n=n: getattr(a, f"atleast_{n}d")(), (x,),
           lambda a, n=n: getattr(torch, f"atleast_{n}d")(a))
        for n, x in itertools.product((1, 2, 3), (NUMBER, V, A, C))
    ),
    same("narrow", lambda a: a.narrow(1, 1, 2), A),
    same("narrow_negative", lambda a: a.narrow(dim=-1, start=-3, length=2), A),
    same("select", lambda a: a.select(1, -1), A),
    same("repeat", lambda a: a.repeat(2, 3), A, sample=True),
    same("repeat_more", lambda a: a.repeat(2, 1, 2), A),
    same("repeat_zero", lambda a: a.repeat(0, 2), A),
    same("tile", lambda a: a.tile((2,)), A),
    same("tile_more", lambda a: a.tile((2, 1, 2)), A),
    same("roll", lambda a: a.roll(1, 1), A, sample=True),
    same("roll_flat", lambda a: a.roll(-5), A),
    same("roll_several", lambda a: a.roll((2, -1, 9), (0, 1, 0)), A),
    same("roll_empty", lambda a: a.roll(1, 0), EMPTY),
    # -- windows, strides, diagonals
    same("unfold", lambda a: a.unfold(0, 3, 2), V, sample=True),
    same("unfold_far", lambda a: a.unfold(-1, 2, 5), V),
    same("unfold_whole", lambda a: a.unfold(1, 4, 1), A),
    same("unfold_ones", lambda a: a.unfold(1, 1, 2), A),
    same("unfold_middle", lambda a: a.unfold(1, 2, 1), C),
    same("unfold_none", lambda a: a.unfold(0, 0, 2), V, gradient=False),
    same("unfold_number", lambda a: a.unfold(0, 1, 1), NUMBER),
    same("as_strided", lambda a: a.as_strided((3, 2), (1, 2), 1), V, sample=True),
    same("as_strided_windows", lambda a: a.as_strided((2, 3, 2), (4, 1, 2)), A),
    same("as_strided_repeats", lambda a: a.as_strided((3, 4), (0, 1), 2), V),
    same("as_strided_number", lambda a: a.as_strided((), (), 2), V),
    same("as_strided_none", lambda a: a.as_strided((0, 2), (1, 1)), V, gradient=False),
    same("diagonal", lambda a: a.diagonal(), A, sample=True),
    same("diagonal_batch", lambda a: a.diagonal(1, 0, 2), C),
    *(same(f"diagonal_{o}", lambda a, o=o: a.diagonal(o, -1, -2), B) for o in (-3, -1, 2)),
    same("diagonal_outside", lambda a: a.diagonal(7), A, gradient=False),
    same("diag_vector", lambda a: a.diag(-2), V),
    same("diag_matrix", lambda a: a.diag(1), A),
    same("diagflat", lambda a: a.diagflat(1), data(2, 2)),
    same("diag_embed", lambda a: a.diag_embed(), A, sample=True),
    same("diag_embed_axes", lambda a: a.diag_embed(-1, 0, 2), A),
    same("tril", lambda a: a.tril(), A),
    same("tril_batch", lambda a: a.tril(-1), C),
    same("triu", lambda a: a.triu(1), A, sample=True),
    same("triu_nan", lambda a: a.triu(), SPECIAL, gradient=False),
    same("tril_bool", lambda a: a.tril(), BOOLS),
    # -- joins
    same("cat", static("cat", 0), A, data(2, 4), sample=True),
    same("cat_dim", static("cat", dim=-1), A, data(3, 1), data(3, 3)),
    same("cat_empty", static("cat"), EMPTY, data(2, 3), data(0, 3)),
    same("cat_old_empty", static("cat", 1), data(0), A, A, gradient=False),
    same("cat_nothing", static("cat"), EMPTY, EMPTY, gradient=False),
    same("cat_special", static("cat"), SPECIAL, -SPECIAL),
    same("cat_many", static("cat", 1), *(data(3, 1 + i % 3, seed=i) for i in range(20))),
    same("cat_promotes", static("cat"), INTS, A, BOOLS),
    same("cat_ints", static("cat"), INTS, BOOLS),
    same("cat_halves", static("cat"), HALVES, INTS),
    same("concat", static("concat", dim=1), A, A),
    same("stack", static("stack", 1), A, data(3, 4, seed=2), sample=True),
    same("stack_last", static("stack", dim=-1), A, A * 2),
    same("stack_numbers", static("stack"), *(data(seed=i) for i in range(9))),
    same("hstack", static("hstack"), A, data(3, 2)),
    same("hstack_vectors", static("hstack"), V, NUMBER),
    same("vstack", static("vstack"), A, data(4)),
    same("row_stack", static("row_stack"), V, V * 2),
    same("dstack", static("dstack"), A, A * 2),
    same("dstack_vectors", static("dstack"), V, V),
    same("column_stack", static("column_stack"), data(3), A),
    same("block_diag", spread("block_diag"), A, data(2, 1), data(3), NUMBER, sample=True),
    same("meshgrid", spread("meshgrid", indexing="ij"), data(2), data(3), NUMBER),
    same("meshgrid_xy", spread("meshgrid", indexing="xy"), data(2), data(3), data(4)),
    same("cartesian_prod", spread("cartesian_prod"), data(2), data(3), data(2, seed=1)),
    same("cartesian_prod_one", spread("cartesian_prod"), V),
    same("broadcast_tensors", spread("broadcast_tensors"), A, data(4), data(2, 1, 1)),
    # -- cuts
    same("split", lambda a: a.split(3), V, sample=True),
    same("split_sizes", lambda a: a.split((1, 0, 3), dim=1), A),
    same("split_empty", lambda a: a.split(2), EMPTY),
    same("chunk", lambda a: a.chunk(3, 1), data(2, 7)),
    same("chunk_more", lambda a: a.chunk(9), V),
    same("chunk_empty", lambda a: a.chunk(3), EMPTY),
    same("tensor_split", lambda a: a.tensor_split(3), V),
    same("tensor_split_at", lambda a: a.tensor_split((1, 1, -2, 9)), V),
    same("tensor_split_backwards", lambda a: a.tensor_split((3, 1)), V),
    same("hsplit", lambda a: a.hsplit(2), A),
    same("hsplit_vector", lambda a: a.hsplit([2, 5]), V),
    same("vsplit", lambda a: a.vsplit([1]), A),
    same("dsplit", lambda a: a.dsplit(2), C),
    same("unbind", lambda a: a.unbind(), A),
    same("unbind_dim", lambda a: a.unbind(dim=-1), A),
    # -- padding
    same("pad", padded((1, 2, 0, 1), value=3.0), A, sample=True),
    same("pad_zero", padded((1, 0)), C),
    same("pad_cuts", padded((-1, 2, 1, -2), value=-1.0), A),
    same("pad_infinity", padded((2, 0), value=-np.inf), A),
    same("pad_nan", padded((0, 1), value=np.nan), A),
    same("pad_int", padded((1, 1), value=7), INTS),
    same("pad_bool", padded((1, 1), value=1), BOOLS),
    same("pad_half", padded((1, 1), value=0.5), HALVES),
    same("pad_empty", padded((0, 0, 1, 2), value=2), EMPTY),
    same("pad_nothing", padded(()), A),
    same("pad_reflect", padded((2, 3), "reflect"), A, sample=True),
    same("pad_reflect_2d", padded((1, 2, 2, 0), "reflect"), C),
    same("pad_replicate", padded((4, 1), "replicate"), A),
    same("pad_replicate_2d", padded((1, 2, 3, 4), "replicate"), C),
    same("pad_circular", padded((3, 4), "circular"), A),
    same("pad_circular_2d", padded((1, 2, 3, 0), "circular"), C),
    same("pad_reflect_cuts", padded((2, -1), "reflect"), A),
    Op("pad_pairs", lambda a: a.pad(((0, 1), None), value=5), (A,), lambda a: F.pad(a, (0, 0, 0, 1), value=5)),
    Op("pad_reflect_first_axis", lambda a: a.pad(((2, 1), (0, 0)), "reflect"), (A,),
       lambda a: F.pad(a.T, (2, 1), mode="reflect").T),
    # -- rearrange
    Op("rearrange", lambda a: a.rearrange("b (h w) c -> c b h w", w=3), (data(2, 6, 4),),
       lambda a: a.reshape(2, 2, 3, 4).permute(3, 0, 1, 2), sample=True),
    Op("rearrange_merge", lambda a: a.rearrange("b h c -> (c b) h"), (C,), lambda a: a.permute(2, 0, 1).reshape(8, 3)),
    Op("rearrange_dots", lambda a: a.rearrange("... c -> c ..."), (C,), lambda a: a.permute(2, 0, 1)),
    Op("rearrange_dots_merged", lambda a: a.rearrange("a ... -> 1 (... a)"), (C,),
       lambda a: a.permute(1, 2, 0).reshape(1, 24)),
    Op("rearrange_ones", lambda a: a.rearrange("1 a 1 -> a () 1"), (data(1, 3, 1),), lambda a: a.reshape(3, 1, 1)),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_indices_of_triangles() -> None:
    for n, m, k in ((3, 4, 0), (4, 2, -1), (2, 2, 5), (0, 3, 0), (3, 3, -9)):
        np.testing.assert_array_equal(Tensor.tril_indices(n, m, k).numpy(), torch.tril_indices(n, m, k).numpy())
        np.testing.assert_array_equal(Tensor.triu_indices(n, m, k).numpy(), torch.triu_indices(n, m, k).numpy())


def test_joins_are_methods_too() -> None:
    a, b = Tensor(A), Tensor(A * 2)
    np.testing.assert_array_equal(a.cat(b, axis=1).numpy(), np.concatenate([A, A * 2], 1))
    np.testing.assert_array_equal(Tensor.cat(a, b, dim=1).numpy(), np.concatenate([A, A * 2], 1))
    np.testing.assert_array_equal(a.stack(b).numpy(), np.stack([A, A * 2]))


def test_symbolic_sizes() -> None:
    n = Variable("n", 1, 6)
    x = data(6, 4)
    for k in (1, 4, 6):
        t = Tensor(x)[0 : n.bind(k)]
        np.testing.assert_array_equal(t.cat(Tensor(A)).numpy(), np.concatenate([x[:k], A]))
        np.testing.assert_array_equal(
            t.pad(((1, 0), (0, 0)), value=2).numpy(), np.pad(x[:k], ((1, 0), (0, 0)), constant_values=2)
        )
        np.testing.assert_array_equal(t.reshape(-1, 2, 2).numpy(), x[:k].reshape(-1, 2, 2))
        np.testing.assert_array_equal(t.unflatten(1, (2, -1)).flatten(1).T.numpy(), x[:k].T)
        np.testing.assert_array_equal(t.repeat(1, 2).numpy(), np.tile(x[:k], (1, 2)))
        np.testing.assert_array_equal(t.roll(1, 1).tril().numpy(), np.tril(np.roll(x[:k], 1, 1)))


T = Tensor(A)
NO_TENSOR: Any = 3.0
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: T.reshape(5, -1), ValueError, r"reshape: \(3, 4\) has 12 elements: -1 in \(5, -1\) has no value"),
    (lambda: T.reshape(-1, -1), ValueError, "only one size may be -1"),
    (lambda: T.reshape(7), ValueError, r"\(3, 4\) has 12 elements, \(7,\) has 7"),
    (lambda: T.reshape(2.5, 2), TypeError, "sizes and axes are integers"),
    (lambda: T.permute(0, 0), ValueError, "no permutation of the axes"),
    (lambda: T.permute(0, dims=(1,)), TypeError, "permute: given twice"),
    (lambda: T.expand(3, 5), ValueError, "only axes of size 1 can grow"),
    (lambda: T.expand(-1, 3, 4), ValueError, "expand: size -1 of axis 0"),
    (lambda: T.flip(2), IndexError, "flip: axis 2"),
    (lambda: T.squeeze(axis=0, dim=1), TypeError, "two names"),
    (lambda: T.unflatten(0, (2, 2)), ValueError, r"unflatten: sizes \(2, 2\) do not multiply to 3, axis 0"),
    (lambda: T.flatten(1, 0), ValueError, "lies behind"),
    (lambda: T.movedim((0, 1), (0,)), ValueError, "movedim"),
    (lambda: T.rot90(1, (0, 0)), ValueError, "two different axes"),
    (lambda: T.narrow(0, 2, 2), ValueError, r"leave axis 0 of \(3, 4\)"),
    (lambda: T.select(1, 4), IndexError, "index 4 is outside of axis 1"),
    (lambda: T.repeat(2), ValueError, "needs a count"),
    (lambda: T.roll((1, 2), 0), ValueError, "2 shifts"),
    (lambda: T.unfold(0, 4, 1), ValueError, "at most 3, step > 0"),
    (lambda: T.as_strided((3,), (7,)), ValueError, "reach element 14 of 12"),
    (lambda: T.diagonal(0, 1, -1), ValueError, "two different axes"),
    (lambda: T.unsqueeze(0).diag(), ValueError, "a vector or a matrix"),
    (lambda: Tensor.cat([T, Tensor(B)], 1), ValueError, "differ outside of axis 1"),
    (lambda: Tensor.cat([]), ValueError, "at least one tensor"),
    (lambda: Tensor.cat([T, NO_TENSOR]), TypeError, "needs tensors, got float"),
    (lambda: Tensor.cat([Tensor(1.0)]), ValueError, "use stack"),
    (lambda: Tensor.cat([T, Tensor(A, device="INTERPRETER")]), ValueError, "cat: tensors live on CPU and INTERPRETER"),
    (lambda: Tensor.stack([T, Tensor(B)]), ValueError, "stack: shapes"),
    (lambda: T.meshgrid(indexing="ab"), ValueError, "'ij' or 'xy'"),
    (lambda: T.split((1, 1)), ValueError, r"do not add up to 3, axis 0 of \(3, 4\)"),
    (lambda: T.split(0), ValueError, "must be positive"),
    (lambda: T.chunk(0), ValueError, "chunk"),
    (lambda: T.vsplit(2), ValueError, "2 equal parts"),
    (lambda: T.pad((1, 2, 3)), ValueError, "two numbers per axis"),
    (lambda: T.pad(((1, 2),)), ValueError, r"a pair \(before, after\) for each axis"),
    (lambda: T.pad((4, 0), "reflect"), ValueError, r"can add 3 at each end of axis 1 of \(3, 4\), not \(4, 0\)"),
    (lambda: T.pad((1, 1), "mirror"), ValueError, "mode is one of constant, reflect"),
    (lambda: Tensor(INTS).pad((1, 1), value=np.inf), ValueError, "no value of int32"),
    (lambda: T.pad((-3, -2)), ValueError, "cuts more off"),
    (lambda: T.rearrange("a b c -> a"), ValueError, "has 3 axes"),
    (lambda: T.rearrange("a b -> a"), ValueError, "same names"),
    (lambda: T.rearrange("(a c) b -> a b c"), ValueError, "all but one of a, c"),
    (lambda: T.rearrange("(a c) b -> a b c", a=2), ValueError, "does not divide"),
    (lambda: T.rearrange("(a b -> a b"), ValueError, "parentheses"),
]


@pytest.mark.parametrize(("call", "error", "says"), WRONG, ids=[w[2] for w in WRONG])
def test_errors_name_the_rule(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
