"""Small functions that kernels of GPUs may need, in a dialect's words."""

from __future__ import annotations

from tinyweb.render_c.dialect import Dialect


def maximum(dialect: Dialect, name: str, kind: str, n: int) -> str:
    """The larger of two: NaN where either is one, or, of functions called at_least, where the second is."""
    if kind.startswith("f32") and dialect.largest and not name.startswith("at_least"):
        parts = [f"maximum_f32({', '.join(dialect.lane.format(value=v, i=i) for v in 'ab')})" for i in range(n)]
        body = f"return {dialect.make.format(kind=kind, values=', '.join(parts))};" if n > 1 else dialect.largest
        return f"{dialect.function} {kind} {name}({kind} a, {kind} b) {{ {body} }}\n"
    test = "a > b" if name.startswith("at_least") else "(a > b) | (a != a)"
    chosen = dialect.choose.format(c=f"({test})", a="a", b="b") if n > 1 else f"({test}) ? a : b"
    return f"{dialect.function} {kind} {name}({kind} a, {kind} b) {{ return {chosen}; }}\n"


def half(dialect: Dialect, function: str, n: int) -> str:
    """The bits of halves to singles, or singles to the bits of halves, to nearest even."""
    to_single = function == "f16_to_f32"
    source, to = ("u32", "f32") if to_single else ("f32", "u32")
    if n > 1:
        source, to = f"{source}x{n}", f"{to}x{n}"
    body = dialect.half_to_single if to_single else dialect.single_to_half
    text = body.format(n="" if n == 1 else n, kind="u16" if n == 1 else f"u16x{n}")
    if not dialect.half_vectors and n > 1:
        lanes = (f"{function}_x1({dialect.lane.format(value='x', i=i)})" for i in range(n))
        text = f"return {dialect.make.format(kind=to, values=', '.join(lanes))};"
    return f"{dialect.function} {to} {function}_x{n}({source} x) {{ {text} }}\n"


def subgroup(dialect: Dialect, name: str, op: str, scalar: str, threads: int) -> str:
    """A value combined over the threads of a subgroup, of a workgroup of so many threads."""
    body = dialect.subgroup[op].format(scalar=scalar, threads=threads)
    return f"{dialect.function} {scalar} {name}({scalar} x) {{ {body} }}\n"


def neighbours(dialect: Dialect, name: str, scalar: str, combined: str, count: int) -> str:
    """A value combined over each `count` threads that follow each other."""
    read = dialect.other_lane.format(value="x", step="m")
    rounds = f"for (i32 m = 1; m < {count}; m *= 2) {{ const {scalar} y = {read}; x = {combined}; }}"
    return f"{dialect.function} {scalar} {name}({scalar} x) {{\n#pragma unroll\n  {rounds}\n  return x;\n}}\n"
