"""One kernel becomes a linear program for a target."""

from tinyweb.graph.lower.assemble import lower

__all__ = ["lower"]
