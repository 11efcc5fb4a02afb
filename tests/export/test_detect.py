"""`tinyweb export detect` and `tinyweb run detect`: what is written, and what is refused before any work."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tinyweb.export.detect as export
from tinyweb.cli import main
from tinyweb.errors import ExportError, ModelFormatError
from tinyweb.export.choices import bits
from tinyweb.export.detect import DetectOptions, export_detect, parse_size
from tinyweb.export.detect_report import compare_pictures, matches, overlap
from tinyweb.export.fitting import Misfit, most_exact
from tinyweb.export.profiles import Fit
from tinyweb.export.site import copy_notices
from tinyweb.formats.images import read_image
from tinyweb.models.convnet import RandomWeights, convolution
from tinyweb.models.detection import Detection, Detector, Settings
from tinyweb.models.yolov8 import YOLOv8
from tinyweb.nn.precision import Recipe
from tinyweb.nn.quantize import QuantizedWeight
from tinyweb.nn.state import get_state_dict
from tinyweb.quantization import Report
from tinyweb.quantization.prepare import Made
from tinyweb.quantization.report import lines
from tinyweb.tensor import Tensor

MODEL = Path(__file__).parents[2] / "assets" / "models" / "tinyyolo"


class Corners:
    """A network of no weights: sees four boxes wherever the picture's first pixel is bright."""

    labels = ("dark", "bright")

    def candidates(self, x: Tensor, limit: int) -> tuple[Tensor, Tensor, Tensor]:
        assert x.shape == (1, 3, 32, 64)
        boxes = np.array([[0, 0, 16, 16], [1, 1, 17, 17], [0, 0, 16, 16], [40, 20, 64, 32]], np.float32)
        scores = np.array([0.9, 0.8, 0.7, 0.3], np.float32)
        classes = np.array([1, 1, 0, 1], np.int32)
        return Tensor(boxes), Tensor(scores) * (x[0, 0, 0, 0] > 0.5), Tensor(classes)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the page was built and the network was `Corners`."""

    def page(site: Path, task: str, source: Path) -> None:
        (site / "sw.js").write_text("")
        copy_notices(site, source)

    class Model:
        labels = Corners.labels

        def detector(self, size: tuple[int, int] | None, max_boxes: int) -> Detector:
            return Detector(Corners(), size or (32, 64), Settings(0.2, 0.5), max_boxes)

    monkeypatch.setattr(export, "check_page", lambda task: None)
    monkeypatch.setattr(export, "copy_page", page)
    monkeypatch.setattr(YOLOv8, "load", lambda *_: Model())


def test_what_is_written(built: None, tmp_path: Path) -> None:
    options = DetectOptions(max_boxes=5, targets=("wasm",))
    (tmp_path / "corners").mkdir()
    (tmp_path / "corners/LICENSE").write_text("terms")
    manifest = export_detect(tmp_path / "corners", tmp_path / "site", options)
    assert (tmp_path / "site/model/LICENSE").read_text() == "terms"
    assert manifest == json.loads((tmp_path / "site/model/manifest.json").read_text())
    assert (manifest["task"], manifest["name"]) == ("detect", "corners")
    assert manifest["detect"] == {
        "entry": "detect", "width": 64, "height": 32, "max_boxes": 5, "labels": ["dark", "bright"],
        "defaults": {"confidence": 0.2, "iou": 0.5, "agnostic": False},
    }  # fmt: skip
    ends = manifest["functions"]["detect"]
    shapes = {a["name"]: (a["dtype"], a["shape"]) for a in (*ends["inputs"], *ends["outputs"])}
    assert shapes == {
        "image": ("u8", [32, 64, 4]), "frame": ("f32", [4]), "source": ("f32", [2]), "settings": ("f32", [3]),
        "boxes": ("f32", [5, 4]), "scores": ("f32", [5]), "classes": ("i32", [5]), "count": ("i32", [1]),
    }  # fmt: skip
    loader = (tmp_path / "site/model/model.js").read_text()
    assert 'import { loadDetector } from "../assets/tinyweb-detect.js"' in loader
    assert 'labels: Object.freeze(["dark", "bright"])' in loader
    assert "Promise<Detector>" in (tmp_path / "site/model/model.d.ts").read_text()


def test_what_a_network_lacks_is_named() -> None:
    with pytest.raises(TypeError, match="Detector: object has no `labels`"):
        Detector(object(), (32, 64))


def test_boxes_in_pixels_of_the_picture() -> None:
    """Suppression by class, the way back through the letterbox, clipped to the picture."""
    detector = Detector(Corners(), (32, 64), Settings(0.2, 0.5))
    image = np.full((64, 128, 3), 255, np.uint8)
    found = detector.detect(image)
    assert [(d.label, round(d.score, 3), d.box) for d in found] == [
        ("bright", 0.9, (0, 0, 32, 32)), ("dark", 0.7, (0, 0, 32, 32)), ("bright", 0.3, (80, 40, 128, 64)),
    ]  # fmt: skip
    assert len(detector.detect(image, agnostic=True)) == 2
    assert len(detector.detect(image, confidence=0.5, iou=0.9)) == 3
    assert detector.detect(np.zeros((64, 128, 3), np.uint8)) == []
    # a tall picture lies in the middle, grey to both sides: its first pixel is not the network's
    assert detector.detect(np.full((64, 32, 3), 255, np.uint8)) == []
    # what is transparent is seen in front of white
    glass = np.zeros((64, 128, 4), np.uint8)
    assert len(detector.detect(glass)) == 3
    glass[:, :, 3] = 255
    assert detector.detect(glass) == []


@pytest.mark.parametrize(("text", "size"), [("320", (320, 320)), ("640x384", (384, 640)), ("64×32", (32, 64))])
def test_sizes(text: str, size: tuple[int, int]) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "abc", "x", "1x2x3", "-32", "3.2", "٣٢", "100", "0", "32x31", "999999", "4096"])
def test_sizes_that_cannot_be(text: str) -> None:
    with pytest.raises(ExportError, match=r"is no size: write one number|is not possible: both are multiples of 32"):
        parse_size(text)


def test_a_large_size_is_a_size() -> None:
    with pytest.raises(ExportError, match=r"A size of 100000×100000 is not possible: .* to 2048"):
        parse_size("100000")


def test_refused_before_any_work(built: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(options: DetectOptions, message: str) -> None:
        with pytest.raises(ExportError, match=message):
            export_detect(tmp_path / "x.pt", tmp_path / "site", options)
        assert not (tmp_path / "site").exists()

    refuse(DetectOptions(quant="q7"), "There is no precision 'q7' for detectors: choose one of f32, f16, q8, q6")
    refuse(DetectOptions(profile="toaster"), "there is no profile 'toaster'")
    refuse(DetectOptions(profile="phone", targets=("wasm",)), "--profile phone is a device of another target")
    refuse(DetectOptions(evaluate=tmp_path / "no.png"), r"no\.png is no picture, nor a folder of them")
    refuse(DetectOptions(evaluate=tmp_path), "is no picture, nor a folder of them")
    (tmp_path / "a.png").write_bytes(b"none")
    with pytest.raises(ModelFormatError, match=r"a\.png is no picture that can be read"):
        export_detect(tmp_path / "x.pt", tmp_path / "site", DetectOptions(evaluate=tmp_path))
    refuse(DetectOptions(max_boxes=0), "0 boxes are not possible")
    monkeypatch.undo()
    monkeypatch.setattr(export, "check_page", lambda task: None)
    with pytest.raises(ModelFormatError, match="does not exist: give the path"):
        export_detect(tmp_path / "x.pt", tmp_path / "site")


def test_the_report_of_integers() -> None:
    made = Made()
    model = YOLOv8.load(MODEL, "CPU", Recipe.of("q8").watched(made.watch))
    report = made.report("q8", model)
    assert {layer.kind for layer in report.layers} == {"q8", "f16"}  # small ones stay floats
    assert all(0.001 < layer.error < 0.01 for layer in report.layers if layer.kind == "q8")
    assert len(report.layers) == 63 and report.weights < 0.28 * report.before
    assert report.before == sum(t.nbytes() for t in get_state_dict(YOLOv8.load(MODEL, "CPU")).values())


def test_convolutions_with_integers_compute_with_the_values_they_stand_for() -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((1, 16, 6, 5)).astype(np.float32))
    given = RandomWeights(1), "conv", "bn", (32, 16, 3), 2, 1e-5, None
    plain, integers = convolution(*given), convolution(*given, Recipe.of("q8"))
    assert isinstance(integers.weight, QuantizedWeight)
    values = integers.weight.dense().numpy().reshape(plain.weight.shape)
    wanted = x.conv2d(Tensor(values), plain.bias, 2, 1).numpy()
    np.testing.assert_allclose(integers(x).numpy(), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(wanted, plain(x).numpy(), atol=0.05)


def test_boxes_that_are_found_again(tmp_path: Path) -> None:
    def box(x: float, label: str = "a") -> Detection:
        return Detection(label, 0.5, (x, 0, x + 10, 10))

    assert overlap((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert overlap((0, 0, 1, 1), (2, 2, 3, 3)) == 0 == overlap((1, 1, 1, 1), (1, 1, 1, 1))
    assert matches([box(0), box(1)], [box(0.5)]) == 1  # each once
    assert matches([box(0), box(40), box(80)], [box(2), box(46), box(80, "b")]) == 1
    detector = Detector(Corners(), (32, 64), Settings(0.2, 0.5))
    Image.new("RGB", (64, 32), "white").save(tmp_path / "white.png")
    Image.new("RGB", (64, 32), "black").save(tmp_path / "black.PNG")
    found = compare_pictures(detector, detector, tmp_path, lambda *_: None)
    assert (found["pieces"], found["boxes"], found["agreement"]) == (2, {"f32": 3, "quantised": 3, "same": 3}, 1.0)
    report = Report("q8", 1, 4, [], evaluation=found)
    assert report.fidelity == "the same boxes in 100.0 %"
    assert lines(report)[-1].endswith("3 boxes, with f32 3, of which 3 are the same (100.0 % of both)")


def test_the_most_exact_weights_that_fit() -> None:
    """What is sure not to fit is not tried; what was asked for is the only choice."""
    tried: list[str] = []

    def write(kind: str) -> str:
        tried.append(kind)
        needs = 100 + int(62.5 * bits(kind))
        if needs > 520:
            raise Misfit(Fit("phone", "recent phone", False, needs, 520, "memory"), int(62.5 * bits(kind)))
        return kind

    assert most_exact("m", "phone", None, "f16", write) == "q6"
    assert tried == ["f16", "q6"]
    with pytest.raises(
        ExportError, match="m does not fit on a recent phone with --quant q8: memory: leave out --quant"
    ):
        most_exact("m", "phone", "q8", "f16", write)
    assert most_exact("m", "phone", "q4", "f16", write) == "q4"


class Called:
    """Makes a folder when it is unpickled as Python does."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


def bad_sources(folder: Path) -> dict[str, tuple[bytes, str]]:
    """Names and contents of files that are no detector, and a part of what is said of each."""
    checkpoint, trap = io.BytesIO(), io.BytesIO()
    torch.save({"a": torch.zeros(3)}, checkpoint)
    torch.save({"model": Called(folder / "called")}, trap)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data.pkl", bytes(10_000_000))
    whole = (MODEL / "model.safetensors").read_bytes()
    words = b"These are words, not a model. " * 20
    return {
        "words.pt": (words, "is no PyTorch checkpoint"), "cut.pt": (checkpoint.getvalue()[:-200], "is truncated or"),
        "other.pt": (checkpoint.getvalue(), "is no YOLOv8"), "trap.pt": (trap.getvalue(), "holds no tensors"),
        "raw.pt": (pickle.dumps(Called(folder / "called")), "is no PyTorch checkpoint"),
        "bomb.pt": (archive.getvalue(), "is compressed"), "words.onnx": (words, "is no ONNX model"),
        "words.safetensors": (words, "truncated or no safetensors file"),
        "cut.safetensors": (whole[: len(whole) // 2], "is truncated"),
        "huge.safetensors": (struct.pack("<Q", 1 << 62) + b"{}", "truncated or no safetensors file"),
        "deep.safetensors": (struct.pack("<Q", 100_000) + b"[" * 100_000, "is no safetensors file"),
        "words.txt": (words, "is of an unknown kind"),
    }  # fmt: skip


def test_bad_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, truncated and hostile ones: one sentence and exit code 2; nothing is executed, nothing is left."""
    monkeypatch.setattr(export, "check_page", lambda task: None)
    said = {"none.pt": "does not exist", "empty": "holds neither the config.json", "pipe.pt": "is of an unknown kind"}
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe.pt")  # reading it would wait for ever
    for name, (content, message) in bad_sources(tmp_path).items():
        (tmp_path / name).write_bytes(content)
        said[name] = message
    for name, message in said.items():
        with pytest.raises(SystemExit, match="2"):
            main(["export", "detect", str(tmp_path / name), "-o", str(tmp_path / "site")])
        sentence = capsys.readouterr().err.strip().splitlines()[-1]
        assert sentence.startswith("tinyweb: ") and sentence.endswith(".") and name in sentence and message in sentence
    assert not (tmp_path / "called").exists() and not (tmp_path / "site").exists()


def test_run_detect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Model:
        def detector(self, size: tuple[int, int] | None) -> "Model":
            return self

        def detect(self, image: np.ndarray, confidence: float | None, iou: float | None) -> list[Detection]:
            assert (image.shape, confidence, iou) == ((20, 10, 3), 0.4, None)
            return [Detection("cat", 0.75, (1.0, 2.0, 3.0, 4.5))]

    monkeypatch.setattr(YOLOv8, "load", lambda *_: Model())
    Image.new("RGB", (10, 20)).save(tmp_path / "x.png")
    (tmp_path / "model.pt").touch()
    command = ["run", "detect", str(tmp_path / "model.pt"), str(tmp_path / "x.png"), "--confidence", "0.4"]
    with pytest.raises(SystemExit, match="0"):
        main(command)
    assert capsys.readouterr().out == "cat  0.75  1.0 2.0 3.0 4.5\n"
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["detections"] == [{"label": "cat", "score": 0.75, "box": [1.0, 2.0, 3.0, 4.5]}]
    assert (printed["width"], printed["height"]) == (10, 20)


def test_pictures(tmp_path: Path) -> None:
    turned = Image.new("RGB", (4, 2), (255, 0, 0))
    exif = turned.getexif()
    exif[0x0112] = 6  # the camera was held upright
    turned.save(tmp_path / "turned.jpg", exif=exif)
    assert read_image(tmp_path / "turned.jpg").shape == (4, 2, 3)
    Image.new("L", (3, 2), 7).save(tmp_path / "grey.png")
    assert (read_image(tmp_path / "grey.png") == 7).all()
    half = Image.new("RGBA", (2, 2), (0, 0, 0, 0))
    half.putpixel((0, 0), (10, 20, 30, 51))
    half.save(tmp_path / "half.png")
    assert read_image(tmp_path / "half.png")[0].tolist() == [[206, 208, 210], [255, 255, 255]]
    frames = [Image.new("L", (3, 2), v) for v in (0, 255)]
    frames[0].save(tmp_path / "moves.gif", save_all=True, append_images=frames[1:])
    assert (read_image(tmp_path / "moves.gif") == 0).all()
    (tmp_path / "text.png").write_bytes(b"no picture")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "turned.jpg").read_bytes()[:-200])
    for name, message in {"none.png": "cannot be read: No such file", "text.png": "is no picture that can be read",
                          "cut.jpg": "cut.jpg"}.items():  # fmt: skip
        with pytest.raises(ModelFormatError, match=message):
            read_image(tmp_path / name)
