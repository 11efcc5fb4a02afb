"""The methods of torch.Tensor and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.tensor.arguments import invariants, pools
from tests.tensor.arguments.pools import FLOATS, Array
from tests.tensor.arguments.spec import Spec, define, tensor

METHODS: dict[str, Spec] = {}
any_, floats = tensor(), tensor(FLOATS)
vectors = tensor(shape="a")
distinct = tensor((*FLOATS, "int32"))


def _(names: str, maker: Any, arguments: str = "", **options: Any) -> None:
    define(METHODS, names, maker, arguments, **options)


# -- elementwise ------------------------------------------------------------------------------------------------------
_(
    "abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_not "
    "ceil clone conj contiguous cos cosh deg2rad detach digamma erf erfc erfinv exp exp2 expm1 fix floor frac isfinite "
    "isinf isnan isneginf isposinf isreal lgamma log log10 log1p log2 logical_not neg negative positive rad2deg ravel "
    "real reciprocal relu resolve_conj rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt "
    "square tan tanh trunc bfloat16 "
    "bool byte char double float half int long short is_floating_point is_signed element_size numel nelement dim "
    "ndimension argwhere t trace flipud fliplr tolist atleast_1d atleast_2d atleast_3d frexp",
    any_,
)
_("add sub subtract", any_, "other * alpha:alpha?", pool={"alpha": pools.whole(-2, 3)})
_("rsub", any_, "other:other * alpha:alpha?", pool={"alpha": pools.whole(-2, 3)})
_("mul multiply floor_divide true_divide remainder fmod xlogy", any_, "other")
_("pow float_power", any_, "exponent:other")
_("div divide", any_, "other * rounding_mode:rounding?", pool={"rounding": pools.words("trunc", "floor")})
_(
    "arctan2 atan2 copysign fmax fmin heaviside hypot logaddexp logaddexp2 logical_and logical_or logical_xor maximum "
    "minimum nextafter isclose allclose dist",
    any_,
    "other:like",
)
_("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", any_, "other")
_("gcd lcm", tensor(("int32", "int64", "int8", "uint8")), "other:like")
_("eq ne not_equal lt less le less_equal gt greater ge greater_equal", any_, "other")
_("ldexp", any_, "other:same")
_("addcmul addcdiv", any_, "tensor1:like tensor2:like * value:number?")
_("lerp", any_, "end:same weight:number")
_("clamp clip", any_, "min:number? max:number?")
_("clamp_min", any_, "min:number")
_("clamp_max", any_, "max:number")
_("nan_to_num", any_, "nan:number? posinf:number? neginf:number?")
_("round", any_, "* decimals:int?")
_("logit", floats, "eps:eps?", pool={"eps": lambda d, ok: d.rng.choice((0.0, 0.25, 0.5)) if ok else "x"})
_("mvlgamma", floats, "p:positive")
_("hardshrink", any_, "lambd:number?")
_("prelu", tensor(FLOATS[:3], shape="abc ab a"), "weight:slope", pool={"slope": pools.matrix("b", "p")})
_("where", tensor(("bool",)), "input:other other:other", theirs=torch.where)
_("masked_fill", any_, "mask:mask value:number")
_("masked_select", any_, "mask:mask")
_("masked_scatter", any_, "mask:mask source:source", pool={"source": lambda d, ok: d.array((130,)) if ok else None})
_("type", any_, "dtype:dtype")
_("type_as expand_as view_as reshape_as", any_, "other:same")

# -- reductions -------------------------------------------------------------------------------------------------------
_("sum nansum mean nanmean", any_, "dim:axes? keepdim:flag? * dtype:dtype?")
_("amax amin", any_, "dim:axes? keepdim:flag?")
_("logsumexp", any_, "dim:axes keepdim:flag?")
_("aminmax", any_, "* dim:axis? keepdim:flag?")
_("argmax argmin", distinct, "dim:axis? keepdim:flag?")
_("prod", any_, "dim:axis? keepdim:flag? * dtype:dtype?")
_("any all", any_, "dim:axes? keepdim:flag?")
_("count_nonzero", any_, "dim:axes?")
_("max min", distinct, "dim:axis? keepdim:flag?")
_("std var std_mean var_mean", floats, "dim:axes? * correction:count? keepdim:flag?")
_(
    "norm",
    floats,
    "p:p? dim:axes? keepdim:flag? dtype:kind?",
    pool={
        "p": lambda d, ok: "fro" if ok and d.rng.random() < 0.2 else pools.order_of_norm(d, ok),
        "kind": pools.dtype("float32", "float64"),
    },
)
_("median nanmedian", tensor(FLOATS), "dim:axis? keepdim:flag?")
_("mode", tensor(("int32", "float32")), "dim:axis? keepdim:flag?")
_("kthvalue", tensor(FLOATS), "k:positive dim:axis? keepdim:flag?")
_(
    "quantile nanquantile",
    tensor(("float32", "float64", "int32")),
    "q:share dim:axis? keepdim:flag? * interpolation:interpolation?",
)
_("histc", tensor(("float32", "float64")), "bins:positive? min:number? max:number?")
_("histogram", tensor(("float32",), high=30), "bins:positive")
_(
    "bincount",
    tensor(("int32", "int64", "uint8", "float32"), ranks=(1, 1, 1, 2), low=0),
    "weights:same? minlength:count?",
)
_("equal", any_, "other:same")

# -- movement ---------------------------------------------------------------------------------------------------------
_("reshape", any_, "shape:resized", spread=True)
_("view", any_, "size:resized", spread=True)
_("permute", any_, "dims:order", spread=True)
_("expand", any_, "size:grown", spread=True)
_("broadcast_to", any_, "size:grown")
_(
    "flip",
    any_,
    "dims:flips",
    spread=True,
    pool={"flips": lambda d, ok: pools.order(d, True)[: d.rng.randint(0, 3)] if ok else pools.axes(d, False)},
)
_("squeeze", any_, "dim:axes?")
_("unsqueeze", any_, "dim:axis_beyond")
_("flatten", any_, "start_dim:axis? end_dim:axis?")
_(
    "unflatten",
    any_,
    "dim:axis sizes:parts",
    pool={
        "parts": lambda d, ok: (
            d.rng.choice(([pools.extent(d)], (1, pools.extent(d)), (-1, 1)))
            if ok
            else d.rng.choice(((-1, -1), (7, 7), None, (1.5,), (), -1, "x", (-2, -2)))
        )
    },
)
_("transpose swapdims", any_, "dim0:axis dim1:axis")
_("swapaxes", any_, "axis0:axis axis1:axis")
_("movedim moveaxis", any_, "source:axis destination:axis")
_("rot90", any_, "k:int? dims:two_axes?")
_("narrow", any_, "dim:axis start:int length:count")
_("select", any_, "dim:axis index:index")
_("repeat", any_, "repeats:counts", spread=True)
_("tile", any_, "dims:counts", spread=True)
_("roll", any_, "shifts:shifts dims:shift_axes?")
_("unfold", any_, "dimension:axis size:count step:positive")
_(
    "as_strided",
    tensor(shape="abc ab"),
    "size:sizes stride:strides storage_offset:count?",
    pool={
        "sizes": lambda d, ok: (2, 2) if ok else pools.sizes(d, False),
        "strides": lambda d, ok: (
            d.rng.choice(((1, 1), (0, 1), (2, 0))) if ok else d.rng.choice(((9, 99), (-1, 1), (1,), None, (0.5, 1)))
        ),
    },
)
_("diag", any_, "diagonal:int?")
_("diagflat", any_, "offset:int?")
_("diag_embed diagonal", any_, "offset:int? dim1:axis? dim2:axis?")
_("tril triu", any_, "diagonal:int?")
_("unbind", any_, "dim:axis?")
_("chunk", any_, "chunks:positive dim:axis?")
_("split", any_, "split_size:split_sizes dim:axis?")
_("tensor_split", any_, "indices_or_sections:cuts dim:axis?")
_("dsplit hsplit vsplit", tensor(shape="444 44 4 246"), "indices_or_sections:cuts", spread=True)
_("size", any_, "dim:axis?")
_(
    "repeat_interleave",
    any_,
    "repeats:repeats dim:axis?",
    pool={
        "repeats": lambda d, ok: (
            d.rng.choice((0, 1, 2, np_vector((1,), 3)))
            if ok
            else d.rng.choice((-1, 1.5, None, "x", np_vector((2, -1), 0), d.array((2,), "float32"), [1, 2]))
        )
    },
)


def np_vector(values: tuple[int, ...], more: int) -> Array:
    return Array(np.array([*values][: more or None], np.int64), "int64")


# -- joining ----------------------------------------------------------------------------------------------------------
_("cat concat concatenate", any_, "tensors:tensors dim:axis?", joins=True)
_("stack", any_, "tensors:tensors dim:axis_beyond?", joins=True)
_("hstack vstack dstack column_stack row_stack", any_, "tensors:tensors", joins=True)
_(
    "meshgrid",
    tensor(shape="a a"),
    "tensors:tensors",
    joins=True,
    theirs=lambda tensors: torch.meshgrid(*tensors, indexing="ij"),
)
for splat in (torch.block_diag, torch.cartesian_prod, torch.broadcast_tensors):
    _(splat.__name__, tensor(shape="a a"), "tensors:tensors", joins=True, theirs=lambda tensors, f=splat: f(*tensors))

# -- picking and placing ----------------------------------------------------------------------------------------------
_("take", any_, "index:flat", pool={"flat": lambda d, ok: pools.indices(d, d.x.data.size, pools.shape(d.rng), ok)})
_("index_select", any_, "dim:axis index:vector_index")
_("gather", any_, "dim:axis index:gather_index")
_("take_along_dim", any_, "indices:gather_index dim:axis")
_("nonzero", any_, "* as_tuple:flag?")
_(
    "scatter",
    any_,
    "dim:axis index:gather_index src:placed",
    values=False,
    pool={"placed": lambda d, ok: pools.scatter_source(d, ok) if d.rng.random() < 0.7 else pools.number(d, ok)},
)
_("scatter_add", any_, "dim:axis index:gather_index src:scatter_source")
_(
    "scatter_reduce",
    any_,
    "dim:axis index:gather_index src:scatter_source reduce:reduce * include_self:flag?",
    pool={"reduce": pools.words("sum", "prod", "mean", "amax", "amin")},
)
_("index_add", any_, "dim:axis index:vector_index source:along_index * alpha:number?")
_("index_copy", any_, "dim:axis index:distinct_index source:along_index")
_("index_fill", any_, "dim:axis index:vector_index value:number")
_(
    "index_reduce",
    any_,
    "dim:axis index:vector_index source:along_index reduce:reduce * include_self:flag?",
    pool={"reduce": pools.words("prod", "mean", "amax", "amin")},
)
_(
    "index_put",
    any_,
    "indices:tuple values:number_tensor accumulate:flag?",
    pool={
        "tuple": lambda d, ok: (pools.vector_index(d, ok),) if d.rng.random() < 0.9 else pools.vector_index(d, ok),
        "number_tensor": lambda d, ok: (
            d.array(()) if ok else d.rng.choice((None, d.array((7, 9)), d.array((), "int16")))
        ),
    },
)
_(
    "put",
    any_,
    "index:flat source:same_count accumulate:flag?",
    pool={
        "flat": lambda d, ok: pools.indices(d, d.x.data.size, (3,), ok),
        "same_count": lambda d, ok: (
            d.array((3,)) if ok else d.rng.choice((None, 1.0, d.array((2,)), d.array((3,), "int16")))
        ),
    },
)
_("isin", any_, "test_elements:like * invert:flag?")
_(
    "bucketize",
    any_,
    "boundaries:boundaries * right:flag?",
    pool={
        "boundaries": lambda d, ok: (
            d.rng.choice((Array(np.array([-1, 0, 2], "float32"), "float32"), Array(np.array([], "float32"), "float32")))
            if ok
            else d.rng.choice((None, 1.0, d.array((2, 2)), [1.0]))
        )
    },
)
_(
    "searchsorted",
    tensor(("int32", "float32"), shape="1 a 1"),
    "input:other * right:flag? side:side?",
    theirs=torch.searchsorted,
    pool={"side": pools.words("left", "right")},
)
_("combinations", vectors, "r:count? with_replacement:flag?")

# -- scans and sorting ------------------------------------------------------------------------------------------------
_("cumsum cumprod", any_, "dim:axis * dtype:dtype?")
_("logcumsumexp", any_, "dim:axis")
_("cummax cummin", any_, "dim:axis")
_("diff", any_, "n:count? dim:axis?")
_("trapezoid cumulative_trapezoid", tensor(FLOATS), "* dx:number? dim:axis?")
_("sort", distinct, "dim:axis? descending:flag?")
_("argsort", tensor(FLOATS), "dim:axis? descending:flag?")
_("msort", any_)
_(
    "topk",
    tensor(FLOATS),
    "k:count dim:axis? largest:flag? sorted:sorted?",
    pool={"sorted": lambda d, ok: True if ok else "x"},
)
_(
    "unique",
    any_,
    "sorted:sorted? return_inverse:flag? return_counts:flag? dim:axis?",
    pool={"sorted": lambda d, ok: True if ok else "x"},
)
_("unique_consecutive", any_, "return_inverse:flag? return_counts:flag? dim:axis?")
_(
    "softmax log_softmax",
    tensor(FLOATS),
    "dim:axis dtype:kind?",
    pool={"kind": pools.dtype("float32", "float64", "float16")},
)

# -- creation ---------------------------------------------------------------------------------------------------------
static = {"static": True}
_("zeros ones", any_, "size:sizes * dtype:dtype?", spread=True, **static)
_("empty", any_, "size:sizes * dtype:dtype?", spread=True, values=False, **static)
_(
    "rand",
    any_,
    "size:sizes * dtype:kind?",
    spread=True,
    values=False,
    invariant=invariants.within(0, 1),
    pool={"kind": pools.dtype("float32", "float16", "int32")},
    **static,
)
_(
    "randn",
    any_,
    "size:sizes * dtype:kind?",
    spread=True,
    values=False,
    invariant=invariants.within(-8, 8),
    pool={"kind": pools.dtype("float32", "float16", "int32")},
    **static,
)
_("full", any_, "size:sizes fill_value:number * dtype:dtype?", **static)
_("zeros_like ones_like", any_, "* dtype:dtype?")
_("empty_like", any_, "* dtype:dtype?", values=False)
_(
    "rand_like randn_like",
    any_,
    "* dtype:kind?",
    values=False,
    pool={"kind": pools.dtype("float32", "float16", "int32")},
)
_("full_like", any_, "fill_value:number * dtype:dtype?")
_("new_zeros new_ones", any_, "size:sizes * dtype:dtype?", spread=True)
_("new_empty", any_, "size:sizes * dtype:dtype?", spread=True, values=False)
_("new_full", any_, "size:sizes fill_value:number * dtype:dtype?")
_(
    "new_tensor",
    any_,
    "data:data * dtype:dtype?",
    pool={
        "data": lambda d, ok: (
            d.rng.choice(([1, 2], 3, [[1.5]], True)) if ok else d.rng.choice((None, "x", [[1], [1, 2]], {}))
        )
    },
)
_("eye", any_, "n:count m:count? * dtype:dtype?", **static)
_("arange", any_, "start:number end:number? step:number? * dtype:dtype?", **static)
_(
    "linspace",
    any_,
    "start:number end:number steps:count * dtype:kind?",
    pool={"kind": pools.dtype("float32", "float64")},
    **static,
)
_(
    "logspace",
    any_,
    "start:number end:number steps:count base:real? * dtype:kind?",
    pool={"kind": pools.dtype("float32")},
    **static,
)
_("tril_indices triu_indices", any_, "row:count col:count offset:int?", **static)
_(
    "randint",
    any_,
    "low:count high:high size:sizes * dtype:kind?",
    values=False,
    invariant=invariants.within(0, 7),
    pool={"high": lambda d, ok: 7 if ok else -4, "kind": pools.dtype("int32", "int64", "float32")},
    **static,
)
_("randperm", any_, "n:count", values=False, invariant=invariants.in_order, **static)
_(
    "randint_like",
    any_,
    "low:count high:high",
    values=False,
    invariant=invariants.within(0, 7),
    pool={"high": lambda d, ok: 7 if ok else -4},
)
_(
    "multinomial",
    tensor(("float32",), shape="a ab", low=1),
    "num_samples:positive replacement:flag?",
    values=False,
    invariant=invariants.classes,
)
_("bernoulli", floats, "p:share?", values=False, invariant=invariants.whole)
_(
    "einsum",
    any_,
    "equation:formula operands:tensors",
    joins=False,
    values=False,
    pool={"formula": pools.words("...->...", "..."), "tensors": lambda d, ok: d.array(d.x.shape) if ok else None},
    **static,
)

# -- in place only ----------------------------------------------------------------------------------------------------
_("copy_", any_, "other:like")
_("fill_", any_, "value:number")
_("zero_", any_)
_("uniform_ normal_ cauchy_ log_normal_", floats, values=False)
_("exponential_", floats, "lambd:real?", values=False)
_("geometric_", floats, "p:share", values=False)
_("random_", tensor(("float32", "int32", "uint8")), values=False)
