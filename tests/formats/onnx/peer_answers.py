"""What onnxruntime makes of operators of com.microsoft: writes peer_answers.npz, which test_contrib.py reads.

To be run where the peers of `make bench` are: .venv-bench/bin/python tests/formats/onnx/peer_answers.py
"""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnxruntime import quantization

RANDOM = np.random.default_rng(0)
MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
FILE = Path(__file__).with_name("peer_answers.npz")
ANSWERS: dict[str, Any] = {}


def case(
    name: str, op: str, inputs: list[Any], outputs: int = 1, domain: str = MICROSOFT, known: tuple[int, ...] = (),
    hidden: bool = False, **attributes: Any,
) -> None:  # fmt: skip
    """One node: its model, inputs and outputs under `name`. `known`: inputs that are initializers of the model;
    `hidden`: which are inputs as well, so that onnxruntime prepares nothing for them."""
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{k}" for k in range(outputs)], domain=domain, **attributes)
    known = tuple(k for k in known if k < len(inputs) and inputs[k] is not None)
    held = [onnx.numpy_helper.from_array(inputs[k], f"i{k}") for k in known]
    feed = {n: v for k, (n, v) in enumerate(zip(names, inputs)) if n and k not in known}
    ports = feed | ({names[k]: inputs[k] for k in known} if hidden else {})
    given = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for n, v in ports.items()]  # fmt: skip
    made = [onnx.ValueInfoProto(name=f"o{k}") for k in range(outputs)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid(ML, 3)]
    model = helper.make_model(helper.make_graph([node], name, given, made, held), opset_imports=opsets, ir_version=10)
    answer(name, model.SerializeToString(), feed, [f"o{k}" for k in range(outputs)])


def answer(name: str, model: bytes, feed: dict[str, Any], outputs: list[str]) -> None:
    """A model, its inputs and outputs under `name`. Networks are computed node by node: fused ones round elsewhere."""
    options = onnxruntime.SessionOptions()
    if name.startswith("network"):
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    results = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(outputs, feed)
    ANSWERS[f"{name}/model"] = np.frombuffer(model, np.uint8)
    ANSWERS.update({f"{name}/{n}": v for n, v in feed.items()})
    ANSWERS.update({f"{name}/{n}": v for n, v in zip(outputs, results)})


def f32(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Any:
    return RANDOM.integers(0, 256, shape, np.uint8)


def scale(value: float) -> Any:
    return np.array(value, np.float32)


def zero(value: int) -> Any:
    return np.array(value, np.uint8)


def elementwise() -> None:
    x = f32(2, 5, 16)
    case("fast_gelu", "FastGelu", [x, f32(16)])
    case("bias_gelu", "BiasGelu", [x, f32(16)])
    case("quick_gelu", "QuickGelu", [x], alpha=1.5)
    case("gelu", "Gelu", [x])
    case("fused_matmul", "FusedMatMul", [f32(3, 4, 5), f32(3, 6, 5)], transB=1, alpha=0.5)
    case("fused_matmul_a", "FusedMatMul", [f32(3, 5, 4), f32(3, 5, 6)], transA=1)
    rows = f32(2, 5, 16)
    case("skip_norm", "SkipLayerNormalization", [x, rows, f32(16), f32(16), f32(16)], epsilon=1e-5)
    case("skip_simple_norm", "SkipSimplifiedLayerNormalization", [x, rows, f32(16), f32(16)], epsilon=1e-5)
    case("simple_norm", "SimplifiedLayerNormalization", [x, f32(16)], domain="", axis=-1, epsilon=1e-5)
    ids = RANDOM.integers(0, 9, (2, 5)).astype(np.int32)
    tables = [f32(10, 16), f32(8, 16), f32(2, 16), f32(16), f32(16), np.ones((2, 5), np.int32)]
    case("embed_norm", "EmbedLayerNormalization", [ids, ids % 2, *tables], 2)


def few_bits() -> None:
    n, k = 24, 64
    for bits in (4, 8):
        for block in (16, 32):
            blocks = k // block
            given = [f32(2, 3, k) / 64, u8(n, blocks, block * bits // 8), f32(n, blocks)]
            sizes = {"N": n, "K": k, "bits": bits, "block_size": block}
            case(f"matmul_{bits}_{block}", "MatMulNBits", given, **sizes)
            zeros = u8(n, -(-blocks * bits // 8))
            case(f"matmul_{bits}_{block}_zeros", "MatMulNBits", [*given, zeros], **sizes)
    case("matmul_odd", "MatMulNBits", [f32(3, 80) / 64, u8(7, 3, 16), f32(7, 3), u8(7, 2)], N=7, K=80, bits=4,
         block_size=32)  # fmt: skip
    rows = {"gather_axis": 0, "quantize_axis": 1, "block_size": 16, "bits": 4}
    case("gather", "GatherBlockQuantized", [u8(10, 16), np.array([[1, 9], [3, 0]]), f32(10, 2)], **rows)
    case("gather_zeros", "GatherBlockQuantized", [u8(10, 32), np.array([1, 9]), f32(10, 4), u8(10, 2)], **rows)


def attention() -> None:
    cos, sin = f32(20, 4), f32(20, 4)
    case("rotary", "RotaryEmbedding", [f32(2, 5, 16), np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]]), cos, sin])
    case("rotary_pairs", "RotaryEmbedding", [f32(2, 2, 5, 8), np.array([2]), cos, sin], interleaved=1)
    q, k, v = f32(2, 5, 16), f32(2, 6, 16), f32(2, 6, 16)
    own = [f32(2, 5, 16) for _ in range(3)]
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    case("heads", "MultiHeadAttention", [q, k, v], num_heads=4)
    case("heads_bias", "MultiHeadAttention", [q, k, v, f32(48)], num_heads=4)
    case("heads_mask", "MultiHeadAttention", [*own, None, mask], num_heads=4)
    case("heads_scores", "MultiHeadAttention", [q, k, v, None, None, f32(1, 4, 5, 6)], num_heads=4)
    case("heads_causal", "MultiHeadAttention", own, num_heads=4, unidirectional=1)
    step, past = [f32(2, 1, 16) for _ in range(3)], [f32(2, 4, 7, 4) for _ in range(2)]
    case("heads_past", "MultiHeadAttention", [*step, None, None, None, *past], 3, num_heads=4)
    packed = [f32(2, 5, 16), f32(16, 48), f32(48)]
    case("packed", "Attention", packed, num_heads=4)
    case("packed_lengths", "Attention", [*packed, np.array([5, 3], np.int32)], num_heads=4)
    case("packed_mask", "Attention", [*packed, mask], num_heads=4)
    case("packed_causal", "Attention", packed, num_heads=4, unidirectional=1)


def groups() -> None:
    heads = {"num_heads": 4, "kv_num_heads": 2}
    cos, sin = f32(20, 8), f32(20, 8)
    prompt = [f32(2, 5, 64), f32(2, 5, 32), f32(2, 5, 32), None, None]
    lengths = [np.array([4, 4], np.int32), np.array(5, np.int32)]
    case("groups", "GroupQueryAttention", [*prompt, *lengths], 3, **heads)
    case("groups_rotary", "GroupQueryAttention", [*prompt, *lengths, cos, sin], 3, do_rotary=1, **heads)
    case("groups_window", "GroupQueryAttention", [*prompt, *lengths], 3, local_window_size=2, **heads)
    sinks = [*prompt, *lengths, None, None, None, None, np.array([0.5, -1.0, 2.0, 0.0], np.float32)]
    case("groups_sinks", "GroupQueryAttention", sinks, 3, **heads)
    case("groups_smooth", "GroupQueryAttention", [*prompt, *lengths], 3, smooth_softmax=1, **heads)
    case("groups_cap", "GroupQueryAttention", [*prompt, *lengths], 3, softcap=2.0, **heads)
    past = [f32(2, 2, 6, 16), f32(2, 2, 6, 16), np.array([6, 6], np.int32), np.array(7, np.int32), cos, sin]
    step = [f32(2, 1, 64), f32(2, 1, 32), f32(2, 1, 32)]
    case("groups_past", "GroupQueryAttention", [*step, *past], 3, do_rotary=1, **heads)
    case("groups_packed", "GroupQueryAttention", [f32(2, 1, 128), None, None, *past], 3, do_rotary=1, **heads)


def integers() -> None:
    a, b = [u8(3, 4), scale(0.1), zero(120)], [u8(3, 4), scale(0.2), zero(100)]
    case("add", "QLinearAdd", [*a, *b, scale(0.3), zero(110)])
    case("mul", "QLinearMul", [*a, *b, scale(0.9), zero(110)])
    case("sigmoid", "QLinearSigmoid", [u8(3, 40), scale(0.05), zero(120), scale(1 / 256), zero(0)])
    case("leaky", "QLinearLeakyRelu", [*a, scale(0.1), zero(110)], alpha=0.1)
    case("mean", "QLinearGlobalAveragePool", [u8(2, 3, 4, 4), scale(0.1), zero(120), scale(0.05), zero(110)])
    parts = [u8(2, 3), scale(0.1), zero(120), u8(2, 5), scale(0.3), zero(20)]
    case("concat", "QLinearConcat", [scale(0.2), zero(100), *parts], axis=1)
    case("dynamic", "DynamicQuantizeMatMul", [f32(3, 16), u8(16, 8), scale(0.02), zero(128), f32(8)])
    given = [u8(3, 16), u8(16, 8), scale(0.1), scale(0.02), zero(120), zero(130), f32(8)]
    case("to_float", "MatMulIntegerToFloat", given)


def trees() -> None:
    """Two trees of three branches and four leaves each, over four features."""
    count = 7
    modes = [b"BRANCH_LEQ", b"BRANCH_LT", b"BRANCH_GT", *[b"LEAF"] * 4] * 2
    nodes = {
        "nodes_treeids": [0] * count + [1] * count, "nodes_nodeids": [*range(count)] * 2, "nodes_modes": modes,
        "nodes_featureids": [0, 1, 2, 0, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0],
        "nodes_values": [0.1, -0.3, 0.2, 0.0, 0.0, 0.0, 0.0, -0.1, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 3, 5, 0, 0, 0, 0] * 2, "nodes_falsenodeids": [2, 4, 6, 0, 0, 0, 0] * 2,
    }  # fmt: skip
    leaves = {"treeids": [0] * 4 + [1] * 4, "nodeids": [3, 4, 5, 6] * 2}
    x, weights = f32(40, 4), [0.5, 0.1, 0.3, 0.9, 0.2, 0.7, 0.4, 0.6]
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        target = {f"target_{k}": v for k, v in leaves.items()} | {"target_ids": [0] * 8, "target_weights": weights}
        case(f"trees_{how.lower()}", "TreeEnsembleRegressor", [x], domain=ML, n_targets=1, base_values=[0.25],
             aggregate_function=how, **nodes, **target)  # fmt: skip
    for name, ids, how in (("three", [0, 1, 2, 0, 1, 2, 0, 1], "SOFTMAX"), ("two", [0] * 8, "LOGISTIC"),
                           ("rest", [0] * 8, "NONE"), ("second", [1] * 8, "LOGISTIC")):  # fmt: skip
        of_class = {f"class_{k}": v for k, v in leaves.items()} | {"class_ids": ids, "class_weights": weights}
        labels = [7, 8, 9][: 3 if name == "three" else 2]
        case(f"trees_{name}", "TreeEnsembleClassifier", [x], 2, domain=ML, classlabels_int64s=labels,
             post_transform=how, **nodes, **of_class)  # fmt: skip
    case("linear_three", "LinearClassifier", [x], 2, domain=ML, coefficients=f32(12).tolist(), post_transform="SOFTMAX",
         intercepts=[0.1, 0.2, 0.3], classlabels_ints=[3, 4, 5], multi_class=1)  # fmt: skip
    vectors = {"support_vectors": np.linspace(-1, 1, 12).tolist(), "coefficients": [0.5, -1.0, 0.75], "rho": [0.2]}
    kernels: dict[str, list[float]] = {
        "linear": [0, 0, 0],
        "poly": [0.5, 1, 3],
        "rbf": [0.3, 0, 3],
        "sigmoid": [0.2, 0.1, 3],
    }
    for kind, numbers in kernels.items():
        case(f"svm_{kind}", "SVMRegressor", [x], domain=ML, kernel_type=kind.upper(), n_supports=3,
             kernel_params=[float(n) for n in numbers], **vectors)  # fmt: skip
    case("svm_plane", "SVMRegressor", [x], domain=ML, kernel_type="LINEAR", n_supports=0, rho=[0.3],
         kernel_params=[0.0, 0.0, 3.0], coefficients=[0.5, -1.0, 0.75, 2.0])  # fmt: skip
    case("svm_one_class", "SVMRegressor", [x], domain=ML, kernel_type="RBF", n_supports=3, one_class=1,
         kernel_params=[0.3, 0.0, 3.0], **vectors)  # fmt: skip
    case("scaler", "Scaler", [x], domain=ML, offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 3.0, 4.0])
    for norm in ("MAX", "L1", "L2"):
        case(f"normalizer_{norm.lower()}", "Normalizer", [x], domain=ML, norm=norm)


def stored() -> None:
    """Weights of few bits that are initializers."""
    for bits in (2, 4, 8):
        for block, k in ((32, 96), (64, 256), (32, 80)):
            n, blocks = 8, -(-k // block)
            given = [f32(2, 3, k) / 64, u8(n, blocks, block * bits // 8), f32(n, blocks)]
            sizes = {"N": n, "K": k, "bits": bits, "block_size": block, "known": (1, 2, 3)}
            case(f"stored_{bits}_{block}_{k}", "MatMulNBits", given, **sizes)
            zeros = u8(n, -(-blocks * bits // 8))
            case(f"stored_{bits}_{block}_{k}_zeros", "MatMulNBits", [*given, zeros], **sizes)
    given = [f32(2, 3, 96) / 64, u8(24, 3, 16), f32(24, 3)]
    case("stored_rounded", "MatMulNBits", given, N=24, K=96, bits=4, block_size=32, accuracy_level=4, known=(1, 2, 3))
    case("stored_floats", "MatMulNBits", [*given, 15 * RANDOM.random((24, 3), np.float32)], N=24, K=96, bits=4,
         block_size=32, known=(1, 2, 3))  # fmt: skip
    rows = {"gather_axis": 0, "quantize_axis": 1, "block_size": 16, "known": (0, 2, 3)}
    at = np.array([[1, 9], [3, -10]])
    case("stored_rows", "GatherBlockQuantized", [u8(10, 16), at, f32(10, 2)], bits=4, **rows)
    case("stored_rows_zeros", "GatherBlockQuantized", [u8(10, 32), at, f32(10, 4), u8(10, 2)], bits=4, **rows)
    case("stored_rows_8", "GatherBlockQuantized", [u8(10, 32), at, f32(10, 2), u8(10, 2)], bits=8, **rows)


def network(kind: str) -> tuple[Any, dict[str, Any]]:
    """A small network of floats, and its inputs."""
    node = helper.make_node
    if kind == "layers":
        weights = {"w0": f32(32, 24) / 5, "b0": f32(32), "w1": f32(32, 12) / 6, "b1": f32(12)}
        nodes = [node("Gemm", ["x", "w0", "b0"], ["a"], transB=1), node("Relu", ["a"], ["r"]),
                 node("MatMul", ["r", "w1"], ["m"]), node("Add", ["m", "b1"], ["y"])]  # fmt: skip
        return (nodes, weights), {"x": f32(5, 24)}
    if kind == "windows":
        weights = {"w0": f32(16, 3, 3, 3) / 5, "b0": f32(16), "w1": f32(16, 16, 3, 3) / 12, "w2": f32(8, 16, 1, 1) / 4,
                   "w3": f32(8, 1, 3, 3) / 3, "b3": f32(8)}  # fmt: skip
        nodes = [node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", ["a"], ["r"]),
                 node("Conv", ["r", "w1"], ["c"], pads=[1, 1, 1, 1]), node("Add", ["c", "r"], ["s"]),
                 node("Conv", ["s", "w2"], ["d"]), node("Conv", ["d", "w3", "b3"], ["e"], group=8, pads=[1, 1, 1, 1]),
                 node("GlobalAveragePool", ["e"], ["y"])]  # fmt: skip
        return (nodes, weights), {"x": f32(1, 3, 12, 12)}
    sizes = {"heads": np.array([1, 9, 2, 16]), "flat": np.array([1, 9, 32]), "scale": np.array(0.25, np.float32)}
    weights = sizes | {n: f32(32, 32) / 6 for n in "qkvo"} | {"bias": f32(32)}
    nodes = []
    for n, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [node("MatMul", ["x", n], [f"{n}0"]), node("Reshape", [f"{n}0", "heads"], [f"{n}1"]),
                  node("Transpose", [f"{n}1"], [f"{n}2"], perm=order)]  # fmt: skip
    nodes += [node("MatMul", ["q2", "k2"], ["s0"]), node("Mul", ["s0", "scale"], ["s1"]),
              node("Softmax", ["s1"], ["p"]),
              node("MatMul", ["p", "v2"], ["a0"]), node("Transpose", ["a0"], ["a1"], perm=[0, 2, 1, 3]),
              node("Reshape", ["a1", "flat"], ["a2"]), node("MatMul", ["a2", "o"], ["a3"]),
              node("Add", ["a3", "bias"], ["a4"]), node("Add", ["a4", "x"], ["y"])]  # fmt: skip
    return (nodes, weights), {"x": f32(1, 9, 32)}


class Samples(quantization.CalibrationDataReader):
    def __init__(self, feed: dict[str, Any]):
        self.left = iter([feed])

    def get_next(self) -> Any:
        return next(self.left, None)


def networks() -> None:
    """Networks as onnxruntime.quantization makes integers of them: QDQ, QOperator, dynamic."""
    for kind in ("layers", "windows", "heads"):
        (nodes, weights), feed = network(kind)
        given = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, v.shape) for n, v in feed.items()]
        made = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
        held = [onnx.numpy_helper.from_array(v, n) for n, v in weights.items()]
        graph = helper.make_graph(nodes, kind, given, made, held)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "f32.onnx", Path(folder) / "integers.onnx"
            onnx.save(model, source)
            for form, types, each in itertools.product(("QDQ", "QOperator"), ("QUInt8", "QInt8"), (False, True)):
                quantization.quantize_static(
                    source, target, Samples(feed), quant_format=quantization.QuantFormat[form],
                    activation_type=quantization.QuantType[types], per_channel=each)  # fmt: skip
                answer(f"network_{kind}_{form}_{types}{'_each' * each}", target.read_bytes(), feed, ["y"])
            for types in ("QInt8", "QUInt8"):
                quantization.quantize_dynamic(source, target, weight_type=quantization.QuantType[types])
                answer(f"network_{kind}_dynamic_{types}", target.read_bytes(), feed, ["y"])


def vectors() -> None:
    """Support vector machines."""
    kernels = {"LINEAR": [0.0] * 3, "POLY": [0.5, 0.25, 3.0], "RBF": [0.5, 0.0, 0.0], "SIGMOID": [0.5, 0.25, 0.0]}
    for (kernel, numbers), sizes in itertools.product(kernels.items(), ([3, 4], [2, 3, 2], [2, 2, 3, 1])):
        classes, count = len(sizes), sum(sizes)
        pairs = classes * (classes - 1) // 2
        a = {
            "kernel_type": kernel, "kernel_params": numbers, "vectors_per_class": sizes,
            "support_vectors": f32(count * 5), "coefficients": f32((classes - 1) * count), "rho": f32(pairs),
            "classlabels_ints": [7, 2, 5, 3][:classes],
        }  # fmt: skip
        likely = {"prob_a": -1.5 + f32(pairs) / 9, "prob_b": f32(pairs) / 9}
        for how in ("NONE", "LOGISTIC", "SOFTMAX"):
            name, more = f"svm_{kernel}_{classes}_{how}", {"domain": ML, "post_transform": how, **a}
            case(name, "SVMClassifier", [f32(9, 5)], 2, **more)
        case(f"svm_{kernel}_{classes}_likely", "SVMClassifier", [f32(9, 5)], 2, domain=ML, **a, **likely)
        case(f"svr_{kernel}_{classes}", "SVMRegressor", [f32(9, 5)], domain=ML, kernel_type=kernel,
             kernel_params=numbers, support_vectors=a["support_vectors"], coefficients=f32(count), rho=f32(1),
             n_supports=count)  # fmt: skip
    case("svm_planes", "SVMClassifier", [f32(9, 5)], 2, domain=ML, kernel_type="LINEAR", kernel_params=[0.0] * 3,
         coefficients=f32(15), rho=f32(1), classlabels_ints=[4, 2, 9])  # fmt: skip


def features() -> None:
    x = f32(6, 4)
    x[1, 2] = x[3, 0] = np.nan
    case("imputer", "Imputer", [x], domain=ML, imputed_value_floats=f32(4), replaced_value_float=float("nan"))
    case("imputer_one", "Imputer", [np.round(f32(6, 4))], domain=ML, imputed_value_floats=[7.0])
    whole = RANDOM.integers(0, 5, (6, 3))
    case("imputer_whole", "Imputer", [whole], domain=ML, imputed_value_int64s=[8, 9, 10], replaced_value_int64=2)
    case("one_hot", "OneHotEncoder", [whole], domain=ML, cats_int64s=[0, 3, 1, 4], zeros=1)
    case("one_hot_all", "OneHotEncoder", [whole.astype(np.float32)], domain=ML, cats_int64s=list(range(5)), zeros=0)
    columns = [f32(6, 2), f32(6, 3), f32(6, 2)]
    case("feature_vector", "FeatureVectorizer", columns, domain=ML, inputdimensions=[2, 2, 4])


def integer_windows() -> None:
    """Poolings, means and choices of integers."""
    for last in (0, 1):
        x = u8(2, 9, 7, 4) if last else u8(2, 4, 9, 7)
        given = [x, scale(0.03), zero(120), scale(0.02), zero(100)]
        for padded in (0, 1):
            case(f"q_average_pool_{last}_{padded}", "QLinearAveragePool", given, kernel_shape=[3, 2], strides=[2, 1],
                 pads=[1, 0, 1, 1], count_include_pad=padded, channels_last=last)  # fmt: skip
    where = [RANDOM.random((3, 5)) > 0.5, u8(3, 5), scale(0.03), zero(120), u8(5), scale(0.01), zero(90), scale(0.02),
             zero(100)]  # fmt: skip
    case("q_where", "QLinearWhere", where)


def blocks_of(bits: int, block: int, zeros: bool, rows: int, width: int) -> list[Any]:
    """Weights of 4 experts as bytes, their scales and zero points."""
    blocks = width // block if block else 1
    scales = RANDOM.random((4, rows, blocks) if block else (4, rows), np.float32) / (1 << bits)
    packed = u8(4, rows, blocks * bits + 7 >> 3) if block else u8(4, rows * bits + 7 >> 3)
    return [u8(4, rows, width * bits // 8), scales, packed if zeros else None]


def experts() -> None:
    """Mixtures of experts, of floats and of integers."""
    x, scores = f32(2, 3, 32), f32(6, 4)
    floats = [x, scores, f32(4, 16, 32) / 4, f32(4, 16), f32(4, 32, 16) / 4, f32(4, 32)]
    for kind, each in itertools.product(("relu", "gelu", "silu", "identity"), (0, 1)):
        case(f"moe_{kind}_{each}", "MoE", floats, activation_type=kind, k=2, normalize_routing_weights=each)
    woven = [x, scores, f32(4, 32, 32) / 4, f32(4, 32), *floats[4:]]
    swiglu = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.5, "activation_beta": 1.0}
    case("moe_swiglu", "MoE", woven, k=3, swiglu_limit=1.0, known=(2, 3, 4, 5), **swiglu)
    layers: dict[str, Any] = {"silu": {"activation_type": "silu"}, "swiglu": swiglu | {"swiglu_limit": 2.0}}
    for bits, block, zeros, kind in itertools.product((2, 4, 8), (0, 16), (False, True), layers):
        rows = 32 if kind == "swiglu" else 16
        w1, s1, z1 = blocks_of(bits, block, zeros, rows, 32)
        w2, s2, z2 = blocks_of(bits, block, zeros, 32, 16)
        given = [x, scores, w1, s1, f32(4, rows), w2, s2, f32(4, 32), None, None, None, z1, z2]
        sizes = {"block_size": block} if block else {}
        a = {"k": 2, "expert_weight_bits": bits, "known": (2, 3, 4, 5, 6, 7, 11, 12), **sizes, **layers[kind]}
        name = f"q_moe_{bits}_{block}_{'zeros_' * zeros}{kind}"
        # what known experts of 8 bits in blocks are multiplied with onnxruntime rounds, without being asked
        case(name, "QMoE", given if zeros else given[:8], normalize_routing_weights=1, hidden=bits == 8, **a)
        if (bits, block, zeros) == (4, 16, True):
            for each in (0, 1):
                case(f"q_moe_weights_{kind}_{each}", "QMoE", [*given, None, np.abs(f32(6, 4))],
                     normalize_routing_weights=each, **a)  # fmt: skip


def fused() -> None:
    """What onnxruntime's optimisers put in place of several nodes."""
    image = [f32(1, 3, 8, 8), f32(4, 3, 3, 3), f32(4)]
    numbers: dict[str, list[float]] = {
        "Relu": [],
        "Tanh": [],
        "Sigmoid": [],
        "LeakyRelu": [0.2],
        "Clip": [0.0, 0.6],
        "HardSigmoid": [0.3, 0.6],
    }
    for name, of in numbers.items():
        a: dict[str, Any] = {"activation_params": of} if of else {}
        case(f"fused_conv_{name}", "FusedConv", image, activation=name, pads=[1] * 4, **a)
    case("fused_conv_sum", "FusedConv", [*image, f32(1, 4, 8, 8)], activation="Relu", pads=[1] * 4)
    rows = [f32(3, 4), f32(4, 5), f32(5)]
    case("fused_gemm", "FusedGemm", rows, activation="LeakyRelu", activation_alpha=0.3)
    for metric in ("euclidean", "sqeuclidean"):
        case(f"cdist_{metric}", "CDist", [f32(3, 4), f32(5, 4)], metric=metric)
    case("turned_matmul", "TransposeMatMul", [f32(3, 4), f32(5, 4)], transB=1, alpha=0.5)
    case("inverse", "Inverse", [np.eye(3, dtype=np.float32) * 3 + f32(2, 3, 3) / 3])
    case("packed_past", "Attention", [f32(2, 3, 16), f32(16, 48), f32(48), np.array([[1] * 10, [1] * 7 + [0] * 3],
         np.int32), f32(2, 2, 4, 7, 4)], 2, num_heads=4, unidirectional=1)  # fmt: skip
    signed = RANDOM.integers(-128, 128, (16, 48)).astype(np.int8)
    whole, few = np.array([0.01], np.float32), np.array([120], np.uint8)
    heads = {"num_heads": 4, "known": (1, 2, 4, 7)}
    one = [u8(2, 5, 16), signed, f32(48), whole, whole, None, few, np.array([0], np.int8)]
    case("q_attention", "QAttention", one, **heads)
    each = [RANDOM.random(48, np.float32) / 100, np.array([[1, 1, 1, 1, 0], [1] * 5], np.int32), few, u8(48)]
    case("q_attention_each", "QAttention", [u8(2, 5, 16), u8(16, 48), f32(48), whole, *each], unidirectional=1, **heads)
    past = [u8(2, 1, 16), *one[1:5], np.ones((2, 8), np.int32), *one[6:], f32(2, 2, 4, 7, 4)]
    case("q_attention_past", "QAttention", past, 2, unidirectional=1, **heads)
    for kind in (0, 1):
        weights = [f32(3, 32), u8(6 * 16), np.abs(f32(12))]
        case(f"bnb4_{kind}", "MatMulBnb4", weights, N=6, K=32, block_size=16, quant_type=kind, known=(1, 2))
    lengths = RANDOM.integers(0, 9, (2, 5)).astype(np.int32)
    tables = [lengths, lengths % 2, u8(10, 16), u8(8, 16), u8(2, 16), u8(16), u8(16), np.ones((2, 5), np.int32)]
    case("q_embed_norm", "QEmbedLayerNormalization", [*tables, *[scale(0.02)] * 5, *[zero(128)] * 5], 2)
    for byte, many, middle in (("int8", (), 0), ("uint8", (32,), 128)):
        w, r = (u8(2, n, 32) if middle else RANDOM.integers(-127, 128, (2, n, 32)).astype(np.int8) for n in (6, 8))
        sizes = RANDOM.random((2, *many), np.float32) / 100
        zeros = np.zeros(sizes.shape, byte) + np.array(middle, byte)
        case(f"lstm_of_{byte}", "DynamicQuantizeLSTM", [f32(5, 2, 6), w, r, f32(2, 64) / 10, None, f32(2, 2, 8),
             f32(2, 2, 8), None, sizes, zeros, sizes, zeros], 3, hidden_size=8, direction="bidirectional",
             known=(1, 2, 3, 8, 9, 10, 11))  # fmt: skip


if __name__ == "__main__":
    every = (elementwise, few_bits, attention, groups, integers, trees, stored, networks, vectors, features)
    for made in (*every, integer_windows, experts, fused):
        made()
    np.savez_compressed(FILE, **ANSWERS)
    print(
        f"{FILE.name}: {len({name.split('/')[0] for name in ANSWERS})} cases of onnxruntime {onnxruntime.__version__}"
    )
