"""Windows, borders, resizing and steps along a size that is a Variable: one trace gives what each fixed size gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.formats.onnx.test_varying import model, node, varying
from tinyweb import Tensor, jit

RANDOM = np.random.default_rng(3)
SHAPE, RANGES = ("batch", 4, "length"), {"batch": (1, 3), "length": (3, 40)}
SIZES = ((3, 40), (1, 3), (2, 17), (2, 8))
FAR = 1 << 62


def weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def check(
    nodes: Sequence[Any], held: Mapping[str, Any], shape: Sequence[Any] = SHAPE,
    ranges: Mapping[str, tuple[int, int]] = RANGES, sizes: Sequence[Sequence[int]] = SIZES,
) -> None:  # fmt: skip
    graph = model(nodes, held, {"x": shape})
    run, names = jit(lambda x: graph(x=x)), [s for s in shape if isinstance(s, str)]
    for each in sizes:
        now = dict(zip(names, each, strict=True))
        given = RANDOM.standard_normal([now.get(s, s) for s in shape]).astype(np.float32)
        found = run(varying(given, shape, ranges))
        for name, want in graph(x=Tensor(given)).items():
            np.testing.assert_allclose(found[name].numpy(), want.numpy(), rtol=1e-4, atol=1e-5, err_msg=str(each))
    assert len(run.traces) == 1


def conv(**options: Any) -> tuple[list[Any], dict[str, Any]]:
    return [node("Conv", ["x", "w"], ["y"], **options)], {"w": weights(3, 4, 3)}


def pool(operator: str, size: int, *more: str, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    return [node(operator, ["x"], ["y", *more], kernel_shape=[size], **options)], {}


def resize(scale: float, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    return [node("Resize", ["x", "", "scales"], ["y"], **options)], {"scales": np.array([1, 1, scale], np.float32)}


def sized(operator: str, by: int, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    """To a size that is computed from the input's."""
    made = [node("Shape", ["x"], ["s"]), node(operator, ["s", "by"], ["t"])]
    neutral = 0 if operator == "Sub" else 1
    return [*made, node("Resize", ["x", "", "", "t"], ["y"], **options)], {"by": whole(neutral, neutral, by)}


def cut(*where: int) -> tuple[list[Any], dict[str, Any]]:
    begin, end, step = where
    held = {"begin": whole(begin), "end": whole(end), "axis": whole(2), "step": whole(step)}
    return [node("Slice", ["x", *held], ["y"])], held


def mirrored(mode: str) -> tuple[list[Any], dict[str, Any]]:
    return [node("Pad", ["x", "around"], ["y"], mode=mode)], {"around": whole(0, 0, 2, 0, 0, 1)}


CENTRES, EDGES = {"coordinate_transformation_mode": "half_pixel_symmetric"}, {
    "coordinate_transformation_mode": "align_corners"
}  # fmt: skip
EARLY = {"coordinate_transformation_mode": "asymmetric"}
CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "convolution": conv(pads=[1, 1], strides=[2]),
    "convolution, apart": conv(pads=[2, 2], dilations=[2]),
    "convolution, same": conv(auto_pad="SAME_UPPER", strides=[2]),
    "convolution, lower": conv(auto_pad="SAME_LOWER", strides=[3]),
    "convolution, valid": conv(strides=[3]),
    "transposed": ([node("ConvTranspose", ["x", "w"], ["y"], strides=[2], pads=[1, 1])], {"w": weights(4, 3, 4)}),
    "integers": ([node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
                  node("ConvInteger", ["q", "w", "zero"], ["c"], pads=[1, 1]),
                  node("Cast", ["c"], ["f"], to=TensorProto.FLOAT), node("Mul", ["f", "scale"], ["y"])],
                 {"w": RANDOM.integers(-9, 9, (8, 4, 3)).astype(np.int8)}),
    "maxima": pool("MaxPool", 3, "at", strides=[2], pads=[1, 1]),
    "maxima, ceil": pool("MaxPool", 2, strides=[2], ceil_mode=1),
    "means": pool("AveragePool", 3, strides=[2], pads=[1, 1]),
    "means of all": pool("AveragePool", 3, strides=[2], pads=[1, 1], count_include_pad=1),
    "means, ceil": pool("AveragePool", 3, strides=[2], ceil_mode=1),
    "means, ceil of all": pool("AveragePool", 3, strides=[2], pads=[1, 0], ceil_mode=1, count_include_pad=1),
    "norms": pool("LpPool", 3, pads=[1, 1]),
    "mirrored": mirrored("reflect"),
    "edges": mirrored("edge"),
    "around": mirrored("wrap"),
    "nearest, twice": resize(2.0, mode="nearest", nearest_mode="floor", **EARLY),
    "nearest, half": resize(0.5, mode="nearest"),
    "nearest, 3/2": resize(1.5, mode="nearest", nearest_mode="round_prefer_ceil"),
    "nearest, 3/4": resize(0.75, mode="nearest", nearest_mode="ceil", **EARLY),
    "linear": resize(2.0, mode="linear"),
    "linear, corners": resize(1.5, mode="linear", **EDGES),
    "linear, 1.3": resize(1.3, mode="linear", **CENTRES),
    "cubic": resize(1.5, mode="cubic"),
    "cubic, inside": resize(2.0, mode="cubic", exclude_outside=1),
    "linear, smooth": resize(0.5, mode="linear", antialias=1),
    "linear, smooth 3/4": resize(0.75, mode="linear", antialias=1, **EDGES),
    "cubic, smooth": resize(0.75, mode="cubic", antialias=1, exclude_outside=1),
    "to twice": sized("Mul", 2, mode="nearest"),
    "to one less": sized("Sub", 1, mode="linear", **EDGES),
    "to a number": ([node("Shape", ["x"], ["s"], end=2), node("Concat", ["s", "seven"], ["t"], axis=0),
                     node("Resize", ["x", "", "", "t"], ["y"], mode="linear")], {"seven": whole(7)}),
    "steps": cut(1, FAR, 2),
    "backwards": cut(-1, -FAR, -2),
    "all but one backwards": cut(-2, -FAR, -1),
    "parts": ([node("Split", ["x"], ["a", "b", "y"], axis=2)], {}),
    "sums": ([node("CumSum", ["x", "axis"], ["y"], exclusive=1, reverse=1)], {"axis": np.int64(2)}),
    "places": ([node("GatherND", ["x", "at"], ["y"])], {"at": whole(0, 2, 1, 0, -1, 2).reshape(2, 3)}),
    "rows": ([node("GatherND", ["x", "at"], ["y"])], {"at": whole(0, 2, 0, -1).reshape(2, 2)}),
    "places in batches": ([node("Shape", ["x"], ["b"], end=1), node("Concat", ["b", "ends"], ["e"], axis=0),
                           node("Expand", ["at", "e"], ["j"]), node("GatherND", ["x", "j"], ["y"], batch_dims=1)],
                          {"at": whole(2, 0).reshape(1, 2, 1), "ends": whole(2, 1)}),
    "last largest": ([node("ArgMax", ["x"], ["y"], axis=2, select_last_index=1)], {}),
    "one of each": ([node("Hardmax", ["x"], ["y"], axis=2)], {}),
    "in the middle": ([node("CenterCropPad", ["x", "nine"], ["y"], axes=[2])], {"nine": whole(9)}),
    "a multiple of 8": ([node("Shape", ["x"], ["n"], start=2), node("Mod", ["n", "eight"], ["m"]),
                         node("Sub", ["eight", "m"], ["d"]), node("Mod", ["d", "eight"], ["p"]),
                         node("Concat", ["none", "p"], ["around"], axis=0), node("Pad", ["x", "around"], ["w"]),
                         node("AveragePool", ["w"], ["y"], kernel_shape=[8], strides=[8])],
                        {"eight": whole(8), "none": whole(0, 0, 0, 0, 0)}),
}  # fmt: skip
QUICK = {"convolution", "transposed", "maxima", "means", "mirrored", "linear", "to one less", "steps", "parts"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES])
def test_along_an_axis_that_varies(name: str) -> None:
    check(*CASES[name])


@pytest.mark.parametrize(("parts", "options"), [
    (1, {"onesided": 1}), (2, {}), (2, {"inverse": 1}), (2, {"inverse": 1, "onesided": 1}),
])  # fmt: skip
def test_transforms_of_a_length_that_varies(parts: int, options: dict[str, int]) -> None:
    check([node("DFT", ["x"], ["y"], axis=1, **options)], {}, ("batch", "length", parts))


def test_a_network_of_windows() -> None:
    """What follows has sizes that are quotients; below the first of them windows find no place."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], strides=[2], pads=[1, 1]), node("Sigmoid", ["a"], ["g"]),
        node("Mul", ["a", "g"], ["b"]), node("Conv", ["b", "v"], ["c"], pads=[1, 1]), node("Add", ["b", "c"], ["d"]),
        node("MaxPool", ["d"], ["p"], kernel_shape=[3], strides=[2], pads=[1, 1]),
        node("GlobalAveragePool", ["p"], ["y"]),
    ]  # fmt: skip
    held = {"w": weights(3, 4, 3), "v": weights(3, 3, 3)}
    check(nodes, held, ranges=RANGES | {"length": (1, 40)}, sizes=((3, 40), (1, 1), (2, 17)))


@pytest.mark.slow
def test_both_sides_of_pictures() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["r"]),
        node("ConvTranspose", ["r", "v"], ["u"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["u", "d"], ["y"], pads=[1, 1, 1, 1], group=4),
    ]  # fmt: skip
    held = {"w": weights(5, 4, 3, 3), "v": weights(5, 4, 4, 4), "d": weights(4, 1, 3, 3)}
    ranges = {"batch": (1, 3), "height": (4, 20), "width": (5, 33)}
    check(nodes, held, ("batch", 4, "height", "width"), ranges, ((1, 20, 33), (2, 4, 5), (3, 13, 12)))


def test_a_window_that_never_fits() -> None:
    graph = model(*conv(), {"x": SHAPE})
    x = varying(np.zeros((1, 4, 1), np.float32), SHAPE, {"batch": (1, 3), "length": (1, 2)})
    with pytest.raises(Exception, match="a window of 3 does not fit"):
        jit(lambda x: graph(x=x))(x)


def test_blocks_that_planes_need_not_be_made_of() -> None:
    shape = ("batch", 4, 6, "length")
    graph = model([node("SpaceToDepth", ["x"], ["y"], blocksize=2)], {}, {"x": shape})
    with pytest.raises(NotImplementedError, match=r"need not be made of blocks of 2: .*, or take steps"):
        jit(lambda x: graph(x=x))(varying(np.zeros((1, 4, 6, 8), np.float32), shape, RANGES))
