"""Activation-aware scaling (AWQ, Lin et al. 2023, arXiv 2306.00978): channels that carry large activations are made
larger before they are rounded, and what feeds them smaller by as much, so that the model computes the same.

What feeds them is a norm (its weight and bias) or, in a gated MLP, the rows of `up`. The scale of channel i is
E[x_i²]^(a/2), for the one a of a few that leaves the least error of the outputs after rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyweb.models.decoder.attention import Attention
from tinyweb.models.decoder.layer import Layer
from tinyweb.models.decoder.mlp import Mlp
from tinyweb.models.decoder.norm import Norm
from tinyweb.nn.layers import Linear
from tinyweb.nn.parameters import parameter
from tinyweb.nn.precision import Precision
from tinyweb.quantization.methods import FULL_PRECISION, Floats, output_energy, search
from tinyweb.quantization.sites import Site
from tinyweb.tensor import Tensor

EXPONENTS = (0.0, 0.15, 0.3, 0.45, 0.6)
ROWS = 512  # of a matrix that scales are compared on


@dataclass(frozen=True)
class Feed:
    """`source` is all that `sites` are multiplied with comes from: a norm, or the rows of a matrix."""

    source: Norm | Linear
    sites: list[Site]


def scale_channels(
    model: Any, sites: Sequence[Site], moments: dict[str, Floats], precision: Callable[[Site], Precision]
) -> None:
    """Scales channels of those matrices of `sites` where the model lets it; `moments` (in, in) of their inputs, by
    name, become those of the scaled inputs."""
    for feed in _feeds(model, sites):
        forms = [precision(site) for site in feed.sites]
        if any(f.bits is None or f.bits >= FULL_PRECISION for f in forms):
            continue
        scales = _best(feed, forms, moments)
        if scales is None:
            continue
        _shrink(feed.source, scales)
        for site in feed.sites:
            weight = site.weight
            assert isinstance(weight, Tensor)
            site.put(Tensor(site.values() * scales, device=weight.device))
            moments[site.name] = moments[site.name] / np.outer(scales, scales)


def _feeds(model: Any, sites: Sequence[Site]) -> Iterator[Feed]:
    """Norms that nothing but matrices reads, with these, and the matrices of gated MLPs."""
    of_layer = {id(owner.layer): site for site in sites for owner in site.owners if len(site.owners) == 1}

    def feed(source: Norm | Linear | None, layers: Sequence[Linear | None]) -> Iterator[Feed]:
        found = [of_layer.get(id(layer)) for layer in layers if layer is not None]
        if source is None or not isinstance(source.weight, Tensor):  # quantised already
            return
        if all(s is not None and isinstance(s.weight, Tensor) for s in found):
            yield Feed(source, [s for s in found if s is not None])

    def norm_feed(norm: Norm | None, layers: Sequence[Linear | None]) -> Iterator[Feed]:
        if norm is not None and norm.weight is not None and norm.weight.ndim == 1:
            yield from feed(norm, layers)

    for layer in getattr(getattr(model, "model", model), "layers", []):
        if not isinstance(layer, Layer):
            continue
        mlp = layer.mlp if isinstance(layer.mlp, Mlp) and layer.mlp_shift is None else None
        inner = [] if mlp is None else [mlp.gate, mlp.up]
        both = layer.config.parallel and layer.mlp_norm is None
        # what is beside the mixer takes what the norm gives as it is, routers are not scaled
        if isinstance(layer.mixer, Attention) and layer.side is None and not (both and mlp is None):
            yield from norm_feed(layer.attention_norm, [layer.mixer.qkv, *(inner if both else [])])
        if mlp is not None:
            yield from norm_feed(layer.mlp_norm, inner)
            if mlp.gate is not None and not mlp.config.shift and mlp.config.limit is None:
                yield from feed(mlp.up, [mlp.down])


def _best(feed: Feed, forms: Sequence[Precision], moments: dict[str, Floats]) -> Floats | None:
    """The scales (in,) of least error; None where none are better than no scales."""
    if any(site.name not in moments for site in feed.sites):
        return None
    power = np.diagonal(moments[feed.sites[0].name]).astype(np.float32)
    least = float(power.mean()) * 1e-4 + 1e-30
    size = np.sqrt(np.maximum(power, least))
    samples = [site.values() for site in feed.sites]
    samples = [values[:: max(len(values) // ROWS, 1)] for values in samples]
    errors: list[float] = []
    found: list[Floats] = []
    for exponent in EXPONENTS:
        scales = size**exponent
        scales = (scales / np.sqrt(scales.max() * scales.min())).astype(np.float32)
        error = 0.0
        for site, form, values in zip(feed.sites, forms, samples, strict=True):
            rounded = search(values * scales, form, power / scales**2)
            if rounded is None:
                return None
            error += output_energy(rounded.dense() / scales - values, moments[site.name])
        errors.append(error)
        found.append(scales)
    best = int(np.argmin(errors))
    return found[best] if EXPONENTS[best] else None


def _shrink(source: Norm | Linear, scales: Floats) -> None:
    """Makes what comes out of a norm, or of a matrix's rows, smaller by `scales`."""
    weight, bias = source.weight, source.bias
    assert isinstance(weight, Tensor)
    values = weight.numpy().astype(np.float32)
    smaller = values / (scales if values.ndim == 1 else scales[:, None])
    source.weight = parameter(smaller, weight.device) if values.ndim == 1 else Tensor(smaller, device=weight.device)
    if bias is not None:
        source.bias = parameter(bias.numpy().astype(np.float32) / scales, bias.device)
