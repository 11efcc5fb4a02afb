"""What llama.cpp answers, run by the interpreter that has it (`make bench-peers`): a request in JSON on standard input,
the answers on standard output. It imports nothing of this project.
"""

import ctypes
import json
import sys

import llama_cpp
import numpy as np

F32 = 0  # of ggml's types


def greedy(path: str, prompt: list[int], count: int) -> tuple[list[int], float]:
    """The likeliest tokens behind a prompt; the least distance there was between the first and the second."""
    llama = llama_cpp.Llama(
        path, n_ctx=64, n_batch=64, n_ubatch=64, n_threads=1, type_k=F32, type_v=F32, flash_attn=False, verbose=False
    )
    tokens, least = list(prompt), np.inf
    given = tokens
    while len(tokens) < len(prompt) + count:
        array = (ctypes.c_int32 * len(given))(*given)
        if llama_cpp.llama_decode(llama.ctx, llama_cpp.llama_batch_get_one(array, len(given))) != 0:
            raise RuntimeError("llama_decode failed")
        address = llama_cpp.llama_get_logits_ith(llama.ctx, -1)
        logits = np.ctypeslib.as_array(address, (llama.n_vocab(),))
        second, first = np.sort(logits)[-2:]
        least = min(least, float(first - second))
        given = [int(logits.argmax())]
        tokens += given
    return tokens[len(prompt) :], least


def main() -> None:
    asked = json.load(sys.stdin)
    models = {name: greedy(**each) for name, each in asked["models"].items()}
    tokenizers = {}
    for name, path in asked["tokenizers"].items():
        llama = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        tokenizers[name] = [llama.tokenize(t.encode(), add_bos=False, special=True) for t in asked["texts"]]
    version = llama_cpp.__version__
    json.dump({"llama-cpp-python": version, "models": models, "tokenizers": tokenizers}, sys.stdout)


main()
