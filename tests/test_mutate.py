"""The mutation check: what faults it plants, and that it tells a test that notices from one that does not."""

from __future__ import annotations

import ast
import json
import marshal
import os
import subprocess
import sys
from pathlib import Path

import mutate  # tools/mutate.py
import pytest
from mutations import compile_mutated, mutations  # tools/mutations.py

SOURCE = '''
"""Words 1 + 1 of a module."""
from __future__ import annotations
__all__ = ["clamp"]

def clamp(value: int | float, low: int = 0, *, step=2):
    """1 < 2."""
    assert value != 7, "no 7"
    if value < low or not step:
        raise ValueError(f"{value + 1} is below {low}")
    for i in range(3):
        if i == value:
            continue
    return max([value, low][1:]) + 1
'''


def planted(source: str) -> list[str]:
    return [f"{m.line} {m}" for m in mutations(source)[1]]


def test_faults_are_planted_in_behaviour_alone() -> None:
    assert planted(SOURCE) == [
        "6 constant: 0 -> 1",
        "6 constant: 0 -> -1",
        "6 constant: 2 -> 3",
        "6 constant: 2 -> 1",
        "9 condition: value < low or not step -> not (value < low or not step)",
        "9 boolean: value < low or not step -> value < low and (not step)",
        "9 comparison: value < low -> value <= low",
        "9 comparison: value < low -> value >= low",
        "9 unary: not step -> step",
        "10 raise: raise ValueError(f'{value + 1} is below {low}') -> pass",
        "11 constant: 3 -> 4",
        "11 constant: 3 -> 2",
        "12 comparison: i == value -> i != value",
        "13 jump: continue -> pass",
        "14 operator: max([value, low][1:]) + 1 -> max([value, low][1:]) - 1",
        "14 function: max([value, low][1:]) -> min([value, low][1:])",
        "14 slice: 1: -> :",
        "14 constant: 1 -> 2",
        "14 constant: 1 -> 0",
        "14 constant: 1 -> 2",
        "14 constant: 1 -> 0",
    ]


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("y = [a for a in b if a > 0]", 5),
        ("y = f(a, b)", 1),
        ("y = isinstance(a, b)", 0),
        ("y = a if b else c", 1),
        ("if a:\n  pass\nelif b:\n  pass", 3),
        ("while a and b:\n  break", 3),
        ("x: int = 3", 2),
        ("y = 'a' + b", 0),
        ("y = True", 1),
        ("y = 0.5", 2),
        ("y <<= 2", 3),
        ("y = lambda a: a << b", 1),
        ("def f(a):\n  if a is None:\n    return a\n  return b", 2),
        ("f(a)", 1),
        ("y = x[a:b:c]", 3),
    ],
)
def test_number_of_faults(source: str, faults: int) -> None:
    found = planted(source)
    assert len(found) == faults, found
    assert len(set(found)) == faults


def test_each_fault_changes_the_code_and_is_taken_back() -> None:
    tree, found = mutations(SOURCE)
    whole = ast.dump(tree)

    original = marshal.dumps(compile(tree, "clamp.py", "exec"))
    for m in found:
        assert marshal.dumps(compile_mutated(tree, m, "clamp.py")) != original, m
        assert ast.dump(tree) == whole, m


def test_the_lines_of_a_fault_are_those_that_run_with_it() -> None:
    source = "TABLE = {\n  1: lambda a: a + 1,\n  2: 3,\n}\ndef f(a):\n  return (\n    a\n    + 1\n  )"
    by_text = {str(m): m for m in mutations(source)[1]}
    assert by_text["operator: a + 1 -> a - 1"].lines == (6, 9)
    of_lambda = next(m for m in mutations(source)[1] if m.kind == "operator")
    assert of_lambda.lines == (2, 2) and not of_lambda.imported
    assert by_text["constant: 3 -> 4"].imported


def test_tests_are_tried_by_cost_those_of_the_line_first() -> None:
    _, found = mutations("def f(a):\n  if a:\n    return a < 1\n  return 2")
    comparison = next(m for m in found if m.kind == "comparison")
    runs = {
        "slow": mutate.Run(5, {"m.py": [2, 3]}), "quick": mutate.Run(1, {"m.py": [1, 2, 3]}),
        "beside": mutate.Run(0.1, {"m.py": [2, 4]}), "elsewhere": mutate.Run(0.1, {"n.py": [3]}),
    }  # fmt: skip
    assert mutate.choose(comparison, "m.py", runs, 100)[0] == ["quick", "slow", "beside"]
    assert mutate.choose(comparison, "m.py", runs, 3)[0] == ["quick"]
    last = next(m for m in found if m.line == 4)
    assert mutate.choose(last, "m.py", runs, 100)[0] == ["beside", "quick", "slow"]
    assert mutate.choose(comparison, "other.py", runs, 100) == ([], 0.0)


TRY = """
import json, sys
from pathlib import Path
import mutate
mutate.ROOT = mutate.WORK = mutate.TREE = Path(sys.argv[1])
tree, found = mutate.mutations((mutate.TREE / "halving.py").read_text())
for fault in found:
    if str(fault) in sys.argv[2:]:
        result = mutate.try_mutant("halving.py", tree, fault, ["test_halving.py"], 0.0, 2.0)
        print(json.dumps([str(fault), result.status, result.by]))
"""


def test_a_fault_is_killed_survives_or_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "halving.py").write_text("def half(n):\n    while n > 10:\n        n -= 1\n    return n // 2 + 0\n")
    test = "from halving import half\ndef test_half():\n    assert half(20) == 5\n"
    (tmp_path / "test_halving.py").write_text(test)
    wanted = {
        "operator: n -= 1 -> n += 1": ("timed out", "timed out"),
        "operator: n // 2 -> n * 2": ("killed", "test_halving.py::test_half"),
        "operator: n // 2 + 0 -> n // 2 - 0": ("survived", "1 tests"),
    }
    command = [sys.executable, "-c", TRY, str(tmp_path), *wanted]
    # options of the run that this test is part of are not those of a folder without its plugins
    environment = os.environ | {"PYTHONPATH": str(mutate.ROOT / "tools"), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    found = {fault: (status, by) for fault, status, by in map(json.loads, done.stdout.splitlines())}
    assert found == wanted
    assert not list(tmp_path.rglob("halving.*.pyc"))  # nothing of a fault stays
    assert (tmp_path / "test_halving.py").read_text() == test


def test_equivalent_mutants_have_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "EQUIVALENT", tmp_path / "equivalent.txt")
    mutate.EQUIVALENT.write_text("# words\n\na.py\nx = a < b\ncomparison: a < b -> a <= b\nbecause: never equal\n")
    assert mutate.equivalents() == {("a.py", "x = a < b", "comparison: a < b -> a <= b")}
    mutate.EQUIVALENT.write_text("a.py\nx = a < b\ncomparison: a < b -> a <= b\n")
    with pytest.raises(SystemExit, match="because"):
        mutate.equivalents()


def test_every_module_named_has_tests_that_exist() -> None:
    for module, tests in mutate.BELONG.items():
        assert (mutate.ROOT / module).exists(), module
        for path in tests.split():
            assert (mutate.ROOT / path).exists(), path
