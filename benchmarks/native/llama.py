"""Llama decode and prefill on this processor: tinyweb beside llama.cpp and tinygrad, one random checkpoint for all.

All read the same 8- or 4-bit integers and scales, or the same blocks of a GGUF file. llama.cpp quantises activations
too: its logits differ by 3 % of their norm from those of exact products.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shlex
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import checkpoints
from benchmarks.contestant import Absent, Arrays, Contestant
from benchmarks.harness import Check, Peer, Row, Side, Unit
from benchmarks.worker import Worker

CONTEXT = 512
IDS_ALONE: Any = SimpleNamespace(eos=())  # for a chat: ids in, ids out, nothing ends
PROMPT, DECODED, PREFILLED = 64, 16, 256  # tokens: before decode, decoded in a turn, of a long prompt
CLANG = checkpoints.FOLDER / "clang"
CHUNK = 32  # tokens of a prompt that tinygrad reads at a time: its default


def prompt(shape: str, count: int) -> list[int]:
    """The same ids for everybody."""
    return [int(i) for i in np.random.default_rng(7).integers(259, checkpoints.SHAPES[shape].vocab_size, count)]


class Model(Contestant):
    """Tasks: "decode" (seconds for each of DECODED tokens behind a prompt), "prefill" (seconds from a prompt of
    PREFILLED tokens to the next). Greedy.
    """

    shape: str

    def greedy(self, ids: list[int], count: int) -> tuple[list[int], float, float]:
        """`count` tokens behind a prompt of which nothing is cached, and when the first and the last were there."""
        raise NotImplementedError

    def logits(self) -> Any:
        """Of the token before the last one chosen: (vocab,)."""
        raise NotImplementedError

    def run(self, task: str, repeat: int) -> float:
        return sum(self._once(task) for _ in range(repeat))

    def _once(self, task: str) -> float:
        if task == "prefill":
            begin = time.perf_counter()
            return self.greedy(prompt(self.shape, PREFILLED), 1)[1] - begin
        _, first, last = self.greedy(prompt(self.shape, PROMPT), DECODED + 1)
        return (last - first) / DECODED

    def result(self, task: str) -> Arrays:
        count = PREFILLED if task == "prefill" else PROMPT
        tokens, _, _ = self.greedy(prompt(self.shape, count), 1)
        found = {"first": np.array(self.logits())}
        if task == "decode":
            tokens, _, _ = self.greedy(prompt(self.shape, count), 2)
            found["second"] = np.array(self.logits())
        return found | {"token": np.array(tokens[0])}


class Ours(Model):
    """`models.chat.Chat`, as `tinyweb run` uses it."""

    def __init__(self, shape: str, quant: str, threads: int, device: str = "CPU"):
        from tinyweb.device import Device
        from tinyweb.errors import TinywebError
        from tinyweb.models import load
        from tinyweb.models.chat import Chat, Settings
        from tinyweb.toolchain import find_clang

        self.shape, self.settings = shape, Settings
        try:
            runtime = Device[device].runtime
        except TinywebError as error:
            raise Absent(str(error)) from error
        self.adapter = runtime.target.name
        checkpoints.gguf_file(shape, quant)  # peers cannot make it: they have no tinyweb
        _script(find_clang().clang)
        with checkpoints.quantised_once():
            if quant in checkpoints.RANDOM:  # as they are stored
                model = load(checkpoints.gguf_file(shape, quant), None, CONTEXT, device=device)
            else:
                model = load(checkpoints.llama_folder(shape), quant, CONTEXT, device=device)
        self.model = model
        self.chat = Chat(model, IDS_ALONE)

    def greedy(self, ids: list[int], count: int) -> tuple[list[int], float, float]:
        self.chat.forget()
        tokens, times = [], []
        for token in self.chat.generate_ids(ids, self.settings(max_tokens=count, temperature=0)):
            tokens.append(token)
            times.append(time.perf_counter())
        return tokens, times[0], times[-1]

    def logits(self) -> Any:
        return self.model.logits.numpy()[0]

    def notes(self, task: str) -> dict[str, Any]:
        return {"target": self.adapter}


class LlamaCpp(Model):
    """llama.cpp built for this processor, through its C interface."""

    def __init__(self, shape: str, quant: str, threads: int):
        import llama_cpp

        path = str(checkpoints.gguf_file(shape, quant))
        self.shape, self.library = shape, llama_cpp
        # flash attention is its faster path for long contexts, and no slower here
        self.llama = llama_cpp.Llama(
            path, n_ctx=CONTEXT, n_batch=CONTEXT, n_ubatch=CONTEXT, n_threads=threads, n_threads_batch=threads,
            flash_attn=True, verbose=False,
        )  # fmt: skip
        self.context = self.llama.ctx
        self.vocabulary = self.llama.n_vocab()
        self.memory = llama_cpp.llama_get_memory(self.context)

    def versions(self) -> dict[str, str]:
        return {"llama-cpp-python": self.library.__version__}

    def greedy(self, ids: list[int], count: int) -> tuple[list[int], float, float]:
        self.library.llama_memory_clear(self.memory, False)
        tokens: list[int] = []
        times = []
        for _ in range(count):
            given = tokens[-1:] or ids
            array = (ctypes.c_int32 * len(given))(*given)  # the batch does not keep it alive
            batch = self.library.llama_batch_get_one(array, len(given))
            if self.library.llama_decode(self.context, batch) != 0:
                raise RuntimeError("llama_decode failed")
            tokens.append(int(self.logits().argmax()))
            times.append(time.perf_counter())
        return tokens, times[0], times[-1]

    def logits(self) -> Any:
        address = self.library.llama_get_logits_ith(self.context, -1)  # waits
        return np.ctypeslib.as_array(address, (self.vocabulary,))


class Tinygrad(Model):
    """tinygrad's own language model application on its CPU device, reading the same GGUF file as llama.cpp.

    Weights are unpacked in every kernel: unpacked to half floats beforehand, it is slower here.
    """

    def __init__(self, shape: str, quant: str, threads: int):
        # read when tinygrad is imported
        os.environ |= {"DEV": "CPU:CLANG", "CC": str(CLANG), "REALIZE": "0"}
        from tinygrad.tensor import Tensor

        self.shape, self.tensor, self.ids = shape, Tensor, [0]
        self.model, _ = tinygrad_application().Transformer.from_gguf(checkpoints.gguf_file(shape, quant), CONTEXT)

    def versions(self) -> dict[str, str]:
        return {"tinygrad": version("tinygrad")}

    def greedy(self, ids: list[int], count: int) -> tuple[list[int], float, float]:
        if count == 1:
            self.model._cached_tokens = []
        tokens, times = [], []
        for token in self.model.generate(list(ids), chunk_size=CHUNK):
            tokens.append(token)
            times.append(time.perf_counter())
            if len(tokens) == count:
                break
        self.ids = [*ids, *tokens]
        return tokens, times[0], times[-1]

    def logits(self) -> Any:
        # its application returns tokens alone
        x = self.model.token_embd(self.tensor([self.ids[:-1]], dtype="int32")).float()
        for block in self.model.blk:
            x = block(x, 0)
        found = self.model.output(self.model.output_norm(x[:, -1:]))[0, -1].numpy()
        self.model._cached_tokens = []
        return found


def tinygrad_application() -> Any:
    """tinygrad's module of language models. Its wheel lacks the kernels for AMD's GPUs, which this imports wherever it
    runs.
    """
    from tinygrad import nn

    kernels: Any = ModuleType("tinygrad.llm.kernels.amd")
    kernels.Linear, kernels.gated_delta_prefill, kernels.flash_attention = nn.Linear, None, None
    kernels.amd_custom_kernels_supported = lambda device: False
    sys.modules.setdefault(kernels.__name__, kernels)
    return importlib.import_module("tinygrad.llm.model")


def _script(command: Sequence[str]) -> None:
    """A program that stands for a command with arguments: tinygrad's CC is one word."""
    CLANG.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    CLANG.chmod(0o755)


def same_logits(tolerance: float) -> Check:
    """Difference of the logits at most `tolerance` of their norm, behind a prompt and one token later."""

    def check(ours: Arrays, theirs: Arrays) -> str | None:
        for name in [n for n in theirs if n != "token"]:
            if name == "second" and ours["token"] != theirs["token"]:
                continue  # what follows different tokens differs
            mine, other = np.asarray(ours[name], np.float64), np.asarray(theirs[name], np.float64)
            error = float(np.linalg.norm(mine - other) / np.linalg.norm(other))
            if not error <= tolerance:
                return f"{name} logits differ by {error:.3f} of their norm, {tolerance:g} is allowed"
        return None

    return check


# -- rows --------------------------------------------------------------------------------------------------------------
HERE = "benchmarks.native.llama:"
TOLERANCE = 0.08  # of the logits: twice 3 % where both sides quantise activations, and a margin


def row(shape: str, quant: str, task: str, threads: int, priority: int, seconds: float) -> Row:
    """Against llama.cpp, with as many threads."""
    return _row(shape, quant, task, threads, ("LlamaCpp", "llama.cpp", 1.0), priority, seconds)


def tinygrad_row(shape: str, quant: str, task: str, priority: int, seconds: float) -> Row:
    """In rows of its own: compiling its kernels takes minutes."""
    return _row(shape, quant, task, 2, ("Tinygrad", "tinygrad CPU", 3.0), priority, seconds)


def _row(
    shape: str, quant: str, task: str, threads: int, peer: tuple[str, str, float], priority: int, seconds: float
) -> Row:
    contestant, name, target = peer

    def side(of: str, title: str, is_peer: bool) -> Side:
        return Side(title, Worker.of(HERE + of, shape=shape, quant=quant, threads=threads, peer=is_peer), task)

    work = "decode" if task == "decode" else f"prefill of {PREFILLED} tokens"
    suffix = "-tinygrad" if contestant == "Tinygrad" else ""
    return Row(
        name=f"llama-{shape}-{quant}-{task}-{threads}t{suffix}",
        group="llama",
        work=f"Llama {shape.upper()} shape, {quant}, {work}, {threads} thread{'s' if threads > 1 else ''}",
        ours=side("Ours", "tinyweb", False),
        peers=(Peer(side(contestant, name, True), target, same_logits(TOLERANCE)),),
        unit=Unit("tokens/s", 1 if task == "decode" else PREFILLED),
        priority=priority,
        seconds=seconds,
        turns=7 if contestant == "LlamaCpp" else 3,
        turn_seconds=0,
        timing_seconds=15,
    )


def rows() -> list[Row]:
    found = []
    for quant in ("q8", "q4"):
        found += [row("110m", quant, task, 2, 1, 12) for task in ("decode", "prefill")]
    for quant in ("q8", "q4"):
        found += [row("110m", quant, task, 1, 2, 15) for task in ("decode", "prefill")]
    for quant in checkpoints.RANDOM:
        found += [row("110m", quant, task, 2, 1, 12) for task in ("decode", "prefill")]
    for quant in ("q8", "q4"):
        found += [row("1b", quant, task, 2, 2, 45) for task in ("decode", "prefill")]
    found += [tinygrad_row("110m", "q4", "decode", 3, 150), tinygrad_row("110m", "q8", "decode", 3, 150)]
    found += [tinygrad_row("110m", "q8", "prefill", 3, 400), tinygrad_row("1b", "q8", "decode", 3, 900)]
    return found
