"""Integer index expressions and gates: simplification, division, validity, evaluation."""

from tinyweb.graph.symbolic.compare import clauses
from tinyweb.graph.symbolic.fold import evaluate
from tinyweb.graph.symbolic.index_sets import borders
from tinyweb.graph.symbolic.linear import const_factor, divides, proves_less
from tinyweb.graph.symbolic.reductions import deciding
from tinyweb.graph.symbolic.rules import symbolic
from tinyweb.graph.symbolic.simplify import simplify, simplify_given, substitute_ranges
from tinyweb.graph.symbolic.strides import split_by, stride_of

__all__ = [
    "borders", "clauses", "const_factor", "deciding", "divides", "evaluate", "proves_less", "simplify",
    "simplify_given", "split_by", "stride_of", "substitute_ranges", "symbolic",
]  # fmt: skip
