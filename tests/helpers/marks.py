"""Which of many cases are left to the slow tests, and how many a drawn test draws."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

import pytest
from hypothesis import settings


def thinned(values: Iterable[Any], every: int) -> list[Any]:
    """All ``values``; only the first and each ``every``-th after it is no slow test."""
    slow = pytest.mark.slow
    return [value if not place % every else pytest.param(value, marks=slow) for place, value in enumerate(values)]


def first(values: Sequence[Any], count: int) -> list[Any]:
    """All ``values``; only the first ``count`` are no slow tests."""
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.slow) for value in values[count:])]


def name_of(value: object) -> str:
    """The name of a case with a template, an algorithm or a pattern; others as they are."""
    return str(value.value if isinstance(value, Enum) else getattr(value, "name", value))


def examples(count: int, deep: int | None = None) -> settings:
    """Settings of a test that draws ``count`` examples where others draw 100.

    In the quick profile these are fewer, in the deep one more, or ``deep`` where that is said.
    """
    quick, now = settings.get_profile("quick").max_examples, settings().max_examples
    return settings(max_examples=-(-count * now // 100) if deep is None or now == quick else deep)
