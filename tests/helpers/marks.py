"""Which of many cases are left to the slow tests."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def thinned(values: Iterable[Any], every: int) -> list[Any]:
    """All ``values``; only the first and each ``every``-th after it is no slow test."""
    slow = pytest.mark.slow
    return [value if not place % every else pytest.param(value, marks=slow) for place, value in enumerate(values)]


def first(values: Sequence[Any], count: int) -> list[Any]:
    """All ``values``; only the first ``count`` are no slow tests."""
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.slow) for value in values[count:])]
