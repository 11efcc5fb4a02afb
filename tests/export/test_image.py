"""Bundles of Stable Diffusion: what is written, and that it computes what Python does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from typer.testing import CliRunner

from tests.export.test_function import calls
from tests.models.tiny_diffusion import TEXT_LENGTH, write_tiny_diffusion
from tinyweb.cli import app
from tinyweb.cli.run_image import common_text
from tinyweb.errors import ExportError, TinywebError
from tinyweb.export.image import DEVICE, PARTS, ImageOptions, fit_preview, parse_size, tiled_sizes, write_model
from tinyweb.export.inspect import inspect_site, table
from tinyweb.models.schedulers import SchedulerConfig
from tinyweb.models.stable_diffusion import Source, StableDiffusion

TINYSD = Path(__file__).resolve().parents[2] / "assets" / "models" / "tinysd"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_tiny_diffusion(tmp_path_factory.mktemp("models") / "little", "sd1")
    (made / "tinyweb.json").write_text(json.dumps({"steps": 3, "guidance": 1, "examples": ["a red circle"]}))
    return made


def write(site: Path, source: Source, options: ImageOptions) -> dict[str, Any]:
    site.mkdir()
    sizes = tiled_sizes(source, options)
    manifest, report = write_model(
        site / "model", "little", source, sizes, options, lambda step, done, total: None
    )  # fmt: skip
    held = sum(part["weights"] for part in manifest["bytes"].values())
    assert 0 <= held - report.weights < 1024  # they begin at multiples of a few bytes
    assert {layer.name.split(".")[0] for layer in report.layers} == set(PARTS)
    return manifest


def test_what_is_written(folder: Path, tmp_path: Path) -> None:
    source = Source.open(folder)
    options = ImageOptions(sizes=((16, 48),), tile=32, targets=("webgpu",))
    manifest = write(tmp_path / "site", source, options)
    assert manifest == json.loads((tmp_path / "site" / "model" / "manifest.json").read_text())
    assert (manifest["task"], manifest["parts"]) == ("image", {p: f"{p}/" for p in PARTS})
    image = manifest["image"]
    tall = {"decode": "decode_16x28", "encode": "encode_16x28", "height": 7, "width": 4, "rows": [0, 5], "columns": [0]}
    assert image["sizes"] == [
        {"width": 16, "height": 48, "tiles": tall},
    ]
    vocabulary = source.tokenizer.backend.get_vocab_size()
    ids = {"bos": vocabulary - 2, "eos": vocabulary - 1, "pad": vocabulary - 1}
    assert image["text"] == {"length": TEXT_LENGTH, "width": 64, **ids}
    assert image["latents"] == {"channels": 4, "factor": 4}
    assert SchedulerConfig(**image["scheduler"]) == source.scheduler
    assert image["defaults"] == {"scheduler": "ddim", "steps": 3, "guidance": 1.0, "strength": 0.75}
    assert image["examples"] == ["a red circle"] and image["guidance"] is False and "unet_2" not in image["functions"]
    functions = {part: functions_of(tmp_path / "site", part) for part in PARTS}
    assert functions["unet"].keys() == {"unet_1_16x48"}
    assert functions["vae_decoder"].keys() == {"decode_16x28"}
    shapes = {a["name"]: a["shape"] for f in functions["unet"].values() for a in f["inputs"]}
    assert shapes == {"latents": [1, 4, 12, 4], "timestep": [1], "states": [1, TEXT_LENGTH, 64]}
    output = functions["vae_encoder"]["encode_16x28"]["outputs"]
    assert [(a["name"], a["dtype"], a["shape"]) for a in output] == [(n, "f32", [1, 4, 7, 4]) for n in ("mean", "std")]
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "site" / "model" / "tokenizer.json"))
    assert tokenizer.encode("a red circle").ids == source.tokenizer("a red circle")[:5]
    assert 'from "../assets/tinyweb-image.js"' in (tmp_path / "site" / "model" / "model.js").read_text()
    report = inspect_site(tmp_path / "site", verify=True)
    assert report["verified"] and report["bytes"]["download"] == sum(b["weights"] for b in manifest["bytes"].values())
    assert (
        report["parts"]["unet"]["kernels_per_call"].keys() == functions["unet"].keys() and table(report).row_count > 9
    )


def functions_of(site: Path, part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site / "model" / part / "manifest.json").read_text())["functions"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("quant", ["f32", "q5"])
def test_the_exported_modules_compute_the_same(folder: Path, tmp_path: Path, quant: str) -> None:
    source = Source.open(folder)
    source = replace(source, defaults=replace(source.defaults, guidance=4.0))
    manifest = write(tmp_path / "site", source, ImageOptions(sizes=((16, 16),), quant=quant, targets=("wasm",)))
    model, random = StableDiffusion(source, quant), np.random.default_rng(0)
    ids = np.array([source.tokenizer("a red circle")], np.int32)
    latents = random.standard_normal((1, 4, 4, 4)).astype(np.float32)
    states = np.concatenate([model.encode_prompt(p) for p in ("", "a red circle")])
    image = random.integers(0, 256, (16, 16, 4), dtype=np.uint8)
    time, guidance = np.array([321.0], np.float32), np.array([4.0], np.float32)
    given = {"latents": latents, "timestep": time, "states": states, "guidance": guidance}
    mean, std = model.encode(image)
    for part, name, inputs, wanted in [
        ("text_encoder", "encode", {"ids": ids}, {"states": states[1:]}),
        ("unet", "unet_2_16x16", given, {"output": model.predict(latents, 321.0, states, 4.0)}),
        ("vae_encoder", "encode_16x16", {"image": image}, {"mean": mean, "std": std}),
        ("vae_decoder", "decode_16x16", {"latents": latents}, {}),
    ]:
        (tmp_path / part).mkdir()
        (tmp_path / part / "model").symlink_to(tmp_path / "site" / "model" / part)
        (got,) = calls(tmp_path / part, [(name, inputs)])
        for output, values in wanted.items():
            np.testing.assert_allclose(got[output], values, atol=1e-4)
    assert np.abs(got["image"][:, :, :3].astype(int) - model.decode(latents)).max() <= 1
    assert (got["image"][:, :, 3] == 255).all() and manifest["bytes"]["unet"]["wasm"] > 0


@pytest.mark.slow
def test_previews_resemble_pictures() -> None:
    """Of the embedded model, whose latents keep colours."""
    encoder = Source.open(TINYSD).load_encoder("f32", DEVICE)
    preview = fit_preview(encoder)
    model = StableDiffusion.from_path(TINYSD, "f32")
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[:32], picture[32:, 16:] = (230, 40, 60), (30, 90, 220)
    latents = model.encode(picture)[0][0]
    seen = np.einsum("chw,cr->hwr", latents, np.array(preview["matrix"])) + preview["bias"]
    small = picture.reshape(16, 4, 16, 4, 3).mean((1, 3)) / 255
    assert np.abs(seen - small).mean() < 0.1


def test_refusals(folder: Path, tmp_path: Path) -> None:
    source = Source.open(folder)
    with pytest.raises(ExportError, match="'64y' is no size"):
        parse_size("64y")
    with pytest.raises(TinywebError, match=r"100000×100000 pixels is not possible: sides .* to 4096"):
        tiled_sizes(source, ImageOptions(sizes=(parse_size("100000"),)))
    assert parse_size("512") == (512, 512) and parse_size("768×512") == (768, 512)
    with pytest.raises(TinywebError, match="18×16 pixels is not possible: sides must be multiples of 4"):
        tiled_sizes(source, ImageOptions(sizes=((18, 16),)))
    with pytest.raises(ExportError, match="9 sizes are too many"):
        tiled_sizes(source, ImageOptions(sizes=tuple((16, 4 * n) for n in range(4, 13))))
    with pytest.raises(ExportError, match="Tiles of 8 pixels"):
        tiled_sizes(source, ImageOptions(tile=8))
    for arguments in (["run", "image", str(tmp_path), "x", "-o", str(tmp_path / "a.png")],
                      ["export", "image", str(tmp_path / "none"), "-o", str(tmp_path / "site")]):  # fmt: skip
        ended = CliRunner().invoke(app, arguments)
        assert isinstance(ended.exception, TinywebError) and not (tmp_path / "site").exists()
    settings = {"prompt": "a", "negativePrompt": "b", "steps": 3, "guidance": 5.0, "seed": 1, "width": 8, "height": 4,
                "scheduler": "euler-ancestral", "model": "little", "strength": 0.5}  # fmt: skip
    assert common_text(settings) == (
        "a\nNegative prompt: b\nSteps: 3, Sampler: Euler a, CFG scale: 5, Seed: 1, Size: 8x4, Model: little, "
        "Denoising strength: 0.5"
    )
