"""One program as a WGSL module."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import MatrixArg, Ops, Space, UOp
from tinyweb.graph.program import Program
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
from tinyweb.render_wgsl.wgsl_ops import EMITTERS, constant_of
from tinyweb.render_wgsl.wgsl_types import OPAQUE, literal, scalar_name, type_name

AXES = "xyz"
MAX_REPEATED = 24  # characters of a constant vector that is emitted wherever it is used
ATOMIC = {"atomic_and": "atomicAnd", "atomic_or": "atomicOr"}


class Kernel:
    """Writes one module; `text` is the result. `slots`: each variable's position among all variables of the plan."""

    def __init__(self, program: Program, slots: Mapping[str, int]) -> None:
        self.program, self.slots = program, slots
        self._emitted: dict[UOp, str] = {}
        self._names: dict[UOp, str] = {}  # of memory
        self._helpers: dict[str, str] = {}
        self._constants: set[UOp] = set()  # values a compiler would compute
        self._registers = register_plan(program)
        self._widths = _memory_widths(program)
        self._atomic = {i.slot for i in program.params if i.atomic}
        self._inline = inlined(program)
        self._entries = _entries(program, self._width)
        self._matrices = _matrix_types(program)
        self._top, self._out = Text(), Text()
        self._prologue: list[str] = []
        self._values = self._loops = 0
        self.text = self._write()

    # -- what the table of emitters uses ---------------------------------------------------------------------------
    def x(self, u: UOp) -> str:
        """The text of a value."""
        found = self._emitted.get(u)
        if found is None:
            if u.op is not Ops.CONST:
                raise self._error(f"{u} is used before it is defined")
            found = self._emitted[u] = self.literal(u.arg, u.dtype)
            if OPAQUE in found:
                found = self._at_top(u)
        return found

    def named(self, u: UOp) -> UOp:
        """`u`, with a text that may be repeated: a name or a constant."""
        text = self.x(u)
        if text.isidentifier() or constant_of(u) is not None:
            return u
        if u in self._constants:
            self._at_top(u)
        else:
            self._emitted[u] = self._let(text)
        return u

    def literal(self, value: bool | int | float, dtype: DType) -> str:
        text = literal(value, dtype)
        if OPAQUE in text:
            self._helpers[OPAQUE] = f"var<private> {OPAQUE}: u32;\n"
        return text

    def splat(self, value: bool | int | float, dtype: DType, n: int) -> str:
        """A constant in every lane."""
        text = self.literal(value, dtype)
        return text if n == 1 else f"{type_name(scalar_name(dtype), n)}({text})"

    def type(self, u: UOp) -> str:
        return type_name(scalar_name(u.dtype), lanes(u))

    def need(self, name: str, text: str) -> None:
        """Ask for a helper function."""
        self._helpers[name] = text

    def _error(self, what: str) -> DeviceError:
        return DeviceError(f"program {self.program.name}: {what}")

    # -- writing ------------------------------------------------------------------------------------------------------
    def _write(self) -> str:
        p, top, out = self.program, self._top, self._out
        for binding, info in enumerate(p.params):
            width = self._widths.get(info.slot, 1)
            element = "atomic<u32>" if info.atomic else type_name(scalar_name(info.dtype), width)
            access = "read_write" if info.written or info.atomic else "read"
            top.add(f"@group(0) @binding({binding}) var<storage, {access}> p{info.slot}: array<{element}>;")
        variables = list(dict.fromkeys(u for u in p.uops if u.op is Ops.VARIABLE))
        if variables:
            rows = max(-(-len(self.slots) // 4), 1)
            place = f"@group(0) @binding({len(p.params)})"
            top.add(f"{place} var<uniform> variables: array<vec4<i32>, {rows}>;")
        arguments = []
        used = {u.arg[0] for u in p.uops if u.op is Ops.SPECIAL}
        if "grid" in used:
            arguments.append("@builtin(workgroup_id) group: vec3<u32>")
        if "thread" in used:
            arguments.append("@builtin(local_invocation_id) thread: vec3<u32>")
        ops = {u.op for u in p.uops}
        if Ops.SUBGROUP_SIZE in ops:
            arguments.append("@builtin(subgroup_size) subgroup_size: u32")
        out.depth = 1
        for v in variables:
            self._variable(v)
        for u in p.uops:
            self._statement(u)
        while out.depth:
            out.close()
        helpers = [self._helpers[h] for h in sorted(self._helpers)]
        head = [f"@compute @workgroup_size({', '.join(map(str, p.workgroup))})", f"fn main({', '.join(arguments)}) {{"]
        enabled = ["enable subgroups;"] if ops & {Ops.SUBGROUP, Ops.SUBGROUP_SIZE} else []
        if any(isinstance(u.arg, MatrixArg) for u in p.uops):
            enabled.append("enable chromium_experimental_subgroup_matrix;")
        if any(u.dtype is dtypes.float16 for u in p.uops):
            enabled.append("enable f16;")
        return "\n".join([*enabled, str(top), *helpers, *head, *self._prologue, str(out)])

    def _variable(self, v: UOp) -> None:
        if v.arg[0] not in self.slots:
            raise self._error(f"no slot was given for the variable {v.arg[0]}")
        slot = self.slots[v.arg[0]]
        self._emitted[v] = self._let(f"variables[{slot // 4}].{'xyzw'[slot % 4]}", f"n{slot}")

    def _statement(self, u: UOp) -> None:
        if u.op is Ops.CONST:
            self._constants.add(u)
        elif u.op in (Ops.VARIABLE, Ops.SINK, Ops.AFTER):
            return
        elif u.op is Ops.PARAM:
            self._names[u] = f"p{u.arg.slot}"
        elif u.op is Ops.BUFFER:
            self._declare(u)
        elif u.op is Ops.SPECIAL:
            kind, dim = u.arg
            text = f"i32({'group' if kind == 'grid' else 'thread'}.{AXES[dim]})"
            self._emitted[u] = self._let(text, f"{'g' if kind == 'grid' else 't'}{dim}")
        elif u.op is Ops.SUBGROUP_SIZE:
            self._emitted[u] = self._let("i32(subgroup_size)")
        elif u.op is Ops.RANGE:
            i = f"i{self._loops}" if self._loops != 32 else "i32_"  # i32 is a type
            self._loops += 1
            size = bare(self.x(u.src[0]))
            if u.src[0].op is not Ops.CONST and not size.isidentifier():
                self._out.add(f"let end{i} = {size};")
                size = f"end{i}"
            self._out.open(f"for (var {i} = 0i; {i} < {size}; {i}++) {{")
            self._emitted[u] = i
        elif u.op is Ops.END:
            self._out.close()
        elif u.op is Ops.BARRIER:
            self._out.add("workgroupBarrier();")
        elif u.op is Ops.LOAD:
            self._load(u)
        elif u.op is Ops.STORE:
            self._store(u)
        elif u in self._entries:
            if u not in self._inline:
                self.named(u.src[0])
        elif u.op in EMITTERS:
            self._define(u)
        else:
            raise self._error(f"WGSL has no text for {u.op.name} of {u.dtype.name}")

    def _define(self, u: UOp) -> None:
        if u.op is Ops.STACK:
            if all(s in self._constants for s in u.src):
                self._constants.add(u)
        elif all(s in self._constants for s in u.src):
            # what overflows or divides by zero in a constant expression is an error; a `let` is no constant
            for s in dict.fromkeys(u.src):
                self._at_top(s)
        elif u.op in (Ops.SHL, Ops.SHR, Ops.FLOORDIV, Ops.MOD, Ops.DIV) and u.src[1] in self._constants:
            self._guard_constant(u)
        text = EMITTERS[u.op](self, u)
        repeatable = u in self._constants and len(text) <= MAX_REPEATED
        if repeatable or (u in self._inline and len(text) <= MAX_INLINE):
            self._emitted[u] = text
            return
        self._emitted[u] = self._let(text)
        self._constants.discard(u)  # a `let` is no constant expression

    def _guard_constant(self, u: UOp) -> None:
        """A shift by too much and a division by zero are errors if the right side is constant."""
        values = [s.arg for s in (u.src[1].src or u.src[1:])]
        bad = any(v == 0 for v in values) if u.op not in (Ops.SHL, Ops.SHR) else any(not 0 <= v < 32 for v in values)
        if bad:
            self._at_top(u.src[1])

    def _let(self, text: str, name: str | None = None) -> str:
        if name is None:
            name = f"v{self._values}"
            self._values += 1
        self._out.add(f"let {name} = {bare(text)};")
        return name

    def _at_top(self, u: UOp) -> str:
        """Name a constant at the top of the function: whoever uses it then is no constant expression."""
        name = f"c{len(self._prologue)}"
        self._prologue.append(f"  let {name} = {bare(self._emitted.get(u) or self.literal(u.arg, u.dtype))};")
        self._constants.discard(u)
        self._emitted[u] = name
        return name

    # -- memory -------------------------------------------------------------------------------------------------------
    def _declare(self, u: UOp) -> None:
        scalar = scalar_name(u.dtype)
        if u.arg.space is Space.SHARED:
            name = self._names[u] = f"s{len(self._names)}"
            width = self._widths.get(u, 1)
            scalar = "u32" if _words(u) else scalar
            self._top.add(f"var<workgroup> {name}: array<{type_name(scalar, width)}, {u.arg.size // width}>;")
            return
        if u.arg.space is not Space.REGISTER:
            raise self._error(f"WGSL has no {u.arg.space} memory of a kernel's own")
        name, plan = f"r{len(self._names)}", self._registers[u]
        self._names[u] = name
        if plan.variables:
            kind = self._matrices.get(u) or type_name(scalar, plan.width)
            for i in range(0, u.arg.size, plan.width):
                self._out.add(f"var {name}_{i}: {kind};")
        else:
            self._out.add(f"var {name}: array<{scalar}, {u.arg.size}>;")

    def _width(self, memory: UOp) -> int:
        """Elements that one entry of the memory's array holds."""
        return self._widths.get(memory.arg.slot if memory.op is Ops.PARAM else memory, 1)

    def _whole(self, memory: UOp, n: int) -> bool:
        """Whether `n` elements are one entry."""
        plan = self._registers.get(memory)
        return (plan.width if plan is not None and plan.variables else self._width(memory)) == n

    def _place(self, memory: UOp, index: UOp, offset: int = 0) -> str:
        """The entry that begins with element `index + offset`."""
        name = self._names[memory]
        plan = self._registers.get(memory)
        if plan is not None and plan.variables:
            return f"{name}_{index.arg + offset}"
        width = self._width(memory)
        if index.op is Ops.CONST:
            return f"{name}[{(index.arg + offset) // width}]"
        if index in self._entries:
            return f"{name}[{bare(self.x(index.src[0]))}]"
        text = self.x(index)
        if width > 1:
            return f"{name}[{text} >> {width.bit_length() - 1}u]"
        return f"{name}[{bare(text)}]" if offset == 0 else f"{name}[{text} + {offset}]"

    def _read(self, memory: UOp, index: UOp, n: int) -> str:
        """The values of `n` elements, unconditionally."""
        if memory.op is Ops.PARAM and memory.arg.slot in self._atomic:
            parts = [f"atomicLoad(&{self._place(memory, index, i)})" for i in range(n)]
        elif self._whole(memory, n):
            place = self._place(memory, index)
            return f"{type_name('bool', n)}({place})" if _words(memory) else place
        else:
            parts = [self._place(memory, index, i) for i in range(n)]
            parts = [f"bool({p})" for p in parts] if _words(memory) else parts
        return parts[0] if n == 1 else f"{type_name(scalar_name(memory.dtype), n)}({', '.join(parts)})"

    def _load(self, u: UOp) -> None:
        if isinstance(u.arg, MatrixArg):
            # rows of the second operand are columns of what it is multiplied as
            order = "row" if (u.arg.column == 1) is not self._matrices[u].startswith("subgroup_matrix_right") else "col"
            place = f"&{self._names[memory_of(u.src[0])]}, {bare(self.x(u.src[1]))}, {max(u.arg.row, u.arg.column)}"
            self._emitted[u] = self._let(f"subgroupMatrixLoad<{self._matrices[u]}, {order}_major>({place})")
            return
        memory, index, gate, n = memory_of(u.src[0]), u.src[1], gate_of(u), access_width(u)
        if index.op is not Ops.CONST and n > 1 and not self._whole(memory, n):
            self.named(index)
        if gate is None:
            self._emitted[u] = self._let(self._read(memory, index, n))
            return
        name = f"v{self._values}"
        self._values += 1
        # the zero is written out: naga forgets an implied one after the first round of a loop
        self._out.add(f"var {name} = {bare(self.x(u.src[3])) if len(u.src) > 3 else f'{self.type(u)}()'};")
        self._emitted[u] = name
        if lanes(gate) == 1:
            self._out.add(f"if ({bare(self.x(gate))}) {{ {name} = {self._read(memory, index, n)}; }}")
            return
        self.named(gate)
        for i in range(n):
            lane = self._lane_of(memory, index, i)
            lane = f"bool({lane})" if _words(memory) else lane
            self._out.add(f"if ({self.x(gate)}.{'xyzw'[i]}) {{ {name}.{'xyzw'[i]} = {lane}; }}")

    def _lane_of(self, memory: UOp, index: UOp, i: int) -> str:
        """Element `index + i`, where entries may hold several."""
        if self._width(memory) > 1:
            return f"{self._place(memory, index)}.{'xyzw'[i]}"
        place = self._place(memory, index, i)
        return f"atomicLoad(&{place})" if memory.op is Ops.PARAM and memory.arg.slot in self._atomic else place

    def _store(self, u: UOp) -> None:
        if isinstance(u.arg, MatrixArg):
            place = f"&{self._names[memory_of(u.src[0])]}, {bare(self.x(u.src[1]))}"
            self._out.add(f"subgroupMatrixStore<row_major>({place}, {self.x(u.src[2])}, {u.arg.row});")
            return
        memory, index, gate, n = memory_of(u.src[0]), u.src[1], gate_of(u), access_width(u)
        value = u.src[2]
        atomic = memory.op is Ops.PARAM and memory.arg.slot in self._atomic
        whole = self._whole(memory, n) and not (atomic and n > 1)
        if not whole or (gate is not None and lanes(gate) > 1):
            if index.op is not Ops.CONST:
                self.named(index)
            self.named(value)
        if gate is None or lanes(gate) == 1:
            conditions = [None if gate is None else bare(self.x(gate))] * n
        else:
            self.named(gate)
            conditions = [f"{self.x(gate)}.{'xyzw'[i]}" for i in range(n)]
            whole = False
        # sums of matrices begin with zeros
        text = (
            f"{self._matrices[memory]}()" if memory in self._matrices and value.op is Ops.STACK else bare(self.x(value))
        )
        if _words(memory):
            text = f"{type_name('u32', n)}({text})"
        if whole:
            statements = [(conditions[0], self._assign(u, self._place(memory, index), text, atomic))]
        else:
            values = [text] if n == 1 else [f"{text}.{'xyzw'[i]}" for i in range(n)]
            places = [(self._place if atomic else self._lane_of)(memory, index, i) for i in range(n)]
            assigned = [self._assign(u, place, v, atomic) for place, v in zip(places, values)]
            statements = list(zip(conditions, assigned))
        for condition, statement in statements:
            self._out.add(statement if condition is None else f"if ({condition}) {{ {statement} }}")

    def _assign(self, u: UOp, place: str, value: str, atomic: bool) -> str:
        if u.arg is None:
            return f"atomicStore(&{place}, {value});" if atomic else f"{place} = {value};"
        if u.arg not in ATOMIC or not atomic:
            raise self._error(f"WGSL cannot store with {u.arg!r} to memory that is not declared atomic")
        return f"{ATOMIC[u.arg]}(&{place}, {value});"


def _words(memory: UOp) -> bool:
    """Whether truth values lie as words: as `bool` in workgroup memory they were wrong with NVIDIA's Vulkan driver."""
    return memory.op is Ops.BUFFER and memory.arg.space is Space.SHARED and memory.dtype is dtypes.bool


def _matrix_types(program: Program) -> dict[UOp, str]:
    """The types of matrices: of registers that hold sums, and of loads the side that they are multiplied from."""
    found: dict[UOp, str] = {}
    for u in program.uops:
        if u.op is Ops.DOT and isinstance(u.arg, tuple):
            (a, b, c), (rows, columns) = u.src, u.arg
            steps = lanes(a) // rows
            found[a] = f"subgroup_matrix_left<{scalar_name(a.dtype)}, {steps}, {rows}>"
            found[b] = f"subgroup_matrix_right<{scalar_name(b.dtype)}, {columns}, {steps}>"
            found[memory_of(c.src[0])] = f"subgroup_matrix_result<{scalar_name(c.dtype)}, {columns}, {rows}>"
    return found


def _entries(program: Program, width: Callable[[UOp], int]) -> set[UOp]:
    """Products that only say where vectors of memory lie: an entry's number, times the elements of one."""
    found: set[UOp] = set()
    others: set[UOp] = set()
    for u in program.uops:
        access = u.op in (Ops.LOAD, Ops.STORE)
        for i, s in enumerate(u.src):
            product = access and i == 1 and s.op is Ops.MUL and s.src[1].op is Ops.CONST
            (found if product and s.src[1].arg == width(memory_of(u.src[0])) > 1 else others).add(s)
    return found - others


def _memory_widths(program: Program) -> dict[UOp | int, int]:
    """Parameters (by slot) and SHARED buffers that are only ever accessed in whole vectors of one width: that width."""
    widths: dict[UOp | int, set[int]] = {}
    sizes: dict[UOp | int, int] = {}
    for u in program.uops:
        if u.op in (Ops.LOAD, Ops.STORE):
            memory = memory_of(u.src[0])
            if memory.op is Ops.BUFFER and memory.arg.space is Space.REGISTER:
                continue
            key: UOp | int = memory.arg.slot if memory.op is Ops.PARAM else memory
            widths.setdefault(key, set()).add(1 if isinstance(u.arg, MatrixArg) else access_width(u))
            sizes[key] = memory.arg.size
    atomic = {i.slot for i in program.params if i.atomic}
    out = {}
    for key, found in widths.items():
        width = next(iter(found))
        if len(found) == 1 and width in (2, 4) and sizes[key] % width == 0 and key not in atomic:
            out[key] = width
    return out
