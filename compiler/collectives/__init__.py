"""Collective algorithms, each written once; templates compose them with kernels. A new one is a file, a line here."""

from collections.abc import Mapping
from types import MappingProxyType

from . import direct, rings, tori, trees
from .base import Algorithm, CollectiveProblem, Fragment, signal_of

ALGORITHMS: tuple[Algorithm, ...] = (
    direct.DIRECT,
    direct.ONE_SHOT,
    rings.RING,
    rings.DOUBLE_RING,
    trees.HALVING_DOUBLING,
    trees.DOUBLE_TREE,
    rings.HIERARCHICAL,
    tori.TORUS_TREE,
    direct.NVLS,
)

ALGORITHM_BY_NAME: Mapping[str, Algorithm] = MappingProxyType({algorithm.name: algorithm for algorithm in ALGORITHMS})

__all__ = ["ALGORITHMS", "ALGORITHM_BY_NAME", "Algorithm", "CollectiveProblem", "Fragment", "signal_of"]
