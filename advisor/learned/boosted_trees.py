"""Boosted regression trees as one array of nodes, the bytes of their file, and their training by scikit-learn.

The file is the array and nothing else: records of equal size, so that reading it interprets no format and imports no
learner; training does, which nothing else needs. What is read is checked: children come after their parent, each has
one parent, and no leaf is deep. So every walk ends, and a model that was tampered with predicts wrong numbers at worst.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Nodes = npt.NDArray[np.void]

# A row goes to ``left`` where its feature is at most the threshold. A leaf is its own child and has the value.
NODE = np.dtype(
    [("feature", "<i4"), ("left", "<i4"), ("right", "<i4"), ("threshold", "<f8"), ("value", "<f8")], align=False
)
MAX_DEPTH = 64


class ModelError(Exception):
    """A model that cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class BoostedTrees:
    """Trees whose leaves add up; the first may be a lone leaf, the value that the others correct.

    ``nodes`` [N] are those of all trees, ``roots`` [T] where each begins.
    """

    nodes: Nodes
    roots: Ints

    @classmethod
    def of(cls, nodes: Nodes, num_features: int) -> "BoostedTrees":
        """The trees that ``nodes`` are.

        Raises
        ------
        ModelError
            If they are none over ``num_features`` features, or a sum of values is not finite.
        """
        if not len(nodes):
            raise _damaged("it has no tree")
        numbers = np.arange(len(nodes))
        leaf = nodes["left"] == numbers
        inner = numbers[~leaf]
        children = np.stack([nodes["left"][inner], nodes["right"][inner]])
        if (nodes["right"][leaf] != numbers[leaf]).any():
            raise _damaged("a leaf has a child")
        if ((children <= inner) | (children >= len(nodes))).any() or len(np.unique(children)) != children.size:
            raise _damaged("a node is no child of one node before it")
        if ((nodes["feature"] < 0) | (nodes["feature"] >= num_features)).any() or np.isnan(nodes["threshold"]).any():
            raise _damaged(f"a node asks for none of {num_features} features")
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(np.abs(nodes["value"]).sum()):
                raise _damaged("a value is not finite")
        roots = np.setdiff1d(numbers, children)
        _depth(_children(nodes), roots)
        return cls(nodes, roots)

    @classmethod
    def from_bytes(cls, data: bytes, num_features: int) -> "BoostedTrees":
        """The trees of a file; raises as ``of``."""
        if len(data) % NODE.itemsize:
            raise _damaged("it ends within a node")
        return cls.of(np.frombuffer(data, NODE), num_features)

    def to_bytes(self) -> bytes:
        """The file: equal bytes for equal trees."""
        return self.nodes.astype(NODE).tobytes()

    def predict(self, features: Floats) -> Floats:
        """The sum of leaves for each row of ``features`` [n, F], as [n]; the trees are added in their order."""
        feature, threshold, value = (self.nodes[name].copy() for name in ("feature", "threshold", "value"))
        roots, children = self._past_decided(features)
        # Flat arrays: gathering from them is several times as fast as from rows and columns.
        flat, first = np.ascontiguousarray(features).ravel(), np.arange(len(features)) * features.shape[1]
        at = np.tile(roots, len(features))
        first = np.repeat(first, len(self.roots))
        for _ in range(_depth(children, roots)):
            goes_right = flat.take(first + feature.take(at)) > threshold.take(at)
            at = children.take(2 * at + goes_right)
        total = np.zeros(len(features))
        for values in value[at].reshape(len(features), len(self.roots)).T:
            total += values
        return total

    def _past_decided(self, features: Floats) -> tuple[Ints, Ints]:
        """The roots [T], and the children of each node [2 N], past nodes that send all rows the same way.

        Rows that are about one situation share most of its numbers: half of the steps are the same for all.
        """
        low, high = features.min(axis=0, initial=np.inf), features.max(axis=0, initial=-np.inf)
        feature, threshold = self.nodes["feature"], self.nodes["threshold"]
        to = np.where(high[feature] <= threshold, self.nodes["left"], np.arange(len(self.nodes)))
        to = np.where(low[feature] > threshold, self.nodes["right"], to)
        while (to[to] != to).any():
            to = to[to]
        return to[self.roots], to[_children(self.nodes)]


def _children(nodes: Nodes) -> Ints:
    """The left and the right child of each node, one after the other, [2 N]."""
    return np.stack([nodes["left"], nodes["right"]], axis=1).ravel().astype(np.intp)


def _depth(children: Ints, roots: Ints) -> int:
    """The number of steps to the deepest leaf."""
    here = roots
    for depth in range(MAX_DEPTH):
        here = here[children[2 * here] != here]
        if not len(here):
            return depth
        here = np.concatenate([children[2 * here], children[2 * here + 1]])
    raise _damaged(f"a leaf is deeper than {MAX_DEPTH} nodes")


def _damaged(why: str) -> ModelError:
    return ModelError(f"the model is damaged: {why}; run `magus train`")


if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor


def regressor(
    features: Floats, target: Floats, seed: int, trees: Mapping[str, object], weights: Floats | None = None
) -> "HistGradientBoostingRegressor":
    """Return scikit-learn's regressor of the kind ``trees``, fitted to [N, F] features without NaN, and [N] targets.

    ``weights`` [N] say how much each of them counts, None that all count alike.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    learner = HistGradientBoostingRegressor(early_stopping=False, random_state=seed, **trees)
    with threadpool_limits(1):  # sums by several threads differ in their last bits from machine to machine
        return learner.fit(features, target, sample_weight=weights)


MOST_SPLIT_COST, LEAST_IN_LEAF, FOLDS = 0.05, 4, 10


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node: a leaf with its pick, or ``below`` where the feature is at most the threshold, else ``above``."""

    pick: int
    feature: int = -1
    threshold: float = 0.0
    below: "TreeNode | None" = None
    above: "TreeNode | None" = None


def picked(node: TreeNode, features: Sequence[float] | Floats) -> int:
    """Return the pick of a tree."""
    while node.below is not None and node.above is not None:
        node = node.below if features[node.feature] <= node.threshold else node.above
    return node.pick


def small_tree(features: Floats, costs: Floats, max_leaves: int, seed: int) -> TreeNode:
    """Return a tree over [N, F] features of which each leaf picks the column of the least mean of [N, C] costs.

    It has as many leaves, at most ``max_leaves``, as cost least in rows that a tree was not fitted to: each of
    ``FOLDS`` parts of the rows judges trees of the others. More would repeat the rows at hand, and fail at others.
    """
    part, bounded = np.arange(len(features)) % FOLDS, np.minimum(costs, MOST_SPLIT_COST)

    def unseen_cost(leaves: int) -> float:
        trees = [_tree_of(features[part != each], costs[part != each], leaves, seed) for each in range(FOLDS)]
        picks = [picked(trees[each], row) for each, row in zip(part, features, strict=True)]
        return float(bounded[np.arange(len(picks)), picks].sum())

    return _tree_of(features, costs, min(range(2, max_leaves + 1), key=unseen_cost), seed)


def _tree_of(features: Floats, costs: Floats, leaves: int, seed: int) -> TreeNode:
    """Return the tree of so many ``leaves``, or of fewer where neighbours pick the same.

    Splits, and the number of leaves, follow from costs up to ``MOST_SPLIT_COST`` alone: how bad a bad pick is does not
    say where the best ones part.
    """
    from sklearn.tree import DecisionTreeRegressor

    learner = DecisionTreeRegressor(max_leaf_nodes=leaves, min_samples_leaf=LEAST_IN_LEAF, random_state=seed)
    fitted = learner.fit(features, np.minimum(costs, MOST_SPLIT_COST))
    tree, at = fitted.tree_, fitted.apply(features)
    picks = {int(leaf): int(costs[at == leaf].mean(axis=0).argmin()) for leaf in np.unique(at)}

    def node(idx: int) -> TreeNode:
        if idx in picks:
            return TreeNode(picks[idx])
        below, above = node(int(tree.children_left[idx])), node(int(tree.children_right[idx]))
        if below == above and below.below is None:  # both sides pick the same
            return below
        return TreeNode(-1, int(tree.feature[idx]), float(tree.threshold[idx]), below, above)

    return node(0)


def boosted_trees(fitted: "HistGradientBoostingRegressor") -> BoostedTrees:
    """Return the trees of scikit-learn as an array of nodes; what they predict from the start is the first tree."""
    baseline = np.zeros(1, NODE)
    baseline["value"] = fitted._baseline_prediction
    parts, size = [baseline], 1
    for (predictor,) in fitted._predictors:
        parts.append(_nodes(predictor.nodes, size))
        size += len(parts[-1])
    return BoostedTrees.of(np.concatenate(parts), fitted.n_features_in_)


def _nodes(found: npt.NDArray[np.void], first: int) -> Nodes:
    """The nodes of one tree, of which the first has the number ``first``."""
    leaf, own = found["is_leaf"].astype(bool), np.arange(len(found))
    nodes = np.zeros(len(found), NODE)
    nodes["feature"] = np.where(leaf, 0, found["feature_idx"])
    nodes["threshold"] = np.where(leaf, 0.0, found["num_threshold"])
    nodes["left"] = first + np.where(leaf, own, found["left"])
    nodes["right"] = first + np.where(leaf, own, found["right"])
    nodes["value"] = np.where(leaf, found["value"], 0.0)
    return nodes
