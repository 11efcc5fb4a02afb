"""One program as a kernel of a language with threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinyweb.graph.ir import DescribedArg, Fragments, Ops, Products, RowsArg, Space, UOp
from tinyweb.graph.ir.shared_matrices import BEGUN
from tinyweb.graph.lower.shared_memory import is_described, shared_places
from tinyweb.graph.lower.warpgroups import is_begun
from tinyweb.graph.program import Program
from tinyweb.render_c import matrix_texts
from tinyweb.render_c.c_types import scalar_name
from tinyweb.render_c.dialect import Dialect
from tinyweb.render_c.gpu_ops import GPU_EMITTERS
from tinyweb.render_c.kernel_text import KernelText
from tinyweb.render_common import Text, bare, gate_of, lanes, memory_of

WRITTEN_OUT = 8  # steps of a loop
UNIT = 16  # bytes that descriptors count in


class GpuKernel(KernelText):
    """Writes `NAME(p0, …, pn[, variables])`: memory in slot order, then, if the program has variables, 32-bit values in
    the order of `program.variables`.
    """

    emitters = GPU_EMITTERS
    aligned = "__attribute__((aligned(16)))"

    def __init__(self, program: Program, dialect: Dialect) -> None:
        self.dialect = dialect
        ahead = {u.src[2] for u in program.uops if u.op is Ops.STORE and u.arg == "ahead"} if dialect.copy_ahead else ()
        self._written_out = _written_out(program)
        self._copied = frozenset(ahead)  # loads that are part of such a store
        begun = [u for u in program.uops if is_begun(u)]
        # products that are begun, and what they are added to
        self._sums = {x for u in begun for x in (u, u.src[2]) if x.op in (Ops.DOT, Ops.LOAD)}
        self._words: dict[UOp, str] = {}  # what they take of registers
        self._going_on = False  # products behind others of the same step that were waited for
        self.threads = program.workgroup[0] * program.workgroup[1] * program.workgroup[2]
        super().__init__(program)

    def _write(self) -> None:
        d, p = self.dialect, self.program
        x, y, z = p.workgroup
        parameters = [self._parameter(i.slot, scalar_name(i.dtype), i.written) for i in p.params]
        if p.variables:
            parameters.append(f"{d.constant}const i32 *{d.restrict} variables")
        head = Text()
        head.open(f"{d.kernel.format(x=x, y=y, z=z, threads=self.threads)} {p.name}({', '.join(parameters)}) {{")
        for line in self._share():
            head.add(line)
        self._out.depth = 1
        for slot, v in enumerate(p.variables):
            self._variable(v, slot)
        self._statements()
        self._out.lines[:0] = head.lines

    def _parameter(self, slot: int, scalar: str, written: bool) -> str:
        const = "" if written else "const "
        return f"{self.dialect.device}{const}{self.vector(scalar, 1)} *{self.dialect.restrict} p{slot}"

    def _share(self) -> Iterator[str]:
        """The declarations of memory that a workgroup shares."""
        d = self.dialect
        pooled = dynamic_shared(self.program, d) > 0
        if pooled:
            yield d.shared_pool
        offset = 0
        for u, size in shared_places(self.program.uops).items():
            name = self._buffers[u] = f"s{len(self._buffers)}"
            scalar = self.vector(scalar_name(u.dtype), 1)
            text = d.shared_part if pooled else d.shared_array
            yield text.format(scalar=scalar, name=name, size=u.arg.size, offset=offset)
            offset += size

    def _statement(self, u: UOp) -> None:
        if u in self._copied or u in self._sums or (u.op is Ops.BUFFER and u.arg.space is not Space.REGISTER):
            return  # written with what needs it, or declared before
        if u.op is Ops.SPECIAL:
            kind, dim = u.arg
            text = (self.dialect.group if kind == "grid" else self.dialect.thread)[dim]
            name = self._emitted[u] = f"{'g' if kind == 'grid' else 't'}{dim}"
            self._out.add(f"const i32 {name} = {text};")
        elif u.op is Ops.SUBGROUP_SIZE:
            self._emitted[u] = self._name(self.dialect.subgroup_size, "i32")
        elif u.op is Ops.RANGE:
            self._loop(u, self.dialect.written_out if u in self._written_out else self.dialect.loop)
        elif u.op is Ops.BARRIER:
            self._barrier(u)
        elif u.op is Ops.LOAD and isinstance(u.arg, DescribedArg):
            self.need("describe", matrix_texts.DESCRIBE, {self.vector("u64", 1)})
            self._emitted[u] = self._name(self._described(u), "u64")
        elif u.op is Ops.STORE and u.src[2] in self._sums:
            self._products(u)
        elif u.op is Ops.LOAD and isinstance(u.arg, RowsArg):
            name, text, vectors = matrix_texts.load_rows(u, self.dialect)
            self.need(name, text, vectors)
            self._define(u, f"{name}(&{self._place(memory_of(u.src[0]), u.src[1], 0, 1)})")
        elif u.op is Ops.STORE and u.arg == "ahead" and self.dialect.copy_ahead:
            self._copy_ahead(u)
        else:
            super()._statement(u)
            self._going_on = self._going_on and u.op is not Ops.END

    def _barrier(self, u: UOp) -> None:
        d = self.dialect
        if u.arg == "sent":
            if d.sent:
                self._out.add(d.sent)
            return
        if u.arg in d.groups:
            self._settle(u.src)
            for operand in u.src[1:]:
                if operand.op is not Ops.BUFFER:
                    self._pack(operand)
            self._out.add(d.groups[u.arg])
            return
        if isinstance(u.arg, Products):
            if self._going_on:
                self._out.add(d.meanwhile.format(memory=f"p{self.program.params[0].slot}"))
            self._going_on = u.arg.left > 0
            self._out.add(d.multiplied.format(n=u.arg.left))
            self._settle(u.src)
            return
        if u.arg is not None and d.arrived:
            self._out.add(d.arrived.format(n=u.arg))
        if self._sums:
            self._out.add(d.visible)
        self._out.add(d.barrier)

    def _described(self, u: UOp) -> str:
        """A descriptor; those of one place differ by a number that is added."""
        index, beyond = u.src[1], 0
        if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
            index, beyond = index.src[0], u.dtype.nbytes(index.src[1].arg)
        if beyond % UNIT:
            index, beyond = u.src[1], 0
        place = self._place(memory_of(u.src[0]), index, 0, 1)
        return f"describe(&{place}, {matrix_texts.description(u.arg)}, {beyond // UNIT})"

    def _pack(self, u: UOp) -> None:
        """What products take of registers, in words that are there before these begin."""
        kind = self.vector("u32", u.dtype.nbytes(lanes(u)) // 4)
        self.need("settle", matrix_texts.SETTLE, set())
        name = self._words[u] = f"w{len(self._words)}"
        self._out.add(f"{kind} {name} = as<{kind}>({self.x(u)});")
        self._out.add(f"settle({name});")

    def _products(self, u: UOp) -> None:
        """Products that are added to the same sums, one after the other."""
        chain = [u.src[2]]
        while is_begun(chain[0].src[2]):
            chain.insert(0, chain[0].src[2])
        sums = self._place(memory_of(u.src[0]), u.src[1], 0, u.src[2].arg.sums.size)
        for product in chain:
            name, text, vectors = matrix_texts.begin(product, self.dialect)
            self.need(name, text, vectors)
            a, b = (self._words[s] if s in self._words else self.x(s) for s in product.src[:2])
            self._out.add(f"{name}({sums}, {a}, {b});")

    def _settle(self, sums: Sequence[UOp]) -> None:
        """Sums are in their registers: what makes them stands before, and what reads them behind."""
        for memory in sums:
            if memory.op is Ops.BUFFER:
                self.need("settle", matrix_texts.SETTLE, set())
                for i in range(0, memory.arg.size, self._registers[memory].width):
                    self._out.add(f"settle({self._buffers[memory]}_{i});")

    def _copy_ahead(self, u: UOp) -> None:
        """A copy to shared memory that may arrive later."""
        self.need("copy_ahead", matrix_texts.COPY_AHEAD, set())
        load, gate = u.src[2], gate_of(u)
        test = self.x(load.src[2]) if len(load.src) > 2 else "true"
        to, place = (self._place(memory_of(x.src[0]), x.src[1], 0, 1) for x in (u, load))
        text = self.dialect.copy_ahead.format(bytes=load.dtype.nbytes(load.arg), to=to, place=place, test=bare(test))
        self._out.add(text if gate is None else f"if ({bare(self.x(gate))}) {text}")

    def _space(self, memory: UOp) -> str:
        if memory.op is Ops.PARAM:
            return self.dialect.device
        return self.dialect.shared if memory.arg.space is Space.SHARED else ""

    def _vector_place(self, memory: UOp, index: UOp, n: int) -> str:
        kind = self.vector(scalar_name(memory.dtype), n)
        const = "const " if memory.op is Ops.PARAM and not self._written(memory) else ""
        return f"*({self._space(memory)}{const}{kind} *)({self._buffers[memory]} + {self.x(index)})"

    def _written(self, memory: UOp) -> bool:
        return next(i.written for i in self.program.params if i.slot == memory.arg.slot)

    def _assign(self, u: UOp, place: str, text: str) -> str:
        if u.arg in (None, "ahead"):
            return f"{place} = {text}"
        if u.arg not in self.dialect.atomic or memory_of(u.src[0]).op is not Ops.PARAM:
            raise self.error(f"{self.dialect.name} cannot store with {u.arg!r}")
        return self.dialect.atomic[u.arg].format(place=place, value=text)


def dynamic_shared(program: Program, dialect: Dialect) -> int:
    """Bytes of shared memory that a launch has to give; 0 where the kernel declares what it needs."""
    size = sum(shared_places(program.uops).values())
    return size if size > dialect.static_shared or is_described(program.uops) else 0


def _written_out(program: Program) -> set[UOp]:
    """Short innermost loops whose steps multiply matrices: what one step loads is loaded while another multiplies.
    Products that go on by themselves need no other step, and copies of their sums would be waited for.
    """
    found: set[UOp] = set()
    going_on: set[UOp] = set()
    opened: list[UOp] = []
    for u in program.uops:
        if u.op is Ops.RANGE:
            opened.append(u)
        elif u.op is Ops.END:
            opened.pop()
        elif isinstance(u.arg, Fragments) and opened and opened[-1].src[0].op is Ops.CONST:
            found |= {opened[-1]} if opened[-1].src[0].arg <= WRITTEN_OUT else set()
        elif u.op is Ops.BARRIER and u.arg == BEGUN:
            going_on.update(opened[-1:])
    return found - going_on
