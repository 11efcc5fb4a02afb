"""`tinyweb run image`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tinyweb.cli.common import AsJson, Debug, DeviceChoice, located, run_app, show_progress, stderr
from tinyweb.cli.export_image import ImageSource, Predicts, Scheduler, TokenizerFolder
from tinyweb.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

# names of the samplers as other programs have them
SAMPLERS = {"ddim": "DDIM", "euler": "Euler", "euler-ancestral": "Euler a", "dpm++2m": "DPM++ 2M", "lcm": "LCM"}


@run_app.command("image")
def run_image(
    source: ImageSource,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to paint.", show_default=False)],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The PNG to write.", show_default=False)
    ],
    negative: Annotated[str, typer.Option(help="What not to paint.")] = "",
    steps: Annotated[int | None, typer.Option(min=1, help="More take longer (default: what suits the model).")] = None,
    guidance: Annotated[
        float | None, typer.Option(min=0.0, max=100.0, help="How much the prompt counts; up to 1: no guidance.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same picture.")] = 0,
    size: Annotated[str | None, typer.Option(help="Pixels: a number, or WIDTHxHEIGHT (default: the model's).")] = None,
    scheduler: Annotated[Scheduler | None, typer.Option(help="The sampler (default: the model's).")] = None,
    image: Annotated[Path | None, typer.Option(help="A picture to begin with; scaled and cut to the size.")] = None,
    strength: Annotated[
        float | None, typer.Option(min=0.01, max=1.0, help="How much of --image is painted over.")
    ] = None,
    quant: Annotated[Kind | None, typer.Option(help="Precision of weights (default: as they are stored).")] = None,
    tokenizer: TokenizerFolder = None,
    prediction: Predicts = None,
    device: DeviceChoice = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Paint a picture of words on this machine; its settings are written into the PNG."""
    from tinyweb.export.image import parse_size
    from tinyweb.formats.png import write_png
    from tinyweb.models.stable_diffusion import StableDiffusion
    from tinyweb.models.stable_diffusion.pipeline import check_size
    from tinyweb.sources import IMAGE, IMAGE_HALF

    if output.is_dir():
        raise typer.BadParameter(f"{output} is a folder: give the name of a picture, as in {output / 'picture.png'}")
    if not output.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {output.parent} to write {output.name} to")
    found = located(source, IMAGE_HALF if quant and quant != "f32" else IMAGE, "image")
    model = StableDiffusion.from_path(found, quant, device, tokenizer, prediction.value if prediction else None)
    usual = model.source.defaults
    width, height = parse_size(size) if size else (usual.width, usual.height)
    check_size(width, height, model.source.vae.factor)
    start = None
    if image is not None:
        from tinyweb.formats.images import cover, read_image

        start = cover(read_image(image), width, height)
    settings: dict[str, Any] = {
        "prompt": prompt,
        "negativePrompt": negative,
        "steps": steps or usual.steps,
        "guidance": usual.guidance if guidance is None else guidance,
        "seed": seed,
        "width": width,
        "height": height,
        "scheduler": scheduler.value if scheduler else usual.scheduler,
        "model": model.source.name,
        "strength": None if start is None else strength or usual.strength,
    }
    begun = time.perf_counter()
    with show_progress(stderr()) as progress:
        picture = model.generate(
            prompt, negative, settings["steps"], settings["guidance"], seed, width, height, settings["scheduler"],
            start, settings["strength"], on_step=lambda done, total, _: progress("painting", done, total),
        )  # fmt: skip
    seconds = time.perf_counter() - begun
    texts = {"parameters": common_text(settings), "tinyweb": json.dumps(settings, ensure_ascii=False)}
    write_png(output, picture, texts | {"Software": "tinyweb"})
    if as_json:
        print(json.dumps({"file": str(output), **settings, "seconds": round(seconds, 2)}, ensure_ascii=False))
    else:
        stderr().print(f"{output}: {width}×{height} in {seconds:.1f} s")


def common_text(settings: Mapping[str, Any]) -> str:
    """Settings in the lines that other image generators write and read."""
    figures = {
        "Steps": settings["steps"],
        "Sampler": SAMPLERS[settings["scheduler"]],
        "CFG scale": f"{settings['guidance']:g}",
        "Seed": settings["seed"],
        "Size": f"{settings['width']}x{settings['height']}",
        "Model": settings["model"],
    }
    if settings["strength"] is not None:
        figures["Denoising strength"] = f"{settings['strength']:g}"
    negative = [f"Negative prompt: {settings['negativePrompt']}"] if settings["negativePrompt"] else []
    return "\n".join([settings["prompt"], *negative, ", ".join(f"{k}: {v}" for k, v in figures.items())])
