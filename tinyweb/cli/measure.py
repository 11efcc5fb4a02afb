"""The speed of a language model on one device, in a process of its own: its peak of memory is then the model's.

`python -m tinyweb.cli.measure ASKED` prints a record as JSON; ASKED has the fields of `Asked`, as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyweb.errors import TinywebError

SEED = 7


@dataclass(frozen=True)
class Asked:
    """`path`: a folder or file here. `prompt`, `tokens`: read and made in each of `runs` answers, after one that warms
    up."""

    path: str
    device: str
    quant: str | None
    context: int | None
    prompt: int
    tokens: int
    runs: int


def measure(asked: Asked) -> dict[str, Any]:
    """Figures of one device; medians over the runs. Bytes and seconds; rates in tokens per second."""
    from tinyweb.formats.source import open_model
    from tinyweb.formats.tokenizer import Tokenizer
    from tinyweb.models import load
    from tinyweb.models.chat import Chat, Settings
    from tinyweb.models.decoder import Decoder

    begun = time.perf_counter()
    folder = open_model(Path(asked.path))
    model = load(folder, asked.quant, asked.context, asked.device)
    if not isinstance(model, Decoder):
        raise TinywebError(f"{asked.path} is no language model: bench measures those that make texts")
    if asked.prompt + asked.tokens > model.context:
        raise TinywebError(
            f"{asked.prompt} tokens read and {asked.tokens} made are more than the context of {model.context}: "
            "choose fewer by --prompt-tokens and --tokens"
        )
    tokenizer = Tokenizer.from_folder(folder)
    tokenizer.eos = ()  # an answer of the length that was asked for
    chat = Chat(model, tokenizer, Settings(max_tokens=asked.tokens, temperature=0))
    ready = time.perf_counter() - begun
    firsts, rates = [], []
    for run in range(asked.runs + 1):
        chat.forget()
        # numbers without a pattern, the same on every machine: what a prompt says does not change what it costs
        ids = [(i + 1) * 2654435761 % 2**32 % model.config.vocab_size for i in range(asked.prompt)]
        made = sum(1 for _ in chat.generate_ids(ids))
        assert made == asked.tokens
        if run:
            firsts.append(chat.statistics.first_token_seconds)
            rates.append(chat.statistics.tokens_per_second)
    first = statistics.median(firsts)
    return {
        "device": chat.device.name,
        "threads": threads(chat.device.runtime),
        "first_token_seconds": round(first, 5),
        "prompt_tokens_per_second": round(asked.prompt / first, 2),
        "tokens_per_second": round(statistics.median(rates), 2),
        "load_seconds": round(ready, 3),
        "weight_bytes": sum(t.nbytes() for t in model.weights.values()),
        "state_bytes": sum(t.nbytes() for t in model.state.values()),
        "peak_bytes": peak(),
    }


def threads(runtime: object) -> int | None:
    """Of a processor's runtime; None where the device decides."""
    count = getattr(runtime, "threads", None)
    return count if isinstance(count, int) else None


def peak() -> int | None:
    """The most memory that this process had; None where that is not told."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def main() -> None:
    try:
        record = measure(Asked(**json.loads(sys.argv[1])))
    except (TinywebError, NotImplementedError, OSError, MemoryError) as error:
        record = {"error": str(error) or type(error).__name__}
    print(json.dumps(record))


if __name__ == "__main__":
    main()
