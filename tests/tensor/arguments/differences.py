"""Where Tensor differs from PyTorch by intent: docs/reference/differences.md is written from this table, and the
differential test takes nothing else for meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.tensor.arguments.compare import Finding, dtypes_of
from tests.tensor.arguments.kinds import (
    CASTS,
    LOSSES,
    NORMS,
    OPERANDS,
    arrays,
    by_other_name,
    empty,
    float_number,
    given,
    has_bool,
    has_ints,
    mixed,
    mixed_with_number,
    narrower_int,
    no_class,
    one_apart,
    operands,
)
from tests.tensor.arguments.pools import FLOATS

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


TABLE: tuple[Difference, ...] = (
    # -- dtypes -------------------------------------------------------------------------------------------------------
    Difference(
        "Positions, counts and sums of integers below 64 bits are int32 (uint32 of unsigned ones), as are whole "
        "Python numbers, where PyTorch has int64.",
        "WebGPU has no 64-bit integers: they would be pairs of words. `dtype=` asks for another.",
        "dtype",
        when=narrower_int,
    ),
    Difference(
        "A tensor of shape () counts in promotion like any other, where PyTorch lets it give way to tensors with axes.",
        "A dtype then follows from dtypes alone, not from shapes.",
        "dtype values",
        when=lambda f: mixed(f) and mixed_with_number(f),
    ),
    Difference(
        "Any mix of dtypes is promoted in products of matrices, layers, losses and comparisons, where PyTorch wants "
        "them equal.",
        "One rule for all methods; a cast is never forgotten.",
        "accepted",
        seen=r"(same (data )?(dtype|type)|should be the same|did not match|expected scalar type|expected dtype|"
        r"Found dtype|different dtypes|Type promoting|Input dtypes must|desired output type)",
        when=mixed,
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
        "add sub subtract rsub addmm addmv addr baddbmm addbmm hardtanh threshold celu elu leaky_relu hardshrink "
        "softshrink index_add lerp addcmul addcdiv clamp clip clamp_min clamp_max relu6",
        seen="(integral|Integral|[Bb]ool|unsigned type|without overflow|floating|^float|result type|"
        r"the result is float|can't be cast|^TypeError: index_add: the source)",
        when=float_number,
    ),
    Difference(
        "`threshold` compares integers with the number given.",
        "PyTorch cuts its fraction off first: -1 is not above -1.5 then.",
        "values",
        "threshold",
        when=float_number,
    ),
    Difference(
        "Booleans are 0 and 1 where they meet numbers of another dtype.",
        "PyTorch refuses some of these, and allows others.",
        "accepted dtype",
        "sub subtract rsub dist diff addmm addmv addr baddbmm addbmm cumsum cumprod isin relu square pow float_power "
        "matrix_power kron",
        when=has_bool,
    ),
    Difference(
        "Integers are taken as float32 by methods that need floats.",
        "PyTorch refuses them in some methods and takes them in others.",
        "accepted",
        seen=r"(Integral inputs not supported|floating[ -]point|with a bool tensor is not supported)",
        when=has_ints,
    ),
    Difference(
        "Classes may be of any integer dtype.",
        "Indices are int32 here.",
        "accepted",
        "one_hot",
        seen="LongTensor",
        when=no_class,
    ),
    Difference(
        "A number that an unsigned tensor cannot hold is compared as it is.",
        "PyTorch wraps it first: 2 ≤ -1 of uint8.",
        "values",
        "eq ne not_equal lt less le less_equal gt greater ge greater_equal clamp clip clamp_min clamp_max",
        when=lambda f: "uint8" in dtypes_of(f.call) and any(isinstance(v, int | float | np.number) for v in given(f)),
    ),
    Difference(
        "A number given to an integer tensor that its dtype cannot hold is refused; only comparisons take it as it is.",
        "As in NumPy 2: it is meant as it stands. PyTorch refuses some, and wraps others: -1 of uint8 is 255 there.",
        "refused",
        seen="does not fit in u?int",
    ),
    Difference(
        "A float in a tensor that an integer type cannot hold becomes the nearest it can, NaN 0.",
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
        "Indices that point outside of an axis read 0 and write nothing, negative ones count from the end, where "
        "PyTorch raises.",
        "Their values are not known at the call; see Indexing in docs/tensor.md.",
        "accepted values",
        seen=r"(index \S+ (is )?out of|index out of|out of (bounds|range)|invalid max index|Index to scalar|"
        r"source is scalar|Number of elements of source|"
        r"Target \S+ is out|indexing axis dim|empty tensor|Class values must|must be (positive|smaller|greater|less)|"
        r"^\[|^-?\d|^(nan|inf))",
        methods="take index_select gather take_along_dim scatter scatter_add scatter_reduce index_add "
        "index_copy index_fill index_reduce index_put put masked_scatter embedding nll_loss cross_entropy "
        "multi_margin_loss multilabel_margin_loss one_hot max_unpool1d max_unpool2d max_unpool3d ctc_loss",
    ),
    Difference(
        "Nothing is raised for matrices that are singular or not positive definite: elements become infinite or NaN.",
        "A kernel cannot raise an error.",
        "accepted values",
        "cholesky cholesky_inverse cholesky_solve inverse inv solve solve_triangular det slogdet logdet lstsq pinv "
        "matrix_power cond",
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
        seen=r"(tensor has no dimensions|in range of \[-1, 0\], but got 1\))",
        when=lambda f: any(a.shape == () for a in arrays(f)),
    ),
    Difference(
        "An index of `gather` or `scatter` has as many axes as the tensor, also if that has none.",
        "PyTorch takes an index of one axis for a tensor without any.",
        "refused",
        "gather scatter scatter_add scatter_reduce",
        seen="as many axes as \\(\\)",
    ),
    Difference(
        "`vecdot` broadcasts vectors too, and looks at their axis.",
        "As its documentation has it; PyTorch takes two vectors as they are, with any axis.",
        "accepted refused",
        "vecdot",
        seen=r"(inconsistent tensor size|^IndexError: vecdot: axis -?\d+ is outside of a tensor with 1 axes)",
    ),
    Difference(
        "`unique` of no elements has none, along an axis too; so have the quantiles of an empty tensor along an axis "
        "that has elements.",
        "There is nothing to decide.",
        "accepted",
        "unique unique_consecutive quantile nanquantile",
        seen="(0 sized dimensions|zero sized dimensions|input tensor must be non-empty)",
    ),
    Difference(
        "`tensordot` sums over axes of equal sizes.",
        "As in NumPy; PyTorch repeats one of size 1.",
        "refused",
        "tensordot",
        seen="must be of equal sizes",
    ),
    Difference(
        "A result in half floats may be finite where PyTorch's is not.",
        "Half floats are computed in float32 and rounded once: nothing on the way is too large for them.",
        "values",
        seen=r"^[^a-z]*, PyTorch gives .*\b(inf|nan)\b",
        when=lambda f: "float16" in dtypes_of(f.call),
    ),
    Difference(
        "`addcdiv` divides integers as `div` does.",
        "PyTorch refuses what it once rounded.",
        "accepted dtype values",
        "addcdiv",
        seen="(Integer division with addcdiv|float)",
        when=has_ints,
    ),
    Difference(
        "`norm` is that of all numbers along any number of axes, and its `dtype` may be narrower.",
        "The sum is computed in it, as everywhere.",
        "accepted",
        "norm",
        seen="(dim must be a 2-tuple|without narrowing)",
    ),
    Difference(
        "`axis=None` of softmin and `p=None` of normalize are refused.",
        "PyTorch guesses the axis, with a warning.",
        "refused",
        "softmin softmax log_softmax normalize",
        seen="got NoneType None",
    ),
    Difference(
        "`softmin` without an axis goes along the last one.",
        "As `softmax`; PyTorch guesses the axis from their number, with a warning.",
        "values",
        "softmin",
        when=lambda f: not f.call.args and "dim" not in f.call.keywords,
    ),
    Difference(
        "`padding` of convolutions may be a pair (before, after) for each axis.",
        "PyTorch needs a call of `pad` for it.",
        "accepted",
        "conv1d conv2d conv3d",
        seen="invalid combination",
        when=lambda f: any(isinstance(v, tuple) and v and isinstance(v[0], tuple) for v in given(f)),
    ),
    Difference(
        "`var` of `gaussian_nll_loss` may be a whole number.",
        "PyTorch asks a number for its `any()`.",
        "accepted",
        "gaussian_nll_loss",
        seen=r"any\(\) received",
    ),
    Difference(
        "The target of `cosine_embedding_loss` is a sign: its dtype does not count.",
        "It chooses between two formulas.",
        "dtype",
        "cosine_embedding_loss",
    ),
    Difference(
        "Targets of `ctc_loss` are integers.",
        "PyTorch takes floats and truncates them.",
        "refused",
        "ctc_loss",
        seen="targets must be integers",
    ),
    Difference(
        "`rand_like` and `randn_like` of integers are float32.",
        "PyTorch refuses them, but for empty tensors.",
        "accepted dtype",
        "rand_like randn_like",
        when=has_ints,
    ),
    Difference(
        "`addmv` of a matrix without elements has the product's shape.",
        "As `addmm` has; PyTorch gives back the shape of what it adds.",
        "shape",
        "addmv",
        when=empty,
    ),
    Difference(
        "The causal mask is put on scaled scores, so that `scale` may be 0 or negative.",
        "As the definition has it; PyTorch's fused kernel masks first, and such a scale makes NaN or inf of -inf.",
        "values",
        "scaled_dot_product_attention",
        seen=r", PyTorch gives .*\bnan\b",
        when=lambda f: any(isinstance(v, int | float | np.number) and not v > 0 for v in given(f)),
    ),
    Difference(
        "A mask without axes picks from a new axis, also where each axis has its index.",
        "As in `x[mask] = value`.",
        "accepted",
        "index_put",
        seen="too many indices",
        when=lambda f: any(a.shape == () and a.dtype == "bool" for a in arrays(f)),
    ),
    Difference(
        "A product of matrices without elements has the dtype of any other.",
        "PyTorch takes the second one's.",
        "dtype",
        "mm bmm matmul inner baddbmm addbmm",
        when=lambda f: empty(f) and mixed(f),
    ),
    Difference(
        "`index_add` of booleans takes no number `alpha`.",
        "The product is an integer.",
        "refused",
        "index_add",
        seen="this tensor bool",
    ),
    Difference(
        "`eye(n, None)` is square.",
        "As `eye(n)` is.",
        "accepted",
        "eye",
        seen="NoneType",
    ),
    Difference(
        "`combinations(0)` gives one empty combination.",
        "As in itertools, which PyTorch's documentation refers to.",
        "shape",
        "combinations",
    ),
    Difference(
        "Probabilities and variances in tensors are not looked at.",
        "They are not known at the call.",
        "accepted",
        "bernoulli multinomial binary_cross_entropy gaussian_nll_loss",
        seen=r"(p_in|got \((p=)?NoneType|probability|between 0 and 1|sum of|var has negative)",
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
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
        "adaptive_max_pool3d lp_pool1d lp_pool2d lp_pool3d fold max_unpool1d max_unpool2d max_unpool3d max_pool1d "
        "max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d interpolate upsample",
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
    Difference(
        "Interpolated bytes are rounded once, at the end.",
        "PyTorch's weights for bytes have few bits, and it rounds between the axes.",
        "values",
        "interpolate upsample",
        when=lambda f: "uint8" in dtypes_of(f.call) and one_apart(f),
    ),
    # -- arguments ----------------------------------------------------------------------------------------------------
    Difference(
        "Operands may be numbers and nested lists where PyTorch wants a tensor, and tensors where it wants a number.",
        "They become tensors of the other operand's dtype.",
        "accepted",
        OPERANDS,
        seen=r"(must be (Tensor|Number), not|invalid combination|0-dimensional)",
        when=operands,
    ),
    Difference(
        "`axis=None`, and `keepdim` without an axis, mean all axes.",
        "As in NumPy.",
        "accepted",
        seen=r"(missing 1 required|must be (tuple of ints|int), not NoneType|got \((dim=)?NoneType|keepdim=bool|"
        r"output with shape)",
        methods="sum nansum mean nanmean prod max min median nanmedian any all std var std_mean "
        "var_mean amax amin logsumexp argmax argmin norm squeeze aminmax count_nonzero vector_norm unique quantile "
        "nanquantile repeat_interleave roll size",
    ),
    Difference(
        "Sizes, axes and counts may be missing altogether: `x.permute()`, `x.reshape()`, `x.repeat()`.",
        "They are those of a tensor without axes.",
        "accepted",
        "permute reshape view repeat tile expand broadcast_to flip new_zeros new_ones new_empty zeros ones empty rand "
        "randn",
        seen=r"(missing 1 required|got \(\)|got \((dtype=|None\b)|not NoneType)",
    ),
    Difference(
        "Every parameter has a name, also where PyTorch's overloads have none, and may be given by position where "
        "PyTorch wants a keyword.",
        "One signature for each method.",
        "accepted",
        seen=r"(unexpected keyword|takes .* positional|missing \d required|unrecognized|indices_or_sections=|^arange|"
        r"invalid combination)",
        when=lambda f: "invalid combination" not in f.seen or f.call.wrong == "signature" or by_other_name(f),
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
        "refused",
        when=empty,
    ),
    Difference(
        "The axis of `diff(0, axis)` is looked at.",
        "Though nothing is subtracted.",
        "refused",
        "diff",
        seen="axis -?\\d+ is outside",
    ),
    Difference(
        "Bounds of parameters are checked at the call: temperatures, norms, windows above 0, sizes that fit.",
        "PyTorch gives NaN or nothing, or raises only for some inputs.",
        "refused",
        methods="gumbel_softmax lp_pool1d lp_pool2d lp_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d adaptive_max_pool1d "
        f"adaptive_max_pool2d adaptive_max_pool3d dropout2d dropout3d dropout1d max_unpool1d "
        f"max_unpool2d max_unpool3d {NORMS} {LOSSES} "
        "scaled_dot_product_attention one_hot rrelu softplus pow isclose conv_transpose1d conv_transpose2d "
        "conv_transpose3d",
    ),
)


def meant(f: Finding) -> Difference | None:
    """The entry that covers a finding."""
    return next((d for d in TABLE if d.covers(f)), None)
