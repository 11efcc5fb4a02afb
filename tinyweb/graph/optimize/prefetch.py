"""Prefetch: memory that is read once, from its beginning to its end, is asked for some way ahead.

A processor's own prefetcher follows such reads as well, but not beyond a page of 4 KiB: behind each it starts anew.
That is hidden where little is computed with a byte, and reading ahead is far ahead: asking as well costs float32 a
tenth of its speed. Weights of 8 or 4 bits keep the processor busy, and gain a fifth or more (docs/performance.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyweb.graph.ir import Ops, UOp, substitute
from tinyweb.graph.optimize.action import Action

LEAST = 1 << 17  # bytes of a parameter: of a smaller one much is cached already
FARTHEST = 1 << 20


@dataclass(frozen=True)
class Prefetch(Action):
    """Each load of whole vectors of parameter `param` also asks for what lies `ahead` bytes behind it."""

    param: int
    ahead: int

    def apply(self, kernel: UOp) -> UOp:
        found = [u for u in kernel.toposort() if u.op is Ops.PARAM and u.arg.slot == self.param]
        only_read = found and not any(s.src[0] in found for s in kernel.src)
        self.require(only_read, "the kernel has no such parameter that it only reads")
        self.require(0 < self.ahead <= FARTHEST, f"1 to {FARTHEST} bytes ahead")
        return substitute(kernel, {u: u.replace(arg=replace(u.arg, ahead=self.ahead)) for u in found})
