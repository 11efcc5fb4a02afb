"""The functions of torch.nn.functional."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as F

from tests.tensor.arguments import invariants, pools
from tests.tensor.arguments.pools import FLOATS, Draw
from tests.tensor.arguments.spec import Spec, define, tensor

FUNCTIONS: dict[str, Spec] = {}
any_, floats = tensor(), tensor(FLOATS)
single = tensor(("float32", "float16", "float64", "int32"))


def _(names: str, maker: Any, arguments: str = "", **options: Any) -> None:
    for name in names.split():
        define(FUNCTIONS, name, maker, arguments, **({"theirs": getattr(F, name)} | options))


# -- activations ------------------------------------------------------------------------------------------------------
_("hardsigmoid hardswish logsigmoid mish relu6 selu silu softsign tanhshrink", any_)
_("celu elu", any_, "alpha:number?")
_("gelu", any_, "* approximate:how?", pool={"how": pools.words("none", "tanh")})
_("leaky_relu", any_, "negative_slope:number?")
_("hardtanh", any_, "min_val:number? max_val:real?")
_("softplus", any_, "beta:real? threshold:number?")
_("softshrink", any_, "lambd:real?")
_("threshold", any_, "threshold:number value:number")
_("glu", tensor(FLOATS, shape="4 a4 4a a2a"), "dim:axis?")
_("softmin", floats, "dim:axis * dtype:kind?", pool={"kind": pools.dtype("float32", "float64")})
_("rrelu", floats, "lower:share? upper:one?", pool={"one": lambda d, ok: 1.25 if ok else d.rng.choice((None, "x"))})
_("gumbel_softmax", floats, "tau:real? hard:flag? dim:axis?", values=False)
_("dropout", floats, "p:share? training:flag?", values=False, invariant=invariants.dropped)
_("alpha_dropout", floats, "p:share? training:flag?", values=False)
_("dropout1d", tensor(FLOATS, shape="abc ab"), "p:share? training:flag?", values=False, invariant=invariants.dropped)
_("dropout2d", tensor(FLOATS, shape="abcd abc"), "p:share? training:flag?", values=False, invariant=invariants.dropped)
_(
    "dropout3d",
    tensor(FLOATS, shape="abcde abcd"),
    "p:share? training:flag?",
    values=False,
    invariant=invariants.dropped,
)
_("feature_alpha_dropout", tensor(FLOATS, shape="abc abcd"), "p:share? training:flag?", values=False)

# -- windows ----------------------------------------------------------------------------------------------------------
planes = {1: "235 26 127", 2: "2345 266 1155", 3: "12455 2444 11345"}
for n in (1, 2, 3):
    images = tensor((*FLOATS, "int32"), shape=planes[n])
    _(
        f"max_pool{n}d",
        images,
        "kernel_size:kernel stride:steps? padding:border? dilation:steps? ceil_mode:flag? return_indices:flag?",
        axes=n,
    )
    _(
        f"avg_pool{n}d",
        images,
        "kernel_size:kernel stride:steps? padding:border? ceil_mode:flag? count_include_pad:flag?",
        axes=n,
    )
    _(
        f"lp_pool{n}d",
        tensor(("float32",), shape=planes[n], low=1),
        "norm_type:real kernel_size:kernel stride:steps? ceil_mode:flag?",
        axes=n,
    )
    _(f"adaptive_avg_pool{n}d adaptive_max_pool{n}d", images, "output_size:kernel", axes=n)

    def convolved(d: Draw, ok: bool, n: int = n) -> Any:
        groups = 1
        channels = d.x.shape[-n - 1] if d.ndim > n else 1
        shape = [d.rng.choice((1, 2, 4)), channels // groups, *(d.rng.randint(1, 3) for _ in range(n))]
        if ok:
            return d.array(shape)
        return d.rng.choice(
            (None, 1.0, d.array(shape[1:]), d.array([2, channels + 1, *shape[2:]]), d.array(shape, "int64"))
        )

    def turned(d: Draw, ok: bool, n: int = n) -> Any:
        channels = d.x.shape[-n - 1] if d.ndim > n else 1
        shape = [channels, d.rng.choice((1, 2)), *(d.rng.randint(1, 3) for _ in range(n))]
        return d.array(shape) if ok else d.rng.choice((None, d.array(shape[1:]), d.array([channels + 1, *shape[1:]])))

    def offsets(d: Draw, ok: bool) -> Any:
        w = d.given.get("weight")
        count = w.shape[0] if isinstance(w, pools.Array) and w.shape else 1
        return d.array((count,)) if ok else d.rng.choice((1.0, d.array((count + 1,)), d.array((count, 1)), "x"))

    def turned_offsets(d: Draw, ok: bool) -> Any:
        w = d.given.get("weight")
        count = w.shape[1] if isinstance(w, pools.Array) and len(w.shape) > 1 else 1
        return d.array((count,)) if ok else d.rng.choice((1.0, d.array((count + 1,)), "x"))

    def around(d: Draw, ok: bool) -> Any:
        return d.rng.choice(("same", "valid")) if ok and d.rng.random() < 0.25 else pools.border(d, ok)

    more = {"weight": convolved, "turned": turned, "bias": offsets, "turned_bias": turned_offsets, "around": around}
    images = tensor(("float32", "float32", "float64", "float16", "int32"), shape=planes[n])
    _(
        f"conv{n}d",
        images,
        "weight:weight bias:bias? stride:steps? padding:around? dilation:steps? groups:positive?",
        pool=more,
        axes=n,
    )
    _(
        f"conv_transpose{n}d",
        images,
        "weight:turned bias:turned_bias? stride:steps? padding:border? output_padding:border? "
        ""
        "groups:positive? dilation:steps?",
        pool=more,
        axes=n,
    )
_(
    "fold",
    tensor(("float32",), shape="149 49"),
    "output_size:out kernel_size:two dilation:steps? padding:border? stride:steps?",
    pool={
        "out": lambda d, ok: d.rng.choice((4, (4, 4), [4, 4])) if ok else pools.kernel(d, False),
        "two": lambda d, ok: d.rng.choice((2, (2, 2))) if ok else pools.kernel(d, False),
    },
)


def padding(d: Draw, ok: bool) -> Any:
    if ok:
        count = d.given.setdefault("pads", d.rng.randint(0, max(d.ndim, 1)))
        return [d.rng.choice((0, 1, 2, 1, -1)) for _ in range(2 * min(count, d.ndim))]
    return d.rng.choice(([1], [1.5, 1], None, 1, ["1", 1], [1] * (2 * d.ndim + 2), [-9, 0], [9, 9]))


_(
    "pad",
    tensor((*FLOATS, "int32", "bool"), ranks=(1, 2, 3, 3, 4, 4)),
    "pad:padding mode:mode? value:number?",
    pool={"padding": padding, "mode": pools.words("constant", "reflect", "replicate", "circular")},
)
_(
    "interpolate upsample",
    tensor(("float32", "float32", "float64", "uint8", "int32"), shape="2345 235 12345"),
    "size:size? scale_factor:factor? mode:mode? align_corners:flag?",
    pool={
        "size": lambda d, ok: d.rng.choice((3, 6, (4,) * max(d.ndim - 2, 1))) if ok else pools.kernel(d, False),
        "factor": lambda d, ok: (
            d.rng.choice((2, 0.5, 1.5, (2.0,) * max(d.ndim - 2, 1))) if ok else d.rng.choice((0, -1, "2", (2.0,) * 9))
        ),
        "mode": pools.words("nearest", "bilinear", "linear", "bicubic", "area", "nearest-exact", "trilinear"),
    },
)
_("pixel_shuffle", tensor(shape="a422 422 bc4a1"), "upscale_factor:positive")
_("pixel_unshuffle", tensor(shape="a422 244 bc464"), "downscale_factor:positive")
_("channel_shuffle", tensor(FLOATS, shape="a4bb a6b"), "groups:positive")
_(
    "grid_sample",
    tensor(("float32",), shape="2345"),
    "grid:grid mode:mode? padding_mode:edge? align_corners:flag?",
    pool={
        "grid": lambda d, ok: (
            d.array((2, 3, 2, 2), low=-4, high=4)
            if ok
            else d.rng.choice((None, d.array((2, 3, 2)), d.array((1, 3, 2, 2))))
        ),
        "mode": pools.words("bilinear", "nearest", "bicubic"),
        "edge": pools.words("zeros", "border", "reflection"),
    },
    rtol=1e-3,
)
_(
    "affine_grid",
    tensor(("float32",), shape="223 134"),
    "size:size align_corners:flag?",
    pool={
        "size": lambda d, ok: (
            d.rng.choice(([2, 1, 3, 4], (2, 3, 2, 2))) if ok else d.rng.choice((None, (2, 2), (-1, 1, 2, 2), 4))
        )
    },
)

# -- normalisation ----------------------------------------------------------------------------------------------------
per = {
    "stat": lambda d, ok: (
        d.array((d.x.shape[1] if d.ndim > 1 else 1,), low=1)
        if ok
        else d.rng.choice((1.0, d.array((9,)), d.array((2, 2))))
    ),
    "whole": lambda d, ok: d.array(d.x.shape[-1:]) if ok else d.rng.choice((1.0, d.array((9,)), d.array((2, 2)))),
    "tail": lambda d, ok: (
        d.rng.choice((d.x.shape[-1:], list(d.x.shape[-1:])))
        if ok
        else d.rng.choice(((9,), None, (1.5,), "x", (), -1, 9))
    ),
}
_(
    "batch_norm",
    tensor(FLOATS, shape="ab 3a4 2a3"),
    "running_mean:stat running_var:stat weight:stat? bias:stat? training:flag? momentum:share? eps:real?",
    pool=per,
    rtol=1e-3,
)
_("instance_norm", tensor(FLOATS, shape="2a4 2a33"), "* weight:stat? bias:stat? eps:real?", pool=per, rtol=1e-3)
_(
    "layer_norm",
    tensor(FLOATS, shape="ab a abc"),
    "normalized_shape:tail weight:whole? bias:whole? eps:real?",
    pool=per,
    rtol=1e-3,
)
_("rms_norm", tensor(FLOATS, shape="ab a abc"), "normalized_shape:tail weight:whole? eps:real?", pool=per, rtol=1e-3)
_(
    "group_norm",
    tensor(FLOATS, shape="a4 a6b"),
    "num_groups:positive weight:stat? bias:stat? eps:real?",
    pool=per,
    rtol=1e-3,
)
_("local_response_norm", tensor(FLOATS, shape="abc abcd"), "size:positive alpha:real? beta:real? k:real?")
_("normalize", floats, "p:order_of_norm? dim:axis? eps:real?")
_("cosine_similarity", floats, "x2:like * dim:axis? eps:real?", rtol=1e-3)
_("pairwise_distance", tensor(FLOATS, shape="ab a"), "x2:same p:real? eps:real? keepdim:flag?", rtol=1e-3)

# -- losses -----------------------------------------------------------------------------------------------------------
chance = {
    "chance": lambda d, ok: d.array(d.x.shape, low=0, high=4) if ok else pools.same(d, False),
    "sign": lambda d, ok: d.array(d.x.shape) if ok else pools.same(d, False),
}
_("mse_loss l1_loss soft_margin_loss", floats, "target:same * reduction:reduction?")
_("smooth_l1_loss", floats, "target:same * reduction:reduction? beta:real?")
_("huber_loss", floats, "target:same * reduction:reduction? delta:real?")
_("hinge_embedding_loss", floats, "target:same * margin:number? reduction:reduction?")
_("kl_div", floats, "target:chance * reduction:reduction? log_target:flag?", pool=chance)
_("poisson_nll_loss", floats, "target:chance * log_input:flag? full:flag? reduction:reduction?", pool=chance, rtol=1e-3)
_("gaussian_nll_loss", floats, "target:same var:chance * full:flag? reduction:reduction?", pool=chance)
_(
    "binary_cross_entropy",
    tensor(("float32", "float64"), low=0, high=4),
    "target:chance weight:same? * reduction:reduction?",
    pool=chance,
)
_(
    "binary_cross_entropy_with_logits",
    floats,
    "target:chance * weight:same? reduction:reduction? pos_weight:same?",
    pool=chance,
)
_("margin_ranking_loss", tensor(FLOATS, ranks=(1,)), "input2:same target:same * margin:number? reduction:reduction?")
_(
    "cosine_embedding_loss",
    tensor(FLOATS, shape="ab"),
    "input2:same target:signs * margin:number? reduction:reduction?",
    pool={
        "signs": lambda d, ok: pools.Array(np.ones(d.x.shape[:1], "float32"), "float32") if ok else pools.same(d, False)
    },
    rtol=1e-3,
)
_(
    "triplet_margin_loss",
    tensor(FLOATS, shape="ab a"),
    "positive:same negative:same * margin:real? p:real? swap:flag? reduction:reduction?",
    rtol=1e-3,
)


def classes(d: Draw, ok: bool) -> Any:
    """Class numbers for (N, C, …) or (C,)."""
    shape = (d.x.shape[0], *d.x.shape[2:]) if d.ndim > 1 else ()
    count = d.x.shape[1] if d.ndim > 1 else d.x.shape[0] if d.ndim else 1
    return pools.indices(d, count, shape, ok)


known = {
    "classes": classes,
    "weights": lambda d, ok: (
        d.array((d.x.shape[1 if d.ndim > 1 else 0] if d.ndim else 1,), low=1)
        if ok
        else d.rng.choice((1.0, d.array((9,))))
    ),
    "bits": lambda d, ok: d.array(d.x.shape, low=0, high=1) if ok else pools.same(d, False),
    "many": lambda d, ok: pools.indices(d, d.x.shape[-1] if d.ndim else 1, d.x.shape, ok),
}
scores = tensor(FLOATS, shape="ab abc a")
_("nll_loss", scores, "target:classes weight:weights? * ignore_index:int? reduction:reduction?", pool=known)
_(
    "cross_entropy",
    scores,
    "target:classes weight:weights? * ignore_index:int? reduction:reduction? label_smoothing:share?",
    pool=known,
    rtol=1e-3,
)
_(
    "multi_margin_loss",
    tensor(("float32", "float64"), shape="ab a"),
    "target:classes * p:positive? margin:number? weight:weights? reduction:reduction?",
    pool=known,
)
_(
    "multilabel_margin_loss",
    tensor(("float32", "float64"), shape="ab a"),
    "target:many * reduction:reduction?",
    pool=known,
)
_(
    "multilabel_soft_margin_loss",
    tensor(FLOATS, shape="ab a"),
    "target:bits weight:weights? * reduction:reduction?",
    pool=known,
)
_(
    "ctc_loss",
    tensor(("float32",), shape="624"),
    "targets:targets input_lengths:lengths target_lengths:short * blank:count? "
    "reduction:reduction? zero_infinity:flag?",
    rtol=1e-3,
    pool={
        "targets": lambda d, ok: (
            d.array((2, 3), "int64", 4, 12) if ok else d.rng.choice((None, d.array((3, 2), "int64"), d.array((2, 3))))
        ),
        "lengths": lambda d, ok: (
            d.rng.choice(((6, 6), [6, 5])) if ok else d.rng.choice((None, (6,), (9, 9), 6, (6.5, 6)))
        ),
        "short": lambda d, ok: d.rng.choice(((3, 2), [1, 3])) if ok else d.rng.choice((None, (3,), (9, 9), (-1, 1))),
    },
)

# -- layers -----------------------------------------------------------------------------------------------------------
_(
    "linear",
    tensor((*FLOATS, "int32"), shape="ab a cab"),
    "weight:w bias:b?",
    pool={
        "w": lambda d, ok: (
            d.array((3, d.x.shape[-1] if d.ndim else 1))
            if ok
            else d.rng.choice((None, d.array((3, 7)), d.array(()), d.array((3, 2, 2))))
        ),
        "b": lambda d, ok: d.array((3,)) if ok else d.rng.choice((1.0, d.array((7,)))),
    },
)
_(
    "bilinear",
    tensor(("float32", "float64"), shape="ab"),
    "input2:same weight:w bias:b?",
    pool={
        "w": lambda d, ok: (
            d.array((3, *d.x.shape[-1:], *d.x.shape[-1:])) if ok else d.rng.choice((None, d.array((3, 7))))
        ),
        "b": lambda d, ok: d.array((3,)) if ok else d.rng.choice((1.0, d.array((7,)))),
    },
)
_(
    "one_hot",
    tensor(("int64", "int32", "float32"), low=0, high=8),
    "num_classes:classes?",
    pool={"classes": lambda d, ok: d.rng.choice((3, 4, -1)) if ok else d.rng.choice((1.5, None, "3", -2, 0))},
)
_(
    "scaled_dot_product_attention",
    tensor(("float32", "float16", "float64"), shape="ab4 1ab4 ba14"),
    "key:same value:same attn_mask:none? dropout_p:zero? is_causal:flag? * scale:real? enable_gqa:flag?",
    rtol=1e-3,
    pool={
        "none": lambda d, ok: (
            d.array((*d.x.shape[:-1], d.x.shape[-2])) if ok and d.ndim > 1 else d.rng.choice((1.0, "x"))
        ),
        "zero": lambda d, ok: 0.0 if ok else d.rng.choice((-1.0, 1.5, "x")),
    },
)


def _table(x: Any, ids: Any, **options: Any) -> Any:
    return F.embedding(ids, x, **options)


_(
    "embedding",
    tensor(FLOATS, shape="ab"),
    "input:ids * padding_idx:count?",
    theirs=lambda x, input, **k: F.embedding(input, x, **k),
    pool={"ids": lambda d, ok: pools.indices(d, d.x.shape[0] if d.ndim else 0, pools.shape(d.rng), ok)},
)
for n in (1, 2, 3):
    _(
        f"max_unpool{n}d",
        tensor(("float32",), shape={1: "23 123", 2: "233 1233", 3: "2222 12222"}[n]),
        "indices:places kernel_size:kernel stride:steps? padding:border?",
        axes=n,
        values=False,
        pool={"places": lambda d, ok: pools.indices(d, 8, d.x.shape, ok)},
    )
