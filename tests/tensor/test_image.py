"""Resizing, sampling by a grid, pixels as channels, image helpers and boxes; against PyTorch or by their definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor

F = torch.nn.functional
LINE, PLANE, CUBE = data(2, 3, 7), data(2, 3, 6, 5), data(1, 2, 4, 5, 3)
GRID = data(2, 4, 3, 2, seed=1, low=-1.4, high=1.4)
GRID3 = data(1, 3, 2, 4, 3, seed=1, low=-1.3, high=1.3)


def resize(name: str, x: np.ndarray, sample: bool = False, gradient: bool = True, **keywords) -> Op:
    return Op(f"interpolate_{name}", lambda t: t.interpolate(**keywords), (x,), lambda t: F.interpolate(t, **keywords),
              sample=sample, gradient=gradient, atol=5e-6)  # fmt: skip


def sample(mode: str, padding: str, corners: bool, x: np.ndarray = PLANE, grid: np.ndarray = GRID, **more) -> Op:
    arguments = (mode, padding, corners)

    def theirs(t, g):
        return F.grid_sample(t, g.detach() if mode == "nearest" else g, *arguments)

    name = f"grid_sample_{x.ndim}_{mode}_{padding}_{corners}"
    return Op(name, lambda t, g: t.grid_sample(g, *arguments), (x, grid), theirs, atol=5e-6, **more)


OPS = [
    resize("nearest", PLANE, size=(4, 9), sample=True),
    resize("nearest_double", PLANE, scale_factor=2),
    resize("nearest_half", LINE, scale_factor=0.5),
    resize("nearest_odd", LINE, scale_factor=1.7),
    resize("nearest_volume", CUBE, size=(3, 7, 3)),
    resize("nearest_exact", PLANE, size=(4, 9), mode="nearest-exact"),
    resize("linear", LINE, size=12, mode="linear", sample=True),
    resize("linear_corners", LINE, size=4, mode="linear", align_corners=True),
    resize("bilinear", PLANE, size=(9, 3), mode="bilinear", sample=True),
    resize("bilinear_corners", PLANE, size=(4, 11), mode="bilinear", align_corners=True),
    resize("bilinear_factor", PLANE, scale_factor=(1.3, 2.6), mode="bilinear"),
    resize("bilinear_recomputed", PLANE, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True),
    resize("bilinear_one", PLANE, size=1, mode="bilinear", align_corners=True),
    resize("bilinear_of_one", PLANE[:, :, :1, :1], size=3, mode="bilinear"),
    resize("trilinear", CUBE, size=(6, 3, 3), mode="trilinear"),
    resize("bicubic", PLANE, size=(9, 3), mode="bicubic", sample=True),
    resize("bicubic_corners", PLANE, size=(4, 11), mode="bicubic", align_corners=True),
    resize("area", PLANE, size=(4, 2), mode="area"),
    resize("antialias_bilinear", PLANE, size=(3, 9), mode="bilinear", antialias=True, sample=True),
    resize("antialias_bicubic", PLANE, size=(2, 4), mode="bicubic", antialias=True),
    resize("antialias_corners", PLANE, size=(3, 2), mode="bilinear", antialias=True, align_corners=True),
    Op("interpolate_half", lambda t: t.interpolate(size=(4, 4), mode="bilinear"), (PLANE.astype(np.float16),),
       lambda t: F.interpolate(t.float(), size=(4, 4), mode="bilinear").half(), rtol=1e-3, atol=1e-3),
    Op("interpolate_bytes", lambda t: t.interpolate(scale_factor=2), (np.uint8([[[[0, 9, 255], [3, 4, 7]]]]),),
       lambda t: F.interpolate(t, scale_factor=2)),
    sample("bilinear", "zeros", False, sample=True),
    sample("bilinear", "border", True),
    sample("bilinear", "reflection", False),
    sample("bilinear", "reflection", True),
    sample("nearest", "zeros", False, sample=True),
    sample("nearest", "border", False),
    sample("bicubic", "zeros", False),
    sample("bicubic", "reflection", True),
    sample("bilinear", "zeros", True, CUBE, GRID3),
    sample("nearest", "reflection", False, CUBE, GRID3),
    Op("affine_grid", lambda t: t.affine_grid((2, 1, 4, 5)), (data(2, 2, 3),),
       lambda t: F.affine_grid(t, [2, 1, 4, 5], align_corners=False), sample=True),
    Op("affine_grid_corners", lambda t: t.affine_grid((1, 1, 2, 1, 3), True), (data(1, 3, 4),),
       lambda t: F.affine_grid(t, [1, 1, 2, 1, 3], align_corners=True)),
    Op("pixel_shuffle", lambda t: t.pixel_shuffle(2), (data(2, 8, 3, 2),), lambda t: F.pixel_shuffle(t, 2),
       sample=True),
    Op("pixel_unshuffle", lambda t: t.pixel_unshuffle(3), (data(2, 6, 9),), lambda t: F.pixel_unshuffle(t, 3)),
    Op("channel_shuffle", lambda t: t.channel_shuffle(2), (PLANE.repeat(2, 1),), lambda t: F.channel_shuffle(t, 2)),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_image_from_bytes() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    got = Tensor.image_from_bytes(pixels.tobytes(), 4, 5)
    np.testing.assert_allclose(got.numpy(), pixels.transpose(2, 0, 1) / np.float32(255), rtol=1e-6)


def test_resize_keeps_the_proportions() -> None:
    x = Tensor(data(3, 8, 12))
    assert x.resize(4).shape == (3, 4, 6) and x[0:1].resize((2, 3)).shape == (1, 2, 3)
    want = F.interpolate(torch.tensor(data(3, 8, 12))[None], size=(5, 4), mode="bilinear", antialias=True)[0]
    np.testing.assert_allclose(x.resize((5, 4)).numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def test_crops() -> None:
    a = data(2, 5, 6)
    x = Tensor(a)
    np.testing.assert_array_equal(x.crop(1, 2, 3, 4).numpy(), a[:, 1:4, 2:6])
    grown = np.pad(a, ((0, 0), (2, 2), (2, 2)))
    np.testing.assert_array_equal(x.crop(-1, 3, 3, 4).numpy(), grown[:, 1:4, 5:9])
    np.testing.assert_array_equal(x.crop(4, -2, 2, 3).numpy(), grown[:, 6:8, 0:3])
    np.testing.assert_array_equal(x.center_crop((3, 2)).numpy(), a[:, 1:4, 2:4])
    np.testing.assert_array_equal(x.center_crop((7, 8)).numpy(), np.pad(a, ((0, 0), (1, 1), (1, 1))))


def test_flips_and_colours() -> None:
    a = data(3, 4, 5)
    x = Tensor(a)
    np.testing.assert_array_equal(x.hflip().numpy(), a[:, :, ::-1])
    np.testing.assert_array_equal(x.vflip().numpy(), a[:, ::-1])
    gray = (a * np.float32([0.299, 0.587, 0.114])[:, None, None]).sum(0, keepdims=True)
    np.testing.assert_allclose(x.rgb_to_grayscale().numpy(), gray, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x.rgb_to_grayscale().grayscale_to_rgb().numpy(), gray.repeat(3, 0), rtol=1e-5, atol=1e-6)
    want = (a - np.float32([0.1, 0.2, 0.3])[:, None, None]) / np.float32([1, 2, 4])[:, None, None]
    np.testing.assert_allclose(x.normalize_channels([0.1, 0.2, 0.3], [1, 2, 4]).numpy(), want, rtol=1e-5, atol=1e-6)


def test_letterbox() -> None:
    x = Tensor.ones(1, 3, 20, 40)
    image, factor, (left, top) = x.letterbox((16, 16))
    assert (factor, left, top) == (0.4, 0, 4)
    got = image.numpy()
    assert got.shape == (1, 3, 16, 16)
    np.testing.assert_allclose(got[:, :, 4:12], 1, rtol=1e-6)
    np.testing.assert_allclose(got[:, :, :4], 114 / 255, rtol=1e-6)
    np.testing.assert_allclose(got[:, :, 12:], 114 / 255, rtol=1e-6)


BOXES = np.float32([[0, 0, 4, 2], [1, 1, 3, 5], [2, 2, 2, 2]])


@pytest.mark.parametrize("to", ["xyxy", "xywh", "cxcywh"])
def test_boxes_survive_every_format(to: str) -> None:
    there = Tensor(BOXES).box_convert("xyxy", to)
    np.testing.assert_allclose(there.box_convert(to, "xyxy").numpy(), BOXES)
    want = {"xyxy": [1, 1, 3, 5], "xywh": [1, 1, 2, 4], "cxcywh": [2, 3, 2, 4]}[to]
    assert there.numpy()[1].tolist() == want
    np.testing.assert_allclose(there.box_convert(to, "cxcywh").numpy()[0], [2, 1, 4, 2])


def test_box_iou() -> None:
    got = Tensor(BOXES).box_iou(Tensor(BOXES[:2])).numpy()
    shared = 2 / (8 + 8 - 2)
    np.testing.assert_allclose(got, [[1, shared], [shared, 1], [0, 0]], rtol=1e-6)
    assert Tensor(BOXES).box_area().numpy().tolist() == [8, 8, 0]


X = Tensor(PLANE)
ERRORS = [
    (lambda: X.interpolate(), "interpolate: give either size or scale_factor"),
    (lambda: X.interpolate(size=(1, 2, 3)), "interpolate: needs one positive number or 2 of them"),
    (lambda: X.interpolate(size=4, mode="cubic"), "interpolate: needs 3 to 5 axes .* 'cubic'"),
    (
        lambda: X.interpolate(size=4, align_corners=True),
        "interpolate: align_corners has no meaning",
    ),
    (lambda: X.interpolate(size=4, antialias=True), "interpolate: antialias needs mode bilinear or bicubic"),
    (lambda: X.grid_sample(Tensor(GRID[:1])), r"grid_sample: \(2, 3, 6, 5\) with grid \(1, 4, 3, 2\)"),
    (lambda: X.grid_sample(Tensor(GRID), "linear"), "grid_sample: mode is bilinear, nearest or"),
    (lambda: Tensor(data(2, 2, 3)).affine_grid((1, 3, 4, 5)), r"affine_grid: \(2, 2, 3\) and size \(1, 3, 4, 5\)"),
    (lambda: X.pixel_shuffle(2), r"pixel_shuffle: needs \(…, C · 2², H, W\), got \(2, 3, 6, 5\)"),
    (lambda: X.pixel_unshuffle(2), "pixel_unshuffle: needs"),
    (lambda: X.channel_shuffle(2), "channel_shuffle: needs"),
    (lambda: Tensor.image_from_bytes(bytes(10), 2, 2), "image_from_bytes: 2 × 2 × 3 pixels take 12 bytes, got 10"),
    (lambda: X.box_area(), r"box_area: needs boxes \(…, 4\)"),
    (lambda: Tensor(BOXES).box_convert("xyxy", "yxyx"), "box_convert: formats are xyxy, xywh, cxcywh"),
    (lambda: X.normalize_channels([0], [1]), "normalize_channels: needs 3 means"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
