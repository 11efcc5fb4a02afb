"""Attention: a softmax of products and the sum it weights, as one pass over blocks of keys."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, Ops, Size, Space, UOp
from tinyweb.graph.optimize.actions import Action, Bind, Split
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.apply import apply_legal
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.for_gpu.plan import fitting
from tinyweb.graph.optimize.online import Online
from tinyweb.graph.optimize.stage import Stage
from tinyweb.graph.schedule.attention import Softmax, softmaxes
from tinyweb.graph.symbolic import const_factor
from tinyweb.graph.target import Target

WORTH_SHARING = 1 << 15  # elements of work that are done sooner by several workers
BLOCK = 64  # keys whose scores stay near
WIDEST = 256  # lanes of sums
GPU_COLUMNS = 64  # threads side by side along the sums
WORKGROUP = 64  # threads that share several rows
MOST_PARTS = 16  # of a block of keys, each summed by threads of its own
ROWS = 4  # queries that share what is read of keys and values


def schedule_for_softmax(b: Builder) -> bool:
    """Kernels with a softmax of products whose axes allow one pass."""
    for softmax in softmaxes(b.k.kernel):
        actions = _actions(b.k, softmax, b.target)
        if actions is not None:
            b.do(*actions)
            return True
    return False


def _actions(k: Analysis, softmax: Softmax, target: Target) -> list[Action] | None:
    columns = softmax.columns
    if any(not isinstance(k.exact(r), int) for r in columns) or k.volume(columns) > WIDEST:
        return None
    if len(k.reduces) < 3 or any(r.arg.reduce for r in softmax.rows):
        return None
    if target.has_threads:
        return _for_gpu(k, softmax, target)
    return _for_c(k, softmax, target) if target.language == "c" else _for_numpy(k, softmax)


def _along(k: Analysis, softmax: Softmax) -> UOp | None:
    """The axis of the sums along which memory is read."""
    loads = [u for s in softmax.sums for u in k.loads_of(s.reduce)]
    follow = [r for r in softmax.columns if any(k.contiguous(u, r) for u in loads)]
    return max(follow, key=k.size, default=None)


def _for_c(k: Analysis, softmax: Softmax, target: Target) -> list[Action]:
    row = _shared_rows(k, softmax)
    if row is not None and not k.in_place and not _gathers(k, softmax, row):
        vectors = _vectors_that_fit(k.exact(row), target.vector_lanes)
        if vectors:
            return _vectors_of_rows(k, softmax, row, vectors, target)
    actions: list[Action] = []
    along = _along(k, softmax)
    for r in softmax.columns:
        actions.append(Bind(r.arg.name, AxisKind.VECTOR if r is along else AxisKind.UNROLL))
    left = [r for r in k.outputs if r not in softmax.columns]
    names = {r: r.arg.name for r in left}
    row, rows = _shared_rows(k, softmax), 1
    if row is not None:
        rows = _tile(k, row, names, actions)
    if target.parallel_threads > 1 and k.work >= WORTH_SHARING:
        actions += [Bind(name, AxisKind.GRID) for name in names.values()]
    # the sums of all rows and of the columns at hand stay in registers
    columns, size = min(8 // rows, 4) * target.vector_lanes, k.size(along) if along is not None else 1
    while columns > 1 and size % columns:
        columns //= 2
    actions.append(Online(softmax.row.arg.name, BLOCK, Space.REGISTER, 2, columns if columns > 1 else 0))
    _vector_of_products(k, softmax, target.vector_lanes, actions)
    return actions


def _vectors_that_fit(size: Size, lanes: int) -> int:
    """How many vectors of rows to work on at a time: as few rows as can be are worked on again; 0 for too few."""
    if not isinstance(size, int):
        return 0
    return min((n for n in (2, 1) if lanes * n <= size), key=lambda n: -size % (lanes * n), default=0)


def _gathers(k: Analysis, softmax: Softmax, row: UOp) -> bool:
    """Whether a vector along the rows would be gathered from memory for every key, as that of a mask."""
    loads = (u for u in softmax.score.toposort() if u.op is Ops.LOAD and softmax.row in u.ranges)
    return any(row in u.ranges and not k.contiguous(u, row) for u in loads)


def _vectors_of_rows(k: Analysis, softmax: Softmax, row: UOp, vectors: int, target: Target) -> list[Action]:
    """Queries in the lanes of vectors: nothing is added up over lanes, and keys and values are read as they lie."""
    lanes = target.vector_lanes
    name = row.arg.name
    block = f"{name}.0"
    actions: list[Action] = [Split(name, vectors * lanes, overlap=True), Bind(f"{name}.1", AxisKind.VECTOR)]
    if k.size(row) == vectors * lanes:
        actions, block = [Bind(name, AxisKind.VECTOR)], ""
    names = [r.arg.name for r in k.outputs if r is not row and r not in softmax.columns] + [block] * bool(block)
    if target.parallel_threads > 1 and k.work >= WORTH_SHARING:
        actions += [Bind(n, AxisKind.GRID) for n in names]
    # half of the registers hold sums, of scores or of columns
    columns = target.vector_registers // (2 * vectors)
    while columns > 1 and k.volume(softmax.columns) % columns:
        columns //= 2
    actions.append(Online(softmax.row.arg.name, BLOCK, Space.REGISTER, 8 // vectors, columns if columns > 1 else 0))
    queries = {u.src[0].arg.slot for u in softmax.score.toposort() if u.op is Ops.LOAD and row in u.ranges
               and softmax.row not in u.ranges}  # fmt: skip
    kernel = k.kernel
    for action in actions:
        kernel = action.apply(kernel)
    stages = [Stage(slot, at, Space.REGISTER) for slot in sorted(queries) for at in names[-1:]]
    return [*actions, *apply_legal(kernel, stages)[0]]


def _tile(k: Analysis, row: UOp, names: dict[UOp, str], actions: list[Action], most: int = ROWS) -> int:
    """Some rows become lanes; how many."""
    exact = k.exact(row)
    rows = next((n for n in (most, 2) if isinstance(exact, int) and exact % n == 0), 1)
    if rows > 1 and exact == rows:
        actions.append(Bind(names.pop(row), AxisKind.UNROLL))
    elif rows > 1:
        actions += [Split(names[row], rows), Bind(f"{names[row]}.1", AxisKind.UNROLL)]
        names[row] += ".0"
    return rows


def _over_grid(k: Analysis, names: dict[UOp, str], target: Target, actions: list[Action]) -> None:
    """What is left of the outputs, the longest axis first."""
    for i, (_, name) in enumerate(sorted(names.items(), key=lambda item: -k.size(item[0]))):
        actions.append(Bind(name, AxisKind.GRID, min(i, target.grid_dims - 1)))


def _vector_of_products(k: Analysis, softmax: Softmax, width: int, actions: list[Action]) -> None:
    """Vectors along what queries and keys are multiplied over, in a loop."""
    keys = [u for u in softmax.score.toposort() if u.op is Ops.LOAD and softmax.row in u.ranges]
    for r in softmax.inner:
        exact, name = k.exact(r), r.arg.name
        if any(k.contiguous(u, r) for u in keys) and const_factor(exact) % width == 0:
            actions += [Bind(name, AxisKind.VECTOR)] if exact == width else [
                Split(name, width), Bind(f"{name}.1", AxisKind.VECTOR)
            ]  # fmt: skip
            return


def _for_gpu(k: Analysis, softmax: Softmax, target: Target) -> list[Action]:
    """A workgroup for a few rows: threads over keys make scores, threads over columns and parts of the keys sum."""
    actions: list[Action] = []
    along, threads = _along(k, softmax), 1
    for r in softmax.columns:
        name, size = r.arg.name, k.size(r)
        if r is not along:
            actions.append(Bind(name, AxisKind.UNROLL))
            continue
        if size % 4 == 0 and size > 4:
            actions += [Split(name, 4), Bind(f"{name}.1", AxisKind.VECTOR)]
            name, size = f"{name}.0", size // 4
        threads = fitting(size, GPU_COLUMNS)
        while size % threads:
            threads //= 2
        if threads < size:
            actions += [Split(name, threads), Bind(f"{name}.0", AxisKind.UNROLL)]
            name += ".1"
        actions.append(Bind(name, AxisKind.THREAD))
    names = {r: r.arg.name for r in k.outputs if r not in softmax.columns}
    row, rows = _shared_rows(k, softmax), 1
    if row is not None:
        rows = _tile(k, row, names, actions)
    _over_grid(k, names, target, actions)
    # few rows: their keys are shared by as many threads as there may be
    split, length = 1, k.size(softmax.row)
    most = min(target.max_invocations, length, WORKGROUP if rows > 1 else 256)
    columns = k.volume(softmax.columns)

    def fits(parts: int) -> bool:
        """Scores and weights of a block, and what the parts have summed when they are put together."""
        return 4 * rows * (parts * (columns + 2) + 4 * parts * threads) <= target.shared_bytes

    while 2 * split * threads <= most and 2 * split <= min(target.max_workgroup[1], MOST_PARTS) and fits(2 * split):
        split *= 2
    block = threads * split
    axis = softmax.row.arg.name
    actions.append(Online(axis, block, Space.SHARED, split=split))
    if split > 1 and threads > 1:
        actions += [Split(f"{axis}.max", threads), Bind(f"{axis}.max.1", AxisKind.THREAD)]
        actions.append(Bind(f"{axis}.max.0", AxisKind.THREAD, 1))
    elif block > 1:
        actions.append(Bind(f"{axis}.max", AxisKind.THREAD, 1 if split > 1 else 0))
    width = 4 if all(const_factor(k.exact(r)) % 4 == 0 for r in softmax.inner) else 2
    _vector_of_products(k, softmax, width, actions)
    return actions


def _shared_rows(k: Analysis, softmax: Softmax) -> UOp | None:
    """The longest axis of the scores along which the same keys are read again."""
    keys = [u for u in softmax.score.toposort() if u.op is Ops.LOAD and softmax.row in u.ranges]
    candidates = [r for r in softmax.rows if r in k.outputs and not any(r in u.ranges for u in keys)]
    return max(candidates, key=lambda r: (k.size(r), r.arg.order), default=None)


def _for_numpy(k: Analysis, softmax: Softmax) -> list[Action]:
    """As many rows as possible at once; the columns, which share scores, one after another."""
    actions: list[Action] = []
    again = k.volume(k.outputs) * k.volume(softmax.inner) * k.size(softmax.row)
    kind = AxisKind.UNROLL if again > AFFORDABLE else AxisKind.GRID
    actions += [Bind(r.arg.name, kind) for r in softmax.columns]
    actions += [Bind(r.arg.name, AxisKind.GRID) for r in k.outputs if r not in softmax.columns]
    return [*actions, Online(softmax.row.arg.name, 8, Space.REGISTER, skip=False)]


AFFORDABLE = 1 << 24  # elements that are rather computed several times than one after another
