"""`tinyweb export chat`: a model folder becomes a site that chats, on WebGPU and on WebAssembly."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tinyweb.errors import ExportError
from tinyweb.export.bindings import within
from tinyweb.export.compile import Progress
from tinyweb.export.expression import merge_variables
from tinyweb.export.fitting import choose, fit_on
from tinyweb.export.inspect import kernels_per_token
from tinyweb.export.inspect_source import expect
from tinyweb.export.loader import write_loader
from tinyweb.export.manifest import ChatFacts, manifest, write_manifest
from tinyweb.export.memory import Named, plan_memory, read_memory
from tinyweb.export.precision import described, has_integers, kept, reported
from tinyweb.export.profiles import PAGE_BYTES, Fit, named_profile
from tinyweb.export.site import REPORT, check_output, check_page, copy_page, new_site, write_json
from tinyweb.export.wasm import MAX_THREADS, compile_modules, plan_layout, write_wasm
from tinyweb.export.webgpu import BINDING_BYTES, compile_variants, write_webgpu
from tinyweb.export.weights import DEFAULT_SHARD_BYTES, ShardWriter, check_shard_bytes, write_weights
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.formats.source import open_model
from tinyweb.formats.tokenizer import Tokenizer, tokenizer_text
from tinyweb.graph.schedule import nbytes
from tinyweb.graph.target import wasm_target, webgpu_target
from tinyweb.kinds import STORED
from tinyweb.models.chat import Settings, entry_points, prefill_blocks, usual_calls, verify_block
from tinyweb.models.decoder import Decoder, load
from tinyweb.models.onnx_decoder import OnnxDecoder
from tinyweb.nn.precision import Recipe
from tinyweb.nn.quantize import activations_for
from tinyweb.quantization import ChatReader, QuantOptions, Report, quantise
from tinyweb.sources import CHAT, locate
from tinyweb.tensor import Tensor
from tinyweb.tracing import Plan

DEVICE = "DISK"  # where the weights wait to be written
FILES = {
    "tokenizer": "tokenizer.json",
    "tokenizer_config": "tokenizer_config.json",
    "chat_template": "chat_template.jinja",
}
FIRST_VARIABLES = ("start_pos", "count")


@dataclass(frozen=True)
class ExportOptions:
    """What the command line offers. `quant` None: as it is stored where that is quantised, else q8. `context` None:
    what the model allows, within reason. `name` None: the folder's."""

    quant: str | None = None  # None: what is stored where that is quantised, else 8 bits; or what fits `profile`
    context: int | None = None
    shard_bytes: int = DEFAULT_SHARD_BYTES
    name: str | None = None
    force: bool = False
    tune: float = 0.0  # seconds to look for faster kernels, half for each target
    activations: str | None = None  # one of kinds.ACTIVATIONS for all targets; None: what suits each
    profile: str | None = None  # a kind of device that it is to fit, by quantisation, cache and context
    chat_template: Path | None = None  # in place of the model's; a model without one gets a page that continues texts
    quantization: QuantOptions = field(default_factory=QuantOptions)
    binding_bytes: int = BINDING_BYTES  # of the largest buffer that a GPU must bind
    cache: str | None = None  # "f16", "f32", "q8" or "q4"; None: "f32" beside float32 weights, else "f16"


@dataclass(frozen=True)
class Exported:
    """What was written."""

    weight_bytes: int
    shards: int
    kernels_per_token: int
    report: Report  # what became of the weights
    context: int
    cache: str
    fit: Fit | None = None  # on the device of the profile

    @property
    def quant(self) -> str:
        """How the weights are stored."""
        return self.report.quant


def export_chat(source: str | Path, output: Path, options: ExportOptions, progress: Progress) -> Exported:
    """Write the site of the language model at `source` (tinyweb/sources) to `output`; after an error nothing is left.

    Raises ExportError (output, options, page), ModelFormatError (the model) or ToolchainError.
    """
    check_output(output, options.force)
    check_shard_bytes(options.shard_bytes)
    if options.profile is not None:
        named_profile(options.profile)  # before the work, not after it
    folder = locate(source, CHAT.in_precision(options.quant), progress)
    expect(folder, "chat")
    opened = open_model(folder)
    settings = Settings.of_folder(opened)
    tokenizer = Tokenizer.from_folder(opened, options.chat_template)
    page = "completion" if tokenizer.completes else "chat"
    check_page(page)
    factor = 1.0  # of what was estimated, as exports have shown
    while True:
        progress("reading the model", 0, 1)
        choice, attempt = None, options
        if options.profile is not None and not isinstance(opened, OnnxFolder):
            choice = choose(opened, options, factor)
            attempt = replace(options, quant=choice.quant, cache=choice.cache, context=choice.context)
        model, told = _read(opened, tokenizer, attempt, progress)
        progress("reading the model", 1, 1)
        with suppress(_Misfit), new_site(output, options.force) as site:
            written = _write_bundle(site / "model", opened, model, told, tokenizer, settings, attempt, progress)
            fit = fit_on(written, options.profile) if options.profile is not None else None
            if fit is not None and not fit.fits:
                if choice is None or fit.needs <= fit.memory:  # it is not the memory
                    raise ExportError(f"{source} does not fit on a {fit.title}: {fit.limit}: take a smaller model.")
                factor = (fit.needs - PAGE_BYTES) / choice.needs
                raise _Misfit
            write_json(site / REPORT, told.record())
            copy_page(site, page, opened.path)
            weights = written["weights"]
            return Exported(
                weights["bytes"], len(weights["shards"]), kernels_per_token(written), told, model.context,
                model.cache, fit,
            )  # fmt: skip


class _Misfit(Exception):
    """What was exported needs more than was estimated: another choice is tried."""


def _read(
    source: ModelFolder, tokenizer: Tokenizer, options: ExportOptions, progress: Progress
) -> tuple[Decoder | OnnxDecoder, Report]:
    """The model, and what became of its weights."""
    if isinstance(source, OnnxFolder):
        from tinyweb.export.graphs import read_graph  # checkpoints do without

        return read_graph(source, options, DEVICE)
    quant, reference = kept(source, options.quant), "f32" if source.stored_types() else None

    def read(recipe: Recipe) -> ChatReader:
        # what is fitted begins as floats: the cache is that of the result
        cache = options.cache or ("f16" if quant not in ("f32", STORED) else None)
        model = load(source, recipe, options.context, DEVICE, options.activations or "float", cache=cache)
        return ChatReader(model, tokenizer)

    made = quantise(read, quant, options.quantization, progress, reference)
    return made.reader.model, reported(made.report, source, quant)


def _write_bundle(
    bundle: Path,
    source: ModelFolder,
    model: Decoder | OnnxDecoder,
    report: Report,
    tokenizer: Tokenizer,
    settings: Settings,
    options: ExportOptions,
    progress: Progress,
) -> dict[str, Any]:
    """Everything of model/; the manifest."""
    bundle.mkdir()
    targets = {"webgpu": webgpu_target(), "wasm": wasm_target(MAX_THREADS)}
    rounded = dict.fromkeys(targets, "float")
    if has_integers(source, report.quant) or report.integers:
        rounded = {name: options.activations or activations_for(target) for name, target in targets.items()}
    captured: dict[str, Mapping[str, Plan]] = {}
    for name, target in targets.items():
        model.activations = rounded[name]
        captured[name] = entry_points(model, progress, target)
    every = {f"{name} {entry}": p for name, found in captured.items() for entry, p in found.items()}
    talked = (model.ids, model.logits, model.sampling_f, model.sampling_i, model.verified)  # to and from the page
    plans, divided = within(captured["webgpu"], options.binding_bytes, frozenset(t.uop.buffer for t in talked))
    known = [*_named(model.weights, "weight"), *_named(model.state, "state")]
    memory = plan_memory(every, [*known, *_unnamed(every, known)], divided)
    whole = captured["wasm"]
    plan_layout(memory.of(whole))  # refuses a model that is too large before the work begins
    variables = merge_variables((v for plan in every.values() for v in plan.variables), FIRST_VARIABLES)
    tune, calls = options.tune / 2, usual_calls(plans)
    webgpu = write_webgpu(bundle, compile_variants(plans, progress, tune, calls), memory.of(plans), variables)
    wasm = write_wasm(bundle, compile_modules(whole, progress, tune, calls), memory.of(whole), variables, progress)
    with ShardWriter(bundle, options.shard_bytes) as writer:
        segments = write_weights(writer, memory, progress)
    files = _write_texts(bundle, source, tokenizer)
    written = manifest(
        options.name or source.name,
        _figures(model, source, report),
        files,
        writer,
        segments,
        memory,
        variables,
        _facts(model, tokenizer, settings),
        {"webgpu": webgpu, "wasm": wasm},
    )
    written = write_manifest(bundle, written)
    write_loader(bundle, written)
    return written


def _named(tensors: Mapping[str, Tensor], kind: str) -> list[Named]:
    found: list[Named] = []
    for name, t in tensors.items():
        shape = tuple(s for s in t.shape if isinstance(s, int))
        read = partial(read_memory, DEVICE, t.uop.buffer) if kind == "weight" else None
        found.append(Named(name, kind, t.uop.buffer, t.dtype, shape, t.nbytes(), read))
    return found


def _unnamed(plans: Mapping[str, Plan], known: list[Named]) -> list[Named]:
    """Weights that a graph has no name for: numbers that are known before any input is."""
    names = {n.buffer for n in known}
    used = {b: None for p in plans.values() for c in p.calls for b in c.buffers if b not in p.memory.pool_of}
    return [
        Named(f"constant.{i}", "weight", b, b.dtype, (int(b.arg.size),), nbytes(b), partial(read_memory, DEVICE, b))
        for i, b in enumerate(b for b in used if b not in names)
    ]


def _write_texts(bundle: Path, source: ModelFolder, tokenizer: Tokenizer) -> dict[str, str]:
    """The files that were written, by what they are."""
    texts = {
        "tokenizer": tokenizer_text(source),
        "tokenizer_config": source.text("tokenizer_config.json") or "{}\n",
    }
    if tokenizer.template is not None:
        texts["chat_template"] = tokenizer.template.source
    for name, text in texts.items():
        (bundle / FILES[name]).write_text(text, encoding="utf-8", newline="\n")
    return {name: FILES[name] for name in texts}


def _figures(model: Decoder | OnnxDecoder, source: ModelFolder, report: Report) -> dict[str, Any]:
    measured = {} if report.fidelity is None else {"fidelity": report.fidelity}
    return {
        "architecture": source.config.word("model_type", "decoder"),
        "parameters": model.parameter_count,
        "layers": model.layer_count,
        "vocab_size": model.vocab_size,
        "context": model.context,
        "quant": described(source, report.quant),
        "cache": model.cache,
        **measured,
    }


def _facts(model: Decoder | OnnxDecoder, tokenizer: Tokenizer, settings: Settings) -> ChatFacts:
    vocabulary = model.vocab_size
    eos = tuple(t for t in tokenizer.eos if t < vocabulary)
    if not eos:
        raise ExportError(
            f"The end tokens {tokenizer.eos} are not in the model's vocabulary of {vocabulary}: no answer would end."
        )
    verify = verify_block(model.context, model.rewinds)
    states = {"verified": model.verified} if verify else {}
    states |= {"ids": model.ids, "logits": model.logits, "sampling_f": model.sampling_f, "sampling_i": model.sampling_i}
    defaults = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k,
        "repetition_penalty": settings.repetition_penalty,
        "max_tokens": min(settings.max_tokens, model.context),
    }
    bos = tokenizer.bos if tokenizer.bos is not None and tokenizer.bos < vocabulary else None
    buffers = {k: t.uop.buffer for k, t in states.items()}
    begin = tokenizer.begin if tokenizer.completes else None
    return ChatFacts(eos, bos, prefill_blocks(model.context), buffers, defaults, verify, model.rewinds, begin)
