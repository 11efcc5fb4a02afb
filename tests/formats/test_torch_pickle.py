"""Every instruction of the stack machine, by programs of a few bytes: plain values beside Python's own unpickler."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import pytest

from tinyweb.formats import torch_pickle
from tinyweb.formats.torch_pickle import Instance, Name, PickleError, read_pickle

LONG = struct.pack("<Q", 2)
PLAIN = [
    b"I5\n.", b"I-7\n.", b"I01\n.", b"I00\n.", b"J\xfe\xff\xff\xff.", b"K\xff.", b"M\xff\xfe.", b"L7L\n.",
    b"\x8a\x02\xff\x7f.", b"\x8b\x02\0\0\0\0\x80.", b"S'ab'\n.", b"T\x02\0\0\0ab.", b"U\x02ab.", b"B\x02\0\0\0ab.",
    b"C\x02ab.", b"\x8e" + LONG + b"ab.", b"\x96" + LONG + b"ab.", b"Vab\n.", b"\x8c\x02ab.", b"X\x02\0\0\0ab.",
    b"\x8d" + LONG + b"ab.", b"F1.5\n.", b"G" + struct.pack(">d", -2.25) + b".",
    b"N.", b"\x88.", b"\x89.", b"].", b"}.", b").", b"\x80\x04\x95\x02\0\0\0\0\0\0\0N.",
    b"(K\1K\2K\3l.", b"(K\1K\2K\3t.", b"(K\1K\2K\3K\4d.", b"(l.", b"(t.", b"(d.",
    b"K\1K\2K\3\x85.", b"K\1K\2K\3\x86.", b"K\1K\2K\3\x87.", b"K\1(K\2K\3t\x86.",
    b"K\1K\2p7\n0g7\n\x86.", b"K\1K\2q\x070h\x07\x86.", b"K\1K\2r\7\0\0\0" + b"0j\7\0\0\0\x86.",
    b"K\1\x94K\2\x94K\3h\1h\0\x87.", b"K\1K\2K\x030\x86.", b"K\1K\2(K\3K\x041\x86.", b"K\1K\x022\x87.",
    b"]]K\1a\x86.", b"](K\1K\2e.", b"]](K\1K\2e\x86.", b"}}K\1K\2s\x86.", b"}(K\1K\2K\3K\4u.", b"}}(K\1K\2u\x86.",
    b"}(K\1K\2K\1K\3u.", b"K\1.",
]  # fmt: skip


@pytest.mark.parametrize("program", PLAIN, ids=repr)
def test_plain_values_are_those_of_python(program: bytes) -> None:
    want = pickle.loads(program)
    found = inert(program)
    assert found == want and type(found) in (type(want), bytes)


def inert(program: bytes, **known: Any) -> Any:
    return read_pickle(program, {Name("m", n): f for n, f in known.items()}, lambda identifier: ("outside", identifier))


def test_sets_are_lists() -> None:
    assert inert(b"\x8f(K\1K\2\x90.") == inert(b"(K\1K\2\x91.") == [1, 2]
    assert inert(b"\x8f\x8f(K\1\x90\x86.") == ([], [1])


def test_names() -> None:
    assert inert(b"cmod\na b\n.") == Name("mod", "a b") == inert(b"\x8c\x03mod\x8c\x03a b\x93.")
    for wrong in (b"K\1\x8c\1a\x93.", b"\x8c\1aK\1\x93."):
        with pytest.raises(PickleError, match=r"^is damaged$"):
            inert(wrong)


def test_what_lies_outside() -> None:
    assert inert(b"P7\n.") == ("outside", "7")
    assert inert(b"K\1K\7Q\x86.") == (1, ("outside", 7))


NAME = b"cm\nf\n"
CALLS = {
    "reduce": NAME + b"K\1K\2\x86R.", "newobj": NAME + b"K\1K\2\x86\x81.", "newobj_ex": NAME + b"K\1K\2\x86}\x92.",
    "inst": b"(K\1K\2im\nf\n.", "obj": b"(" + NAME + b"K\1K\2o.",
}  # fmt: skip


@pytest.mark.parametrize("program", CALLS.values(), ids=CALLS)
def test_calls(program: bytes) -> None:
    """Of what is known the reader's own function is called; anything else stays an Instance."""
    assert inert(program, f=lambda *args: ("made", args)) == ("made", (1, 2))
    found = inert(program, g=None)
    assert isinstance(found, Instance) and found.kind == Name("m", "f") and found.args == (1, 2)
    assert found.state is None and found.attribute("a") is None and found.attribute("a", 5) == 5
    below = inert(b"K\x09" + program[:-1] + b"\x86.", f=lambda *args: args)
    assert below == (9, (1, 2))


def test_what_no_name_stands_for_is_called_by_nobody() -> None:
    found = inert(b"]K\1\x85R.", f=len)
    assert isinstance(found, Instance) and found.kind == [] and found.args == (1,)
    assert inert(b"(cm\na b\nK\1o.").kind == inert(b"(K\1im\na b\n.").kind == Name("m", "a b")


MADE = NAME + b")R"
STATES = [
    (b"}K\1K\2s", {1: 2}),
    (b"}K\1K\2s}\x86", {1: 2}),  # with the values of slots
    (b"}}K\1K\2s\x86", {}),
    (b"}K\1K\2s}}\x87", ({1: 2}, {}, {})),
    (b"}\x85", ({},)),
    (b"N}\x86", (None, {})),
    (b"(}}l", [{}, {}]),
    (b"K\5", 5),
]


@pytest.mark.parametrize(("state", "want"), STATES)
def test_states(state: bytes, want: Any) -> None:
    found, other = inert(MADE + MADE + state + b"b0" + MADE + b"\x86."), inert(MADE + state + b"b.")
    assert other.state == want and found[0].state is None
    third = inert(MADE + MADE + state + b"b\x86.")
    assert third[0].state is None and third[1].state == want
    if isinstance(want, dict):
        assert other.attribute(1) == want.get(1) and other.attribute("none", 3) == 3
    else:
        assert other.attribute(0, "default") == "default"


def test_collections_of_their_own_kind_are_let_alone() -> None:
    """A subclass of list or dict: what it would hold is not needed. Plain values keep no state."""
    for program in (b"K\1a.", b"(K\1K\2e.", b"K\1K\2s.", b"(K\1K\2u."):
        assert isinstance(inert(MADE + program), Instance)
    assert inert(b"]K\1b.") == []


DAMAGED = [
    b"", b".", b"N", b"(.", b"K\1K\2a.", b"K\1(K\2e.", b"]K\1K\2s.", b"}(K\1u.", b"}(K\1K\2K\3u.", b"(K\1d.",
    NAME + b"]R.", NAME + b"K\1\x81.", b"K\1(\x86.", b"h\0.", b"g0\n.", b"0.", b"(K\1" + b"0" * 3 + b".", b"\xff.",
    b"K\1e.", b"K\x011.", b"2.", b"p0\n.", b"\x94.",
]  # fmt: skip


@pytest.mark.parametrize("program", DAMAGED, ids=repr)
def test_damaged(program: bytes) -> None:
    with pytest.raises(PickleError, match=r"^is damaged$"):
        inert(program)


@pytest.mark.parametrize("name", ["EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"])
def test_instructions_without_a_place(name: str) -> None:
    code = {"EXT1": b"\x82\1", "EXT2": b"\x83\1\0", "EXT4": b"\x84\1\0\0\0", "NEXT_BUFFER": b"\x97"}.get(name, b"\x98")
    with pytest.raises(PickleError, match=f"uses the instruction {name}, which has no place in a file of weights"):
        inert(code + b".")


KEYS: list[tuple[Any, bool]] = [
    (None, True), (True, True), ("a", True), (b"a", True), (0, True), (2**31 - 1, True), (1 - 2**31, True),
    (2**31, False), (-(2**31), False), (1.5, False), ((), True), ((1,) * 8, True), ((1,) * 9, False),
    ((1, "a", None), True), ((1, 2.5), False), (((),), False), ((1, 2**31), False),
]  # fmt: skip


@pytest.mark.parametrize(("key", "good"), KEYS, ids=repr)
def test_keys(key: Any, good: bool) -> None:
    program = pickle.dumps({key: 1}, 4)
    if good:
        assert inert(program) == {key: 1}
    else:
        with pytest.raises(PickleError, match=f"^has a {type(key).__name__} as the key of a dictionary$"):
            inert(program)


def test_names_and_instances_are_keys() -> None:
    assert inert(b"}" + NAME + b"K\1s.") == {Name("m", "f"): 1}
    assert list(inert(b"}" + MADE + b"K\1s.").values()) == [1]
    assert inert(b"}(" + NAME + b"t" + b"K\1s.") == {(Name("m", "f"),): 1}


def test_as_many_instructions_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_pickle.MAX_INSTRUCTIONS == 1_000_000
    monkeypatch.setattr(torch_pickle, "MAX_INSTRUCTIONS", 6)
    assert inert(b"N0N0N\x85.") == (None,)  # the seventh is the end
    with pytest.raises(PickleError, match=r"^has more than 6 instructions$"):
        inert(b"N0N0NN\x86.")
