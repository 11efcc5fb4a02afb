"""YOLOv8: the embedded model's golden outputs, and the sizes of its relatives."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tinyweb.models.convnet import RandomWeights
from tinyweb.models.yolov8 import YOLOv8, YOLOv8Config
from tinyweb.tensor import Tensor

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "models" / "tinyyolo"


def test_golden_maps_and_detections() -> None:
    model = YOLOv8.from_folder(FOLDER)
    golden = load_file(FOLDER / "golden.safetensors")
    images = json.loads((FOLDER / "golden.json").read_text())["images"]
    assert len(images) >= 2
    for name in images:
        maps = model.maps(Tensor(golden[f"{name}.input"]))
        maps[0].realize(*maps[1:])
        for i, level in enumerate(maps):
            np.testing.assert_allclose(level.numpy(), golden[f"{name}.head{i}"], atol=1e-3, rtol=0)
        boxes, scores = (t.numpy()[0] for t in model.decode(maps))
        # every detection that non-maximum suppression leaves is the best of its neighbourhood: it is among all boxes
        for *box, score, label in golden[f"{name}.detections"]:
            nearest = np.abs(boxes - box).max(1).argmin()
            np.testing.assert_allclose(boxes[nearest], box, atol=0.01)
            assert scores[nearest, int(label)] == pytest.approx(score, abs=1e-4)


class Recorded(RandomWeights):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, int] = {}

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        self.values[name] = int(np.prod(shape))
        return np.zeros(shape, np.float32) if "conv" in name else np.ones(shape, np.float32)


@pytest.mark.parametrize(("scale", "count"), [("n", 3_157_200), ("s", 11_166_560), ("m", 25_902_640)])
def test_sizes(scale: str, count: int) -> None:
    """Learned values as published, with 80 classes; 16 fixed ones belong to the expectation over bins."""
    weights = Recorded()
    YOLOv8(YOLOv8Config.of_scale(scale), weights)
    learned = sum(n for name, n in weights.values.items() if "running" not in name)
    assert learned + 16 == count


def test_errors() -> None:
    with pytest.raises(ValueError, match="no YOLOv8z: choose one of n, s"):
        YOLOv8.random("z")
    model = YOLOv8(YOLOv8Config(0.01, 0.01, 8, 1), RandomWeights())
    with pytest.raises(ValueError, match=r"multiples of 32, got \(1, 3, 33, 32"):
        model.maps(Tensor.zeros(1, 3, 33, 32))
