"""Layers, quantised weights, sampling and random numbers, written on Tensor alone."""

from tinyweb.nn.layers import Embedding, Linear, RMSNorm, Rotary, RotaryScaling
from tinyweb.nn.quantize import QuantizedWeight, quantize
from tinyweb.nn.sampling import greedy, sample

__all__ = [
    "Embedding", "Linear", "QuantizedWeight", "RMSNorm", "Rotary", "RotaryScaling", "greedy", "quantize", "sample",
]  # fmt: skip
