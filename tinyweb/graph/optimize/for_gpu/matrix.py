"""Products of matrices, convolutions among them: tiles in registers, fed from tiles in shared memory.

Each thread computes a tile of outputs, so that what it loads serves several multiplications. On a GPU the threads of a
workgroup read both operands from shared memory, where blocks of them are brought together: of A, the operand that does
not vary along the columns, transposed, so that both are read as vectors (the tiling of Volkov and Demmel 2008, as in
CUTLASS).
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyweb.graph.ir import AxisKind, Space, UOp
from tinyweb.graph.optimize.actions import Action, Bind, Split
from tinyweb.graph.optimize.apply import apply_legal
from tinyweb.graph.optimize.for_gpu.plan import WORKGROUP, Plan, fitting_divisor
from tinyweb.graph.optimize.rewrite import loops_of
from tinyweb.graph.optimize.stage import Stage, stages_of

MATRIX = 16  # rows from which a product of matrices is worth tiles of registers
LANES = 4  # of the vectors in shared memory
PAD = 4  # elements between the columns of the transposed operand: threads that fill them side by side do not collide
ENOUGH = 128  # workgroups that keep a GPU busy
DEPTHS = (16, 8, 4)  # steps of the reduction in shared memory at a time
# (threads, vectors of each thread) along the rows and along the columns, from the largest tile on
TILES = (((16, 2), (16, 2)), ((8, 2), (16, 2)), ((8, 2), (8, 2)), ((8, 1), (8, 2)), ((8, 1), (8, 1)))


@dataclass(frozen=True)
class Product:
    """The output axes of a product: those one operand has (the one stored side by side first), and those the other."""

    columns: list[UOp]
    rows: list[UOp]


def product_of(plan: Plan, heavy: UOp, outputs: list[UOp]) -> Product | None:
    """How a reduction multiplies two operands that do not share their output axes; None if it does not."""
    k = plan.k
    loads = [u for u in k.loads_of(heavy) if u.src[1].ranges.intersection(heavy.src[1:])]
    order = plan.by_nearness(outputs)
    with_near = [u for u in loads if order and order[0] in u.src[1].ranges]
    others = [u for u in loads if u not in with_near]
    if not with_near or not others:
        return None
    b, a = (max(us, key=lambda u: k.volume(u.src[1].ranges)).src[1].ranges for us in (with_near, others))
    columns, rows = [r for r in order if r in b and r not in a], [r for r in order if r in a and r not in b]
    if not columns or columns[0] is not order[0] or not rows:
        return None
    return Product(columns, sorted(rows, key=k.size, reverse=True))


def product(plan: Plan, heavy: UOp, outputs: list[UOp]) -> bool:
    """Schedule a product of matrices that is worth it; whether this was one."""
    found = product_of(plan, heavy, outputs)
    if found is None:
        return False
    k = plan.k
    axes = found.columns[0], found.rows[0]
    if any(not isinstance(k.exact(r), int) for r in (*axes, *heavy.src[1:])):
        return False
    return min(map(k.size, axes)) >= MATRIX and shared_tile(plan, heavy, found, outputs)


# -- GPUs -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Side:
    """A workgroup's part of one operand's axes: threads and the vectors of each; and how many such parts there are."""

    axis: UOp
    threads: int
    vectors: int
    further: tuple[UOp, int] | None  # another axis, of which each thread takes so many steps
    groups: int

    @property
    def elements(self) -> int:
        """The tile's length."""
        return self.threads * self.vectors * LANES * (self.further[1] if self.further else 1)


def side(plan: Plan, axes: list[UOp], threads: int, vectors: int) -> Side | None:
    """The axes cut into tiles of about threads · vectors vectors; None where too much of the tiles would be idle."""
    near, k = axes[0], plan.k
    lots = -(-k.size(near) // LANES)
    rest = k.volume(axes[1:])
    if lots >= threads * vectors:
        return Side(near, threads, vectors, None, -(-lots // (threads * vectors)) * rest)
    if lots > threads and lots % vectors == 0 and lots // vectors >= threads // 2:
        return Side(near, lots // vectors, vectors, None, rest)
    if lots > threads or lots * 2 < threads:
        return None
    for r in axes[1:]:
        if (steps := fitting_divisor(k.size(r), vectors)) > 1:
            return Side(near, lots, 1, (r, steps), rest // steps)
    return Side(near, lots, 1, None, rest)


def shared_tile(plan: Plan, heavy: UOp, found: Product, outputs: list[UOp]) -> bool:
    """Blocks of both operands in shared memory; the largest tiles of which there are enough."""
    k = plan.k
    if k.in_place:
        return False  # blocks at the end overlap
    batches = k.volume([r for r in outputs if r not in found.rows and r not in found.columns])
    chosen: tuple[Side, Side] | None = None
    for (row_threads, row_vectors), (threads, vectors) in TILES:
        if len(k.reduces) > 1 and row_vectors > 1:
            continue  # each further sum needs a tile of registers of its own
        if row_threads * threads > plan.most:
            continue
        rows = side(plan, found.rows, row_threads, row_vectors)
        columns = side(plan, found.columns, threads, vectors)
        if rows is not None and columns is not None:
            chosen = rows, columns
            if rows.groups * columns.groups * batches >= ENOUGH:
                break
    if chosen is None:
        return False
    before = dict(plan.left)
    tiles = [*cut(plan, chosen[1], 0), *cut(plan, chosen[0], 1)]
    for depth in DEPTHS:
        blocks, at = block(plan, heavy, depth)
        staged = stages(plan, [*tiles, *blocks], at, heavy, found.columns[0]) if at else None
        if staged is not None:
            plan.actions += [*tiles, *blocks, *staged]
            return True
    plan.left = before
    return False


def cut(plan: Plan, s: Side, dim: int) -> list[Action]:
    """A tile's lanes, threads and vectors. The last tile begins earlier instead of reaching beyond the end."""
    name = s.axis.arg.name
    out: list[Action] = []
    size, whole = plan.k.size(s.axis), s.threads * s.vectors
    if size % LANES and size >= whole * LANES:
        # what is stored is not aligned anyhow: nothing is gated
        out += [
            Split(name, whole * LANES, overlap=True),
            Split(f"{name}.1", LANES),
            Bind(f"{name}.1.1", AxisKind.VECTOR),
        ]
        outer, inner = f"{name}.0", f"{name}.1.0"
    else:
        out += [
            Split(name, LANES, overlap=True),
            Bind(f"{name}.1", AxisKind.VECTOR),
            Split(f"{name}.0", whole, overlap=True),
        ]
        outer, inner = f"{name}.0.0", f"{name}.0.1"
    plan.left[s.axis] = (outer, -(-size // (whole * LANES)))
    out += [Split(inner, s.threads), Bind(f"{inner}.1", AxisKind.THREAD, dim)]
    if s.vectors > 1:
        out.append(Bind(f"{inner}.0", AxisKind.UNROLL))
    if s.further is not None:
        r, steps = s.further
        out += [Split(r.arg.name, steps), Bind(f"{r.arg.name}.1", AxisKind.UNROLL)]
        plan.left[r] = (f"{r.arg.name}.0", plan.k.size(r) // steps)
    return out


def block(plan: Plan, heavy: UOp, depth: int) -> tuple[list[Action], str | None]:
    """The reduced loops cut so that about `depth` steps lie inside of one loop; that loop, if there is one."""
    inside = 1
    for r in sorted(heavy.src[1:], key=lambda r: (r.arg.order, r.arg.name), reverse=True):
        size, name = plan.k.size(r), r.arg.name
        if inside * size <= depth:
            inside *= size
            continue
        if depth // inside > 1:
            return [Split(name, depth // inside)], f"{name}.0"
        return [], name if inside > 1 else None
    return [], None


def stages(plan: Plan, before: list[Action], at: str, heavy: UOp, columns: UOp) -> list[Action] | None:
    """Shared memory for what the threads read alike; None if there is too little of it."""
    kernel = plan.k.kernel
    for action in before:
        kernel = action.apply(kernel)
    together = [u for u in plan.k.reduces if u.src[1:] == heavy.src[1:]]
    loads = sorted({x: None for u in together for x in plan.k.loads_of(u)}, key=plan.k.traffic, reverse=True)
    out: list[Stage] = []
    operands: dict[tuple[UOp, bool], list[UOp]] = {}
    for u in loads:
        operands.setdefault((u.src[0], columns in u.ranges), []).append(u)
    for operand in operands.values():
        near = any(plan.k.contiguous(u, columns) for u in operand)
        others = (u for u in loads if u not in operand)
        taken, kernel = apply_legal(kernel, stages_of(operand, others, at, Space.SHARED, 0 if near else PAD))
        out += taken
    used = sum(u.dtype.nbytes(u.arg.strides([r.src[0].vmax for r in u.src[1:]])[1]) for u in loops_of(kernel).stages)
    return [*out] if out and used <= plan.target.shared_bytes else None


# -- neither ------------------------------------------------------------------------------------------------------
def tile_of_registers(plan: Plan, rows: list[UOp], reused: list[UOp], axis: UOp | None) -> None:
    """A tile of 4 by 4 outputs per thread, 8 by 8 threads: what each thread loads serves four outputs."""
    other = max((r for r in rows if r not in reused and r is not axis), key=plan.k.size, default=None)
    token = max((r for r in reused if r is not axis), key=plan.k.size, default=None)
    for r in (other, token):
        if r is not None and r in plan.left:
            plan.tile(r, min(4, plan.left[r][1]), AxisKind.UNROLL)
    first = axis if axis in rows else other
    near = [r for r in (first, token, other) if r is not None]
    for r in dict.fromkeys(near):
        plan.spread([r], min(plan.threads * 8, WORKGROUP))
