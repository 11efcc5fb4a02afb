"""Kinds of methods, and of calls that differ: what entries of the table of differences ask of a finding."""

from __future__ import annotations

import ast
import re

import numpy as np

from tests.tensor.arguments.compare import Finding, dtypes_of
from tests.tensor.arguments.pools import Array, Type

OPERANDS = (
    "add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow float_power xlogy rsub "
    "arctan2 atan2 copysign fmax fmin heaviside hypot logaddexp logaddexp2 logical_and logical_or logical_xor maximum "
    "minimum nextafter isclose allclose dist bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift "
    "gcd lcm eq ne not_equal lt less le less_equal gt greater ge greater_equal ldexp addcmul addcdiv lerp clamp clip "
    "clamp_min clamp_max where masked_fill equal isin bucketize searchsorted take gather scatter scatter_add "
    "scatter_reduce index_add index_copy index_fill index_select index_reduce index_put put take_along_dim "
    "masked_scatter addmm addmv addr baddbmm addbmm repeat_interleave copy_"
)
LOSSES = (
    "mse_loss l1_loss soft_margin_loss smooth_l1_loss huber_loss hinge_embedding_loss kl_div poisson_nll_loss "
    "gaussian_nll_loss binary_cross_entropy binary_cross_entropy_with_logits margin_ranking_loss cosine_embedding_loss "
    "triplet_margin_loss nll_loss cross_entropy multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss"
)
NORMS = (
    "batch_norm instance_norm layer_norm rms_norm group_norm local_response_norm normalize cosine_similarity "
    "pairwise_distance"
)
CASTS = (
    "byte char short int long type type_as copy_ fill_ masked_fill new_tensor index_fill scatter cumsum cumprod sum "
    "prod nansum"
)


def arrays(f: Finding) -> list[Array]:
    found: list[Array] = []

    def walk(v: object) -> None:
        if isinstance(v, Array):
            found.append(v)
        elif isinstance(v, tuple | list):
            for x in v:
                walk(x)

    walk([f.call.x, *f.call.args, *f.call.keywords.values()])
    return found


def empty(f: Finding) -> bool:
    made = f.call.x is None and re.search(r"\b0\b", repr(f.call)) is not None
    return made or any(a.data.size == 0 for a in arrays(f))


def given(f: Finding) -> list[object]:
    return [*f.call.args, *f.call.keywords.values()]


MODES = ("trunc", "floor", "left", "right", "sum", "prod", "mean", "amax", "amin")


def numbers(v: object) -> bool:
    """Whether a value is a tensor, a number, or a list of numbers."""
    if isinstance(v, list | tuple):
        return all(map(numbers, v))
    return isinstance(v, Array | int | float | np.number)


def operands(f: Finding) -> bool:
    """Whether every argument is one that arithmetic has a meaning for, or the name of a mode or its default."""
    rest = [*f.call.args, *(v for name, v in f.call.keywords.items() if (name, v) != ("side", None))]
    return all(numbers(v) or v in MODES for v in rest)


def float_number(f: Finding) -> bool:
    """Integers meet a number that is none: an argument, or the method's own."""
    own = f.call.spec.name in ["hardtanh", "relu6", "celu", "elu", "leaky_relu", "hardshrink", "softshrink"]
    return has_ints(f) and (own or any(isinstance(v, float | np.floating) for v in given(f)))


def by_other_name(f: Finding) -> bool:
    return f.call.spec.name in ("arange", "tensor_split") and all(
        v is None or isinstance(v, Type) or numbers(v) for v in given(f)
    )


def no_class(f: Finding) -> bool:
    return bool(f.call.x and f.call.x.dtype not in ("int64", "bool") and "int" in f.call.x.dtype)


def dtypes(f: Finding) -> tuple[str, str]:
    mine, _, yours = f.seen.partition(", PyTorch gives ")
    return mine, yours


def one_apart(f: Finding) -> bool:
    """Whether whole numbers were seen that are at most 1 apart."""
    mine, yours = (np.array(ast.literal_eval(v)) for v in dtypes(f))
    return bool(np.abs(mine - yours).max() <= 1)


def narrower_int(f: Finding) -> bool:
    return dtypes(f) in {("int32", "int64"), ("uint32", "int64"), ("uint32", "uint64")}


def mixed(f: Finding) -> bool:
    return len({a.dtype for a in arrays(f)}) > 1


def mixed_with_number(f: Finding) -> bool:
    return any(a.shape == () for a in arrays(f))


def has_bool(f: Finding) -> bool:
    return "bool" in dtypes_of(f.call)


def has_ints(f: Finding) -> bool:
    return any("int" in a.dtype or a.dtype == "bool" for a in arrays(f))


def wrong_signature(f: Finding) -> bool:
    return f.call.wrong == "signature"
