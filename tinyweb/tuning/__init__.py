"""Schedules found by timing them here: `tune` for a function of tensors, `tune_kernels` for kernels and plans."""

from tinyweb.tuning.measure import RuntimeMeasure, Worker
from tinyweb.tuning.plans import Tuned, tune, tune_for, tune_kernels

__all__ = ["RuntimeMeasure", "Tuned", "Worker", "tune", "tune_for", "tune_kernels"]
