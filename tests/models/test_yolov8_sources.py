"""YOLOv8 from checkpoints of every format, against PyTorch; what is no YOLOv8 is refused."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.formats.onnx.file import onnx_model
from tests.models.yolov8_reference import YOLOv8Reference
from tinyweb.errors import ModelFormatError
from tinyweb.models.yolov8 import SCALES, YOLOv8
from tinyweb.tensor import Tensor

CLASSES = 5
IMAGE = np.random.default_rng(0).random((1, 3, 64, 96), np.float32)


def folded(model: YOLOv8Reference) -> dict[str, np.ndarray]:
    """Weights as exporters leave them: norms folded into the convolutions."""
    state = {k: v.double().numpy() for k, v in model.state_dict().items()}
    out = {}
    for name, value in state.items():
        if name.endswith(".conv.weight") and (norm := name.removesuffix("conv.weight") + "bn.") + "weight" in state:
            scale = state[norm + "weight"] / np.sqrt(state[norm + "running_var"] + 1e-3)
            out[name] = (value * scale.reshape(-1, 1, 1, 1)).astype(np.float32)
            bias = state[norm + "bias"] - state[norm + "running_mean"] * scale
            out[name.removesuffix("weight") + "bias"] = bias.astype(np.float32)
        elif ".bn." not in name:
            out[name] = value.astype(np.float32)
    return out


@pytest.fixture(scope="module")
def reference() -> YOLOv8Reference:
    return YOLOv8Reference(*SCALES["n"], CLASSES).randomized()


@pytest.fixture(scope="module")
def files(reference: YOLOv8Reference, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("yolov8")
    torch.save({"epoch": -1, "model": None, "ema": reference, "train_args": {"imgsz": 320}}, folder / "whole.pt")
    half = {k: v.half() if v.is_floating_point() else v for k, v in reference.state_dict().items()}
    torch.save(half, folder / "state.pt")
    save_file({f"model.{k}": v for k, v in reference.state_dict().items()}, folder / "plain.safetensors")
    names = str(reference.names)
    (folder / "folded.onnx").write_bytes(onnx_model(folded(reference), {"names": names, "imgsz": "[96, 128]"}))
    described = folder / "described"
    described.mkdir()
    save_file(reference.state_dict(), described / "model.safetensors")
    depth, width, most = SCALES["n"]
    config = {"depth_multiple": depth, "width_multiple": width, "max_channels": most, "nc": CLASSES,
              "names": list(reference.names.values()), "imgsz": 320}  # fmt: skip
    (described / "config.json").write_text(json.dumps(config))
    return {p.stem: p for p in folder.iterdir()}


@pytest.fixture(scope="module")
def expected(reference: YOLOv8Reference) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        boxes, scores = reference(torch.from_numpy(IMAGE))
    return boxes.numpy(), scores.numpy()


@pytest.mark.parametrize("name", ["whole", "folded"])
def test_parity(name: str, files: dict[str, Path], expected: tuple[np.ndarray, np.ndarray]) -> None:
    """Boxes and scores of all positions within 1e-4 of PyTorch's, relative to the size of what is compared."""
    boxes, scores = YOLOv8.load(files[name])(Tensor(IMAGE))
    boxes.realize(scores)
    np.testing.assert_allclose(boxes.numpy(), expected[0], atol=1e-4 * np.abs(expected[0]).max(), rtol=0)
    np.testing.assert_allclose(scores.numpy(), expected[1], atol=1e-4, rtol=0)


def weights_of(model: YOLOv8) -> list[np.ndarray]:
    layers = [model.stem.conv, model.stage3.m[1][1].conv, model.pool.cv2.conv, *[h.cv3[2] for h in model.heads]]
    return [t.numpy() for layer in layers for t in (layer.weight, layer.bias)]


@pytest.mark.parametrize("name", ["whole", "state", "plain", "folded", "described"])
def test_sources_agree(name: str, files: dict[str, Path]) -> None:
    model, first = YOLOv8.load(files[name]), YOLOv8.load(files["described"])
    assert model.config == first.config
    for got, want in zip(weights_of(model), weights_of(first), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-2 if name == "state" else 1e-6)
    named = name not in ("state", "plain")  # neither of these has a place for names
    assert list(model.labels) == [f"{'kind' if named else 'class'} {i}" for i in range(CLASSES)]
    assert model.size == {"whole": (320, 320), "described": (320, 320), "folded": (96, 128)}.get(name, (640, 640))


def test_a_folder_with_one_checkpoint(files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "best.pt").write_bytes(files["whole"].read_bytes())
    assert YOLOv8.load(tmp_path).labels[0] == "kind 0"
    (tmp_path / "last.pt").write_bytes(b"")
    with pytest.raises(ModelFormatError, match=r"several checkpoints \(best.pt, last.pt\): give the path of one"):
        YOLOv8.load(tmp_path)


@pytest.mark.parametrize("scale", SCALES)
def test_scales_are_told_apart(scale: str) -> None:
    """By the shapes of the weights alone."""
    from tinyweb.formats.tensors import NamedTensors
    from tinyweb.models.yolov8 import YOLOv8Config

    class Shapes(NamedTensors):
        def _values(self, name: str) -> np.ndarray:
            raise AssertionError

    with torch.device("meta"):
        model = YOLOv8Reference(*SCALES[scale], 80)
    shapes = {k: tuple(v.shape) for k, v in model.state_dict().items()}
    assert YOLOv8Config.of_weights(Shapes(Path("x.pt"), shapes)) == YOLOv8Config.of_scale(scale)


def test_refused(files: dict[str, Path], reference: YOLOv8Reference, tmp_path: Path) -> None:
    def refuse(path: Path, message: str) -> None:
        with pytest.raises(ModelFormatError, match=message):
            YOLOv8.load(path)

    refuse(tmp_path / "none.pt", "does not exist: give a model folder or a .pt, .safetensors or .onnx file")
    (tmp_path / "model.tflite").write_bytes(b"x")
    refuse(tmp_path / "model.tflite", "unknown kind")
    torch.save({"fc.weight": torch.zeros(3, 3)}, tmp_path / "other.pt")
    refuse(tmp_path / "other.pt", "is no YOLOv8: it has no model.0.conv.weight")
    state = reference.state_dict()
    torch.save({**state, "model.22.cv4.0.0.conv.weight": torch.zeros(1)}, tmp_path / "task.pt")
    refuse(tmp_path / "task.pt", "YOLO for another task")
    torch.save({**state, "model.0.conv.weight": torch.zeros(24, 3, 3, 3)}, tmp_path / "odd.pt")
    refuse(tmp_path / "odd.pt", "no YOLOv8 of the scales n, s, m, l, x")
    torch.save({**state, "model.0.conv.weight": torch.full((16, 3, 3, 3), float("nan"))}, tmp_path / "nan.pt")
    refuse(tmp_path / "nan.pt", "infinities or NaNs")
    short = copy.copy(state)
    del short["model.9.cv1.bn.running_var"]
    torch.save(short, tmp_path / "short.pt")
    refuse(tmp_path / "short.pt", "has no tensor 'model.9.cv1.bn.running_var'")
