"""No test draws a number that another run would not draw (tests/control/seeds.py), and none needs another before it."""

import ast
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.control import order, seeds

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
FILES = sorted(TESTS.rglob("*.py"))
MEANT = {TESTS / "control" / "seeds.py"}  # takes the seed of a run from the system

# without an argument these take a seed from the system; the others always do
SEEDED = {"default_rng", "Generator", "Random", "RandomState", "SeedSequence"}
FROM_THE_SYSTEM = {"SystemRandom", "urandom", "uuid1", "uuid4", "token_bytes", "token_hex", "randbits"}
# global generators are seeded before each test and fixture, but not while modules are imported
GLOBAL = {"random", "np.random", "numpy.random", "torch", "Tensor", "tinyweb.Tensor"}
DRAWS = re.compile(
    r"(kaiming|scaled|standard|trunc|xavier)_.*|rand.*|bernoulli|betavariate|binomial|bytes|choices?|exponential|gauss|"
    r"gumbel|integers|multinomial|normal|permutation|poisson|sample|seed|shuffle|uniform"
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def unseeded(node: ast.AST, in_function: bool = False) -> list[int]:
    """Lines below `node` that draw what another run would not draw, or settle what the seed of the run settles."""
    lines = []
    if isinstance(node, ast.Call):
        owner, _, name = ast.unparse(node.func).rpartition(".")
        keywords = {k.arg for k in node.keywords}
        if (
            (name in SEEDED and not node.args and not node.keywords)
            or name in FROM_THE_SYSTEM
            or (owner in GLOBAL and DRAWS.fullmatch(name) and "generator" not in keywords and not in_function)
            or (name == "settings" and keywords & {"derandomize", "database", "deadline"})
        ):
            lines.append(node.lineno)
    for child in ast.iter_child_nodes(node):
        lines += unseeded(child, in_function or isinstance(node, FUNCTIONS))
    return lines


def test_every_draw_has_a_seed() -> None:
    assert len(FILES) > 150
    found = [f"{f.relative_to(TESTS)}:{n}" for f in FILES if f not in MEANT for n in unseeded(ast.parse(f.read_text()))]
    assert not found, f"another run would draw something else: {', '.join(found)}"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("np.random.default_rng()", 1),
        ("np.random.default_rng(3)", 0),
        ("x = Generator()", 1),
        ("Random().random()", 1),
        ("uuid.uuid4()", 1),
        ("X = np.random.randn(3)", 1),
        ("X = torch.randn(3)", 1),
        ("X = torch.randn(3, generator=g)", 0),
        ("def test():\n  x = torch.randn(3)", 0),
        ("make = lambda: Tensor.rand(3)", 0),
        ("@settings(derandomize=True)\ndef test(): pass", 1),
        ("@settings(max_examples=3)\ndef test(): pass", 0),
    ],
)
def test_what_counts_as_unseeded(text: str, count: int) -> None:
    assert len(unseeded(ast.parse(text))) == count


DRAWING = """
import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinyweb import Tensor

def numbers():
    return random.random(), np.random.rand(), Tensor.rand(1, device="INTERPRETER").item()

@pytest.fixture(scope="module")
def shared():
    return numbers()

@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_global(name, shared):
    print("drawn", name, shared, numbers())

@settings(max_examples=5)
@given(st.lists(st.integers(), min_size=5, max_size=5))
def test_examples(x):
    print("drawn", x)
"""


def drawn(folder: Path, *options: str, seed: str = "0") -> tuple[set[str], str]:
    """What the tests of DRAWING draw in a run of their own, and the report."""
    (folder / "test_drawing.py").write_text(DRAWING)
    plugins = ["-p", "tests.control.seeds", "-p", "tests.control.order", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), *plugins, "-s", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), seeds.VARIABLE: seed}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line[line.index("drawn") :] for line in done.stdout.splitlines() if "drawn " in line}, done.stdout


def test_runs_draw_the_same_numbers_in_any_order(tmp_path: Path) -> None:
    usual, _ = drawn(tmp_path)
    assert len(usual) == 8
    other, report = drawn(tmp_path, seed="random")
    assert other & usual <= {"drawn [0, 0, 0, 0, 0]"}  # Hypothesis begins with zeros
    seed = report.partition(f"({seeds.VARIABLE}=")[2].partition(" ")[0]
    again, _ = drawn(tmp_path, "--order-seed", "3", "-k", "two or examples", seed=seed)
    assert len(again) == 6 and again < other


def test_another_order_keeps_files_together() -> None:
    places = [(path, f"{path}::test_{i}") for path in "abcdef" for i in range(9)]
    orders = [sorted(range(len(places)), key=order.keys(seed, places).__getitem__) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    for found in orders:
        assert sorted(found) == list(range(len(places))) != found
        files = [places[i][0] for i in found]
        assert len([x for x, y in pairwise(files) if x != y]) == 5


def test_the_order_does_not_depend_on_how_tests_are_collected() -> None:
    places = [(path, f"{path}::test_{i}") for path in "abc" for i in range(5)]
    keys = dict(zip(places, order.keys(7, places)))
    assert dict(zip(places[::-1], order.keys(7, places[::-1]))) == keys
