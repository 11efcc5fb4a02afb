"""The embedded chat model on every backend: time to the first token, and decode; PyTorch beside the native one."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.contestant import Absent, Arrays, Contestant
from benchmarks.harness import SECONDS, Peer, Row, Side, Unit
from benchmarks.page import MODEL, PROMPT, TOKENS
from benchmarks.worker import Worker

MESSAGES = [{"role": "user", "content": PROMPT}]
DEVICES = {"CPU": "native CPU", "WASM": "wasmtime", "WEBGPU": "wgpu"}
PAGES = ("webgpu", "wasm", "wasm-single")
USUAL = "PyTorch, transformers, f32"  # natively, whatever we run on: what one would use without us


class Native(Contestant):
    """Tasks: "open" (seconds from opening the model to the first token), "decode" (seconds for each later token)."""

    def __init__(self, device: str, quant: str = "q8"):
        from tinyweb.device import Device
        from tinyweb.errors import TinywebError
        from tinyweb.formats.tokenizer import Tokenizer
        from tinyweb.models.chat import Settings

        try:
            self.target = Device[device].runtime.target.name
        except TinywebError as error:
            raise Absent(str(error)) from error
        self.device, self.quant = device, quant
        self.tokenizer = Tokenizer.from_folder(MODEL)
        self.settings = Settings(max_tokens=TOKENS, temperature=0)
        self.chat = self._open()

    def _open(self) -> Any:
        from tinyweb.models import load
        from tinyweb.models.chat import Chat

        return Chat(load(MODEL, self.quant, device=self.device), self.tokenizer, self.settings)

    def run(self, task: str, repeat: int) -> float:
        return sum(self._once(task) for _ in range(repeat))

    def _once(self, task: str) -> float:
        begin = time.perf_counter()
        if task == "open":
            self._open().answer(MESSAGES, replace(self.settings, max_tokens=1))
            return time.perf_counter() - begin
        self.result(task)
        return 1 / float(self.chat.statistics.tokens_per_second)

    def result(self, task: str) -> Arrays:
        return {"tokens": np.array(self.chat.answer(MESSAGES)[1])}

    def notes(self, task: str) -> dict[str, Any]:
        return {"target": self.target}


class Transformers(Contestant):
    """transformers on PyTorch, float32: the usual way to run this model on this machine's processor."""

    def __init__(self) -> None:
        import torch
        from transformers import AutoTokenizer

        self.torch, self.tokenizer = torch, AutoTokenizer.from_pretrained(MODEL)
        self.model = self._open()

    def _open(self) -> Any:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(MODEL, dtype=self.torch.float32)

    def versions(self) -> dict[str, str]:
        return {"transformers": version("transformers"), "torch": version("torch")}

    def run(self, task: str, repeat: int) -> float:
        return sum(self._once(task) for _ in range(repeat))

    def _once(self, task: str) -> float:
        begin = time.perf_counter()
        if task == "open":
            self._answer(self._open(), 1)
            return time.perf_counter() - begin
        _, first, last = self._answer(self.model, TOKENS)
        return (last - first) / (TOKENS - 1)

    def _answer(self, model: Any, count: int) -> tuple[list[int], float, float]:
        """Tokens, and when the first and the last of them were there."""
        torch = self.torch
        prompt = str(self.tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False))
        ids = torch.tensor([self.tokenizer(prompt, add_special_tokens=False)["input_ids"]])
        with torch.inference_mode():
            out = model(ids, use_cache=True)
            tokens = [int(out.logits[0, -1].argmax())]
            first = time.perf_counter()
            while len(tokens) < count:
                out = model(torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)
                tokens.append(int(out.logits[0, -1].argmax()))
        return tokens, first, time.perf_counter()

    def result(self, task: str) -> Arrays:
        return {"tokens": np.array(self._answer(self.model, TOKENS)[0])}


BEGINNING = 8  # tokens: later on, the rounding of 8-bit weights may choose another word


def same_beginning(ours: Arrays, theirs: Arrays) -> str | None:
    """Greedy answers that begin alike."""
    mine, other = ours["tokens"][:BEGINNING].tolist(), theirs["tokens"][:BEGINNING].tolist()
    return None if mine == other else f"the answer begins with tokens {mine}, the peer's with {other}"


def rows() -> list[Row]:
    found = []
    native = Worker.of("benchmarks.chat:Transformers")
    for device, name in DEVICES.items():
        worker = Worker.of("benchmarks.chat:Native", device=device)
        for task, unit in (("open", SECONDS), ("decode", Unit("tokens/s", 1))):
            work = "open to first token" if task == "open" else "decode"
            against = Side(USUAL, native, task)
            found.append(
                Row(
                    name=f"chat-{task}-{device.lower()}",
                    group="chat",
                    work=f"tinychat-7m q8, {name}: {work}",
                    ours=Side("tinyweb", worker, task),
                    peers=(Peer(against, 1.0, same_beginning),),
                    unit=unit,
                    priority=3,
                    seconds=20,
                    turns=5,
                    turn_seconds=0,
                )
            )
    for backend in PAGES:
        worker = Worker.of("benchmarks.page:Page", backend=backend)
        for task, unit in (("first visit", SECONDS), ("second visit", SECONDS), ("decode", Unit("tokens/s", 1))):
            work = task if task == "decode" else f"{task} to first token"
            # a visit is compared with opening the model natively; a page gives no ids (its answers: tests/e2e)
            against = Side(USUAL, native, task if task == "decode" else "open")
            found.append(
                Row(
                    name=f"chat-{task.replace(' ', '-')}-chromium-{backend}",
                    group="chat",
                    work=f"tinychat-7m q8, Chromium {backend}: {work}",
                    ours=Side("tinyweb", worker, task),
                    peers=(Peer(against, 1.0, None),),
                    unit=unit,
                    priority=3,
                    seconds=30,
                    turns=5,
                    turn_seconds=0,
                )
            )
    return found
