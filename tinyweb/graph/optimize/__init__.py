"""One kernel becomes a faster kernel by a schedule: a tuple of named, checked actions."""

from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize.merge import merge_reduces
from tinyweb.graph.target import Target


def optimize(kernel: UOp, target: Target) -> UOp:
    """The kernel under the heuristic's schedule for `target`."""
    return merge_reduces(kernel)
