"""Stage 2: a tensor graph becomes a list of kernels and the buffers they work on."""

from tinyweb.graph.schedule.calls import KernelCall
from tinyweb.graph.schedule.memory_plan import MemoryPlan, nbytes
from tinyweb.graph.schedule.schedule import Schedule, new_buffer, schedule

__all__ = ["KernelCall", "MemoryPlan", "Schedule", "nbytes", "new_buffer", "schedule"]
