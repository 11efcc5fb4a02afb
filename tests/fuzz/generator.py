"""Random programs of Tensor methods, each line beside what NumPy says it gives.

A program is Python text: it is carried out on any device, and printed as it stands when something is wrong. Lines are
proposed one by one by the functions in `PROPOSALS`; one that does not fit what is there raises `Undecided` and is
dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from tests.fuzz import reference as ref
from tests.fuzz.reference import Undecided, Value
from tinyweb.dtype import DType, dtypes

T = TypeVar("T")
MOST_AXES = 4
SMALL, LARGE = (0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 64, 100)
FLOATS = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
INTS = (dtypes.int32, dtypes.uint32, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
WIDE = (dtypes.int64, dtypes.uint64)  # and what other types WGSL has only by detours
STORED = (dtypes.float8_e4m3, dtypes.float8_e5m2)
TYPES = (
    dtypes.float32,
    dtypes.float32,
    dtypes.float32,
    dtypes.int32,
    dtypes.int32,
    *FLOATS,
    *INTS,
    *INTS,
    *WIDE,
    *STORED,
    dtypes.bool,
)


@dataclass(repr=False)
class Program:
    """Inputs, lines, and for every name what it must hold."""

    inputs: list[tuple[str, Value, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    variables: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # minimum, maximum, value
    outputs: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<a program of {len(self.lines)} lines>"

    def text(self, device: str) -> str:
        """A script that computes the outputs."""
        head = ["import numpy as np", "from tinyweb import Tensor, Variable, dtypes", ""]
        for name, (low, high, at) in self.variables.items():
            head.append(f'{name} = Variable("{name}", {low}, {high}).bind({at})')
        for name, v, data in self.inputs:
            head.append(f"{name} = Tensor({data}, dtype=dtypes.{v.dtype.name}, device={device!r})")
        tail = [f"{self.outputs[0]}.realize({', '.join(self.outputs[1:])})"]
        tail += [f"print({name}.numpy())  # {self.shown(name)}" for name in self.outputs]
        return "\n".join([*head, *self.lines, *tail])

    def shown(self, name: str) -> str:
        """The expected value, in short."""
        return np.array2string(self.values[name].array, threshold=30, separator=", ").replace("\n", "")

    def scope(self, device: str) -> dict[str, Any]:
        """All names once the lines are carried out; what they have not realized themselves is still to be computed."""
        from tinyweb import Tensor, Variable

        scope: dict[str, Any] = {"Tensor": Tensor, "dtypes": dtypes, "np": np}
        for name, (low, high, at) in self.variables.items():
            scope[name] = Variable(name, low, high).bind(at)
        for name, v, _ in self.inputs:
            scope[name] = Tensor(v.array, dtype=v.dtype, device=device)
        exec("\n".join(self.lines), scope)
        return scope

    def run(self, device: str) -> dict[str, np.ndarray]:
        """The outputs, computed by tinyweb."""
        scope = self.scope(device)
        first, *others = (scope[name] for name in self.outputs)
        first.realize(*others)
        for name in self.outputs:
            if scope[name].dtype is not self.values[name].dtype:
                raise AssertionError(f"{name} is {scope[name].dtype.name}, not {self.values[name].dtype.name}")
        return {name: scope[name].numpy() for name in self.outputs}


class Builder:
    """A program in the making."""

    def __init__(
        self,
        draw: st.DrawFn,
        types: Sequence[DType] = TYPES,
        symbolic: bool = True,
        updates: bool = True,
        sizes: Sequence[int] = SMALL,
        special: bool = False,
    ):
        self.draw, self.types, self.symbolic, self.updates, self.sizes = draw, types, symbolic, updates, sizes
        self.special = special  # infinities and NaN among the inputs
        self.most_elements = 400 if max(sizes) < 10 else 20000
        self.program = Program()

    # -- choosing ----------------------------------------------------------------------------------------------------
    def pick(self, options: Sequence[T]) -> T:
        if not options:
            raise Undecided("nothing to choose from")
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def some(self, accept: Callable[[Value], bool] = lambda v: True) -> tuple[str, Value]:
        """A value there is already, rather a late one."""
        names = [n for n, v in self.program.values.items() if accept(v)]
        late = names[-3:]
        name = self.pick(late + names)
        return name, self.program.values[name]

    def add(self, text: str, v: Value) -> str:
        """A line `name = text`."""
        if v.array.size > self.most_elements or len(v.shape) > MOST_AXES + 1:
            raise Undecided("too large")
        name = f"v{len(self.program.values)}"
        self.program.lines.append(f"{name} = {text}")
        self.program.values[name] = v
        return name

    # -- inputs ------------------------------------------------------------------------------------------------------
    def shape(self) -> tuple[int, ...]:
        sizes = [n for n in self.sizes if n or self.number(0, 7) == 0]
        shape: tuple[int, ...] = ()
        for _ in range(self.number(0, MOST_AXES - 1)):
            room = self.most_elements // max(1, math.prod(shape))
            shape += (self.pick([n for n in sizes if n <= room]),)
        return shape

    def numbers(self, dtype: DType, shape: tuple[int, ...]) -> str:
        """Python for an array of numbers that the dtype holds exactly."""
        seed = self.number(0, 99)
        chance = f"np.random.default_rng({seed})"
        if dtype is dtypes.bool:
            return f"{chance}.integers(0, 2, {shape}).astype(bool)"
        if dtype.is_float:
            few = (
                f"{chance}.integers(-7, 8, {shape}) / 4"
                if dtype in STORED
                else f"{chance}.integers(-32, 33, {shape}) / 8"
            )
            if self.special and dtype is not dtypes.float8_e4m3 and self.number(0, 3) == 0:
                odd = f"{chance}.choice([np.inf, -np.inf, np.nan], {shape})"
                few = f"np.where(np.random.default_rng({seed + 1}).random({shape}) < 0.25, {odd}, {few})"
            return f"np.float32({few})"
        name, low, high = dtype.numpy.name, int(dtype.min), int(dtype.max)
        if self.number(0, 2) == 0:
            return f"{chance}.integers({low}, {high}, {shape}, np.{name}, endpoint=True)"
        return f"np.{name}({chance}.integers({max(low, -5)}, 8, {shape}))"

    def input(self, dtype: DType | None = None, shape: tuple[int, ...] | None = None) -> tuple[str, Value]:
        dtype = dtype or self.pick(self.types)
        return self.given(dtype, self.numbers(dtype, self.shape() if shape is None else shape))

    def given(self, dtype: DType, text: str) -> tuple[str, Value]:
        """An input whose value is a Python expression."""
        name = f"v{len(self.program.values)}"
        array = np.asarray(eval(text, {"np": np}))
        self.program.inputs.append((name, Value(dtype, array), text))
        self.program.values[name] = v = ref.value(dtype, array)
        return name, v

    def variable(self, low: int, high: int) -> tuple[str, int]:
        """A symbolic size or place, new or there already, with its value."""
        fitting = [n for n, (a, b, _) in self.program.variables.items() if low <= a and b <= high]
        if fitting and self.flag():
            name = self.pick(fitting)
            return name, self.program.variables[name][2]
        if high < low:
            raise Undecided("no such variable")
        name = f"n{len(self.program.variables)}"
        at = self.number(low, high)
        self.program.variables[name] = (low, high, at)
        return name, at

    # -- operands ----------------------------------------------------------------------------------------------------
    def scalar(self, dtype: DType) -> tuple[str, Value]:
        """A Python number that takes the dtype of the tensor beside it."""
        if dtype is dtypes.bool:
            n: Any = self.flag()
        elif dtype.is_float:
            n = self.pick((0.5, -1.0, 2.0, 3.0, -0.25, 1.5))
        else:
            n = self.pick((0, 1, 2, 3, 7) if dtype.kind == "uint" else (0, 1, -1, 2, 3, -2, 7))
        return repr(n), ref.value(dtype, np.array(n))

    def operand(self, beside: Value) -> tuple[str, Value]:
        """Something to combine with a value: a number, another value of its dtype that broadcasts, one cast to it."""
        if self.number(0, 3) == 0:
            return self.scalar(beside.dtype)

        def fits(v: Value) -> bool:
            try:
                ref.common(v, beside)
            except Undecided:
                return False
            return math.prod(np.broadcast_shapes(v.shape, beside.shape)) <= self.most_elements

        if self.number(0, 4) == 0 and not beside.is_symbolic:
            keep = tuple(n if self.flag() else 1 for n in beside.shape[self.number(0, len(beside.shape)) :])
            return self.input(beside.dtype, keep)
        name, v = self.some(fits)
        if v.dtype is beside.dtype:
            return name, v
        return f"{name}.cast(dtypes.{beside.dtype.name})", ref.cast(v, beside.dtype)

    def axis(self, v: Value, accept: Callable[[int], bool] = lambda a: True) -> int:
        return self.pick([a for a in range(len(v.shape)) if accept(a)])

    def plain(self, a: int, v: Value) -> str:
        """An axis as a person may write it: from either end."""
        return str(a if self.flag() else a - len(v.shape))


@st.composite
def programs(
    draw: st.DrawFn,
    most: int = 12,
    types: Sequence[DType] = TYPES,
    symbolic: bool = True,
    updates: bool = True,
    sizes: Sequence[int] = SMALL,
    special: bool = False,
) -> Program:
    """A program of at most `most` lines with one to three outputs."""
    from tests.fuzz.proposals import PROPOSALS

    b = Builder(draw, types, symbolic, updates, sizes, special)
    for _ in range(b.number(1, 2)):
        b.input()
    for _ in range(b.number(most // 3, most)):
        propose = b.pick(PROPOSALS)
        p = b.program
        before = (len(p.inputs), len(p.lines), dict(p.values), dict(p.variables))
        try:
            with np.errstate(all="ignore"):
                propose(b)
        except Undecided:
            del p.inputs[before[0] :], p.lines[before[1] :]
            p.values, p.variables = before[2], before[3]
    names = list(b.program.values)
    wanted = {names[-1], *(b.pick(names) for _ in range(b.number(0, 2)))}
    b.program.outputs = [n for n in names if n in wanted]
    return b.program
