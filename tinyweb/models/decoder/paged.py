"""Caches whose positions lie in pages of one pool, for sequences that go on side by side (Kwon et al. 2023).

A page has `PAGE` positions of one sequence; which pages are whose, a table says that the host fills before each step.
Sequences of any lengths share the memory, and one traced step serves whatever they are: it reads the pages that the
longest has, and masks leave out what is not a sequence's own.
"""

from __future__ import annotations

from tinyweb.array.update import put
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Size
from tinyweb.models.decoder.cache import Cache, Start
from tinyweb.models.decoder.config import ConvConfig
from tinyweb.models.decoder.model import Decoder, source
from tinyweb.tensor import Tensor

PAGE = 16  # positions: a sequence leaves half of its last page unused on average
LARGEST = 3.4e38  # that a row may hold: what a mask leaves out is multiplied with 0, and must be finite


class PagedCache(Cache):
    """The positions of one layer in `pages` pages, (pages · PAGE, …, width): a row of the layer's own cache `like`, for
    one sequence, at each.

    `see` says which pages a step reads and writes; positions are then int32 (batch, tokens), as `Decoder.forward` takes
    them, and stand in the pages of their sequence.
    """

    def __init__(self, like: Cache, pages: int, device: str | None):
        *outer, _, width = (int(s) for s in like.rows.shape if isinstance(s, int))
        self.outer, self.count = tuple(outer), pages
        super().__init__((*outer, pages * PAGE, width), like.kind, device)
        for name, memory in self.tensors().items():
            shape = (pages * PAGE, *memory.shape[:-2], memory.shape[-1])
            own = Tensor.empty(*(int(s) for s in shape if isinstance(s, int)), dtype=memory.dtype, device=device)
            setattr(self, name or "rows", own)

    def see(self, table: Tensor, used: Size) -> None:
        """From now on, sequence i has the pages table[i], int32 (batch, most), of which the first `used` are read."""
        self.table, self.used = table, used

    @property
    def positions(self) -> int:
        """How many a sequence can have."""
        most = self.table.shape[1]
        assert isinstance(most, int)
        return most * PAGE

    def write(self, start: Start, rows: Tensor) -> None:
        """Rows (…, batch · heads, tokens, width), float32, at positions `start` (batch, tokens), all different."""
        assert isinstance(start, Tensor)
        rows = rows.isnan().where(0.0, rows).clamp(-LARGEST, LARGEST)
        batch, tokens = start.shape
        lead, heads = self.outer[:-1], self.outer[-1]
        for name, values in self.kept(rows).items():
            apart = values.reshape(*lead, batch, heads, tokens, values.shape[-1])
            n = len(lead)
            apart = apart.permute(n, n + 2, *range(n), n + 1, n + 3)
            apart = apart.reshape(batch * tokens, *self.outer, values.shape[-1])
            put(self.tensors()[name], self._slots(start).reshape(batch * tokens).uop, apart.uop)

    def read(self, start: Start, stop: Start) -> Tensor:
        """Rows (…, batch · heads, n, width), float32: at positions `start` (batch, n), or, from 0 on, all of the pages
        that are read."""
        found: dict[str, Tensor] = {}
        for name, memory in self.tensors().items():
            if isinstance(start, Tensor):
                found[name] = self._by_head(memory[self._slots(start)])
                continue
            paged = memory.reshape(self.count, PAGE, *memory.shape[1:])[self._inside(self.table[:, : self.used])]
            found[name] = self._by_head(paged.reshape(paged.shape[0], paged.shape[1] * PAGE, *paged.shape[3:]))
        return self.widened(found)

    def _slots(self, start: Tensor) -> Tensor:
        """Where positions (batch, tokens) are in memory."""
        pages = self._inside(self.table.gather(1, start // PAGE))
        return (pages * PAGE + start % PAGE).cast(dtypes.int32)

    def _inside(self, pages: Tensor) -> Tensor:
        """The pages, which are there: kernels need not ask for each whether it is."""
        return pages.clamp(0, self.count - 1)

    def _by_head(self, rows: Tensor) -> Tensor:
        """(batch, n, …, heads, width) → (…, batch · heads, n, width)."""
        n = len(self.outer) - 1
        rows = rows.permute(*range(2, 2 + n), 0, 2 + n, 1, 3 + n)
        return rows.reshape(*self.outer[:-1], rows.shape[n] * self.outer[-1], *rows.shape[n + 2 :])


def paged_caches(model: Decoder, pages: int) -> list[PagedCache]:
    """A cache for each layer of a model, with so many pages; what reads another layer's keys has that layer's.

    NotImplementedError for a model with states, which have no positions.
    """
    if not model.rewinds:
        raise NotImplementedError("pages of a model whose layers have states: they keep no positions")
    caches: list[PagedCache] = []
    for layer in model.layers:
        shared = source(layer.config)
        if shared is not None:
            caches.append(caches[shared])
            continue
        like = layer.memory(1, PAGE, model.cache, model.device)
        assert isinstance(like, Cache)
        caches.append(PagedCache(like, pages, model.device))
    return caches


def pages_for(model: Decoder, tokens: int) -> int:
    """How many pages the positions of so many tokens take, with those that a convolution has before the first."""
    taps = (layer.mixer.taps for layer in model.config.layers if isinstance(layer.mixer, ConvConfig))
    return -(-(tokens + max(taps, default=1) - 1) // PAGE)
