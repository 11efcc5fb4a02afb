"""Kernels for 64-bit ARM: compiled by the pinned Clang, and what came of their inner loops."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import CASES, Case, dots, integer_product, integers_of_all_sizes, supports
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.program import Program
from tinyweb.graph.target import DOTPROD, I8MM, cpu_target
from tinyweb.render_c import render
from tinyweb.toolchain import COMMON_FLAGS, find_clang
from tinyweb.tracing import capture

# with sdot, and with smmla too; each with what the compiler may use
TARGETS = {n: cpu_target(4, 4, registers=32, instructions=i) for n, i in (("dotprod", DOTPROD), ("i8mm", I8MM))}
ARM = TARGETS["dotprod"]


def flags(name: str) -> list[str]:
    features = "+".join(("dotprod", "fp16", *((name,) if name != "dotprod" else ())))
    return ["--target=aarch64-linux-gnu", f"-march=armv8.2-a+{features}", "-fno-unroll-loops"]


def kernel_of(make: Callable[[], Tensor]) -> UOp:
    return capture(lambda: make().realize()).calls[-1].kernel


def assembly(kernel: UOp, name: str = "dotprod") -> str:
    clang, target = find_clang().clang, TARGETS[name]
    source = render([lower(optimize(kernel, target), target)])
    done = subprocess.run(
        [*clang, *COMMON_FLAGS, *flags(name), "-S", "-x", "c", "-", "-o", "-"],
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
MATRICES = {
    "product": (integer_product(128, 128, 256).kernel, 16),
    "transposed": (integer_product(128, 128, 256, True).kernel, 16),
    "odd": (integer_product(33, 67, 1000).kernel, 8),
    "groups": (dots(dtypes.int8, tokens=32, outputs=64, groups=8).kernel, 8),
    "groups of int4": (dots(dtypes.int4, tokens=9, outputs=64, groups=8).kernel, 8),
    "groups of uint4": (dots(dtypes.uint4, tokens=9, outputs=64, groups=8).kernel, 8),
}
KERNELS: dict[str, tuple[UOp | Callable[[], Tensor], str, int]] = {
    "product": (lambda: empty(256, 256) @ empty(256, 256), r"\bfmla\b", 12),
    "convolution": (lambda: empty(1, 16, 20, 20).conv2d(empty(32, 16, 3, 3), padding=1), r"\bfmla\b", 8),
    "attention": (
        lambda: empty(1, 4, 64, 32).scaled_dot_product_attention(*(empty(1, 4, 64, 32),) * 2),
        r"\bfmla\b",
        8,
    ),
    "product of integers": (integer_product(128, 128, 256).kernel, r"\bsdot\b", 24),
    "integers": (dots(dtypes.int8, tokens=8, outputs=64, groups=8).kernel, r"\bsdot\b", 4),
}


@pytest.mark.parametrize("name", KERNELS)
def test_inner_loops_multiply_and_do_not_spill(name: str) -> None:
    make, instruction, least = KERNELS[name]
    check_inner_loop(assembly(make if isinstance(make, UOp) else kernel_of(make)), instruction, least)


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_are_multiplied_in_registers(name: str) -> None:
    kernel, least = MATRICES[name]
    check_inner_loop(assembly(kernel, "i8mm"), r"\bsmmla\b", least)


def check_inner_loop(text: str, instruction: str, least: int) -> None:
    loops = inner_loops(text)
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
@pytest.mark.parametrize("name", TARGETS)
def test_kernels_compute_on_arm(name: str, tmp_path: Path) -> None:
    """The hand-written kernels, optimised for ARM, carried out by an emulated processor."""
    target = TARGETS[name]
    all_cases = [*CASES, *integers_of_all_sizes()]
    cases = [(c, lower(optimize(c.kernel, target), target)) for c in all_cases if supports(c, target)]
    cases = list({program.name: (case, program) for case, program in cases}.values())
    assert len(cases) > 25
    toolchain = find_clang()
    source = render([program for _, program in cases]) + harness(cases)
    compiled = subprocess.run(
        [*toolchain.clang, *COMMON_FLAGS, *flags(name), "-fno-stack-protector", "-c", "-x", "c", "-",
         "-o", "kernels.o"],
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
