"""What an interval is, in a line: the step, its time, what it moves or computes, and what it waits for."""

from ....compiler.ir import TICKS_PER_US, Direction, Reach, Reduction, Region, Scenario, Step, TileGroup, Transfer
from ....compiler.text.quantities import bytes_text
from ....simcore.figures.result import Interval, Result
from ....simcore.lower.state import moved_bytes
from .follow import step_named

MOST_NAMED = 3
"""Most waits that are named."""


def told(scenario: Scenario, result: Result, rank: int, interval: Interval) -> str:
    """Return a line about ``interval``, shown at ``rank``."""
    start, end = interval.start_ticks / TICKS_PER_US, interval.end_ticks / TICKS_PER_US
    parts = [f"{interval.name} on r{rank} {interval.lane}", f"{start:.1f} to {end:.1f} us ({end - start:.1f} us)"]
    step = step_named(result, rank, interval.name)
    if step is not None:
        parts.append(_work(scenario, rank, step))
        if step.after:
            parts.append(f"after {_listed(step.after)}")
    return " · ".join(parts)


def _work(scenario: Scenario, rank: int, step: Step) -> str:
    match step:
        case Transfer():
            return f"{step.direction.value} of {_moved(scenario, step.region)}{_way(scenario.num_ranks, rank, step)}"
        case TileGroup():
            rows = sum(region.rows.size for region in step.regions)
            return f"kernel {rows} x {step.regions[0].cols.size}, k {step.k.size}"
        case Reduction():
            return f"sum of {step.num_parts} parts of {_moved(scenario, step.region)}"


def _moved(scenario: Scenario, region: Region) -> str:
    return bytes_text(moved_bytes(scenario, region)) if scenario.workload.moved is not None else "data"


def _way(num_ranks: int, rank: int, step: Transfer) -> str:
    if step.reach is Reach.ALL:
        return " to all ranks"
    peer = (rank + step.peer) % num_ranks
    return f" to r{peer}" if step.direction is Direction.PUT else f" from r{peer}"


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
