"""Order, memory and versions of a schedule; forms, views, streams: against definitions."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tests.graph.schedule.kernel_oracle import Oracle
from tinyweb import Tensor, Variable
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import BufferArg, KernelInfo, Ops, Space, UOp, size_max, toposort
from tinyweb.graph.schedule import attention as attention_fusion
from tinyweb.graph.schedule import nbytes, new_buffer, schedule
from tinyweb.graph.schedule.canonical import canonical_form, placeholder
from tinyweb.graph.schedule.dominators import PostDominators
from tinyweb.graph.schedule.memory_plan import plan_memory
from tinyweb.graph.schedule.schedule import _is_needed, _sorted, _strip
from tinyweb.graph.schedule.views import address, is_broadcast, view_base, walk

F32, I32, I8, I4 = dtypes.float32, dtypes.int32, dtypes.int8, dtypes.int4


def t(*shape: int, dtype: DType = F32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


def stored(u: UOp) -> UOp:
    return UOp(Ops.CONTIGUOUS, u.dtype, (u,))


# -- memory -----------------------------------------------------------------------------------------------------------
def test_bytes_of_buffers() -> None:
    for dtype, size, want in ((F32, 3, 12), (I8, 4, 4), (I8, 5, 8), (I4, 8, 4), (I4, 9, 8), (I8, 0, 0), (I4, 1, 4)):
        assert nbytes(new_buffer(size, dtype)) == want


@pytest.mark.parametrize("seed", range(8))
def test_plans_never_overlap(seed: int) -> None:
    """What shares a pool is never alive at once, fits into it, and the pools are as few as greedy best fit makes."""
    chance = random.Random(seed)
    buffers = [new_buffer(chance.choice([1, 2, 3, 5, 8, 13, 21]) * 4, F32) for _ in range(12)]
    uses = [chance.sample(buffers, chance.randint(1, 3)) for _ in range(14)]
    temporaries = buffers[:10]
    plan = plan_memory(uses, temporaries)
    life = {b: [i for i, used in enumerate(uses) if b in used] for b in temporaries}
    assert set(plan.pool_of) == {b for b, at in life.items() if at}
    for a, b in itertools.combinations(plan.pool_of, 2):
        if plan.pool_of[a] == plan.pool_of[b]:
            assert life[a][-1] < life[b][0] or life[b][-1] < life[a][0]
    for pool, size in enumerate(plan.pool_bytes):
        assert size == max(nbytes(b) for b, p in plan.pool_of.items() if p == pool)
    # greedy by definition: largest first, into the smallest pool that is free all the time
    pools: list[tuple[int, set[int]]] = []
    for b in sorted(plan.pool_of, key=lambda b: (-nbytes(b), life[b][0], life[b][-1])):
        span = set(range(life[b][0], life[b][-1] + 1))
        free = [p for p, (_, taken) in enumerate(pools) if not taken & span]
        if free:
            best = min(free, key=lambda p: pools[p][0])
            pools[best][1].update(span)
        else:
            best = len(pools)
            pools.append((nbytes(b), span))
        assert plan.pool_of[b] == best


# -- forms ------------------------------------------------------------------------------------------------------------
def buffer(number: int, *shape: int) -> UOp:
    memory = UOp(Ops.BUFFER, F32, (), BufferArg(Space.DEVICE, 30000 + number, int(np.prod(shape))))
    return UOp(Ops.RESHAPE, F32, (memory,), shape)


def test_placeholders_stand_for_leaves() -> None:
    a, b = buffer(0, 2, 3), buffer(1, 2, 3)
    target = new_buffer(6, F32)
    value = (a + b) * a
    form = canonical_form(value, [target], lambda u: (u, u) if u.op is Ops.BUFFER else None)
    found = {p[0]: p[1].arg for u in toposort([form.root]) if (p := placeholder(u)) is not None}
    assert {k: (arg.slot, arg.size) for k, arg in found.items()} == {0: (1, 6), 1: (2, 6)}
    assert form.leaves == (a.src[0], b.src[0]) and form.memories == (target, a.src[0], b.src[0])
    assert placeholder(value) is None and placeholder(stored(value)) is None
    # a leaf that is read in another shape is still its memory
    whole = canonical_form(value, [target], lambda u: (u, u.src[0]) if u in (a, b) else None)
    shaped = [u for u in toposort([whole.root]) if placeholder(u) is not None]
    assert [(u.shape, u.src[0].op) for u in shaped] == [((2, 3), Ops.RESHAPE)] * 2


def test_updates_of_one_form() -> None:
    """The number of an update is no matter of what is written."""
    forms = set()
    for number in (3, 4):
        update = UOp(Ops.ASSIGN, F32, (buffer(0, 6), buffer(1, 6) + 1.0), number)
        form = canonical_form(update, [update.src[0].src[0]], lambda u: (u, u) if u.op is Ops.BUFFER else None)
        assert form.memories[0] is update.src[0].src[0] and form.root.arg is None
        forms.add(form.root)
    assert len(forms) == 1
    # the node itself is computed, whatever leaf says of it
    top = buffer(1, 6) + 1.0
    assert (
        canonical_form(top, [new_buffer(6, F32)], lambda u: (u, u) if u.op in (Ops.BUFFER, Ops.ADD) else None).root.op
        is Ops.ADD
    )


# -- order ------------------------------------------------------------------------------------------------------------
def named(n: int) -> list[UOp]:
    return [new_buffer(1, F32) for _ in range(n)]


@pytest.mark.parametrize("seed", range(6))
def test_sorting(seed: int) -> None:
    """Each after all it needs; None if and only if there is a cycle."""
    chance, nodes = random.Random(seed), named(9)
    needs = {n: {nodes[k]: None for k in chance.sample(range(9), 2) if k < i or chance.random() < 0.1}
             for i, n in enumerate(nodes)}  # fmt: skip

    def below(n: UOp) -> set[UOp]:
        seen: set[UOp] = set()
        todo = [n]
        while todo:
            for d in needs[todo.pop()]:
                if d not in seen:
                    seen.add(d)
                    todo.append(d)
        return seen

    cyclic = any(n in below(n) for n in nodes)
    order = _sorted(needs)
    assert (order is None) == cyclic
    if order is not None:
        assert sorted(order, key=nodes.index) == nodes
        assert all(order.index(d) < order.index(n) for n in nodes for d in needs[n])
    for a, b in itertools.permutations(nodes, 2):
        assert _is_needed(a, b, needs) == (a in below(b))


def test_what_needs_nothing_keeps_its_order() -> None:
    nodes = named(5)
    assert _sorted({n: {} for n in nodes}) == nodes
    a, b, c, d, e = nodes
    assert _sorted({a: {e: None, d: None}, b: {}, c: {}, d: {}, e: {}}) == [e, d, a, b, c]


def test_results_and_temporaries() -> None:
    x, w = t(4, 20), t(20, 6)
    product = x @ w
    plan = schedule([stored((product.softmax(-1) @ t(6, 3)).uop), stored(product.uop)])
    assert len(plan.results) == 2 and not set(plan.results) & set(plan.temporaries)
    written = [c.buffers[0] for c in plan.calls]
    assert set(written) == set(plan.results) | set(plan.temporaries)
    assert all(set(c.buffers[1:]) <= {x.uop.buffer, w.uop.buffer, *written[:i], *c.buffers}
               for i, c in enumerate(plan.calls))  # fmt: skip
    assert plan.variables == []


def test_variables_by_name() -> None:
    n, m = Variable("zebra", 1, 6), Variable("ape", 1, 6)
    plan = schedule([stored((t(6)[:n].sum() + t(6)[:m].sum()).uop)])
    assert [v.arg[0] for v in plan.variables] == ["ape", "zebra"]


def test_nothing_to_do() -> None:
    """A value without elements gets memory and no kernel."""
    plan = schedule([stored((t(0, 3) + 1.0).uop), stored((t(2) + 1.0).uop)])
    assert len(plan.calls) == 1 and plan.calls[0].buffers[0] is plan.results[1] and plan.results[0].arg.size == 0


def test_memory_that_simplification_makes_unused() -> None:
    """Slots are numbered without gaps."""
    a, b, c = t(5), t(5), t(5)
    never = (UOp.const(1.0, F32) < UOp.const(0.0, F32))  # fmt: skip
    value = UOp(Ops.WHERE, F32, (UOp(Ops.EXPAND, dtypes.bool, (UOp(Ops.RESHAPE, dtypes.bool, (never,), (1,)),), (5,)),
                                 b.uop, (a + c).uop))  # fmt: skip
    (call,) = schedule([stored(value)]).calls
    assert [m for m in call.buffers[1:]] == [a.uop.buffer, c.uop.buffer]
    assert sorted(u.arg.slot for u in call.kernel.toposort() if u.op is Ops.PARAM) == [0, 1, 2]
    assert isinstance(call.kernel.arg, KernelInfo)


def run(roots: list[UOp], held: dict[UOp, np.ndarray]) -> tuple[list[np.ndarray], int]:
    oracle = Oracle()
    oracle.data |= {k: v.copy() for k, v in held.items()}
    plan = schedule(roots)
    for call in plan.calls:
        oracle.run(call, {})
    return [oracle.data[r] for r in plan.results], len(plan.calls)


def test_an_update_comes_after_all_readers() -> None:
    x = np.arange(6, dtype=np.float32)
    memory = new_buffer(6, F32)
    update = UOp(Ops.ASSIGN, F32, (memory, memory * 2.0), 0)
    readers = [stored(memory + float(n)) for n in range(3)]
    for order in itertools.permutations([update, *readers]):
        got, count = run(list(order), {memory: x})
        assert count == 4
        for root, values in zip(order, got, strict=True):
            np.testing.assert_array_equal(values, x * 2 if root is update else x + readers.index(root))


def test_elementwise_updates_need_no_other_memory() -> None:
    """Where an element depends on itself alone it is computed in place; else the values are computed first."""
    x = np.arange(6, dtype=np.float32)
    memory = new_buffer(6, F32)
    flipped = UOp(Ops.FLIP, F32, (memory,), (0,))
    for value, want, count in ((memory + 1.0, x + 1, 1), (flipped + memory, x + x[::-1], 2), (flipped, x[::-1], 2)):
        got, kernels = run([UOp(Ops.ASSIGN, F32, (memory, value), 0)], {memory: x})
        np.testing.assert_array_equal(got[0], want)
        assert kernels == count


def test_updates_of_views() -> None:
    x = np.arange(12, dtype=np.float32)
    memory = new_buffer(12, F32)
    grid = UOp(Ops.RESHAPE, F32, (memory,), (3, 4))
    block = UOp(Ops.SHRINK, F32, (grid,), ((1, 3), (1, 4)))
    for view in (block, UOp(Ops.FLIP, F32, (block,), (0, 1)), UOp(Ops.PERMUTE, F32, (block,), (1, 0))):
        new = np.arange(100, 106, dtype=np.float32).reshape([size_max(s) for s in view.shape])
        given = new_buffer(6, F32)
        update = UOp(Ops.ASSIGN, F32, (view, UOp(Ops.RESHAPE, F32, (given,), view.shape)), 0)
        (got,), count = run([update], {memory: x, given: new.reshape(-1)})
        want = x.reshape(3, 4).copy()
        part = want[1:3, 1:4]
        if view.op is Ops.FLIP:
            part = part[::-1, ::-1]
        elif view.op is Ops.PERMUTE:
            part = part.T
        part[...] = new
        np.testing.assert_array_equal(got.reshape(3, 4), want)
        assert count == 1
    broadcast = UOp(Ops.PAD, F32, (memory,), ((1, 1),))
    with pytest.raises(ValueError, match="view made of reshape, permute, shrink and flip"):
        schedule([UOp(Ops.ASSIGN, F32, (broadcast, t(14).uop), 0)])


def test_gradients_alone_ask_for_some_nodes() -> None:
    """They are no part of a schedule."""
    x = t(5).uop
    marked = UOp(Ops.DETACH, F32, (UOp(Ops.LEAF, F32, (x * 2.0,), 1),))
    given = UOp(Ops.CUSTOM_GRADIENT, F32, (marked, t(5).uop), None)
    for u in (marked, given):
        (call,) = schedule([stored(u + 1.0)]).calls
        assert call.buffers[1:] == (x.buffer,)


# -- views ------------------------------------------------------------------------------------------------------------
def test_bases_of_views() -> None:
    x = t(3, 4).uop
    cut = UOp(Ops.SHRINK, F32, (x,), ((1, 3), (0, 4)))
    turned = UOp(Ops.PERMUTE, F32, (cut,), (1, 0))
    padded = UOp(Ops.PAD, F32, (x,), ((0, 1), (0, 0)))
    base = x if x.op is not Ops.RESHAPE else x.src[0]
    assert view_base(turned) is base and view_base(x) is base and view_base(x + 1.0) is x + 1.0
    again = UOp(Ops.SHRINK, F32, (padded,), ((0, 3), (0, 4)))
    assert view_base(again) is base, "padding that is cut away again belongs to the view"
    assert view_base(padded) is padded
    assert view_base(UOp(Ops.PERMUTE, F32, (padded,), (1, 0))) is padded
    wide = UOp(Ops.EXPAND, F32, (UOp(Ops.RESHAPE, F32, (UOp.const(2.0, F32),), (1, 1)),), (3, 4))
    assert view_base(wide) is wide and view_base(UOp(Ops.PERMUTE, F32, (wide,), (1, 0))) is wide
    bare = UOp(Ops.RESHAPE, F32, (UOp.const(2.0, F32),), (1, 1))
    assert view_base(bare) is bare.src[0]


def test_shared_elements() -> None:
    x = t(3, 1).uop
    wide = UOp(Ops.EXPAND, F32, (x,), (3, 4))
    assert is_broadcast(wide) and is_broadcast(UOp(Ops.PERMUTE, F32, (wide,), (1, 0)))
    assert not is_broadcast(x) and not is_broadcast(UOp(Ops.EXPAND, F32, (x,), (3, 1)))
    assert not is_broadcast(UOp(Ops.FLIP, F32, (x,), (0,))) and not is_broadcast(x + 1.0)


def test_addresses_of_views() -> None:
    memory = new_buffer(12, F32)
    grid = UOp(Ops.RESHAPE, F32, (memory,), (3, 4))
    zero, one = (UOp.const(n, dtypes.index) for n in (0, 1))
    for view, index, want in (
        (grid, (one, one), 5), (UOp(Ops.FLIP, F32, (grid,), (0,)), (zero, one), 9), (memory, (one,), 1),
        (UOp(Ops.SHRINK, F32, (grid,), ((2, 3), (1, 3))), (zero, one), 10),
        (UOp(Ops.PERMUTE, F32, (grid,), (1, 0)), (one, zero), 1),
    ):  # fmt: skip
        found = address(view, index)
        assert found is not None and found.arg == want
    whole = address(UOp(Ops.PERMUTE, F32, (grid,), (1, 0)))
    assert whole is not None and sorted(r.arg.name for r in whole.toposort() if r.op is Ops.RANGE) == ["i0", "i1"]
    padded = UOp(Ops.PAD, F32, (memory,), ((1, 0),))
    assert address(padded) is None and address(padded, (zero,)) is None
    inside = address(padded, (one,))
    assert inside is not None and inside.arg == 0


def test_walks() -> None:
    a, b = t(3).uop, t(3).uop
    c = a * 2.0
    d = UOp(Ops.CUSTOM_GRADIENT, F32, (c, b), None)
    order = walk([d], ())
    assert order.index(a) < order.index(c) < order.index(d) and b not in order and len(order) == len(set(order))
    assert b in walk([d], (), values_only=False)
    assert a not in walk([d], {c}) and c in walk([d], {c})


# -- attention --------------------------------------------------------------------------------------------------------
def streamed(result: Tensor) -> int:
    root = UOp(Ops.SINK, dtypes.void, tuple(_strip([stored(result.uop)])))
    return len(attention_fusion.candidates(toposort([root]), PostDominators(root)))


def attention(queries: int = 2, keys: int = 16, width: int = 8, values: int = 8, dtype: DType = F32) -> Tensor:
    q, k, v = t(queries, width, dtype=dtype), t(keys, width, dtype=dtype), t(keys, values, dtype=dtype)
    return (q @ k.transpose(0, 1)).softmax(-1) @ v


def test_scores_of_attention_get_no_memory() -> None:
    assert streamed(attention()) > 0 and len(schedule([stored(attention().uop)]).calls) == 1
    scaled = ((t(2, 8) @ t(8, 16)) * 0.5 + t(2, 16)).softmax(-1) @ t(16, 8)
    assert streamed(scaled) > 0 and len(schedule([stored(scaled.uop)]).calls) == 1


def test_everything_between_scores_and_sum_is_streamed() -> None:
    for result in (attention(), ((t(2, 8) @ t(8, 16)) * 0.5 + t(2, 16)).softmax(-1) @ t(16, 8)):
        root = UOp(Ops.SINK, dtypes.void, tuple(_strip([stored(result.uop)])))
        order = toposort([root])
        (between,) = attention_fusion.candidates(order, PostDominators(root)).values()
        found = set(between)
        (last,) = [u for u in order if u.op is Ops.REDUCE and u not in found and found & set(toposort([u]))]
        scores = min(found, key=order.index)
        assert found == {u for u in toposort([last]) if scores in toposort([u])} - {last}


@pytest.mark.parametrize(("make", "want"), [
    # a row of one score; sums that are no wider than the scores' rows; as wide as accumulators go
    (lambda: attention(keys=1), False), (lambda: attention(keys=2), True),
    (lambda: attention(values=1), False), (lambda: attention(values=2), True),
    (lambda: attention(values=256), True), (lambda: attention(values=257), False),
    # scores that are no sum of products, and weights that are used for more
    (lambda: t(2, 16).softmax(-1) @ t(16, 8), False),
    (lambda: (lambda p: p @ t(16, 8) + p.sum(1, keepdim=True))((t(2, 8) @ t(8, 16)).softmax(-1)), False),
    # no exponential, no sum
    (lambda: (lambda s: (s - s.max(-1, keepdim=True)) @ t(16, 8))(t(2, 8) @ t(8, 16)), False),
    (lambda: (t(2, 8) @ t(8, 16)).softmax(-1), False),
    (lambda: (lambda p: (p.reshape(2, 16, 1) * t(16, 8)).max(1))((t(2, 8) @ t(8, 16)).softmax(-1)), False),
    # a maximum along another axis, or several
    (lambda: (t(2, 8) @ t(8, 16)).softmax(0) @ t(16, 8), False),
])  # fmt: skip
def test_what_is_streamed(make: object, want: bool) -> None:
    assert (streamed(make()) > 0) == want  # type: ignore[operator]


def test_values_of_streams() -> None:
    oracle, rng = Oracle(), np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((2, 8), (16, 8), (16, 5)))
    s = q @ k.T
    e = np.exp(s - s.max(1, keepdims=True))
    a, b, c = map(oracle.tensor, (q, k, v))
    got = oracle.numpy((a @ b.transpose(0, 1)).softmax(-1) @ c)
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True) @ v, rtol=2e-5, atol=1e-6)
    assert oracle.kernels == 1
