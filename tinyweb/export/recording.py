"""What a bundle of functions is made of: their plans, and the memory that these read and write.

A function is recorded once, with the example inputs; what it computes for them is not computed. Tensors from outside
that it reads (a model's weights) are written into the bundle; those that it updates in place become state that lives on
the device from call to call. Functions of one bundle share both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tinyweb.array.core import TensorCore
from tinyweb.array.storage import bound_size
from tinyweb.device import current_recorder
from tinyweb.dtype import dtypes
from tinyweb.errors import ExportError
from tinyweb.export.expression import expression
from tinyweb.export.memory import Memory, Named, plan_memory, read_memory
from tinyweb.formats.words import Words
from tinyweb.graph.ir import Ops, Size, UOp, as_index, size_max
from tinyweb.graph.ir.bounds import polynomial
from tinyweb.graph.schedule import nbytes
from tinyweb.graph.schedule.parts import Parts
from tinyweb.graph.target import Target
from tinyweb.nn.state import get_state_dict
from tinyweb.tensor import Tensor
from tinyweb.tracing import Plan, capture

Examples = Mapping[str, Tensor | Words] | Sequence[Tensor | Words]
"""Tensors of the shapes and dtypes of a function's arguments, by name or by position. `Words` stand for text, which a
page gives and gets: those of an input are the words that are told apart, the last of which is any other."""

# what JavaScript has typed arrays for (halves as their bits)
ARRAYS = (
    dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.int16, dtypes.uint16, dtypes.int8, dtypes.uint8, dtypes.bool,
    dtypes.int64, dtypes.uint64, dtypes.float16,
)  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """A function with its memory: inputs and outputs by name, each a tensor that is all of its buffer. `texts`: what
    the numbers of some of them stand for."""

    function: Callable[..., Any]
    plan: Plan
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    texts: Mapping[str, Sequence[str]]

    @property
    def ends(self) -> frozenset[UOp]:
        """The memory of inputs and outputs, and what the host reads and writes between launches."""
        steps = [t for _, step in self.plan.host_steps for t in (*step.inputs, step.output) if t is not None]
        return frozenset(t.uop.buffer for t in (*self.inputs.values(), *self.outputs.values(), *steps))

    @property
    def variables(self) -> list[UOp]:
        """What the shapes of inputs tell: sizes that are so many times a variable."""
        told = [v for t in self.inputs.values() for s in t.shape for v in _multiple(s)]
        return list(dict.fromkeys([*told, *(step.variable for _, step in self.plan.host_steps)]))

    def section(self, name: str, memory: Memory) -> dict[str, Any]:
        """Its entry in the manifest's `functions`, by its name."""
        return {
            "inputs": [self._named(n, t, memory) for n, t in self.inputs.items()],
            "outputs": [self._named(n, t, memory) for n, t in self.outputs.items()],
            **({"host_steps": self._host_steps(name, memory)} if self.plan.host_steps else {}),
        }

    def _named(self, name: str, t: Tensor, memory: Memory) -> dict[str, Any]:
        texts = {"texts": list(self.texts[name])} if name in self.texts else {}
        return _end(name, t, memory) | texts

    def entries(self, name: str) -> dict[str, Plan]:
        """Its entry points: one, and one behind each step of the host."""
        first, *rest = self.plan.parts()
        return {name: first, **{f"{name}__{i}": plan for i, plan in enumerate(rest)}}

    def _host_steps(self, name: str, memory: Memory) -> list[dict[str, Any]]:
        entries = list(self.entries(name))[1:]
        return [
            {
                "entry": entry, "operator": step.operator,
                "inputs": [_end(str(i), t, memory) for i, t in enumerate(step.inputs)],
                "variable": step.variable.arg[0], **dict(step.numbers),
                **({} if step.output is None else {"output": _end("rows", step.output, memory)}),
            }
            for entry, (_, step) in zip(entries, self.plan.host_steps)
        ]  # fmt: skip


def record(
    function: Callable[..., Any], examples: Examples, target: Target, before: Recorded | None = None
) -> Recorded:
    """Capture the function for a target. Every input and every output gets memory of its own, which a loader may read
    and write.

    `before`: an earlier recording of the function, for another target, whose inputs and outputs it shares.
    """
    inputs, by_name = named_inputs(function, examples), isinstance(examples, Mapping)
    given = before.inputs if before else {n: _memory_of(n, _numbers(t)) for n, t in inputs.items()}
    outputs: dict[str, Tensor] = {}
    texts: dict[str, list[str]] = {n: t.table[:-1].tolist() for n, t in inputs.items() if isinstance(t, Words)}
    arguments = {n: t.among(given[n]) if isinstance(t, Words) else given[n] for n, t in inputs.items()}

    def assigned() -> list[Tensor]:
        results = named_results(function(**arguments) if by_name else function(*arguments.values()))
        texts.update({n: t.table.tolist() for n, t in results.items() if isinstance(t, Words)})
        for n, t in results.items():
            if n in given:
                raise ExportError(f"An input and an output of the function are both called {n!r}: rename one of them.")
            memory = before.outputs[n] if before else _memory_of(n, _numbers(t), outside=True)
            outputs[n] = memory.assign(_numbers(t))
        return list(outputs.values())

    plan = capture(assigned, target, host_steps=True)
    if plan.refreshed:
        raise NotImplementedError(
            "The function draws random numbers: a bundle has no source of them yet; make them an input."
        )
    found = Recorded(function, plan, given, outputs, texts)
    if unknown := [str(v.arg[0]) for v in plan.variables if v not in found.variables]:
        raise NotImplementedError(
            f"The function has sizes that no input's shape tells ({', '.join(unknown)}): give an input that has them."
        )
    return found


def _multiple(size: Size) -> list[UOp]:
    """The variable that a size is a multiple of, if it is one."""
    terms = polynomial(as_index(size))
    return [v for m, k in terms.items() for v in m if len(terms) == len(m) == 1 and v.op is Ops.VARIABLE and k > 0]


def _memory_of(name: str, t: Tensor, outside: bool = False) -> Tensor:
    """Memory for an input or output: of its shape, or the part in use of memory for the largest shape it can have.

    `outside`: a recording writes to it as if it had been there before: no result is another's memory, or a view.
    """
    _check_dtype(name, t)
    made = Tensor.empty(*map(size_max, t.shape), dtype=t.dtype, device=t.device).realize()
    if outside:
        recorder = current_recorder()
        assert recorder is not None
        recorder.outside.add(made.uop.buffer)
    return made.shrink([(0, _bound(s)) for s in t.shape])


def _bound(size: Size) -> Size:
    """A size whose variables have some value, as launches ask for."""
    return size if isinstance(size, int) else bound_size(size, {v.arg[0]: v.vmin for v in size.variables()})


def _numbers(value: Tensor | Words) -> Tensor:
    return value.places if isinstance(value, Words) else value


def only_numbers(named: Mapping[str, Tensor | Words], what: str) -> dict[str, Tensor]:
    """The tensors, for who has no text; ExportError where there is any."""
    if text := [n for n, t in named.items() if isinstance(t, Words)]:
        raise ExportError(f"The {what} {text[0]!r} is text: give or return the numbers of words.")
    return {n: _numbers(t) for n, t in named.items()}


def named_inputs(function: Callable[..., Any], examples: Examples) -> Mapping[str, Tensor | Words]:
    named = examples if isinstance(examples, Mapping) else dict(zip(_parameters(function, len(examples)), examples))
    for n, t in named.items():
        if not isinstance(t, Tensor | Words):
            raise ExportError(f"The example input {n!r} is a {type(t).__name__}: give a Tensor of its shape and dtype.")
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):  # something built in
        return named
    try:
        parameters.bind(**named) if isinstance(examples, Mapping) else parameters.bind(*named.values())
    except TypeError as error:
        raise ExportError(f"The example inputs are not the function's parameters {parameters}: {error}.") from None
    return named


def _parameters(function: Callable[..., Any], count: int) -> list[str]:
    """Names for `count` arguments by position."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # something built in
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [names[i] if i < len(names) else f"input{i}" for i in range(count)]


def named_results(result: Any) -> dict[str, Tensor | Words]:
    if isinstance(result, Mapping):
        named = {str(n): t for n, t in result.items()}
    elif isinstance(result, list | tuple):
        named = {f"output{i}": t for i, t in enumerate(result)}
    else:
        named = {"output": result}
    for n, t in named.items():
        if not isinstance(t, Tensor | Words):
            raise ExportError(f"The function's {n} is a {type(t).__name__}: return tensors, or a dict or list of them.")
    if not named:
        raise ExportError("The function returns nothing: return the tensors that the page is to have.")
    return named


def _check_dtype(name: str, t: Tensor) -> None:
    """ExportError where JavaScript has no array for an input or output."""
    if t.dtype not in ARRAYS:
        raise ExportError(f"{name} is {t.dtype.name}, for which JavaScript has no typed array: cast it first.")


def share_memory(
    recorded: Mapping[str, Recorded],
    again: Mapping[str, Recorded] | None = None,
    divided: Mapping[UOp, Parts] | None = None,
) -> Memory:
    """The memory of functions by name: inputs and outputs of each, and weights and state, which they share.

    `again`: recordings of the same functions for another target (`before` of `record`). `divided`: what one of them
    binds in parts.
    """
    every = {**recorded, **{f"{name} again": r for name, r in (again or {}).items()}}
    plans = {name: r.plan for name, r in every.items()}
    return plan_memory(plans, [*_ends(recorded), *_outside(recorded, every.values())], divided)


def _ends(recorded: Mapping[str, Recorded]) -> Iterator[Named]:
    """Inputs and outputs: memory that stays where a page can reach it."""
    for name, r in recorded.items():
        prefix = f"{name}." if len(recorded) > 1 else ""
        for n, t in (*r.inputs.items(), *r.outputs.items()):
            yield Named(prefix + n, "state", t.uop.buffer, t.dtype, tuple(map(size_max, t.shape)), nbytes(t.uop.buffer))


def _outside(recorded: Mapping[str, Recorded], every: Iterable[Recorded]) -> Iterator[Named]:
    """Memory from outside: weights where it is only read, state where a function updates it."""
    ends: dict[UOp, str] = {}
    used: dict[UOp, str] = {}  # with the device it is on
    written: set[UOp] = set()
    names: dict[UOp, tuple[str, tuple[int, ...]]] = {}
    for r in every:
        plan = r.plan
        ends |= {t.uop.buffer: n for n, t in (*r.inputs.items(), *r.outputs.items())}
        used |= {b: plan.device for c in plan.calls for b in c.buffers if b not in plan.memory.pool_of}
        written |= {b for c in plan.calls for b in c.written} - set(plan.temporaries)
        for _, step in plan.host_steps:
            ours = [t.uop.buffer for t in (*step.inputs, step.output) if t is not None]
            written |= set(ours)
            used |= dict.fromkeys(ours, plan.device)
        names = memory_names(r.function) | names
    taken = {n.name for n in _ends(recorded)}
    for b, place in used.items():
        if b in ends:
            continue
        title, shape = names.get(b, ("", (int(b.arg.size),)))
        title = _unique(title or f"{'state' if b in written else 'weight'}{len(taken)}", taken)
        size = nbytes(b)
        if b not in written:
            yield Named(title, "weight", b, b.dtype, shape, size, partial(read_memory, place, b))
            continue
        if any(read_memory(place, b, 0, size)):
            raise NotImplementedError(
                f"The function updates {title}, which is not zero at first: a bundle's state begins as zeros."
            )
        yield Named(title, "state", b, b.dtype, shape, size)


def _unique(name: str, taken: set[str]) -> str:
    found, n = name, 2
    while found in taken:
        found, n = f"{name}.{n}", n + 1
    taken.add(found)
    return found


def memory_names(function: Callable[..., Any]) -> dict[UOp, tuple[str, tuple[int, ...]]]:
    """Names and shapes of the memory that a model or a closure holds, as far as attributes and variables lead to it."""
    roots: dict[str, Any] = {"": getattr(function, "__self__", function)}
    inner = inspect.unwrap(function)
    if inspect.isfunction(inner):
        found = inspect.getclosurevars(inner)
        roots |= {**found.globals, **found.nonlocals}
    names: dict[UOp, tuple[str, tuple[int, ...]]] = {}
    for prefix, root in roots.items():
        if inspect.ismodule(root) or inspect.isclass(root):
            continue
        for n, t in get_state_dict(root, prefix).items():
            if t.is_realized():
                names.setdefault(t.uop.buffer, (n, tuple(s for s in t.shape if isinstance(s, int))))
    return names


def _end(name: str, t: TensorCore, memory: Memory) -> dict[str, Any]:
    largest = [size_max(s) for s in t.shape]
    varies = {} if largest == list(t.shape) else {"sizes": [expression(s) for s in t.shape]}
    return {"name": name, "buffer": memory.ids[t.uop.buffer], "dtype": t.dtype.short, "shape": largest, **varies}
