"""CLIP and SigLIP against `transformers`, with small random weights."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch.nn.functional import normalize
from transformers import PreTrainedModel

from tests.models.encoder_folders import word_pieces
from tests.models.image_text_folders import MODELS, processor, random_model, write_folder
from tests.samples import slow_unless
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.tokenizer import load_backend
from tinyweb.models import load
from tinyweb.models.encoder.architectures.image_text import read_image_text
from tinyweb.models.image_text import ImageEmbedder, ImageText
from tinyweb.models.preprocessing import Preprocessing

ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-4
WORDS = ["▁the", "▁cat", "▁", "s", "▁photo", "▁of", "▁a", *"abcdefghijklmnopqrstuvwxyz"]
PIECES = [*((t, 0.0) for t in ("[PAD]", "[CLS]", "[SEP]", "[UNK]")), *((w, -len(w) - 0.1) for w in WORDS)]
TEXTS = ["the cat sat", "a tree", "", "query: the cats, the trees, a b c d e f g h i j k"]
RNG = np.random.default_rng(3)
PICTURES = [RNG.integers(0, 256, shape).astype(np.uint8) for shape in
            [(28, 28, 3), (41, 30, 3), (33, 90, 3), (9, 12, 3), (64, 64, 3)]]  # fmt: skip
Made = Callable[[str], tuple[Path, PreTrainedModel]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The folder of a model, and the reference."""

    @cache
    def of(name: str) -> tuple[Path, PreTrainedModel]:
        model = random_model(name)
        return write_folder(tmp_path_factory.mktemp("model"), model), model

    return of


def ids_of(texts: list[str], filled: bool) -> list[list[int]]:
    backend = word_pieces()
    backend.enable_truncation(20)
    rows = [backend.encode(t).ids for t in texts]
    return [r + [0] * (20 - len(r)) for r in rows] if filled else rows


def features(model: PreTrainedModel, kind: str, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Of a whole model or of one tower."""
    with torch.no_grad():
        if hasattr(model, f"get_{kind}_features"):
            found = getattr(model, f"get_{kind}_features")(**inputs)
        else:
            found = model(**inputs)
    for name in (f"{kind}_embeds", "pooler_output"):
        if getattr(found, name, None) is not None:
            found = getattr(found, name)
    return normalize(found)


def wanted_texts(model: PreTrainedModel) -> np.ndarray:
    filled = model.config.model_type.startswith("siglip")
    rows = [features(model, "text", {"input_ids": torch.tensor([row])}) for row in ids_of(TEXTS, filled)]
    return torch.cat(rows).numpy()


def wanted_pictures(model: PreTrainedModel, **changes: Any) -> np.ndarray:
    # of transparent or grey pictures the processor makes three colours by itself
    pixels = processor(model, **changes)(PICTURES, return_tensors="pt")["pixel_values"]
    return features(model, "image", {"pixel_values": pixels}).numpy()


def check(folder: Path, reference: PreTrainedModel, device: str | None = None) -> Any:
    model = load(folder, device=device)
    if not isinstance(model, ImageEmbedder):
        got = model.encode(TEXTS)
        assert got.dtype == np.float32 and got.shape == (4, model.dimensions)
        np.testing.assert_allclose(got, wanted_texts(reference), atol=TOLERANCE)
    if isinstance(model, ImageEmbedder) or model.images is not None:
        got = model.encode_images(PICTURES)
        assert got.dtype == np.float32 and got.shape == (5, model.dimensions)
        np.testing.assert_allclose(got, wanted_pictures(reference), atol=TOLERANCE)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_against_transformers(made: Made, name: str) -> None:
    folder, reference = made(name)
    model = check(folder, reference)
    towers = [getattr(model, part, None) for part in ("model", "images")]
    count = sum(t.model.load.count if isinstance(t, ImageEmbedder) else t.load.count for t in towers if t is not None)
    numbers = sum(p.numel() for n, p in reference.named_parameters() if not n.startswith("logit_"))
    assert count == numbers


@pytest.mark.parametrize(
    ("name", "device"),
    slow_unless(
        lambda name, device: (name, device) in (("CLIP", "WASM"), ("SigLIP", "WEBGPU")),
        ("CLIP", "SigLIP"),
        ("WASM", "WEBGPU"),
    ),
)
def test_devices(made: Made, name: str, device: str) -> None:
    check(*made(name), device)


@pytest.mark.parametrize("name", ["CLIP", "SigLIP"])
def test_logits(made: Made, name: str) -> None:
    """Scaled as in training."""
    folder, reference = made(name)
    model = load(folder)
    assert isinstance(model, ImageText)
    filled = name == "SigLIP"
    pixels = processor(reference)(PICTURES, return_tensors="pt")["pixel_values"]
    got = model.logits(model.encode(TEXTS), model.encode_images(PICTURES))
    for i, row in enumerate(ids_of(TEXTS, filled)):
        with torch.no_grad():
            want = reference(input_ids=torch.tensor([row]), pixel_values=pixels).logits_per_text[0].numpy()
        np.testing.assert_allclose(got[i], want, atol=TOLERANCE)
    assert model.logit_scale != 1 and (model.logit_bias != 0) == filled


PREPROCESSING: list[dict[str, Any]] = [
    {"size": {"shortest_edge": 40}, "resample": 2},
    {"size": {"shortest_edge": 35}, "resample": 1, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]},
    {"size": {"height": 32, "width": 32}, "do_center_crop": False, "rescale_factor": 1 / 128},
]


@pytest.mark.parametrize("changes", PREPROCESSING)
def test_preprocessing(changes: dict[str, Any], made: Made, tmp_path: Path) -> None:
    _, reference = made("CLIP")
    got = load(write_folder(tmp_path, reference, **changes)).encode_images(PICTURES)
    np.testing.assert_allclose(got, wanted_pictures(reference, **changes), atol=TOLERANCE)


@pytest.mark.parametrize("name", ["CLIP", "SigLIP"])
def test_without_a_file_pictures_go_through_what_is_usual(name: str, made: Made, tmp_path: Path) -> None:
    _, reference = made(name)
    write_folder(tmp_path, reference)
    (tmp_path / "preprocessor_config.json").unlink()
    np.testing.assert_allclose(load(tmp_path).encode_images(PICTURES), wanted_pictures(reference), atol=TOLERANCE)
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": {"resample": 9}}))
    with pytest.raises(ModelFormatError, match="'resample' must be"):
        load(tmp_path)


def test_the_page_scales_pictures_alike() -> None:
    """What the page's own test compares with (web/runtime/test/embed-picture.test.ts): bytes of Pillow's, and ours."""
    path = ROOT / "web" / "runtime" / "test" / "fixtures" / "resampled.json"
    for case in json.loads(path.read_text()):
        height, width, size, shortest, name = (case[k] for k in ("height", "width", "size", "shortest", "filter"))
        i = np.arange(height * width * 4)
        pixels = ((i * i * 31 + i * 7) % 256).astype(np.uint8).reshape(height, width, 4)[..., :3]
        preprocessing = Preprocessing(size, shortest, name, 1 / 255, (0.0,) * 3, (1.0,) * 3)
        ours = preprocessing(pixels)
        high, wide = preprocessing.scaled(height, width)
        number = {"lanczos": 1, "bilinear": 2, "bicubic": 3}[name]
        theirs = np.asarray(Image.fromarray(pixels).resize((wide, high), number))
        top, left = (high - size) // 2, (wide - size) // 2
        np.testing.assert_array_equal(ours, theirs[top : top + size, left : left + size])
        assert base64.b64decode(case["bytes"]) == ours.tobytes()


@pytest.mark.parametrize("kind", ["CLIP", "DeBERTa"])
def test_ids_of_the_page(kind: str, tmp_path: Path) -> None:
    """The page's tokenizer reads texts as Python's does."""
    tokenizer = (
        transformers.CLIPTokenizer.from_pretrained(ROOT / "assets" / "models" / "tinysd" / "tokenizer")
        if kind == "CLIP"
        else transformers.DebertaV2Tokenizer(vocab=PIECES, unk_id=3)
    )
    tokenizer.save_pretrained(tmp_path)
    texts = ["a photo of a cat", "A PHOTO,  of two cats!! 123", "it's the dog's café ü", "", "a\n\tnaïve 中文 🙂"]
    backend = load_backend(tmp_path / "tokenizer.json")
    backend.no_truncation()
    backend.no_padding()
    files = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("tokenizer", "tokenizer_config")]
    asked = json.dumps([{"json": files[0], "config": files[1], "texts": texts}])
    script = ROOT / "tests" / "formats" / "gguf" / "page_ids.mjs"
    done = subprocess.run(["node", script], input=asked, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    want = [backend.encode(text, add_special_tokens=False).ids for text in texts]
    assert [ids for ids, _ in json.loads(done.stdout)[0]] == want


def test_pictures_of_other_kinds(made: Made) -> None:
    model = load(made("CLIP")[0])
    grey = PICTURES[1][..., 0]
    want = model.encode_images([np.repeat(grey[..., None], 3, -1)])
    np.testing.assert_array_equal(model.encode_images([grey]), want)
    np.testing.assert_array_equal(model.encode_images([Image.fromarray(grey)]), want)
    assert model.encode_images([]).shape == (0, 24)
    for wrong in (PICTURES[0].astype(np.float32), PICTURES[0][..., :2], np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(ValueError, match="a picture is uint8 of shape"):
            model.encode_images([wrong])
    with pytest.raises(ValueError, match="too long for its width"):
        model.encode_images([np.zeros((1, 3000, 3), np.uint8)])


def test_what_fills_texts_is_told_by_the_tokenizer(made: Made, tmp_path: Path) -> None:
    folder, _ = made("SigLIP")
    assert load(folder).pad == 0
    for name in ("config.json", "model.safetensors", "preprocessor_config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": {"content": "[SEP]"}}')
    assert load(tmp_path).pad == 3
    backend = word_pieces()
    backend.enable_padding(pad_id=1, pad_token="[UNK]")
    backend.save(str(tmp_path / "tokenizer.json"))
    found = load(tmp_path)
    assert found.pad == 1 and found.tokens(["a"])[0][3:] == [1] * 17
    backend.enable_padding(pad_id=64, pad_token="[UNK]")
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelFormatError, match="filled with token 64, the model has 64"):
        load(tmp_path)
    with pytest.raises(TinywebError, match="allows 20 only"):
        load(tmp_path, context=10)


def test_precisions(made: Made) -> None:
    folder, _ = made("CLIP")
    want = load(folder, "f32").encode_images(PICTURES)
    errors = [float(np.abs(load(folder, q).encode_images(PICTURES) - want).mean()) for q in ("f16", "q8")]
    assert 0 < errors[0] < 1e-3 < 0.02 > errors[1]


def test_fields_that_files_leave_out() -> None:
    """Those of the models first published."""
    clip = read_image_text(Config({"architectures": ["CLIPModel"]}, "config.json"))
    assert clip.text is not None and clip.image is not None
    assert (clip.width, clip.text.hidden_size, clip.image.positions, clip.end) == (512, 512, 50, 49407)
    given = {"model_type": "siglip", "vision_config": {"image_size": 384}, "text_config": {"vocab_size": 256000}}
    siglip = read_image_text(Config(given, "config.json"))
    assert siglip.text is not None and siglip.image is not None
    assert (siglip.width, siglip.text.vocab_size, siglip.image.positions) == (768, 256000, 576)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["AltCLIPModel"]}, "names no model of texts and pictures; known: CLIPModel"),
    ({"vision_config": {"patch_size": 300}}, "'patch_size' 300 is more than 'image_size' 224"),
    ({"vision_config": {"image_size": [224, 112]}}, "'image_size' must be an integer"),
    ({"vision_config": {"num_channels": 1}}, "'num_channels' '1' is not supported, only 3"),
    ({"text_config": {"eos_token_id": [1, 5]}}, "'eos_token_id' must be one token"),
    ({"text_config": {"num_attention_heads": 7}}, "multiple of"),
    ({"architectures": ["SiglipModel"], "text_config": {"projection_size": 5}}, "numbers"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        read_image_text(Config({"architectures": ["CLIPModel"], **changes}, "config.json"))


def test_preprocessing_that_is_refused(made: Made, tmp_path: Path) -> None:
    folder, _ = made("CLIP")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    for values, message in [
        ({"do_resize": False}, "'do_resize' false"),
        ({"size": {"shortest_edge": 16}}, "'crop_size' is larger"),
        ({"size": {"height": 16, "width": 32}}, "only squares"),
        ({"size": {"shortest_edge": 32}, "crop_size": 16}, "get 16 pixels a side, but the network reads 32"),
        ({"size": {"shortest_edge": 32}, "do_center_crop": False}, "not cut to squares"),
        ({"resample": 0}, "'resample' 0 is not supported; known: 1 \\(lanczos\\)"),
        ({"image_std": [0, 1, 1]}, "'image_std' must be a number"),
        ({"image_mean": [0.5]}, "3 numbers"),
        ({"size": "large"}, "'size' must be an object"),
    ]:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(values))
        with pytest.raises(ModelFormatError, match=message):
            load(tmp_path)


def test_towers_alone(made: Made) -> None:
    with pytest.raises(TinywebError, match="the tower of texts only"):
        load(made("CLIP, texts")[0]).encode_images(PICTURES)
