"""Few schedules for many sizes: everything is covered, nothing loses much, and no cover has fewer stretches."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.policy import cover as room

TOLERANCE = 0.02


def cover(points: Any, tolerance: float) -> Any:
    """``cover`` of points that are made up."""
    return room.cover(points, tolerance)


@dataclass(frozen=True)
class FakePoint:
    """A size with the losses of some schedules, the recommended one at no loss."""

    size: int
    overlaps: bool
    table: tuple[tuple[str, float], ...]

    @property
    def advice(self) -> Any:
        return SimpleNamespace(recommended=SimpleNamespace(choice=min(self.table, key=lambda each: each[1])[0]))

    def losses(self) -> Mapping[str, float]:
        return dict(self.table)


@st.composite
def points(draw: st.DrawFn) -> list[FakePoint]:
    names = st.sampled_from("abcde")
    losses = st.dictionaries(names, st.sampled_from([0.005, 0.015, 0.03, 0.2]), max_size=4)
    found = []
    for size in range(draw(st.integers(1, 7))):
        table = {**draw(losses), draw(names): 0.0}
        found.append(FakePoint(size, draw(st.booleans()), tuple(sorted(table.items()))))
    return found


@given(points())
def test_every_size_is_covered_at_a_small_loss(found: list[FakePoint]) -> None:
    stretches = cover(found, TOLERANCE)

    assert [point for stretch in stretches for point in stretch.points] == found
    for stretch in stretches:
        assert stretch.points, "a stretch has sizes"
        losses = [point.losses()[stretch.choice] for point in stretch.points]
        assert max(losses) == stretch.loss <= TOLERANCE
        assert len({point.overlaps for point in stretch.points}) == 1


@given(points())
def test_no_cover_has_fewer_stretches(found: list[FakePoint]) -> None:
    @cache
    def fewest(first: int) -> int:
        if first == len(found):
            return 0
        ends = [end for end in range(first + 1, len(found) + 1) if shares(found[first:end])]
        return 1 + min(map(fewest, ends))

    def shares(some: list[FakePoint]) -> bool:
        good = [{name for name, loss in point.table if loss <= TOLERANCE} for point in some]
        return bool(set.intersection(*good)) and len({point.overlaps for point in some}) == 1

    assert len(cover(found, TOLERANCE)) == fewest(0)


def test_of_those_that_do_the_one_recommended_most_often_is_taken() -> None:
    table = [
        (("a", 0.0), ("b", 0.001)),
        (("a", 0.004), ("b", 0.0)),
        (("a", 0.0), ("b", 0.001)),
    ]
    found = [FakePoint(size, True, losses) for size, losses in enumerate(table)]

    (stretch,) = cover(found, TOLERANCE)
    assert (stretch.choice, stretch.loss) == ("a", 0.004)


def test_where_nothing_is_near_the_nearest_stands_for_it() -> None:
    (stretch,) = cover([FakePoint(8, True, (("a", 0.5), ("b", 0.3)))], TOLERANCE)
    assert (stretch.choice, stretch.loss) == ("b", 0.3)
