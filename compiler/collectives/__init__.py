"""Collective algorithms, each written once; templates compose them with kernels. A new one is a file, a line here."""

from collections.abc import Mapping
from types import MappingProxyType

from . import direct, double_ring, double_tree, halving_doubling, hierarchical, nvls, one_shot, ring
from .base import Algorithm, CollectiveProblem, Fragment, signal_of

ALGORITHMS: tuple[Algorithm, ...] = (
    direct.ALGORITHM,
    one_shot.ALGORITHM,
    ring.ALGORITHM,
    double_ring.ALGORITHM,
    halving_doubling.ALGORITHM,
    double_tree.ALGORITHM,
    hierarchical.ALGORITHM,
    nvls.ALGORITHM,
)

ALGORITHM_BY_NAME: Mapping[str, Algorithm] = MappingProxyType({algorithm.name: algorithm for algorithm in ALGORITHMS})

__all__ = ["ALGORITHMS", "ALGORITHM_BY_NAME", "Algorithm", "CollectiveProblem", "Fragment", "signal_of"]
