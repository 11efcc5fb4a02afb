"""Where Tensor differs from PyTorch by intent: docs/reference/differences.md is written from this table, and the
differential test takes nothing else for meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.tensor.arguments.compare import Finding, dtypes_of
from tests.tensor.arguments.pools import FLOATS, Array

When = Callable[[Finding], bool]


@dataclass(frozen=True)
class Difference:
    """What differs, for which methods (all where none is named), and why. `kinds`, `seen` (a pattern of what was seen)
    and `when` say which findings it covers."""

    what: str
    why: str
    kinds: str
    methods: str = ""
    seen: str = ""
    when: When | None = None

    def covers(self, f: Finding) -> bool:
        name = f.call.spec.name
        return (
            f.kind in self.kinds.split()
            and (not self.methods or name in self.methods.split())
            and re.search(self.seen, f.seen) is not None
            and (self.when is None or self.when(f))
        )


def _arrays(f: Finding) -> list[Array]:
    found: list[Array] = []

    def walk(v: object) -> None:
        if isinstance(v, Array):
            found.append(v)
        elif isinstance(v, tuple | list):
            for x in v:
                walk(x)

    walk([f.call.x, *f.call.args, *f.call.keywords.values()])
    return found


def _empty(f: Finding) -> bool:
    return (
        any(a.data.size == 0 for a in _arrays(f))
        or re.search(r"\b0\b", repr((f.call.args, f.call.keywords))) is not None
    )


def _dtypes(f: Finding) -> tuple[str, str]:
    mine, _, yours = f.seen.partition(", PyTorch gives ")
    return mine, yours


def _narrower_int(f: Finding) -> bool:
    return _dtypes(f) in {("int32", "int64"), ("uint32", "int64"), ("uint32", "uint64")}


def _mixed(f: Finding) -> bool:
    return len({a.dtype for a in _arrays(f)}) > 1


def _mixed_with_number(f: Finding) -> bool:
    return any(a.shape == () for a in _arrays(f))


def _has_bool(f: Finding) -> bool:
    return "bool" in dtypes_of(f.call)


def _has_ints(f: Finding) -> bool:
    return any("int" in a.dtype or a.dtype == "bool" for a in _arrays(f))


def _wrong_signature(f: Finding) -> bool:
    return f.call.wrong == "signature"


OPERANDS = (
    "add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow "
    "float_power xlogy rsub arctan2 "
    "atan2 copysign fmax fmin heaviside hypot logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum "
    "nextafter isclose allclose dist bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm "
    "eq ne not_equal lt less le less_equal gt greater ge greater_equal ldexp addcmul addcdiv lerp clamp clip clamp_min "
    "clamp_max where masked_fill equal isin bucketize searchsorted take gather scatter scatter_add scatter_reduce "
    "index_add index_copy index_fill index_select index_reduce index_put put take_along_dim masked_scatter addmm addmv "
    "addr baddbmm addbmm"
)
PRODUCTS = (
    "mm matmul bmm mv dot vdot inner addmm addmv addr baddbmm addbmm cross vecdot tensordot multi_dot cdist "
    "cholesky_solve solve solve_triangular lstsq linear bilinear prelu conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d outer ger kron"
)
LOSSES = (
    "mse_loss l1_loss soft_margin_loss smooth_l1_loss huber_loss hinge_embedding_loss kl_div poisson_nll_loss "
    "gaussian_nll_loss binary_cross_entropy binary_cross_entropy_with_logits margin_ranking_loss cosine_embedding_loss "
    "triplet_margin_loss nll_loss cross_entropy multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss"
)
NORMS = "batch_norm instance_norm layer_norm rms_norm group_norm local_response_norm "
"normalize cosine_similarity pairwise_distance"

CASTS = (
    "byte char short int long type type_as copy_ fill_ masked_fill full full_like new_full new_tensor index_fill "
    "cumsum cumprod sum prod nansum"
)

TABLE: tuple[Difference, ...] = (
    # -- dtypes -------------------------------------------------------------------------------------------------------
    Difference(
        "Positions, counts and sums of integers below 64 bits are int32 (uint32 of unsigned ones), as are whole Python "
        "numbers, where PyTorch has int64.",
        "WebGPU has no 64-bit integers: they would be pairs of words. `dtype=` asks for another.",
        "dtype",
        when=_narrower_int,
    ),
    Difference(
        "A tensor of shape () counts in promotion like any other, where PyTorch lets it give way to tensors with axes.",
        "A dtype then follows from dtypes alone, not from shapes.",
        "dtype values",
        when=lambda f: _mixed(f) and _mixed_with_number(f),
    ),
    Difference(
        "Any mix of dtypes is promoted in products of matrices, layers, losses and "
        "comparisons, where PyTorch wants them equal.",
        "One rule for all methods; a cast is never forgotten.",
        "accepted",
        seen=r"(same (data )?(dtype|type)|did not match|scalar "
        r"type|dtype|promot|Expected|expected|must have the same)",
        when=_mixed,
    ),
    Difference(
        "`float_power` is computed in float32, but for float64.",
        "WebGPU has no 64-bit floats.",
        "dtype values accepted",
        "float_power",
    ),
    Difference(
        "`any` and `all` give bool, also of uint8.",
        "PyTorch keeps uint8 from a time before bool.",
        "dtype",
        "any all",
    ),
    Difference(
        "`bincount` keeps the dtype of integer weights.",
        "PyTorch makes float64 of them.",
        "dtype",
        "bincount",
    ),
    Difference(
        "A float factor or bound makes floats of integers; PyTorch refuses it or truncates it.",
        "As everywhere else where a float meets an integer tensor.",
        "accepted dtype values refused",
        "add sub subtract rsub addmm addmv addr baddbmm addbmm hardtanh threshold celu elu "
        "leaky_relu "
        "hardshrink softshrink index_add lerp addcmul addcdiv clamp clip clamp_min clamp_max relu6",
        when=_has_ints,
    ),
    Difference(
        "Booleans are 0 and 1 where they meet numbers of another dtype.",
        "PyTorch refuses some of these, and allows others.",
        "accepted dtype",
        "sub subtract rsub dist diff addmm addmv addr baddbmm addbmm cumsum cumprod isin relu "
        "square pow float_power "
        "matrix_power kron",
        when=_has_bool,
    ),
    Difference(
        "Integers are taken as float32 by methods that need floats.",
        "PyTorch refuses them in some methods and takes them in others.",
        "accepted",
        seen=r"(float|Float|supported|Unsupported|Long|Int|Byte|Char|Short|Bool|integral|dtype)",
        when=_has_ints,
    ),
    Difference(
        "A float that an integer type cannot hold becomes the nearest it can, NaN 0.",
        "In PyTorch it is what the processor makes of it.",
        "values accepted",
        CASTS,
        when=lambda f: "without overflow" in f.seen or (f.kind == "values" and bool(dtypes_of(f.call) & set(FLOATS))),
    ),
    Difference(
        "A value written in place is cast to the tensor's dtype, whatever `dtype=` says.",
        "One rule for all of them; bool holds no sums.",
        "accepted refused",
        "cumsum cumprod",
        seen="(Bad in-place call|which this bool tensor cannot hold)",
    ),
    Difference(
        "Truth values count as the numbers 0 and 1.",
        "As in Python.",
        "accepted",
        seen="(Boolean (alpha|beta)|as a real number|with a bool tensor)",
    ),
    # -- values and errors --------------------------------------------------------------------------------------------
    Difference(
        "An integer divided by 0 gives 0.",
        "A kernel cannot raise an error.",
        "accepted",
        seen="ZeroDivision|^ZeroDivisionError$",
    ),
    Difference(
        "Indices that point outside of an axis read 0 and write nothing, negative ones count "
        "from the end, where PyTorch raises.",
        "Their values are not known at the call; see Indexing in docs/tensor.md.",
        "accepted values",
        seen=r"(index|out of (bounds|range)|invalid|Expected|greater|negative|less)",
        methods="take index_select gather take_along_dim scatter scatter_add scatter_reduce index_add "
        "index_copy index_fill "
        "index_reduce index_put put embedding nll_loss cross_entropy multi_margin_loss multilabel_margin_loss one_hot "
        "max_unpool1d max_unpool2d max_unpool3d ctc_loss",
    ),
    Difference(
        "Nothing is raised for matrices that are singular or not positive definite: elements become infinite or NaN.",
        "A kernel cannot raise an error.",
        "accepted values",
        "cholesky cholesky_inverse cholesky_solve inverse inv solve solve_triangular det "
        "slogdet "
        "logdet lstsq pinv matrix_power cond",
    ),
    Difference(
        "`lstsq` gives residuals as soon as there are more rows than columns.",
        "PyTorch leaves them out with its default driver.",
        "shape values",
        "lstsq",
    ),
    Difference(
        "`max(axis)` and `min(axis)` give the values only; `argmax`, `argmin`, `topk` say where they are.",
        "One kernel instead of two, as in NumPy.",
        "outputs",
        "max min",
    ),
    Difference(
        "`equal` compares element by element, as `eq`.",
        "`x.equal(y).all()` computes what PyTorch's `equal` gives; nothing is read at the call.",
        "shape accepted refused dtype values",
        "equal",
    ),
    Difference(
        "`dot` is `matmul` for tensors of any number of axes.",
        "As in NumPy.",
        "accepted",
        "dot",
    ),
    Difference(
        "A tensor without axes may be given axis 0 or -1.",
        "PyTorch takes it in most methods.",
        "accepted",
        seen="tensor has no dimensions",
    ),
    Difference(
        "`combinations(0)` gives one empty combination.",
        "As in itertools, which PyTorch's documentation refers to.",
        "shape",
        "combinations",
    ),
    Difference(
        "Probabilities in tensors are not looked at.",
        "They are not known at the call.",
        "accepted",
        "bernoulli multinomial binary_cross_entropy",
        seen="(p_in|probability|between 0 and 1|sum of)",
    ),
    Difference(
        "`training=None` follows `Tensor.train()`.",
        "No model has to be told.",
        "accepted",
        "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout rrelu batch_norm",
        seen="NoneType",
    ),
    Difference(
        "A list of one number stands for all axes of a window, and None among the sizes of adaptive pools keeps one.",
        "In every method, where PyTorch has it in most.",
        "accepted",
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool2d adaptive_max_pool3d "
        "lp_pool1d lp_pool2d lp_pool3d fold max_unpool1d max_unpool2d max_unpool3d max_pool1d "
        "max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d "
        "interpolate upsample",
        seen="(size|NoneType|exactly|elements|expected|must)",
    ),
    Difference(
        "Medians of nothing raise, where PyTorch gives NaN.",
        "As of `max` and `argmax`.",
        "refused",
        "median nanmedian mode kthvalue quantile nanquantile",
    ),
    Difference(
        "`any` and `all` over an empty tuple of axes reduce all of them, as every other reduction does.",
        "In PyTorch they reduce none.",
        "shape values",
        "any all",
    ),
    # -- arguments ----------------------------------------------------------------------------------------------------
    Difference(
        "Operands may be numbers and nested lists where PyTorch wants a tensor, and tensors where it wants a number.",
        "They become tensors of the other operand's dtype.",
        "accepted",
        OPERANDS,
        seen=r"(must be|invalid combination|expected|received|Tensor|0-dimensional)",
    ),
    Difference(
        "`axis=None`, and `keepdim` without an axis, mean all axes.",
        "As in NumPy.",
        "accepted",
        seen=r"(missing 1 required|dim|keepdim|NoneType|invalid combination|output with shape)",
        methods="sum nansum mean nanmean prod max min median nanmedian any all std var std_mean "
        "var_mean amax amin logsumexp "
        "argmax argmin norm squeeze aminmax count_nonzero vector_norm unique quantile "
        "nanquantile repeat_interleave roll size",
    ),
    Difference(
        "Sizes, axes and counts may be missing altogether: `x.permute()`, `x.reshape()`, `x.repeat()`.",
        "They are those of a tensor without axes.",
        "accepted",
        "permute reshape view repeat tile expand flip new_zeros new_ones new_empty zeros ones empty rand randn",
        seen=r"(missing|invalid combination|required|takes)",
    ),
    Difference(
        "Every parameter has a name, also where PyTorch's overloads have none, and may be "
        "given by position where PyTorch wants a keyword.",
        "One signature for each method.",
        "accepted",
        seen=r"(invalid combination|unexpected keyword|takes .* positional|positional|missing|got "
        r"an unexpected|unrecognized)",
    ),
    Difference(
        "Flags are True or False; PyTorch's Python functions take anything.",
        "A wrong argument in its place would pass in silence.",
        "refused",
        seen="must be True or False",
    ),
    Difference(
        "Arguments are looked at for empty tensors too, which PyTorch passes through in some methods.",
        "The shape of the data does not decide whether a call is right.",
        "refused dtype accepted shape",
        when=_empty,
    ),
    Difference(
        "Bounds of parameters are checked at the call: temperatures, norms, windows above 0, sizes that fit.",
        "PyTorch gives NaN or nothing, or raises only for some inputs.",
        "refused",
        methods="gumbel_softmax lp_pool1d lp_pool2d lp_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d adaptive_max_pool1d "
        f"adaptive_max_pool2d adaptive_max_pool3d dropout2d dropout3d dropout1d max_unpool1d "
        f"max_unpool2d max_unpool3d {NORMS} {LOSSES} "
        "scaled_dot_product_attention one_hot rrelu softplus pow isclose",
    ),
)


def meant(f: Finding) -> Difference | None:
    """The entry that covers a finding."""
    return next((d for d in TABLE if d.covers(f)), None)
