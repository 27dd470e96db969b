"""What an interval is, in a line: the step, its time, what it moves or computes, and what it waits for."""

from ....compiler.ir import TICKS_PER_US, Direction, Reach, Reduction, Region, Scenario, Step, TileGroup, Transfer
from ....compiler.planning.graph_layers import own_name
from ....compiler.text.quantities import bytes_text
from ....simcore.figures.result import Interval
from ....simcore.lower.state import moved_bytes
from ....simcore.op_spans import op_times
from ....simcore.shown_run import ShownRun

MOST_NAMED = 3
"""Most waits that are named."""


def told(run: ShownRun, rank: int, interval: Interval) -> str:
    """Return a line about ``interval``, shown at ``rank``: a step, or an op of a graph."""
    start, end = interval.start_ticks / TICKS_PER_US, interval.end_ticks / TICKS_PER_US
    parts = [f"{interval.name} on r{rank} {interval.lane}", f"{start:.1f} to {end:.1f} us ({end - start:.1f} us)"]
    step = run.step_of(rank, interval.name)
    if step is not None:
        parts.append(_work(run.part_of(rank, interval.name).scenario, rank, step))
        if step.after:
            parts.append(f"after {_listed(step.after)}")
    parts += _op(run, interval.name)
    return " · ".join(parts)


def _op(run: ShownRun, name: str) -> list[str]:
    """What the op of that name is, and what hides its copies; nothing if that is the name of a step."""
    part = next((part for part in run.parts if part.op == name), None)
    if part is None:
        return []
    same = next((op for op in op_times(run) if op.name == own_name(name)), None)
    how = [f"{part.label} {same.span.schedule}".strip()] if same is not None else [part.label]
    return [*how, f"copies beside {same.beside_text}"] if same is not None and same.beside_text else how


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
