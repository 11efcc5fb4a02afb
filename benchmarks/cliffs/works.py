"""All works, by name."""

from __future__ import annotations

from benchmarks.cliffs import attention, convolution, elementwise, indexing, products, training
from benchmarks.cliffs.work import Work

FAMILIES = (attention, convolution, elementwise, indexing, products, training)
WORKS: dict[str, Work] = {w.name: w for family in FAMILIES for w in family.works()}
