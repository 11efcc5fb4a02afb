"""Sentence embeddings: texts to vectors whose cosine says how much they mean the same (Reimers and Gurevych 2019).

    embedder = Embedder.from_folder("all-MiniLM-L6-v2")
    query = embedder.encode(["how do plants eat"], "query")
    passages = embedder.encode(["Leaves turn light into sugar.", "Trains run on rails."])
    query @ passages.T                                       # cosines

What is notable:
- A folder is laid out as sentence-transformers writes it: an encoder, `modules.json`, `1_Pooling/config.json`, prompts
  in `config_sentence_transformers.json`. Without these files: the mean over the tokens, normalised.
- Some models want texts to begin with words that say what they are (e5: "query: ", "passage: "). They come from the
  folder's prompts, or, for families that never wrote theirs down, from the folder's name.
- The network runs at a few fixed shapes: texts are padded to the next of `LENGTHS`, short ones run side by side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import tokenizers

from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.control_tokens import ControlTokens, guarded_backend, understood
from tinyweb.formats.huggingface import Checkpoint, ModelFolder, parse_json_list
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.formats.source import open_model
from tinyweb.formats.tokenizer import read_backend
from tinyweb.models import encoder
from tinyweb.models.encoder import Encoder
from tinyweb.nn.parameters import parameter
from tinyweb.nn.precision import Recipe
from tinyweb.sources import EMBED, locate
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit

if TYPE_CHECKING:
    from tinyweb.models.onnx_encoder import OnnxEncoder

KINDS = ("query", "passage")
LENGTHS = (32, 128, 512)  # tokens that texts are padded to
TOKENS = 512  # that run at a time where there are many texts
MODULES = ("Transformer", "Pooling", "Dense", "Normalize")
DENSE_ACTIVATIONS = {"Identity": None, "Tanh": Tensor.tanh, "ReLU": Tensor.relu, "GELU": Tensor.gelu}
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len", "lasttoken")  # in the order in which several are joined
POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_lasttoken": "lasttoken",
}
OTHER_FLAGS = ("pooling_mode_weightedmean_tokens",)
BGE = "Represent this sentence for searching relevant passages: "
# the families whose folders do not say what their texts begin with, by the folder's name
FAMILIES = (
    (re.compile(r"(^|[-_])e5-(small|base|large)(-v2|-unsupervised)?$", re.I),
     {"query": "query: ", "passage": "passage: "}),
    (re.compile(r"(^|[-_])bge-(small|base|large)-en(-v1\.5)?$", re.I), {"query": BGE}),
)  # fmt: skip
PROMPT_NAMES = {"query": ("query", "s2p_query"), "passage": ("passage", "document")}


@dataclass(frozen=True)
class EmbeddingSettings:
    """What belongs to an encoder to make sentence embeddings of it.

    `pooling`: how tokens become one vector, of POOLINGS; several are joined. `dense`: folders of layers that the
    vector goes through. `max_length`: tokens of a text, special
    ones included; what is longer is cut. `prefixes`: what a text of a kind begins with. `lowercase`: before the
    tokenizer, beside what that does itself. `pooling_said`: by the folder or an option; else it is a guess.
    """

    pooling: tuple[str, ...] = ("mean",)
    dense: tuple[str, ...] = ()
    normalize: bool = True
    max_length: int = 512
    lowercase: bool = False
    prefixes: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(KINDS, ""))
    pooling_said: bool = True

    @classmethod
    def of_folder(cls, folder: ModelFolder, positions: int) -> Self:
        """What a folder says; ModelFormatError where that is not supported. `positions`: the most the encoder reads."""
        pooling: tuple[str, ...] = ("mean",)
        dense: tuple[str, ...] = ()
        normalize = said = True
        if (modules := folder.text("modules.json")) is not None:
            pooling, dense, normalize = _modules(folder, modules)
        elif folder.text("1_Pooling/config.json") is not None:
            pooling = _pooling(folder, "1_Pooling")
        else:
            said = False
        text = folder.read_config("sentence_bert_config.json", required=False)
        return cls(
            pooling=pooling,
            dense=dense,
            normalize=normalize,
            max_length=min(text.integer("max_seq_length", 3, 1 << 20, positions), positions),
            lowercase=text.flag("do_lower_case", False),
            prefixes=_prefixes(folder),
            pooling_said=said,
        )


def _modules(folder: ModelFolder, text: str) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Pooling, folders of dense layers, and whether vectors are normalised, by the text of modules.json."""
    path = folder.path / "modules.json"
    entries = parse_json_list(text, str(path))
    kinds: list[str] = []
    dense: list[str] = []
    pooling: tuple[str, ...] = ("mean",)
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            raise ModelFormatError(f"{path} lists something that is no module: the file is damaged, download it again")
        kind = entry["type"].rsplit(".", 1)[-1]
        if kind not in MODULES:
            raise ModelFormatError(f"{path} names a module {kind[:40]!r}; supported here: {', '.join(MODULES)}")
        where = entry.get("path", "")
        if kind == "Transformer" and where not in ("", "."):
            raise ModelFormatError(
                f"{path}: the encoder lies in {str(where)[:40]!r}, only the folder itself is supported"
            )
        if kind in ("Pooling", "Dense"):
            if not isinstance(where, str) or Path(where).name != where or where in ("", "..") or len(where) > 255:
                raise ModelFormatError(f"{path}: the folder of {kind} is {str(where)[:40]!r}, no folder of this model")
            if kind == "Dense":
                dense.append(where)
            else:
                pooling = _pooling(folder, where)
        kinds.append(kind)
    last = ["Normalize"] if kinds[-1:] == ["Normalize"] else []
    if kinds != ["Transformer", "Pooling", *["Dense"] * len(dense), *last]:
        raise ModelFormatError(f"{path} lists {', '.join(kinds)[:80]}; supported, in this order: {', '.join(MODULES)}")
    return pooling, tuple(dense), bool(last)


def _pooling(folder: ModelFolder, name: str) -> tuple[str, ...]:
    c = folder.read_config(f"{name}/config.json")
    if not c.flag("include_prompt", True):
        raise ModelFormatError(
            f"{c.where}: pooling that leaves out the prompt ('include_prompt' false) is not supported"
        )
    named = c.values.get("pooling_mode")
    if named is not None:  # as later versions write it
        modes = named if isinstance(named, list) else [named]
    else:
        modes = [POOLING_FLAGS.get(flag, flag) for flag in (*POOLING_FLAGS, *OTHER_FLAGS) if c.flag(flag, False)]
    unknown = [m for m in modes if m not in POOLINGS]
    if unknown or not modes:
        what = f"pooling {str(unknown[0])[:40]!r}" if unknown else "no pooling"
        raise ModelFormatError(f"{c.where} asks for {what}; supported here: {', '.join(POOLINGS)}")
    return tuple(m for m in POOLINGS if m in modes)


class Behind(Protocol):
    """What a pooled vector goes through: (batch, numbers that come in) → (batch, width)."""

    @property
    def width(self) -> int: ...
    def __call__(self, x: Tensor) -> Tensor: ...


class Dense:
    """A layer that the pooled vector goes through, of a folder `name`. It is never quantised."""

    def __init__(self, folder: ModelFolder, name: str, width: int, device: str | None):
        c = folder.read_config(f"{name}/config.json")
        given, self.width = c.integer("in_features", 1, 1 << 20), c.integer("out_features", 1, 1 << 20)
        if given != width:
            raise ModelFormatError(f"{c.where}: 'in_features' {given} is not the width of what comes in, {width}")
        kind = c.word("activation_function", "torch.nn.modules.activation.Tanh").rpartition(".")[2]
        if kind not in DENSE_ACTIVATIONS:
            known = ", ".join(DENSE_ACTIVATIONS)
            raise ModelFormatError(f"{c.where}: 'activation_function' {kind[:40]!r} is not supported; known: {known}")
        self.activation = DENSE_ACTIVATIONS[kind]
        checkpoint = Checkpoint(folder.path / name)
        self.weight = parameter(checkpoint.read("linear.weight", (self.width, width)), device)
        bias = c.flag("bias", True)
        self.bias = parameter(checkpoint.read("linear.bias", (self.width,)), device) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, width that comes in) → (batch, width)."""
        y = x @ self.weight.transpose(0, 1)
        y = y if self.bias is None else y + self.bias
        return y if self.activation is None else self.activation(y)


def _prefixes(folder: ModelFolder) -> dict[str, str]:
    """What a text of each kind begins with, by the folder's prompts, or its name."""
    found = dict.fromkeys(KINDS, "")
    prompts = folder.read_config("config_sentence_transformers.json", required=False).section("prompts")
    if prompts is not None:
        for kind, names in PROMPT_NAMES.items():
            found[kind] = next((prompts.word(n) for n in names if prompts.values.get(n)), "")
    if not any(found.values()):
        name = folder.name
        found |= next((words for pattern, words in FAMILIES if pattern.search(name)), {})
    return found


class Embedder:
    """An encoder with its tokenizer. `settings.prefixes` and `settings.max_length` may be changed by `replace`."""

    def __init__(
        self,
        model: Encoder | OnnxEncoder,
        backend: tokenizers.Tokenizer,
        settings: EmbeddingSettings,
        dense: Sequence[Behind] = (),
    ):
        self.model, self.settings, self.dense = model, settings, dense
        self.backend = backend
        self.backend.no_padding()
        self.backend.enable_truncation(settings.max_length)
        self._run = jit(self.vectors)

    @classmethod
    def from_folder(
        cls, source: str | Path | ModelFolder, quant: str | Recipe | None = None, device: str | None = None,
        activations: str | None = None, *, max_length: int | None = None, prefixes: Mapping[str, str] | None = None,
        pooling: str | None = None,
    ) -> Self:  # fmt: skip
        """Reads a folder of sentence-transformers or Hugging Face, an encoder (`models.encoder`) and tokenizer.json, or
        a GGUF file; here or on the hub (tinyweb/sources).

        `quant`, `activations`: as of `encoder.load`. `max_length`: tokens after which texts are cut, at most what the
        encoder reads. `prefixes`: what a "query" or "passage" begins with, and `pooling`: how the tokens' hidden states
        become one vector ("mean", "cls", "lasttoken", "max", "mean_sqrt_len"), in place of what the folder says.

        Raises ModelFormatError for a folder that is missing, damaged or not supported; TinywebError for an option that
        cannot be.
        """
        folder: Any = source
        if isinstance(source, str | Path):
            folder = open_model(locate(source, EMBED.in_precision(quant if isinstance(quant, str) else None)))
        model: Encoder | OnnxEncoder
        if isinstance(folder, OnnxFolder):
            from tinyweb.models.onnx_encoder import load_encoder  # checkpoints do without

            model = load_encoder(folder, quant if isinstance(quant, str) else None, device)
        else:
            model = encoder.load(folder, quant, device, activations)
        settings = EmbeddingSettings.of_folder(folder, model.config.positions)
        backend = read_backend(folder)
        if (words := backend.get_vocab_size(with_added_tokens=True)) > model.config.vocab_size:
            raise ModelFormatError(
                f"{folder.path}: tokenizer.json has {words} tokens, the encoder {model.config.vocab_size}: "
                "the files are not of one model"
            )
        if max_length is not None:
            if not 3 <= max_length <= model.config.positions:
                raise TinywebError(
                    f"texts of {max_length} tokens are not possible: {folder.path} allows 3 to {model.config.positions}"
                )
            settings = replace(settings, max_length=max_length)
        if pooling is not None:
            settings = replace(settings, pooling=(check_pooling(pooling),), pooling_said=True)
        for kind in prefixes or {}:
            _check_kind(kind)
        layers: list[Dense] = []
        for name in settings.dense:
            width = layers[-1].width if layers else model.config.hidden_size * len(settings.pooling)
            layers.append(Dense(folder, name, width, device))
        return cls(model, backend, replace(settings, prefixes={**settings.prefixes, **(prefixes or {})}), layers)

    @property
    def dimensions(self) -> int:
        """Numbers of a vector."""
        if self.dense:
            return self.dense[-1].width
        return self.model.config.hidden_size * len(self.settings.pooling)

    @property
    def note(self) -> str | None:
        """What is to be known of the vectors; None where the model says all that makes them."""
        if self.settings.pooling_said:
            return None
        causal = isinstance(self.model, Encoder) and self.model.config.causal
        what = " This is a language model, and vectors of one that was not trained further for it tell meanings apart "
        return (
            "the model does not say how its tokens' hidden states become one vector, so their mean is taken; "
            "--pooling mean, cls or lasttoken says it."
        ) + (what + "badly: look for a model that was made for embeddings" if causal else "")

    @property
    def lengths(self) -> tuple[int, ...]:
        """What texts are padded to, shortest first."""
        return padded_lengths(self.settings.max_length)

    def tokens(self, texts: Sequence[str], kind: str = "passage") -> list[list[int]]:
        """Token ids of texts of a kind, its prefix in front, special tokens added; what is too long is cut."""
        _check_kind(kind)
        prefix = self.settings.prefixes[kind]
        control, backend = self._guarded  # a text that names a special token is text
        whole = [control.guard(prefix + t) for t in texts]
        if self.settings.lowercase:
            whole = [t.lower() for t in whole]
        with understood():
            return [list(e.ids) for e in backend.encode_batch(whole, add_special_tokens=True)]

    @cached_property
    def _guarded(self) -> tuple[ControlTokens, tokenizers.Tokenizer]:
        return guarded_backend(self.backend)

    def vectors(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """ids (batch, tokens), of which the first `lengths` (batch,), at least 1, are a text → (batch, dimensions)."""
        tokens = ids.shape[1]
        assert isinstance(tokens, int)
        inside = Tensor.arange(tokens, device=ids.device).unsqueeze(0) < lengths.unsqueeze(1)
        hidden = self.model(ids, inside)
        last = (Tensor.arange(tokens, device=ids.device).unsqueeze(0) == lengths.unsqueeze(1) - 1).unsqueeze(-1)
        inside, count = inside.unsqueeze(-1), lengths.float().unsqueeze(-1)
        pooled: dict[str, Any] = {
            "cls": lambda: hidden[:, 0],
            "max": lambda: inside.where(hidden, -np.inf).max(1),
            "mean": lambda: inside.where(hidden, 0.0).sum(1) / count,
            "mean_sqrt_len": lambda: inside.where(hidden, 0.0).sum(1) / count.sqrt(),
            "lasttoken": lambda: last.where(hidden, 0.0).sum(1),
        }
        parts = [pooled[p]() for p in self.settings.pooling]
        joined: Tensor = parts[0] if len(parts) == 1 else Tensor.cat(*parts, axis=1)
        for layer in self.dense:
            joined = layer(joined)
        if not self.settings.normalize:
            return joined
        return joined / (joined * joined).sum(1, keepdim=True).sqrt().maximum(1e-12)

    def encode(self, texts: Sequence[str], kind: str = "passage") -> npt.NDArray[np.float32]:
        """Vectors (texts, dimensions) float32, of length 1 where the model says so; of an empty text, too.

        `kind`: "query" for what is looked for, "passage" for what is found. ValueError for another.
        """
        rows = self.tokens(texts, kind)
        out = np.empty((len(rows), self.dimensions), np.float32)
        waiting = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for length in self.lengths:
            fits = [i for i in waiting if len(rows[i]) <= length]
            waiting = waiting[len(fits) :]
            batch = batch_size(length)
            while fits:
                # one by one where a batch would be mostly empty
                count = batch if 2 * len(fits) > batch else 1
                now, fits = fits[:count], fits[count:]
                ids, lengths = pad([rows[i] for i in now], count, length)
                device = self.model.device
                out[now] = self._run(Tensor(ids, device=device), Tensor(lengths, device=device)).numpy()[: len(now)]
        return out


def check_pooling(name: str) -> str:
    """The name, or TinywebError where there is no such pooling."""
    if name not in POOLINGS:
        raise TinywebError(f"there is no pooling {name[:40]!r}: choose {', '.join(POOLINGS)}")
    return name


def padded_lengths(longest: int, wanted: Sequence[int] = LENGTHS) -> tuple[int, ...]:
    """What texts of at most `longest` tokens are padded to: those of `wanted` below it, and itself."""
    return (*sorted({n for n in wanted if n < longest}), longest)


def batch_size(length: int) -> int:
    """Texts that run side by side where there are many."""
    return max(TOKENS // length, 1)


def pad(rows: Sequence[Sequence[int]], batch: int, length: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """ids (batch, length) and lengths (batch,) of at most `batch` texts; places left over hold a text of one token."""
    ids, lengths = np.zeros((batch, length), np.int32), np.ones(batch, np.int32)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        lengths[i] = max(len(row), 1)
    return ids, lengths


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"a text is a {' or a '.join(KINDS)}, not {kind!r}")
