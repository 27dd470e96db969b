"""Local search on joint schedules: the small changes that are estimated to be the best are simulated."""

from collections.abc import Iterator

from ...compiler.ir import GraphChoice, checkpoint
from ...compiler.planning.build import ScheduleError
from .joint import JointRuns
from .moves import other_paces, small_changes
from .space import LayerSpace
from .timing import estimated_ticks

LEAST_GAIN = 0.0005
"""Share of time that a change must gain: less is within the error of coarse packets."""

SLACK = 0.002
"""Changes that are estimated to lose more than this share of time are not simulated."""

PATIENCE = 6
"""Changes in a row that are simulated and gain nothing: then no further one is tried."""


def improved(runs: JointRuns, space: LayerSpace, start: GraphChoice) -> Iterator[GraphChoice]:
    """Yield ever faster schedules that small changes lead to from ``start``.

    They end where nothing is gained, or where the search has taken what it may. Estimates order schedules well, but do
    not know caches and priorities: a change counts once it is simulated.

    Raises
    ------
    Cancelled
        If the caller is asked to stop.
    """
    best, ticks = start, runs.ticks(start)
    while ticks is not None:
        found = None
        for changed in _promising(space, best):
            if runs.is_spent:
                break
            faster = runs.ticks(changed)
            if faster is not None and faster < ticks * (1 - LEAST_GAIN):
                found = changed, faster
                break
        if found is None:
            break
        best, ticks = found
        yield best


def _promising(space: LayerSpace, choice: GraphChoice) -> Iterator[GraphChoice]:
    """Yield the changes that are worth a simulation, the best by their estimate first."""
    limit = _estimate(space, choice)
    if limit is None:
        return
    estimated = []
    for place, changed in enumerate(small_changes(space.graph, space.ways, space.following, choice)):
        checkpoint()
        estimate = _estimate(space, changed)
        if estimate is not None and estimate <= limit * (1 + SLACK):
            estimated.append((estimate, place, changed))
    for _, _, changed in sorted(estimated, key=lambda each: each[:2])[:PATIENCE]:
        yield changed


def at_its_paces(space: LayerSpace, choice: GraphChoice) -> GraphChoice:
    """Return ``choice`` with each whole collective as slow as is estimated to be best, one changed after the other."""
    best, least = choice, _estimate(space, choice)
    changed = least is not None
    while changed and least is not None:
        changed = False
        for slower in other_paces(space.graph, space.ways, best):
            checkpoint()
            estimate = _estimate(space, slower)
            if estimate is not None and estimate < least * (1 - LEAST_GAIN):
                best, least, changed = slower, estimate, True
                break
    return best


def _estimate(space: LayerSpace, choice: GraphChoice) -> int | None:
    """The estimated time; None where the order cannot be kept."""
    try:
        return estimated_ticks(space, choice)
    except ScheduleError:
        return None
