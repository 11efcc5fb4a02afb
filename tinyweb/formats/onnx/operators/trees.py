"""Trees and other parts of the domain ai.onnx.ml."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.operators.common import cast, fixed
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.texts import word_list
from tinyweb.tensor import Tensor

ML = "ai.onnx.ml"
BRANCHES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
MEMBER = BRANCHES.index("BRANCH_MEMBER")
FOLDS = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@op("Binarizer", domain=ML)
def binarizer(call: Call, x: Tensor) -> Tensor:
    return cast(x > call.real("threshold", 0.0), x.dtype)


def _row(values: Sequence[float], x: Tensor) -> Tensor:
    return Tensor(np.array(values, np.float32), device=x.device)


@op("ZipMap", domain=ML)
def zip_map(call: Call, x: Tensor) -> Tensor:
    """The matrix that the maps would be made of: a column for each class, in the order of the labels."""
    return x


@op("Scaler", domain=ML)
def scaler(call: Call, x: Tensor) -> Tensor:
    return (x.float() - _row(call.reals("offset", [0.0]), x)) * _row(call.reals("scale", [1.0]), x)


@op("Normalizer", domain=ML)
def normalizer(call: Call, x: Tensor) -> Tensor:
    norm, y = call.choice("norm", "MAX", ("MAX", "L1", "L2")), x.float()
    if norm == "MAX":
        size = y.amax(-1, True)
    else:
        size = y.abs().sum(-1, True) if norm == "L1" else y.square().sum(-1, True).sqrt()
    return y / size.eq(0).where(1.0, size)


def transformed(call: Call, scores: Tensor, how: str) -> Tensor:
    if how == "SOFTMAX":
        return scores.softmax(-1)
    if how == "LOGISTIC":
        return scores.sigmoid()
    if how == "SOFTMAX_ZERO":
        return scores.eq(0).where(0.0, scores.eq(0).where(-math.inf, scores).softmax(-1))
    if how == "PROBIT":
        return (scores * 2 - 1).erfinv() * math.sqrt(2)
    return scores


def _linear(call: Call, x: Tensor, rows: int) -> Tensor:
    w = _row(call.reals("coefficients"), x).reshape(rows, -1)
    bias = call.reals("intercepts", None)
    y = x.float().linear(w)
    return y if bias is None else y + _row(bias, x)


@op("LinearRegressor", domain=ML)
def linear_regressor(call: Call, x: Tensor) -> Tensor:
    y = _linear(call, x, call.integer("targets", 1))
    return transformed(call, y, call.choice("post_transform", "NONE", TRANSFORMS))


def labelled(call: Call, scores: Tensor, names: Sequence[str]) -> Any:
    """The class with the highest score: its number, or its name, for which scores are read back; None where
    nothing reads it."""
    if not call.node.outputs[0]:
        return None
    best = scores.argmax(-1)
    for name in names:
        if call.has(name) and not name.endswith("strings"):
            return Tensor(np.array(call.integers(name), np.int64), device=scores.device).take(best, 0)
        if call.has(name):
            return call.named(word_list(call.texts(name)), best)
    return cast(best, dtypes.int64)


@op("LinearClassifier", domain=ML)
def linear_classifier(call: Call, x: Tensor) -> Any:
    names = ("classlabels_ints", "classlabels_strings")
    classes = len(call.integers(names[0], [])) or len(call.texts(names[1]))
    rows = len(call.reals("coefficients")) // fixed(x.shape[-1])
    scores = _linear(call, x, rows)
    how = call.choice("post_transform", "NONE", TRANSFORMS)
    if rows == 1 and classes == 2:
        p = scores.sigmoid() if how == "LOGISTIC" else scores
        scores = Tensor.cat(1 - p if how == "LOGISTIC" else -p, p, axis=-1)
        return labelled(call, scores, names), scores
    return labelled(call, scores, names), transformed(call, scores, how)


@dataclass(frozen=True)
class Trees:
    """The nodes of all trees, walked by all rows at once: a step is a few gathers. A leaf leads to itself."""

    features: Host
    splits: Host
    modes: Host
    next: Host  # (2, nodes): where it goes on if the comparison holds, and if not
    missing: Host
    roots: Host
    members: dict[int, Host]

    def depth(self, call: Call) -> int:
        at, depth = set(self.roots.tolist()), 0
        while at:
            at = {int(b) for a in at for b in self.next[:, a] if b != a}
            depth += 1
            if depth > self.features.size:
                raise call.error("branches lead back to where they come from")
        return depth - 1

    def leaf_of(self, call: Call, x: Tensor) -> Tensor:
        """(rows, trees): where each row ends."""
        rows, device = x.shape[0], x.device

        def table(values: Host) -> Tensor:
            return Tensor(np.ascontiguousarray(values), device=device)

        features, splits = table(self.features.astype(np.int32)), table(self.splits.astype(x.dtype.numpy))
        modes, following = table(self.modes.astype(np.int32)), table(self.next.T.reshape(-1).astype(np.int32))
        at = table(self.roots.astype(np.int32)).reshape(1, -1).expand(rows, self.roots.size)
        compare = {0: Tensor.less_equal, 1: Tensor.less, 2: Tensor.greater_equal, 3: Tensor.greater, 4: Tensor.eq,
                   5: Tensor.ne}  # fmt: skip
        used = [m for m in compare if (self.modes == m).any()]
        for _ in range(self.depth(call)):
            v, s = x.gather(1, features.take(at, 0)), splits.take(at, 0)
            holds = compare[used[0]](v, s) if used else v.isnan() & False
            for m in used[1:]:
                holds = modes.take(at, 0).eq(m).where(compare[m](v, s), holds)
            for node, among in self.members.items():
                inside = v.unsqueeze(-1).eq(table(among.astype(x.dtype.numpy))).any(-1)
                holds = at.eq(node).where(inside, holds)
            if self.missing.any():
                holds = holds | (v.isnan() & table(self.missing.astype(bool)).take(at, 0))
            at = following.take(at * 2 + holds.logical_not().cast(dtypes.int32), 0).contiguous()
        return at


def folded(call: Call, leaves: Tensor, table: Host, how: str) -> Tensor:
    """What the leaves of all trees say together: `table` (nodes, targets), NaN where a leaf says nothing."""
    values = np.where(np.isnan(table), {"MIN": np.inf, "MAX": -np.inf}.get(how, 0), table)
    each = Tensor(np.ascontiguousarray(values), device=leaves.device).take(leaves, 0)  # (rows, trees, targets)
    if how in ("MIN", "MAX"):
        best = each.amin(1) if how == "MIN" else each.amax(1)
        return best.isinf().where(0.0, best)
    return each.mean(1) if how == "AVERAGE" else each.sum(1)


def _table(call: Call, nodes: int, targets: int, at: Host, ids: Host, weights: Host) -> Host:
    if not at.shape == ids.shape == weights.shape or (ids.size and not 0 <= ids.min() <= ids.max() < targets):
        raise call.error("weights of leaves, their nodes and targets do not go together")
    call.afford(nodes * targets)
    table = np.full((nodes, targets), np.nan, weights.dtype)
    for i, k, w in zip(at, ids, weights):
        table[i, k] = w if np.isnan(table[i, k]) else table[i, k] + w
    return table


@op("TreeEnsemble", domain=ML)
def tree_ensemble(call: Call, x: Tensor) -> Tensor:
    """Leaves are numbered behind the nodes."""
    features, splits = np.array(call.integers("nodes_featureids"), np.int64), call.tensor("nodes_splits")
    n, leaves = features.size, len(call.integers("leaf_targetids"))
    ids = [np.array(call.integers(f"nodes_{side}nodeids"), np.int64) for side in ("true", "false")]
    leaf = [np.array(call.integers(f"nodes_{side}leafs"), np.int64) for side in ("true", "false")]
    modes = call.tensor("nodes_modes").astype(np.int64)
    if any(a.size != n for a in (*ids, *leaf, splits, modes)):
        raise call.error("the lists of nodes have different lengths")
    if not all(((i >= 0) & (i < np.where(at > 0, leaves, n))).all() for i, at in zip(ids, leaf)):
        raise call.error("a branch leads nowhere")
    own = np.arange(n, n + leaves)
    following = np.stack([np.concatenate([np.where(at > 0, i + n, i), own]) for i, at in zip(ids, leaf)])
    members: dict[int, Host] = {}
    if (modes == MEMBER).any():
        values = call.tensor("membership_values").astype(np.float64)
        groups = np.split(values, np.flatnonzero(np.isnan(values)))
        members = dict(zip(np.flatnonzero(modes == MEMBER).tolist(), (g[~np.isnan(g)] for g in groups)))
    behind = np.zeros(leaves, np.int64)
    missing = np.array(call.integers("nodes_missing_value_tracks_true", [0] * n), np.int64)
    trees = Trees(
        np.concatenate([features, behind]), np.concatenate([splits, behind]), np.concatenate([modes, behind + 7]),
        following, np.concatenate([missing, behind]), np.array(call.integers("tree_roots"), np.int64), members,
    )  # fmt: skip
    targets = np.array(call.integers("leaf_targetids"), np.int64)
    table = _table(call, n + leaves, call.integer("n_targets"), own, targets, call.tensor("leaf_weights"))
    y = folded(call, trees.leaf_of(call, x), table, FOLDS[call.integer("aggregate_function", 1)])
    return cast(transformed(call, y, TRANSFORMS[call.integer("post_transform", 0)]), x.dtype)


def _listed(call: Call) -> tuple[Trees, dict[tuple[int, int], int]]:
    """The trees of the older operators, and the place of each (tree, node)."""
    ids = list(zip(call.integers("nodes_treeids"), call.integers("nodes_nodeids")))
    place = {key: i for i, key in enumerate(ids)}
    words, n = call.texts("nodes_modes"), len(ids)
    splits = call.tensor("nodes_values_as_tensor") if call.has("nodes_values_as_tensor") else None
    values = np.array(call.reals("nodes_values"), np.float32) if splits is None else splits
    sides = [call.integers(f"nodes_{side}nodeids") for side in ("true", "false")]
    features = np.array(call.integers("nodes_featureids"), np.int64)
    if not len(words) == values.size == features.size == len(sides[0]) == len(sides[1]) == n:
        raise call.error("the lists of nodes have different lengths")
    following = np.arange(n)[None].repeat(2, 0)
    modes = np.full(n, 7)
    for i, word in enumerate(words):
        if word == "LEAF":
            continue
        if word not in BRANCHES[:MEMBER] or any((ids[i][0], side[i]) not in place for side in sides):
            raise call.error(f"node {ids[i][1]} of tree {ids[i][0]} leads nowhere, or compares by {word!r}")
        modes[i] = BRANCHES.index(word)
        following[:, i] = [place[ids[i][0], side[i]] for side in sides]
    missing = np.array(call.integers("nodes_missing_value_tracks_true", []) or [0] * n, np.int64)
    firsts = list({tree: i for i, (tree, _) in reversed(list(enumerate(ids)))}.values())[::-1]
    return Trees(features, values, modes, following, missing, np.array(firsts, np.int64), {}), place


def _scores(call: Call, x: Tensor, side: str, targets: int, how: str) -> tuple[Tensor, Host]:
    trees, place = _listed(call)
    kind = "class" if side == "class" else "target"
    keys = zip(call.integers(f"{side}_treeids"), call.integers(f"{side}_nodeids"))
    at = np.array([place.get(k, -1) for k in keys], np.int64)
    if at.size and at.min() < 0:
        raise call.error("weights belong to a node that is not there")
    name = f"{side}_weights"
    weights = (
        call.tensor(f"{name}_as_tensor") if call.has(f"{name}_as_tensor") else np.array(call.reals(name), np.float32)
    )
    ids = np.array(call.integers(f"{kind}_ids"), np.int64)
    table = _table(call, trees.features.size, targets, at, ids, weights)
    y = folded(call, trees.leaf_of(call, x), table, how)
    base = call.reals("base_values", [])
    return (y + _row(base, y) if len(base) in (1, targets) else y), ids


@op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(call: Call, x: Tensor) -> Tensor:
    how = call.choice("aggregate_function", "SUM", FOLDS)
    y, _ = _scores(call, x if x.dtype.is_float else x.float(), "target", call.integer("n_targets"), how)
    return cast(transformed(call, y, call.choice("post_transform", "NONE", TRANSFORMS)), dtypes.float32)


@op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(call: Call, x: Tensor) -> Any:
    """Of two classes the first alone may have weights: the other then has what is left of 1, or the negative."""
    names = ("classlabels_int64s", "classlabels_strings")
    classes = len(call.integers(names[0], [])) or len(call.texts(names[1]))
    y, ids = _scores(call, x if x.dtype.is_float else x.float(), "class", classes, "SUM")
    how = call.choice("post_transform", "NONE", TRANSFORMS)
    if classes == 2 and set(ids.tolist()) == {0}:  # they are those of the second class
        one = y[:, :1]
        positive = min(call.reals("class_weights", [0.0])) >= 0
        p = one.sigmoid() if how == "LOGISTIC" else one
        scores = Tensor.cat(1 - p if positive or how == "LOGISTIC" else -p, p, axis=-1)
        return labelled(call, scores, names), cast(scores, dtypes.float32)
    return labelled(call, y, names), cast(transformed(call, y, how), dtypes.float32)
