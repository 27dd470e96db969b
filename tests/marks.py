"""Which of many cases are left to the slow tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(values: Iterable[Any], every: int) -> list[Any]:
    """All ``values``; only the first and each ``every``-th after it is no slow test."""
    slow = pytest.mark.slow
    return [value if not place % every else pytest.param(value, marks=slow) for place, value in enumerate(values)]
