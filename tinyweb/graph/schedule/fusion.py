"""Which nodes of a tensor graph get memory of their own; all others are computed inside the kernels that use them.

One pass from the leaves up carries for every node what computing one of its elements anew would cost:

- `NONE`: only elementwise work on memory (and scalar reduces so cheap that they are recomputed wherever they are
  needed);
- `FULL`: each element is the result of a reduce (a matrix product's output);
- `ROW`: elements along some axes share reduces over a row of the same length (softmax, norms): free inside a kernel
  that walks the row, which computes the reduce once per row.

Memory is given where a FULL or ROW value would be computed again and again: before it is broadcast along other axes,
before it is reduced, and where users in different kernels need it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from tinyweb.graph.ir import (
    ELEMENTWISE,
    MOVEMENT,
    TRANSCENDENTAL,
    Ops,
    Ordered,
    Size,
    UOp,
    numel_max,
    size_max,
    size_prod,
    through,
    toposort,
)
from tinyweb.graph.schedule.attention import candidates, halves, reduced_away, weighting
from tinyweb.graph.schedule.calls import MOST_BUFFERS
from tinyweb.graph.schedule.dominators import PostDominators
from tinyweb.graph.schedule.indexing import reshape_groups, same
from tinyweb.graph.schedule.joining import is_join, parts_of
from tinyweb.graph.schedule.recomputation import (
    in_sums,
    is_summed,
    padded,
    worth_sharing,
    worth_storing,
    worth_storing_once,
)
from tinyweb.graph.schedule.shared_rows import SharedRows, shared_rows
from tinyweb.graph.schedule.work import LAUNCH
from tinyweb.graph.target import Target

VIEWS = (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND)
TILED_REDUCE = 16  # elements of a sum from which its kernel is worth good tiles, and keeps to itself
SHORT_REDUCE = 256  # elements of a reduce of integers that is carried out inside the reduce that needs it
MOST_BETWEEN = 4000  # nodes looked at between a value and where its users meet
STORED_FROM = 256  # elements from which transcendental work is not repeated along a broadcast


class Kind(Enum):
    NONE = auto()
    FULL = auto()
    ROW = auto()


@dataclass(frozen=True)
class State:
    """What is still to be computed in a node if it is fused into its user."""

    kind: Kind = Kind.NONE
    row_size: Size = 1  # elements of the reduces below
    steps: int = 0  # FULL: of all reduces below, for an element
    row_axes: frozenset[int] = frozenset()  # ROW: the node's axes that share a reduce
    transcendental: bool = False  # every element has transcendental work of its own
    # FULL: the reduce reads its memory more than once (a matrix product), so there is no row in memory that others walk
    contraction: bool = False
    inputs: frozenset[UOp] = field(default_factory=frozenset)  # memories read
    reduces: frozenset[UOp] = field(default_factory=frozenset)  # ROW: the values that were broadcast along the row
    attended: frozenset[UOp] = frozenset()  # sums that one pass over scores gives
    joined: bool = False  # more inputs than a kernel binds, of which constants along an axis say which an element reads


def is_memory(u: UOp) -> bool:
    """Nodes that are memory already, or that always are."""
    return u.op in (Ops.BUFFER, Ops.ASSIGN, Ops.CONTIGUOUS)


def _is_thinned(u: UOp) -> bool:
    """Whether a view has elements of memory that lie apart from each other, fewer than half of them and each once."""
    views, below = through(u, (Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK))
    apart = False
    for view in (v for v in views if v.op is Ops.SHRINK):
        last = max((a for a, n in enumerate(view.src[0].shape) if n != 1), default=0)
        apart |= view.shape[last : last + 1] == (1,)
    return (
        u.op is Ops.SHRINK and apart and below.op is not Ops.EXPAND and 2 * numel_max(u.shape) <= numel_max(below.shape)
    )


def _comes_apart(u: UOp) -> bool:
    """Whether a view has neighbours of a long axis apart from each other, behind fewer than tiles take, as the pixels
    that channels become."""
    own = [a for a in u.arg if u.src[0].shape[a] != 1] if u.op is Ops.PERMUTE else []
    if not own:
        return False
    ahead = next((i for i in range(len(own) - 1, 0, -1) if own[i - 1] > own[i]), 0)
    long, behind = (numel_max(u.src[0].shape[a] for a in axes) for axes in ([max(own)], own[ahead:]))
    return behind < TILED_REDUCE <= long


def _picks_rows(u: UOp) -> bool:
    return u.op is Ops.TAKE and size_prod(u.src[0].shape[u.arg + 1 :]) != 1


class Fusion:
    """Decides for the graph below `root`; the answer is `realized`, in an order in which they can be computed.

    `attention` has the maxima of the scores that get no memory; `held` the reductions of products that get none because
    workgroups hold rows of them; `shared` products of which several results are made, by one kernel. Those that are
    `stored` do get memory. Sums that are `apart` get memory before they are broadcast; `cheaper` are those that would
    better have been among them. `merged` are reshapes of rows that merge their axes with others.
    """

    def __init__(
        self,
        root: UOp,
        stored: frozenset[UOp] = frozenset(),
        apart: frozenset[UOp] = frozenset(),
        checked_uses: int = Target.checked_uses,
        converted_uses: int = Target.converted_uses,
        scattered_loads: bool = Target.scattered_loads,
        max_buffers: int = Target.max_buffers,
        shared_bytes: int = Target.shared_bytes,
    ):
        self.checked_uses = checked_uses
        self.scattered_loads = scattered_loads
        self.max_inputs = min(max_buffers, MOST_BUFFERS) - 1  # one is the output
        self.realized: dict[UOp, None] = {}
        self.apart = apart
        self.cheaper: frozenset[UOp] = frozenset()
        self.merged: set[UOp] = set()
        self.state: dict[UOp, State] = {}
        self.post_dominators = PostDominators(root)
        order = toposort([root])
        found = candidates(order, self.post_dominators)
        held: dict[UOp, list[UOp]] = {}
        self.shared: list[SharedRows] = []
        if shared_bytes:
            held = reduced_away(order, self.post_dominators) | weighting(order, self.post_dominators)
            known = {*found, *held}
            self.shared = [
                s
                for s in shared_rows(order, self.post_dominators)
                if s.products not in stored and (len(s.ends) > 1 or s.between.isdisjoint(known))
            ]
            among = frozenset[UOp]().union(*(s.between for s in self.shared))
            found, held = ({u: nodes for u, nodes in of.items() if u not in among} for of in (found, held))
        self.held = frozenset(held) - frozenset(found) - stored
        self.attention = frozenset(found) - stored
        self.streamed = {u for maximum in self.attention for u in found[maximum]}
        self.streamed.update(u for first in self.held for u in held[first][:-1])
        self.streamed.update(u for shared in self.shared for u in shared.between)
        users = self.post_dominators.users
        self.passes = frozenset(e for m in self.attention for u in found[m] for e in users[u]) - self.streamed
        self.ends = {held[first][-1] for first in self.held}
        results = {u for shared in self.shared for u in shared.ends - shared.between}
        self.results = {u for u in results if not all(map(is_memory, self.post_dominators.users[u]))}
        self.converted: set[UOp] = set()
        for maximum in self.attention:
            self.converted.update(halves(maximum, found[maximum], self.post_dominators, converted_uses))
        self.in_sums = in_sums(order, self.post_dominators.users)
        self.borders = padded(order)
        for u in order:
            self.visit(u)

    def visit(self, u: UOp) -> None:
        if u.op is Ops.SINK:
            return
        if u.op is Ops.BUFFER:
            self.state[u] = State(inputs=frozenset({u}))
            return
        state = self._combine(u)
        if u in self.streamed:
            # computed block by block inside the sum that it is weighted for
            self.state[u] = State(inputs=state.inputs)
            return
        if is_memory(u):
            self._realize(u)
            return
        self.state[u] = state
        if u in self.converted or u in self.results or (u in self.ends and u.op is not Ops.REDUCE):
            self._realize(u)
            return
        if state.kind is Kind.NONE and u.op in ELEMENTWISE and state.inputs:
            users = self.post_dominators.users
            shared = u in self.in_sums and worth_sharing(u, users, self._is_loaded, self._goes_along_rows)
            if shared or worth_storing(u, users, self.borders, self._is_loaded):
                self._realize(u)
            return
        if (
            state.kind is not Kind.NONE
            and len(self.post_dominators.users[u]) > 1
            and not self._meets_in_one_kernel(u, state)
        ):
            self._realize(u)

    def _is_loaded(self, u: UOp) -> bool:
        """Whether nothing of a node is computed of what lies in memory: it is memory, or made of constants."""
        return self.state[u].inputs <= {u}

    def _realize(self, u: UOp) -> None:
        """Give `u`'s value memory."""
        # views between only rename what lies in memory
        views, b = through(u, VIEWS)
        if not is_memory(b) or b is u:
            self.realized[b] = None
            self.state[b] = State(inputs=frozenset({b}))
        self.state |= dict.fromkeys(views, self.state[b])

    def _combine(self, u: UOp) -> State:
        if not u.src:
            return State()
        for s in u.src if u.op not in ELEMENTWISE and not (is_memory(u) and not isinstance(u.arg, Ordered)) else ():
            if self.state[s].joined:
                self._realize(s)
        if u.op is Ops.REDUCE:
            return self._reduce(u)
        if u.op is Ops.EXPAND:
            return self._expand(u)
        if u.op in MOVEMENT:
            return self._move(u)
        if u.op is Ops.TAKE:
            # what is picked, and the picks, are needed once for each element that is picked
            picked_whole = size_prod(u.src[0].shape[u.arg + 1 :]) == 1
            for s, once in ((u.src[0], self._is_thinned(u)), (u.src[1], picked_whole)):
                if self.state[s].kind is not Kind.NONE and not once:
                    self._realize(s)
            if worth_storing_once(u.src[1], numel_max(u.shape), self._is_loaded) and not self._is_summed(u):
                self._realize(u.src[1])
            return self._elementwise(u)
        if u.op in ELEMENTWISE:
            return self._elementwise(u)
        if is_memory(u):
            return State()
        return self.state[u.src[0]]

    def _reduce(self, u: UOp) -> State:
        x = u.src[0]
        axes = frozenset(a for a in u.arg[1] if x.shape[a] != 1)
        if axes:
            self._store_borders(x)
        s = self.state[x]
        if not axes:
            return s
        if s.kind is Kind.FULL and size_max(s.row_size) <= SHORT_REDUCE and self._of_integers(x):
            # each short sum is needed once, and would take a good part of the memory of what it is made of
            row_size = size_prod([s.row_size, *(x.shape[a] for a in sorted(axes))])
            return State(Kind.FULL, row_size, size_max(row_size), inputs=s.inputs)
        if s.kind is Kind.FULL or (s.kind is Kind.ROW and axes != s.row_axes):
            if (
                s.reduces
                and not s.transcendental
                and 2 * sum(numel_max(u.shape) for u in s.reduces) <= numel_max(x.shape)
            ):
                self.cheaper |= s.reduces
            self._realize(x)
            s = self.state[x]
        contraction = 0 < sum(numel_max(m.shape) for m in s.inputs) < numel_max(x.shape)
        row_size = size_prod(x.shape[a] for a in sorted(axes))
        attended = self.passes & {u}
        return State(
            Kind.FULL, row_size, size_max(row_size), contraction=contraction, inputs=s.inputs, attended=attended
        )

    def _store_borders(self, x: UOp) -> None:
        """Memory for what has a border and is read so often in a sum of `x` that a check at each load costs more; so
        for joins of more than two parts, which are checked for each of them, rows that a gather picks, and what a
        convolution steps to, whose elements lie apart."""
        todo, seen, size = [x], set[UOp](), numel_max(x.shape)
        while todo:
            u = todo.pop()
            if u in seen:
                continue
            seen.add(u)
            parts = parts_of(u)
            of = u.src[0] if u.op is Ops.PAD else u
            stored = u.op is Ops.PAD or len(parts) > 2 or (size > LAUNCH and (_picks_rows(u) or _is_thinned(u)))
            if stored and size * len(parts) >= self.checked_uses * numel_max(of.shape):
                self._realize(u)
            elif u.op in MOVEMENT or (u.op in ELEMENTWISE and numel_max(u.shape) == size):
                todo.extend(u.src if len(parts) == 1 else parts)

    def _is_summed(self, u: UOp) -> bool:
        return is_summed(u, self.post_dominators.users)

    def _is_thinned(self, u: UOp) -> bool:
        """Whether fewer elements are picked than there are, of sums too short to be worth tiles."""
        picked, s = u.src[0], self.state[u.src[0]]
        short = s.kind is Kind.FULL and not self._is_tiled(picked, s)
        return self.scattered_loads and short and numel_max(u.shape) < numel_max(picked.shape)

    def _of_integers(self, x: UOp) -> bool:
        """Whether the reduces that a FULL value is made of are of integers."""
        below: UOp | None = x
        while below is not None and below.op is not Ops.REDUCE:
            below = next((s for s in below.src if s in self.state and self.state[s].kind is Kind.FULL), None)
        return below is not None and below.dtype.is_int

    def _expand(self, u: UOp) -> State:
        x = u.src[0]
        s = self.state[x]
        axes = frozenset(a for a, (old, new) in enumerate(zip(x.shape, u.shape, strict=True)) if not same(old, new))
        if not axes:
            return s
        own = [a for a, n in enumerate(x.shape) if not same(n, 1)]
        walked = numel_max(u.shape[: own[-1] + 1]) if own else 0
        if s.kind is Kind.FULL:
            if self._is_cheap(x, s):
                return State(inputs=s.inputs)
            along_row = same(size_prod(u.shape[a] for a in sorted(axes)), s.row_size)
            if along_row and not s.contraction and x not in self.apart:
                return State(Kind.ROW, s.row_size, row_axes=axes, inputs=s.inputs, reduces=frozenset({x}))
            self._realize(x)
        elif (
            s.kind is Kind.ROW
            or (s.transcendental and numel_max(x.shape) >= STORED_FROM)
            or (worth_storing_once(x, numel_max(u.shape), self._is_loaded, walked) and not self._is_summed(u))
        ):
            self._realize(x)
        s = self.state[x]
        return State(s.kind, s.row_size, s.steps, s.row_axes, inputs=s.inputs, reduces=s.reduces)

    @staticmethod
    def _is_cheap(x: UOp, s: State) -> bool:
        return size_prod(x.shape) == 1 and size_max(s.row_size) <= LAUNCH

    def _is_tiled(self, x: UOp, s: State) -> bool:
        return size_max(s.row_size) >= TILED_REDUCE and not self._is_cheap(x, s)

    def _move(self, u: UOp) -> State:
        x = u.src[0]
        s = self.state[x]
        if u.op is Ops.PAD and s.kind is Kind.FULL:
            # a border around sums would be a condition in their loops, and sizes that tiles do not divide
            border = s.steps * (numel_max(u.shape) - numel_max(x.shape))
            if border > LAUNCH or self._is_tiled(x, s):
                self._realize(x)
            return self.state[x]
        if s.contraction and not self.scattered_loads and self._is_tiled(x, s) and _comes_apart(u):
            self._realize(x)
            return self.state[x]
        if s.kind is not Kind.ROW:
            return s
        if u.op is Ops.PERMUTE:
            return replace(s, row_axes=frozenset(i for i, a in enumerate(u.arg) if a in s.row_axes), contraction=False)
        if u.op is Ops.RESHAPE:
            moved: set[int] = set()
            for olds, news in reshape_groups(x.shape, u.shape):
                wide = [k for k in olds if x.shape[k] != 1]
                inside = [k for k in wide if k in s.row_axes]
                if inside and len(inside) != len(wide):
                    self.merged.add(u)
                    break
                if inside:
                    moved.update(k for k in news if u.shape[k] != 1)
            else:
                return replace(s, row_axes=frozenset(moved), contraction=False)
        self._realize(x)
        return self.state[x]

    def _elementwise(self, u: UOp) -> State:
        below = [self.state[s] for s in u.src]
        every = below[0].inputs
        for st in below[1:]:
            if st.inputs is not every:
                every = every | st.inputs
        if len(every) <= self.max_inputs and all(st.kind is Kind.NONE for st in below):
            return State(transcendental=u.op in TRANSCENDENTAL or any(st.transcendental for st in below), inputs=every)
        same_join = all(st.joined and st.inputs == every for s in u.src if (st := self.state[s]).inputs)
        joined = len(every) > self.max_inputs and (same_join or is_join(u))
        joined = joined and all(self.state[s].kind is Kind.NONE for s in u.src)
        if len(every) > self.max_inputs and not joined:
            for s in sorted(dict.fromkeys(u.src), key=lambda s: -len(self.state[s].inputs)):
                if len(self.state[s].inputs) > 1:
                    self._realize(s)
                if len(frozenset().union(*(self.state[s].inputs for s in u.src))) <= self.max_inputs:
                    break
        states = {s: self.state[s] for s in u.src if self.state[s].kind is not Kind.NONE}
        sums = {s: st for s, st in states.items() if st.kind is Kind.FULL and self._is_tiled(s, st)}
        longest = max(sums.values(), key=lambda st: size_max(st.row_size), default=None)
        for s, st in sums.items():
            # sums of different lengths have no loop in common, and together no good tiles
            if longest is not None and not same(st.row_size, longest.row_size):
                self._realize(s)
                del states[s]
        for s in list(states)[:-1]:
            # a kernel passes over the scores of one softmax
            if len(frozenset().union(*(st.attended for st in states.values()))) > 1 and states[s].attended:
                self._realize(s)
                del states[s]
        rows = {(st.row_axes, st.row_size) for st in states.values() if st.kind is Kind.ROW}
        has_full = any(st.kind is Kind.FULL and not self._is_cheap(s, st) for s, st in states.items())
        if len(rows) > 1 or (rows and has_full):
            # values that want different walks: keep one kind, put the others into memory
            for s, st in states.items():
                if (st.kind is Kind.FULL) if rows and len(rows) == 1 else (st.kind is Kind.ROW):
                    self._realize(s)
        states = {s: self.state[s] for s in u.src}
        inputs = frozenset().union(*(st.inputs for st in states.values()))
        transcendental = u.op in TRANSCENDENTAL or any(st.transcendental for st in states.values())
        for want in (Kind.FULL, Kind.ROW):
            wanted = [st for st in states.values() if st.kind is want]
            if wanted:
                contraction = any(other.contraction for other in states.values())
                reduces = frozenset().union(*(other.reduces for other in states.values()))
                attended = frozenset().union(*(other.attended for other in states.values()))
                return State(
                    want, wanted[0].row_size, sum(st.steps for st in wanted), wanted[0].row_axes, transcendental,
                    contraction, inputs, reduces, attended,
                )  # fmt: skip
        return State(transcendental=transcendental, inputs=inputs, joined=joined)

    def _meets_in_one_kernel(self, u: UOp, state: State) -> bool:
        """Whether all users of `u` end in one node after nothing but elementwise work and reduces along the same
        row."""
        end = self.post_dominators.of[u]
        if is_memory(end) or not self._along_row(end, state):
            return False
        size = size_prod(u.shape)
        for i, v in enumerate(self.post_dominators.between(u)):
            if i == MOST_BETWEEN or not self._along_row(v, state):
                return False
            # a value that varies along the row it is about to be reduced over would be computed once per use
            if state.kind is Kind.FULL and v.op is Ops.REDUCE and size != 1 and same(size_prod(v.src[0].shape), size):
                return False
        return True

    def _goes_along_rows(self, u: UOp, reduce: UOp) -> bool:
        """Whether all users of `u` end in one node after nothing but what goes along the rows of that reduce."""
        row_size = size_prod(reduce.src[0].shape[a] for a in reduce.arg[1])
        return self._meets_in_one_kernel(u, State(Kind.ROW, row_size))

    def _along_row(self, v: UOp, state: State) -> bool:
        """Elementwise work, or a broadcast or reduce along the row of that state."""
        if v.op in ELEMENTWISE or (v.op is Ops.RESHAPE and self._adds_or_drops_ones(v)):
            return True
        if state.contraction:
            return False
        row_size = state.row_size
        if v.op is Ops.EXPAND:
            return same(size_prod(n for o, n in zip(v.src[0].shape, v.shape, strict=True) if not same(o, n)), row_size)
        return v.op is Ops.REDUCE and same(size_prod(v.src[0].shape[a] for a in v.arg[1]), row_size)

    @staticmethod
    def _adds_or_drops_ones(v: UOp) -> bool:
        return [s for s in v.shape if s != 1] == [s for s in v.src[0].shape if s != 1]
