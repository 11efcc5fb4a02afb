"""Kernels for 64-bit ARM: compiled by the pinned Clang, and what came of their inner loops."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import CASES, Case, dots, supports
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.program import Program
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


# A program without a C library: it reads each kernel's buffers, runs it, and writes the buffers.
HARNESS = """
static long system(long number, long a, long b, long c) {
  register long x8 asm("x8") = number, x0 asm("x0") = a, x1 asm("x1") = b, x2 asm("x2") = c;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
static void transfer(long number, char *at, long count) {
  while (count > 0) {
    const long done = system(number, number == 64, (long)at, count);
    if (done <= 0) system(93, 1, 0, 0);
    at += done, count -= done;
  }
}
void *memset(void *to, int value, unsigned long count) {
  for (volatile char *p = to; count; count--) *p++ = value;
  return to;
}
void *memcpy(void *to, const void *from, unsigned long count) {
  volatile char *p = to;
  for (const char *q = from; count; count--) *p++ = *q++;
  return to;
}
static char memory[1 << 22] __attribute__((aligned(64)));
"""


def harness(cases: list[tuple[Case, Program]]) -> str:
    text = [HARNESS, "void _start(void) {"]
    for case, program in cases:
        sizes = [b.nbytes for b in case.before]
        places = [sum(-(-n // 64) * 64 for n in sizes[:i]) for i in range(len(sizes))]
        text += ["  {", f"    void *const buffers[] = {{{', '.join(f'memory + {at}' for at in places)}}};"]
        values = ", ".join(str(case.variables[v.arg[0]]) for v in program.variables)
        text.append(f"    const int variables[] = {{{values or 0}}};")
        text += [f"    transfer(63, buffers[{i}], {n});" for i, n in enumerate(sizes)]
        text.append(f"    {program.name}(buffers, variables, 0, {program.name}_grid(variables));")
        text += [f"    transfer(64, buffers[{i}], {n});" for i, n in enumerate(sizes)]
        text.append("  }")
    return "\n".join([*text, "  system(93, 0, 0, 0);", "}"])


@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="qemu-user is not installed")
def test_kernels_compute_on_arm(tmp_path: Path) -> None:
    """The hand-written kernels, optimised for ARM, carried out by an emulated processor."""
    cases = [(c, lower(optimize(c.kernel, ARM), ARM)) for c in CASES if supports(c, ARM)]
    cases = list({program.name: (case, program) for case, program in cases}.values())
    assert len(cases) > 25
    toolchain = find_clang()
    source = render([program for _, program in cases]) + harness(cases)
    flags = [*FLAGS[:-1], "-fno-stack-protector", "-c"]
    compiled = subprocess.run(
        [*toolchain.clang, *COMMON_FLAGS, *flags, "-x", "c", "-", "-o", "kernels.o"],
        input=source, capture_output=True, text=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr[:2000]
    linker = [toolchain.clang[0], "ld.lld"] if "zig" in Path(toolchain.clang[0]).name else ["ld.lld"]
    command = [*linker, "-o", "kernels", "kernels.o"]
    linked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert linked.returncode == 0, linked.stderr[:2000]
    given = b"".join(np.ascontiguousarray(b).tobytes() for case, _ in cases for b in case.before)
    # the processor has what the kernels are compiled for, and not the vectors of other lengths
    done = subprocess.run(["qemu-aarch64", "-cpu", "max,sve=off", "./kernels"], input=given, capture_output=True,
                          cwd=tmp_path, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    at = 0
    for case, _ in cases:
        for i, before in enumerate(case.before):
            got = np.frombuffer(done.stdout, before.dtype, before.size, at).reshape(before.shape)
            at += before.nbytes
            if i < len(case.after):
                want = case.after[i]
                limit = max(case.tolerance, 2e-5)
                np.testing.assert_allclose(got, want, limit, limit, err_msg=case.name)
    assert at == len(done.stdout)
