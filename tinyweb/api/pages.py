"""Pages of the cache: free, of answers under way, or kept for what they hold.

A page whose positions have all been read is known by its tokens and those before it; another answer whose prompt begins
with the same tokens, as the next turn of a conversation does, has it too and reads what follows only. Pages that are
nobody's are kept until others are needed, the one that was used last the longest.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Sequence

import numpy as np


class Pages:
    """Those from `first` to `last` - 1, of `size` positions each. `shared`: whether what they hold is used again."""

    def __init__(self, first: int, last: int, size: int, shared: bool):
        self.size, self.shared = size, shared
        self._all = range(first, last)
        self.clear()

    def clear(self) -> None:
        """All are free, and hold nothing."""
        self._free = list(reversed(self._all))
        self._users: Counter[int] = Counter()
        self._kept: OrderedDict[int, None] = OrderedDict()  # nobody's, the one that was used last at the end
        self._known: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}

    @property
    def available(self) -> int:
        """How many can be taken."""
        return len(self._free) + len(self._kept)

    @property
    def unused(self) -> bool:
        """Whether none is in use."""
        return self.available == len(self._all) and not self._users.total()

    def take(self, count: int) -> list[int]:
        """So many, for one user; as many must be available."""
        taken = []
        for _ in range(count):
            if not self._free:
                page, _ = self._kept.popitem(last=False)
                del self._known[self._names.pop(page)]
                self._free.append(page)
            taken.append(self._free.pop())
            self._users[taken[-1]] = 1
        return taken

    def share(self, names: Sequence[bytes]) -> list[int]:
        """The pages that hold the first of these, for one more user."""
        found = []
        for name in names:
            if (page := self._known.get(name)) is None:
                break
            self._kept.pop(page, None)
            self._users[page] += 1
            found.append(page)
        return found

    def name(self, page: int, name: bytes) -> None:
        """A page in use holds what has this name from now on, unless another one does."""
        if self.shared and name not in self._known and page not in self._names:
            self._known[name], self._names[page] = page, name

    def release(self, pages: Sequence[int]) -> None:
        """One user fewer of each."""
        for page in reversed(pages):  # beginnings of texts are kept longer than their ends
            self._users[page] -= 1
            if self._users[page]:
                continue
            del self._users[page]
            if page in self._names:
                self._kept[page] = None
            else:
                self._free.append(page)

    def names(self, ids: Sequence[int], known: list[bytes]) -> None:
        """Adds to the names of the first whole pages of `ids` those of the others."""
        for at in range(len(known) * self.size, len(ids) - self.size + 1, self.size):
            tokens = np.array(ids[at : at + self.size], np.int64)
            before = known[-1] if known else b""
            known.append(hashlib.blake2b(before + tokens.tobytes(), digest_size=16).digest())
