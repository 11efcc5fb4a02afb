"""One answer under way: tokens come in, pieces of text go out, until an end token, a stop text or a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from tinyweb.formats.tokenizer import TextStream, Tokenizer
from tinyweb.models.chat import LOOK_BACK, Settings

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class TokenChance:
    """A token and the logarithm of its probability, before temperature and cuts."""

    token: int
    text: str
    logprob: float


@dataclass(frozen=True)
class ChosenToken:
    """One token of an answer, the likeliest ones at its place, and where its text begins in the answer's."""

    chance: TokenChance
    others: tuple[TokenChance, ...]
    offset: int


@dataclass(frozen=True)
class Piece:
    """What became final of an answer. `finish`: why it ended, of its last piece; `error`: that it broke off, and why.
    `produced`: tokens so far, the end token included."""

    text: str = ""
    tokens: tuple[ChosenToken, ...] = ()
    finish: Finish | None = None
    error: str | None = None
    produced: int = 0

    @property
    def last(self) -> bool:
        """Whether nothing follows."""
        return self.finish is not None or self.error is not None


@dataclass(eq=False)
class Generation:
    """An answer that is asked for. `prompt`: at least one token. `context`: tokens of prompt and answer at most, the
    last one aside. `chances`: how many likely tokens are told with each, None: no probabilities. `receive` is called
    with each piece, in the thread that computes.
    """

    tokenizer: Tokenizer
    prompt: Sequence[int]
    settings: Settings
    context: int
    receive: Callable[[Piece], None]
    stops: tuple[str, ...] = ()
    chances: int | None = None
    ids: list[int] = field(init=False)
    read: int = field(init=False, default=0)  # tokens of `ids` that are in the cache
    pages: list[int] = field(init=False, default_factory=list)
    names: list[bytes] = field(init=False, default_factory=list)  # of the pages that its tokens fill
    cancelled: bool = field(init=False, default=False)  # nobody waits any more; any thread may set it
    ended: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.ids = list(self.prompt)
        self._stream = TextStream(self.tokenizer, self.ids[-LOOK_BACK:] if self.tokenizer.completes else ())
        self._held = ""  # of which a stop text may become
        self._waiting: list[ChosenToken] = []  # whose text is held, or not complete
        self._length = self._sent = 0  # characters of the answer that came in, and that went out

    @property
    def produced(self) -> int:
        """Tokens of the answer so far."""
        return len(self.ids) - len(self.prompt)

    def push(self, token: int, logits: npt.NDArray[np.float32] | None = None) -> None:
        """The next token of the answer, with the logits (vocab,) that it was chosen by, where they are told."""
        self.ids.append(token)
        ends = token in self.tokenizer.eos
        if not ends and logits is not None and self.chances is not None:
            self._waiting.append(self._chosen(token, logits))
        full = self.produced >= self.settings.max_tokens or len(self.ids) > self.context
        new = "" if ends else self._stream.push(token)
        if ends or full:
            new += self._stream.finish()
        self._length += len(new)
        self._held += new
        cut = min((at for s in self.stops if (at := self._held.find(s)) >= 0), default=None)
        if cut is not None:
            self._send(cut, "stop")
        elif ends or full:
            self._send(len(self._held), "stop" if ends else "length")
        elif (out := len(self._held) - self._may_become_stop()) > 0:
            self._send(out, None)

    def fail(self, message: str) -> None:
        """It breaks off: one sentence says why."""
        if not self.ended:
            self.ended = True
            self.receive(Piece(error=message, produced=self.produced))

    def _send(self, count: int, finish: Finish | None) -> None:
        """Gives out the first characters that are held, and the tokens that begin in them."""
        text, self._held = self._held[:count], self._held[count:]
        self._sent += count
        ended = finish is not None and self._held == ""
        out = [t for t in self._waiting if t.offset < self._sent or (ended and t.offset == self._sent)]
        self._waiting = [t for t in self._waiting if t not in out]
        self.ended = finish is not None
        self.receive(Piece(text, tuple(out), finish, None, self.produced))

    def _may_become_stop(self) -> int:
        """How many characters at the end of what is held begin a stop text."""
        most = min(len(self._held), max((len(s) for s in self.stops), default=1) - 1)
        return next((n for n in range(most, 0, -1) if any(s.startswith(self._held[-n:]) for s in self.stops)), 0)

    def _chosen(self, token: int, logits: npt.NDArray[np.float32]) -> ChosenToken:
        wide = logits.astype(np.float64)
        wide -= wide.max()
        wide -= np.log(np.exp(wide).sum())
        count = min(self.chances or 0, len(wide))
        likely = np.argpartition(-wide, count - 1)[:count] if count else np.empty(0, np.int64)
        others = sorted((int(i) for i in likely), key=lambda i: (-wide[i], i))
        return ChosenToken(self._chance(token, wide), tuple(self._chance(i, wide) for i in others), self._length)

    def _chance(self, token: int, logprobs: npt.NDArray[np.float64]) -> TokenChance:
        return TokenChance(token, self.tokenizer.token_text(token), float(max(logprobs[token], -9999.0)))
