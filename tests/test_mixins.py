"""Topics of Tensor are mixins that depend on what they use, and on nothing else."""

from __future__ import annotations

import ast
import inspect
import sys

from tinyweb import Tensor
from tinyweb.array.core import TensorCore

TOPICS = [c for c in Tensor.__mro__ if issubclass(c, TensorCore) and c not in (Tensor, TensorCore)]


def used(topic: type) -> set[str]:
    tree = ast.parse(inspect.getsource(sys.modules[topic.__module__]))
    names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    if any(isinstance(n, ast.BinOp | ast.Compare | ast.UnaryOp | ast.Subscript) for n in ast.walk(tree)):
        names.add("__add__")
    return names


def test_topics_add_no_memory() -> None:
    assert len(TOPICS) > 30
    for topic in TOPICS:
        assert topic.__dict__["__slots__"] == (), topic


def test_no_method_is_defined_by_two_topics() -> None:
    home: dict[str, type] = {}
    for topic in TOPICS:
        for name in topic.__dict__:
            if not name.startswith("__") or name.endswith("add__"):
                assert home.setdefault(name, topic) is topic, f"{name}: {home[name]} and {topic}"


def test_a_topic_builds_on_topics_that_it_uses() -> None:
    """One whose base brings nothing that is used, itself or through what it builds on, could do without it."""
    for topic in TOPICS:
        names = used(topic)
        for base in topic.__bases__:
            if base is TensorCore:
                continue
            brought = {n for c in base.__mro__ if c in TOPICS for n in c.__dict__}
            others = {n for b in topic.__bases__ if b is not base for c in b.__mro__ for n in c.__dict__}
            assert names & (brought - others), f"{topic.__name__} does not use {base.__name__}"
