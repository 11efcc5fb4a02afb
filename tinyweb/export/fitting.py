"""What a chat is exported with so that it fits on a kind of device: chosen by an estimate (`estimate.py`) before it is
read, and checked by the figures of what was written (`profiles.py`), which correct the estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tinyweb.errors import ExportError
from tinyweb.export.choices import SHORTEST, bits, less_exact, smaller_caches
from tinyweb.export.estimate import Choice, Shapes, choices
from tinyweb.export.inspect import entry_kernels, inspect_site
from tinyweb.export.profiles import PAGE_BYTES, Fit, fits, named_profile, size
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.kinds import MIXED
from tinyweb.models.decoder.architectures import read_config
from tinyweb.models.decoder.cache import kind_beside
from tinyweb.quantization import QuantOptions

T = TypeVar("T")


class Asked(Protocol):
    """What was said of an export. None: chosen here."""

    @property
    def profile(self) -> str | None: ...
    @property
    def quant(self) -> str | None: ...
    @property
    def cache(self) -> str | None: ...
    @property
    def context(self) -> int | None: ...
    @property
    def quantization(self) -> QuantOptions: ...


def choose(source: ModelFolder, asked: Asked, factor: float = 1.0) -> Choice:
    """The best that fits on the profile that was asked for; what else was said is kept. `factor`: what an export needs,
    in times of its estimate. ExportError where nothing fits, which says what would."""
    profile, quant, context = named_profile(str(asked.profile)), asked.quant, asked.context
    config, checkpoint = read_config(source.config)[0], source.weights()
    shapes = Shapes.of(config, checkpoint, asked.cache)
    if asked.quantization.of_integers:  # which blocks of a file are none of
        shapes = replace(shapes, weights=replace(shapes.weights, kept=False))
    if quant == MIXED:
        among = ", ".join(shapes.weights.quants())
        raise ExportError(f"--profile chooses among {among}: leave out --quant {quant}, or --profile.")
    memory = int((profile.memory - PAGE_BYTES) / factor)
    found = next(choices(shapes, memory, quant, context), None)
    if found is not None:
        return found
    said = {"quant": quant, "cache": asked.cache, "context": context}
    given = " ".join(f"--{option} {value}" for option, value in said.items() if value is not None)
    free = next(choices(replace(shapes, cache=None), memory), None) if given else None
    todo = "take a smaller model, or another --profile"
    if free is not None:
        todo = f"leave out {given}, and --quant {free.quant} --cache {free.cache} --context {free.context} is taken"
    least = _least(shapes, quant, context)
    needs = int(least.needs * factor) + PAGE_BYTES
    raise ExportError(
        f"{source.name} does not fit on a {profile.title}, which gives a page {size(profile.memory)}: with --quant "
        f"{least.quant} and a context of {least.context} tokens (--cache {least.cache}) it still needs {size(needs)}: "
        f"{todo}."
    )


def _least(shapes: Shapes, quant: str | None, context: int | None) -> Choice:
    """What takes least of all that is worth proposing."""
    usual = shapes.cache or smaller_caches(kind_beside(quant == "f32"))[-1]
    kinds = [quant] if quant else shapes.weights.quants()
    tokens = context or min(SHORTEST, shapes.config.positions)
    of = Shapes(shapes.config, shapes.weights, usual)
    return min((Choice(kind, usual, tokens, of.needs(kind, tokens)) for kind in kinds), key=lambda c: c.needs)


def fit_on(written: Mapping[str, Any], profile: str) -> Fit:
    """A bundle, by its manifest, on the profile of this name."""
    kernels = {name: entry_kernels(section) for name, section in written["targets"].items()}
    return next(f for f in fits(written, kernels) if f.profile == profile)


class Misfit(Exception):
    """A site that does not fit on the device that was asked for."""

    def __init__(self, fit: Fit, weights: int):
        super().__init__(fit.limit)
        self.fit, self.weights = fit, weights


def check_profile(profile: str | None, targets: Sequence[str]) -> None:
    """ExportError for a device that there is not, or that none of `targets` is for."""
    if profile is not None and named_profile(profile).target not in targets:
        raise ExportError(f"--profile {profile} is a device of another target: leave out --target, or --profile.")


def check_fit(site: Path, profile: str | None) -> Fit | None:
    """A site whose model is written, on the profile of this name; Misfit where it does not fit."""
    if profile is None:
        return None
    report = inspect_site(site)
    fit = next(Fit(**device) for device in report["devices"] if device["profile"] == profile)
    if not fit.fits:
        parts = report.get("parts", {"": report}).values()
        raise Misfit(fit, max(part["bytes"]["weights"] for part in parts))
    return fit


def most_exact(source: str | Path, profile: str | None, quant: str | None, usual: str, write: Callable[[str], T]) -> T:
    """What `write` makes with the most exact weights that fit: at most those of `usual`, or those of `quant` alone.
    `write` leaves nothing where it ends in a Misfit. ExportError where nothing fits."""
    kinds = [quant] if quant else [usual, *(less_exact(usual) if profile else ())]
    tried = ""
    misfit: Misfit | None = None
    for kind in kinds:
        if misfit is not None and kind != kinds[-1]:
            saved = misfit.weights * (1 - bits(kind) / bits(tried))
            if misfit.fit.needs - saved > misfit.fit.memory:
                continue  # nor will this
        try:
            return write(kind)
        except Misfit as error:
            misfit, tried = error, kind
    assert misfit is not None
    smaller = "take a smaller model or --size, or another --profile"
    todo = "leave out --quant" if quant and less_exact(quant) else smaller
    fit = misfit.fit
    raise ExportError(f"{source} does not fit on a {fit.title} with --quant {tried}: {fit.limit}: {todo}.")
