"""Fitting a proposal model to a table: how far the closed form is off, of which structures in which situations."""

import numpy as np
import numpy.typing as npt

from .boosted_trees import ModelError
from .errors import EstimateErrors
from .learner import boosted_trees, regressor
from .pairs import PIPELINE, FeatureScale, names_of_features, pair_features
from .proposal_model import Library, ProposalModel
from .shapes import Shapes
from .table import ANYWHERE, Labels, LabelTable

# Errors beyond this are outliers, whose size says nothing. Structures that are slower by this share count for 1 / e:
# how well their times are predicted does not matter.
MAX_ERROR, FAR = 0.4, 0.15

FloatArray = npt.NDArray[np.float64]

# Pairs are many, and the error of the closed form depends on several numbers together.
TREES = {"loss": "squared_error", "max_iter": 80, "learning_rate": 0.17, "max_leaf_nodes": 31, "min_samples_leaf": 30}


def fit_model(table: LabelTable, known: frozenset[int], seed: int = 0) -> ProposalModel:
    """Fit to the labels of the scenarios ``known``; the library has their winners and the catalogue alone.

    Raises
    ------
    ModelError
        If no label is left.
    """
    kept = np.array([winner.idx in known or winner.idx == ANYWHERE for winner in table.winners])
    rows = [labels.among(kept) for labels in table.labels if labels.idx in known]
    rows = [labels for labels in rows if len(labels.winners)]
    if not rows:
        raise ModelError("no structure of the table fits any of its scenarios: make it of more records")
    scale, origins = FeatureScale.of(np.array([labels.situation.values for labels in rows])), table.origins()
    features = np.concatenate([_features(labels, table, origins, scale) for labels in rows])
    times, losses = (np.concatenate([getattr(labels, each) for labels in rows]) for each in ("times", "losses"))
    errors = np.clip(times - features[:, names_of_features(table.names).index(PIPELINE)], -MAX_ERROR, MAX_ERROR)
    trees = boosted_trees(regressor(features, errors, seed, TREES, np.exp(-losses / FAR)))
    before, after = (_library(table, origins, kept, consumes=consumes) for consumes in (False, True))
    return ProposalModel(table.names, before, after, scale, trees, EstimateErrors.of([row.found for row in rows]))


def _features(labels: Labels, table: LabelTable, origins: FloatArray, scale: FeatureScale) -> FloatArray:
    structures = [table.winners[number].structure for number in labels.winners]
    shapes = Shapes.of(structures, labels.situation.num_ranks, consumes=labels.consumes)
    return pair_features(labels.situation, shapes, origins[labels.winners], scale)


def _library(table: LabelTable, origins: FloatArray, kept: npt.NDArray[np.bool_], *, consumes: bool) -> Library:
    some = [number for number, winner in enumerate(table.winners) if kept[number] and winner.consumes is consumes]
    structures = tuple(table.winners[number].structure for number in some)
    return Library(structures, origins[some], consumes)
