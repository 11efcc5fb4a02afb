"""What onnxruntime makes of texts by graphs in transformers.js's layout: peer_texts.npz, for tests/e2e.

To be run where onnxruntime and what the tests need are, from the repository's root:
python -m tests.formats.onnx.peer_texts
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from tests.models.onnx_texts import CHATS, COUNT, FILE, GIVEN, LOOPS, PROMPT, TEXTS, embedder
from tinyweb.models.embedding import Embedder

MODELS = Path(__file__).parents[3] / "assets/models"


def opened(graph: Path) -> Any:
    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])


def called(session: Any, feed: dict[str, Any]) -> dict[str, Any]:
    """Outputs by name. What a graph is not given is not there yet: caches of no positions."""
    given = {}
    for port in session.get_inputs():
        if port.name in feed:
            given[port.name] = feed[port.name]
        else:
            sizes = [1 if axis == 0 else 0 if isinstance(n, str) else n for axis, n in enumerate(port.shape)]
            given[port.name] = np.zeros(sizes, np.float32)
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, given)))


def past(found: dict[str, Any]) -> dict[str, Any]:
    return {n.replace("present", "past_key_values"): a for n, a in found.items() if n.startswith("present")}


class Chosen:
    """Ids, each the likeliest, and the logits that the last was chosen by. `gap`: between the two likeliest, where
    they are closest."""

    def __init__(self, ids: list[int]):
        self.ids, self.gap = list(ids), np.inf

    def add(self, logits: Any) -> None:
        self.logits = logits[0, -1]
        second, first = np.argsort(self.logits)[-2:]
        self.gap = min(self.gap, float(self.logits[first] - self.logits[second]))
        self.ids.append(int(first))


def chat(folder: Path) -> Chosen:
    (graph,) = (folder / "onnx").glob("*.onnx")
    session, made, new = opened(graph), Chosen(PROMPT), PROMPT
    held: dict[str, Any] = {}
    for _ in range(COUNT):
        length = len(made.ids)
        places = np.arange(length - len(new), length)[None]
        feed = {"input_ids": np.array([new]), "attention_mask": np.ones((1, length), np.int64), "position_ids": places}
        found = called(session, feed | held)
        held = past(found)
        made.add(found["logits"])
        new = made.ids[-1:]
    return made


def loop(folder: Path, kind: str, begin: list[int]) -> Chosen:
    """An encoder, its decoder for the first ids, and the one that has a cache for each one after."""
    encoder, first, later = (
        opened(folder / f"onnx/{n}.onnx") for n in ("encoder_model", "decoder_model", "decoder_with_past_model")
    )
    given = GIVEN[kind]
    more = {"encoder_hidden_states": called(encoder, given)["last_hidden_state"]}
    if "attention_mask" in given:
        more["encoder_attention_mask"] = given["attention_mask"]
    made = Chosen(begin)
    found = called(first, {"input_ids": np.array([made.ids]), **more})
    held = past(found)
    made.add(found["logits"])
    for _ in range(COUNT - 1):
        found = called(later, {"input_ids": np.array([made.ids[-1:]]), **more, **held})
        held |= past(found)
        made.add(found["logits"])
    return made


def told(name: str, made: Chosen) -> dict[str, Any]:
    print(name, made.gap, made.ids)
    return {f"{name}/ids": np.array(made.ids), f"{name}/logits": made.logits}


def main() -> None:
    arrays: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as work:
        for name, write in CHATS.items():
            arrays |= told(name, chat(write(Path(work) / name, MODELS / "tinychat-7m")))
        for name, (make, kind, begin) in LOOPS.items():
            arrays |= told(name, loop(make(Path(work) / name), kind, begin))
        folder = embedder(Path(work) / "embed")
        session = opened(folder / "onnx/model.onnx")
        for i, row in enumerate(Embedder.from_folder(folder, "f32", "CPU").tokens(TEXTS)):
            ids = np.array([row])
            feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            arrays[f"embed/{i}"] = called(session, feed)["last_hidden_state"]
    np.savez_compressed(FILE, allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
