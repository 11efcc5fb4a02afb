"""Stable Diffusion against `diffusers` and `transformers`, on small random weights and from every layout of files."""

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusers.loaders import single_file_utils
from safetensors.numpy import load_file, save_file
from transformers import CLIPTextModel

from tests.models.tiny_diffusion import TEXT_LENGTH, write_tiny_diffusion
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.models.schedulers import latent_noise
from tinyweb.models.stable_diffusion import Source, StableDiffusion
from tinyweb.models.stable_diffusion.original import (
    CLIP,
    OPEN_CLIP,
    UNET,
    VAE,
    _open_clip_place,
    open_original,
    unet_config,
    vae_config,
)
from tinyweb.models.stable_diffusion.tiles import blend, plan_tiles
from tinyweb.nn.quantize import QuantizedWeight
from tinyweb.tensor import Tensor

diffusers.utils.logging.set_verbosity_error()
STEMS = {"text_encoder": "model", "unet": "diffusion_pytorch_model", "vae": "diffusion_pytorch_model"}
PROMPT, NEGATIVE = "a red circle's 12 cats, of the BLUE square on left", "blue"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder of a kind of tiny model."""
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = write_tiny_diffusion(tmp_path_factory.mktemp("diffusion") / kind, kind)
        return made[kind]

    return folder


def close(got: Tensor | np.ndarray, wanted: torch.Tensor) -> None:
    """Within 1e-4 of the largest value."""
    values = got.numpy() if isinstance(got, Tensor) else got
    assert values.shape == tuple(wanted.shape)
    assert np.abs(values - wanted.numpy()).max() <= 1e-4 * max(1.0, float(wanted.abs().max()))


@torch.no_grad()
def test_parts_of_a_second_generation(tiny: Callable[[str], Path]) -> None:
    """Linear projections, heads by level, gelu; a map whose sides are odd on the way down."""
    folder, random = tiny("sd2"), np.random.default_rng(0)
    source = Source.open(folder)
    assert source.scheduler.prediction_type == "v_prediction"

    judge = CLIPTextModel.from_pretrained(folder / "text_encoder", dtype=torch.float32)
    ids = random.integers(0, source.text.vocab_size, (2, TEXT_LENGTH)).astype(np.int32)
    close(source.load_text_encoder()(Tensor(ids)), judge(torch.from_numpy(ids).long()).last_hidden_state)

    unet = diffusers.UNet2DConditionModel.from_pretrained(folder / "unet")
    x = random.standard_normal((2, 4, 7, 9)).astype(np.float32)
    states = random.standard_normal((2, TEXT_LENGTH, source.text.hidden_size)).astype(np.float32)
    wanted = unet(torch.from_numpy(x), 731.25, torch.from_numpy(states)).sample
    close(source.load_unet()(Tensor(x), Tensor([731.25]), Tensor(states)), wanted)


@torch.no_grad()
def test_autoencoder(tiny: Callable[[str], Path]) -> None:
    source, random = Source.open(tiny("sd1")), np.random.default_rng(1)
    judge = diffusers.AutoencoderKL.from_pretrained(tiny("sd1") / "vae")
    scale = judge.config.scaling_factor
    picture = random.uniform(-1, 1, (1, 3, 32, 32)).astype(np.float32)
    wanted = judge.encode(torch.from_numpy(picture)).latent_dist
    mean, std = source.load_encoder()(Tensor(picture))
    close(mean, wanted.mean * scale)
    close(std, wanted.std * scale)
    latents = random.standard_normal((1, 4, 8, 8)).astype(np.float32)
    close(source.load_decoder()(Tensor(latents)), judge.decode(torch.from_numpy(latents) / scale).sample)


def test_pictures(tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole pipeline, from a prompt and from a start image, with guidance: within half a step of a pixel."""
    model = StableDiffusion.from_path(tiny("sd1"))
    parts = diffusers.StableDiffusionPipeline.from_pretrained(tiny("sd1"), safety_checker=None).components
    parts["scheduler"] = diffusers.DDIMScheduler.from_config(parts["scheduler"].config)
    seen: list[tuple[int, int]] = []
    got = model.generate(
        PROMPT, NEGATIVE, 4, 5.0, seed=3, width=32, height=32, scheduler="ddim",
        on_step=lambda done, steps, latents: seen.append((done, steps)),
    )  # fmt: skip
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    judge: Any = diffusers.StableDiffusionPipeline(**parts, requires_safety_checker=False)
    judge.set_progress_bar_config(disable=True)
    settings = {"negative_prompt": NEGATIVE, "num_inference_steps": 4, "guidance_scale": 5.0, "output_type": "np"}
    noise = torch.from_numpy(latent_noise(3, (1, 4, 8, 8), 0))
    wanted = judge(PROMPT, latents=noise, width=32, height=32, **settings).images[0]
    assert np.abs(got / 255 - wanted).max() < 0.5 / 255 + 1e-4
    assert np.array_equal(got, model.generate(PROMPT, NEGATIVE, 4, 5.0, 3, 32, 32, "ddim"))

    start = np.random.default_rng(2).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    again = model.generate(PROMPT, NEGATIVE, 4, 5.0, seed=3, scheduler="ddim", image=start, strength=0.5)
    judge = diffusers.StableDiffusionImg2ImgPipeline(**parts, requires_safety_checker=False)
    judge.set_progress_bar_config(disable=True)
    module = "diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion_img2img.randn_tensor"
    monkeypatch.setattr(module, lambda *_, **__: noise)
    latents = torch.from_numpy(model.encode(start)[0])  # its mean; the pipeline would draw from around it
    wanted = judge(PROMPT, image=latents, strength=0.5, **settings).images[0]
    assert np.abs(again / 255 - wanted).max() < 0.5 / 255 + 1e-4
    assert np.abs(again.astype(int) - got).max() > 2

    plain = model.generate(
        PROMPT, NEGATIVE, 2, 1.0, seed=3, scheduler="euler"
    )  # without guidance: one prompt at a time
    assert np.array_equal(plain, model.generate(PROMPT, "", 2, 0.0, seed=3, scheduler="euler"))


def test_prompts(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    """Ids are those of `transformers`, from vocab.json and from tokenizer.json."""
    from transformers import CLIPTokenizer

    for kind in ("sd1", "sd2"):
        folder = tiny(kind) / "tokenizer"
        ours, judge = Source.open(tiny(kind)).tokenizer, CLIPTokenizer.from_pretrained(folder)
        shutil.copytree(folder, tmp_path / kind)
        ours.backend.save(str(tmp_path / kind / "tokenizer.json"))
        again = type(ours).from_folder(tmp_path / kind, TEXT_LENGTH)
        for prompt in ("", "Red  CATS", "a cat's blue\nsquare, 123!!", "é ünï 猫 🙂", "cat " * 40):
            wanted = judge(prompt, padding="max_length", max_length=TEXT_LENGTH, truncation=True).input_ids
            assert ours(prompt) == wanted == again(prompt), prompt
        assert ours("<|endoftext|> x") == again("<|endoftext|> x")  # text, unlike in transformers


@pytest.mark.parametrize("kind", ["sd1", "sd2"])
def test_original_layout(tiny: Callable[[str], Path], kind: str, tmp_path: Path) -> None:
    """A single file gives the weights of the folder it was made of; diffusers' converters say the same of it."""
    folder = tiny(kind)
    path = write_original(folder, tmp_path / ("v2-1_768.safetensors" if kind == "sd2" else "v1.safetensors"))
    source, same = Source.open(path, folder / "tokenizer"), Source.open(folder)
    assert source.unet == type(same.unet)(**{**vars(same.unet), "sample_size": 64})
    assert (source.text, source.vae) == (same.text, same.vae)
    assert source.scheduler.prediction_type == same.scheduler.prediction_type
    for part, stem in (
        ("unet", "diffusion_pytorch_model"),
        ("vae", "diffusion_pytorch_model"),
        ("text_encoder", "model"),
    ):
        for name, values in load_file(folder / part / f"{stem}.safetensors").items():
            np.testing.assert_array_equal(source.weights[part].read(name, values.shape), values)
    whole = {n: torch.from_numpy(v) for n, v in load_file(path).items()}
    config = {"layers_per_block": 1, "class_embed_type": None, "addition_embed_type": None,
              "down_block_types": ["", ""], "up_block_types": ["", ""]}  # fmt: skip
    converted = single_file_utils.convert_ldm_unet_checkpoint(dict(whole), config)
    judged = load_file(folder / "unet" / "diffusion_pytorch_model.safetensors")
    assert converted.keys() == judged.keys()
    assert all(np.array_equal(converted[n].numpy(), judged[n]) for n in judged)
    config = {"down_block_types": [""] * 3, "up_block_types": [""] * 3}
    converted = single_file_utils.convert_ldm_vae_checkpoint(dict(whole), config)
    judged = load_file(folder / "vae" / "diffusion_pytorch_model.safetensors")
    assert converted.keys() == judged.keys()
    assert all(np.array_equal(converted[n].numpy().squeeze(), judged[n].squeeze()) for n in judged)
    if kind == "sd2":
        text = CLIPTextModel.from_pretrained(folder / "text_encoder")
        text.config.num_hidden_layers = 2
        converted = single_file_utils.convert_open_clip_checkpoint(text, dict(whole), prefix=OPEN_CLIP)
        judged = load_file(folder / "text_encoder" / "model.safetensors")
        for name, values in converted.items():
            key = name if name.startswith("text_model.") else f"text_model.{name}"
            if key in judged:
                np.testing.assert_array_equal(values.numpy(), judged[key], err_msg=name)


def write_original(folder: Path, path: Path) -> Path:
    """The model of a folder as one file with its authors' names."""
    values = {part: load_file(folder / part / f"{stem}.safetensors") for part, stem in STEMS.items()}
    source = Source.open(folder)
    second = source.text.hidden_act == "gelu"
    written: dict[str, np.ndarray] = {}
    for name, array in values["text_encoder"].items():
        stored, third = _open_clip_place(name) if second else (CLIP + name, None)
        if third is not None:
            whole = written.setdefault(stored, np.empty((3, *array.shape), np.float32))
            whole[third] = array
            continue
        written[stored] = array
    written = {n: v.reshape(-1, *v.shape[2:]) if "in_proj" in n else v for n, v in written.items()}
    if second:  # the last layer, which is not used
        last = f"{OPEN_CLIP}transformer.resblocks."
        written |= {n.replace(f"{last}1.", f"{last}2."): v + 1 for n, v in written.items() if f"{last}1." in n}
    places = original_places(folder)
    for part in ("unet", "vae"):
        for name, array in values[part].items():
            stored = places[part](name)[0]
            pixels = "attn_1." in stored and array.ndim == 2  # there they are convolutions
            written[stored] = array.reshape(*array.shape, 1, 1) if pixels else array
    save_file({n: np.ascontiguousarray(v) for n, v in written.items()}, path)
    return path


def original_places(folder: Path) -> dict[str, Any]:
    from tinyweb.models.stable_diffusion import original

    class Encoder:
        """What `_vae_places` asks of a checkpoint."""

        levels = json.loads((folder / "vae" / "config.json").read_text())["block_out_channels"]

        def __contains__(self, name: str) -> bool:
            return any(name == f"{VAE}encoder.down.{i}.block.0.conv1.weight" for i in range(len(self.levels)))

        def entry(self, name: str) -> Any:
            return type("Entry", (), {"shape": (32, 4)})

    vae = original._vae_places(Encoder())  # type: ignore[arg-type]
    return {"unet": original._unet_places(Source.open(folder).unet), "vae": vae}


def test_half_floats_and_old_names(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    folder = write_tiny_diffusion(tmp_path / "half", "sd1", half=True)
    assert (folder / "unet" / "diffusion_pytorch_model.fp16.safetensors").is_file()
    vae = folder / "vae" / "diffusion_pytorch_model.fp16.safetensors"
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    renamed = load_file(vae)
    for new, before in old.items():
        renamed = {n.replace(f".{new}.", f".{before}."): v for n, v in renamed.items()}
    save_file(renamed, vae)
    half, full = Source.open(folder), Source.open(tiny("sd1"))
    name, shape = "decoder.mid_block.attentions.0.to_out.0.weight", (64, 64)
    np.testing.assert_allclose(half.weights["vae"].read(name, shape), full.weights["vae"].read(name, shape), atol=1e-3)
    assert half.load_decoder().conv_in.weight.dtype.short == "f16"
    assert half.load_decoder("f32").conv_in.weight.dtype.short == "f32"


@pytest.mark.slow
@pytest.mark.parametrize(("quant", "most"), [("q8", 0.03), ("q5", 0.2)])
def test_quantised(tiny: Callable[[str], Path], quant: str, most: float) -> None:
    source, random = Source.open(tiny("sd1")), np.random.default_rng(4)
    unet = source.load_unet(quant)
    assert isinstance(unet.down_blocks[0].resnets[0].conv1.weight, QuantizedWeight)
    x, states = (random.standard_normal(s).astype(np.float32) for s in ((1, 4, 8, 8), (1, TEXT_LENGTH, 64)))
    given = (Tensor(x), Tensor([400.0]), Tensor(states))
    exact = source.load_unet("f32")(*given).numpy()
    error = np.abs(unet(*given).numpy() - exact).mean() / np.abs(exact).mean()
    assert 1e-5 < error < most


def test_tiles() -> None:
    for size in range(1, 200, 3):
        for largest, overlap in ((40, 8), (16, 2), (5, 2)):
            tiles = plan_tiles(size, 7, largest, overlap)
            starts, tile = tiles.rows, tiles.height
            assert tile <= largest and starts[0] == 0 and starts[-1] + tile == size
            assert all(a + tile - b >= min(overlap, tile) for a, b in pairwise(starts))
            assert size <= largest or len(starts) > 1
    assert plan_tiles(64, 64, 40, 8).rows == (0, 28) and plan_tiles(64, 64, 40, 8).height == 36
    picture = np.random.default_rng(0).integers(0, 255, (2 * 50, 2 * 23, 3)).astype(np.uint8)
    tiles = plan_tiles(50, 23, 20, 4)

    def cut(row: int, column: int) -> np.ndarray:
        return picture[2 * row : 2 * (row + tiles.height), 2 * column : 2 * (column + tiles.width)]

    np.testing.assert_allclose(blend(tiles, 2, cut), picture, atol=1e-3)


def test_large_pictures_go_through_in_tiles(tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Away from its seams a tiled picture differs from one that is not only by the norms' statistics."""
    from tinyweb.models.stable_diffusion import pipeline

    monkeypatch.setattr(pipeline, "tile_limits", lambda factor: (8, 2))
    model = StableDiffusion.from_path(tiny("sd1"))
    latents = latent_noise(1, (1, 4, 14, 8), 0)
    tiled = model.decode(latents).astype(int)
    assert tiled.shape == (56, 32, 3)
    top = model.decode(np.ascontiguousarray(latents[:, :, :8])).astype(int)
    assert np.array_equal(tiled[:24], top[:24])  # before the overlap, the first tile alone
    mean, std = model.encode(tiled.astype(np.uint8))
    assert mean.shape == std.shape == (1, 4, 14, 8)


def test_refusals(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    def changed(part: str, **fields: Any) -> Path:
        folder = tmp_path / f"{part}{len(list(tmp_path.iterdir()))}"
        shutil.copytree(tiny("sd1"), folder)
        config = folder / part / ("scheduler_config.json" if part == "scheduler" else "config.json")
        config.write_text(json.dumps(json.loads(config.read_text()) | fields))
        return folder

    for folder, kind, text in [
        (tmp_path / "none", ModelFormatError, "none does not exist: give a model folder"),
        (changed("unet", addition_embed_type="text_time"), NotImplementedError, "'addition_embed_type' 'text_time'"),
        (changed("unet", block_out_channels=[32, 65]), ModelFormatError, "65 channels do not divide into 32 groups"),
        (changed("unet", cross_attention_dim=96), ModelFormatError, "states of width 64, the UNet takes 96"),
        (changed("unet", in_channels=9), NotImplementedError, "9 to 4 channels on latents of 4"),
        (changed("unet", down_block_types=["AttnDownBlock2D"] * 2), NotImplementedError, "'AttnDownBlock2D'"),
        (changed("vae", shift_factor=0.1), NotImplementedError, "'shift_factor' '0.1'"),
        (changed("vae", block_out_channels=[33]), NotImplementedError, "must be DownEncoderBlock2D for each of 1"),
        (changed("text_encoder", hidden_act="relu"), ModelFormatError, "must be quick_gelu or gelu, found 'relu'"),
        (changed("text_encoder", vocab_size=100), ModelFormatError, "the tokenizer has 538 tokens"),
        (changed("scheduler", thresholding=True), NotImplementedError, "'thresholding' 'True'"),
    ]:
        with pytest.raises(kind, match=text):
            Source.open(folder)
    with pytest.raises(ModelFormatError, match=r"'conv_in.weight' has shape \(32, 4, 3, 3\), config.json makes"):
        Source.open(changed("unet", block_out_channels=[64, 64])).load_unet()
    source = Source.open(changed("unet", layers_per_block=2))
    with pytest.raises(ModelFormatError, match=r"has no tensor 'down_blocks.0.resnets.1.norm1.weight'"):
        source.load_unet()
    path = tmp_path / "other.safetensors"
    save_file({"x": np.zeros(1, np.float32)}, path)
    with pytest.raises(ModelFormatError, match=r"is no Stable Diffusion checkpoint: it has no tensor 'model.diff"):
        Source.open(path)
    write_original(tiny("sd1"), path)
    with pytest.raises(ModelFormatError, match="holds no tokenizer, and there is none beside it"):
        Source.open(path)
    with pytest.raises(ModelFormatError, match=r"no .safetensors file: other checkpoints may hold code"):
        Source.open(shutil.copyfile(path, tmp_path / "model.ckpt"))
    model = StableDiffusion.from_path(tiny("sd1"))
    with pytest.raises(TinywebError, match="30×32 pixels is not possible: sides must be multiples of 4"):
        model.generate("x", width=30)
    with pytest.raises(TinywebError, match=r"must be uint8 \(H, W, 3 or 4\), not float32"):
        model.generate("x", image=np.zeros((32, 32, 3), np.float32))
    with pytest.raises(TinywebError, match="has 32×32 pixels, wanted are 64×32"):
        model.generate("x", image=np.zeros((32, 32, 3), np.uint8), width=64)
    part = Checkpoint.of_file(path)
    assert len(open_original(part, "")) == 4 and vae_config(part).factor == 4 and unet_config(part).levels == 2
    assert f"{UNET}out.2.weight" in part


def test_golden_pictures_of_the_embedded_model() -> None:
    """What diffusers computes with the embedded model's weights, stage by stage."""
    folder = Path(__file__).resolve().parents[2] / "assets" / "models" / "tinysd"
    golden, told = load_file(folder / "golden.safetensors"), json.loads((folder / "golden.json").read_text())
    model, prompt = StableDiffusion.from_path(folder), told["prompt"]
    assert model.source.tokenizer(prompt) == golden["input_ids"].ravel().tolist()
    assert model.source.tokenizer("") == golden["uncond_input_ids"].ravel().tolist()
    states = [model.encode_prompt(p) for p in ("", prompt)]
    for got, name in zip(states, ("uncond_embeddings", "text_embeddings"), strict=True):
        assert relative(got, golden[name]) < 1e-3
    first, both = float(told["timesteps"][0]), np.concatenate(states)
    for guidance, name in ((0.0, "unet_uncond"), (1.0, "unet_cond")):
        assert relative(model.predict(golden["latents"], first, both, guidance), golden[name]) < 1e-3
    picture = model.generate(
        prompt, steps=told["steps"], guidance=told["guidance_scale"], scheduler="ddim", latents=golden["latents"]
    )
    wanted = ((golden["image"][0] / 2 + 0.5).clip(0, 1) * 255).transpose(1, 2, 0)
    error = np.square(picture - wanted).mean()
    assert 10 * np.log10(255**2 / error) > 50  # dB; the rounding to bytes alone leaves about 59


def relative(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, as a share of the largest value."""
    assert got.shape == wanted.shape
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())
