"""The gradient of a tensor graph, as a tensor graph."""

from tinyweb.graph.autodiff.gradient import gradient

__all__ = ["gradient"]
