"""Pictures from words: the parts of Stable Diffusion put together.

    model = StableDiffusion.from_path("stable-diffusion-v1-5")
    picture = model.generate("a red circle on the left of a blue star", steps=20, seed=7)     # uint8 (H, W, 3)

The functions of `Parts` are what an exported page runs; `generate` calls them from Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes
from tinyweb.errors import TinywebError
from tinyweb.kinds import BITS
from tinyweb.models.schedulers import latent_noise, plan_steps
from tinyweb.models.stable_diffusion.autoencoder import Decoder, Encoder
from tinyweb.models.stable_diffusion.clip import TextEncoder
from tinyweb.models.stable_diffusion.source import Source
from tinyweb.models.stable_diffusion.tiles import Tiles, blend, plan_tiles
from tinyweb.models.stable_diffusion.unet import UNet
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit

TILE, OVERLAP = 320, 64  # pixels: the most of a tile's side, the least that neighbours share
MAX_SIDE = 4096  # pixels

Picture = npt.NDArray[np.uint8]
Latents = npt.NDArray[np.float32]


def encode_text(encoder: TextEncoder, ids: Tensor) -> dict[str, Tensor]:
    """ids (1, L), int32, to `states` (1, L, D)."""
    return {"states": encoder(ids)}


def denoise(unet: UNet, latents: Tensor, timestep: Tensor, states: Tensor) -> dict[str, Tensor]:
    """latents (1, C, h, w), timestep (1,), states (1, L, D) to the model's `output` (1, C, h, w)."""
    return {"output": unet(latents, timestep, states)}


def denoise_guided(
    unet: UNet, latents: Tensor, timestep: Tensor, states: Tensor, guidance: Tensor
) -> dict[str, Tensor]:
    """As `denoise`, with states (2, L, D) of the negative prompt and of the prompt in one batch, and guidance (1,): the
    output is led away from the first by as much (Ho and Salimans 2022)."""
    both = unet(latents.expand(2, *latents.shape[1:]), timestep, states).contiguous()
    away, towards = both[:1], both[1:]
    return {"output": away + guidance.reshape(1, 1, 1, 1) * (towards - away)}


def decode_picture(decoder: Decoder, latents: Tensor) -> dict[str, Tensor]:
    """latents (1, C, h, w) to an `image` (h · f, w · f, 4), uint8: red, green, blue, and 255."""
    pixels = ((decoder(latents)[0] * 0.5 + 0.5).clamp(0, 1) * 255).round().cast(dtypes.uint8)
    return {"image": pixels.permute(1, 2, 0).pad([(0, 0), (0, 0), (0, 1)], value=255)}


def encode_picture(encoder: Encoder, image: Tensor) -> dict[str, Tensor]:
    """An image (H, W, 4), uint8, to `mean` and `std` (1, C, h, w) of its latents; the fourth channel counts nothing."""
    pixels = image[:, :, :3].permute(2, 0, 1).unsqueeze(0).float() * (2 / 255) - 1
    mean, std = encoder(pixels)
    return {"mean": mean, "std": std}


class StableDiffusion:
    """A model on one device; parts are read when they are first needed.

    `quant`: precision of weights ("f32", "f16", "q8" … "q3"; None: as stored; the autoencoder is never quantised).
    """

    def __init__(self, source: Source, quant: str | None = None, device: str | None = None):
        self.source, self.quant, self.device = source, quant, device

    @classmethod
    def from_path(
        cls, path: str | Path, quant: str | None = None, device: str | None = None,
        tokenizer: str | Path | None = None, prediction: str | None = None,
    ) -> Self:  # fmt: skip
        """A diffusers folder or a single checkpoint; arguments and errors are those of `Source.open`."""
        return cls(Source.open(path, tokenizer, prediction), quant, device)

    # -- the parts, compiled once per shape ---------------------------------------------------------------------------
    @cached_property
    def text_encoder(self) -> TextEncoder:
        """Reads the text encoder's weights."""
        return self.source.load_text_encoder(self.quant, self.device)

    @cached_property
    def unet(self) -> UNet:
        """Reads the UNet's weights."""
        return self.source.load_unet(self.quant, self.device)

    @cached_property
    def decoder(self) -> Decoder:
        """Reads the weights of the autoencoder's decoder."""
        return self.source.load_decoder(unquantised(self.quant), self.device)

    @cached_property
    def encoder(self) -> Encoder:
        """Reads the weights of the autoencoder's encoder."""
        return self.source.load_encoder(unquantised(self.quant), self.device)

    @cached_property
    def _functions(self) -> dict[str, Callable[..., dict[str, Tensor]]]:
        return {
            "text": jit(lambda *a: _realized(encode_text(self.text_encoder, *a))),
            "one": jit(lambda *a: _realized(denoise(self.unet, *a))),
            "two": jit(lambda *a: _realized(denoise_guided(self.unet, *a))),
            "decode": jit(lambda *a: _realized(decode_picture(self.decoder, *a))),
            "encode": jit(lambda *a: _realized(encode_picture(self.encoder, *a))),
        }

    def _run(self, name: str, *arrays: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        given = [Tensor(np.ascontiguousarray(a), device=self.device) for a in arrays]
        return {n: t.numpy() for n, t in self._functions[name](*given).items()}

    def encode_prompt(self, prompt: str) -> npt.NDArray[np.float32]:
        """The states (1, L, D) of a prompt."""
        ids = np.array([self.source.tokenizer(prompt)], np.int32)
        return self._run("text", ids)["states"]

    def predict(
        self, latents: Latents, timestep: float, states: npt.NDArray[np.float32], guidance: float = 1.0
    ) -> Latents:
        """The UNet's output for latents (1, C, h, w) that a step has scaled; `states` (1, L, D), or (2, L, D) with
        guidance."""
        time = np.array([timestep], np.float32)
        if len(states) == 1:
            return self._run("one", latents, time, states)["output"]
        return self._run("two", latents, time, states, np.array([guidance], np.float32))["output"]

    def decode(self, latents: Latents) -> Picture:
        """Latents (1, C, h, w) in the UNet's scale to a picture (H, W, 3); in tiles where it is large."""
        tiles = self.tiles(latents.shape[2], latents.shape[3])

        def tile(row: int, column: int) -> Picture:
            part = latents[:, :, row : row + tiles.height, column : column + tiles.width]
            return self._run("decode", part)["image"][:, :, :3]

        if len(tiles.rows) == len(tiles.columns) == 1:
            return tile(0, 0)
        blended = blend(tiles, self.source.vae.factor, tile)
        return np.rint(blended).astype(np.uint8)

    def encode(self, picture: Picture) -> tuple[Latents, Latents]:
        """Mean and standard deviation (1, C, h, w) of the latents of a picture (H, W, 3 or 4), in the UNet's scale."""
        factor, alpha = self.source.vae.factor, np.full((*picture.shape[:2], 1), 255, np.uint8)
        image = np.concatenate([picture[:, :, :3], alpha], axis=2)
        tiles = self.tiles(picture.shape[0] // factor, picture.shape[1] // factor)

        def tile(row: int, column: int) -> npt.NDArray[np.float32]:
            top, left = row * factor, column * factor
            part = image[top : top + tiles.height * factor, left : left + tiles.width * factor]
            made = self._run("encode", part)
            return np.concatenate([made["mean"][0], made["std"][0]]).transpose(1, 2, 0)

        both = blend(tiles, 1, tile).transpose(2, 0, 1)[None]
        mean, std = np.split(both, 2, axis=1)
        return mean, std

    def tiles(self, height: int, width: int) -> Tiles:
        """How latents of this size go through the autoencoder."""
        return plan_tiles(height, width, *tile_limits(self.source.vae.factor))

    # -- sampling -----------------------------------------------------------------------------------------------------
    def generate(
        self,
        prompt: str,
        negative_prompt: str = "",
        steps: int | None = None,
        guidance: float | None = None,
        seed: int = 0,
        width: int | None = None,
        height: int | None = None,
        scheduler: str | None = None,
        image: Picture | None = None,
        strength: float | None = None,
        latents: Latents | None = None,
        on_step: Callable[[int, int, Latents], None] | None = None,
    ) -> Picture:
        """A picture (height, width, 3), uint8, of the prompt: the same for the same arguments.

        `guidance`: how much more the prompt counts than the negative prompt; up to 1, only the prompt is looked at.
        `image`: a picture (height, width, 3 or 4) to begin with; `strength` (more than 0, at most 1): how much of it is
        painted over. `latents` (1, C, h, w): noise to begin with in place of the
        seed's. `on_step(done, steps, denoised)` is called after every step, with what the picture's latents (1, C, h,
        w) look like by now. What is not given is what suits the model (`source.defaults`).

        Raises TinywebError for sizes, steps or names that cannot be.
        """
        usual, c = self.source.defaults, self.source.unet.in_channels
        guidance = usual.guidance if guidance is None else guidance
        if image is not None:
            image = _checked(image, width, height)
            height, width = image.shape[:2]
            strength = usual.strength if strength is None else strength
        width, height = width or usual.width, height or usual.height
        check_size(width, height, self.source.vae.factor)
        plan = plan_steps(
            self.source.scheduler, scheduler or usual.scheduler, usual.steps if steps is None else steps,
            None if image is None else strength,
        )  # fmt: skip
        states = self.encode_prompt(prompt)
        if guidance > 1:
            states = np.concatenate([self.encode_prompt(negative_prompt), states])
        shape = (1, c, height // self.source.vae.factor, width // self.source.vae.factor)
        if latents is not None and latents.shape != shape:
            raise TinywebError(f"Noise for a picture of {width}×{height} pixels is {shape}, not {latents.shape}.")
        x = np.float32(plan.noise) * (latent_noise(seed, shape, 0) if latents is None else latents.astype(np.float32))
        if image is not None:
            x = x + np.float32(plan.image) * self.encode(image)[0]
        previous = np.zeros_like(x)
        for k, step in enumerate(plan.steps, 1):
            output = self.predict(np.float32(step.input) * x, step.timestep, states, guidance)
            denoised = np.float32(step.denoise[0]) * x + np.float32(step.denoise[1]) * output
            keep, new, old, fresh = (np.float32(n) for n in step.next)
            x = keep * x + new * denoised + old * previous
            if fresh:
                x = x + fresh * latent_noise(seed, shape, k)
            previous = denoised
            if on_step is not None:
                on_step(k, len(plan.steps), denoised)
        return self.decode(x)


def unquantised(quant: str | None) -> str | None:
    """The precision of the autoencoder beside a UNet of this one: quantised weights would show in every pixel."""
    return "f16" if quant in BITS else quant


def tile_limits(factor: int, tile: int = TILE, overlap: int = OVERLAP) -> tuple[int, int]:
    """`plan_tiles`' limits in latent pixels, for limits in pixels."""
    return max(tile // factor, 2 * (overlap // factor) + 1), overlap // factor


def check_size(width: int, height: int, factor: int) -> None:
    """TinywebError for a size that cannot be."""
    if not all(factor <= side <= MAX_SIDE and side % factor == 0 for side in (width, height)):
        raise TinywebError(
            f"A picture of {width}×{height} pixels is not possible: sides must be multiples of {factor}, "
            f"from {factor} to {MAX_SIDE}."
        )


def _checked(image: Picture, width: int | None, height: int | None) -> Picture:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (3, 4):
        raise TinywebError(f"A start image must be uint8 (H, W, 3 or 4), not {image.dtype} {image.shape}.")
    height, width = height or image.shape[0], width or image.shape[1]
    if (height, width) != image.shape[:2]:
        raise TinywebError(
            f"The start image has {image.shape[1]}×{image.shape[0]} pixels, wanted are {width}×{height}: resize it."
        )
    return image


def _realized(named: dict[str, Tensor]) -> dict[str, Tensor]:
    first, *rest = named.values()
    first.realize(*rest)
    return named
