"""Training by scikit-learn, which nothing else needs: features and targets in, ``BoostedTrees`` out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .boosted_trees import NODE, BoostedTrees, Floats, Nodes

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


MOST_SPLIT_COST, LEAST_IN_LEAF = 0.05, 4


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node: a leaf with its pick, or ``below`` where the feature is at most the threshold, else ``above``."""

    pick: int
    feature: int = -1
    threshold: float = 0.0
    below: "TreeNode | None" = None
    above: "TreeNode | None" = None


def small_tree(features: Floats, costs: Floats, max_leaves: int, seed: int) -> TreeNode:
    """Return a tree over [N, F] features of which each leaf picks the column of the least mean of [N, C] costs.

    Splits look at costs up to ``MOST_SPLIT_COST`` alone: how bad a bad pick is does not say where the best ones part.
    """
    from sklearn.tree import DecisionTreeRegressor

    learner = DecisionTreeRegressor(max_leaf_nodes=max_leaves, min_samples_leaf=LEAST_IN_LEAF, random_state=seed)
    fitted = learner.fit(features, np.minimum(costs, MOST_SPLIT_COST))
    tree, leaves = fitted.tree_, fitted.apply(features)
    picks = {int(leaf): int(costs[leaves == leaf].mean(axis=0).argmin()) for leaf in np.unique(leaves)}

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
