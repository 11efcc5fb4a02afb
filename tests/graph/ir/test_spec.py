"""The three specs accept good graphs and refuse bad ones, naming the node and the rule."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.graph.ir.graphs import (
    BOOL,
    F32,
    INDEX,
    VOID,
    buffer,
    const,
    kernel_graph,
    loop,
    param,
    program_list,
    reshape,
    start,
    tensor_graph,
)
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import (
    AxisKind,
    BufferArg,
    CopyArg,
    KernelInfo,
    Ops,
    Space,
    StageArg,
    TableArg,
    UOp,
    Variable,
    as_index,
    substitute,
)
from tinyweb.graph.ir.kernel_spec import kernel_spec
from tinyweb.graph.ir.ops import ELEMENTWISE, TENSOR_ONLY
from tinyweb.graph.ir.program_spec import program_spec
from tinyweb.graph.ir.spec import SpecError, check, verify
from tinyweb.graph.ir.tensor_spec import tensor_spec

x, y = reshape(buffer(0, 12), 3, 4), reshape(buffer(1, 12), 4, 3)
i, r = loop("i0", 8), loop("r0", 8, 1000, reduce=True)
out, data, flags = param(0, 64), param(1, 64), param(2, 64, BOOL)


def kernel(*stores: UOp, info: object = KernelInfo()) -> UOp:
    return UOp(Ops.SINK, VOID, stores, info)


def summed(value: UOp, *ranges: UOp, arg: object = Ops.ADD) -> UOp:
    return UOp(Ops.REDUCE, F32, (value, *ranges), arg)


def test_good_graphs_are_accepted() -> None:
    check(tensor_graph(), tensor_spec)
    check(list(tensor_graph().src), tensor_spec)
    check(kernel_graph(), kernel_spec)
    check(program_list(), program_spec)


def test_every_op_has_a_place() -> None:
    for op in Ops:
        stages = [s.name for s in (tensor_spec, kernel_spec, program_spec) if s.invariants_of(op)]
        assert stages, op
        if op in TENSOR_ONLY:
            assert stages == ["tensor_spec"]
        if op in ELEMENTWISE:
            assert len(stages) == 3


# what is wrong with it, what the message must say
BAD_TENSORS: dict[str, tuple[UOp, str]] = {
    "shapes differ": (UOp(Ops.ADD, F32, (x, y)), "shapes of the sources are equal"),
    "dtypes differ": (UOp(Ops.ADD, F32, (x, const(1, dtypes.int32))), "dtype of the result"),
    "comparison of float": (UOp(Ops.LESS, F32, (x, x)), "a comparison gives bool"),
    "condition is a float": (UOp(Ops.WHERE, F32, (x, x, x)), "WHERE has a bool condition"),
    "branches differ": (UOp(Ops.WHERE, F32, (x < 1.0, x, const(1, dtypes.int32))), "branches of its own dtype"),
    "two sources": (UOp(Ops.SQRT, F32, (x, x)), "one source"),
    "one source": (UOp(Ops.MUL, F32, (x,)), "two sources"),
    "square root of int": (UOp(Ops.SQRT, dtypes.int32, (const(1, dtypes.int32),)), "for floats"),
    "floor division of floats": (UOp(Ops.FLOORDIV, F32, (x, x)), "for integers"),
    "bits of floats": (UOp(Ops.XOR, F32, (x, x)), "bit operations"),
    "bitcast to another width": (UOp(Ops.BITCAST, dtypes.float16, (x,)), "number of bits"),
    "constant of another type": (UOp(Ops.CONST, F32, (), 1), "arg of its dtype"),
    "constant out of range": (UOp(Ops.CONST, dtypes.uint8, (), 256), "in range"),
    "bool as a number": (UOp(Ops.CONST, dtypes.int32, (), True), "arg of its dtype"),
    "elementwise with arg": (UOp(Ops.NEG, F32, (x,), 3), "has no arg"),
    "table too small": (UOp(Ops.LOOKUP, dtypes.int32, (const(3, dtypes.uint4),), TableArg((1, 2))), "within a table"),
    "no value": (UOp(Ops.CAST, F32, (UOp(Ops.SINK, VOID, (x,)),)), "so have its sources"),
    "reshape": (reshape(x, 5, 2), "number of elements"),
    "reshape of symbolic size": (reshape(x, start, 4), "number of elements"),
    "reshape without arg": (UOp(Ops.RESHAPE, F32, (x,)), "number of elements"),
    "permute": (UOp(Ops.PERMUTE, F32, (x,), (0, 0)), "every axis once"),
    "permute too short": (UOp(Ops.PERMUTE, F32, (x,), (0,)), "every axis once"),
    "expand": (UOp(Ops.EXPAND, F32, (x,), (3, 8)), "axes of size 1"),
    "expand of another rank": (UOp(Ops.EXPAND, F32, (x,), (1, 3, 4)), "keeps the rank"),
    "pad": (UOp(Ops.PAD, F32, (x,), ((0, -1), (0, 0))), "(before, after)"),
    "shrink": (UOp(Ops.SHRINK, F32, (x,), ((0, 4), (0, 4))), "begin ≤ end ≤ size"),
    "shrink backwards": (UOp(Ops.SHRINK, F32, (x,), ((2, 1), (0, 4))), "begin ≤ end ≤ size"),
    "flip": (UOp(Ops.FLIP, F32, (x,), (2,)), "axes that exist"),
    "movement changes dtype": (UOp(Ops.PERMUTE, dtypes.int32, (x,), (1, 0)), "of its own dtype"),
    "reduce": (UOp(Ops.REDUCE, F32, (x,), (Ops.XOR, (0,))), "ADD, MUL or MAX"),
    "reduce a missing axis": (UOp(Ops.REDUCE, F32, (x,), (Ops.ADD, (2,))), "axes that exist"),
    "reduce as in a kernel": (UOp(Ops.REDUCE, F32, (x,), Ops.ADD), "axes that exist"),
    "take by floats": (UOp(Ops.TAKE, F32, (x, x), 0), "integer indices"),
    "scan of differences": (UOp(Ops.SCAN, F32, (x,), (Ops.XOR, 0)), "SCAN has sources of one shape"),
    "recurrence without factors": (UOp(Ops.SCAN, F32, (x,), (Ops.MULADD, 0)), "SCAN has sources of one shape"),
    "scan of a missing axis": (UOp(Ops.SCAN, F32, (x,), (Ops.ADD, 2)), "an axis"),
    "scatter of another shape": (
        UOp(Ops.SCATTER, F32, (x, UOp(Ops.IOTA, dtypes.int32, (), 2), x), (0, None)), "values for every index"),
    "scatter to places some of which differ": (
        UOp(Ops.SCATTER, F32, (x, UOp(Ops.IOTA, dtypes.int32, (), 3), x), (0, None, False)), "values for every index"),
    "fetch and add of rows": (
        UOp(Ops.FETCH_ADD, F32, (x, UOp(Ops.IOTA, dtypes.int32, (), 3), x), 0), "along the last axis"),
    "leaf without an id": (UOp(Ops.LEAF, F32, (x,)), "an id"),
    "detach with an arg": (UOp(Ops.DETACH, F32, (x,), 1), "no arg"),
    "custom gradient of another shape": (
        UOp(Ops.CUSTOM_GRADIENT, F32, (x, UOp(Ops.LEAF, F32, (x,), 1), x, y)), "pairs of an input and its gradient"),
    "take from a scalar": (UOp(Ops.TAKE, F32, (const(1.0), const(0, INDEX)), 0), "an axis to pick along"),
    "assign to a value": (UOp(Ops.ASSIGN, F32, (x + 1.0, x)), "a view of a BUFFER"),
    "assign another shape": (UOp(Ops.ASSIGN, F32, (x, y)), "same dtype and shape"),
    "bind out of bounds": (UOp(Ops.BIND, INDEX, (start, const(101, INDEX))), "within its bounds"),
    "iota of floats": (UOp(Ops.IOTA, F32, (), 4), "integer dtype"),
    "buffer in registers": (buffer(0, 4, space=Space.REGISTER), "device or host"),
    "contiguous with arg": (UOp(Ops.CONTIGUOUS, F32, (x,), 1), "CONTIGUOUS has no arg"),
    "part of what is whole": (
        UOp(Ops.BUFFER, F32, (buffer(0, 8),), BufferArg(Space.DEVICE, 0, 4, None, 1)), "no sources unless"),
    "copy to one device along an axis": (
        UOp(Ops.COPY, F32, (x,), CopyArg(("CPU",), ("CPU:1",), 0)), "an axis only for several devices"),
    "sink with a value": (UOp(Ops.SINK, F32, (x,)), "no value"),
    "sum of bools": (UOp(Ops.ADD, BOOL, (x < 1.0, x < 2.0)), "not for bool"),
    "choice without an else": (UOp(Ops.WHERE, F32, (x < 1.0, x)), "three sources"),
    "cast to nothing": (UOp(Ops.CAST, VOID, (x,)), "has a value"),
    "a loop": (i + 1, "RANGE is not allowed here"),
    "a load": (data.load(as_index(0)), "PARAM is not allowed here"),
    "multiply-add": (UOp(Ops.MULADD, F32, (x, x, x)), "made by lowering"),
    "variable without name": (UOp(Ops.VARIABLE, INDEX, (), (1, 2)), "a VARIABLE"),
    "variable of float": (UOp(Ops.VARIABLE, F32, (), ("v", 0, 1)), "a VARIABLE"),
}  # fmt: skip

one = data.load(i)
store = out.store(i, one)
BAD_KERNELS: dict[str, tuple[UOp, str]] = {
    "float index": (kernel(out.store(i.cast(F32), one)), "no floats as index"),
    "int32 index": (kernel(out.store(i, data.load(i.cast(dtypes.int32)))), "no floats as index"),
    "gate is a number": (kernel(out.store(i, data.load(i, i))), "bool gate"),
    "gate of a store": (kernel(out.store(i, one, i)), "bool gate"),
    "stored dtype": (kernel(out.store(i, one.cast(dtypes.int32))), "the PARAM's dtype"),
    "loaded dtype": (kernel(out.store(i, UOp(Ops.LOAD, F32, (flags, i)))), "of its dtype"),
    "load from a value": (kernel(out.store(i, UOp(Ops.LOAD, F32, (one, i)))), "PARAM or a STAGE"),
    "wide load": (kernel(out.store(i, UOp(Ops.LOAD, F32, (data, i), 4))), "has no arg"),
    "movement": (kernel(out.store(i, reshape(one, 1))), "RESHAPE is not allowed here"),
    "no KernelInfo": (kernel(store, info=None), "KernelInfo"),
    "no stores": (kernel(), "STOREs"),
    "value in the sink": (kernel(one), "STOREs"),
    "no sink": (store, "one root"),
    "slot gap": (kernel(out.store(i, param(2, 64).load(i))), "slot 1 is missing"),
    "slot twice": (kernel(out.store(i, data.load(i) + param(1, 65).load(i))), "taken twice"),
    "stored last": (kernel(data.store(i, out.load(i))), "stored to come first"),
    "loads elsewhere": (kernel(out.store(i, out.load(i + 1))), "the very index it stores"),
    "two ranges of one name": (kernel(out.store(i, data.load(loop("i0", 9)))), "are called i0"),
    "two variables of one name": (
        kernel(out.store(i, data.load(start) + data.load(Variable("start", 0, 5)))), "called start"),
    "reduce over an output range": (kernel(out.store(i, summed(one, i))), "reduce RANGEs"),
    "reduce over nothing": (kernel(out.store(i, summed(one))), "reduce RANGEs"),
    "reduce twice over one": (kernel(out.store(i, summed(data.load(r), r, r))), "each once"),
    "reduce with another op": (kernel(out.store(i, summed(data.load(r), r, arg=Ops.XOR))), "ADD, MUL or MAX"),
    "reduce as of a tensor": (kernel(out.store(i, summed(data.load(r), r, arg=(Ops.ADD, (0,))))), "ADD, MUL or MAX"),
    "reduce range outside": (kernel(out.store(i, data.load(r))), "outside of its REDUCE"),
    "size is loaded": (kernel(out.store(loop("j", flags.load(i).cast(INDEX), 1), one)), "made of CONST, VARIABLE and"),
    "running sum": (kernel(out.store(i, UOp(Ops.RUNNING, F32, (summed(data.load(r), r), r), True))), "with MAX over"),
    "rescaled by an integer": (
        kernel(out.store(i, summed(UOp(Ops.RESCALE, F32, (data.load(r), const(1, dtypes.int32))), r))), "its dtype"),
    "rescaled outside of a sum": (
        kernel(out.store(i, UOp(Ops.RESCALE, F32, (one, one)))), "what a REDUCE with ADD over one loop"),
    "dot of floats": (kernel(out.store(i, UOp(Ops.DOT, F32, (one, one, one)))), "two words of bytes"),
    "symbolic lanes": (kernel(out.store(loop("j", start, 1, AxisKind.VECTOR), const(1.0))), "constant size"),
    "fourth dimension": (kernel(out.store(loop("j", 4, 1, AxisKind.GRID, dim=3), const(1.0))), "0, 1 and 2"),
    "grid is reduced": (
        kernel(out.store(i, summed(const(1.0), loop("r1", 4, 9, AxisKind.GRID, True)))), "the grid is not reduced"),
    "ordered and reduced": (
        kernel(out.store(i, summed(const(1.0), loop("r1", 4, 9, AxisKind.ORDERED, True)))), "only output ranges"),
    "stage in device memory": (
        kernel(out.store(i, UOp(Ops.STAGE, F32, (data.load(r), r), StageArg(Space.DEVICE)).load(i))), "or frozen"),
    "range of float": (kernel(out.store(UOp(Ops.RANGE, INDEX, (const(4.0),), i.arg), one)), "size made of CONST"),
    "param without size": (kernel(out.store(i, UOp(Ops.PARAM, F32, (), 1).load(i))), "a PARAM has"),
    "multiply-add": (kernel(out.store(i, UOp(Ops.MULADD, F32, (one, one, one)))), "made by lowering"),
    "barrier": (kernel(out.store(i, one), UOp(Ops.BARRIER, VOID, ())), "BARRIER is not allowed here"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_bad_tensor_graphs(name: str) -> None:
    root, words = BAD_TENSORS[name]
    refused(root, tensor_spec, words)


@pytest.mark.parametrize("name", BAD_KERNELS)
def test_bad_kernels(name: str) -> None:
    root, words = BAD_KERNELS[name]
    refused(root, kernel_spec, words)


def refused(graph: UOp | Sequence[UOp], spec, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        check(graph, spec)
    message = str(caught.value)
    assert message.startswith(f"{spec.name}: ") and words in message, message
    assert "\n  at " in message and len(message) < 800


# -- programs: each is the good one with one thing wrong -------------------------------------------------------------
def find(nodes: Sequence[UOp], op: Ops, nth: int = 0) -> int:
    return [n for n, u in enumerate(nodes) if u.op is op][nth]


def swapped(old: Callable[[list[UOp]], UOp], new: Callable[[UOp], UOp]) -> list[UOp]:
    """The good program with one node replaced, everywhere."""
    nodes = program_list()
    target = old(nodes)
    table = {target: new(target)}
    listed: dict[UOp, None] = {}
    for u in nodes:
        for n in UOp(Ops.SINK, VOID, (substitute(u, table),)).toposort()[:-1]:
            listed.setdefault(n)
    return list(listed)


def nth(op: Ops, n: int = 0) -> Callable[[list[UOp]], UOp]:
    return lambda nodes: nodes[find(nodes, op, n)]


def without(op: Ops) -> list[UOp]:
    nodes = program_list()
    del nodes[find(nodes, op)]
    return nodes


def reversed_order() -> list[UOp]:
    return program_list()[::-1]


def twice() -> list[UOp]:
    nodes = program_list()
    return [*nodes, nodes[3]]


def used_after_its_loop() -> list[UOp]:
    nodes = program_list()
    loaded = nodes[find(nodes, Ops.LOAD)]
    return [*nodes, UOp(Ops.LANE, F32, (loaded,), 1)]


def loop_used_outside() -> list[UOp]:
    nodes = program_list()
    looped = nodes[find(nodes, Ops.RANGE)]
    return [*nodes, const(5, INDEX), looped + 5]


def crossing_loops() -> list[UOp]:
    size, a, b = as_index(4), loop("a", 4), loop("b", 4, 1)
    return [size, a, b, UOp(Ops.END, VOID, (a,)), UOp(Ops.END, VOID, (b,))]


def negative_numerator() -> list[UOp]:
    t = UOp(Ops.SPECIAL, INDEX, (as_index(4),), ("grid", 0))
    nodes = [as_index(4), t, as_index(-1), t + -1, as_index(2)]
    return [*nodes, (t + -1) // 2]


def mixed_shapes() -> list[UOp]:
    v = UOp(Ops.STACK, F32, (const(1.0),) * 4)
    return [const(1.0), v, v + const(1.0)]


three = const(3, dtypes.int32)


def tile() -> UOp:
    """A value of two axes."""
    return UOp(Ops.LOAD, F32, (data, loop("a", 4, 0, AxisKind.UNROLL) + loop("b", 4, 1, AxisKind.VECTOR)))


BAD_PROGRAMS: dict[str, tuple[Callable[[], list[UOp]], str]] = {
    "order": (reversed_order, "does not stand before it"),
    "twice": (twice, "stands in the list once"),
    "loop never closed": (lambda: without(Ops.END)[: find(program_list(), Ops.END)], "is never closed"),
    "no loop": (lambda: without(Ops.RANGE), "does not stand before it"),
    "crossing loops": (crossing_loops, "the innermost open loop"),
    "value after its loop": (used_after_its_loop, "a value of a loop that is closed"),
    "loop counter after its loop": (loop_used_outside, "outside of it"),
    "bound axis": (
        lambda: swapped(nth(Ops.RANGE), lambda u: u.replace(arg=replace(u.arg, kind=AxisKind.VECTOR))), "serial loop"),
    "special dimension": (lambda: swapped(nth(Ops.SPECIAL), lambda u: u.replace(arg=("grid", 3))), "dimension 0 … 2"),
    "special kind": (lambda: swapped(nth(Ops.SPECIAL), lambda u: u.replace(arg=("warp", 0))), "grid or thread"),
    "lane too many": (lambda: swapped(nth(Ops.LANE), lambda u: u.replace(arg=4)), "a lane that its vector has"),
    "multiply-add of two types": (
        lambda: [const(1.0), three, UOp(Ops.MULADD, F32, (const(1.0), const(1.0), three))],
        "MULADD has sources"),
    "table in a program": (
        lambda: UOp(Ops.LOOKUP, dtypes.int32, (const(1, dtypes.uint8),), TableArg((1, 2))).toposort(),
        "made of words"),
    "dot of scalars": (lambda: [three, UOp(Ops.DOT, dtypes.int32, (three, three, three))], "DOT has int8"),
    "tile": (lambda: [tile()], "scalar or a vector"),
    "float index of a load": (lambda: [data, const(1.0), data.load(const(1.0))], "LOAD has (memory"),
    "float index of a store": (lambda: [out, const(1.0), out.store(const(1.0), const(1.0))], "STORE has (memory"),
    "stack of one": (lambda: [const(1.0), UOp(Ops.STACK, F32, (const(1.0),))], "two or more scalars"),
    "vector with scalar": (mixed_shapes, "all vectors of one length"),
    "load without width": (lambda: swapped(nth(Ops.LOAD), lambda u: u.replace(arg=None)), "number of lanes"),
    "load misaligned": (
        lambda: [data, as_index(2), UOp(Ops.LOAD, F32, (data, as_index(2)), 4)], "multiple of its width"),
    "store with an unknown arg": (lambda: swapped(nth(Ops.STORE), lambda u: u.replace(arg="add")), "or an atomic"),
    "stored dtype": (
        lambda: [out, as_index(0), three, out.store(as_index(0), three)], "memory's dtype"),
    "after of a value": (lambda: [const(1.0), const(1.0).after(const(1.0))], "AFTER has (memory"),
    "device buffer": (lambda: [buffer(0, 4)], "registers or shared"),
    "buffer ids": (
        lambda: [buffer(0, 4, space=Space.SHARED), buffer(0, 8, space=Space.SHARED)], "have id 0"),
    "negative numerator": (negative_numerator, "numerator is proven"),
    "reduce": (lambda: [const(1.0), as_index(8), r, summed(const(1.0), r)], "REDUCE is not allowed here"),
    "sink": (lambda: [UOp(Ops.SINK, VOID, ())], "SINK is not allowed here"),
    "half of float": (lambda: [const(1.0), UOp(Ops.F16_TO_F32, F32, (const(1.0),))], "of a uint32"),
    "float to half": (
        lambda: [const(1.0), UOp(Ops.F32_TO_F16, F32, (const(1.0),))], "makes a uint32"),
    "slots": (lambda: [param(1, 4)], "slot 0 is missing"),
    "end of nothing": (lambda: [const(1.0), UOp(Ops.END, VOID, (const(1.0),))], "END has"),
    "subgroup size with a value": (lambda: [UOp(Ops.SUBGROUP_SIZE, F32, ())], "an index without sources"),
    "maximum of floats in subgroups": (
        lambda: [const(1.0), UOp(Ops.SUBGROUP, F32, (const(1.0),), Ops.MAX)], "integers and neighbours by MAX"),
    "barrier with a value": (lambda: [UOp(Ops.BARRIER, F32, ())], "no value"),
    "two loops of one name": (
        lambda: [as_index(4), loop("a", 4), UOp(Ops.END, VOID, (loop("a", 4),)), as_index(5), loop("a", 5),
                 UOp(Ops.END, VOID, (loop("a", 5),))], "ranges are called a"),
    "two variables of one name": (lambda: [start, Variable("start", 0, 5)], "variables called start"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_PROGRAMS)
def test_bad_programs(name: str) -> None:
    make, words = BAD_PROGRAMS[name]
    refused(make(), program_spec, words)


def test_every_invariant_can_be_broken() -> None:
    """No invariant is idle: each text is the reason some bad graph is refused."""
    said: set[str] = set()
    for spec, graphs in (
        (tensor_spec, [g for g, _ in BAD_TENSORS.values()]),
        (kernel_spec, [g for g, _ in BAD_KERNELS.values()]),
        (program_spec, [make() for make, _ in BAD_PROGRAMS.values()]),
    ):
        for graph in graphs:
            with pytest.raises(SpecError) as caught:
                check(graph, spec)
            said.add(str(caught.value).split("\n")[0].split(": ", 1)[1])
    invariants = {invariant.text for spec in (tensor_spec, kernel_spec, program_spec) for invariant in spec.invariants}
    assert not invariants - said, invariants - said


def test_every_invariant_of_the_whole_can_be_broken() -> None:
    invariants = {invariant.text for spec in (tensor_spec, kernel_spec, program_spec) for invariant in spec.invariants}
    for spec, graphs in (
        (kernel_spec, [g.toposort() for g, _ in BAD_KERNELS.values()]),
        (program_spec, [make() for make, _ in BAD_PROGRAMS.values()]),
    ):
        broken = set()
        for nodes in graphs:
            with pytest.raises(SpecError) as caught:
                check(nodes if spec.ordered else nodes[-1], spec)
            said = str(caught.value).split("\n")[0].split(": ", 1)[1]
            if said not in invariants and "is not allowed here" not in said:
                broken.add(next(look for look in spec.whole if look(nodes) is not None))
        assert broken == set(spec.whole), {look.__name__ for look in set(spec.whole) - broken}
    assert not tensor_spec.whole


def test_good_graphs_have_every_op_of_their_stage() -> None:
    """What no good graph has, no test has seen accepted."""
    seen = {
        tensor_spec: {u.op for u in tensor_graph().toposort()},
        kernel_spec: {u.op for u in kernel_graph().toposort()},
        program_spec: {u.op for u in program_list()},
    }
    for spec, ops in seen.items():
        missing = {op for op in Ops if spec.invariants_of(op)} - ops - ELEMENTWISE
        assert not missing, (spec.name, missing)


def test_the_message_names_node_rule_and_place() -> None:
    with pytest.raises(SpecError) as caught:
        check(kernel(out.store(i, one.cast(dtypes.int32))), kernel_spec)
    first, at, used = str(caught.value).split("\n")
    assert first == "kernel_spec: STORE writes a value of the PARAM's dtype"
    assert at.startswith("  at STORE.void(PARAM.float32") and "CAST.int32" in at
    assert used.startswith("  used by SINK.void")


# -- the environment variable ----------------------------------------------------------------------------------------
def run_with(level: str, code: str) -> subprocess.CompletedProcess[str]:
    head = (
        "from tests.graph.ir.graphs import *\n"
        "from tinyweb.graph.ir.kernel_spec import kernel_spec\n"
        "from tinyweb.graph.ir.spec import verify, spec_level\n"
        "from tinyweb.graph.ir import *\n"
    )
    env = {**os.environ, "SPEC": level}
    return subprocess.run([sys.executable, "-c", head + code], env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("level", "fails"), [("0", False), ("1", True), ("2", True)])
def test_verify_follows_the_environment(level: str, fails: bool) -> None:
    done = run_with(level, "verify('schedule', const(1.0), kernel_spec)")
    assert (done.returncode != 0) is fails
    assert ("after schedule: kernel_spec: " in done.stderr) is fails


def test_level_two_prints_and_rebuilds() -> None:
    done = run_with("2", "verify('schedule', kernel_graph(), kernel_spec); print(spec_level())")
    assert done.stdout.strip() == "2", done.stderr


def test_a_wrong_level_is_refused() -> None:
    done = run_with("yes", "verify('schedule', const(1.0), kernel_spec)")
    assert done.returncode != 0
    assert "SPEC is 'yes'; it must be 0 (off), 1" in done.stderr


def test_verify_is_quiet_on_good_graphs() -> None:
    verify("schedule", kernel_graph(), kernel_spec)
