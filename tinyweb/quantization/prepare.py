"""From a source to a quantised model and the report of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tinyweb.errors import TinywebError
from tinyweb.kinds import BITS, MIXED
from tinyweb.nn.precision import Precision, Recipe, as_floats
from tinyweb.nn.quantize import QuantizedWeight, group_size
from tinyweb.nn.state import get_state_dict
from tinyweb.quantization.calibration import in_readings, second_moments
from tinyweb.quantization.descent import refine
from tinyweb.quantization.methods import FULL_PRECISION, Floats, Rounded, feed_back, output_error, search, weight_error
from tinyweb.quantization.mixed import Choice, choose
from tinyweb.quantization.options import QuantOptions
from tinyweb.quantization.reader import Reader
from tinyweb.quantization.report import LayerReport, Report
from tinyweb.quantization.scaling import scale_channels
from tinyweb.quantization.sites import Matrix, Site, find_sites
from tinyweb.quantization.texts import Ids, hold_out, read_text, spread

R = TypeVar("R", bound=Reader)
Progress = Callable[[str, int, int], None]
CALIBRATION, EVALUATION = 128, 64  # blocks of a text that are read, from all of it
SAMPLE = 1024  # rows of a matrix that errors of every width are measured on
LEAST_BLOCKS = 4

FITTED = (
    "--evaluate has the text that weights were fitted to: the figures beside f32 are not held out and look better than "
    "on other text; give another file, or leave --evaluate out, which keeps a part of --calibrate apart"
)


class Valued(Protocol):
    """A matrix of floats (out, in)."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def values(self) -> npt.NDArray[Any]: ...


@dataclass(frozen=True)
class Quantised(Generic[R]):
    """A model that was quantised, with what it takes to read a text, and the report."""

    reader: R
    report: Report


def quantise(
    load: Callable[[Recipe], R],
    quant: str,
    options: QuantOptions,
    progress: Progress = lambda step, done, total: None,
    reference: str | None = None,
) -> Quantised[R]:
    """The model that `load` makes of a recipe, quantised as `quant` and `options` say.

    `quant`: "f32", "f16", "q8", "q6", "q5", "q4", "q3" or "mixed". `reference`: what it is compared with and fitted to,
    None: the weights as they are stored.

    Raises TinywebError for options that do not go together, and for texts that are missing, damaged or too short.
    """
    recipe = options.recipe(quant)
    texts = {
        "--calibrate": options.calibrate and read_text(options.calibrate, "--calibrate"),
        "--evaluate": options.evaluate and read_text(options.evaluate, "--evaluate"),
    }
    work = _Work(quant, options, recipe, progress, texts["--calibrate"] or None, texts["--evaluate"] or None)
    return work.streamed(load, reference) if options.plain else work.fitted(load, reference)


class Made:
    """The matrices of a model and their errors, kept while it is read."""

    def __init__(self) -> None:
        self._made: list[tuple[Matrix, float]] = []

    def watch(self, weight: Matrix, values: npt.NDArray[Any]) -> None:
        """For a recipe that is `watched`."""
        blocks = values.dtype.names is not None  # of a file that is quantised, kept as they are
        integers = None if blocks or not isinstance(weight, QuantizedWeight) else weight
        self._made.append((weight, 0.0 if integers is None else quantisation_error(integers, values)))

    def sites(self, model: Any) -> list[Site]:
        return find_sites(model, [weight for weight, _ in self._made])

    def layers(self, model: Any) -> list[LayerReport]:
        """Those of a model that was read so."""
        known = {id(weight): error for weight, error in self._made}
        return [_layer(site, known[id(site.weight)]) for site in self.sites(model)]

    def report(self, quant: str, model: Any, evaluation: dict[str, Any] | None = None) -> Report:
        """Of a model whose other tensors are floats that stay as they are."""
        layers = self.layers(model)
        weights = sum(t.nbytes() for t in get_state_dict(model).values())
        others = weights - sum(layer.bytes for layer in layers)
        before = others + sum(4 * layer.shape[0] * layer.shape[1] for layer in layers)
        return Report(quant, weights, before, layers, evaluation=evaluation)


@dataclass
class _Work:
    quant: str
    options: QuantOptions
    recipe: Recipe
    progress: Progress
    calibration: str | None
    evaluation: str | None

    def streamed(self, load: Callable[[Recipe], R], reference: str | None) -> Quantised[R]:
        """Matrix by matrix as they are read: none but one is held as floats."""
        before = measured = None
        if self.evaluation is not None:
            original = load(Recipe.of(reference))
            measured = self._blocks(original, self.evaluation, "--evaluate", EVALUATION)
            before = self._measure(original, measured, "measuring the model as it is")
            del original
        made = Made()
        reader = load(self.recipe.watched(made.watch))
        sites = made.sites(reader.model)
        layers = made.layers(reader.model)
        after = None if measured is None else self._measure(reader, measured, "measuring the quantised model")
        return Quantised(reader, self._report(reader, sites, layers, before, after, None))

    def fitted(self, load: Callable[[Recipe], R], reference: str | None) -> Quantised[R]:
        """With all matrices as floats at first, each put in its place when it is quantised."""
        made: list[Matrix] = []
        reader = load(Recipe.of(reference).watched(lambda weight, values: made.append(weight)))
        sites = find_sites(reader.model, made)
        made.clear()
        self._check_head(sites)
        fit, held = self._texts(reader)
        before = None if held is None else self._measure(reader, held, "measuring the model as it is")
        kinds = self._mixed(reader, sites, fit) if self.quant == MIXED else {}
        layers = self._fit(reader, sites, kinds, fit)
        after = None if held is None else self._measure(reader, held, "measuring the quantised model")
        tokens = None if fit is None else sum(len(text) for text in fit)
        return Quantised(reader, self._report(reader, sites, layers, before, after, tokens))

    # -- texts --------------------------------------------------------------------------------------------------------
    def _blocks(self, reader: Reader, text: str, option: str, most: int) -> list[Ids]:
        return spread(reader.blocks(text, LEAST_BLOCKS, option), most)

    def _texts(self, reader: Reader) -> tuple[list[Ids] | None, list[Ids] | None]:
        """What is fitted to, and what is measured on."""
        fit = held = None
        if self.calibration is not None:
            every = reader.blocks(self.calibration, LEAST_BLOCKS, "--calibrate")
            if self.evaluation is None:
                every, held = hold_out(every)
                held = spread(held, EVALUATION)
            fit = spread(every, CALIBRATION)
        if self.evaluation is not None:
            held = self._blocks(reader, self.evaluation, "--evaluate", EVALUATION)
        return fit, held

    def _measure(self, reader: Reader, texts: Sequence[Ids], step: str) -> Any:
        return reader.measure(texts, self._counter(step, len(texts)))

    def _counter(self, step: str, total: int) -> Callable[[], None]:
        done = 0
        self.progress(step, 0, total)

        def each() -> None:
            nonlocal done
            done += 1
            self.progress(step, done, total)

        return each

    # -- matrices -----------------------------------------------------------------------------------------------------
    def _check_head(self, sites: Sequence[Site]) -> None:
        if self.options.head is not None and not any(site.role == "head" for site in sites):
            raise TinywebError(
                "the head of this model is its embedding: leave out --quant-head, or give --quant-embedding "
                f"{self.options.head}"
            )

    def _precision(self, site: Site, kinds: dict[str, str]) -> Precision:
        if site.name in kinds:
            return replace(self.recipe.layers, kind=kinds[site.name])
        if site.role == "embedding":
            return self.recipe.embedding
        return (self.recipe.head or self.recipe.embedding) if site.role == "head" else self.recipe.layers

    def _mixed(self, reader: Reader, sites: Sequence[Site], texts: list[Ids] | None) -> dict[str, str]:
        """The kind of each matrix whose kind nobody chose."""
        chosen = {"embedding": self.options.embedding, "head": self.options.head}
        free = [site for site in sites if chosen.get(site.role) is None]
        moments: dict[str, Floats] = {}
        if texts is not None:
            each = self._counter("reading the calibration text", len(texts))
            moments = second_moments(reader.read, free, texts, reader.device, diagonal=True, each=each)
        each = self._counter("measuring every width", len(free))
        found: dict[str, list[Choice]] = {}
        for site in free:
            counts = additions(reader.model) if site.is_head else 1
            found[site.name] = choices(site, self.recipe, moments.get(site.name), counts)
            each()
        fixed = [site for site in sites if chosen.get(site.role) is not None]
        rest = reader.weight_bytes() - sum(site.bytes for site in sites)
        rest += sum(_bytes(site.shape, self._precision(site, {})) for site in fixed)
        assert self.options.bytes is not None
        return choose(found, self.options.bytes, rest)

    def _fit(
        self, reader: Reader, sites: Sequence[Site], kinds: dict[str, str], texts: list[Ids] | None
    ) -> list[LayerReport]:
        layers: list[LayerReport] = []
        readings = in_readings(sites)
        count = self._counter("quantising", len(sites))
        for number, group in enumerate(readings):
            moments: dict[str, Floats] = {}
            if texts is not None:
                step = "reading the calibration text" + (f" ({number + 1} of {len(readings)})" if readings[1:] else "")
                each = self._counter(step, len(texts))
                moments = second_moments(reader.read, group, texts, reader.device, each=each)
                scale_channels(reader.model, group, moments, lambda site: self._precision(site, kinds))
            for site in group:
                layers.append(_put(site, self._precision(site, kinds), moments.pop(site.name, None), reader.device))
                count()
        return layers

    def _report(
        self, reader: Reader, sites: Sequence[Site], layers: Sequence[LayerReport], before: Any, after: Any,
        tokens: int | None,
    ) -> Report:  # fmt: skip
        o = self.options
        weights = reader.weight_bytes()
        wide = weights + sum(4 * site.shape[0] * site.shape[1] - site.bytes for site in sites)
        evaluation = None
        if after is not None:
            text = o.evaluate or o.calibrate
            assert text is not None
            evaluation = {"text": text.name, "held_out": self._held_out(), **reader.compare(before, after)}
        calibration = None if tokens is None or o.calibrate is None else {"text": o.calibrate.name, "tokens": tokens}
        fitted = evaluation is not None and not evaluation["held_out"]
        return Report(self.quant, weights, wide, layers, calibration, evaluation, notes=(FITTED,) if fitted else ())

    def _held_out(self) -> bool:
        """Whether what is measured on is not what weights were fitted to, nor a part of it."""
        if self.calibration is None or self.evaluation is None:
            return True
        fit, measured = self.calibration.strip(), self.evaluation.strip()
        return measured not in fit and fit not in measured


def choices(site: Valued, recipe: Recipe, moments: Floats | None, counts: int) -> list[Choice]:
    """What a matrix may be within `recipe`, its squared errors counted so many times. `moments` (in,): of what it is
    multiplied with, None: unknown."""
    values = site.values()
    sample = values[:: max(len(values) // SAMPLE, 1)]
    found: list[Choice] = []
    for kind in BITS:
        precision = replace(recipe.layers, kind=kind)
        rounded = search(sample, precision, moments)
        if rounded is None:
            return [Choice("f16", 2 * values.size, 0.0)]
        dense = rounded.dense()
        error = weight_error(sample, dense) if moments is None else output_error(sample, dense, moments)
        found.append(Choice(kind, _bytes(site.shape, precision), counts * error**2))
    return found


def additions(model: Any) -> int:
    """How many parts are added up to what the head reads: two of each layer."""
    return max(2 * len(getattr(getattr(model, "model", model), "layers", ())), 1)


def _put(site: Site, precision: Precision, moments: Floats | None, device: str | None) -> LayerReport:
    """A matrix quantised, in its place."""
    values = site.values()
    rounded: Rounded | None
    if moments is not None and precision.bits is not None and precision.bits < FULL_PRECISION:
        fed = feed_back(values, precision, moments)
        rounded = None if fed is None else refine(values, fed, moments)
    else:
        rounded = search(values, precision, None if moments is None else np.diagonal(moments))
    if rounded is None:
        site.put(as_floats(values, precision.kind, device))
        return _layer(site, 0.0)
    site.put(rounded.weight(device))
    dense = rounded.dense()
    output = None if moments is None else output_error(values, dense, moments)
    return _layer(site, weight_error(values, dense), output)


def _layer(site: Site, error: float, output: float | None = None) -> LayerReport:
    weight = site.weight
    if isinstance(weight, QuantizedWeight):
        zeros = weight.zeros is not None
        return LayerReport(site.name, site.shape, f"q{weight.bits}", weight.group, zeros, site.bytes, error, output)
    kind = "f32" if weight.dtype.bits == 32 else "f16"
    return LayerReport(site.name, site.shape, kind, None, False, site.bytes, error, output)


def quantisation_error(weight: QuantizedWeight, values: npt.NDArray[Any]) -> float:
    """The part of a matrix's norm that is error. Measured on some rows, which are quantised again: the weight may lie
    where nothing is computed."""
    sample = values[:: max(len(values) // SAMPLE, 1)].astype(np.float32)
    rounded = search(sample, Precision(f"q{weight.bits}", weight.group, weight.zeros is not None))
    assert rounded is not None
    return weight_error(sample, rounded.dense())


def _bytes(shape: tuple[int, int], precision: Precision) -> int:
    """Of a matrix (rows, width)."""
    rows, width = shape
    group = group_size(width, width if precision.group is None else precision.group)
    if precision.bits is None or group is None:
        return rows * width * (4 if precision.kind == "f32" else 2)
    groups = rows * width // group
    zeros = (groups + 1) // 2 if precision.bits == 4 else groups
    return (rows * width * precision.bits + 7) // 8 + 2 * groups + (zeros if precision.zero_points else 0)
