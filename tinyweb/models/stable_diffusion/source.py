"""A Stable Diffusion on disk: its configs, checked, and its parts, each read when it is asked for.

Two layouts are understood: diffusers' folder (`unet/config.json`, `unet/diffusion_pytorch_model.safetensors`, …), and
the authors' single file (`original.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Checkpoint, Config, read_json
from tinyweb.kinds import KINDS
from tinyweb.models.schedulers import PREDICTIONS, SchedulerConfig, default_scheduler
from tinyweb.models.stable_diffusion.autoencoder import Decoder, Encoder, VAEConfig
from tinyweb.models.stable_diffusion.clip import TextConfig, TextEncoder
from tinyweb.models.stable_diffusion.layers import Reader, Weights
from tinyweb.models.stable_diffusion.original import (
    open_original,
    read_matrix,
    text_config,
    unet_config,
    vae_config,
)  # fmt: skip
from tinyweb.models.stable_diffusion.prompt import PromptTokenizer
from tinyweb.models.stable_diffusion.unet import UNet, UNetConfig
from tinyweb.nn.precision import Watch
from tinyweb.sources import model_name

EXTRAS = "tinyweb.json"  # a file in a model's folder: settings and prompts that suit the model
MAX_EXAMPLES = 16
STEM = "diffusion_pytorch_model"
# names that older files have for the autoencoder's attention
_OLD_NAMES = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn."}


@dataclass(frozen=True)
class Defaults:
    """What to generate with where nobody says: `width` and `height` in pixels, `guidance` 1 is none."""

    scheduler: str
    steps: int
    guidance: float
    width: int
    height: int
    strength: float = 0.75


@dataclass(frozen=True)
class Source:
    """Configs, tokenizer and weights of a model. `name`: of the folder or file."""

    name: str
    text: TextConfig
    unet: UNetConfig
    vae: VAEConfig
    scheduler: SchedulerConfig
    defaults: Defaults
    tokenizer: PromptTokenizer
    weights: dict[str, Weights]  # of text_encoder, unet and vae
    examples: tuple[str, ...] = ()  # prompts that suit the model

    @classmethod
    def open(cls, path: str | Path, tokenizer: str | Path | None = None, prediction: str | None = None) -> Self:
        """A folder in diffusers' layout, or a single `.safetensors` file.

        `tokenizer`: a folder with tokenizer.json or vocab.json and merges.txt, where the model has none beside it.
        `prediction`: what the UNet predicts, one of PREDICTIONS, where the model's files do not say or say it wrong.

        Raises ModelFormatError for files that are missing, damaged or of another kind of model; NotImplementedError
        naming what a config asks for and is not built.
        """
        path = Path(path)
        if prediction is not None and prediction not in PREDICTIONS:
            raise TinywebError(f"There is no prediction {prediction!r}: choose one of {', '.join(PREDICTIONS)}.")
        if not path.exists():
            raise ModelFormatError(f"{path} does not exist: give a model folder in diffusers' layout or a checkpoint")
        at = None if tokenizer is None else Path(tokenizer)
        found = cls._folder(path, at) if path.is_dir() else cls._file(path, at, prediction)
        if found.unet.cross_attention_dim != found.text.hidden_size:
            raise ModelFormatError(
                f"{path}: the text encoder gives states of width {found.text.hidden_size}, the UNet takes "
                f"{found.unet.cross_attention_dim}: the parts are not of one model"
            )
        if found.unet.in_channels != found.vae.latent_channels or found.unet.out_channels != found.unet.in_channels:
            raise NotImplementedError(
                f"{path}: a UNet of {found.unet.in_channels} to {found.unet.out_channels} channels on latents of "
                f"{found.vae.latent_channels} (inpainting, upscaling) is not supported"
            )
        vocabulary = found.tokenizer.backend.get_vocab_size()
        if vocabulary > found.text.vocab_size:
            raise ModelFormatError(
                f"{path}: the tokenizer has {vocabulary} tokens, the text encoder {found.text.vocab_size}: "
                "they are not of one model"
            )
        if prediction is not None:
            found = replace(found, scheduler=replace(found.scheduler, prediction_type=prediction))
        return found

    @classmethod
    def _folder(cls, path: Path, tokenizer: Path | None) -> Self:
        if not (path / "unet").is_dir() and not (path / "model_index.json").is_file():
            raise ModelFormatError(
                f"{path} is no diffusers folder (there is no model_index.json and no unet/): give the folder that "
                "holds unet/, vae/, text_encoder/ and tokenizer/, or a single .safetensors checkpoint"
            )
        if (path / "text_encoder_2").is_dir() or (path / "transformer").is_dir():
            raise NotImplementedError(f"{path}: only Stable Diffusion 1.x, 2.x and SD-Turbo are supported")
        configs = {part: _config(path / part / "config.json") for part in ("text_encoder", "unet", "vae")}
        scheduler = _config(path / "scheduler" / "scheduler_config.json")
        text = TextConfig.from_json(configs["text_encoder"])
        unet, vae = UNetConfig.from_json(configs["unet"]), VAEConfig.from_json(configs["vae"])
        chosen = default_scheduler(scheduler)
        turbo = chosen == "euler" and scheduler.values.get("timestep_spacing") == "trailing"
        size = unet.sample_size * vae.factor
        defaults, examples = _extras(path, _defaults(chosen, turbo, size))
        return cls(
            model_name(path), text, unet, vae, SchedulerConfig.from_json(scheduler), defaults,
            PromptTokenizer.from_folder(tokenizer or path / "tokenizer", text.max_position_embeddings),
            {
                part: DiffusersPart(Checkpoint(path / part, "model" if part == "text_encoder" else STEM))
                for part in configs
            },
            examples,
        )  # fmt: skip

    @classmethod
    def _file(cls, path: Path, tokenizer: Path | None, prediction: str | None) -> Self:
        """2.x models predict v, unless they are called base or turbo; what a file is called is all there is to know."""
        if path.suffix != ".safetensors":
            raise ModelFormatError(f"{path} is no .safetensors file: other checkpoints may hold code and are not read")
        checkpoint = Checkpoint.of_file(path)
        text_part, unet_part, vae_part, second = open_original(checkpoint, str(path))
        text, unet, vae = text_config(checkpoint, second), unet_config(checkpoint), vae_config(checkpoint)
        if tokenizer is None:
            beside = (path.parent / "tokenizer", path.parent)
            tokenizer = next(
                (p for p in beside if (p / "vocab.json").is_file() or (p / "tokenizer.json").is_file()), None
            )
        if tokenizer is None:
            raise ModelFormatError(
                f"{path} holds no tokenizer, and there is none beside it: name a folder with CLIP's vocab.json and "
                "merges.txt (--tokenizer)"
            )
        turbo = "turbo" in path.stem.lower()
        kind = "v_prediction" if second and not turbo and "base" not in path.stem.lower() else "epsilon"
        spacing = "trailing" if turbo else "leading"
        size = 768 if (prediction or kind) == "v_prediction" else 512
        return cls(
            model_name(path), text, unet, vae,
            SchedulerConfig(prediction_type=kind, steps_offset=1, set_alpha_to_one=False, timestep_spacing=spacing),
            _defaults("euler" if turbo else "ddim", turbo, size),
            PromptTokenizer.from_folder(tokenizer, text.max_position_embeddings),
            {"text_encoder": text_part, "unet": unet_part, "vae": vae_part},
        )  # fmt: skip

    # -- parts --------------------------------------------------------------------------------------------------------
    def _reader(self, part: str, quant: str | None, device: str | None, watch: Watch | None) -> Reader:
        if quant is not None and quant not in KINDS:
            raise TinywebError(f"There is no quantisation {quant!r}: choose one of {', '.join(KINDS)}.")
        return Reader(self.weights[part], quant, device, watch=watch)

    def load_text_encoder(
        self, quant: str | None = None, device: str | None = None, watch: Watch | None = None
    ) -> TextEncoder:
        """With `quant` and `watch` as `Reader` says; on the device named."""
        return TextEncoder(self.text, self._reader("text_encoder", quant, device, watch))

    def load_unet(self, quant: str | None = None, device: str | None = None, watch: Watch | None = None) -> UNet:
        """With `quant` and `watch` as `Reader` says; on the device named."""
        return UNet(self.unet, self._reader("unet", quant, device, watch))

    def load_decoder(self, quant: str | None = None, device: str | None = None, watch: Watch | None = None) -> Decoder:
        """With `quant` and `watch` as `Reader` says; on the device named."""
        return Decoder(self.vae, self._reader("vae", quant, device, watch))

    def load_encoder(self, quant: str | None = None, device: str | None = None, watch: Watch | None = None) -> Encoder:
        """With `quant` and `watch` as `Reader` says; on the device named."""
        return Encoder(self.vae, self._reader("vae", quant, device, watch))


def _config(path: Path) -> Config:
    return Config(read_json(path), str(path))


def _defaults(scheduler: str, turbo: bool, size: int) -> Defaults:
    """Distilled models need few steps, and know guidance by heart."""
    if turbo:
        return Defaults(scheduler, 1, 1.0, size, size)
    return Defaults(scheduler, 4, 1.0, size, size) if scheduler == "lcm" else Defaults(scheduler, 20, 7.5, size, size)


def _extras(path: Path, usual: Defaults) -> tuple[Defaults, tuple[str, ...]]:
    """What a folder's tinyweb.json says: `examples`, a list of prompts; `steps`, `guidance` and `strength`."""
    if not (path / EXTRAS).is_file():
        return usual, ()
    c = _config(path / EXTRAS)
    examples = c.values.get("examples") or []
    if not isinstance(examples, list) or not all(isinstance(e, str) and 0 < len(e) < 1000 for e in examples):
        raise ModelFormatError(f"{c.where}: 'examples' must be a list of prompts")
    defaults = replace(
        usual,
        steps=c.integer("steps", 1, 1000, usual.steps),
        guidance=c.number("guidance", 0, 100, usual.guidance),
        strength=c.number("strength", 0.01, 1, usual.strength),
    )
    return defaults, tuple(examples[:MAX_EXAMPLES])


@dataclass(frozen=True)
class DiffusersPart:
    """Weights of a diffusers folder, whatever the age of their names."""

    checkpoint: Checkpoint

    def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """As `Checkpoint.read`; matrices may be stored as 1×1 convolutions."""
        if name not in self.checkpoint:
            old = name
            for new, before in _OLD_NAMES.items():
                old = old.replace(new, before)
            short = name.removeprefix("text_model.")
            name = next((n for n in (old, short) if n in self.checkpoint), name)
        return read_matrix(self.checkpoint, name, shape)
