"""Write the API reference, docs/reference/*.md, from the docstrings of the package.

usage: python tools/reference.py [--check]        --check: change nothing, fail where a page is out of date
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tinyweb import Tensor

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"

DIFFERENCES = (
    "Methods that PyTorch has too are compared with it by random calls, right and wrong "
    "(`tests/tensor/test_arguments.py`): whether they are accepted, and shapes, dtypes and values. What follows is "
    "meant; any other difference is a defect. What PyTorch's kernels for processors lack (half floats in a few "
    "methods, say), and errors within its Python code, count as no difference."
)
DIFFERENCES_FOOT = (
    "*Generated from `tests/tensor/arguments/differences.py` by `make docs`: change that, not this page.*"
)
FOOT = "*Generated from the docstrings by `make docs`: change those, not this page.*"


@dataclass(frozen=True)
class Entry:
    """One documented function, method or class."""

    name: str
    signature: str
    text: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    title: str
    intro: str
    entries: tuple[Entry, ...]


class Undocumented(Exception):
    """Public names without a docstring."""


def function_of(member: Any) -> FunctionType | None:
    """The function behind a method, class method, static method or property."""
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    if isinstance(member, property):
        member = member.fget
    return member if isinstance(member, FunctionType) else None


def text_of(doc: str | None) -> str:
    """A docstring as Markdown: paragraphs are joined, lists and indented blocks stay."""
    return re.sub(r"\n{3,}", "\n\n", inspect.cleandoc(doc or "")).strip()


def signature_of(name: str, member: Any, owner: str = "Tensor") -> str:
    """`owner`: what a method that returns its own class returns."""
    function = inspect.unwrap(function_of(member) or member)
    if isinstance(member, property):
        returns = inspect.signature(function).return_annotation
        return f"{name}: {returns}".replace("Self", owner)
    shown = inspect.signature(function)
    parameters = list(shown.parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    text = str(shown.replace(parameters=parameters)).replace("'", "")
    return name + re.sub(r"\bTensorCore\b", "Tensor", re.sub(r"\bSelf\b", owner, text))


def title_of(module: ModuleType) -> tuple[str, str]:
    """The first sentence of a module's docstring, and the rest of it."""
    first, _, rest = (module.__doc__ or "").strip().partition("\n\n")
    return first.replace("\n", " ").rstrip("."), rest.strip("\n")


def entries_of(owner: type, names: Callable[[str], bool], missing: list[str]) -> Iterator[Entry]:
    """The public methods and properties a class itself defines, in the order of the source; aliases together."""
    grouped: dict[Any, list[str]] = {}
    for name, member in vars(owner).items():
        if names(name) and function_of(member) is not None:
            grouped.setdefault(function_of(member), []).append(name)
    for function, known in grouped.items():
        # the name it was defined under comes first
        known.sort(key=lambda n: n != function.__name__)
        if not function.__doc__:
            missing.append(f"{owner.__module__}.{owner.__name__}.{known[0]}")
        own = "Tensor" if owner in Tensor.__mro__ else owner.__name__
        signature = signature_of(known[0], vars(owner)[known[0]], own)
        yield Entry(known[0], signature, text_of(function.__doc__), tuple(known[1:]))


def public(name: str) -> bool:
    return not name.startswith("_")


def tensor_page(missing: list[str]) -> str:
    """All methods of Tensor, a section for each mixin it is made of."""
    sections = []
    defined: set[str] = set()
    for layer in Tensor.__mro__:
        if not layer.__module__.startswith("tinyweb."):
            continue
        entries = tuple(e for e in entries_of(layer, lambda n: public(n) and n not in defined, missing))
        defined.update(n for e in entries for n in (e.name, *e.aliases))
        title, intro = title_of(import_module(layer.__module__))
        if entries:
            sections.append(Section(title, intro if layer is not Tensor else "", entries))
    intro = (
        "Every method of `Tensor`, by topic. Names and semantics are PyTorch's; an axis may be negative, and the "
        "keywords `dim` and `keepdims` may stand for `axis` and `keepdim`. See [tensors](../tensor.md) for the ideas."
    )
    return render("Tensor", intro, sections[::-1])


def module_page(title: str, modules: list[str], missing: list[str]) -> str:
    """The public classes and functions of modules."""
    sections = []
    for path in modules:
        module = import_module(path)
        entries = []
        for name in getattr(module, "__all__", None) or [n for n in vars(module) if public(n)]:
            member = getattr(module, name)
            if not inspect.isclass(member) and not isinstance(inspect.unwrap(member), FunctionType):
                continue
            if not getattr(module, "__all__", None) and member.__module__ != path:
                continue
            if not member.__doc__ or member.__doc__.startswith(f"{name}("):
                missing.append(f"{path}.{name}")
            if inspect.isclass(member) and (issubclass(member, enum.Enum | Exception)):
                signature = f"class {name}"
            else:
                signature = signature_of(name, member)
            entries.append(Entry(name, signature, text_of(member.__doc__)))
            if inspect.isclass(member):
                methods: list[str] = []  # methods of layers may go without a word: __call__ is the class's own text
                for e in entries_of(member, public, methods):
                    if e.text:
                        entries.append(Entry(f"{name}.{e.name}", f"{name}.{e.signature}", e.text, e.aliases))
        heading, intro = title_of(module)
        sections.append(Section(heading, intro, tuple(entries)))
    return render(title, f"`import {modules[0].rpartition('.')[0] or modules[0]}`", sections)


def render(title: str, intro: str, sections: list[Section]) -> str:
    """A page: an overview of the sections, then each entry with its signature and text."""
    overview = [f"- **{s.title}**: " + ", ".join(f"`{e.name}`" for e in s.entries) for s in sections]
    parts = [f"# {title}", intro, "\n".join(overview)]
    for section in sections:
        parts += [f"## {section.title}", section.intro]
        for e in section.entries:
            parts += [f"### {e.name}", f"```python\n{e.signature}\n```", e.text]
            parts.append(f"Also: {', '.join(f'`{a}`' for a in e.aliases)}." if e.aliases else "")
    return "\n\n".join(p for p in (*parts, FOOT) if p) + "\n"


def differences_page() -> str:
    """The table of tests/tensor/arguments: what the comparison with PyTorch takes for meant."""
    sys.path.insert(0, str(ROOT))
    table = import_module("tests.tensor.arguments.differences").TABLE
    parts = ["# Where Tensor differs from PyTorch", DIFFERENCES]
    for d in table:
        where = ", ".join(f"`{m}`" for m in sorted(set(d.methods.split()))) or "all methods"
        parts += [f"- **{d.what}** {d.why}\n\n  *{where}*"]
    return "\n\n".join([*parts, DIFFERENCES_FOOT]) + "\n"


def pages() -> dict[str, str]:
    """The text of every page by file name; Undocumented where a public name has no docstring."""
    missing: list[str] = []
    nn = sorted(f"tinyweb.nn.{p.stem}" for p in (ROOT / "tinyweb" / "nn").glob("*.py") if p.stem != "__init__")
    made = {
        "tensor.md": tensor_page(missing),
        "nn.md": module_page("Neural networks", nn, missing),
        "tracing.md": module_page("Tracing", ["tinyweb.tracing"], missing),
        "differences.md": differences_page(),
        "dtype.md": module_page("Types", ["tinyweb.dtype"], missing),
    }
    if missing:
        raise Undocumented("public names without a docstring: " + ", ".join(missing))
    return made


def main() -> None:
    try:
        made = pages()
    except Undocumented as e:
        sys.exit(f"tinyweb: {e}")
    stale = [name for name, text in made.items() if not _same(REFERENCE / name, text)]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"tinyweb: docs/reference/{', '.join(stale)} are out of date: run `make docs`")
        return
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (REFERENCE / name).write_text(made[name])
    print(f"tinyweb: docs/reference: {len(made)} pages, {len(stale)} changed")


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    main()
