"""A work: inputs, what both sides make of them, and the arithmetic that takes."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Array: TypeAlias = npt.NDArray[Any]
Inputs: TypeAlias = Callable[[np.random.Generator], Sequence[Array]]
Needs: TypeAlias = "Counter[str]"
"""How often each operation is needed: "" one of arithmetic, else a function of `count.FUNCTIONS`."""


@dataclass(frozen=True)
class Work:
    """What is done by both sides.

    `ours` gets tensors of tinyweb, `theirs` of PyTorch; each returns a tensor or several. `needs` is what the
    expression asks for if everything is computed once. `place` makes our tensors of the inputs where these are not
    simply copied. `note` says where PyTorch does something else than we do. `tolerance` replaces that of the dtype.
    `nodes` writes, of the first input and constants, the nodes of a peer that computes with graphs, into one
    (`onnx_graph.Graph`), and returns the result's name, where such a peer can do what PyTorch cannot. `beyond` says why
    kernels execute, or move, more than the limits of `count` allow: a work without one is not to be beyond them.
    """

    name: str
    inputs: Inputs
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    needs: Needs
    note: str = ""
    place: Callable[[Sequence[Array]], Sequence[Any]] | None = None
    nodes: Callable[[Any, Sequence[Array]], str] | None = None
    tolerance: float | None = None
    beyond: str = ""

    def arrays(self) -> list[Array]:
        """The same in every run."""
        return list(self.inputs(np.random.default_rng(zlib.crc32(self.name.encode()))))


def needs(arithmetic: float = 0, **functions: float) -> Needs:
    """Operations of arithmetic (a multiply-add is two), and how often functions are computed."""
    return Counter({"": round(arithmetic), **{name: round(count) for name, count in functions.items()}})


def softmax_needs(count: float) -> Needs:
    """Of `count` scores: maximum, difference, exponential, sum, quotient."""
    return needs(3 * count, max=count, exp=count)


def normal(*shapes: Sequence[int]) -> Inputs:
    """Float32 numbers around zero."""
    return lambda random: [random.standard_normal(tuple(shape), dtype=np.float32) for shape in shapes]


def halves(*shapes: Sequence[int], floats: int = 0) -> Inputs:
    """Numbers around zero, of which the first `floats` arrays are float32 and the others float16."""

    def make(random: np.random.Generator) -> list[Array]:
        arrays = [random.standard_normal(tuple(shape), dtype=np.float32) for shape in shapes]
        return [a if i < floats else a.astype(np.float16) for i, a in enumerate(arrays)]

    return make


def distinct(*shape: int) -> Inputs:
    """Float32 numbers of which no two are equal: how ties are sorted is not laid down."""
    return lambda random: [random.permutation(math.prod(shape)).reshape(shape).astype(np.float32)]


def alike(name: str, inputs: Inputs, both: Callable[..., Any], needed: Needs, **more: Any) -> Work:
    """A work whose expression is the same text for both."""
    return Work(name, inputs, both, both, needed, **more)


def function(name: str, inputs: Inputs, method: str, needed: Needs, beyond: str = "", **keywords: Any) -> Work:
    """A work of one function of `torch.nn.functional`, which is a method here."""
    theirs = getattr(torch.nn.functional, method)
    return Work(
        name,
        inputs,
        lambda x, *rest: getattr(x, method)(*rest, **keywords),
        lambda x, *rest: theirs(x, *rest, **keywords),
        needed,
        beyond=beyond,
    )


def gradient(
    name: str, inputs: Inputs, of: int, ours: Callable[..., Any], theirs: Callable[..., Any], needed: Needs
) -> Work:
    """Gradients of the first `of` inputs; the gradient that arrives is the last input."""

    def our_gradients(*tensors: Any) -> Any:
        *operands, upstream = tensors
        return ours(*operands).gradient(*operands[:of], gradient=upstream)

    def their_gradients(*tensors: Any) -> Any:
        *operands, upstream = tensors
        leaves = [t.detach().requires_grad_() for t in operands[:of]]
        with torch.enable_grad():
            return torch.autograd.grad(theirs(*leaves, *operands[of:]), leaves, upstream)

    return Work(name, inputs, our_gradients, their_gradients, needed)
