"""Many sequences in one step: what a server runs, where a page runs the entry points of one conversation.

A step reads any tokens of any sequences, one a row: the next token of some, a part of the prompt of others. A row has
its token, its position and the pages of its sequence; rows of one sequence find each other in the cache, as keys and
values are written before they are read. `read` leaves hidden states in memory, `choose` makes tokens of those of some
rows. Both are traced for a few numbers of rows; unused rows have places of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tinyweb.device import Device
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp, Variable
from tinyweb.models.chat import Settings
from tinyweb.models.decoder.model import Decoder
from tinyweb.models.decoder.paged import PAGE, paged_caches, pages_for
from tinyweb.nn import sampling
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit

ROWS = (1, 8, 64)  # of a step: each number is traced when it is first needed


@dataclass(frozen=True)
class Row:
    """A token of a sequence. `settings`: how to choose the one that follows; None: it is not asked for. `recent`: the
    last tokens of the sequence up to this one, for the penalty of repetitions."""

    token: int
    position: int
    pages: Sequence[int]
    settings: Settings | None = None
    recent: Sequence[int] = ()


class Batch:
    """A decoder with a paged cache of `pages` pages of PAGE positions, of which the first `reserved` are no sequence's.

    `rows`: the most of a step. `shares`: whether a page has all that its tokens leave, so that sequences which begin
    alike may have it together. NotImplementedError for a model whose layers have states.
    """

    def __init__(self, model: Decoder, pages: int, rows: int = ROWS[-1]):
        self.model = model
        self.sizes = (*(n for n in ROWS if 2 * n <= rows), rows)
        self.most = self.pages_for(model.positions)
        self.reserved = -(-rows // PAGE)
        self.page_size, self.shares = PAGE, self.pages_for(PAGE) == 1
        self.pages = self.reserved + pages
        self.caches = paged_caches(model, self.pages)
        device = model.device
        self.device = Device[device or Device.DEFAULT]

        def integers(*shape: int) -> Tensor:
            return Tensor.empty(*shape, dtype=dtypes.int32, device=device)

        self.tokens, self.positions, self.wanted = integers(rows, 1), integers(rows, 1), integers(rows)
        self.table, self.recent, self.chosen = (
            integers(rows, self.most),
            integers(rows, sampling.WINDOW),
            integers(rows),
        )
        self.hidden = Tensor.empty(rows, model.config.hidden_size, device=device)
        self.logits = Tensor.empty(rows, model.vocab_size, device=device)
        self.sampling_f, self.sampling_i = Tensor.empty(rows, 3, device=device), integers(rows, 2)
        self._used = Variable("used", 1, self.most)
        self._read, self._choose = jit(self.read), jit(self.choose)

    def pages_for(self, tokens: int) -> int:
        """How many pages the positions of so many tokens take."""
        return pages_for(self.model, tokens)

    def step(self, rows: Sequence[Row]) -> list[int]:
        """Reads the tokens of `rows`, as many as there may be at most, into the pages; the tokens that follow those
        which ask for one, in order. Positions of a sequence come in order, and all before them have been read.

        `logits` (rows, vocab) then has in its first rows what they were chosen by.
        """
        self._place(rows, self._size(len(rows)))
        asking = [i for i, row in enumerate(rows) if row.settings is not None]
        return self._chosen(rows, asking) if asking else []

    def prepare(self, progress: Callable[[str, int, int], None] | None = None) -> None:
        """Compiles what steps launch, but for the penalty of repetitions: so the first answers do not wait for it."""
        for done, size in enumerate(self.sizes):
            if progress:
                progress(f"compiling kernels for {self.device.name}", done, len(self.sizes))
            self._place((), size)
            for kind in ("greedy", "drawn"):
                self._choose(size, kind)
        if progress:
            progress(f"compiling kernels for {self.device.name}", len(self.sizes), len(self.sizes))

    def row_logits(self, row: int) -> npt.NDArray[np.float32]:
        """The logits (vocab,) that the token of this place in what `step` gave was chosen by."""
        count = self.model.vocab_size
        memory = self.device.memory(self.logits.uop.buffer).handle
        return np.frombuffer(self.device.runtime.copy_out(memory, 4 * count, 4 * count * row), np.float32)

    def _place(self, rows: Sequence[Row], size: int) -> None:
        """Reads the tokens of `rows`, and of nobody up to `size`."""
        table = np.zeros((size, self.most), np.int32)
        placed = np.zeros((2, size), np.int32)
        for i, row in enumerate(rows):
            placed[:, i] = row.token, row.position
            table[i, : len(row.pages)] = row.pages
        for i in range(len(rows), size):  # what is written there nobody reads
            table[i, 0], placed[1, i] = i // PAGE, i % PAGE
        used = max((self.pages_for(row.position + 1) for row in rows), default=1)
        for memory, values in ((self.tokens, placed[0]), (self.positions, placed[1]), (self.table, table)):
            self._fill(memory, values)
        self._read(size, self._used.bind(used))

    def _chosen(self, rows: Sequence[Row], asking: list[int]) -> list[int]:
        size = self._size(len(asking))
        floats, integers = np.zeros((size, 3), np.float32), np.zeros((size, 2), np.int32)
        floats[:, 2] = 1
        recent = np.zeros((size, sampling.WINDOW), np.int32)
        kinds = set()
        for place, i in enumerate(asking):
            settings = rows[i].settings or Settings()
            floats[place] = settings.temperature, settings.top_p, settings.repetition_penalty
            integers[place] = settings.top_k, settings.seed_word
            last = rows[i].recent[-sampling.WINDOW :] or [rows[i].token]
            recent[place] = [*last, *[last[-1]] * (sampling.WINDOW - len(last))]
            kinds.add("penalised" if settings.repetition_penalty != 1 else "greedy" if settings.greedy else "drawn")
        kind = next(k for k in ("penalised", "drawn", "greedy") if k in kinds)
        self._fill(self.wanted, np.array([*asking, *[0] * (size - len(asking))], np.int32))
        if kind != "greedy":
            self._fill(self.sampling_f, floats)
            self._fill(self.sampling_i, integers)
        if kind == "penalised":
            self._fill(self.recent, recent)
        self._choose(size, kind)
        memory = self.device.memory(self.chosen.uop.buffer).handle
        return [int(t) for t in np.frombuffer(self.device.runtime.copy_out(memory, 4 * len(asking)), np.int32)]

    # -- what is traced -----------------------------------------------------------------------------------------------
    def read(self, rows: int, used: UOp) -> Tensor:
        """Hidden states of the first `rows` tokens, of which none is behind the first `used` pages of its sequence."""
        for cache in self.caches:
            cache.see(self.table[:rows], used)
        x = self.model.forward(self.tokens[:rows], self.positions[:rows], self.caches)
        self.hidden[:rows] = x[:, 0]
        return self.hidden

    def choose(self, rows: int, kind: str) -> tuple[Tensor, Tensor]:
        """Logits and tokens that follow the first `rows` of those that `wanted` names."""
        logits = self.model.project(self.hidden[self.wanted[:rows]])
        self.logits[:rows] = logits
        if kind == "greedy":
            self.chosen[:rows] = logits.argmax(-1).cast(dtypes.int32)
            return self.logits, self.chosen
        temperature, top_p, penalty = (self.sampling_f[:rows, i : i + 1] for i in range(3))
        top_k, seed = (self.sampling_i[:rows, i : i + 1] for i in range(2))
        logits = sampling.penalised(logits, self.recent[:rows], penalty) if kind == "penalised" else logits
        position = self.positions.reshape(-1)[self.wanted[:rows]].unsqueeze(1)
        chosen = sampling.drawn(logits, position, temperature, top_p, top_k, seed)
        self.chosen[:rows] = chosen.cast(dtypes.int32)
        return self.logits, self.chosen

    def _size(self, rows: int) -> int:
        return next(n for n in self.sizes if n >= rows)

    def _fill(self, memory: Tensor, values: npt.NDArray[np.float32] | npt.NDArray[np.int32]) -> None:
        self.device.memory(memory.uop.buffer).fill(memoryview(values.tobytes()))
