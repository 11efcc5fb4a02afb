"""bitsandbytes: 4 bits of a table of 16 numbers (NF4 or FP4; Dettmers et al. 2023, QLoRA) with a scale for each block,
scales themselves perhaps in 8 bits; and LLM.int8 (Dettmers et al. 2022).

Two numbers lie in a byte, the first in the high half; a JSON of the state lies beside as bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tinyweb.formats.huggingface import Config
from tinyweb.formats.packed.tensors import Floats, Stored, Weight

STATE = ".weight.quant_state.bitsandbytes__"
MAX_STATE = 1 << 16  # bytes of its JSON


def bitsandbytes(stored: Stored, config: Config) -> Iterator[Weight]:
    for kind in ("nf4", "fp4"):
        for stem in stored.ending(STATE + kind):
            state = _state(stored, stem + STATE + kind)
            ends = ("absmax", "quant_map", "nested_absmax", "nested_quant_map", f"quant_state.bitsandbytes__{kind}")
            parts = tuple(n for e in ends if (n := f"{stem}.weight.{e}") in stored)
            make = partial(_four_bits, stored, stem + ".weight", state)
            yield Weight(stem + ".weight", state["shape"], (stem + ".weight", *parts), make)
    for stem in stored.ending(".SCB"):
        name = stem + ".weight"
        shape = stored.shape(name)
        if len(shape) != 2:
            raise stored.wrong(name, f"has shape {shape}, where a matrix is expected")
        parts = tuple(n for n in (name, stem + ".SCB", stem + ".weight_format") if n in stored)
        yield Weight(name, shape, parts, partial(_eight_bits, stored, stem, shape))


def _state(stored: Stored, name: str) -> dict[str, Any]:
    """What the bytes beside a weight say, checked."""
    try:
        (size,) = stored.shape(name)
        if size > MAX_STATE:
            raise ValueError
        found = json.loads(stored.read(name, kind="int").astype(np.uint8).tobytes().decode("utf-8"))
        shape, block = found["shape"], found["blocksize"]
        nested, offset = found.get("nested_blocksize"), float(found.get("nested_offset", 0.0))
        sizes = [*shape, block, *([nested] if nested is not None else [])]
        if not 1 <= len(shape) <= 3 or any(type(n) is not int or not 0 < n < 1 << 31 for n in sizes):
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise stored.wrong(name, "is no state of bitsandbytes") from None
    return {"shape": tuple(shape), "block": block, "nested": nested, "offset": offset}


def _four_bits(stored: Stored, name: str, state: dict[str, Any]) -> Floats:
    count, stored_shape = math.prod(state["shape"]), stored.shape(name)
    if math.prod(stored_shape) != -(-count // 2):
        raise stored.wrong(name, f"has shape {stored_shape}, which does not hold {state['shape']} in 4 bits")
    pairs = stored.read(name, kind="int").astype(np.uint8).reshape(-1)
    nibbles = np.stack([pairs >> 4, pairs & 15], -1).reshape(-1)[:count]
    size = min(state["block"], count)
    blocks = -(-count // size)
    if state["nested"]:
        codes = stored.read(name + ".absmax", (blocks,), kind="int").astype(np.uint8)
        table = stored.floats(name + ".nested_quant_map", (256,))
        outer = stored.floats(name + ".nested_absmax", (-(-blocks // state["nested"]),))
        outer = np.repeat(outer, min(state["nested"], blocks))[:blocks]
        scales = table[codes] * outer + np.float32(state["offset"])
    else:
        scales = stored.floats(name + ".absmax", (blocks,))
    values = stored.floats(name + ".quant_map", (16,))[nibbles]
    return (values * np.repeat(scales, size)[:count]).reshape(state["shape"])


def _eight_bits(stored: Stored, stem: str, shape: tuple[int, ...]) -> Floats:
    values = stored.read(stem + ".weight", kind="int").astype(np.float32)
    scales: Floats = stored.floats(stem + ".SCB", shape[:1])[:, None] / np.float32(127)
    return values * scales
