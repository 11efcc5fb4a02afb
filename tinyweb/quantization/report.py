"""What became of a model's weights: a record for programs (report.json) and a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

VERSION = 1
SHOWN = 12  # matrices in the table: those of the largest error


@dataclass(frozen=True)
class LayerReport:
    """A matrix (out, in). `kind`: "q4" and so on, or floats; `error`: the part of its norm that is error;
    `output_error`: of its outputs on the calibration text."""

    name: str
    shape: tuple[int, int]
    kind: str
    group: int | None
    zero_points: bool
    bytes: int
    error: float
    output_error: float | None = None

    def record(self) -> dict[str, Any]:
        found = dict(vars(self))
        found["shape"] = list(self.shape)
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True)
class Report:
    """`weights`: bytes of all weights; `before`: as f32. `calibration`: tokens that the weights were fitted to.
    `evaluation`: as of `compare_predictions` or `compare_vectors`, with the file's name. `kept`: types of the source
    that run as they are stored; `requantised`: what it had quantised otherwise. `notes`: what else is to be known of
    these figures and of the model."""

    quant: str
    weights: int
    before: int
    layers: Sequence[LayerReport]
    calibration: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None
    kept: str | None = None
    requantised: str | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def joined(cls, parts: Mapping[str, Report]) -> Self:
        """Of a model in parts, of which all are quantised in one way; matrices are named after theirs."""
        layers = [replace(one, name=f"{part}.{one.name}") for part, r in parts.items() for one in r.layers]
        quant = next(iter(parts.values())).quant
        return cls(quant, sum(r.weights for r in parts.values()), sum(r.before for r in parts.values()), layers)

    @property
    def integers(self) -> bool:
        """Whether any matrix is stored as integers."""
        return any(layer.group is not None for layer in self.layers)

    @property
    def fidelity(self) -> str | None:
        """What was measured beside f32, in a line; None where nothing was."""
        e = self.evaluation
        if e is None:
            return None
        if "perplexity" in e:
            return (
                f"perplexity {100 * e['perplexity_growth']:+.2f} %, the same next token in {100 * e['agreement']:.1f} %"
            )
        if "boxes" in e:
            return f"the same boxes in {100 * e['agreement']:.1f} %"
        return f"cosine {e['cosine']['mean']:.4f}" + _nearest(e, ", ")

    def record(self) -> dict[str, Any]:
        """For report.json."""
        found: dict[str, Any] = {
            "version": VERSION,
            "quant": self.quant,
            "bytes": {"weights": self.weights, "f32": self.before},
            "kept": self.kept,
            "requantised": self.requantised,
            "calibration": self.calibration,
            "evaluation": self.evaluation,
            "notes": list(self.notes) or None,
            "layers": [layer.record() for layer in self.layers],
        }
        return {key: value for key, value in found.items() if value is not None}


def lines(report: Report) -> list[str]:
    """The report for people: bytes, kinds, the matrices of the largest error, and what was measured."""
    kept = f" as they are stored ({report.kept})" if report.kept else ""
    found = [
        f"{report.weights / 1e6:.1f} MB of weights{kept}, {100 * report.weights / max(report.before, 1):.0f} % of "
        f"{report.before / 1e6:.1f} MB in f32"
    ]
    quantised = [layer for layer in report.layers if layer.error > 0]
    if quantised:
        found += _table(sorted(quantised, key=lambda layer: -layer.error)[:SHOWN], len(quantised))
    if report.requantised:
        found.append(f"Weights that were stored in other types are quantised anew: {report.requantised}")
    if report.calibration:
        found.append(f"Fitted to {report.calibration['tokens']} tokens of {report.calibration['text']}")
    if report.evaluation:
        found += _measured(report.evaluation)
    return found + [f"Note: {note}" for note in report.notes]


def _table(layers: Sequence[LayerReport], of: int) -> list[str]:
    width = max(len("matrix"), *(len(layer.name) for layer in layers))
    rows = [f"{'matrix':{width}}  {'stored':7} {'group':>6} {'bytes':>12}  {'error':>7}  {'of outputs':>10}"]
    for layer in layers:
        output = "" if layer.output_error is None else f"{100 * layer.output_error:.2f} %"
        group = "" if layer.group is None else str(layer.group)
        error = f"{100 * layer.error:.2f} %"
        rows.append(f"{layer.name:{width}}  {layer.kind:7} {group:>6} {layer.bytes:>12}  {error:>7}  {output:>10}")
    if of > len(layers):
        rows.append(f"… and {of - len(layers)} with smaller errors (report.json has all)")
    return rows


def _measured(e: dict[str, Any]) -> list[str]:
    if "perplexity" in e:
        p = e["perplexity"]
        return [
            f"On {e['tokens']} tokens of {e['text']}: perplexity {p['quantised']:.4f}, with f32 {p['f32']:.4f} "
            f"({100 * e['perplexity_growth']:+.2f} %); the same next token in {100 * e['agreement']:.1f} %"
        ]
    if "boxes" in e:
        b = e["boxes"]
        return [
            f"On {e['pieces']} pictures of {e['text']}: {b['quantised']} boxes, with f32 {b['f32']}, of which "
            f"{b['same']} are the same ({100 * e['agreement']:.1f} % of both)"
        ]
    c = e["cosine"]
    return [
        f"On {e['pieces']} pieces of {e['text']}: cosine to f32 {c['mean']:.5f} (least {c['least']:.5f})"
        + _nearest(e, "; ")
    ]


def _nearest(e: dict[str, Any], before: str) -> str:
    """How often the nearest piece is the same; nothing of so few that there is no choice."""
    return f"{before}the same nearest piece in {100 * e['agreement']:.1f} %" if "agreement" in e else ""
