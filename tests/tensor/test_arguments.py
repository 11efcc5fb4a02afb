"""Arguments as PyTorch takes them: random calls of every method, right and wrong, here and there.

What differs by intent stands in `arguments/differences.py`, from which docs/reference/differences.md is written; any
other difference fails. `make test` makes the same few calls of every method each time, `make test-all` thousands of
new ones: `TINYWEB_TEST_SEED=n` makes those of a printed seed again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.control.seeds import SEED, VARIABLE
from tests.tensor.arguments.compare import Finding, accepted, valued
from tests.tensor.arguments.differences import TABLE, Difference, meant
from tests.tensor.arguments.functional import FUNCTIONS
from tests.tensor.arguments.linalg import LINALG
from tests.tensor.arguments.methods import METHODS
from tests.tensor.arguments.pools import Array
from tests.tensor.arguments.spec import Call, Spec, draw
from tests.tensor.test_names import FUNCTIONS as NAMESPACE
from tests.tensor.test_names import public
from tinyweb import Tensor, Variable, dtypes
from tinyweb.errors import DeviceError

SPECS: dict[str, Spec] = METHODS | LINALG | FUNCTIONS
# methods without a spec, and why
NOT_COMPARED: dict[str, str] = {
    "properties, not methods": "T mT shape dtype ndim device grad requires_grad storage itemsize",
    "tests/tensor/test_gradient.py": "backward requires_grad_ gradient",
    "reads memory, whose form is not PyTorch's": "data nbytes item numpy",
    "devices are named otherwise": "to manual_seed",
    "takes what is no tensor": "from_numpy",
    "another method by the name here": "unfold resize tri",
    "its arguments are a formula: tests/tensor/test_einsum.py": "einsum",
    "another signature: tests/tensor/test_random.py": "normal uniform",
    "a base case of PyTorch's that is not built": "rrelu_ elu_ selu_ celu_ hardtanh_ threshold_ leaky_relu_ relu6_",
}
GROUPS = 8


def _array(values: object, dtype: str) -> Array:
    return Array(np.array(values, dtype), dtype)


ONES = np.ones((1, 1, 3, 4))
# calls of entries that random ones may take thousands to see
RARE = (
    Call(METHODS["masked_scatter"], _array([0] * 9, "int32"), (_array([True] * 9, "bool"), _array([1], "int32"))),
    Call(FUNCTIONS["threshold"], _array([-1, 2], "int32"), (-1.5, 0)),
    Call(LINALG["tensordot"], _array([2.0], "float32"), (_array([[1.0], [2.0]], "float32"), 1)),
    Call(
        FUNCTIONS["gaussian_nll_loss"],
        _array([0.5, 2.75, -1.5], "float16"),
        (_array([1.25, 2.25, -1.0], "float16"), _array([0.75, 0.5, 0.0], "float16")),
    ),
    Call(LINALG["addmv"], _array(1, "uint8"), (_array([[], []], "uint8"), _array([], "uint8"))),
    Call(
        FUNCTIONS["scaled_dot_product_attention"],
        _array(ONES, "float32"),
        (_array(ONES, "float32"), _array(ONES, "float32")),
        {"is_causal": True, "scale": -2},
    ),
    Call(METHODS["index_put"], _array(1, "int32"), ((_array(True, "bool"),), _array(3, "int32"))),
    Call(FUNCTIONS["softmin"], _array([[[0.5, 2.0]], [[1.0, 0.5]]], "float32"), ()),
    Call(METHODS["diff"], _array([2.0], "float32"), (0, 1)),
    Call(METHODS["le"], _array([2], "uint8"), (-1,)),
    Call(METHODS["randn_like"], _array([], "int32"), ()),
    Call(METHODS["index_add"], _array([True], "bool"), (0, _array([0], "int64"), _array([True], "bool")), {"alpha": 2}),
    Call(
        FUNCTIONS["interpolate"],
        _array(np.random.default_rng(2).integers(0, 4, (1, 1, 8, 8)), "uint8"),
        (),
        {"scale_factor": 2.0, "mode": "bilinear"},
    ),
)


def forms(specs: dict[str, Spec]) -> Iterator[tuple[Spec, bool]]:
    """Every spec, and its method that writes in place where there is one."""
    for spec in specs.values():
        yield spec, False
        name = f"{spec.name}_"
        if not spec.static and not spec.joins and hasattr(torch.Tensor, name) and hasattr(Tensor, name):
            yield spec, True


def calls(spec: Spec, inplace: bool, count: int, seed: object) -> Iterator[Call]:
    rng = random.Random(f"{seed} {spec.name} {inplace}")
    for _ in range(count):
        call = draw(spec, rng)
        yield replace(call, inplace=True) if inplace else call


def findings(
    group: list[tuple[Spec, bool]], count: int, values: int, seed: object, used: set[Difference] | None = None
) -> tuple[list[Finding], int]:
    """What differs without being meant, and how many calls PyTorch and this took and had values compared."""
    found: list[Finding] = []
    compared = 0
    for spec, inplace in group:
        left = values
        for call in calls(spec, inplace, count, seed):
            finding, pairs = accepted(call, "INTERPRETER")
            if finding is None and left and pairs:
                left -= 1
                compared += 1
                finding = valued(call, pairs)
            if finding is None:
                continue
            why = meant(finding)
            if why is None:
                found.append(finding)
            elif used is not None:
                used.add(why)
    return found, compared


def test_every_method_has_a_spec() -> None:
    functional = {n for n in public(torch.nn.functional) if n.islower()}
    shared = (public(torch.Tensor) | functional | set(NAMESPACE.split())) & public(Tensor)
    inplace = {f"{s.name}_" for s, there in forms(SPECS) if there}
    excused = {n for names in NOT_COMPARED.values() for n in names.split()}
    assert not shared - set(SPECS) - inplace - excused, sorted(shared - set(SPECS) - inplace - excused)


@pytest.mark.parametrize("group", range(GROUPS))
def test_calls_agree(group: int) -> None:
    chosen = list(forms(SPECS))[group::GROUPS]
    found, compared = findings(chosen, count=4, values=1, seed=2024)
    assert not found, "\n".join(map(str, found))
    assert compared > len(chosen) // 3


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("group", range(GROUPS))
def test_new_calls_agree(group: int) -> None:
    found, _ = findings(list(forms(SPECS))[group::GROUPS], count=60, values=12, seed=SEED)
    assert not found, f"{VARIABLE}={SEED}\n" + "\n".join(map(str, found))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_every_entry_of_the_table_is_seen() -> None:
    """An entry that nothing needs any more would hide what comes later."""
    used: set[Difference] = set()
    findings(list(forms(SPECS)), count=60, values=3, seed=7, used=used)
    for call in RARE:
        finding, pairs = accepted(call, "INTERPRETER")
        why = meant(finding or valued(call, pairs) or Finding(call, "", ""))
        used |= {why} if why else set()
    assert not [d.what for d in TABLE if d not in used]


def test_the_comparison_sees_differences() -> None:
    """A wrong shape, dtype, value, acceptance and an error that was not meant for the user are each found."""
    base = METHODS["sum"]
    x = Array(np.ones((2, 3), np.float32), "float32")
    for theirs, kind in (
        (lambda t: t.sum().reshape(1), "shape"),
        (lambda t: t.sum().to(torch.complex64), "dtype"),
        (lambda t: (t.sum() + 1).to(t.sum().dtype), "values"),
        (lambda t: t.no_such(), ""),
        (lambda t: (_ for _ in ()).throw(RuntimeError("no")), "accepted"),
        (lambda t: (t, t), "outputs"),
    ):
        call = Call(replace(base, theirs=theirs), x, ())
        finding, pairs = accepted(call, "INTERPRETER")
        finding = finding or (valued(call, pairs) if pairs else None)
        assert (finding.kind if finding else "") == kind
    refused = Call(replace(METHODS["sum"], theirs=lambda t, a: t.sum()), x, (9,))
    finding, _ = accepted(refused, "INTERPRETER")
    assert finding is not None and finding.kind == "refused"


# -- what was found --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["float16", "half", "torch.float16", torch.float16, np.float16, np.dtype("float16")])
def test_dtypes_by_name(name: object) -> None:
    x = Tensor([1.0])
    for made in (Tensor.zeros(2, dtype=name), x.cast(name), x.sum(dtype=name), Tensor([1], dtype=name), x.to(name)):  # type: ignore[arg-type]
        assert made.dtype is dtypes.float16


@pytest.mark.parametrize("name", ["float17", "", "void", "index", "__dict__", "bfloat", 16, None.__class__])
def test_what_names_no_dtype_is_refused(name: object) -> None:
    with pytest.raises(TypeError, match="dtype"):
        Tensor([1.0]).cast(name)  # type: ignore[arg-type]


def test_a_tensor_that_could_not_be_made_disturbs_nothing() -> None:
    try:
        Tensor("no numbers")
    except TypeError as kept:  # its traceback holds what was begun
        assert Tensor([1.0]).add(1).tolist() == [2.0]
        assert "numbers" in str(kept)


@pytest.mark.parametrize("around", [(-1, 2), (2, -1), (-2, 1), (-1, -1), (1, 2, -1, 2), (-1, 1, 2, -2)])
def test_circular_padding_of_mixed_signs(around: tuple[int, ...]) -> None:
    x = np.arange(40, dtype=np.float32).reshape((2, 4, 5) if len(around) == 2 else (1, 2, 4, 5))
    want = torch.nn.functional.pad(torch.from_numpy(x), around, mode="circular")
    np.testing.assert_array_equal(Tensor(x).pad(around, mode="circular").numpy(), want.numpy())


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(7, 3), (2, 9)])
def test_interpolation_of_bytes_gives_bytes(mode: str, size: tuple[int, int]) -> None:
    x = np.random.default_rng(3).integers(0, 256, (1, 2, 5, 6)).astype(np.uint8)
    got = Tensor(x).interpolate(size, mode=mode)
    # by definition: of floats, rounded (PyTorch's own weights for bytes have few bits, and it rounds between the axes)
    want = torch.nn.functional.interpolate(torch.from_numpy(x).float(), size, mode=mode).clamp(0, 255).numpy()
    assert got.dtype is dtypes.uint8
    assert np.abs(got.numpy().astype(np.float32) - want).max() <= 0.501


def test_gradients_of_what_is_not_used() -> None:
    a, b = Tensor([1.0, 2.0]), Tensor([3.0])
    loss = a.square().sum()
    with pytest.raises(ValueError, match="does not depend on the target"):
        loss.gradient(a, b)
    first, second = loss.gradient(a, b, allow_unused=True)
    assert first.tolist() == [2.0, 4.0] and second is None
    first, second = loss.gradient(a, b, materialize_grads=True)
    assert first.tolist() == [2.0, 4.0] and second.tolist() == [0.0]
    with pytest.raises(ValueError, match="allow_unused cannot be False"):
        loss.gradient(a, b, allow_unused=False, materialize_grads=True)


def test_transposed_convolution_with_output_padding_beyond_its_step() -> None:
    x, w = np.ones((1, 3, 4, 5), np.float32), np.arange(12, dtype=np.float32).reshape(3, 2, 1, 2)
    options = {"padding": 1, "output_padding": 1, "dilation": 2}
    a, b = torch.from_numpy(x).requires_grad_(), torch.from_numpy(w).requires_grad_()
    want = torch.nn.functional.conv_transpose2d(a, b, **options)
    want.square().sum().backward()
    mine = Tensor(x), Tensor(w)
    got = mine[0].conv_transpose2d(mine[1], **options)  # type: ignore[arg-type]
    gradients = got.square().sum().gradient(*mine)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-6)
    for g, t in zip(gradients, (a, b), strict=True):
        assert t.grad is not None
        np.testing.assert_allclose(g.numpy(), t.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: x.flip(0, 0), "flip: (0, 0) names an axis"),
        (lambda x: x.flip(0, -2), "names an axis of (2, 3) twice"),
        (lambda x: x.squeeze((0, 0)), "squeeze: (0, 0) names an axis"),
        (lambda x: x.sum(1.0), "an axis is a whole number, got 1.0"),
        (lambda x: x.sum(0, keepdim=1), "keepdim must be True or False"),
        (lambda x: x.cast("float33"), "dtype must be a dtype"),
        (lambda x: x.mm(None), "mat2 must be a tensor, got NoneType"),
        (lambda x: x.chunk(2.0), "chunks must be a whole number, got float 2.0"),
        (lambda x: x.mvlgamma(0), "p must be at least 1"),
        (lambda x: x.index_put(1.5, Tensor(1.0)), "index_put: indices must be a tuple of tensors"),
        (lambda x: x.unsqueeze(0).conv1d(Tensor.ones(1, 2, 1), padding=None), "conv1d: padding must be at least 0"),
        (lambda x: x.int().one_hot(-2), "one_hot: num_classes must be above 0"),
        (lambda x: x.triplet_margin_loss(x, x, margin=-2), "margin must be above 0"),
        (lambda x: x.triplet_margin_loss(x, x.unsqueeze(0)), "must have as many axes"),
        (lambda x: x.soft_margin_loss(Tensor.ones(2, 2, 3)), "do not broadcast to the input's"),
        (lambda x: x.binary_cross_entropy(x[0]), "binary_cross_entropy: (2, 3) needs targets of its shape, got (3,)"),
        (lambda x: x.gaussian_nll_loss(x, x[0]), "var (3,) must have the shape (2, 3)"),
        (lambda x: x.sum().gaussian_nll_loss(x.sum(), x[0]), "var (3,) must have the shape ()"),
        (lambda x: x.cosine_similarity(x, eps=-1), "eps must not be negative"),
        (lambda x: x.fill_([1.0]), "fill_: needs one number, got list"),
        (lambda x: Tensor.cat([x, x], True), "cat: needs tensors, got bool"),
        (lambda x: x.hsplit(), "a number of parts, or the places to cut at"),
        (lambda x: x.pad([1, 1], "replicate", 2.0), "has no use for the value"),
        (lambda x: Tensor.cat(), "cat: needs a tensor: x.cat(…) or Tensor.cat(x, …)"),
        (lambda x: Tensor.stack(axis=1), "stack: needs a tensor"),
        (lambda x: Tensor.multi_dot(), "multi_dot: needs a tensor"),
        (lambda x: Tensor.sum(axis=0), "sum: needs a tensor"),
        (lambda x: x.sum().quantile(0.5, 4), "quantile: axis 4"),
        (lambda x: x.uniform_(7), "uniform: low must not be above high, got 7 and 1"),
        (lambda x: x.pad((-4, 5)), "cuts more off than (2, 3) has"),
        (lambda x: x.gaussian_nll_loss(x, -1.0), "var must not be negative, got -1.0"),
        (lambda x: Tensor.cat([]), "cat: needs at least one tensor"),
        (lambda x: x[:0].norm(-1, 0), "norm: no elements along the reduced axes (0,) of (0, 3)"),
        (lambda x: x[:0].vector_norm(-np.inf, 0), "vector_norm: no elements along the reduced axes"),
        (lambda x: x[:0].normalize(-1.0, 0), "normalize: no elements along the reduced axes"),
        (lambda x: x[0].binary_cross_entropy(x[0], x), "weight (2, 3) does not broadcast to the input's (3,)"),
        (
            lambda x: x[0].binary_cross_entropy_with_logits(x[0], pos_weight=x),
            "weight (2, 3) does not broadcast to the input's (3,)",
        ),
        (
            lambda x: Tensor.arange(0, 3, 0.5, dtype="int32"),
            "arange: start, end and step must be finite and step not 0, got (0, 3, 0)",
        ),
        (lambda x: Tensor.arange(Variable("n", 1, 8)), "of a size that varies take that of the largest"),
        (lambda x: x.unflatten(0, ()), "unflatten: needs at least one size for axis 0 of (2, 3)"),
        (lambda x: x.cosine_embedding_loss(x[0], Tensor([1, 1])), "(2, 3) and (3,) must have as many axes"),
        (lambda x: x.unsqueeze(0).interpolate(scale_factor=np.inf), "interpolate: needs one positive number"),
        (lambda x: x.batch_norm(training=True, eps=0), "batch_norm: eps must be above 0 in training, got 0"),
        (lambda x: list(x.sum()), "iter: a tensor without axes has no parts: use .item()"),
        (
            lambda x: list(x[: Variable("n", 1, 2).bind(1)]),
            "has a symbolic number of parts: read .numpy() or .tolist()",
        ),
        (lambda x: len(x[: Variable("n", 1, 2).bind(1)]), "has a symbolic number of parts: take .shape[0]"),
        (lambda x: Tensor([2**70]), "Tensor needs numbers of at most 64 bits, got [1180591620717411303424]"),
        (lambda x: x.unsqueeze(0).ctc_loss(Tensor([[1], [1]]), (1, 1), (1, 1, 1)), "target_lengths must be 2 integers"),
    ],
)
def test_wrong_arguments_are_named(call: object, said: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=re.escape(said)):
        call(Tensor(np.ones((2, 3), np.float32)))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: x.sum(axis=0, dim=0), "sum: dim and axis are two names of one argument"),
        (lambda x: x.unfold(0, 1, 1, dim=0, dimension=0), "two names of one argument"),
        (lambda x: x.flip(0, dims=0), "flip: given twice"),
        (
            lambda x: x.cat(tensors=[x]),
            "no place for the tensor before the dot: Tensor.cat(tensors=…)",
        ),
        (lambda x: x.view(6, dtype="int32"), "view: a shape and a dtype were given"),
        (lambda x: x.reshape(shape="23"), "shape must be a whole number or a sequence of whole numbers"),
        (lambda x: x.permute(dims=(0.0, 1)), "dims must be a whole number or a sequence"),
        (lambda x: Tensor.exponential(2, dtype="float33"), "exponential: dtype must be a dtype"),
        (lambda x: Tensor.gumbel(2, dtype="int32"), "gumbel: needs a float dtype"),
        (lambda x: Tensor.gumbel(2, device=1), "gumbel: device must be a string or None"),
        (lambda x: Tensor.exponential(2, rate=0), "exponential: rate must be above 0"),
        (lambda x: Tensor.uniform(2, size=2), "uniform: given twice"),
    ],
)
def test_names_and_sequences_by_keyword_are_checked(call: object, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        call(Tensor(np.ones((2, 3), np.float32)))  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("numbers", [(-1.5, 1, 1), (0, 2.25, 1), (3.75, 0.5, -1.5), (0, 0.5, 1), (-2, 7.5, 2.75)])
def test_ranges_of_integers_between_fractions(dtype: str, numbers: tuple[float, float, float]) -> None:
    start, end, step = numbers
    want = torch.arange(start, end, step, dtype=getattr(torch, dtype))
    got = Tensor.arange(start, end, step, dtype=dtype)
    assert (got.dtype.name, got.tolist()) == (dtype, want.tolist())


@pytest.mark.parametrize("scale", [-2, 0, -0.25])
def test_a_scale_that_is_not_above_0_leaves_the_causal_mask(scale: float) -> None:
    q, k, v = (np.random.default_rng(s).normal(size=(1, 2, 3, 4)).astype(np.float32) for s in range(3))
    scores = np.where(np.tri(3, dtype=bool), q @ k.swapaxes(-1, -2) * scale, -np.inf)  # by definition
    e = np.exp(scores - scores.max(-1, keepdims=True))
    got = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True, scale=scale)
    np.testing.assert_allclose(got.numpy(), e / e.sum(-1, keepdims=True) @ v, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("accumulate", [True, False])
def test_index_put_of_masks_without_axes(mask: bool, accumulate: bool) -> None:
    x = np.arange(6).reshape(2, 3)
    m = Tensor(mask)
    new = 9 + x * accumulate if mask else x
    assert Tensor(x).index_put((m,), 9, accumulate).tolist() == np.broadcast_to(new, x.shape).tolist()
    assert Tensor(5).index_put((m,), 9, accumulate).tolist() == (9 + 5 * accumulate if mask else 5)
    row = np.where([[False], [mask]], 9 + x * accumulate, x)
    assert Tensor(x).index_put((m, Tensor([1])), 9, accumulate).tolist() == row.tolist()
    assert Tensor(x).index_put((Tensor([1]), m), 9, accumulate).tolist() == row.tolist()


def test_an_unknown_device_is_an_error_for_the_user() -> None:
    call = Call(METHODS["randperm"], None, (np.int64(3), "x"), wrong="signature")
    assert accepted(call, "INTERPRETER") == (None, [])
    with pytest.raises(DeviceError, match="unknown device 'x': choose one of"):
        Tensor.randperm(3, "x")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 300.5, -1.75, -1e30])
def test_floats_that_an_integer_type_cannot_hold(dtype: str, value: float) -> None:
    """In a tensor they become the nearest it can hold; as numbers they are refused."""
    kind = np.iinfo(dtype)
    want = 0 if np.isnan(value) else int(max(int(kind.min), min(int(kind.max), value)))
    x, given = Tensor([1, 2], dtype=dtype), Tensor(value)
    for made in (
        x.index_fill(0, [0, 1], given), x.clone().fill_(given), x.masked_fill(x > 0, given.cast(dtype)),
        x.scatter(0, Tensor([0, 1]), given.expand(2).cast(dtype)), x.new_tensor(np.array([value] * 2)),
        Tensor([value] * 2).cast(dtype),
    ):  # fmt: skip
        assert (made.dtype.name, made.tolist()) == (dtype, [want] * 2)
    if want != np.trunc(value):
        for write in (
            lambda: x.full_like(value), lambda: x.index_fill(0, [0, 1], value), lambda: x.clone().fill_(value),
            lambda: x.threshold(7, value), lambda: x.scatter(0, Tensor([0, 1]), value),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=re.escape(f"{value} does not fit in {dtype}")):
                write()


@pytest.mark.parametrize("decimals", [-7, -1, 1, 7])
def test_half_floats_rounded_to_places_they_do_not_hold(decimals: int) -> None:
    x = torch.tensor([2.75, -1.5, 600.0], dtype=torch.float16)
    assert Tensor(x.numpy()).round(decimals=decimals).tolist() == x.round(decimals=decimals).tolist()


def test_numbers_in_texts() -> None:
    """A tensor without axes is formatted as its number, as PyTorch has it."""
    assert (f"{Tensor(1.25):.1f}", f"{Tensor([3, 4]).sum():>4d}") == ("1.2", "   7")
    assert f"{Tensor([1.0])}" == repr(Tensor([1.0]))
    with pytest.raises(TypeError, match=re.escape("format: '.1f' is for one number, not for a tensor of shape (2,)")):
        f"{Tensor([1.0, 2.0]):.1f}"


def test_views_from_no_offset() -> None:
    assert Tensor([[1, 2], [3, 4]]).as_strided((2,), (2,), None).tolist() == [1, 3]


def test_addmv_of_a_matrix_without_elements() -> None:
    assert Tensor(3.0).addmv(Tensor.zeros(2, 0), Tensor.zeros(0), beta=2).tolist() == [6.0, 6.0]
    assert Tensor(3.0).addmv(Tensor.zeros(0, 2), Tensor.zeros(2)).shape == (0,)


def test_a_float_factor_makes_floats_of_integers_with_beta_0() -> None:
    x, m = Tensor([1, 2]), Tensor([[1, 2], [3, 4]])
    got = x.addmv(m, x, beta=0, alpha=0.5)
    assert (got.dtype, got.tolist()) == (dtypes.float32, [2.5, 5.5])


def test_rms_norm_of_small_half_floats() -> None:
    x = Tensor([-0.25 / 64, 0, 0.25 / 64], dtype="float16")
    want = torch.nn.functional.rms_norm(torch.tensor(x.tolist(), dtype=torch.float16), [3])
    np.testing.assert_allclose(x.rms_norm(3).numpy(), want.numpy(), rtol=1e-3)


def test_integers_beside_half_floats_stay_half() -> None:
    x, y = Tensor([1, 2, 4]), Tensor([0.5, 2, 3], dtype="bfloat16")
    for made in (
        x.pairwise_distance(y),
        x.mse_loss(y),
        x.cosine_similarity(y, 0),
        y.triplet_margin_loss(x, y, swap=True),
    ):
        assert made.dtype is dtypes.bfloat16


@pytest.mark.parametrize("p", [None, "fro", 2, 1, 0, 3, 0.5, -1, -2.5, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_norms_of_each_order(p: float | str | None, dtype: str) -> None:
    x = np.array([[1.5, -2, 0.25], [0, 4, -1]], dtype)
    t = torch.from_numpy(x)
    want, rtol = t.norm(p, 1), 2e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(Tensor(x).norm(p, 1).numpy(), want.numpy(), rtol=rtol)
    if p is not None and p != "fro":
        assert not isinstance(p, str)
        np.testing.assert_allclose(Tensor(x).vector_norm(p, 1).numpy(), want.numpy(), rtol=rtol)
        unit = torch.nn.functional.normalize(t, p, 1)  # type: ignore[arg-type]
        np.testing.assert_allclose(Tensor(x).normalize(p, 1).numpy(), unit.numpy(), rtol=rtol)


def test_sequences_by_keyword() -> None:
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert x.permute(dims=(1, 0)).shape == x.reshape(shape=(3, 2)).shape == x.view(size=(3, 2)).shape == (3, 2)
    assert x.flip(dims=1).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert x.view(dtype="int32").tolist() == x.bitcast(np.int32).tolist()
    assert x.tile(dims=(2, 1)).shape == x.repeat(repeats=(2, 1)).shape == (4, 3)
    made: list[Tensor] = [
        Tensor.rand(size=(2, 3), dtype="half"), Tensor.gumbel(size=(2, 3), dtype=np.float16),
        Tensor.xavier_normal(size=(2, 3), dtype=torch.float16), Tensor.ones(shape=(2, 3), dtype=dtypes.float16),
    ]  # fmt: skip
    assert all(t.shape == (2, 3) and t.dtype is dtypes.float16 for t in made)
