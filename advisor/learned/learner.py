"""Training by scikit-learn, which nothing else needs: features and targets in, ``BoostedTrees`` out."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .boosted_trees import NODE, BoostedTrees, Floats, Nodes

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor


def regressor(
    features: Floats, target: Floats, seed: int, trees: Mapping[str, object]
) -> "HistGradientBoostingRegressor":
    """Return scikit-learn's regressor of the kind ``trees``, fitted to [N, F] features without NaN, and [N] targets."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    learner = HistGradientBoostingRegressor(early_stopping=False, random_state=seed, **trees)
    with threadpool_limits(1):  # sums by several threads differ in their last bits from machine to machine
        return learner.fit(features, target)


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
