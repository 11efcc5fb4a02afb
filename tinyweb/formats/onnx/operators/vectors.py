"""Support vector machines of the domain ai.onnx.ml."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.common import cast, fixed
from tinyweb.formats.onnx.operators.steps import looped
from tinyweb.formats.onnx.operators.trees import ML, TRANSFORMS, labelled, transformed
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor

ROUNDS, NEAR = 100, 0.005  # of the iteration that joins the probabilities of pairs, as LIBSVM has them
LEAST = 1e-7  # probability of a pair


def _kernel(call: Call, x: Tensor, count: int) -> Tensor:
    """(N, count): how near rows are to each of the support vectors."""
    vectors = np.array(call.reals("support_vectors"), np.float32)
    if vectors.size != count * fixed(x.shape[1]):
        raise call.error(f"{vectors.size} numbers are not {count} vectors of {fixed(x.shape[1])}")
    held, y = call.lift(vectors.reshape(count, -1)), x.float()
    kind = call.choice("kernel_type", "LINEAR", ("LINEAR", "POLY", "RBF", "SIGMOID"))
    gamma, offset, degree = call.reals("kernel_params", []) or (0.0, 0.0, 0.0)
    if kind == "RBF":
        return (-gamma * (y.unsqueeze(1) - held).square().sum(-1)).exp()
    near = y.matmul(held.transpose(0, 1))
    near = near if kind == "LINEAR" else near * gamma + offset
    return near.tanh() if kind == "SIGMOID" else near**degree if kind == "POLY" else near


@op("SVMRegressor", domain=ML)
def svm_regressor(call: Call, x: Tensor) -> Tensor:
    """Of support vectors, or of a plane where there are none: (N, 1)."""
    count, weights = call.integer("n_supports", 0), np.array(call.reals("coefficients"), np.float32)
    if count and len(weights) != count:
        raise call.error(f"{count} vectors need as many coefficients, not {len(weights)}")
    near = _kernel(call, x, count) if count else x.float()
    scores: Tensor = near.matmul(call.lift(weights.reshape(-1, 1))) + float(call.reals("rho")[0])
    if call.integer("one_class", 0):
        scores = (scores > 0).where(1.0, -1.0)
    return scores


def _pairs(call: Call, x: Tensor, sizes: list[int]) -> Tensor:
    """(N, pairs): the decision between each two classes, above 0 for the first. `sizes`: vectors of each class."""
    count, classes = sum(sizes), len(sizes)
    weights, rho = np.array(call.reals("coefficients"), np.float32), call.reals("rho")
    places = list(itertools.combinations(range(classes), 2))
    if weights.size != count * (classes - 1) or len(rho) != len(places):
        raise call.error(
            f"{weights.size} coefficients and {len(rho)} numbers of rho are not those of {count} vectors of "
            f"{classes} classes"
        )
    own, ends = weights.reshape(classes - 1, count), np.cumsum([0, *sizes])
    planes = np.zeros((len(places), count), np.float32)
    for plane, (i, j) in zip(planes, places):
        for one, other in ((i, j - 1), (j, i)):
            plane[ends[one] : ends[one + 1]] = own[other, ends[one] : ends[one + 1]]
    return _kernel(call, x, count).linear(call.lift(planes)) + call.lift(np.array(rho, np.float32))


def _votes(pairs: Tensor, classes: int) -> Tensor:
    """(N, classes): how many pairs each class wins."""
    first, second = np.zeros((2, fixed(pairs.shape[1]), classes), np.float32)
    for e, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        first[e, i], second[e, j] = 1, 1
    won = (pairs > 0).float()
    return won.matmul(Tensor(first, device=pairs.device)) + (1 - won).matmul(Tensor(second, device=pairs.device))


def _coupled(call: Call, first: Tensor, classes: int) -> Tensor:
    """Probabilities of the first of each pair (N, pairs) → of the classes (N, classes): the second method of Wu, Lin
    and Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling" (2004)."""
    places = {pair: e for e, pair in enumerate(itertools.combinations(range(classes), 2))}
    zero = Tensor.zeros(fixed(first.shape[0]), device=first.device)

    def beats(i: int, j: int) -> Tensor:
        return zero if i == j else first[:, places[i, j]] if i < j else 1 - first[:, places[j, i]]

    r = [[beats(i, j) for j in range(classes)] for i in range(classes)]
    rows = []
    for t in range(classes):
        own = sum((r[j][t].square() for j in range(classes) if j != t), zero)
        rows.append(Tensor.stack(*(own if j == t else -r[j][t] * r[t][j] for j in range(classes)), axis=1))
    q = Tensor.stack(*rows, axis=1).contiguous()  # (N, classes, classes)

    def step(at: Tensor, state: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        p = state[0]
        slope = (q * p.unsqueeze(1)).sum(-1)
        whole = (slope * p).sum(-1, True)
        ends = (slope - whole).abs().amax(-1, True) < NEAR / classes
        new = p
        for t in range(classes):
            by = (whole - slope[:, t : t + 1]) / q[:, t, t : t + 1]
            whole = (whole + by * (by * q[:, t, t : t + 1] + 2 * slope[:, t : t + 1])) / (1 + by) / (1 + by)
            slope = ((slope + by * q[:, t]) / (1 + by)).contiguous()
            here = np.eye(classes, dtype=np.float32)[t]
            new = (new + by * Tensor(here, device=p.device)) / (1 + by)
            new, whole = new.contiguous(), whole.contiguous()
        return [ends.where(p, new)], []

    even = Tensor.full((fixed(first.shape[0]), classes), 1 / classes, dtypes.float32, first.device)
    return looped(call, max(ROUNDS, classes), [even], step, [q])[0][0]


def _probabilities(call: Call, pairs: Tensor, classes: int) -> Tensor:
    slopes, offsets = call.reals("prob_a"), call.reals("prob_b")
    if not len(slopes) == len(offsets) == fixed(pairs.shape[1]):
        raise call.error(f"{len(slopes)} and {len(offsets)} numbers for the probabilities of {pairs.shape[1]} pairs")
    a, b = (call.lift(np.array([*v], np.float32)) for v in (slopes, offsets))
    first = (-(pairs * a + b)).sigmoid().clamp(LEAST, 1 - LEAST)
    return _coupled(call, first.contiguous(), classes)


@op("SVMClassifier", domain=ML)
def svm_classifier(call: Call, x: Tensor) -> Any:
    """Labels are those that win the most pairs. Scores are probabilities (N, classes), or the decisions of all pairs,
    of two classes for both; of planes, one for each class."""
    names = ("classlabels_ints", "classlabels_strings")
    classes = len(call.integers(names[0], [])) or len(call.texts(names[1]))
    how, sizes = call.choice("post_transform", "NONE", TRANSFORMS), call.integers("vectors_per_class", [])
    if not sizes:
        planes = np.array(call.reals("coefficients"), np.float32).reshape(-1, fixed(x.shape[1]))
        scores = x.float().linear(call.lift(planes)) + float(call.reals("rho")[0])
        return labelled(call, scores, names), transformed(call, scores, how)
    if len(sizes) != classes or classes < 2 or min(sizes) < 0:
        raise call.error(f"vectors_per_class {sizes} are not those of {classes} classes")
    pairs = _pairs(call, x, sizes).contiguous()
    label = labelled(call, _votes(pairs, classes), names)
    if call.reals("prob_a", []):
        return label, cast(transformed(call, _probabilities(call, pairs, classes), how), dtypes.float32)
    if classes > 2:
        return label, transformed(call, pairs, how)
    other = 1 - pairs if how.startswith("SOFTMAX") else (-pairs).sigmoid() if how == "LOGISTIC" else -pairs
    return label, Tensor.cat(other, pairs.sigmoid() if how == "LOGISTIC" else pairs, axis=1)
