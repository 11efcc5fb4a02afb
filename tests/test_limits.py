"""Nothing waits for ever: what a test waits for beyond its own process has a limit of its own.

pytest ends a test after ten minutes (`timeout` in pyproject.toml) and a process that does not return after that; these
limits are nearer to the cause and say what was waited for.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
# functions that wait for a process or thread, and the argument that is their limit
WAITING = {"run": "timeout", "communicate": "timeout", "check_output": "timeout", "check_call": "timeout"}
FILES = sorted(TESTS.rglob("*.py"))


def unlimited(tree: ast.AST) -> list[int]:
    """Lines that call one of `subprocess`'s waiting functions, or wait for a process or thread, without a limit."""
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        of, name = node.func.value, node.func.attr
        keywords = {k.arg for k in node.keywords}
        if isinstance(of, ast.Name) and of.id == "subprocess" and name in WAITING:
            waits = WAITING[name] not in keywords
        elif name in ("wait", "communicate", "join") and isinstance(of, ast.Name | ast.Attribute):
            # of a process, a thread or an event; joining a string takes an argument
            waits = not node.args and not keywords
        else:
            continue
        if waits:
            lines.append(node.lineno)
    return lines


def test_every_wait_has_a_limit() -> None:
    assert len(FILES) > 150
    found = [f"{file.relative_to(TESTS)}:{line}" for file in FILES for line in unlimited(ast.parse(file.read_text()))]
    assert not found, f"without a limit: {', '.join(found)}"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("subprocess.run(['true'])", 1),
        ("subprocess.run(['true'], timeout=3)", 0),
        ("process.wait()", 1),
        ("thread.join()", 1),
        ("thread.join(3)", 0),
        ("server.thread.join()", 1),
        ("words.join(['a'])", 0),
    ],
)
def test_what_counts_as_a_wait(line: str, count: int) -> None:
    assert len(unlimited(ast.parse(line))) == count


def text_that_is_waited_for(tree: ast.AST) -> list[int]:
    """Lines that wait for an expression in a page: a page's policy forbids to evaluate text a second time."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "wait_for_function"
        if isinstance(node.args[0], ast.Constant) and "=>" not in str(node.args[0].value).partition("\n")[0]
    ]


def test_pages_are_asked_by_functions() -> None:
    found = {file.name: text_that_is_waited_for(ast.parse(file.read_text())) for file in FILES}
    assert not {name: lines for name, lines in found.items() if lines}, "give `() => …`"
    assert text_that_is_waited_for(ast.parse("page.wait_for_function('globalThis.x')")) == [1]
