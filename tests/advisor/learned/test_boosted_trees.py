"""Boosted trees as an array: equal to those of scikit-learn, and refused where they are none."""

from typing import Any

import numpy as np
import pytest

from magus.advisor.learned.boosted_trees import (
    MAX_DEPTH,
    NODE,
    BoostedTrees,
    Floats,
    ModelError,
    boosted_trees,
    regressor,
)
from magus.advisor.training.train import TREES

FEATURES = 5
INNER, LEFT, RIGHT = 1, 2, 3  # the nodes of the second tree


@pytest.fixture(scope="module")
def rows() -> tuple[Floats, Floats]:
    random = np.random.default_rng(1)
    features = random.normal(size=(800, FEATURES))
    return features, 2.0 + features[:, 0] * features[:, 3] + 0.1 * random.normal(size=800)


def small() -> np.ndarray[Any, Any]:
    """A lone leaf of 10, and a tree: 1 where feature 2 is at most 0.5, else 2."""
    nodes = np.zeros(4, NODE)
    nodes["left"] = nodes["right"] = np.arange(4)
    nodes["value"] = [10.0, 0.0, 1.0, 2.0]
    nodes[INNER] = (2, LEFT, RIGHT, 0.5, 0.0)
    return nodes


@pytest.mark.slow
def test_they_predict_what_scikit_learn_predicts(rows: tuple[Floats, Floats]) -> None:
    learned = regressor(*rows, 0, TREES)
    trees = boosted_trees(learned)
    random, inner = np.random.default_rng(2), np.flatnonzero(trees.nodes["left"] != np.arange(len(trees.nodes)))
    at_thresholds = random.normal(size=(len(inner), FEATURES))
    at_thresholds[np.arange(len(inner)), trees.nodes["feature"][inner]] = trees.nodes["threshold"][inner]

    for features in (rows[0], 10 * rows[0], at_thresholds):
        assert np.allclose(trees.predict(features), learned.predict(features), rtol=1e-12, atol=0)
    assert len(trees.roots) == learned.n_iter_ + 1


def test_a_file_holds_the_same_trees(rows: tuple[Floats, Floats]) -> None:
    trees = boosted_trees(regressor(*rows, 0, TREES))
    again = BoostedTrees.from_bytes(trees.to_bytes(), FEATURES)

    assert again.to_bytes() == trees.to_bytes()
    assert np.array_equal(again.predict(rows[0]), trees.predict(rows[0]))


def test_leaves_add_up_and_the_threshold_goes_left() -> None:
    trees = BoostedTrees.of(small(), FEATURES)
    features = np.zeros((3, FEATURES))
    features[:, 2] = 0.4, 0.5, 0.6

    assert trees.predict(features).tolist() == [11.0, 11.0, 12.0]
    assert trees.predict(features[:0]).tolist() == []
    assert trees.roots.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("node", "field", "value", "why"),
    [
        (INNER, "left", 0, "no child"),  # backwards: a walk would never end
        (INNER, "right", INNER, "no child"),
        (INNER, "right", LEFT, "no child"),  # one child, twice
        (INNER, "right", 4, "no child"),
        (INNER, "left", -1, "no child"),
        (LEFT, "right", RIGHT, "a leaf has a child"),
        (INNER, "feature", FEATURES, "features"),
        (INNER, "feature", -1, "features"),
        (INNER, "threshold", np.nan, "features"),
        (RIGHT, "value", np.nan, "finite"),
        (RIGHT, "value", -np.inf, "finite"),
    ],
)
def test_nodes_that_are_no_trees_are_refused(node: int, field: str, value: float, why: str) -> None:
    nodes = small()
    nodes[field][node] = value

    with pytest.raises(ModelError, match=why):
        BoostedTrees.of(nodes, FEATURES)


def test_values_whose_sum_is_not_finite_are_refused() -> None:
    nodes = small()
    nodes["value"][:2] = 1e308

    with pytest.raises(ModelError, match="finite"):
        BoostedTrees.of(nodes, FEATURES)


def test_no_walk_is_long() -> None:
    steps = MAX_DEPTH + 1
    nodes = np.zeros(2 * steps + 1, NODE)
    nodes["left"] = nodes["right"] = np.arange(len(nodes))
    for step in range(steps):
        nodes["left"][2 * step], nodes["right"][2 * step] = 2 * step + 1, 2 * step + 2

    with pytest.raises(ModelError, match="deeper"):
        BoostedTrees.of(nodes, FEATURES)


@pytest.mark.parametrize("data", [b"", b"x", small().tobytes()[:-1]])
def test_bytes_that_are_no_nodes_are_refused(data: bytes) -> None:
    with pytest.raises(ModelError, match="damaged"):
        BoostedTrees.from_bytes(data, FEATURES)
