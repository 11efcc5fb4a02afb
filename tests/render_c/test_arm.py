"""Kernels for 64-bit ARM: compiled by the pinned Clang, and what came of their inner loops."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from tests.graph.lower.hand_kernels import dots
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.target import cpu_target
from tinyweb.render_c import render
from tinyweb.toolchain import COMMON_FLAGS, find_clang
from tinyweb.tracing import capture

ARM = cpu_target(4, 4, registers=32)
FLAGS = ("--target=aarch64-linux-gnu", "-march=armv8.2-a+dotprod+fp16", "-fno-unroll-loops", "-S")


def kernel_of(make: Callable[[], Tensor]) -> UOp:
    return capture(lambda: make().realize()).calls[-1].kernel


def assembly(kernel: UOp) -> str:
    clang = find_clang().clang
    source = render([lower(optimize(kernel, ARM), ARM)])
    done = subprocess.run(
        [*clang, *COMMON_FLAGS, *FLAGS, "-x", "c", "-", "-o", "-"],
        input=source,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


def inner_loops(text: str) -> list[str]:
    """The bodies of loops that contain no other: from a label to the branch back to it."""
    lines = text.splitlines()
    labels = {found[1]: i for i, line in enumerate(lines) if (found := re.match(r"(\.L\w+):", line))}
    bodies = []
    for i, line in enumerate(lines):
        back = re.match(r"\s+(?:b\.\w+|cbn?z|tbn?z)\s.*?(\.L\w+)$", line)
        if back and labels.get(back[1], i) < i:
            body = lines[labels[back[1]] + 1 : i]
            if not any(re.match(r"\.L\w+:", inner) for inner in body):
                bodies.append("\n".join(body))
    return bodies


def empty(*shape: int) -> Tensor:
    return Tensor.empty(*shape)


# what there must be of multiplications in the busiest inner loop, and how many
KERNELS: dict[str, tuple[UOp | Callable[[], Tensor], str, int]] = {
    "product": (lambda: empty(256, 256) @ empty(256, 256), r"\bfmla\b", 12),
    "convolution": (lambda: empty(1, 16, 20, 20).conv2d(empty(32, 16, 3, 3), padding=1), r"\bfmla\b", 8),
    "attention": (
        lambda: empty(1, 4, 64, 32).scaled_dot_product_attention(*(empty(1, 4, 64, 32),) * 2),
        r"\bfmla\b",
        8,
    ),
    "integers": (dots(dtypes.int8, tokens=8, outputs=64, groups=8).kernel, r"\bsdot\b", 4),
}


@pytest.mark.parametrize("name", KERNELS)
def test_inner_loops_multiply_and_do_not_spill(name: str) -> None:
    make, instruction, least = KERNELS[name]
    loops = inner_loops(assembly(make if isinstance(make, UOp) else kernel_of(make)))
    busiest = max(loops, key=lambda body: len(re.findall(instruction, body)))
    assert len(re.findall(instruction, busiest)) >= least, busiest
    spills = re.findall(r"\b(?:str|stp|stur|ldr|ldp|ldur)\s+q\d+[^\n]*\[sp", busiest)
    assert not spills, busiest
