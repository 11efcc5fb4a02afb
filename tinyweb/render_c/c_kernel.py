"""One program as a C function over a range of its grid."""

from __future__ import annotations

from collections.abc import Mapping

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, Size, Space, UOp
from tinyweb.graph.program import Program
from tinyweb.render_c.c_helpers import MASKED_LOAD
from tinyweb.render_c.c_ops import EMITTERS, mask_bits
from tinyweb.render_c.c_types import SCALARS, literal, scalar_name, vector_name
from tinyweb.render_common import (
    MAX_INLINE,
    Inlining,
    Text,
    access_width,
    bare,
    gate_of,
    lanes,
    memory_of,
    register_plan,
)

CROWDED = 128  # bytes of sums: half of the registers of WebAssembly's SIMD, as engines have them
PREFETCHED = 16  # bytes of a load: asking once for every number would cost more than it brings
UPDATES = {"atomic_and": "&=", "atomic_or": "|="}  # one worker has the whole grid of such a program
GRID = "i32 begin, i32 end"  # the iterations that a call carries out, as parameters
GRID_LOOP = "for (i32 grid = begin; grid < end; ++grid) {"


class Kernel:
    """Writes `static void NAME_body(T *restrict p0, …, const i32 *variables, i32 begin, i32 end)`.

    After construction: `text`, and what it needs of its surroundings: `vectors` (type names), `helpers` (name → text).
    `slots` gives the position of each variable in `variables`; by default its position in `program.variables`.
    """

    def __init__(self, program: Program, slots: Mapping[str, int] | None = None) -> None:
        self.program = program
        self.slots = slots if slots is not None else variable_slots(program)
        self.vectors: set[str] = set()
        self.helpers: dict[str, str] = {}
        self._emitted: dict[UOp, str] = {}
        self._registers = register_plan(program)
        held = sum(u.dtype.nbytes(u.arg.size) for u, r in self._registers.items() if r.variables)
        self._crowded = held >= CROWDED
        self._buffers: dict[UOp, str] = {}
        self._inline = Inlining(program)
        self._out = Text()
        self._values = self._loops = 0
        self._write()
        self.text = str(self._out)

    # -- what the table of emitters uses ---------------------------------------------------------------------------
    def x(self, u: UOp) -> str:
        """The text of a value."""
        found = self._emitted.get(u)
        if found is None:
            if u.op is not Ops.CONST:
                raise DeviceError(f"program {self.program.name}: {u} is used before it is defined")
            found = self._emitted[u] = literal(u.arg, u.dtype)
        return found

    def type(self, u: UOp) -> str:
        """The C type of a value."""
        n = lanes(u)
        return self.vector(f"i{mask_bits(u)}" if u.dtype is dtypes.bool and n > 1 else scalar_name(u.dtype), n)

    def vector(self, scalar: str, n: int) -> str:
        """The name of a type of `n` lanes, declared on use."""
        name = vector_name(scalar, n)
        self.vectors.add(name)
        return name

    def mask(self, u: UOp, bits: int) -> str:
        """A vector of bool as a mask of `bits` wide elements."""
        if lanes(u) == 1:
            raise DeviceError(f"program {self.program.name}: {u} is a scalar where a vector of bool is needed")
        if mask_bits(u) == bits:
            return self.x(u)
        return f"__builtin_convertvector({self.x(u)}, {self.vector(f'i{bits}', lanes(u))})"

    def splat(self, value: float, dtype: DType, n: int) -> str:
        """A constant in every lane."""
        text = literal(value, dtype)
        return text if n == 1 else f"({self.vector(scalar_name(dtype), n)})({text})"

    def need(self, name: str, text: str, vectors: set[str]) -> None:
        """Ask for a helper function."""
        self.helpers[name] = text
        self.vectors |= vectors

    # -- writing ------------------------------------------------------------------------------------------------------
    def _write(self) -> None:
        out, p = self._out, self.program
        kinds = [("" if i.written else "const ") + self.vector(scalar_name(i.dtype), 1) for i in p.params]
        parameters = [f"{kind} *restrict p{i.slot}" for kind, i in zip(kinds, p.params)]
        out.open(f"static void {p.name}_body({', '.join([*parameters, 'const i32 *variables', GRID])}) {{")
        for v in dict.fromkeys([*p.variables, *(u for u in p.uops if u.op is Ops.VARIABLE)]):
            slot = self._slot(v)
            name = self._emitted[v] = (
                f"n_{v.arg[0]}" if f"n_{v.arg[0]}".isidentifier() and v.arg[0].isascii() else f"n_{slot}"
            )
            out.add(f"const i32 {name} = variables[{slot}];")
        if not any(u.op is Ops.SPECIAL for u in p.uops):
            out.open(GRID_LOOP)
        for u in p.uops:
            self._statement(u)
        while out.depth:
            out.close()

    def _slot(self, v: UOp) -> int:
        if v.arg[0] not in self.slots:
            raise DeviceError(f"program {self.program.name}: no slot was given for the variable {v.arg[0]}")
        return self.slots[v.arg[0]]

    def _statement(self, u: UOp) -> None:
        if u.op in (Ops.CONST, Ops.VARIABLE, Ops.SINK):
            return
        if u.op is Ops.PARAM:
            self._buffers[u] = f"p{u.arg.slot}"
        elif u.op is Ops.AFTER:
            return
        elif u.op is Ops.BUFFER:
            self._declare(u)
        elif u.op is Ops.SPECIAL:
            if u.arg != ("grid", 0):
                raise DeviceError(f"program {self.program.name}: C has no hardware index {u.arg}, only ('grid', 0)")
            self._out.open(GRID_LOOP)
            self._emitted[u] = "grid"
        elif u.op is Ops.RANGE:
            i = f"i{self._loops}" if f"i{self._loops}" not in SCALARS else f"i{self._loops}_"  # i8 is a type
            self._loops += 1
            size = self.x(u.src[0])
            if u.src[0].op is not Ops.CONST and not size.isidentifier():
                self._out.add(f"const i32 n{i} = {bare(size)};")
                size = f"n{i}"
            if self._crowded and u.arg.reduce and u.src[0].op is Ops.CONST:
                self._out.add("ROLLED")
            self._out.open(f"for (i32 {i} = 0; {i} < {size}; ++{i}) {{")
            self._emitted[u] = i
        elif u.op is Ops.END:
            self._out.close()
        elif u.op is Ops.LOAD:
            self._prefetch(u)
            self._define(u, self._load(u))
        elif u.op is Ops.STORE:
            self._store(u)
        elif u.op in EMITTERS:
            self._define(u, EMITTERS[u.op](self, u))
        else:
            raise DeviceError(f"program {self.program.name}: C has no text for {u.op.name} of {u.dtype.name}")

    def _define(self, u: UOp, text: str) -> None:
        if u in self._inline and len(text) <= MAX_INLINE:
            self._emitted[u] = text
            return
        name = self._emitted[u] = f"v{self._values}"
        self._values += 1
        self._out.add(f"const {self.type(u)} {name} = {bare(text)};")

    def _declare(self, u: UOp) -> None:
        if u.arg.space is not Space.REGISTER:
            raise DeviceError(f"program {self.program.name}: C has no {u.arg.space} memory")
        name = self._buffers[u] = f"r{len(self._buffers)}"
        plan, scalar = self._registers[u], scalar_name(u.dtype)
        if plan.variables:
            kind = self.vector(scalar, plan.width)
            names = [f"{name}_{i}" for i in range(0, u.arg.size, plan.width)]
            for start in range(0, len(names), 8):
                self._out.add(f"{kind} {', '.join(names[start : start + 8])};")
        else:
            self._out.add(f"{scalar} {name}[{u.arg.size}] __attribute__((aligned(64)));")

    def _place(self, memory: UOp, index: UOp, offset: int, n: int) -> str:
        """The lvalue of `n` elements from `index + offset`."""
        name = self._buffers[memory]
        if memory in self._registers and self._registers[memory].variables:
            return f"{name}_{index.arg + offset}"
        scalar = scalar_name(memory.dtype)
        if n > 1:
            self.vector(scalar, n)
            return f"*({scalar}x{n}_m *)({name} + {self.x(index)})"
        at = bare(self.x(index))
        return f"{name}[{at}]" if offset == 0 else f"{name}[{at} + {offset}]"

    def _whole(self, memory: UOp, n: int) -> bool:
        """Whether `n` elements are one access."""
        plan = self._registers.get(memory)
        if plan is not None and plan.variables:
            return plan.width == n
        return n & (n - 1) == 0  # vectors of three lanes take the memory of four

    def _load(self, u: UOp) -> str:
        memory, index, gate, n = memory_of(u.src[0]), u.src[1], gate_of(u), access_width(u)
        zero = self.splat(0, memory.dtype, n)
        if gate is not None and lanes(gate) > 1 and memory.dtype.bits == 32 and self._whole(memory, n):
            scalar = scalar_name(memory.dtype)
            text = MASKED_LOAD.substitute(t=scalar, n=n, lanes=", ".join(f"m[{i}] ? p[{i}] : 0" for i in range(n)))
            self.need(f"masked_{scalar}x{n}", text, {f"{scalar}x{n}", f"i32x{n}"})
            return f"masked_{scalar}x{n}({self._buffers[memory]} + {self.x(index)}, {self.mask(gate, 32)})"
        if (gate is not None and lanes(gate) > 1) or not self._whole(memory, n):
            parts = []
            for i in range(n):
                place = self._place(memory, index, i, 1)
                test = None if gate is None else (f"{self.x(gate)}[{i}]" if lanes(gate) > 1 else self.x(gate))
                parts.append(place if test is None else f"{test} ? {place} : 0")
            return self._from_memory(u, f"({self.vector(scalar_name(memory.dtype), n)}){{{', '.join(parts)}}}")
        text = self._place(memory, index, 0, n)
        if gate is not None:
            text = f"{self.x(gate)} ? {text} : {zero}"
        return self._from_memory(u, text)

    def _prefetch(self, u: UOp) -> None:
        """Asks for what lies behind a load, where its parameter wants that, and the load is not just of a number."""
        memory = memory_of(u.src[0])
        if memory.op is not Ops.PARAM or not memory.arg.ahead or gate_of(u) is not None:
            return
        if memory.dtype.nbytes(access_width(u)) >= PREFETCHED:
            ahead = memory.arg.ahead * memory.arg.size // memory.dtype.nbytes(memory.arg.size)
            self._out.add(f"PREFETCH({self._buffers[memory]} + {self.x(u.src[1])} + {ahead})")

    def _from_memory(self, u: UOp, text: str) -> str:
        if u.dtype is dtypes.bool and lanes(u) > 1:
            return f"-({self.vector('i8', lanes(u))})({text})"
        return f"({text})" if " " in text else text

    def _store(self, u: UOp) -> None:
        memory, index, value, gate, n = memory_of(u.src[0]), u.src[1], u.src[2], gate_of(u), access_width(u)
        text = bare(self.x(value))
        if value.dtype is dtypes.bool and n > 1:
            text = f"({self.vector('b8', n)})({self.mask(value, 8)} & 1)"
        if (gate is not None and lanes(gate) > 1) or not self._whole(memory, n):
            name = f"v{self._values}"
            self._values += 1
            self._out.add(f"const {self.vector(scalar_name(memory.dtype), n)} {name} = {text};")
            for i in range(n):
                test = None if gate is None else (f"{self.x(gate)}[{i}]" if lanes(gate) > 1 else self.x(gate))
                self._out.add(
                    f"{'' if test is None else f'if ({bare(test)}) '}{self._place(memory, index, i, 1)} = {name}[{i}];"
                )
            return
        test = "" if gate is None else f"if ({bare(self.x(gate))}) "
        self._out.add(f"{test}{self._place(memory, index, 0, n)} {UPDATES.get(u.arg, '=')} {text};")


def variable_slots(program: Program) -> dict[str, int]:
    """The default slots: the position in `program.variables`."""
    return {v.arg[0]: i for i, v in enumerate(program.variables)}


def size_text(size: Size, slots: Mapping[str, int]) -> str:
    """A grid size as a C expression of `variables`."""
    if isinstance(size, int):
        return str(size)
    if size.op is Ops.CONST:
        return str(size.arg) if size.arg >= 0 else f"({size.arg})"
    if size.op is Ops.VARIABLE:
        return f"variables[{slots[size.arg[0]]}]"
    if size.op is Ops.BIND:
        return size_text(size.src[0], slots)
    a, b = (size_text(s, slots) for s in size.src)
    if size.op is Ops.MAX:
        return f"__builtin_elementwise_max({a}, {b})"
    if size.op in (Ops.FLOORDIV, Ops.MOD):
        if size.src[0].vmin < 0 or size.src[1].vmin <= 0:
            name = "floor_divide" if size.op is Ops.FLOORDIV else "floor_modulo"
            return f"{name}({a}, {b})"
        return f"({a} {'/' if size.op is Ops.FLOORDIV else '%'} {b})"
    if size.op in (Ops.ADD, Ops.MUL):
        return f"({a} {'+' if size.op is Ops.ADD else '*'} {b})"
    raise DeviceError(f"a grid size cannot be made of {size.op.name}")
