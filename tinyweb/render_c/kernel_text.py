"""What kernels in all languages of the C family have in common: values, loops, registers, loads and stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tinyweb.dtype import BY_NAME, DType, dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.program import Program
from tinyweb.render_c.c_ops import EMITTERS, Emitter, mask_bits
from tinyweb.render_c.c_types import SCALARS, literal, scalar_name, vector_name
from tinyweb.render_c.dialect import CLANG, Dialect
from tinyweb.render_common import (
    MAX_INLINE,
    Text,
    access_width,
    bare,
    gate_of,
    inlined,
    lanes,
    memory_of,
    register_plan,
)

SILENT = frozenset({Ops.CONST, Ops.VARIABLE, Ops.SINK, Ops.AFTER})  # what is no statement


class KernelText:
    """What all languages of the C family write alike; a subclass says what a kernel's head, memory and hardware are.

    After construction: `text`, and what it needs of its surroundings: `vectors` (type names), `helpers` (name → text).
    """

    dialect: Dialect = CLANG
    emitters: Mapping[Ops, Emitter] = EMITTERS
    aligned = "__attribute__((aligned(64)))"  # of arrays in registers that turn out to be memory

    def __init__(self, program: Program) -> None:
        self.program = program
        self.vectors: set[str] = set()
        self.helpers: dict[str, str] = {}
        self._emitted: dict[UOp, str] = {}
        self._registers = register_plan(program)
        self._buffers: dict[UOp, str] = {}
        self._inline = inlined(program)
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
                raise self.error(f"{u} is used before it is defined")
            found = self._emitted[u] = literal(u.arg, u.dtype, self.dialect)
        return found

    def type(self, u: UOp) -> str:
        """The C type of a value."""
        n = lanes(u)
        return self.vector(f"i{mask_bits(u)}" if u.dtype is dtypes.bool and n > 1 else scalar_name(u.dtype), n)

    def vector(self, scalar: str, n: int) -> str:
        """The name of a type of `n` lanes, declared on use."""
        if scalar not in self.dialect.scalars:
            raise self.error(f"{BY_NAME[scalar].name} has no {self.dialect.name} type: lowering must replace it")
        name = vector_name(scalar, n)
        self.vectors.add(name)
        return name

    def mask(self, u: UOp, bits: int) -> str:
        """A vector of bool as a mask of `bits` wide elements."""
        if lanes(u) == 1:
            raise self.error(f"{u} is a scalar where a vector of bool is needed")
        if mask_bits(u) == bits:
            return self.x(u)
        return self.dialect.convert.format(value=self.x(u), kind=self.vector(f"i{bits}", lanes(u)))

    def splat(self, value: float, dtype: DType, n: int) -> str:
        """A constant in every lane."""
        return self.repeated(literal(value, dtype, self.dialect), scalar_name(dtype), n)

    def repeated(self, text: str, scalar: str, n: int) -> str:
        """A scalar in every lane."""
        return text if n == 1 else self.dialect.splat.format(kind=self.vector(scalar, n), value=bare(text))

    def make(self, kind: str, values: Iterable[str]) -> str:
        """A vector of scalars."""
        return self.dialect.make.format(kind=kind, values=", ".join(values))

    def lane(self, text: str, i: int) -> str:
        """A lane of a vector."""
        return self.dialect.lane.format(value=text if text.isidentifier() else f"({bare(text)})", i=i)

    def same_size(self, kind: str, text: str) -> str:
        """An integer, or a vector of them, as another type of that size, its bits as they are."""
        return self.dialect.same_size.format(kind=kind, value=text) if "x" in kind else f"({kind}){text}"

    def need(self, name: str, text: str, vectors: set[str]) -> None:
        """Ask for a helper function."""
        self.helpers[name] = text
        self.vectors |= vectors

    def error(self, what: str) -> DeviceError:
        return DeviceError(f"program {self.program.name}: {what}")

    # -- statements ---------------------------------------------------------------------------------------------------
    def _write(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how a kernel is written")

    def _statements(self) -> None:
        """The program's nodes, one after the other, and the ends of all that is open."""
        for u in self.program.uops:
            if u.op not in SILENT:
                self._statement(u)
        while self._out.depth:
            self._out.close()

    def _statement(self, u: UOp) -> None:
        emit = self.emitters.get(u.op)
        if emit is not None:
            self._define(u, emit(self, u))
        elif u.op is Ops.PARAM:
            self._buffers[u] = f"p{u.arg.slot}"
        elif u.op is Ops.BUFFER:
            self._declare_registers(u)
        elif u.op is Ops.END:
            self._out.close()
        elif u.op is Ops.LOAD:
            self._define(u, self._load(u))
        elif u.op is Ops.STORE:
            self._store(u)
        else:
            raise self.error(f"{self.dialect.name} has no text for {u.op.name} of {u.dtype.name}")

    def _variable(self, v: UOp, slot: int) -> None:
        readable = f"n_{v.arg[0]}".isidentifier() and v.arg[0].isascii()
        name = self._emitted[v] = f"n_{v.arg[0]}" if readable else f"n_{slot}"
        self._out.add(f"const i32 {name} = variables[{slot}];")

    def _loop(self, u: UOp, before: str = "") -> None:
        i = f"i{self._loops}" if f"i{self._loops}" not in SCALARS else f"i{self._loops}_"  # i8 is a type
        self._loops += 1
        size = self.x(u.src[0])
        if u.src[0].op is not Ops.CONST and not size.isidentifier():
            self._out.add(f"const i32 n{i} = {bare(size)};")
            size = f"n{i}"
        if before:
            self._out.add(before)
        self._out.open(f"for (i32 {i} = 0; {i} < {size}; ++{i}) {{")
        self._emitted[u] = i

    def _define(self, u: UOp, text: str) -> None:
        if u in self._inline and len(text) <= MAX_INLINE:
            self._emitted[u] = text
        else:
            self._emitted[u] = self._name(text, self.type(u))

    def _name(self, text: str, kind: str) -> str:
        name = f"v{self._values}"
        self._values += 1
        self._out.add(f"const {kind} {name} = {bare(text)};")
        return name

    def _declare_registers(self, u: UOp) -> None:
        name = self._buffers[u] = f"r{len(self._buffers)}"
        plan, scalar = self._registers[u], scalar_name(u.dtype)
        if plan.variables:
            kind = self.vector(scalar, plan.width)
            names = [f"{name}_{i}" for i in range(0, u.arg.size, plan.width)]
            for start in range(0, len(names), 8):
                self._out.add(f"{kind} {', '.join(names[start : start + 8])};")
        else:
            self._out.add(f"{self.vector(scalar, 1)} {name}[{u.arg.size}] {self.aligned};")

    # -- memory -------------------------------------------------------------------------------------------------------
    def _vector_place(self, memory: UOp, index: UOp, n: int) -> str:
        """The lvalue of `n` elements, more than one, from `index`."""
        raise NotImplementedError(f"{type(self).__name__} does not say where vectors lie")

    def _place(self, memory: UOp, index: UOp, offset: int, n: int) -> str:
        """The lvalue of `n` elements from `index + offset`."""
        name = self._buffers[memory]
        if memory in self._registers and self._registers[memory].variables:
            return f"{name}_{index.arg + offset}"
        if n > 1:
            return self._vector_place(memory, index, n)
        at = bare(self.x(index))
        return f"{name}[{at}]" if offset == 0 else f"{name}[{at} + {offset}]"

    def _whole(self, memory: UOp, n: int) -> bool:
        """Whether `n` elements are one access."""
        plan = self._registers.get(memory)
        if plan is not None and plan.variables:
            return plan.width == n
        return n & (n - 1) == 0  # vectors of three lanes take the memory of four

    def _test(self, gate: UOp | None, i: int) -> str | None:
        """The condition for element `i` of an access."""
        if gate is None:
            return None
        return self.lane(self.x(gate), i) if lanes(gate) > 1 else self.x(gate)

    def _load(self, u: UOp) -> str:
        memory, index, gate, n = memory_of(u.src[0]), u.src[1], gate_of(u), access_width(u)
        other = self.x(u.src[3]) if len(u.src) > 3 else self.splat(0, memory.dtype, n)
        if (gate is not None and lanes(gate) > 1) or not self._whole(memory, n):
            parts = []
            for i in range(n):
                place, test = self._place(memory, index, i, 1), self._test(gate, i)
                zero = self.lane(other, i) if len(u.src) > 3 and n > 1 else "0"
                parts.append(place if test is None else f"{test} ? {place} : {zero}")
            return self._from_memory(u, self.make(self.vector(scalar_name(memory.dtype), n), parts))
        text = self._place(memory, index, 0, n)
        if gate is not None:
            text = f"{self.x(gate)} ? {text} : {other}"
        return self._from_memory(u, text)

    def _from_memory(self, u: UOp, text: str) -> str:
        if u.dtype is dtypes.bool and lanes(u) > 1:
            return f"-{self.same_size(self.vector('i8', lanes(u)), f'({text})')}"
        return f"({text})" if " " in text else text

    def _store(self, u: UOp) -> None:
        memory, index, value, gate, n = memory_of(u.src[0]), u.src[1], u.src[2], gate_of(u), access_width(u)
        text = bare(self.x(value))
        if value.dtype is dtypes.bool and n > 1:
            mask = f"({self.mask(value, 8)} & {self.repeated('(i8)1', 'i8', n)})"
            text = self.same_size(self.vector("b8", n), mask)
        if (gate is not None and lanes(gate) > 1) or not self._whole(memory, n):
            name = self._name(text, self.vector(scalar_name(memory.dtype), n))
            for i in range(n):
                test, part = self._test(gate, i), self.lane(name, i) if n > 1 else name
                self._out.add(
                    f"{'' if test is None else f'if ({bare(test)}) '}{self._place(memory, index, i, 1)} = {part};"
                )
            return
        test = "" if gate is None else f"if ({bare(self.x(gate))}) "
        self._out.add(f"{test}{self._assign(u, self._place(memory, index, 0, n), text)};")

    def _assign(self, u: UOp, place: str, text: str) -> str:
        return f"{place} = {text}"
