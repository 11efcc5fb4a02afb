"""What the renderers share: which values become statements, how register memory is declared, and the text's layout.

A renderer walks `Program.uops` once. Every value gets a text: either the name of a statement or, where it is used
once and in the same loop, the expression itself. Nothing here decides anything about the program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, Space, UOp
from tinyweb.graph.program import Program

NOWHERE = -1  # no block of a program
MAX_INLINE = 96  # characters: a longer expression becomes a statement, which also bounds how deep parentheses nest


def lanes(u: UOp) -> int:
    """Lanes of a program value: 1 for a scalar."""
    shape = u.shape
    if not shape:
        return 1
    assert len(shape) == 1 and isinstance(shape[0], int), f"{u} is not a program value: shape {shape}"
    return shape[0]


def memory_of(u: UOp) -> UOp:
    """The PARAM or BUFFER a LOAD or STORE reaches, through AFTERs."""
    while u.op is Ops.AFTER:
        u = u.src[0]
    if u.op not in (Ops.PARAM, Ops.BUFFER):
        raise DeviceError(f"a program loads from or stores to {u}, which is no memory")
    return u


def access_width(u: UOp) -> int:
    """Elements a LOAD or STORE touches."""
    return lanes(u.src[2]) if u.op is Ops.STORE else lanes(u)


def is_splat(u: UOp) -> bool:
    """Whether a STACK repeats one scalar."""
    return u.op is Ops.STACK and all(s is u.src[0] for s in u.src)


def gate_of(u: UOp) -> UOp | None:
    """The gate of a LOAD or STORE, if it has one."""
    position = 3 if u.op is Ops.STORE else 2
    return u.src[position] if len(u.src) > position else None


@dataclass(frozen=True)
class Registers:
    """How a REGISTER buffer is declared.

    `variables`: its indices are all constant, so it is size / width variables of `width` lanes each; else an array.
    """

    variables: bool
    width: int


def register_plan(program: Program) -> dict[UOp, Registers]:
    """The declaration of every REGISTER buffer: where indices are constant, variables as wide as all accesses."""
    accesses: dict[UOp, list[UOp]] = {}  # memory stands before what reaches it
    for u in program.uops:
        if u.op is Ops.BUFFER:
            if u.arg.space is Space.REGISTER:
                accesses[u] = []
        elif u.op in (Ops.LOAD, Ops.STORE) and (memory := memory_of(u.src[0])) in accesses:
            accesses[memory].append(u)
    plan: dict[UOp, Registers] = {}
    for buffer, uses in accesses.items():
        constant = all(u.src[1].op is Ops.CONST for u in uses)
        widths = {access_width(u) for u in uses}
        width = widths.pop() if constant and len(widths) == 1 else 1
        aligned = buffer.arg.size % width == 0 and all(u.src[1].arg % width == 0 for u in uses if constant)
        plan[buffer] = Registers(constant, width if aligned else 1)
    return plan


def local_bytes(program: Program) -> int:
    """Bytes of the REGISTER buffers that are arrays: what a worker needs on its stack beside spilled registers."""
    plan = register_plan(program)
    return sum(u.dtype.nbytes(u.arg.size) for u, registers in plan.items() if not registers.variables)


def inlined(program: Program) -> set[UOp]:
    """Values that may stand inside another expression: used once, by a statement of the same loop.

    A LOAD never does: it is ordered against the stores around it. Nor does a SUBGROUP: all threads take part in it,
    also where some do not store.
    """
    block: dict[UOp, int] = {}
    user_block: dict[UOp, int] = {}  # of the one use; NOWHERE where there are several
    open_blocks = [0]
    opened = 0
    for u in program.uops:
        if u.op is Ops.END:
            open_blocks.pop()
        block[u] = within = open_blocks[-1]
        for s in u.src[:1] if is_splat(u) else u.src:
            user_block[s] = NOWHERE if s in user_block else within
        if u.op is Ops.RANGE:  # its size is evaluated outside of the loop
            opened += 1
            open_blocks.append(opened)
    return {u for u, used in user_block.items() if used == block.get(u) and u.op not in (Ops.LOAD, Ops.SUBGROUP)}


class Text:
    """Indented lines."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def add(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def open(self, line: str) -> None:
        self.add(line)
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.add("}")

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def bare(expression: str) -> str:
    """The expression without the parentheses around all of it, if there are such."""
    if not (expression.startswith("(") and expression.endswith(")")):
        return expression
    depth = 0
    for i, c in enumerate(expression):
        depth += (c == "(") - (c == ")")
        if depth == 0 and i < len(expression) - 1:
            return expression
    return expression[1:-1]


def f32_bits(value: float) -> int:
    """The bits of the nearest single-precision number; a NaN keeps its sign and as much of its payload as fits."""
    with np.errstate(over="ignore", under="ignore"):
        return int(np.array(value, np.float64).astype(np.float32).view(np.uint32))


def f32_text(value: float) -> str | None:
    """An exact literal without suffix for a finite normal single or zero; None for what needs its bits emitted."""
    bits = f32_bits(value)
    single = np.array(bits, np.uint32).view(np.float32)[()]
    if not np.isfinite(single) or (bits & 0x7FFFFFFF and not bits & 0x7F800000):
        return None
    text = repr(float(str(single)))
    # compilers may read a decimal as a double first: it stands only where that gives the same number
    if len(text) <= 12 and "e" not in text and f32_bits(float(text)) == bits:
        return text
    return _hex(float(single))


def _hex(value: float) -> str:
    """Hexadecimal floating point without superfluous zeros: 0x1.8p+1."""
    mantissa, exponent = value.hex().split("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}p{exponent}"
