"""What a chat is exported with so that it fits on a kind of device: chosen by an estimate, and checked when all is
written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tinyweb.errors import ExportError
from tinyweb.export.estimate import Choice, Shapes, choices, quants, smaller_caches
from tinyweb.export.inspect import entry_kernels
from tinyweb.export.profiles import PAGE_BYTES, SHORTEST, Fit, fits, named_profile, size
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.kinds import MIXED
from tinyweb.models.decoder.architectures import read_config
from tinyweb.models.decoder.cache import kind_beside


def choose(
    source: ModelFolder, name: str, quant: str | None, cache: str | None, context: int | None, factor: float = 1.0
) -> Choice:
    """The best that fits on the profile of this name; what is given is kept. `factor`: what an export needs, in times
    of its estimate. ExportError where nothing fits."""
    profile = named_profile(name)
    if quant == MIXED:
        raise ExportError(f"--profile chooses among {', '.join(quants())}: leave out --quant {quant}, or --profile.")
    shapes = Shapes.of(read_config(source.config)[0], source.weights(), cache)
    found = next(choices(shapes, int((profile.memory - PAGE_BYTES) / factor), quant, context), None)
    if found is not None:
        return found
    least, kept = quants(quant)[-1], cache or smaller_caches(kind_beside(quant == "f32"))[-1]
    tokens = context or min(SHORTEST, shapes.config.positions)
    needs = replace(shapes, cache=kept).needs(least, tokens) * factor + PAGE_BYTES
    raise ExportError(
        f"{source.name} does not fit on a {profile.title}, which gives a page {size(profile.memory)}: with --quant "
        f"{least} and a context of {tokens} tokens (--cache {kept}) it still needs {size(needs)}: "
        "take a smaller model, or another --profile."
    )


def fit_on(written: Mapping[str, Any], profile: str) -> Fit:
    """A bundle, by its manifest, on the profile of this name."""
    kernels = {name: entry_kernels(section) for name, section in written["targets"].items()}
    return next(f for f in fits(written, kernels) if f.profile == profile)
