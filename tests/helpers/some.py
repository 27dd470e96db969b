"""Loops that are never empty: a test whose only asserts stand in a loop proves something only if it is entered."""

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def some(items: Iterable[Item]) -> list[Item]:
    """All ``items``, of which there is at least one."""
    found = list(items)
    assert found, "nothing to check"
    return found
