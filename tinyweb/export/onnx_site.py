"""ONNX graphs as bundles that a page calls: `model.run({name: typed array})`.

    export_onnx("model.onnx", "site", OnnxOptions(dims={"batch": [1, 4], "length": range(1, 513)}))

A range of sizes is a Variable: one function takes them all. Each combination of those that are listed is a function of
its own; all share the weights.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.errors import ExportError, TinywebError
from tinyweb.export.about_graph import about
from tinyweb.export.compile import Progress
from tinyweb.export.function import ENTRY, TARGETS, export_functions
from tinyweb.export.graph_quant import quantised
from tinyweb.export.weights import DEFAULT_SHARD_BYTES
from tinyweb.formats.onnx import OnnxModel, Port
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.formats.onnx.registry import instead
from tinyweb.formats.onnx.report import report
from tinyweb.formats.onnx.texts import OTHER, free_texts, known_words, word_list
from tinyweb.formats.words import Words
from tinyweb.graph.ir import Size, Variable, size_max
from tinyweb.graph.target import wasm_target, webgpu_target
from tinyweb.kinds import MIXED, STORED, ExportQuant
from tinyweb.nn.quantize import activations_for
from tinyweb.quantization import QuantOptions, Report
from tinyweb.sources import GRAPH, locate
from tinyweb.tensor import Tensor

MAX_FUNCTIONS = 16
DEVICE = "CPU"


Dims = Mapping[str, Sequence[int] | str]


@dataclass(frozen=True)
class OnnxOptions:
    """`dims`: for each symbolic size the numbers it is exported with: listed, or a `range`, any of which it may be in
    one function; or the name of another size that it is the same as. `quant`: as of chats, "stored" (None), "f32",
    "f16", "q8" to "q3" or "mixed", with what goes with it in `quantization`, where `evaluate` is an .npz of inputs.
    `fixed`: inputs that are known, with their values, which a page does not give. `told`: is given the report of what
    was quantised. The others as in `export_function`."""

    dims: Dims = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    quant: str | None = None
    name: str | None = None
    targets: Sequence[str] = TARGETS
    shard_bytes: int = DEFAULT_SHARD_BYTES
    force: bool = False
    tune: float = 0.0
    page: bool = True
    quantization: QuantOptions = field(default_factory=QuantOptions)
    told: Callable[[Report], None] | None = None


class OnnxFunction:
    """A model as a function of Tensors by name, and of `Words`. Its weights have the names of the graph. Outputs whose
    text is more than words of a list are left out, of the model, too."""

    def __init__(self, model: OnnxModel, examples: Mapping[str, Tensor | Words], fixed: Mapping[str, Any]):
        self.model, self.fixed = model, fixed
        free = free_texts(model.graph)
        told = [p.name for p in model.outputs if p.name not in free]
        if not told:
            raise ExportError("All outputs of the model are text that is made anew: a page is given words of a list.")
        model.graph.keep(told)
        with suppress(TinywebError, NotImplementedError):  # the recording says what is wrong, in both branches of an If
            model(**examples, **fixed)  # what is known is computed once, outside of the recording
        self.weights = model.weights(DEVICE)

    def __call__(self, /, **inputs: Tensor | Words) -> dict[str, Tensor | Words]:
        found, named = self.model(**inputs, **self.fixed), {}
        for n, t in found.items():
            if isinstance(t, np.ndarray):  # text that is the same in every call
                words, places = np.unique(t, return_inverse=True)
                t = Words(words, Tensor(places.reshape(t.shape).astype(np.int32)))
            if isinstance(t, Words) and OTHER in t.table.tolist():  # NumPy does not tell it from an empty text
                raise NotImplementedError(f"output {n!r} has text of an input, of which a page gives known words only")
            name = n
            while name in inputs or name in named or (name != n and name in found):
                name += "_out"
            named[name] = t
        return named


def export_onnx(
    source: str | Path, folder: str | Path, options: OnnxOptions | None = None,
    progress: Progress = lambda step, done, total: None,
) -> dict[str, Any]:  # fmt: skip
    """Write the model at `source` to `folder` as a bundle of functions (docs/onnx.md); returns the manifest. A `source`
    that is a folder has the graphs of an encoder and its decoder, which become functions `encode` and `decode`.

    ExportError where an operator is not supported (all of them are named), a size is left open, or inputs are of a kind
    that a page cannot give; ModelFormatError where the file is damaged; NotImplementedError, with the node, for a shape
    that depends on values.
    """
    options = options or OnnxOptions()
    source = locate(source, GRAPH.in_precision(options.quant), progress)
    if source.is_dir():
        from tinyweb.export.seq2seq import export_seq2seq  # a single graph does without

        return export_seq2seq(OnnxFolder(source), folder, options, progress)
    quant = STORED if options.quant is None else options.quant
    if quant not in get_args(ExportQuant):
        raise ExportError(f"--quant {quant} is not supported, choose one of {', '.join(get_args(ExportQuant))}.")
    recipe = options.quantization.recipe(quant)
    model = OnnxModel(source, quant=recipe)
    check_supported(model)
    became = None
    if quant == MIXED or recipe.integers:
        model, became = _quantised(model, source, quant, options)
    functions, each = functions_of(model, joined(model, options.dims), options.fixed)

    def prepare(target: str) -> None:
        model.activations = activations_for(webgpu_target() if target == "webgpu" else wasm_target())

    facts, files = about(model, Path(source), each)
    made = export_functions(
        functions, folder, name=options.name or Path(source).stem, targets=options.targets,
        shard_bytes=options.shard_bytes, force=options.force, tune=options.tune, page=options.page,
        sections={"graph": facts}, files=files, prepare=prepare, report=None if became is None else became.record(),
        progress=progress,
    )  # fmt: skip
    if became is not None and options.told is not None:
        options.told(became)
    return made


def _quantised(model: OnnxModel, source: str | Path, quant: str, options: OnnxOptions) -> tuple[OnnxModel, Report]:
    """The model with quantised matrices, compared at the first of its sizes."""
    fixed, dims = _fixed(model, options.fixed), joined(model, options.dims)
    given, words = [p for p in model.inputs if p.name not in fixed], known_words(model.graph)
    first = next(iter(sizes_of_functions(given, dims).values()))
    fixed |= {p.name: example(p, first, words) for p in given if p.dtype is None}  # nothing is drawn for text
    examples = {p.name: example(p, first) for p in given if p.dtype is not None}
    return quantised(source, quant, options.quantization, examples, fixed)


def functions_of(
    model: OnnxModel, dims: Mapping[str, Sequence[int]], values: Mapping[str, Any]
) -> tuple[dict[str, tuple[OnnxFunction, dict[str, Tensor | Words]]], dict[str, dict[str, Size]]]:
    """Functions with example inputs, and the sizes of each; arguments as in `OnnxOptions`."""
    fixed = _fixed(model, values)
    given = [p for p in model.inputs if p.name not in fixed]
    each, words = sizes_of_functions(given, dims), known_words(model.graph)
    functions = {}
    for name, sizes in each.items():
        examples = {p.name: example(p, sizes, words) for p in given}
        functions[name] = OnnxFunction(model, examples, fixed), examples
    return functions, each


def check_supported(model: OnnxModel) -> None:
    """ExportError that names every operator which is not supported, and where it stands."""
    missing = report(model)["unsupported"]
    if missing:
        each = "; ".join(f"{m['operator']} (version {m['version']}) at {', '.join(m['nodes'][:3])}"
                         f"{' …' if m['count'] > 3 else ''}{instead(m['operator'].rpartition('.')[0])}"
                         for m in missing)  # fmt: skip
        raise ExportError(f"{len(missing)} operators are not supported: {each}")


def _fixed(model: OnnxModel, values: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs that are known, as NumPy arrays of their types."""
    found = {}
    for name, value in values.items():
        p = next((p for p in model.inputs if p.name == name), None)
        if p is None or p.dtype is None:
            raise ExportError(f"The model has no input of numbers called {name!r} that could be fixed.")
        shape = [n if isinstance(n, int) else 1 for n in p.shape or ()]
        try:
            given = np.asarray(value)
            with np.errstate(all="ignore"):
                kept = given.astype(p.dtype.numpy)
        except (TypeError, ValueError):
            raise ExportError(f"Input {name!r} is of {p.dtype.name}, which cannot be {str(value)[:60]}.") from None
        if given.size != math.prod(shape):
            raise ExportError(f"Input {name!r} has the shape {shape}: {given.size} numbers cannot be its value.")
        found[name] = kept.reshape(shape)
        if not p.dtype.is_float and not (found[name] == given.reshape(shape)).all():
            raise ExportError(f"Input {name!r} is of {p.dtype.name}, which cannot be {value}.")
    return found


def joined(model: OnnxModel, dims: Dims) -> dict[str, Sequence[int]]:
    """The numbers of sizes; those that are the same as others take the others' names in the model's inputs."""
    names = {name: other for name, other in dims.items() if isinstance(other, str)}
    known = {s for p in model.inputs if p.shape is not None for s in _sizes(p)}
    for name, other in names.items():
        if name not in known or other not in known or other in names:
            raise ExportError(
                f"The size {name!r} cannot be the same as {other!r}: name two sizes of inputs, and numbers for one."
            )
    for ports in (model.inputs, model.graph.inputs):
        for i, p in enumerate(ports):
            if p.shape is not None and any(s in names for s in _sizes(p)):
                ports[i] = replace(p, shape=tuple(names.get(str(s), s) for s in _sizes(p)))
    return {name: d for name, d in dims.items() if not isinstance(d, str)}


def sizes_of_functions(inputs: Sequence[Port], dims: Mapping[str, Sequence[int]]) -> dict[str, dict[str, Size]]:
    """Each combination of the sizes, by the name of its function."""
    names = list(dict.fromkeys(s for p in inputs for s in _sizes(p) if isinstance(s, str)))
    if unknown := [n for n in dims if n not in names]:
        raise ExportError(f"The model has no size called {unknown[0]!r}; it has {', '.join(names) or 'none'}.")
    if left := [n for n in names if n not in dims]:
        said = " ".join(f"--dim {shlex.quote(f'{n}=1')}" for n in left)
        raise ExportError(f"Sizes are left open: say what they are, as in {said}, with your numbers.")
    choices = {n: [_variable(n, d)] if isinstance(d, range) else list(d) for n, d in dims.items()}
    count = math.prod(len(choices[n]) for n in names)
    if not 1 <= count <= MAX_FUNCTIONS:
        raise ExportError(f"The sizes make {count} functions: 1 to {MAX_FUNCTIONS} can be exported.")
    found = {}
    for values in itertools.product(*(choices[n] for n in names)):
        sizes = dict(zip(names, values))
        listed = [str(v) for n, v in sizes.items() if not isinstance(dims[n], range)]
        name = ENTRY if count == 1 else "_".join([ENTRY, *listed])
        found[name] = sizes
    return found


def _variable(name: str, sizes: range) -> Size:
    """A size that may be any of a range: a Variable, or so many times a Variable."""
    if not sizes or sizes.step < 1:
        raise ExportError(f"The size {name!r} is {sizes}: name at least one number, the smallest first.")
    low, high, step = sizes[0], sizes[-1], sizes.step
    if low % step:
        raise ExportError(
            f"The size {name!r} begins with {low}: sizes in steps of {step} are multiples of the step, from "
            f"{low + -low % step} on, say."
        )
    if low == high:
        return low
    counted = Variable(name if step == 1 else f"{name} / {step}", low // step, high // step)
    bound = counted.bind(low // step)
    return bound if step == 1 else bound * step


def _sizes(p: Port) -> Sequence[int | str]:
    if p.shape is None or not p.type.startswith("tensor"):
        raise ExportError(f"Input {p.name!r} is {p.type}{'' if p.shape else ' without a shape'}: a page can give "
                          "tensors of numbers or text with known shapes only.")  # fmt: skip
    return [f"{p.name}[{i}]" if s is None else s for i, s in enumerate(p.shape)]


def example(p: Port, sizes: Mapping[str, Size], words: Sequence[str] = ()) -> Any:
    """Zeros for an input, of these sizes; of those that vary the part that is in use. Text is of `words`, or OTHER."""
    shape = [sizes[s] if isinstance(s, str) else s for s in _sizes(p)]
    whole = Tensor.zeros(*map(size_max, shape), dtype=p.dtype or dtypes.int32, device=DEVICE)
    part = whole.shrink([(0, s) for s in shape])
    return part if p.dtype is not None else Words(word_list([*words, OTHER]), part)
