"""What a kernel and a target are known by, in files and in every process."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import cache
from hashlib import blake2b

from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.ir.on_node import on_node
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.target import Target


def digest(kernel: UOp) -> str:
    """Equal for equal kernels, whatever they and their variables are called and in whatever process they are made."""
    found: str = on_node(kernel, "_digest", _digest, through=lambda s: False)
    return found


def _digest(kernel: UOp) -> str:
    number: dict[UOp, int] = {}
    lines: list[str] = []
    variables = 0
    for i, u in enumerate(kernel.toposort()):
        number[u] = i
        op, arg = u.op, u.arg
        if op is Ops.RANGE:
            text = f"{arg.name} {arg.order} {arg.reduce}"  # loops: no axis is bound yet
        elif op is Ops.PARAM:
            text = f"{arg.slot} {arg.size}"
        elif op is Ops.VARIABLE:
            variables += 1
            text = f"{variables} {arg[1]} {arg[2]}"
        elif op is Ops.SINK:
            text = ""  # a name
        else:
            text = "" if arg is None else repr(arg)
        lines.append(f"{op.name} {u.dtype.short} {text} {[number[s] for s in u.src]}")
    return blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()


@cache
def target_key(target: Target) -> str:
    """A target by what it can do: the numbers that differ from a plain machine's, and a digest of its types."""
    words, types = [target.name], []
    for f in fields(target):
        value = getattr(target, f.name)
        if isinstance(value, frozenset):
            types.append(f"{f.name} {sorted(str(v) for v in value)}")
        elif f.name not in ("name", "language") and (f.default is MISSING or value != f.default):
            words.append(f"{f.name}={str(value).replace(' ', '')}")
    return " ".join([*words, f"types={blake2b(str(types).encode(), digest_size=4).hexdigest()}"])


def describe(kernel: UOp) -> str:
    """A kernel's axes and memory in one line: for people."""
    axes = " ".join(
        f"{r.arg.name}={r.src[0].arg if r.src[0].op is Ops.CONST else f'≤{r.src[0].vmax}'}" for r in ranges_of(kernel)
    )
    params = sorted((u for u in kernel.toposort() if u.op is Ops.PARAM), key=lambda u: int(u.arg.slot))
    stored = {s.src[0] for s in kernel.src}
    texts = {p: f"{p.dtype.short}[{p.arg.size}]" for p in params}
    written, read = (" ".join(texts[p] for p in params if (p in stored) == which) for which in (True, False))
    return f"{axes}: {written} <- {read}".strip()
