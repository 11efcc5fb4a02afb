"""`tinyweb export image`: a Stable Diffusion becomes a site that paints pictures of words, in the browser.

Its model is a composite: text encoder, UNet and the two halves of the autoencoder are bundles of their own, which a
page loads when they are needed and frees afterwards, so that the largest of them is what has to fit into memory.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.errors import ExportError
from tinyweb.export.compile import Progress
from tinyweb.export.fitting import check_fit, check_profile, most_exact
from tinyweb.export.function import TARGETS, Functions, write_functions
from tinyweb.export.inspect_source import expect
from tinyweb.export.loader import write_loader
from tinyweb.export.manifest import write_manifest
from tinyweb.export.profiles import Fit
from tinyweb.export.site import (
    FORMAT,
    REPORT,
    VERSION,
    check_output,
    check_page,
    copy_page,
    new_site,
    write_json,
)  # fmt: skip
from tinyweb.export.weights import DEFAULT_SHARD_BYTES, check_shard_bytes
from tinyweb.models.schedulers import SCHEDULERS, plan_steps
from tinyweb.models.stable_diffusion.autoencoder import Encoder
from tinyweb.models.stable_diffusion.pipeline import (
    OVERLAP,
    TILE,
    check_size,
    decode_picture,
    denoise,
    denoise_guided,
    encode_picture,
    encode_text,
    tile_limits,
    unquantised,
)
from tinyweb.models.stable_diffusion.source import Defaults, Source
from tinyweb.models.stable_diffusion.tiles import Tiles, plan_tiles
from tinyweb.quantization import Report
from tinyweb.quantization.prepare import Made
from tinyweb.sources import IMAGE, IMAGE_HALF, locate
from tinyweb.tensor import Tensor

DEVICE = "DISK"  # where the weights wait to be written
PARTS = ("text_encoder", "unet", "vae_decoder", "vae_encoder")
USUAL = "f16"
MAX_SIZES = 8  # each has kernels of its own


@dataclass(frozen=True)
class ImageOptions:
    """What the command line offers. `sizes`: (width, height) in pixels, the default first; () for the model's own.

    `quant` None: f16, or what fits `profile`, a kind of device. `tile`: the longest side of what goes through the
    autoencoder at once. None elsewhere: what suits the model.
    """

    sizes: tuple[tuple[int, int], ...] = ()
    quant: str | None = None
    scheduler: str | None = None
    steps: int | None = None
    guidance: float | None = None
    tile: int = TILE
    tokenizer: Path | None = None
    prediction: str | None = None
    shard_bytes: int = DEFAULT_SHARD_BYTES
    name: str | None = None
    force: bool = False
    tune: float = 0.0
    targets: tuple[str, ...] = TARGETS
    profile: str | None = None


@dataclass(frozen=True)
class Exported:
    """What was written: the manifest, what became of the weights, and how it fits on the device of the profile."""

    manifest: dict[str, Any]
    report: Report
    fit: Fit | None


def parse_size(text: str) -> tuple[int, int]:
    """(width, height) of "512" or "WIDTHxHEIGHT"; ExportError for what is no size."""
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(p.isascii() and p.isdecimal() and len(p) < 10 for p in parts):
        raise ExportError(f"{text[:40]!r} is no size: write one number, or WIDTHxHEIGHT as in 768x512.")
    return int(parts[0]), int(parts[-1])


def export_image(
    source: str | Path,
    folder: str | Path,
    options: ImageOptions | None = None,
    progress: Progress = lambda step, done, total: None,
) -> dict[str, Any]:
    """Write the Stable Diffusion at `source` (a diffusers folder, or a single .safetensors file; tinyweb/sources) to
    `folder` as a page with its model (docs/image.md).

    Returns the manifest. On an error nothing is left behind: ModelFormatError or NotImplementedError for a source that
    cannot be read, ExportError or TinywebError for options or a folder that cannot be.
    """
    return export_with_report(source, folder, options, progress).manifest


def export_with_report(
    source: str | Path,
    folder: str | Path,
    options: ImageOptions | None = None,
    progress: Progress = lambda step, done, total: None,
) -> Exported:
    """The same, with what became of the weights."""
    o, output = options or ImageOptions(), Path(folder)
    check_output(output, o.force)
    check_page("image")
    check_shard_bytes(o.shard_bytes)
    check_profile(o.profile, o.targets)
    path = locate(source, IMAGE if o.quant == "f32" else IMAGE_HALF, progress)
    expect(path, "image")
    progress("reading", 0, 1)
    model = Source.open(path, o.tokenizer, o.prediction)
    model = replace(model, defaults=_defaults(model, o))
    sizes = tiled_sizes(model, o)
    progress("reading", 1, 1)

    def write(quant: str) -> Exported:
        with new_site(output, o.force) as site:
            chosen = replace(o, quant=quant)
            manifest, report = write_model(site / "model", o.name or model.name, model, sizes, chosen, progress)
            fit = check_fit(site, o.profile)
            write_json(site / REPORT, report.record())
            copy_page(site, "image", path)
        return Exported(manifest, report, fit)

    return most_exact(source, o.profile, o.quant, USUAL, write)


def write_model(
    bundle: Path, name: str, model: Source, sizes: Mapping[tuple[int, int], Tiles], o: ImageOptions, progress: Progress
) -> tuple[dict[str, Any], Report]:
    """Write everything of model/ to the folder `bundle`, which is made; the manifest, and what became of the weights.
    `sizes`: of `tiled_sizes`."""
    bundle.mkdir()
    o = replace(o, quant=o.quant or USUAL)
    written, report = _write_parts(bundle, name, model, sizes, o, progress)
    model.tokenizer.backend.save(str(bundle / "tokenizer.json"))
    manifest = write_manifest(bundle, _manifest(name, model, sizes, str(o.quant), written))
    write_loader(bundle, manifest)
    return manifest, report


def _defaults(model: Source, o: ImageOptions) -> Defaults:
    usual = model.defaults
    chosen = replace(
        usual,
        scheduler=o.scheduler or usual.scheduler,
        steps=usual.steps if o.steps is None else o.steps,
        guidance=usual.guidance if o.guidance is None else o.guidance,
    )
    if not 0 <= chosen.guidance <= 100:
        raise ExportError(f"A guidance of {chosen.guidance:g} is not possible: choose 0 to 100 (1 is none).")
    plan_steps(model.scheduler, chosen.scheduler, chosen.steps)  # refuses what cannot be
    return chosen


def tiled_sizes(model: Source, o: ImageOptions) -> dict[tuple[int, int], Tiles]:
    """The sizes on offer with their tiles, the default first."""
    wanted = list(dict.fromkeys(o.sizes)) or [(model.defaults.width, model.defaults.height)]
    if len(wanted) > MAX_SIZES:
        raise ExportError(f"{len(wanted)} sizes are too many: choose at most {MAX_SIZES}, each has kernels of its own.")
    factor = model.vae.factor
    if not 8 * factor <= o.tile <= 4096:
        raise ExportError(f"Tiles of {o.tile} pixels are not possible: choose {8 * factor} to 4096.")
    for width, height in wanted:
        check_size(width, height, factor)
    limits = tile_limits(factor, o.tile, min(OVERLAP, o.tile // 4))
    return {(w, h): plan_tiles(h // factor, w // factor, *limits) for w, h in wanted}


def _write_parts(
    bundle: Path, name: str, model: Source, sizes: Mapping[tuple[int, int], Tiles], o: ImageOptions, progress: Progress
) -> tuple[dict[str, dict[str, Any]], Report]:
    """The bundles of all parts; of each the manifest, and of the encoder the `preview` beside it."""
    written: dict[str, dict[str, Any]] = {}
    reports: dict[str, Report] = {}
    usual = str(o.quant)
    for part in PARTS:

        def told(step: str, done: int, total: int, part: str = part) -> None:
            progress(f"{part.replace('_', ' ')}: {step}", done, total)

        told("reading", 0, 1)
        quant = usual if part in ("text_encoder", "unet") else unquantised(usual)
        made = Made()
        layers: Any = getattr(model, f"load_{part.removeprefix('vae_')}")(quant, DEVICE, made.watch)
        reports[part] = made.report(usual, layers)
        told("reading", 1, 1)
        preview = fit_preview(layers) if isinstance(layers, Encoder) else None
        functions = part_functions(part, layers, model, list(sizes), list(sizes.values()))
        written[part] = write_functions(
            bundle / part, f"{name} ({part})", functions, targets=o.targets, shard_bytes=o.shard_bytes,
            tune=o.tune / len(PARTS), progress=told,
        )  # fmt: skip
        if preview is not None:
            written[part]["preview"] = preview
        del layers, functions, made
        gc.collect()  # a part's weights are gone before the next are read
    return written, Report.joined(reports)


def part_functions(
    part: str, layers: Any, model: Source, sizes: list[tuple[int, int]], tiles: list[Tiles]
) -> Functions:
    """The functions of a part with example inputs, by name."""
    factor, channels = model.vae.factor, model.unet.in_channels
    length, width = model.tokenizer.length, model.text.hidden_size

    def floats(*shape: int) -> Tensor:
        return Tensor.zeros(*shape, device=DEVICE)

    if part == "text_encoder":
        ids = Tensor.zeros(1, length, dtype=dtypes.int32, device=DEVICE)
        return {"encode": (partial(encode_text, layers), {"ids": ids})}
    made: dict[str, tuple[Any, Any]] = {}
    if part == "unet":
        for w, h in sizes:
            given = {"latents": floats(1, channels, h // factor, w // factor), "timestep": floats(1)}
            one = {**given, "states": floats(1, length, width)}
            made[f"unet_1_{w}x{h}"] = (partial(denoise, layers), one)
            if guided(model):
                two = {**given, "states": floats(2, length, width), "guidance": floats(1)}
                made[f"unet_2_{w}x{h}"] = (partial(denoise_guided, layers), two)
        return made
    for t in tiles:
        if part == "vae_decoder":
            latents = floats(1, channels, t.height, t.width)
            made[tile_name("decode", t, factor)] = (partial(decode_picture, layers), {"latents": latents})
        else:
            image = Tensor.zeros(t.height * factor, t.width * factor, 4, dtype=dtypes.uint8, device=DEVICE)
            made[tile_name("encode", t, factor)] = (partial(encode_picture, layers), {"image": image})
    return made


def guided(model: Source) -> bool:
    """Whether pages get classifier-free guidance: not where the model was distilled to do without."""
    return model.defaults.guidance > 1


def tile_name(does: str, tiles: Tiles, factor: int) -> str:
    """The function for tiles of a size, named after their pixels."""
    return f"{does}_{tiles.width * factor}x{tiles.height * factor}"


def fit_preview(encoder: Encoder) -> dict[str, Any]:
    """A linear map from a latent pixel to its colour, 0 to 1: `matrix` (channels, 3) and `bias` (3,), fitted to how the
    encoder sees a few pictures of plain shapes."""
    side, factor, count = 16, encoder.config.factor, 4
    random = np.random.default_rng(0)
    pictures = np.zeros((count, side, side, 3))
    for picture in pictures:
        picture[:] = random.uniform(0, 1, 3)
        for size in (10, 8, 6, 5, 4, 3):
            top, left = random.integers(0, side - size + 1, 2)
            picture[top : top + size, left : left + size] = random.uniform(0, 1, 3)
    whole = pictures.repeat(factor, axis=1).repeat(factor, axis=2).transpose(0, 3, 1, 2)
    mean = encoder(Tensor((whole * 2 - 1).astype(np.float32), device=DEVICE))[0].numpy().astype(np.float64)
    seen = np.moveaxis(mean, 1, -1).reshape(-1, mean.shape[1])
    seen = np.concatenate([seen, np.ones((len(seen), 1))], axis=1)
    found = np.linalg.lstsq(seen, pictures.reshape(-1, 3), rcond=None)[0]
    *matrix, bias = [[round(float(v), 6) for v in row] for row in found]
    return {"matrix": matrix, "bias": bias}


def _manifest(
    name: str, model: Source, sizes: Mapping[tuple[int, int], Tiles], quant: str, written: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    factor, usual = model.vae.factor, model.defaults
    names = {"text_encoder": "encode", "unet_1": "unet_1_{width}x{height}"}
    if guided(model):
        names["unet_2"] = "unet_2_{width}x{height}"
    return {
        "format": FORMAT,
        "version": VERSION,
        "task": "image",
        "name": name,
        "model": {
            "architecture": "stable-diffusion",
            "parameters": sum(_weights(m) for m in written.values()),
            "quant": quant,
        },
        "files": {"tokenizer": "tokenizer.json"},
        "parts": {part: f"{part}/" for part in PARTS},
        "bytes": {part: _bytes(m) for part, m in written.items()},
        "image": {
            "sizes": [
                {
                    "width": w,
                    "height": h,
                    "tiles": {
                        "decode": tile_name("decode", t, factor),
                        "encode": tile_name("encode", t, factor),
                        "height": t.height,
                        "width": t.width,
                        "rows": list(t.rows),
                        "columns": list(t.columns),
                    },
                }
                for (w, h), t in sizes.items()
            ],
            "latents": {"channels": model.unet.in_channels, "factor": factor},
            "text": {
                "length": model.tokenizer.length,
                "width": model.text.hidden_size,
                "bos": model.tokenizer.bos,
                "eos": model.tokenizer.eos,
                "pad": model.tokenizer.pad,
            },
            "prediction": model.scheduler.prediction_type,
            "guidance": guided(model),
            "functions": names,
            "scheduler": model.scheduler.to_json(),
            "schedulers": list(SCHEDULERS),
            "defaults": {
                "scheduler": usual.scheduler,
                "steps": usual.steps,
                "guidance": usual.guidance,
                "strength": usual.strength,
            },
            "preview": written["vae_encoder"]["preview"],
            "examples": list(model.examples),
        },
    }


def _weights(manifest: Mapping[str, Any]) -> int:
    """Numbers that a part's weights stand for; scales of quantised ones are none, nor are the codes' upper bits."""
    named = [(b["name"].rpartition(".")[2], b["shape"]) for b in manifest["buffers"] if b["kind"] == "weight"]
    return sum(int(np.prod(s, dtype=np.int64)) for name, s in named if not name.startswith(("scales", "upper")))


def _bytes(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Of a part: what is downloaded, and what each target takes in memory."""
    counts = {"weights": int(manifest["weights"]["bytes"])}
    for target, section in manifest["targets"].items():
        memory = section.get("memory")
        counts[target] = memory["pages"] * 65536 if memory else sum(section["bytes"].values())
    return counts
