"""One program as a C function over a range of its grid."""

from __future__ import annotations

from collections.abc import Mapping

from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, Size, Space, UOp
from tinyweb.graph.program import Program
from tinyweb.render_c.c_helpers import MASKED_LOAD
from tinyweb.render_c.c_types import scalar_name
from tinyweb.render_c.kernel_text import KernelText
from tinyweb.render_common import access_width, gate_of, lanes, memory_of

CROWDED = 128  # bytes of sums: half of the registers of WebAssembly's SIMD, as engines have them
PREFETCHED = 16  # bytes of a load: asking once for every number would cost more than it brings
UPDATES = {"atomic_and": "&=", "atomic_or": "|="}  # one worker has the whole grid of such a program
GRID = "i32 begin, i32 end"  # the iterations that a call carries out, as parameters
GRID_LOOP = "for (i32 grid = begin; grid < end; ++grid) {"


class Kernel(KernelText):
    """Writes `static void NAME_body(T *restrict p0, …, const i32 *variables, i32 begin, i32 end)`.

    `slots` gives the position of each variable in `variables`; by default its position in `program.variables`.
    """

    def __init__(self, program: Program, slots: Mapping[str, int] | None = None) -> None:
        self.slots = slots if slots is not None else variable_slots(program)
        super().__init__(program)

    # -- writing ------------------------------------------------------------------------------------------------------
    def _write(self) -> None:
        out, p = self._out, self.program
        held = sum(u.dtype.nbytes(u.arg.size) for u, r in self._registers.items() if r.variables)
        self._crowded = held >= CROWDED
        kinds = [("" if i.written else "const ") + self.vector(scalar_name(i.dtype), 1) for i in p.params]
        parameters = [f"{kind} *restrict p{i.slot}" for kind, i in zip(kinds, p.params)]
        out.open(f"static void {p.name}_body({', '.join([*parameters, 'const i32 *variables', GRID])}) {{")
        for v in dict.fromkeys([*p.variables, *(u for u in p.uops if u.op is Ops.VARIABLE)]):
            self._variable(v, self._slot(v))
        if not any(u.op is Ops.SPECIAL for u in p.uops):
            out.open(GRID_LOOP)
        self._statements()

    def _slot(self, v: UOp) -> int:
        if v.arg[0] not in self.slots:
            raise self.error(f"no slot was given for the variable {v.arg[0]}")
        return self.slots[v.arg[0]]

    def _statement(self, u: UOp) -> None:
        if u.op is Ops.BUFFER and u.arg.space is not Space.REGISTER:
            raise self.error(f"C has no {u.arg.space} memory")
        if u.op is Ops.SPECIAL:
            if u.arg != ("grid", 0):
                raise self.error(f"C has no hardware index {u.arg}, only ('grid', 0)")
            self._out.open(GRID_LOOP)
            self._emitted[u] = "grid"
        elif u.op is Ops.RANGE:
            self._loop(u, "ROLLED" if self._crowded and u.arg.reduce and u.src[0].op is Ops.CONST else "")
        else:
            if u.op is Ops.LOAD:
                self._prefetch(u)
            super()._statement(u)

    def _vector_place(self, memory: UOp, index: UOp, n: int) -> str:
        return f"*({self.vector(scalar_name(memory.dtype), n)}_m *)({self._buffers[memory]} + {self.x(index)})"

    def _load(self, u: UOp) -> str:
        memory, gate, n = memory_of(u.src[0]), gate_of(u), access_width(u)
        if gate is not None and lanes(gate) > 1 and memory.dtype.bits == 32 and self._whole(memory, n):
            scalar = scalar_name(memory.dtype)
            text = MASKED_LOAD.substitute(t=scalar, n=n, lanes=", ".join(f"m[{i}] ? p[{i}] : 0" for i in range(n)))
            self.need(f"masked_{scalar}x{n}", text, {f"{scalar}x{n}", f"i32x{n}"})
            return f"masked_{scalar}x{n}({self._buffers[memory]} + {self.x(u.src[1])}, {self.mask(gate, 32)})"
        return super()._load(u)

    def _prefetch(self, u: UOp) -> None:
        """Asks for what lies behind a load, where its parameter wants that, and the load is not just of a number."""
        memory = memory_of(u.src[0])
        if memory.op is not Ops.PARAM or not memory.arg.ahead or gate_of(u) is not None:
            return
        if memory.dtype.nbytes(access_width(u)) >= PREFETCHED:
            ahead = memory.arg.ahead * memory.arg.size // memory.dtype.nbytes(memory.arg.size)
            self._out.add(f"PREFETCH({self._buffers[memory]} + {self.x(u.src[1])} + {ahead})")

    def _assign(self, u: UOp, place: str, text: str) -> str:
        return f"{place} {UPDATES.get(u.arg, '=')} {text}"


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
