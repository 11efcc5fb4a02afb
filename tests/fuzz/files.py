"""Files of models, whole ones of every format, how each is damaged, and what reads them."""

from __future__ import annotations

import io
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from safetensors.numpy import save
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from tests.formats.gguf import test_file, whole_models
from tests.formats.packed import test_packed
from tests.fuzz import graphs
from tests.fuzz.damage import (
    Random,
    damaged_archive,
    damaged_beginning,
    damaged_bytes,
    damaged_json,
    damaged_pickle,
    damaged_template,
)
from tests.models import decoder_folders, encoder_folders, tiny_diffusion
from tinyweb.errors import ModelFormatError
from tinyweb.formats.chat_template import ChatTemplate
from tinyweb.formats.gguf.file import parse
from tinyweb.formats.huggingface import Checkpoint, Config, ModelFolder, read_json
from tinyweb.formats.longest_match import VOCABULARY
from tinyweb.formats.safetensors import SafetensorsFile
from tinyweb.formats.tokenizer import TextStream, Tokenizer
from tinyweb.formats.torch_checkpoint import TorchCheckpoint
from tinyweb.formats.torch_pickle import PickleError, read_pickle
from tinyweb.models.chat import Settings
from tinyweb.models.decoder import architectures as decoder
from tinyweb.models.embedding import EmbeddingSettings
from tinyweb.models.encoder import architectures as encoder
from tinyweb.models.preprocessing import Preprocessing
from tinyweb.models.schedulers import SchedulerConfig
from tinyweb.models.stable_diffusion.autoencoder import VAEConfig
from tinyweb.models.stable_diffusion.clip import TextConfig
from tinyweb.models.stable_diffusion.prompt import PromptTokenizer
from tinyweb.models.stable_diffusion.unet import UNetConfig

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
Damage = Callable[[bytes, Random], bytes]
ASKED = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi é🦊 <|end|> [SEP] "},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Go on"},
]


@dataclass(frozen=True)
class Sample:
    """`files` by name, of which one of `damaged` is changed by `damage` before `read` gets the folder."""

    files: dict[str, bytes]
    damaged: tuple[str, ...]
    damage: Damage
    read: Callable[[Path], object]


def whole(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def as_json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


# -- tensors -----------------------------------------------------------------------------------------------------------
def gguf(folder: Path) -> Iterator[Sample]:
    content = test_file.whole_file(folder / "file")

    def tensors(path: Path) -> None:
        for t in parse(path, memoryview((path / "m.gguf").read_bytes()))[1].values():
            assert t.numpy().shape == t.shape and t.numpy().size <= 4 * len(content)

    yield Sample({"m.gguf": content}, ("m.gguf",), damaged_bytes, tensors)
    for model in whole_models.models(folder):
        yield Sample({"m.gguf": model}, ("m.gguf",), damaged_beginning, lambda f: whole_models.read_all(f / "m.gguf"))


def safetensors(folder: Path) -> Iterator[Sample]:
    values: dict[str, Any] = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float16), "c": np.ones((2, 1), np.int64),
        "d": np.ones(3, np.bool_), "e": np.zeros((0, 3), np.float32), "s": np.array(1.5),
    }  # fmt: skip

    def read(path: Path) -> None:
        file = SafetensorsFile(path / "model.safetensors")
        for name in file.entries:
            file.read(name)

    def header(content: bytes, random: Random) -> bytes:
        size = int.from_bytes(content[:8], "little")
        changed = damaged_json(content[8 : 8 + size], random)
        return len(changed).to_bytes(8, "little") + changed + content[8 + size :]

    for damage in (damaged_bytes, header):
        yield Sample({"model.safetensors": save(values, {"format": "pt"})}, ("model.safetensors",), damage, read)

    def every(path: Path) -> None:
        weights = ModelFolder(path).weights()
        for name in weights:
            weights.read(name, weights.entry(name).shape)

    for case, (settings, pack) in test_packed.CASES.items():
        test_packed.packed_folder(folder / case, settings, pack)
        files = whole(folder / case)
        for damage in (damaged_beginning, header):
            yield Sample(files, ("model.safetensors",), damage, every)
        yield Sample(files, ("config.json",), damaged_json, every)


def pickles(folder: Path) -> Iterator[Sample]:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 1), torch.nn.Sequential(torch.nn.BatchNorm2d(3, track_running_stats=False))
    )
    vars(module)["names"] = {0: "cat"}  # as a detector has them: a module's annotations allow tensors alone
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    held: list[Any] = [
        {"w": base, "turned": base.T, "part": base[1:3, ::2], "brain": base.bfloat16(), "empty": torch.zeros(0, 3)},
        module, {"model": module, "ema": None}, {"state_dict": OrderedDict(module.state_dict())},
    ]  # fmt: skip

    def read(path: Path) -> None:
        checkpoint = TorchCheckpoint(path / "m.pt")
        checkpoint.attribute("names")
        for name in checkpoint:
            checkpoint.read(name, checkpoint.shape(name))

    def description(path: Path) -> None:
        try:
            read_pickle((path / "data.pkl").read_bytes(), {}, lambda identifier: ("outside", identifier))
        except PickleError as error:
            raise ModelFormatError(f"data.pkl {error}") from None

    for value in held:
        out = io.BytesIO()
        torch.save(value, out)
        yield Sample({"m.pt": out.getvalue()}, ("m.pt",), damaged_archive, read)
    value = {"numbers": [0, -5, 2**40, -(2**70), 1.5, True], "text": "äß", "t": ((), (1,), (1, 2, 3, 4)), 3: {}}
    for protocol in range(6):
        content = pickle.dumps([value, value, torch.nn.Module, OrderedDict(a=1)], protocol)
        yield Sample({"data.pkl": content}, ("data.pkl",), damaged_pickle, description)


# -- JSON --------------------------------------------------------------------------------------------------------------
def configs(folder: Path) -> Iterator[Sample]:
    """config.json of every architecture."""
    d, e = decoder_folders, encoder_folders
    of_decoders = d.LLAMA_LIKE | d.OTHERS | d.EXPERTS | d.CONVOLUTIONS | d.LATENTS | d.STATES
    described = [(small.architecture, small.described().to_dict()) for small in of_decoders.values()]
    described += [(s.architecture, s.model().config.to_dict()) for s in e.ENCODERS.values()]
    for i, (architecture, values) in enumerate(described):
        reads = encoder.read_config if i >= len(of_decoders) else decoder.read_config

        def read(path: Path, reads: Any = reads) -> None:
            reads(Config(read_json(path / "config.json"), str(path / "config.json")))

        content = as_json({**values, "architectures": [architecture]})
        yield Sample({"config.json": content}, ("config.json",), damaged_json, read)


def folders(folder: Path) -> Iterator[Sample]:
    """The other files of a model's folder."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    entries = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    embedding = {
        "config.json": {}, "modules.json": entries,
        "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": True},
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "include_prompt": True},
        "config_sentence_transformers.json": {"prompts": {"query": "q: ", "document": "d: "}},
    }  # fmt: skip
    files = {name: as_json(value) for name, value in embedding.items()}
    yield Sample(files, tuple(files), damaged_json, lambda f: EmbeddingSettings.of_folder(ModelFolder(f), 512))
    pictures = {
        "do_resize": True, "size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}, "resample": 3,
        "do_center_crop": True, "rescale_factor": 1 / 255, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    }  # fmt: skip
    for name, value in {
        "preprocessor_config.json": pictures,
        "processor_config.json": {"image_processor": pictures},
    }.items():
        files = {"config.json": b"{}", name: as_json(value)}
        yield Sample(files, (name,), damaged_json, lambda f: Preprocessing.of_folder(ModelFolder(f), 28, True))
    generation = {
        "max_new_tokens": 9,
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "repetition_penalty": 1.1,
        "do_sample": True,
    }
    files = {"config.json": b"{}", "generation_config.json": as_json(generation)}
    yield Sample(files, ("generation_config.json",), damaged_json, lambda f: Settings.of_folder(ModelFolder(f)))
    index = {"metadata": {"total_size": 8}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    files = {"model.safetensors.index.json": as_json(index)}
    files |= {f"{n}.safetensors": save({k: np.ones(2, np.float32)}) for n, k in (("one", "a"), ("two", "b"))}
    yield Sample(files, ("model.safetensors.index.json",), damaged_json, Checkpoint)
    for kind in tiny_diffusion.KINDS:
        tiny_diffusion.write_tiny_diffusion(folder / kind, kind)
        for part, reads in (("text_encoder", TextConfig), ("unet", UNetConfig), ("vae", VAEConfig)):

            def described(path: Path, reads: Any = reads) -> None:
                reads.from_json(Config(read_json(path / "config.json"), str(path / "config.json")))

            content = (folder / kind / part / "config.json").read_bytes()
            yield Sample({"config.json": content}, ("config.json",), damaged_json, described)
        content = (folder / kind / "scheduler" / "scheduler_config.json").read_bytes()
        yield Sample({"s.json": content}, ("s.json",), damaged_json,
                     lambda f: SchedulerConfig.from_json(Config(read_json(f / "s.json"), str(f))))  # fmt: skip


def trees(folder: Path) -> Iterator[Sample]:
    yield from configs(folder)
    others = list(folders(folder))
    yield from others * 3


# -- tokenizers --------------------------------------------------------------------------------------------------------
PIECES = ["<unk>", "<s>", "</s>", "▁", "a", "b", "c", "ab", "▁ab", "abc", "é", *(f"<0x{i:02X}>" for i in range(256))]


def backends() -> Iterator[Any]:
    """One of each kind of model, with every kind of normalizer, cut and decoder that models use."""
    words = {word: i for i, word in enumerate(PIECES)}
    n, p, d = normalizers, pre_tokenizers, decoders
    merges = [("a", "b"), ("ab", "c"), ("▁", "ab")]
    sentence = tokenizers.Tokenizer(models.BPE(words, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    sentence.normalizer = n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")])
    sentence.decoder = d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    likely = tokenizers.Tokenizer(models.Unigram([(w, -float(i)) for i, w in enumerate(PIECES)], 0, byte_fallback=True))
    likely.normalizer = n.Sequence([n.NFKC(), n.Nmt(), n.Replace(tokenizers.Regex(" {2,}"), " ")])
    likely.pre_tokenizer, likely.decoder = p.Metaspace(), d.Metaspace()
    alphabet = {c: i for i, c in enumerate(sorted(p.ByteLevel.alphabet()))}
    by_bytes = tokenizers.Tokenizer(models.BPE({**alphabet, "ab": 256}, [("a", "b")]))
    cut = p.Split(tokenizers.Regex(r"\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+|\p{L}+"), "isolated")
    by_bytes.pre_tokenizer = p.Sequence([cut, p.Digits(True), p.ByteLevel(False, use_regex=False)])
    by_bytes.decoder, by_bytes.normalizer = d.ByteLevel(), n.NFC()
    pieces = encoder_folders.word_pieces()
    pieces.decoder = d.WordPiece()
    pieces.enable_padding(length=8)
    pieces.enable_truncation(16)
    plain = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    plain.pre_tokenizer = p.Sequence([p.WhitespaceSplit(), p.Punctuation()])
    for backend in (sentence, likely, by_bytes, pieces, plain):
        backend.add_special_tokens(["<begin>", tokenizers.AddedToken("<|end|>", lstrip=True, normalized=False)])
        if backend is not pieces:
            named = [("<begin>", backend.token_to_id("<begin>"))]
            backend.post_processor = processors.TemplateProcessing("<begin> $A", special_tokens=named)
        yield backend


def tokens(folder: Path) -> Iterator[Sample]:
    def read(path: Path) -> None:
        found = Tokenizer.from_folder(path)
        ids = found.encode("ab c é🦊 12345 <|end|>")
        stream = TextStream(found)
        for i in [*ids[:100], 1 << 30]:
            stream.push(i)
        found.decode(ids)
        if found.completes:
            found.prompt([{"role": "user", "content": "ab <|end|>"}])

    settings = {
        "bos_token": "<begin>", "eos_token": {"content": "<|end|>"}, "add_bos_token": True, "model_max_length": 99,
        "chat_template": [{"name": "default", "template": "{{ messages[0].content }}"}],
    }  # fmt: skip
    small = {"tokenizer_config.json": as_json(settings), "config.json": as_json({"eos_token_id": [3, 1]})}
    for backend in backends():
        text = {"tokenizer.json": backend.to_str().encode()}
        yield Sample({**small, **text}, (*text, *text, *small), damaged_json, read)
        base = {**small, **text, "tokenizer_config.json": b"{}"}
        yield Sample(base, ("tokenizer.json",), damaged_json, read)
        prompts = as_json({"bos_token": "<begin>", "eos_token": "<|end|>", "model_max_length": 77})
        prompting = {**text, "tokenizer_config.json": prompts}
        yield Sample(
            prompting, tuple(prompting), damaged_json, lambda f: PromptTokenizer.from_folder(f, 16)("ab <|end|> é")
        )
    listed = "".join(f"{i} {t!r} {len(t)}\n" for i, t in enumerate([*(bytes([b]) for b in range(256)), b"ab", b"\n\n"]))
    longest = {**small, VOCABULARY: listed.encode(), "tokenizer_config.json": b"{}"}
    yield Sample(longest, (VOCABULARY,), damaged_bytes, read)
    merged = {"vocab.json": as_json({**{c: i for i, c in enumerate("abc")}, "c</w>": 3, "bc</w>": 4,
                                     "<|startoftext|>": 5, "<|endoftext|>": 6}),
              "merges.txt": b"#version: 0.2\nb c</w>\n"}  # fmt: skip
    for name, damage in (("vocab.json", damaged_json), ("merges.txt", damaged_bytes)):
        yield Sample(merged, (name,), damage, lambda f: PromptTokenizer.from_folder(f, 16)("a bc <|endoftext|>"))


# -- templates ---------------------------------------------------------------------------------------------------------
TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m['content'] | trim }}{% endfor %}",
    """{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] -%}{%- endif -%}
{%- for message in messages[1:] -%}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
    {{ raise_exception('roles must alternate') }}
  {%- endif -%}
  {{ '<|' + message.role + '|>' ~ message['content'].strip().replace('<|', '<') + eos_token }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}""",
    """{% set ns = namespace(n=0, last='') %}
{% macro say(x, y=none) %}<{{ x | upper }}{% if y %}{{ y }}{% endif %}>{% endmacro %}
{% for m in messages if m.role != 'system' %}{% set ns.n = ns.n + 1 %}{{ say(m.content, ns.n * 2) }}
{% if loop.last %}{{ loop.index }}{{ loop.previtem.role }}{% elif not loop.first %}{% continue %}{% endif %}
{% endfor %}
{% set block %}{{ messages | map(attribute='role') | join(', ') }}{% endset %}{{ block | length }}
{{ strftime_now('%Y') }}
{% generation %}{{ messages | tojson(indent=1) }}{% endgeneration %}{{ range(3) | list }}
{% filter upper %}x{% endfilter %}""",
]


def templates(folder: Path) -> Iterator[Sample]:
    def read(path: Path) -> None:
        source = (path / "chat_template.jinja").read_bytes().decode("utf-8", "replace")
        names = {"bos_token": "<s>", "eos_token": "</s>"}
        ChatTemplate(source, str(path / "chat_template.jinja"), names).render(ASKED)

    given = json.loads((MODELS / "tinychat-7m" / "tokenizer_config.json").read_text())["chat_template"]
    for template in (*TEMPLATES, given):
        name = "chat_template.jinja"
        yield Sample({name: template.encode()}, (name,), damaged_template, read)


# -- graphs ------------------------------------------------------------------------------------------------------------
def onnx(folder: Path) -> Iterator[Sample]:
    content = graphs.whole().SerializeToString()
    yield Sample({"m.onnx": content}, ("m.onnx",), graphs.damaged_graph, graphs.compute)
    m = graphs.whole()
    data = graphs.elsewhere(m)
    files = {"m.onnx": m.SerializeToString(), "w.bin": data}
    yield Sample(files, ("m.onnx",), graphs.damaged_graph, graphs.compute)
    yield Sample(files, ("w.bin",), damaged_bytes, graphs.compute)


FORMATS: dict[str, Callable[[Path], Iterator[Sample]]] = {
    "GGUF": gguf, "safetensors": safetensors, "pickle": pickles, "JSON": trees, "tokenizer": tokens,
    "template": templates, "ONNX": onnx,
}  # fmt: skip
