"""Detector, painter and search on GPUs, a little of each: the numbers that the models' own files promise."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file
from transformers import AutoModel, AutoTokenizer

from tinyweb.models.embedding import Embedder
from tinyweb.models.stable_diffusion import StableDiffusion
from tinyweb.models.yolov8 import YOLOv8

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"


def relative(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, as a share of the largest value."""
    assert got.shape == wanted.shape
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("device", [pytest.param("WEBGPU", marks=pytest.mark.slow), "OPENCL"])
def test_one_picture_is_seen_as_the_reference_sees_it(device: str) -> None:
    golden = json.loads((MODELS / "tinyyolo/golden.json").read_text())
    known = max(golden["images"].values(), key=lambda k: len(k["detections"]))
    image = np.asarray(Image.open(MODELS / "tinyyolo" / known["file"]).convert("RGB"))
    detector = YOLOv8.from_folder(MODELS / "tinyyolo", device=device).detector()
    found = detector.detect(image, confidence=golden["conf"], iou=golden["iou"], agnostic=True)
    assert len(found) >= 2 and [f.label for f in found] == [k["class"] for k in known["detections"]]
    frame = known["letterbox"]
    for f, k in zip(found, known["detections"], strict=True):
        expected = (np.array(k["box"]).reshape(2, 2) - (frame["left"], frame["top"])) / frame["scale"]
        np.testing.assert_allclose(np.array(f.box).reshape(2, 2), expected, atol=1.5)  # resampling differs
        assert f.score == pytest.approx(k["score"], abs=0.02)


@pytest.mark.parametrize("device", ["WEBGPU", pytest.param("OPENCL", marks=pytest.mark.slow)])
def test_the_first_step_of_a_picture(device: str) -> None:
    """What diffusers computes with the same weights: embedding of the prompt, and one step of the UNet."""
    golden = load_file(MODELS / "tinysd/golden.safetensors")
    told = json.loads((MODELS / "tinysd/golden.json").read_text())
    model = StableDiffusion.from_path(MODELS / "tinysd", device=device)
    states = model.encode_prompt(told["prompt"])
    assert relative(states, golden["text_embeddings"]) < 1e-3
    step = model.predict(golden["latents"], float(told["timesteps"][0]), states)
    assert relative(step, golden["unet_cond"]) < 1e-3


@pytest.mark.parametrize("device", ["WEBGPU", pytest.param("OPENCL", marks=pytest.mark.slow)])
def test_the_same_vectors_as_transformers(device: str) -> None:
    texts = ["Leaves turn light into sugar.", "where do trains run", "Plants make food from sunshine."]
    folder = MODELS / "tinyembed"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).float().eval()
    read = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**read).last_hidden_state
    mask = read["attention_mask"].unsqueeze(-1)
    want = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).numpy()
    got = Embedder.from_folder(folder, device=device).encode(texts)
    np.testing.assert_allclose(got, want, atol=1e-4)
    assert got[0] @ got[2] > got[0] @ got[1]  # what it is for
