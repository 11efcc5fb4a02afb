"""Choosing the next token on the device: repetition penalty, temperature, top-k, top-p, and a draw without a sort.

The order is the usual one. Logits of the last `WINDOW` tokens are made less likely; all are divided by the
temperature; the `top_k` likeliest stay; of these the fewest likeliest whose probabilities reach `top_p`; one is drawn
by adding Gumbel noise and taking the maximum. Both cuts are thresholds on the logit. Each is found by narrowing an
interval: how many values (how much probability) lie above a candidate is one reduction over the vocabulary, so no
sort is needed and the work is the same for every input.

The noise is a function of (seed, position, token): the same settings give the same token on every device, up to
values that differ only in their last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp
from tinyweb.nn.random import gumbel, threefry, words
from tinyweb.tensor import Tensor

WINDOW = 64  # tokens the repetition penalty looks back
SPAN = 32.0  # logits this far below the largest have no chance: e⁻³² of its probability
ROUNDS = 9  # each narrows the interval to a quarter: 32 / 4⁹ = 1e-4, a difference that changes no odds
ROW = 256  # the vocabulary is padded to a multiple: rows that divide evenly need no bounds checks
STREAM = 0x746F6B65  # second word of the key: sampling has a stream of its own


def greedy(logits: Tensor, ids: Tensor, position: UOp) -> Tensor:
    """Writes the index of the largest of `logits` (1, vocab) to ids[position + 1]; the lowest among equals."""
    return _write(ids, position, logits.reshape(-1).argmax(0))


def sample(logits: Tensor, ids: Tensor, position: UOp, floats: Tensor, integers: Tensor) -> Tensor:
    """Draws a token from `logits` (1, vocab) and writes it to ids[position + 1].

    `floats` (4,): temperature, top_p, repetition_penalty, unused. `integers` (2,) int32: top_k, seed. A temperature
    of 0 takes the likeliest token; top_k 0, top_p 1 and repetition_penalty 1 mean "off". `ids` (n,) int32 holds the
    tokens so far at positions 0 … position.
    """
    x = logits.reshape(-1).float()
    # before the first token there is none: looking at it again changes nothing, as it is in the window anyway
    window = (Tensor(position, device=x.device) - Tensor.arange(WINDOW, device=x.device)).maximum(0)
    x = penalised(x, ids[window], floats[2])
    return _write(
        ids, position, drawn(x, Tensor(position, device=x.device), floats[0], floats[1], integers[0], integers[1])
    )


def drawn(x: Tensor, position: Tensor, temperature: Tensor, top_p: Tensor, top_k: Tensor, seed: Tensor) -> Tensor:
    """The token that each row of logits x (…, vocab), float32, gives; the settings are of a shape that broadcasts to
    (…, 1). `position`: of the token that the logits follow."""
    count = int(x.shape[-1])  # type: ignore[arg-type]
    padding = -count % ROW
    device = x.device
    random = temperature > 0
    x = x / random.where(temperature, 1.0)
    x = x.pad((*((0, 0),) * (x.ndim - 1), (0, padding)), value=-math.inf).contiguous()
    threshold = _threshold(x, top_k, top_p).contiguous()

    counter = (words(Tensor.arange(count + padding, device=device)), words(position))
    noise = gumbel(threefry((words(seed), words(Tensor(STREAM, device=device))), counter)[0])
    return (x >= threshold).where(x + random.where(noise, 0.0), -math.inf).contiguous().argmax(-1)


def penalised(x: Tensor, recent: Tensor, penalty: Tensor) -> Tensor:
    """Logits x (…, vocab) with those of the tokens in `recent` (…, WINDOW) made less likely."""
    vocabulary = Tensor.arange(int(x.shape[-1]), device=x.device)  # type: ignore[arg-type]
    seen = (recent.unsqueeze(-1) == vocabulary).any(-2)
    return seen.where((x > 0).where(x / penalty, x * penalty), x)


def _write(ids: Tensor, position: UOp, token: Tensor) -> Tensor:
    ids[position + 1 : position + 2] = token.cast(dtypes.int32).reshape(1)
    return ids


def _threshold(x: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """The least value of x (…, vocab) that may be drawn, (…, 1)."""
    largest = x.max(-1, keepdim=True)
    z = x - largest
    by_count = _largest(Tensor(-SPAN, device=x.device), lambda t: (z >= t).int().sum(-1, keepdim=True) >= top_k)
    by_count = (top_k > 0).where(by_count, -math.inf)
    mass = (z >= by_count).where(z.exp(), 0.0)
    enough = mass.sum(-1, keepdim=True) * top_p
    by_mass = _largest(by_count.maximum(-SPAN), lambda t: (z >= t).where(mass, 0.0).sum(-1, keepdim=True) >= enough)
    return (top_p < 1).where(by_mass, by_count) + largest


def _largest(low: Tensor, holds: Callable[[Tensor], Tensor]) -> Tensor:
    """The largest t in [low, 0], to 4⁻ᴿᴼᵁᴺᴰˢ of the interval, with holds(t): monotone, and true at `low`."""
    width = -low
    for _ in range(ROUNDS):
        width = width * 0.25
        steps = [holds(low + width * float(i)).float() for i in (1, 2, 3)]
        low = low + width * (steps[0] + steps[1] + steps[2])
    return low.minimum(0.0)
