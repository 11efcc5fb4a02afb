"""Attention: a softmax of products and the sum it weights, as one pass over blocks of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd

from tinyweb.graph.ir import ELEMENTWISE, AxisKind, Ops, Space, UOp
from tinyweb.graph.optimize.analysis import Analysis, fewest_steps, power_of_two
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.cost import FLAT_EXCHANGE, FLAT_IN_LOOP, excess, exchange_bytes, exchange_step, staged_bytes
from tinyweb.graph.optimize.for_attention import held_softmax
from tinyweb.graph.optimize.for_product import in_flight
from tinyweb.graph.optimize.online import MAX_BLOCK, Online, visible
from tinyweb.graph.optimize.rewrite import loads_summed
from tinyweb.graph.optimize.stage import Stage, axes_of
from tinyweb.graph.optimize.whole_row import WholeRow
from tinyweb.graph.schedule.attention import Softmax, softmaxes
from tinyweb.graph.schedule.long_reductions import FILLED
from tinyweb.graph.schedule.whole_rows import OWN, WholeRows, held_rows
from tinyweb.graph.symbolic import const_factor
from tinyweb.graph.target import Target

BLOCK = 64  # keys of a block, whose scores are staged
WIDEST = 256  # lanes of sums
NARROW = 8  # elements of keys that are converted together: as many as a vector of 128 bits has halves
ROWS = 4  # queries that share what is read of keys and values
KEYS = (8, 7, 6, 5, 4, 3, 2, 1)  # of a block that a thread computes scores of
SEVERAL = 4  # … of one of several blocks; more are more text
SIDE = 16  # threads side by side along the sums
WORKGROUP = 128  # threads, where some have rows of their own and workgroups are fewer than …
MANY = 64
SCORE, RESCALED, LOADED = 30, 40, 4  # operations on a score after its sum, on a row for each block, on a vector read
WAITED = 200  # operations that a thread could do while it waits for memory
WORK = 4  # what an operation counts that nothing waits for, beside one of every thread
TEAMS = 16  # that search tries
READ = 1  # what a row, or a product of each row, costs that is read for a step of products, beside one of these


def schedule_for_softmax(b: Builder) -> bool:
    """Kernels with a softmax of products whose axes allow one pass."""
    recipe = in_workgroups if b.target.thread_dims else on_a_processor
    for softmax in softmaxes(b.k.kernel):
        if _fits(b.k, softmax):
            recipe(b, softmax)
            return True
    return False


def _fits(k: Analysis, softmax: Softmax) -> bool:
    columns = softmax.columns
    return k.constant(*columns) and k.volume(columns) <= WIDEST and not any(r.arg.reduce for r in softmax.rows)


# -- what is asked of a softmax ---------------------------------------------------------------------------------
def _along(k: Analysis, softmax: Softmax) -> UOp | None:
    """The axis of the sums along which memory is read."""
    loads = [u for s in softmax.sums for u in k.loads_of(s.reduce)]
    follow = [r for r in softmax.columns if any(k.contiguous(u, r) for u in loads)]
    return max(follow, key=k.size, default=None)


def _shared_rows(k: Analysis, softmax: Softmax) -> UOp | None:
    """The longest axis of the scores along which the same keys are read again."""
    candidates = (r for r in softmax.shared if r in k.outputs)
    return max(candidates, key=lambda r: (k.size(r), r.arg.order), default=None)


def _gathers(k: Analysis, softmax: Softmax, row: UOp) -> bool:
    """Whether a vector along the rows would be gathered from memory for every key, as that of a mask."""
    return any(row in u.ranges and not k.contiguous(u, row) for u in softmax.read_along)


def _vector_of_products(b: Builder, softmax: Softmax, width: int) -> None:
    """Vectors along what queries and keys are multiplied over, in a loop."""
    for r in softmax.inner:
        if any(b.k.contiguous(u, r) for u in softmax.keys) and const_factor(b.k.exact(r)) % width == 0:
            b.tile(r.arg.name, width, AxisKind.VECTOR)
            return


# -- processors -------------------------------------------------------------------------------------------------
def on_a_processor(b: Builder, softmax: Softmax) -> None:
    row = _shared_rows(b.k, softmax)
    if row is not None and not b.k.in_place and not _gathers(b.k, softmax, row):
        size, lanes = b.k.exact(row), b.target.vector_lanes
        # as few rows as can be are worked on again
        rows = fewest_steps(size, (n for n in (2 * lanes, lanes) if n <= size)) if isinstance(size, int) else 0
        if rows:
            vectors_of_rows(b, softmax, row, rows // lanes)
            return
    vectors_of_columns(b, softmax, row)


def vectors_of_columns(b: Builder, softmax: Softmax, row: UOp | None) -> None:
    """Columns in the lanes of vectors, a few queries beside each other."""
    k, along = b.k, _along(b.k, softmax)
    for r in softmax.columns:
        b.bind(r.arg.name, AxisKind.VECTOR if r is along else AxisKind.UNROLL)
    rows = 1
    if row is not None and isinstance(size := k.exact(row), int):
        # what is read of keys and values costs about as much as a row; the last block begins earlier
        rows = fewest_steps(size, (n for n in (ROWS, 2, 1) if n <= size), each=1)
        b.tile(row.arg.name, rows, AxisKind.UNROLL)
    b.share(*b.loops(k.outputs))
    # the sums of all rows and of the columns at hand stay in registers
    lanes = k.size(along) if along is not None else 1
    columns = power_of_two(lanes, min(8 // rows, 4) * b.target.vector_lanes)
    columns = columns if columns > 1 else 0
    if _lies_along_row(b, softmax):
        vector = 8 // rows * b.target.vector_lanes
        b.do(Online(softmax.row.arg.name, BLOCK, Space.REGISTER, min(vector, BLOCK), columns, vector=True))
        return
    b.do(Online(softmax.row.arg.name, BLOCK, Space.REGISTER, 2, columns))
    narrow = any(u.src[0].dtype.bits < 32 for u in softmax.keys)
    _vector_of_products(b, softmax, max(b.target.vector_lanes, NARROW if narrow else 1))


def _lies_along_row(b: Builder, softmax: Softmax) -> bool:
    """Whether keys lie side by side, element by element, and so does what else a score reads: scores are vectors."""
    loads = softmax.read_along
    return b.target.masked_loads and all(b.k.contiguous(u, softmax.row) and u.dtype.bits == 32 for u in loads)


def vectors_of_rows(b: Builder, softmax: Softmax, row: UOp, vectors: int) -> None:
    """Queries in the lanes of vectors: nothing is added up over lanes, and keys and values are read as they lie."""
    k = b.k
    block = b.tile(row.arg.name, vectors * b.target.vector_lanes, AxisKind.VECTOR)
    names = [r.arg.name for r in k.outputs if r is not row and r not in softmax.columns] + [block] * bool(block)
    b.share(*names)
    # half of the registers hold sums, of scores or of columns
    columns = power_of_two(k.volume(softmax.columns), b.target.vector_registers // (2 * vectors))
    b.do(Online(softmax.row.arg.name, BLOCK, Space.REGISTER, 8 // vectors, columns if columns > 1 else 0))
    queries = {u.src[0].arg.slot for u in softmax.score.toposort() if u.op is Ops.LOAD and row in u.ranges
               and softmax.row not in u.ranges}  # fmt: skip
    for slot in sorted(queries) if names else ():
        b.attempt(Stage(slot, names[-1], Space.REGISTER))
    _convert_together(b, softmax)


def _convert_together(b: Builder, softmax: Softmax) -> None:
    """Narrow keys and values become floats many at a time: single elements of them are what vectors of rows read."""
    name = softmax.row.arg.name
    narrow = [u for u in loads_summed(b.kernel) if u.src[0].dtype.bits < 32]
    narrow.sort(key=lambda u: -u.src[0].arg.size)  # integers with their scales
    for load in dict.fromkeys((u.src[0].arg.slot, tuple(sorted(axes_of(u)))) for u in narrow):
        loops = (f"{name}.score", *(f"{name}.sum{i or ''}" for i in range(len(softmax.sums))))
        next((at for at in loops if b.has(at) and b.attempt(Stage(load[0], at, Space.REGISTER, axes=load[1]))), None)


# -- GPUs -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Team:
    """How a workgroup shares its work: `across` threads along the sums, that many with rows of their own, and parts of
    the keys. A thread works on `rows` rows, computes scores of `keys` keys at a time and sums `sums` vectors.
    """

    across: int
    apart: int
    split: int
    rows: int
    keys: int
    sums: int

    @property
    def threads(self) -> int:
        return self.across * self.apart * self.split

    def waves(self, size: int, others: int, target: Target) -> float:
        """All threads, of so many rows that share keys and others that do not, by those that run at once."""
        return -(-size // (self.rows * self.apart)) * others * self.threads / target.least_busy

    def shared_bytes(self, row: int, fixed: int) -> int:
        """Weights, maxima and what is exchanged of sums; and `fixed` numbers of each row."""
        together = self.across * self.split
        exchanged = together + (2 * exchange_step(together) if together > FLAT_EXCHANGE else 0)
        weights = together * self.keys
        sums, more = (4 * self.sums * together, exchanged) if self.split > 1 else (exchanged, 0)
        # after the last of several blocks sums are where weights were; threads with rows of their own keep them apart
        apart = self.split > 1 and (self.apart > 1 or row <= weights)
        most = weights + sums if apart else max(weights, sums)
        rounds = 3 if row <= weights else 1  # no loop between exchanges of a single block: each has memory of its own
        return 4 * self.rows * self.apart * (most + more + rounds * exchanged + fixed)

    def steps(self, blocks: float, products: int, flight: int) -> tuple[float, float, float]:
        """Operations of a thread, and with those a vector loaded counts as: scores, exponentials, the exchange of
        maxima, sums; and putting together what parts have summed. And what it waits for the memory that each block
        reads, `flight` vectors at a time, and for other threads."""
        together = self.across * self.split
        exchanged = together if together <= FLAT_IN_LOOP else exchange_step(together) + together**0.5
        summed = self.across * self.keys
        each = self.rows * (self.keys * (products + SCORE) + summed * 4 * self.sums + 2 * exchanged + RESCALED)
        loads = products / 4 * (self.keys + self.rows) + summed * (self.sums + self.rows / 4)
        work = blocks * each + (4 * self.rows * self.sums * self.split if self.split > 1 else 0)
        waits = -(-products * self.keys // (4 * flight)) + -(-summed * self.sums // flight) + 1
        return work, work + blocks * LOADED * loads, blocks * waits * WAITED


def in_workgroups(b: Builder, softmax: Softmax) -> None:
    """Threads along the columns compute scores of a block's keys and then sum; others have rows of their own, or parts
    of the keys.
    """
    row = _shared_rows(b.k, softmax)
    row = row if row is not None and b.k.constant(row) else None
    if held_softmax(b, softmax, row):
        return
    k, t = b.k, b.target
    across, sums = _columns_over_threads(b, softmax.columns, _along(k, softmax))
    weighted = sum(not s.reduce.ranges.isdisjoint(softmax.columns) for s in softmax.sums)
    sums *= max(weighted, 1)
    others = k.volume([r for r in k.outputs if r is not row and r not in softmax.columns])
    size = k.size(row) if row is not None else 1
    team = _team(b, softmax, across, sums, weighted > 1, size, others)
    # where few threads run, each waits for several vectors at a time, of few rows; many wait in turns
    few = team.waves(size, others, t) * t.least_busy < t.busy_threads
    flight = min(_flight(t), 2 * _flight(t) // team.rows) if few else 0
    if row is not None:
        blocks = b.tile(row.arg.name, team.rows, AxisKind.UNROLL)
        if team.apart > 1:
            b.tile(blocks, team.apart, AxisKind.THREAD, 1)
    b.grid(b.loops(k.outputs))
    block = across * team.split * team.keys
    b.do(Online(softmax.row.arg.name, block, Space.SHARED, across=across, split=team.split))
    for i in range(len(softmax.sums)):
        summed = f"{softmax.row.arg.name}.sum{i or ''}"
        if b.has(summed) and (flight or isinstance(b.exact(summed), int)):
            in_flight(b, summed, max(flight // team.sums, 4))
    # 128 bits of keys are loaded at once, where all that they are multiplied over is divided by as many
    width = min(t.max_vector, max([4, *(128 // u.src[0].dtype.bits for u in softmax.keys)]), NARROW)
    while width > 2 and any(const_factor(k.exact(r)) % width for r in softmax.inner):
        width //= 2
    _vector_of_products(b, softmax, width)
    for r in softmax.inner:
        if left := b.left(r):
            in_flight(b, left, 4 * flight // (width * max(team.keys, team.rows)))


def _flight(target: Target) -> int:
    """Vectors that a thread loads before it needs the first of them: an eighth of its registers, of 32-bit numbers
    half."""
    return power_of_two(1 << 10, (target.thread_registers + 1) // 16)


def _columns_over_threads(b: Builder, columns: Sequence[UOp], along: UOp | None) -> tuple[int, int]:
    """Threads along the axis that memory is read along, lanes along the others; how many threads, and the vectors that
    each sums."""
    k, across, sums = b.k, 1, 1
    for r in columns:
        if r is not along:
            b.bind(r.arg.name, AxisKind.UNROLL)
            sums *= k.size(r)
            continue
        left = b.tile(r.arg.name, 4, AxisKind.VECTOR) if k.size(r) % 4 == 0 else r.arg.name
        if left:
            across = _side(b.size(left))
            sums *= b.size(left) // across
            if loops := b.tile(left, across, AxisKind.THREAD):
                b.bind(loops, AxisKind.UNROLL)
    return across, sums


def _side(size: int) -> int:
    """Threads along an axis, which they divide: about SIDE of them."""
    divisors = [n for n in range(1, min(size, WIDEST) + 1) if size % n == 0]
    few = max(n for n in divisors if n <= SIDE)
    return few if 2 * few > SIDE or few == size else min((n for n in divisors if n > SIDE), default=few)


def _team(b: Builder, softmax: Softmax, across: int, sums: int, several: bool, size: int, others: int) -> Team:
    """What takes least time where `least_busy` threads run at once, reads keys seldom and computes little else."""
    k, t = b.k, b.target
    if any(u.src[2] is softmax.maximum for u in k.kernel.src):  # parts of rows: as many as keep large GPUs busy
        t = replace(t, least_busy=t.busy_threads)
    length, products, fixed = k.size(softmax.row), k.volume(softmax.inner), _fixed(k, softmax)
    length = length if k.constant(softmax.row) else max(length // FILLED, 1)
    bounds = [bound for bound in visible(softmax.score, softmax.row) if bound is not None]
    masked = any(bound.ranges for bound in bounds)  # differently for each query
    varies = not masked and (bool(bounds) or not k.constant(softmax.row))
    found: list[tuple[float, Team]] = []
    for rows in range(1, min(ROWS, size) + 1):
        # sums of several leave two thirds of the registers to scores, vectors that are waited for and addresses
        if rows > 1 and several and 3 * rows * 4 * sums > t.thread_registers:
            break
        blocks = -(-size // rows)
        for apart, split, keys in product(range(1, min(blocks, t.max_invocations) + 1), (1, 2, 4, 8, 16), KEYS):
            team = Team(across, apart, split, rows, keys, sums)
            groups = -(-blocks // apart)
            most = WORKGROUP if apart > 1 and groups * others < MANY else t.max_invocations
            if team.threads > most or team.shared_bytes(length, fixed) > t.shared_bytes:
                continue
            if across * split * keys > MAX_BLOCK or (keys > SEVERAL and across * split * keys < length):
                continue
            waves = team.waves(size, others, t)
            again = groups * apart * rows / size
            if masked:  # of the blocks at the mask's edge half is left out, less where the borders of rows are theirs
                block, own = across * split * keys, apart * rows
                again *= 1 + (block + own - gcd(block, own)) / length
            # of the last block half is beyond the end
            count = length / (across * split * keys) + 0.5 if varies else -(-length // (across * split * keys))
            work, steps, waits = team.steps(count, products, _flight(t))
            # what other workgroups read again costs where many do
            read = 1 + 4 * min(waves, 1) / (rows * apart)
            waits *= max(1 - waves, 0)  # more threads wait in turns
            time = again * (steps * max(waves, 1) * read + waits + WORK * work * waves)
            found.append((time, team))
    found.sort(key=lambda one: one[0])
    return b.options("team", [team for _, team in found[:TEAMS]] or [Team(across, 1, 1, 1, 1, sums)])[0]


def _fixed(k: Analysis, softmax: Softmax) -> int:
    """Numbers of a query that are computed once for all of its keys, at most."""
    fixed = (u for u in softmax.score.toposort() if u.dtype.is_float and softmax.row not in u.ranges)
    computed = any(u.op in ELEMENTWISE and not u.ranges.isdisjoint(softmax.inner) for u in fixed)
    return k.volume(softmax.inner) if computed else 0


def schedule_whole_rows(b: Builder) -> bool:
    """Kernels that reduce products along rows which workgroups hold: as many as their memory has room for."""
    found = held_rows(b.k.kernel, b.target)
    if found is None:
        return False
    k, t = b.k, b.target
    loads = [u for x in found.different for u in k.loads_of(x)]
    shared = [r for r in found.rows if any(r not in u.ranges for u in loads)]
    row = max(shared, key=lambda r: (k.size(r), r.arg.order), default=None)
    across = _columns_over_threads(b, found.columns, max(found.columns, key=k.size, default=None))[0]
    across = across if found.columns else SIDE

    def fits(share: tuple[int, int]) -> bool:
        rows, parts = share
        if row is not None:
            b.tile(row.arg.name, rows, AxisKind.UNROLL)
        b.grid(b.loops(k.outputs))
        b.do(WholeRow(found.row.arg.name, across, parts))
        return not excess(b.kernel, t) and _workgroup_bytes(b.kernel) + 4 * rows * len(found.reduces) <= t.shared_bytes

    if not b.first(_shares_of_rows(b, found, across, k.size(row) if row is not None else 1), fits):
        return False
    for r in dict.fromkeys(r for x in found.different for r in x.src[1:]):
        if any(k.contiguous(u, r) for u in loads) and const_factor(k.exact(r)) % 4 == 0:
            b.tile(r.arg.name, 4, AxisKind.VECTOR)
    return True


def _workgroup_bytes(kernel: UOp) -> int:
    """Shared memory of rows that are held: weights are stored while threads still read what was reduced before them;
    sums of columns are exchanged where weights were, and the sums of one stage where those of the last were, if they
    are of its type."""
    stages = exchange_bytes(kernel)
    exchanged = Counter({dtype: max(stage[dtype] for stage in stages) for stage in stages for dtype in stage})
    first = min((stage.total() for stage in stages), default=0)
    return max(staged_bytes(kernel, Space.SHARED) + first, exchanged.total())


def _shares_of_rows(b: Builder, found: WholeRows, across: int, size: int) -> list[tuple[int, int]]:
    """Rows of a workgroup, and parts that each is divided into beside `across`: first what computes and reads least."""
    split = 1
    while across * split * 2 <= b.target.max_invocations and across * split * OWN < found.size:
        split *= 2
    # that leave enough workgroups
    most = b.k.volume(found.rows) * across * split // (b.target.busy_threads // 2)
    most = max(min(found.together(b.target), size, most), 1)

    def cost(share: tuple[int, int]) -> float:
        rows, threads = share[0], across * share[1]
        own = -(-found.size // threads)
        again = -(-size // rows) * rows / size
        return again * own * threads * (1 + READ * (1 / rows + 1 / own))

    shares = product(range(most, 0, -1), [n for n in (split, split // 2, split // 4) if n])
    return sorted((s for s in shares if s[0] in (1, min(s[0], found.held(across * s[1], b.target)))), key=cost)
