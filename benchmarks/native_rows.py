"""The same entry points on this machine, without a browser; and PyTorch as the peer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version

from benchmarks.measure import MODEL, PROMPT, TOKENS, Row
from tinyweb.errors import TinywebError

DEVICES = {"CPU": "native CPU", "WASM": "wasmtime", "WEBGPU": "wgpu"}
MESSAGES = [{"role": "user", "content": PROMPT}]


def native_rows(quant: str, runs: int) -> Iterator[Row]:
    """One row for every native device; kernels are compiled before, as they stay in the cache of compiled code."""
    from tinyweb.formats.tokenizer import Tokenizer
    from tinyweb.models.chat import Chat, Settings
    from tinyweb.models.llama import Llama

    settings = Settings(max_tokens=TOKENS, temperature=0)
    tokenizer = Tokenizer.from_folder(MODEL)
    for device, name in DEVICES.items():
        row = Row(name)
        try:
            for run in range(runs + 1):
                begin = time.perf_counter()
                chat = Chat(Llama.from_folder(MODEL, quant, device=device), tokenizer, settings)
                loaded = time.perf_counter() - begin
                _, tokens = chat.answer(MESSAGES)
                if len(tokens) < TOKENS // 2:
                    raise TinywebError(f"an answer of only {len(tokens)} tokens")
                if run == 0:
                    row.first_visit.values.append(loaded + chat.statistics.first_token_seconds)
                else:
                    row.second_visit.values.append(loaded + chat.statistics.first_token_seconds)
                    row.decode.values.append(chat.statistics.tokens_per_second)
            row.detail = chat.device.runtime.target.name
        except TinywebError as error:
            row.problem = str(error)
        yield row


def peer_row(runs: int) -> Row:
    """transformers on PyTorch, float32: the usual way to run this model on this machine's processor."""
    row = Row("peer: PyTorch", f"transformers {version('transformers')}, torch {version('torch')}, float32")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    for run in range(runs + 1):
        begin = time.perf_counter()
        model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
        prompt = str(tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False))
        ids = torch.tensor([tokenizer(prompt, add_special_tokens=False)["input_ids"]])
        with torch.inference_mode():
            out = model(ids, use_cache=True)
            token = int(out.logits[0, -1].argmax())
            first = time.perf_counter()
            for _ in range(TOKENS - 1):
                out = model(torch.tensor([[token]]), past_key_values=out.past_key_values, use_cache=True)
                token = int(out.logits[0, -1].argmax())
            seconds = time.perf_counter() - first
        if run > 0:  # the first is for caches and lazy imports
            row.second_visit.values.append(first - begin)
            row.decode.values.append((TOKENS - 1) / seconds)
    return row
