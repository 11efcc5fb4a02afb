"""Names PyTorch users expect: `Tensor` has them, or this page says why not.

Every public name of torch.Tensor and of torch.nn.functional counts, and the functions of the torch namespace that make
tensors or work on them. What tinygrad calls by another name is there as well.
"""

from __future__ import annotations

import pytest
import torch

from tinyweb import Tensor

# -- names of torch.Tensor that Tensor does not have ------------------------------------------------------------------
ABSENT: dict[str, str] = {
    "complex numbers": "adjoint cdouble cfloat chalf conj_physical conj_physical_ imag is_complex is_conj is_neg mH H "
    "resolve_neg istft stft",
    "sparse and nested layouts": "ccol_indices coalesce col_indices crow_indices dense_dim indices is_coalesced "
    "is_nested is_sparse is_sparse_csr layout resize_as_sparse_ row_indices slice_inverse smm sparse_dim sparse_mask "
    "sparse_resize_ sparse_resize_and_clear_ sspaddmm to_dense to_mkldnn to_padded_tensor to_sparse to_sparse_bsc "
    "to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values",
    "PyTorch's quantised dtypes": "dequantize int_repr is_quantized q_per_channel_axis q_per_channel_scales "
    "q_per_channel_zero_points q_scale q_zero_point qscheme",
    "PyTorch's devices and processes": "cpu cuda get_device hash_tensor ipu is_cpu is_cuda is_distributed is_ipu "
    "is_maia is_meta is_mkldnn is_mps is_mtia is_pinned is_shared is_vulkan is_xla is_xpu mtia pin_memory "
    "record_stream share_memory_ xpu",
    "memory has no address, strides or storage to see": "as_subclass const_data_ptr data_ptr dim_order is_contiguous "
    "is_set_to module_load new_empty_strided resize_ resize_as resize_as_ set_ storage_offset storage_type stride "
    "untyped_storage as_strided_ new",
    "shapes do not change in place": "squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_",
    "autograd keeps no record on tensors": "detach_ grad_dtype grad_fn is_inference is_leaf name output_nr "
    "register_hook register_post_accumulate_grad_hook reinforce retain_grad retains_grad volatile",
    "Python code per element": "apply_ map2_ map_",
    "removed or internal in PyTorch": "eig index symeig is_nonzero is_same_size narrow_copy nonzero_static sum_to_size "
    "unsafe_chunk unsafe_split unsafe_split_with_sizes split_with_sizes",
    "rarely used: not built": "addbmm_ addmm_ addmv_ addr_ as_strided_scatter baddbmm_ diagonal_scatter "
    "fill_diagonal_ geqrf i0 i0_ igamma igamma_ igammac igammac_ index_reduce_ lu_solve matrix_exp orgqr ormqr "
    "pinverse polygamma polygamma_ put_ renorm renorm_ select_scatter slice_scatter triangular_solve",
}

# -- names of torch.nn.functional that Tensor does not have ------------------------------------------------------------
ABSENT_FUNCTIONAL: dict[str, str] = {
    "helpers of PyTorch's": "assert_int_or_pair boolean_dispatch handle_torch_function has_torch_function "
    "has_torch_function_unary has_torch_function_variadic native_channel_shuffle",
    "return_indices=True does it": "adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices "
    "adaptive_max_pool3d_with_indices fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices "
    "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices",
    "interpolate does it": "upsample_bilinear upsample_nearest",
    "rarely used: not built": "conv_tbc embedding_bag fractional_max_pool2d fractional_max_pool3d grouped_mm "
    "linear_cross_entropy multi_head_attention_forward pdist scaled_grouped_mm scaled_mm "
    "triplet_margin_with_distance_loss",
}

# -- functions of the torch namespace that are no methods there, and tinygrad's names ----------------------------------
FUNCTIONS = """
    arange bucketize cat cartesian_prod combinations empty empty_like eye full full_like from_numpy histogram
    isin linspace logspace meshgrid normal ones ones_like rand rand_like randint randint_like randn randn_like randperm
    scatter searchsorted stack std_mean tensordot trapezoid tri tril_indices triu_indices uniform var_mean where zeros
    zeros_like block_diag cdist einsum broadcast_tensors column_stack dstack hstack vstack cumulative_trapezoid
"""
TINYGRAD = """
    assign backward cast clip dot glorot_uniform gradient kaiming_normal kaiming_uniform layernorm lshift
    manual_seed maximum minimum mod multinomial numpy one_hot pad quick_gelu realize relu6 repeat_interleave rshift
    scaled_dot_product_attention scaled_uniform shrink softplus stack swish
    tolist trunc unfold xlogy logical_not lerp rearrange bitcast
"""
OPERATORS = """
    neg pos abs invert round add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod pow rpow
    and rand or ror xor rxor lshift rlshift rshift rrshift lt gt le ge eq ne float int index matmul getitem setitem len
    iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift
"""


def public(home: object) -> set[str]:
    return {n for n in dir(home) if not n.startswith("_")}


def absent(table: dict[str, str]) -> set[str]:
    return {name for names in table.values() for name in names.split()}


def test_methods() -> None:
    missing = public(torch.Tensor) - public(Tensor) - absent(ABSENT)
    assert not missing, f"torch.Tensor has them, Tensor has not: {sorted(missing)}"


def test_functional() -> None:
    home = torch.nn.functional
    names = {n for n in public(home) if callable(getattr(home, n)) and n.islower()}
    missing = names - public(Tensor) - absent(ABSENT_FUNCTIONAL)
    assert not missing, f"torch.nn.functional has them, Tensor has not: {sorted(missing)}"


def test_what_is_absent_is_a_name_of_pytorchs() -> None:
    assert not absent(ABSENT) - public(torch.Tensor)
    assert not absent(ABSENT_FUNCTIONAL) - public(torch.nn.functional)


@pytest.mark.parametrize("names", [FUNCTIONS, TINYGRAD], ids=["functions", "tinygrad"])
def test_functions(names: str) -> None:
    missing = set(names.split()) - public(Tensor)
    assert not missing, sorted(missing)


def test_operators() -> None:
    missing = [n for n in OPERATORS.split() if f"__{n}__" not in dir(Tensor)]
    assert not missing


def test_no_method_hides_another() -> None:
    """A name is defined by one layer of Tensor: two would hide each other."""
    seen: dict[str, list[str]] = {}
    for layer in Tensor.__mro__:
        for name in vars(layer) if layer.__module__.startswith("tinyweb") else ():
            if not name.startswith("__"):
                seen.setdefault(name, []).append(layer.__name__)
    twice = {n: layers for n, layers in seen.items() if len(layers) > 1 and n != "_broadcast_to"}
    assert not twice
