"""Trees and other parts of the domain ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.operators.common import cast
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor

ML = "ai.onnx.ml"


@op("Binarizer", domain=ML)
def binarizer(call: Call, x: Tensor) -> Tensor:
    return cast(x > call.real("threshold", 0.0), x.dtype)


@op("Scaler", domain=ML)
def scaler(call: Call, x: Tensor) -> Tensor:
    offset, scale = (Tensor(np.array(call.reals(n, d), np.float32), device=x.device)
                     for n, d in (("offset", [0.0]), ("scale", [1.0])))  # fmt: skip
    return (x.float() - offset) * scale


@op("Normalizer", domain=ML)
def normalizer(call: Call, x: Tensor) -> Tensor:
    norm, y = call.choice("norm", "MAX", ("MAX", "L1", "L2")), x.float()
    size = {"MAX": lambda: y.amax(-1, True), "L1": lambda: y.abs().sum(-1, True),
            "L2": lambda: y.square().sum(-1, True).sqrt()}[norm]()  # fmt: skip
    return y / size.eq(0).where(1.0, size)


@op("LinearRegressor", domain=ML)
def linear_regressor(call: Call, x: Tensor) -> Tensor:
    if call.text("post_transform", "NONE") != "NONE":
        raise call.unsupported("post_transform")
    targets = call.integer("targets", 1)
    w = Tensor(np.array(call.reals("coefficients"), np.float32).reshape(targets, -1), device=x.device)
    bias = call.reals("intercepts", None)
    y = x.float().linear(w)
    return y if bias is None else y + Tensor(np.array(bias, np.float32), device=x.device)


LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)


class Trees:
    """The nodes of all trees, walked by all rows at once: a step is a few gathers."""

    def __init__(self, call: Call):
        self.call = call
        self.features = np.array(call.integers("nodes_featureids"), np.int32)
        self.splits, self.modes = call.tensor("nodes_splits"), call.tensor("nodes_modes")
        n = self.features.size
        ids = [np.array(call.integers(f"nodes_{side}nodeids"), np.int64) for side in ("true", "false")]
        leaf = [np.array(call.integers(f"nodes_{side}leafs"), np.int64) for side in ("true", "false")]
        leaves = len(call.integers("leaf_targetids"))
        if any(a.size != n for a in (*ids, *leaf)) or self.splits.size != n or self.modes.size != n:
            raise call.error("the lists of nodes have different lengths")
        for i, at in zip(ids, leaf):
            if n and not ((i >= 0) & (i < np.where(at > 0, leaves, n))).all():
                raise call.error("a branch leads nowhere")
        # leaves are numbered behind the nodes
        self.next = np.stack([np.where(at > 0, i + n, i) for i, at in zip(ids, leaf)])
        self.missing = np.array(call.integers("nodes_missing_value_tracks_true", [0] * n), np.int64)
        self.members = self._members(n)
        self.roots, self.leaves = call.integers("tree_roots"), leaves
        self.depth = self._depth(n)

    def _members(self, n: int) -> dict[int, Host]:
        found: dict[int, Host] = {}
        if not (self.modes == MEMBER).any():
            return found
        values = self.call.tensor("membership_values").astype(np.float64)
        groups = np.split(values, np.flatnonzero(np.isnan(values)))
        sets = [g[~np.isnan(g)] for g in groups]
        return dict(zip(np.flatnonzero(self.modes == MEMBER).tolist(), sets))

    def _depth(self, n: int) -> int:
        at, depth = set(self.roots), 0
        while at:
            at = {int(b) for a in at for b in self.next[:, a] if b < n}
            depth += 1
            if depth > n:
                raise self.call.error("branches lead back to where they come from")
        return depth

    def leaf_of(self, x: Host) -> Host:
        """(rows, trees): the leaf that each row reaches."""
        n, rows = self.features.size, np.arange(len(x))[:, None]
        at = np.broadcast_to(np.array(self.roots), (len(x), len(self.roots))).copy()
        for _ in range(self.depth):
            inside = at < n
            node = np.where(inside, at, 0)
            v, s, m = x[rows, self.features[node]], self.splits[node], self.modes[node]
            true = np.select([m == LEQ, m == LT, m == GTE, m == GT, m == EQ], [v <= s, v < s, v >= s, v > s, v == s],
                             v != s)  # fmt: skip
            for k, members in self.members.items():
                true = np.where(node == k, np.isin(v, members), true)
            true = true | (np.isnan(v) & (self.missing[node] > 0))
            at = np.where(inside, self.next[np.where(true, 0, 1), node], at)
        return at - n


@op("TreeEnsemble", domain=ML, host=(0,))
def tree_ensemble(call: Call, x: Host) -> Host:
    """On the host: which branch is taken depends on values."""
    trees = Trees(call)
    weights, targets = call.tensor("leaf_weights"), np.array(call.integers("leaf_targetids"))
    if call.integer("post_transform", 0):
        raise call.unsupported("post_transform")
    leaf, count = trees.leaf_of(x), call.integer("n_targets")
    how, y = call.integer("aggregate_function", 1), np.zeros((len(x), count), x.dtype)
    rows = np.broadcast_to(np.arange(len(x))[:, None], leaf.shape)
    if how in (0, 1):
        np.add.at(y, (rows, targets[leaf]), weights[leaf])
        return y / len(trees.roots) if how == 0 else y
    fold: Any = np.minimum if how == 2 else np.maximum
    y[:] = np.inf if how == 2 else -np.inf
    fold.at(y, (rows, targets[leaf]), weights[leaf])
    return np.where(np.isinf(y), 0, y).astype(x.dtype)
