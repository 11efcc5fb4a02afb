"""The glossary names modules that exist and names that they have; no two modules of the compiler share a name."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import tinyweb.graph.optimize as optimize
from tinyweb.graph.ir import AxisKind, Ops

ROOT = Path(__file__).parents[1]
COMPILER = ("graph", "render_c", "render_wgsl", "render_wasm")


def test_what_it_names_exists() -> None:
    text = (ROOT / "docs/glossary.md").read_text()
    named = set(re.findall(r"`([\w/.]+)`", text))
    paths = {n for n in named if "/" in n or n.endswith(".py")}
    assert len(paths) > 20
    assert not [p for p in paths if not (ROOT / "tinyweb" / p).exists()]
    actions = set(re.findall(r"`([A-Z]\w+)(?:\([^)]*\))?`", text)) - {"Tensor"}
    assert not [a for a in actions if not hasattr(optimize, a) and not hasattr(Ops, a)]
    for kind, name in re.findall(r"`(Ops|AxisKind)\.(\w+)`", text):
        assert hasattr({"Ops": Ops, "AxisKind": AxisKind}[kind], name)


def test_no_two_modules_of_the_compiler_have_one_name() -> None:
    names = Counter(p.stem for part in COMPILER for p in (ROOT / "tinyweb" / part).rglob("*.py"))
    assert [n for n, count in names.items() if count > 1 and n != "__init__"] == []
