"""Detection around a network: suppression as published, resampling, boxes in the picture's pixels."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tinyweb.models.detection import Detection, Detector, Settings, letterboxed, resampled, suppress
from tinyweb.models.yolov8 import YOLOv8
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "models" / "tinyyolo"
MOST = 70


@jit
def compiled(*given):
    found = suppress(*given, MOST)
    found[0].realize(*found[1:])
    return list(found)


def greedy(boxes, scores, classes, confidence, iou, agnostic, most):
    """As published: the best that is left is kept, and strikes out what overlaps it."""
    kept: list[int] = []
    for i in range(len(scores)):
        if not scores[i] > confidence:
            continue
        for j in kept:
            if not agnostic and classes[i] != classes[j]:
                continue
            low, high = np.maximum(boxes[i, :2], boxes[j, :2]), np.minimum(boxes[i, 2:], boxes[j, 2:])
            shared = np.maximum(high - low, 0).prod()
            area = (boxes[[i, j], 2:] - boxes[[i, j], :2]).prod(1).sum()
            if shared > np.float32(iou) * (area - shared):
                break
        else:
            kept.append(i)
    return kept[:most]


def check_suppression(boxes, scores, classes, confidence, iou, agnostic):
    asked = np.array([confidence, iou, agnostic], np.float32)
    found = [t.numpy() for t in compiled(*(Tensor(a) for a in (boxes, scores, classes, asked)))]
    kept = greedy(boxes, scores, classes, np.float32(confidence), iou, agnostic, MOST)
    count = int(found[3][0])
    assert count == len(kept)
    for got, expected in zip(found, (boxes, scores, classes)):
        np.testing.assert_array_equal(got[:count], expected[kept])
        assert not got[count:].any()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1), side=st.sampled_from([4, 16, 60, 300]), kinds=st.sampled_from([1, 2, 9]),
    confidence=st.sampled_from([0.0, 0.2, 0.5, 1.0]), iou=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
    agnostic=st.booleans(),
)  # fmt: skip
def test_suppression_is_greedy(seed, side, kinds, confidence, iou, agnostic):
    """Small whole coordinates: overlaps are exact, often exactly the limit, and equal boxes and scores are common."""
    random = np.random.default_rng(seed)
    n = 117
    corner, size = random.integers(0, side, (n, 2)), random.integers(0, 12, (n, 2))
    boxes = np.concatenate([corner, corner + size], 1).astype(np.float32)
    scores = np.sort(random.integers(0, 40, n) / np.float32(40)).astype(np.float32)[::-1].copy()
    check_suppression(boxes, scores, random.integers(0, kinds, n).astype(np.int32), confidence, iou, agnostic)


def test_longest_chain():
    """Each box overlaps its two neighbours: who is kept depends on all before, in every word of candidates."""
    n = 117
    x = np.arange(n, dtype=np.float32) * 4
    boxes = np.stack([x, 0 * x, x + 8, 0 * x + 8], 1)
    scores = np.linspace(0.9, 0.3, n, dtype=np.float32)
    check_suppression(boxes, scores, np.zeros(n, np.int32), 0.25, 0.3, False)


def test_resampled():
    flat = np.full((37, 53, 3), 91, np.uint8)
    assert (resampled(flat, (20, 90)) == 91).all()
    ramp = np.repeat(np.arange(0, 240, 2, dtype=np.uint8)[None, :, None], 3, 0)
    np.testing.assert_allclose(resampled(ramp, (3, 60))[0, 2:-2, 0], np.arange(1, 240, 4)[2:-2], atol=1)
    random = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    for size in ((24, 32), (31, 90)):
        expected = np.asarray(Image.fromarray(random).resize(size[::-1], Image.Resampling.BILINEAR))
        np.testing.assert_allclose(resampled(random, size), expected, atol=1)


def test_letterboxed():
    square, frame = letterboxed(np.full((60, 120, 3), 200, np.uint8), (96, 64))
    assert frame.tolist() == [0, 32, 64, 32]
    assert square.shape == (96, 64, 4)
    assert (square[32:64, :, :3] == 200).all() and not square[:32].any() and not square[64:].any()


@pytest.fixture(scope="module")
def detector() -> Detector:
    return YOLOv8.from_folder(FOLDER).detector()


def test_golden_detections(detector: Detector) -> None:
    """Class by class and score by score what the reference finds, in pixels of its input."""
    golden = json.loads((FOLDER / "golden.json").read_text())
    assert sum(len(known["detections"]) for known in golden["images"].values()) >= 4
    for known in golden["images"].values():
        image = np.asarray(Image.open(FOLDER / known["file"]).convert("RGB"))
        box = known["letterbox"]
        found = detector.detect(image, confidence=golden["conf"], iou=golden["iou"], agnostic=True)
        assert [f.label for f in found] == [k["class"] for k in known["detections"]]
        for f, k in zip(found, known["detections"], strict=True):
            expected = (np.array(k["box"]).reshape(2, 2) - (box["left"], box["top"])) / box["scale"]
            np.testing.assert_allclose(np.array(f.box).reshape(2, 2), expected, atol=1.5)  # resampling differs
            assert f.score == pytest.approx(k["score"], abs=0.02)


def test_held_out_images(detector: Detector) -> None:
    """Of all labelled objects at least nine in ten are found, and nothing else is seen with confidence."""
    total, found = 0, 0
    for name, known in json.loads((FOLDER / "test_images" / "ground_truth.json").read_text())["images"].items():
        seen = detector.detect(np.asarray(Image.open(FOLDER / "test_images" / name)))
        hits = [[o for o in known["objects"] if overlap(d.box, o["box"]) > 0.5] for d in seen]
        total += len(known["objects"])
        found += sum(any(o in near and d.label == o["class"] for near, d in zip(hits, seen)) for o in known["objects"])
        for near, d in zip(hits, seen):
            assert d.score < 0.5 or any(o["class"] == d.label for o in near), (name, d)
    assert found >= 0.9 * total >= 50


def overlap(a, b) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = np.maximum(high - low, 0).prod()
    return float(shared / (np.subtract(a[2:], a[:2]).prod() + np.subtract(b[2:], b[:2]).prod() - shared))


def test_errors(detector: Detector) -> None:
    with pytest.raises(ValueError, match="confidence is a number from 0 to 1, got 2"):
        Settings(confidence=2)
    for wrong in (np.zeros((4, 4, 2), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(ValueError, match="an image is uint8"):
            detector.detect(wrong)


def test_blank_image(detector: Detector) -> None:
    found: list[Detection] = detector.detect(np.full((100, 50), 128, np.uint8))
    assert found == []
