"""How much a run would cost, told before anything is built, so that a huge one is refused and not begun."""

from ..compiler.scenario import Scenario
from ..compiler.schedule import Reach, Reduction, Schedule, TileGroup, Transfer
from .kernels.pick import compute_work
from .kernels.reduce import reduce_work
from .kernels.work import KernelWork
from .limits import RunTooLarge
from .lower import moved_bytes
from .lower_switch import MAX_SLICES
from .protocols import sent_per_byte

MAX_LINE_HOPS = 4_000_000_000
"""About two minutes on one core at 30 million line-hops a second."""

MAX_OPS = 2_000_000
"""Work units and transfers; each costs some microseconds and some hundred bytes."""


def check_budget(scenario: Scenario, schedule: Schedule, unit_bytes: int, ranks: int) -> None:
    """Refuse a run of ``ranks`` simulated ranks in units of ``unit_bytes`` that is too large.

    Raises
    ------
    RunTooLarge
        If there are more than ``MAX_LINE_HOPS`` or ``MAX_OPS``.
    """
    byte_hops, ops = _cost(scenario, schedule)
    line_hops, ops = byte_hops // unit_bytes * ranks, ops * ranks
    if line_hops > MAX_LINE_HOPS:
        raise RunTooLarge(
            f"{schedule.expression} has about {line_hops:.1e} line-hops, the limit is {MAX_LINE_HOPS:.0e}: simulate in "
            "packets (--granularity packet), fold symmetric ranks, or ask about smaller sizes"
        )
    if ops > MAX_OPS:
        message = f"{schedule.expression} has about {ops:.1e} tiles and transfers, the limit is {MAX_OPS:.0e}"
        raise RunTooLarge(f"{message}: ask about smaller sizes or fewer chunks")


def affordable_unit(scenario: Scenario, schedule: Schedule, unit_bytes: int, max_line_hops: int) -> int:
    """``unit_bytes``, doubled until a folded run has no more than ``max_line_hops`` line-hops."""
    byte_hops, _ = _cost(scenario, schedule)
    while byte_hops // unit_bytes > max_line_hops:
        unit_bytes *= 2
    return unit_bytes


def _cost(scenario: Scenario, schedule: Schedule) -> tuple[int, int]:
    """(bytes times servers they pass, ops) of the rank with most steps, to within what a guess of the routes allows."""
    byte_hops, ops = 0, 0
    for step in max(schedule.by_rank or (schedule.steps,), key=len):
        if isinstance(step, Transfer):
            to_all = step.reach is Reach.ALL
            hops = 4 * scenario.num_ranks if to_all else 2 + max(1, scenario.num_ranks // 2)
            byte_hops += int(moved_bytes(scenario, step.region) * sent_per_byte(schedule) * hops)
            ops += 3 * MAX_SLICES * schedule.engine.count if to_all else 1
        else:
            work = _work(scenario, schedule, step)
            byte_hops += work.l2_hit_bytes + 2 * (work.hbm_read_bytes + work.hbm_write_bytes)
            ops += work.num_units
    return byte_hops, ops


def _work(scenario: Scenario, schedule: Schedule, step: TileGroup | Reduction) -> KernelWork:
    if isinstance(step, TileGroup):
        return compute_work(scenario, step, schedule.compute_sms)
    return reduce_work(scenario.gpu, moved_bytes(scenario, step.region), step.num_parts, schedule.compute_sms)
