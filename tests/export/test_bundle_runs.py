"""A second loader, in Python: the manifest and the files are enough to run the model, and it computes the same."""

import hashlib
import json
import re
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wasmtime

from tests.export.small_model import write_small_model
from tests.models.decoder_folders import BIASED, CONVOLUTIONS, EARLIER, EXPERTS, LATER, OTHERS, STATES
from tinyweb.export.chat import ExportOptions, export_chat
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings

PROMPT = [0, 2, 275, 3, 261, 499, 5, 4, 2, 277, 3]  # 11 tokens: a block of 8 and what is left
GREEDY = Settings(max_tokens=12, temperature=0)
SAMPLED = Settings(max_tokens=12, temperature=0.8, top_k=20, top_p=0.9, repetition_penalty=1.2, seed=11)


class WasmBundle:
    """Runs a module for one thread as docs/bundle.md says, knowing nothing else."""

    def __init__(self, model: Path, variant: str = "simd", deterministic: bool = False):
        self.manifest: dict[str, Any] = json.loads((model / "manifest.json").read_text())
        self.target = self.manifest["targets"]["wasm"]
        self.memory_map = self.target["memory"]
        config = wasmtime.Config()
        config.wasm_relaxed_simd = "relaxed-simd" in self.target["variants"][variant]["features"]
        config.wasm_relaxed_simd_deterministic = deterministic
        self.store = wasmtime.Store(wasmtime.Engine(config))
        pages = self.memory_map["pages"]
        self.memory = wasmtime.Memory(self.store, wasmtime.MemoryType(wasmtime.Limits(pages, pages)))
        module = wasmtime.Module(self.store.engine, (model / self.target["variants"][variant]["file"]).read_bytes())
        assert [f"{i.module}.{i.name}" for i in module.imports] == ["env.memory"]
        assert {e.name for e in module.exports} == {*self.target["entry_points"], "__stack_pointer"}
        self.exports = wasmtime.Instance(self.store, module, [self.memory]).exports(self.store)
        stacks = self.memory_map["stacks"]
        self.exports["__stack_pointer"].set_value(self.store, stacks["base"] + stacks["bytes"])  # type: ignore[union-attr]
        shards = [(model / s["file"]).read_bytes() for s in self.manifest["weights"]["shards"]]
        for shard, said in zip(shards, self.manifest["weights"]["shards"], strict=True):
            assert len(shard) == said["bytes"] and hashlib.sha256(shard).hexdigest() == said["sha256"]
        for b in self.manifest["buffers"]:
            for s in b.get("segments", ()):
                self.write(b["id"], shards[s["shard"]][s["offset"] : s["offset"] + s["bytes"]], s["at"])

    def address(self, id: int) -> int:
        return int(self.memory_map["buffers"][str(id)])

    def write(self, id: int, data: bytes, at: int = 0) -> None:
        self.memory.write(self.store, data, self.address(id) + at)

    def read(self, id: int, size: int, at: int = 0) -> bytes:
        return bytes(self.memory.read(self.store, self.address(id) + at, self.address(id) + at + size))

    def run(self, entry: str, **variables: int) -> None:
        for slot, v in enumerate(self.manifest["variables"]):
            if v["name"] in variables:
                assert v["min"] <= variables[v["name"]] <= v["max"]
                self.memory.write(
                    self.store, struct.pack("<i", variables[v["name"]]), self.memory_map["variables"] + 4 * slot
                )
        self.exports[self.target["entry_points"][entry]["function"]](self.store, 0, 1)  # type: ignore[operator]

    def generate(self, prompt: list[int], s: Settings) -> tuple[list[int], np.ndarray]:
        """Ids that follow, and the logits after the prompt."""
        chat = self.manifest["chat"]
        self.write(chat["sampling_f"], struct.pack("<4f", s.temperature, s.top_p, s.repetition_penalty, 0))
        self.write(chat["sampling_i"], struct.pack("<2i", s.top_k, s.seed))
        self.write(chat["ids"], struct.pack(f"<{len(prompt)}i", *prompt))
        at = 0
        while at < len(prompt):
            block = next((b for b in chat["prefill"] if b["block"] <= len(prompt) - at), chat["prefill"][-1])
            count = min(block["block"], len(prompt) - at)
            self.run(block["entry"], start_pos=at, count=count)
            at += count
        logits = np.frombuffer(self.read(chat["logits"], 4 * self.manifest["model"]["vocab_size"]), np.float32)
        out: list[int] = []
        position = len(prompt) - 1
        while len(out) < s.max_tokens and (not out or out[-1] not in chat["eos"]):
            if out:
                self.run(chat["decode"], start_pos=position)
            self.run(chat["greedy" if s.temperature == 0 else "sample"], start_pos=position)
            position += 1
            out.append(struct.unpack("<i", self.read(chat["ids"], 4, 4 * position))[0])
        return out, logits


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    return write_small_model(tmp_path_factory.mktemp("models") / "small", model_folder)


@pytest.mark.parametrize("quant", [*(pytest.param(q, marks=pytest.mark.slow) for q in ("f32", "f16", "q8")), "q4"])
def test_it_computes_what_the_model_computes(small_model: Path, tmp_path: Path, quant: str) -> None:
    options = ExportOptions(quant, context=48, shard_bytes=65536)
    export_chat(small_model, tmp_path / "site", options, lambda step, done, total: None)
    chat = Chat(load(small_model, quant, 48, device="CPU"), Tokenizer.from_folder(small_model))
    # where activations are rounded, sums in another order may round one of them to its neighbour
    tolerance = 2e-2 if quant in ("q8", "q4") else 1e-4
    for variant in ("simd", "relaxed"):
        bundle = WasmBundle(tmp_path / "site" / "model", variant)
        for settings in (GREEDY, SAMPLED):
            ids, logits = bundle.generate(PROMPT, settings)
            assert ids == list(chat.generate_ids(PROMPT, settings))
            chat.forget()
            list(chat.generate_ids(PROMPT, Settings(max_tokens=1, temperature=0)))
            assert logits == pytest.approx(chat.model.logits.numpy()[0], abs=tolerance)
            chat.forget()


@pytest.mark.slow
def test_activations_are_chosen(small_model: Path, tmp_path: Path) -> None:
    """Rounded by default for WebAssembly alone, by wish for all targets or for none; weights are the same memory."""
    kernels, buffers = {}, []
    for activations in (None, "float", "int8"):
        options = ExportOptions("q8", context=48, force=True, activations=activations)
        export_chat(small_model, tmp_path / "site", options, lambda step, done, total: None)
        manifest = json.loads((tmp_path / "site" / "model" / "manifest.json").read_text())
        wasm = manifest["targets"]["wasm"]["entry_points"]["decode"]["kernels"]
        webgpu = manifest["targets"]["webgpu"]["variants"]["base"]["entry_points"]["decode"]["dispatches"]
        kernels[activations] = wasm, len(webgpu)
        buffers.append(manifest["buffers"])
    assert kernels[None] == (kernels["int8"][0], kernels["float"][1])
    assert kernels["float"][0] < kernels["int8"][0] and kernels["float"][1] < kernels["int8"][1]
    assert buffers[0] == buffers[1] == buffers[2]


def test_what_a_phone_must_offer(small_model: Path, tmp_path: Path) -> None:
    """The limits stay within what WebGPU guarantees everywhere."""
    export_chat(small_model, tmp_path / "site", ExportOptions("q8"), lambda step, done, total: None)
    webgpu = json.loads((tmp_path / "site/model/manifest.json").read_text())["targets"]["webgpu"]
    guaranteed = {
        "maxStorageBuffersPerShaderStage": 8,
        "maxStorageBufferBindingSize": 128 * 2**20,
        "maxBufferSize": 256 * 2**20,
        "maxComputeWorkgroupStorageSize": 16384,
        "maxComputeInvocationsPerWorkgroup": 256,
        "maxComputeWorkgroupSizeX": 256,
        "maxComputeWorkgroupSizeY": 256,
        "maxComputeWorkgroupSizeZ": 64,
        "maxComputeWorkgroupsPerDimension": 65535,
    }
    assert webgpu["limits"].keys() == guaranteed.keys()
    assert [name for name, value in webgpu["limits"].items() if not 0 <= value <= guaranteed[name]] == []


def test_variants_share_kernels(small_model: Path, tmp_path: Path) -> None:
    """For each set of features one; every kernel is written once, to a file of the variants that have it."""
    export_chat(small_model, tmp_path / "site", ExportOptions("q8"), lambda step, done, total: None)
    model = tmp_path / "site" / "model"
    manifest = json.loads((model / "manifest.json").read_text())
    variants = manifest["targets"]["webgpu"]["variants"]
    assert {n: v["features"] for n, v in variants.items()} == {
        "base": [], "f16": ["shader-f16"], "subgroups": ["subgroups"], "subgroups-f16": ["shader-f16", "subgroups"],
    }  # fmt: skip
    files = {path.relative_to(model).as_posix(): path.read_text() for path in model.glob("kernels/*.wgsl")}
    kernels = {file: re.findall(r"^//# kernel (\S+)$", text, re.MULTILINE) for file, text in files.items()}
    everything = [name for names in kernels.values() for name in names]
    assert len(everything) == len(set(everything))
    for variant in variants.values():
        named = [variant["file"], *variant["shared"]]
        assert len(set(named)) == len(named) and set(named) <= manifest["integrity"].keys()
        # nothing is loaded that is not used
        found = [name for file in named for name in kernels[file]]
        assert sorted(found) == sorted(k["name"] for k in variant["kernels"])
        needs = {"enable f16;": "shader-f16", "enable subgroups;": "subgroups"}
        text = "".join(files[file] for file in named)
        assert {feature for line, feature in needs.items() if line in text} == set(variant["features"])
    texts = "".join(files.values())
    bodies = re.split(r"^//# kernel \S+$", texts, flags=re.MULTILINE)[1:]
    assert len({body.strip() for body in bodies}) == len(bodies)
    assert {file for v in variants.values() for file in (v["file"], *v["shared"])} == files.keys()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("Gemma 3", marks=pytest.mark.slow),
        pytest.param("LFM2-MoE", marks=pytest.mark.slow),
        "Mamba-2",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in (
                "Granite 4, experts",
                "RWKV-7",
                "Gemma 3n",
                "Llama 4",
                "Bamba",
                "Mamba",
                "Falcon",
                "BLOOM",
                "Apertus",
                "Qwen3-Next",
            )
        ),
    ],
)
def test_other_architectures(model_folder: Path, tmp_path: Path, name: str) -> None:
    """Windows, norms, two tables of angles, convolutions, experts, states, whatever the bundle's memory is called."""
    small, folder = (OTHERS | EXPERTS | CONVOLUTIONS | STATES | EARLIER | BIASED | LATER)[name], tmp_path / "small"
    replace(small, changes=small.changes | {"vocab_size": 4096, "eos_token_id": 4}).write(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(model_folder / file, folder / file)
    export_chat(folder, tmp_path / "site", ExportOptions("f32", context=40), lambda step, done, total: None)
    chat = Chat(load(folder, "f32", 40, device="CPU"), Tokenizer.from_folder(folder))
    ids, _ = WasmBundle(tmp_path / "site" / "model").generate(PROMPT, GREEDY)
    assert ids == list(chat.generate_ids(PROMPT, GREEDY))
