"""Which files of a repository a task needs, chosen from the names alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from tinyweb.errors import SourceError
from tinyweb.kinds import BITS, KINDS, STORED

NOTICES = ("LICENSE*", "LICENCE*", "NOTICE*", "COPYING*")  # what the exported site says of the model's licence
TEXTS = ("*.json", "*.jinja", "*.txt", "tokenizer.model", *NOTICES)
SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<ending>\.[a-z]+)")
USUAL_GGUF = "Q4_K_M"  # what is taken where a repository has many and none was named
# how the names of ONNX graphs end that hold a model in a precision; where none is asked for, the first that is there
PRECISIONS = {"q4": ("_q4", "_q4f16"), "q8": ("_quantized", "_int8", "_uint8"), "f16": ("_fp16", ""), "f32": ("",)}
ENCODER, MERGED, FIRST, FOLLOWING = (  # what the graphs of an encoder and its decoder are called
    "encoder_model", "decoder_model_merged", "decoder_model", "decoder_with_past_model",
)  # fmt: skip
_NO_MODEL = re.compile(r"(?i:mmproj|imatrix)[^/]*\.gguf$")  # projections of images, statistics of inputs
_GRAPH = re.compile(r"(?:onnx/)?(?P<name>[^/]+)\.onnx")


@dataclass(frozen=True)
class Choice:
    """Files to fetch. `main`: the one that is the model; None: their folder is."""

    files: tuple[str, ...]
    main: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What a task needs of a repository: `choose` takes the names of its files, and fails with a SourceError that says
    what is missing."""

    task: str
    choose: Callable[[Sequence[str]], Choice]
    endings: tuple[str, ...]  # of single files that the task reads
    quant: str | None = None  # of the ONNX graph that is taken where a repository has several
    pairs: bool = False  # whether an encoder and its decoder may stand for one graph

    @property
    def of_texts(self) -> bool:
        """Whether it is for models of texts, which come as GGUF files and as graphs beside config.json, too."""
        return ".gguf" in self.endings

    def in_precision(self, quant: str | None) -> Wanted:
        """The same, with what was said of a quantisation."""
        return replace(self, quant=None if quant == STORED else quant)

    def of(self, names: Iterable[str], choice: str | None = None) -> Choice:
        """The files to fetch. `choice`: one of them, or a quantisation that the name of a GGUF has."""
        files = sorted(names)
        if choice is not None:
            return self._chosen(files, choice)
        if self.pairs and (pair := decoders(files, self.quant)):
            return _with_graphs(files, pair)
        if self.of_texts and graphs(files) and _only_graphs(files):
            return _with_graph(files, graph_of(files, self.quant))
        return self.choose(files)

    def _chosen(self, files: Sequence[str], choice: str) -> Choice:
        if choice in files:
            if not choice.endswith(self.endings):
                raise SourceError(
                    f"{choice} cannot be read for {self.task}: choose a file of {', '.join(self.endings)}"
                )
            if choice.endswith(".onnx") and "config.json" in files:
                return _with_graph(files, choice)
            return Choice((*_shards(files, choice), *_beside(files, choice)), choice)
        if self.of_texts and (found := _gguf(files, choice)):
            return found
        if self.of_texts and choice in PRECISIONS and graphs(files):
            return _with_graph(files, graph_of(files, choice))
        raise SourceError(f"there is no {choice[:100]}: choose one of {listed(_choices(files, self.endings))}")


def listed(names: Sequence[str]) -> str:
    if not names:
        return "none, for the repository has nothing that could be read"
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _choices(files: Sequence[str], endings: tuple[str, ...]) -> list[str]:
    """The first of each set of shards, in place of all; without what other programs keep beside a model."""
    return [name for name in files if name.endswith(endings) and _is_first(name) and not _NO_MODEL.search(name)]


def ggufs(files: Sequence[str]) -> list[str]:
    """The GGUF files that are models, each by the first of its parts."""
    return _choices(files, (".gguf", ".GGUF"))


def _is_first(name: str) -> bool:
    shard = SHARD.fullmatch(name)
    return shard is None or int(shard["number"]) == 1


def _shards(files: Sequence[str], name: str) -> list[str]:
    """All parts of a split file, or the file itself."""
    shard = SHARD.fullmatch(name)
    if shard is None:
        return [name]
    parts = [f"{shard['stem']}-{n:05d}-of-{shard['count']}{shard['ending']}" for n in range(1, int(shard["count"]) + 1)]
    present = set(files)
    if missing := [part for part in parts if part not in present]:
        raise SourceError(f"of the parts of {name} there is no {missing[0]}: the repository is incomplete")
    return parts


def _beside(files: Sequence[str], name: str) -> list[str]:
    """Small files in the folder of a file: tokenizers, licences."""
    folder = name.rpartition("/")[0]
    return [f for f in files if f.rpartition("/")[0] == folder and _matches(f.rpartition("/")[2], TEXTS)]


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _gguf(files: Sequence[str], quantisation: str) -> Choice | None:
    """The one GGUF whose name has a quantisation, such as Q4_K_M."""
    word = re.compile(rf"(?<![a-z0-9]){re.escape(quantisation.lower())}(?![a-z0-9_])")
    found = [f for f in ggufs(files) if word.search(f.lower())]
    if len(found) > 1:
        raise SourceError(f"{quantisation} could be any of {listed(found)}: name the file after the colon")
    return Choice(tuple(_shards(files, found[0])), found[0]) if found else None


def _safetensors(files: Sequence[str], folder: str = "", stem: str = "model", half: bool = False) -> list[str]:
    """The weights as formats/huggingface.py looks for them, with their index; [] where there are none."""
    full = [f"{folder}{stem}.safetensors", f"{folder}{stem}.safetensors.index.json"]
    halves = [f"{folder}{stem}.fp16.safetensors", f"{folder}{stem}.safetensors.index.fp16.json"]
    present = set(files)
    for name in [*halves, *full] if half else [*full, *halves]:
        if name not in present:
            continue
        if name.endswith(".safetensors"):
            return [name]
        infix = ".fp16" if "fp16" in name else ""
        shards = re.compile(
            rf"{re.escape(folder + stem)}(?:{re.escape(infix)})?-\d{{5}}-of-\d{{5}}(?:{re.escape(infix)})?\.safetensors"
        )
        return [name, *(f for f in files if shards.fullmatch(f))]
    return []


def _transformer(files: Sequence[str]) -> Choice:
    """A folder in transformers' layout, or a repository of GGUFs."""
    if "config.json" in files and (weights := _safetensors(files)):
        modules = [f for f in files if f.endswith("/config.json") and f.count("/") == 1]  # of sentence-transformers
        texts = [f for f in files if "/" not in f and _matches(f, TEXTS)]
        modules += [f for f in files if re.fullmatch(r"\d+_Dense/model\.safetensors", f)]
        return Choice(tuple(sorted({*texts, *modules, *weights})))
    found = ggufs(files)
    if len(found) == 1:
        return Choice((*_shards(files, found[0]), *_beside(files, found[0])), found[0])
    if found:
        if usual := _gguf(files, USUAL_GGUF):
            return usual
        raise SourceError(f"there are several GGUFs; name one after a colon: {listed(found)}")
    if any(f.endswith((".bin", ".pth", ".pt")) for f in files):
        raise SourceError(
            "its weights are stored as pickles, which may hold code and are not read: look for one with safetensors"
        )
    raise SourceError("it has neither config.json with model.safetensors or onnx/model.onnx, nor a GGUF")


def graphs(files: Iterable[str]) -> list[str]:
    """The ONNX graphs of a folder, beside its config.json or in `onnx`, as Optimum and transformers.js put them."""
    return [f for f in files if _GRAPH.fullmatch(f)]


def graph_names(folder: Path) -> list[str]:
    """Those of a folder on this machine."""
    return graphs(sorted(p.relative_to(folder).as_posix() for f in (folder, folder / "onnx") for p in f.glob("*.onnx")))


def _only_graphs(files: Sequence[str]) -> bool:
    return "config.json" in files and not _safetensors(files) and not ggufs(files)


def graph_of(files: Iterable[str], quant: str | None = None, stems: Iterable[str] = ("model",)) -> str:
    """The graph of a model in a precision, else the one of floats, from which it can be made; None: the first of
    `PRECISIONS` that is there. `stems`: what it may be called before what says the precision, the first first.
    SourceError where there is none."""
    found = {_GRAPH.sub(r"\g<name>", f): f for f in graphs(files)}
    if quant is not None and quant not in KINDS:
        raise SourceError(f"ONNX graphs are of {', '.join(KINDS)}, not {quant}")
    endings = [e for q in (PRECISIONS if quant is None else (quant,)) for e in PRECISIONS.get(q, ())]
    if quant in BITS:
        endings += [*PRECISIONS["f32"], *PRECISIONS["f16"]]
    for stem in stems:
        for ending in endings:
            if stem + ending in found:
                return found[stem + ending]
    has = f"it has {listed(sorted(found.values()))}; choose another, or name one of them"
    raise SourceError(f"there is no {' or '.join(stems)} as ONNX graph{f' of {quant}' if quant else ''}: {has}")


def quant_of(graph: str) -> str:
    """The precision that a graph's name says."""
    stem = graph.rpartition("/")[2].removesuffix(".onnx")
    return next((q for q, endings in PRECISIONS.items() for e in endings if e and stem.endswith(e)), "f32")


def decoders(files: Sequence[str], quant: str | None = None) -> list[str]:
    """The graphs of an encoder and its decoder: that one merged, or without and with a cache. [] where there is no
    encoder."""
    if not any(_GRAPH.sub(r"\g<name>", f).startswith(ENCODER) for f in graphs(files)):
        return []
    encoder = graph_of(files, quant, (ENCODER,))
    try:
        return [encoder, graph_of(files, quant, (MERGED,))]
    except SourceError:
        return [encoder, *(graph_of(files, quant, (stem,)) for stem in (FIRST, FOLLOWING))]


def _with_graph(files: Sequence[str], graph: str) -> Choice:
    return replace(_with_graphs(files, [graph]), main=graph)


def _with_graphs(files: Sequence[str], graphs: Sequence[str]) -> Choice:
    """Graphs with the files that their numbers lie in, and the folder's texts."""
    data = [f for f in files if f.startswith(tuple(f"{g}{end}" for g in graphs for end in ("_data", ".data")))]
    texts = [f for f in files if "/" not in f and _matches(f, TEXTS)]
    modules = [f for f in files if f.endswith("/config.json") and f.count("/") == 1]
    return Choice(tuple(sorted({*graphs, *data, *texts, *modules})))


def _diffusers(half: bool) -> Callable[[Sequence[str]], Choice]:
    def choose(files: Sequence[str]) -> Choice:
        parts = {"text_encoder/": "model", "unet/": "diffusion_pytorch_model", "vae/": "diffusion_pytorch_model"}
        found = [_safetensors(files, folder, stem, half) for folder, stem in parts.items()]
        if "model_index.json" in files and all(found):
            texts = [f for f in files if f.count("/") <= 1 and _matches(f.rpartition("/")[2], TEXTS)]
            chosen = {name for names in found for name in names}
            return Choice(
                tuple(sorted({*chosen, *(f for f in texts if not f.startswith("safety_checker/") and not _index(f))}))
            )
        raise SourceError(
            "it is no Stable Diffusion in diffusers' layout (model_index.json, text_encoder/, unet/ and vae/ with "
            "safetensors); a single .safetensors checkpoint is named after a colon"
        )

    return choose


def _index(name: str) -> bool:
    return ".safetensors.index" in name or name.endswith(".bin.index.json")


def _one_file(endings: tuple[str, ...]) -> Callable[[Sequence[str]], Choice]:
    def choose(files: Sequence[str]) -> Choice:
        found = [f for f in files if f.endswith(endings)]
        if len(found) == 1:
            return Choice((found[0], *_beside(files, found[0])), found[0])
        if found:
            raise SourceError(f"there are several models; name one after a colon: {listed(found)}")
        raise SourceError(f"it has no file of {', '.join(endings)}")

    return choose


_WEIGHTS = (".pt", ".onnx", ".safetensors")
CHAT = Wanted("a chat", _transformer, (".gguf", ".onnx"))
EMBED = Wanted("sentence embeddings", _transformer, (".gguf", ".onnx"))
DETECT = Wanted("detection", _one_file(_WEIGHTS), _WEIGHTS)
GRAPH = Wanted("a page of any graph", _one_file((".onnx",)), (".onnx",), pairs=True)
IMAGE = Wanted("pictures", _diffusers(half=False), (".safetensors",))
IMAGE_HALF = Wanted("pictures", _diffusers(half=True), (".safetensors",))
