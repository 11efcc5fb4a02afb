"""Reading Python pickles without running them.

A pickle is a program for a stack machine that names functions and calls them, so that unpickling a stranger's file
runs the stranger's code. Here the same instructions build inert values: what the pickle names stays a `Name`, what it
calls or instantiates becomes an `Instance` that remembers the arguments and the state. Only `known` constructors,
given by the reader, make something else. Nothing is ever imported or called on the pickle's behalf.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

MAX_INSTRUCTIONS = 1_000_000
_SMALL = 1 << 31  # integers as keys: larger ones could be chosen so that their hashes collide


class PickleError(ValueError):
    """The pickle is damaged, or uses what has no place in a file of weights; the message is the end of a sentence."""


class Name(NamedTuple):
    """Something the pickle would import."""

    module: str
    name: str


class Instance:
    """What the pickle would make by calling or instantiating `kind`; `state` is what it would be given."""

    def __init__(self, kind: Any, args: Any):
        self.kind, self.args = kind, args
        self.state: Any = None

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.state.get(name, default) if isinstance(self.state, dict) else default


Known = Mapping[Name, Callable[..., Any]]  # raise PickleError or TypeError for arguments that do not fit
_MARK = object()
_PUSHED = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
    "BINUNICODE8", "FLOAT", "BINFLOAT",
}  # fmt: skip
_MADE: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_LIST": list, "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple, "EMPTY_SET": list, "MARK": lambda: _MARK,
}  # fmt: skip
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read_pickle(data: bytes, known: Known, persistent: Callable[[Any], Any]) -> Any:
    """The value that `data` describes, sets as lists. `persistent` makes the values that lie outside of the pickle
    from their identifiers. PickleError where it cannot be read."""
    machine = _Machine(known, persistent)
    try:
        for count, (instruction, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_INSTRUCTIONS:
                raise PickleError(f"has more than {MAX_INSTRUCTIONS} instructions")
            if instruction.name != "STOP":  # the last one
                machine.step(instruction.name, argument)
        return machine.pop()
    except PickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise PickleError("is damaged") from None


class _Machine:
    """The stack machine of pickle protocols 0 to 5."""

    def __init__(self, known: Known, persistent: Callable[[Any], Any]):
        self.known, self.persistent = known, persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise PickleError("is damaged")
        return value

    def items(self) -> list[Any]:
        """What lies above the last mark."""
        found: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            found.append(value)
        return found[::-1]

    def step(self, name: str, argument: Any) -> None:
        if name in _PUSHED:
            self.stack.append(argument)
        elif name in _MADE:
            self.stack.append(_MADE[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            values = tuple(self.pop() for _ in range(count))[::-1]
            self.stack.append(values)
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[int(argument)])
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else int(argument)] = self.stack[-1]
        elif (do := getattr(self, f"do_{name.lower()}", None)) is not None:
            do(argument)
        elif name not in ("PROTO", "FRAME"):
            raise PickleError(f"uses the instruction {name}, which has no place in a file of weights")

    def do_pop(self, _: Any) -> None:
        self.stack.pop()

    def do_pop_mark(self, _: Any) -> None:
        self.items()

    def do_dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def do_list(self, _: Any) -> None:
        self.stack.append(self.items())

    def do_frozenset(self, _: Any) -> None:
        self.stack.append(self.items())

    def do_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self.items()))

    def do_dict(self, _: Any) -> None:
        made: dict[Any, Any] = {}
        self._set(made, self.items())
        self.stack.append(made)

    def do_append(self, _: Any) -> None:
        self._extend([self.pop()])

    def do_appends(self, _: Any) -> None:
        self._extend(self.items())

    def do_additems(self, _: Any) -> None:
        self._extend(self.items())

    def do_setitem(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self._set(self.stack[-1], [key, value])

    def do_setitems(self, _: Any) -> None:
        items = self.items()
        self._set(self.stack[-1], items)

    def do_global(self, argument: str) -> None:
        self.stack.append(Name(*argument.split(" ", 1)))

    def do_stack_global(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise PickleError("is damaged")
        self.stack.append(Name(module, name))

    def do_reduce(self, _: Any) -> None:
        args, function = self.pop(), self.pop()
        self.stack.append(self._call(function, args))

    def do_newobj(self, _: Any) -> None:
        args, kind = self.pop(), self.pop()
        self.stack.append(self._call(kind, args))

    def do_newobj_ex(self, _: Any) -> None:
        self.pop()
        self.do_newobj(None)

    def do_inst(self, argument: str) -> None:
        self.stack.append(self._call(Name(*argument.split(" ", 1)), tuple(self.items())))

    def do_obj(self, _: Any) -> None:
        kind, *args = self.items()
        self.stack.append(self._call(kind, tuple(args)))

    def do_build(self, _: Any) -> None:
        state = self.pop()
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict):  # with the values of slots
            state = state[0]
        if isinstance(self.stack[-1], Instance):
            self.stack[-1].state = state

    def do_persid(self, argument: str) -> None:
        self.stack.append(self.persistent(argument))

    def do_binpersid(self, _: Any) -> None:
        self.stack.append(self.persistent(self.pop()))

    def _call(self, function: Any, args: Any) -> Any:
        if not isinstance(args, tuple):
            raise PickleError("is damaged")
        make = self.known.get(function) if isinstance(function, Name) else None
        return Instance(function, args) if make is None else make(*args)

    def _extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, Instance):  # a list of a kind of its own: not needed
            raise PickleError("is damaged")

    @staticmethod
    def _set(target: Any, items: list[Any]) -> None:
        if isinstance(target, Instance):  # a dict of a kind of its own: not needed
            return
        if not isinstance(target, dict) or len(items) % 2:
            raise PickleError("is damaged")
        for key, value in zip(items[::2], items[1::2]):
            if not _is_key(key):
                raise PickleError(f"has a {type(key).__name__} as the key of a dictionary")
            target[key] = value


def _is_key(key: Any) -> bool:
    """Keys that hash quickly: no nesting that would exhaust the stack, no numbers made to collide."""
    if isinstance(key, Name):
        return True
    if type(key) is tuple:
        return len(key) <= 8 and all(type(k) is not tuple and _is_key(k) for k in key)
    return key is None or isinstance(key, str | bytes | Instance) or (isinstance(key, int) and abs(key) < _SMALL)
