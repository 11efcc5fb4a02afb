"""The intermediate representation: one node type, patterns, rewriting, specs, printer."""

from tinyweb.graph.ir.ops import (
    BINARY,
    COMMUTATIVE,
    COMPARISON,
    ELEMENTWISE,
    MOVEMENT,
    TENSOR_ONLY,
    TERNARY,
    TRANSCENDENTAL,
    UNARY,
    Axis,
    AxisKind,
    BufferArg,
    KernelInfo,
    Ops,
    ParamArg,
    Space,
    StageArg,
)
from tinyweb.graph.ir.pattern import PatternMatcher, UPat, any_node, constant, graph_rewrite, substitute
from tinyweb.graph.ir.uop import (
    Shape,
    Size,
    UOp,
    Variable,
    as_index,
    size_add,
    size_max,
    size_mul,
    size_prod,
    size_sub,
    toposort,
    users,
)

__all__ = [
    "BINARY", "COMMUTATIVE", "COMPARISON", "ELEMENTWISE", "MOVEMENT", "TENSOR_ONLY", "TERNARY", "TRANSCENDENTAL",
    "UNARY", "Axis", "AxisKind", "BufferArg", "KernelInfo", "Ops", "ParamArg", "PatternMatcher", "Shape", "Size",
    "Space", "StageArg", "UOp", "UPat", "Variable", "any_node", "as_index", "constant", "graph_rewrite", "size_add",
    "size_max", "size_mul", "size_prod", "size_sub", "substitute", "toposort", "users",
]  # fmt: skip
