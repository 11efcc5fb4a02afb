"""Stable Diffusion 1.x, 2.x and SD-Turbo (Rombach et al. 2022; Sauer et al. 2023): pictures from words.

`source.py` reads a model, `clip.py`, `unet.py` and `autoencoder.py` are its parts, `pipeline.py` puts them together;
`tinyweb.models.schedulers` has the samplers.
"""

from tinyweb.models.stable_diffusion.pipeline import StableDiffusion
from tinyweb.models.stable_diffusion.source import Defaults, Source

__all__ = ["Defaults", "Source", "StableDiffusion"]
