"""Stage 2: a tensor graph becomes a list of kernels and the buffers they work on."""

from tinyweb.graph.schedule.across import check_place, schedule_across, spread_of
from tinyweb.graph.schedule.calls import CopyCall, KernelCall
from tinyweb.graph.schedule.memory_plan import MemoryPlan, nbytes
from tinyweb.graph.schedule.origin import at_origin
from tinyweb.graph.schedule.schedule import Schedule, new_buffer, schedule
from tinyweb.graph.schedule.spread import even_sizes, part_of, spans, whole_of

__all__ = [
    "CopyCall", "KernelCall", "MemoryPlan", "Schedule", "at_origin", "check_place", "even_sizes", "nbytes",
    "new_buffer", "part_of", "schedule", "schedule_across", "spans", "spread_of", "whole_of",
]  # fmt: skip
