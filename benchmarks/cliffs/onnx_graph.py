"""The ONNX graph of a work: what PyTorch does for it is traced, and each of its operations is looked up in a table.

A graph is written as JSON and an .npz of its constants; `benchmarks.browser.graphs` makes a model of them with the
peers' interpreter. A work with an operation that the table does not have has no graph (`NoGraph`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from benchmarks.cliffs.work import Array, Work


class NoGraph(Exception):
    """An operation of the work is not in the table."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph, by name."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class Graph:
    """Nodes (operation, inputs, outputs, attributes) in order, and constants by name."""

    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)  # shapes by name
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)  # of inputs and outputs, as NumPy calls them
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append((op, list(inputs), names, attributes))
        return names

    def one(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.add(op, *inputs, **attributes)[0]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def cast(self, x: Value | str, dtype: torch.dtype) -> str:
        name = x.name if isinstance(x, Value) else x
        if isinstance(x, Value) and x.dtype == dtype:
            return name
        return self.one("Cast", name, to=_numpy(dtype).name)

    def save(self, folder: Path) -> Path:
        """`graph.json` and `graph.npz` in a folder; the first one's path."""
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "graph.npz", allow_pickle=False, **self.constants)
        record = {"inputs": self.inputs, "outputs": self.outputs, "types": self.types, "nodes": self.nodes}
        (folder / "graph.json").write_text(json.dumps(record))
        return folder / "graph.json"


def graph_of(work: Work) -> Graph:
    """What PyTorch does for the work, as an ONNX graph of inputs a0, a1, …; NoGraph where there is none.

    Inputs that nothing reads are left out; outputs are called output, or output0, …. Where our inputs are placed
    otherwise (weights that are quantised), all but the first are constants of both. A work that writes its nodes itself
    is not traced.
    """
    arrays = [torch.from_numpy(a) for a in work.arrays()]
    if work.nodes is not None:
        return _written(work, arrays)
    with torch.no_grad():
        traced = make_fx(lambda *x: work.theirs(*x), tracing_mode="fake")(*arrays)
    traced.graph.eliminate_dead_code()
    g = Graph()
    values: dict[Any, Any] = {}
    for number, n in enumerate(traced.graph.nodes):
        if n.op == "placeholder":
            if work.place and number > 0:
                values[n] = _value(
                    n, g.constant(arrays[number].numpy(), arrays[number].numpy().dtype) if n.users else ""
                )
                continue
            values[n] = _value(n, f"a{number}")
            if n.users:
                g.inputs[f"a{number}"] = values[n].shape
                g.types[f"a{number}"] = _numpy(values[n].dtype).name
        elif n.op == "get_attr":
            tensor = getattr(traced, n.target)
            values[n] = Value(g.constant(tensor.numpy(), _numpy(tensor.dtype)), tuple(tensor.shape), tensor.dtype)
        elif n.op == "call_function":
            args, keywords = torch.fx.node.map_arg((n.args, n.kwargs), lambda s: values[s])
            if str(n.target) == "<built-in function getitem>":
                values[n] = args[0][args[1]]
                continue
            name = str(n.target).removeprefix("aten.")
            convert = TABLE.get(name) or TABLE.get(name.replace("_.", "."))  # in place: nothing else reads what was
            if convert is None:
                raise NoGraph(str(n.target))
            found = convert(g, n, *args, **keywords)
            values[n] = [_part(n, i, x) for i, x in enumerate(found)] if isinstance(found, list) else _value(n, found)
        else:
            results = n.args[0] if isinstance(n.args[0], tuple | list) else (n.args[0],)
            for i, result in enumerate(results):
                name = "output" if len(results) == 1 else f"output{i}"
                g.nodes.append(("Identity", [values[result].name], [name], {}))
                g.outputs[name] = values[result].shape
                g.types[name] = _numpy(values[result].dtype).name
    return g


def _written(work: Work, arrays: Sequence[torch.Tensor]) -> Graph:
    """The graph of a work that writes its nodes: of the first input to one output, both as PyTorch has them."""
    assert work.nodes is not None
    out = work.theirs(*arrays)
    ends = {"a0": arrays[0], "output": out}
    g = Graph(
        {"a0": tuple(arrays[0].shape)}, {"output": tuple(out.shape)}, {k: _numpy(t.dtype).name for k, t in ends.items()}
    )
    g.nodes.append(("Identity", [work.nodes(g, [a.numpy() for a in arrays])], ["output"], {}))
    return g


def _value(n: torch.fx.Node, name: str) -> Value:
    return Value(name, tuple(n.meta["val"].shape), n.meta["val"].dtype)


def _part(n: torch.fx.Node, i: int, name: str) -> Value:
    return Value(name, tuple(n.meta["val"][i].shape), n.meta["val"][i].dtype)


def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype(str(dtype).removeprefix("torch."))


# -- how operations are written ----------------------------------------------------------------------------------------
Convert: TypeAlias = "Callable[..., str | list[str]]"
TABLE: dict[str, Convert] = {}


def converts(*names: str) -> Callable[[Convert], Convert]:
    """What is decorated writes the operations of these names of PyTorch's."""

    def enter(convert: Convert) -> Convert:
        TABLE.update(dict.fromkeys(names, convert))
        return convert

    return enter


def _operands(g: Graph, dtype: torch.dtype, *values: Any) -> list[str]:
    """Tensors and numbers in one dtype."""
    return [g.cast(v, dtype) if isinstance(v, Value) else g.constant(v, _numpy(dtype)) for v in values]


def _result(n: torch.fx.Node) -> torch.dtype:
    dtype: torch.dtype = n.meta["val"].dtype
    return dtype


def _axes(x: Value, dim: Any) -> list[int]:
    axes = range(len(x.shape)) if dim is None or dim == [] else dim if isinstance(dim, list | tuple) else [dim]
    return [a % len(x.shape) for a in axes]


def _unary(op: str, **attributes: Any) -> Convert:
    return lambda g, n, x, *rest: g.one(op, g.cast(x, _result(n)), **attributes)


def _binary(op: str) -> Convert:
    return lambda g, n, a, b: g.one(op, *_operands(g, _result(n), a, b))


def _compare(*ops: str) -> Convert:
    def convert(g: Graph, n: torch.fx.Node, a: Value, b: Any) -> str:
        dtype = torch.promote_types(a.dtype, b.dtype) if isinstance(b, Value) else a.dtype
        out = g.one(ops[0], *_operands(g, dtype, a, b))
        return g.one(ops[1], out) if len(ops) > 1 else out

    return convert


TABLE |= {
    **{f"{name}.default": _unary(name.capitalize()) for name in (
        "relu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs", "neg", "floor", "ceil", "round", "reciprocal", "sin",
        "cos", "erf", "mish", "sign",
    )},
    "hardswish.default": _unary("HardSwish"),
    "mul.Tensor": _binary("Mul"), "div.Tensor": _binary("Div"), "maximum.default": _binary("Max"),
    "minimum.default": _binary("Min"), "mul.Scalar": _binary("Mul"), "div.Scalar": _binary("Div"),
    "pow.Tensor_Tensor": _binary("Pow"), "pow.Tensor_Scalar": _binary("Pow"),
    "remainder.Scalar": _binary("Mod"), "logical_and.default": _binary("And"), "bitwise_and.Tensor": _binary("And"),
    **{f"{name}.{kind}": _compare(*ops) for kind in ("Scalar", "Tensor") for name, ops in {
        "lt": ("Less",), "gt": ("Greater",), "le": ("LessOrEqual",), "ge": ("GreaterOrEqual",), "eq": ("Equal",),
        "ne": ("Equal", "Not"),
    }.items()},
    "mm.default": _binary("MatMul"), "bmm.default": _binary("MatMul"), "mv.default": _binary("MatMul"),
    "dot.default": _binary("MatMul"),
    "_softmax.default": lambda g, n, x, dim, half: g.one("Softmax", x.name, axis=dim),
    "_log_softmax.default": lambda g, n, x, dim, half: g.one("LogSoftmax", x.name, axis=dim),
    "gelu.default": lambda g, n, x, approximate="none": g.one("Gelu", x.name, approximate=approximate),
    "rsqrt.default": lambda g, n, x: g.one("Reciprocal", g.one("Sqrt", x.name)),
    "log1p.default": lambda g, n, x: g.one("Log", g.one("Add", x.name, g.constant(1, np.float32))),
    "square.default": lambda g, n, x: g.one("Mul", x.name, x.name),
    "silu.default": lambda g, n, x: g.one("Mul", x.name, g.one("Sigmoid", x.name)),
    "where.self": lambda g, n, c, a, b: g.one("Where", c.name, *_operands(g, _result(n), a, b)),
    "masked_fill.Scalar": lambda g, n, x, c, by: g.one("Where", c.name, *_operands(g, _result(n), by, x)),
    "logical_not.default": _unary("Not"), "bitwise_not.default": _unary("Not"),
    "_int_mm.default": lambda g, n, a, b: g.one("MatMulInteger", a.name, b.name),
}  # fmt: skip


@converts("softplus.default")
def _softplus(g: Graph, n: torch.fx.Node, x: Value, beta: float = 1, threshold: float = 20) -> str:
    return g.one("Softplus", x.name)


@converts("add.Tensor", "sub.Tensor", "add.Scalar", "sub.Scalar")
def _sum(g: Graph, n: torch.fx.Node, a: Value, b: Any, alpha: float = 1) -> str:
    first, second = _operands(g, _result(n), a, b)
    if alpha != 1:
        second = g.one("Mul", second, g.constant(alpha, _numpy(_result(n))))
    return g.one("Sub" if "sub" in str(n.target) else "Add", first, second)


@converts("rsub.Scalar")
def _rsub(g: Graph, n: torch.fx.Node, a: Value, b: float) -> str:
    return g.one("Sub", *_operands(g, _result(n), b, a))


@converts("addmm.default")
def _addmm(g: Graph, n: torch.fx.Node, c: Value, a: Value, b: Value) -> str:
    return g.one("Gemm", a.name, b.name, c.name)


@converts("clamp.default", "clamp_min.default")
def _clamp(g: Graph, n: torch.fx.Node, x: Value, low: Any = None, high: Any = None, **named: Any) -> str:
    ends = (named.get("min", low), named.get("max", high))
    return g.one("Clip", x.name, *("" if e is None else g.constant(e, _numpy(x.dtype)) for e in ends))


@converts("_to_copy.default", "convert_element_type.default")
def _cast(g: Graph, n: torch.fx.Node, x: Value, *rest: Any, **keywords: Any) -> str:
    return g.cast(x, _result(n))


@converts("clone.default", "detach.default", "alias.default", "contiguous.default", "lift_fresh_copy.default")
def _same(g: Graph, n: torch.fx.Node, x: Value, *rest: Any, **keywords: Any) -> str:
    return x.name


# -- shapes ------------------------------------------------------------------------------------------------------------
@converts(
    "view.default", "_unsafe_view.default", "unsqueeze.default", "squeeze.dim", "squeeze.dims",
    "squeeze.default", "reshape.default",
)  # fmt: skip
def _reshape(g: Graph, n: torch.fx.Node, x: Value, *rest: Any) -> str:
    shape = tuple(n.meta["val"].shape)
    return x.name if shape == x.shape else g.one("Reshape", x.name, g.constant(shape))


@converts("expand.default")
def _expand(g: Graph, n: torch.fx.Node, x: Value, *rest: Any) -> str:
    shape = tuple(n.meta["val"].shape)
    return x.name if shape == x.shape else g.one("Expand", x.name, g.constant(shape))


@converts("permute.default", "transpose.int", "t.default")
def _permute(g: Graph, n: torch.fx.Node, x: Value, *dims: Any) -> str:
    order = list(range(len(x.shape)))
    if "permute" in str(n.target):
        order = [d % len(order) for d in dims[0]]
    else:
        a, b = dims or (0, 1)
        order[a], order[b] = order[b], order[a]
    return g.one("Transpose", x.name, perm=order)


@converts("pixel_shuffle.default")
def _pixel_shuffle(g: Graph, n: torch.fx.Node, x: Value, factor: int) -> str:
    return g.one("DepthToSpace", x.name, blocksize=factor, mode="CRD")


@converts("scalar_tensor.default")
def _scalar(g: Graph, n: torch.fx.Node, value: float, **keywords: Any) -> str:
    return g.constant(value, _numpy(_result(n)))


@converts("mse_loss.default")
def _squared_error(g: Graph, n: torch.fx.Node, a: Value, b: Value, *rest: Any) -> str:
    apart = g.one("Sub", a.name, b.name)
    return g.one("ReduceMean", g.one("Mul", apart, apart), keepdims=0)


@converts("slice.Tensor")
def _slice(g: Graph, n: torch.fx.Node, x: Value, dim: int = 0, start: Any = 0, end: Any = None, step: int = 1) -> str:
    ends = (start or 0, min(end if end is not None else x.shape[dim], x.shape[dim]), dim, step)
    start, end, axis, by = (g.constant([e]) for e in ends)
    return g.one("Slice", x.name, start, end, axis, by)


@converts("flip.default")
def _flip(g: Graph, n: torch.fx.Node, x: Value, dims: Sequence[int]) -> str:
    many = len(dims)
    first, last, axes, by = ([-1] * many, [np.iinfo(np.int64).min] * many, list(dims), [-1] * many)
    return g.one("Slice", x.name, *(g.constant(e) for e in (first, last, axes, by)))


@converts("select.int")
def _select(g: Graph, n: torch.fx.Node, x: Value, dim: int, index: int) -> str:
    return g.one("Gather", x.name, g.constant(index), axis=dim)


@converts("cat.default")
def _concatenate(g: Graph, n: torch.fx.Node, parts: Sequence[Value], dim: int = 0) -> str:
    return g.one("Concat", *(p.name for p in parts), axis=dim)


@converts("stack.default")
def _stack(g: Graph, n: torch.fx.Node, parts: Sequence[Value], dim: int = 0) -> str:
    axis = dim % len(n.meta["val"].shape)
    return g.one("Concat", *(g.one("Unsqueeze", p.name, g.constant([axis])) for p in parts), axis=axis)


@converts("split.Tensor", "unsafe_split.Tensor", "split_with_sizes.default", "chunk.default")
def _split(g: Graph, n: torch.fx.Node, x: Value, size: Any, dim: int = 0) -> list[str]:
    sizes = [v.shape[dim] for v in n.meta["val"]]
    return g.add("Split", x.name, g.constant(sizes), outputs=len(sizes), axis=dim)


@converts("constant_pad_nd.default", "reflection_pad2d.default", "replication_pad2d.default")
def _pad(g: Graph, n: torch.fx.Node, x: Value, pads: Sequence[int], value: float = 0) -> str:
    before, after = [0] * len(x.shape), [0] * len(x.shape)
    for i in range(len(pads) // 2):
        before[-1 - i], after[-1 - i] = pads[2 * i], pads[2 * i + 1]
    mode = next(m for k, m in (("constant", "constant"), ("refl", "reflect"), ("repl", "edge")) if k in str(n.target))
    more = [g.constant(value, _numpy(x.dtype))] if mode == "constant" else []
    return g.one("Pad", x.name, g.constant(before + after), *more, mode=mode)


@converts("roll.default")
def _roll(g: Graph, n: torch.fx.Node, x: Value, shifts: Sequence[int], dims: Sequence[int]) -> str:
    name = x.name
    for by, dim in zip(shifts, dims):
        size = x.shape[dim]
        sizes = [size - by % size, by % size]
        name = g.one("Concat", *g.add("Split", name, g.constant(sizes), outputs=2, axis=dim)[::-1], axis=dim)
    return name


# -- reductions --------------------------------------------------------------------------------------------------------
def _reduction(op: str) -> Convert:
    def convert(g: Graph, n: torch.fx.Node, x: Value, dim: Any = None, keep: bool = False, **keywords: Any) -> str:
        return g.one(op, g.cast(x, _result(n)), g.constant(_axes(x, dim)), keepdims=int(keep))

    return convert


TABLE |= {
    **dict.fromkeys(("sum.dim_IntList", "sum.default"), _reduction("ReduceSum")),
    **dict.fromkeys(("mean.dim", "mean.default"), _reduction("ReduceMean")),
    **dict.fromkeys(("amax.default", "max.default"), _reduction("ReduceMax")),
    **dict.fromkeys(("amin.default", "min.default"), _reduction("ReduceMin")),
    "logsumexp.default": _reduction("ReduceLogSumExp"),
}


@converts("argmax.default")
def _argmax(g: Graph, n: torch.fx.Node, x: Value, dim: int | None = None, keep: bool = False) -> str:
    if dim is None:
        flat = g.one("Reshape", x.name, g.constant([-1]))
        return g.one("ArgMax", flat, axis=0, keepdims=0)
    return g.one("ArgMax", x.name, axis=dim, keepdims=int(keep))


@converts("var.correction")
def _variance(g: Graph, n: torch.fx.Node, x: Value, dim: Any = None, correction: int = 1, keepdim: bool = False) -> str:
    axes = _axes(x, dim)
    count = int(np.prod([x.shape[a] for a in axes]))
    from_mean = g.one("Sub", x.name, g.one("ReduceMean", x.name, g.constant(axes)))
    total = g.one("ReduceSumSquare", from_mean, g.constant(axes), keepdims=int(keepdim))
    return g.one("Div", total, g.constant(count - correction, np.float32))


@converts("any.dim", "all.dim")
def _boolean(g: Graph, n: torch.fx.Node, x: Value, dim: int, keep: bool = False) -> str:
    op = "ReduceMax" if "any" in str(n.target) else "ReduceMin"
    numbers = g.one(op, g.cast(x, torch.int32), g.constant([dim]), keepdims=int(keep))
    return g.one("Cast", numbers, to="bool")


@converts("native_layer_norm.default")
def _layer_norm(
    g: Graph, n: torch.fx.Node, x: Value, shape: Sequence[int], weight: Value, bias: Value, eps: float
) -> list[str]:
    axis = len(x.shape) - len(shape)
    return [g.one("LayerNormalization", x.name, weight.name, bias.name, axis=axis, epsilon=eps)]


@converts("native_group_norm.default")
def _group_norm(
    g: Graph, n: torch.fx.Node, x: Value, weight: Value, bias: Value, batch: int, channels: int, pixels: int,
    groups: int, eps: float,
) -> list[str]:  # fmt: skip
    ones, zeros = (g.constant(np.full(groups, v), np.float32) for v in (1, 0))
    flat = g.one("Reshape", x.name, g.constant([batch, groups, -1]))
    normed = g.one("Reshape", g.one("InstanceNormalization", flat, ones, zeros, epsilon=eps), g.constant(x.shape))
    scale, shift = (g.one("Reshape", p.name, g.constant([channels, 1, 1])) for p in (weight, bias))
    return [g.one("Add", g.one("Mul", normed, scale), shift)]


@converts("native_batch_norm.default", "_native_batch_norm_legit_no_training.default")
def _batch_norm(
    g: Graph, n: torch.fx.Node, x: Value, weight: Value, bias: Value, mean: Value, variance: Value, *rest: Any
) -> list[str]:
    training, eps = rest[0] if len(rest) == 3 else False, rest[-1]
    if training or weight is None or mean is None:
        raise NoGraph("batch norm of a batch's own statistics")
    inputs = (x.name, weight.name, bias.name, mean.name, variance.name)
    return [g.one("BatchNormalization", *inputs, epsilon=eps)]


# -- products and windows ----------------------------------------------------------------------------------------------
@converts("_scaled_dot_product_flash_attention_for_cpu.default")
def _attention(
    g: Graph, n: torch.fx.Node, q: Value, k: Value, v: Value, dropout: float = 0, is_causal: bool = False,
    attn_mask: Value | None = None, scale: float | None = None,
) -> list[str]:  # fmt: skip
    scaled = g.one("Mul", q.name, g.constant(scale or q.shape[-1] ** -0.5, np.float32))
    keys, values = (_for_heads(g, x, q.shape[1]) for x in (k, v))
    scores = g.one("MatMul", scaled, g.one("Transpose", keys, perm=[0, 1, 3, 2]))
    if is_causal:
        mask = np.triu(np.full((q.shape[2], k.shape[2]), -np.inf, np.float32), 1)
        scores = g.one("Add", scores, g.constant(mask, np.float32))
    if attn_mask is not None:
        scores = g.one("Add", scores, attn_mask.name)
    return [g.one("MatMul", g.one("Softmax", scores, axis=-1), values)]


def _for_heads(g: Graph, x: Value, heads: int) -> str:
    """Keys or values, once for each of the heads that share them."""
    batch, shared, rows, width = x.shape
    if shared == heads:
        return x.name
    apart = g.one("Reshape", x.name, g.constant([batch, shared, 1, rows, width]))
    every = g.one("Expand", apart, g.constant([batch, shared, heads // shared, rows, width]))
    return g.one("Reshape", every, g.constant([batch, heads, rows, width]))


@converts("convolution.default")
def _convolution(
    g: Graph, n: torch.fx.Node, x: Value, weight: Value, bias: Value | None, strides: Sequence[int],
    pads: Sequence[int], dilations: Sequence[int], transposed: bool, output: Sequence[int], groups: int,
) -> str:  # fmt: skip
    more = {"output_padding": list(output)} if transposed else {}
    inputs = [x.name, weight.name, *([bias.name] if bias is not None else [])]
    return g.one(
        "ConvTranspose" if transposed else "Conv", *inputs, kernel_shape=list(weight.shape[2:]), strides=list(strides),
        pads=list(pads) * 2, dilations=list(dilations), group=groups, **more,
    )  # fmt: skip


def _window(size: Sequence[int], strides: Sequence[int], pads: Any) -> dict[str, Any]:
    padding = list(pads) if isinstance(pads, list | tuple) else [pads] * len(size)
    return {"kernel_shape": list(size), "strides": list(strides or size), "pads": padding * 2}


@converts("max_pool2d_with_indices.default")
def _max_pool(
    g: Graph, n: torch.fx.Node, x: Value, size: Sequence[int], strides: Sequence[int] = (), pads: Any = 0, *rest: Any
) -> list[str]:
    return [g.one("MaxPool", x.name, **_window(size, strides, pads))]


@converts("avg_pool2d.default")
def _average_pool(
    g: Graph, n: torch.fx.Node, x: Value, size: Sequence[int], strides: Sequence[int] = (), pads: Any = 0, *rest: Any
) -> str:
    return g.one("AveragePool", x.name, count_include_pad=1, **_window(size, strides, pads))


@converts("_adaptive_avg_pool2d.default")
def _adaptive_pool(g: Graph, n: torch.fx.Node, x: Value, size: Sequence[int]) -> str:
    window = [a // b for a, b in zip(x.shape[2:], size)]
    if [w * s for w, s in zip(window, size)] != list(x.shape[2:]):
        raise NoGraph("windows of several sizes")
    return g.one("AveragePool", x.name, **_window(window, window, 0))


@converts(
    "upsample_nearest2d.default", "upsample_bilinear2d.default", "upsample_bicubic2d.default",
    "upsample_linear1d.default",
)  # fmt: skip
def _resize(g: Graph, n: torch.fx.Node, x: Value, *rest: Any) -> str:
    target, sizes = str(n.target), g.constant(tuple(n.meta["val"].shape))
    more: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
    if "nearest" in target:
        more = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif "bicubic" in target:
        more = {**more, "mode": "cubic", "cubic_coeff_a": -0.75}
    return g.one("Resize", x.name, "", "", sizes, **more)


# -- in order, by index ------------------------------------------------------------------------------------------------
@converts("cumsum.default")
def _cumulative(g: Graph, n: torch.fx.Node, x: Value, dim: int) -> str:
    return g.one("CumSum", x.name, g.constant(dim))


@converts("topk.default")
def _topk(g: Graph, n: torch.fx.Node, x: Value, k: int, dim: int = -1, *rest: Any) -> list[str]:
    return g.add("TopK", x.name, g.constant([k]), outputs=2, axis=dim)


@converts("sort.default", "sort.stable")
def _sort(g: Graph, n: torch.fx.Node, x: Value, dim: int = -1, descending: bool = False, **named: Any) -> list[str]:
    axis = named.get("dim", dim)
    return g.add("TopK", x.name, g.constant([x.shape[axis]]), outputs=2, axis=axis, largest=int(descending))


@converts("argsort.default")
def _argsort(g: Graph, n: torch.fx.Node, x: Value, dim: int = -1, descending: bool = False) -> str:
    return _sort(g, n, x, dim, descending)[1]


@converts("gather.default")
def _gather(g: Graph, n: torch.fx.Node, x: Value, dim: int, index: Value) -> str:
    return g.one("GatherElements", x.name, index.name, axis=dim)


@converts("index_select.default")
def _index_select(g: Graph, n: torch.fx.Node, x: Value, dim: int, index: Value) -> str:
    return g.one("Gather", x.name, index.name, axis=dim)


@converts("embedding.default")
def _embedding(g: Graph, n: torch.fx.Node, table: Value, index: Value, *rest: Any) -> str:
    return g.one("Gather", table.name, index.name, axis=0)


@converts("index.Tensor")
def _index(g: Graph, n: torch.fx.Node, x: Value, indices: Sequence[Value | None]) -> str:
    if len(indices) != 1 or indices[0] is None or indices[0].dtype is torch.bool:
        raise NoGraph("several indices")
    return g.one("Gather", x.name, indices[0].name, axis=0)


@converts("scatter.src", "scatter_add.default", "scatter_reduce.two")
def _scatter(
    g: Graph, n: torch.fx.Node, x: Value, dim: int, index: Value, source: Value, reduce: str = "", **named: Any
) -> str:
    kind = {"sum": "add", "amax": "max", "amin": "min", "prod": "mul"}.get(reduce, "none")
    kind = "add" if "scatter_add" in str(n.target) else kind
    return g.one("ScatterElements", x.name, index.name, source.name, axis=dim, reduction=kind)
