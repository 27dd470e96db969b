"""Scenario + Schedule -> Result: lower, run, and explain where the time went."""

from collections.abc import Callable

from ..compiler.scenario import Scenario
from ..compiler.schedule import Schedule
from .budget import check_budget
from .checks import HorizonError
from .critical import critical_path
from .deadlock import circle_of_waits
from .engine import Run
from .finished import run_folded
from .limits import RunTooLarge
from .lower import Lowered, lower
from .machine import Idealization
from .metrics import busy_ticks, dil_of, kernel_ticks, server_loads, timeline_of, traffic_of, utilization_of
from .outcome import Outcome
from .result import PACKET_BYTES, Result, Waterfall

ShouldStop = Callable[[], bool]


def simulate(
    scenario: Scenario,
    schedule: Schedule,
    *,
    unit_bytes: int = PACKET_BYTES,
    fold: bool = True,
    bound_ticks: int | None = None,
    explain_bytes: int | None = None,
    observe: bool = False,
    should_stop: ShouldStop | None = None,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Run ``schedule`` at a granularity of ``unit_bytes``.

    Parameters
    ----------
    bound_ticks
        Lower bound on any schedule of the scenario; the loss waterfall ends there.
    explain_bytes
        Granularity of the what-if runs behind the waterfall and ``cil``; None leaves both out.
    observe
        Whether to find out where units queued, for ``servers`` and ``critical_path``; takes some more time.
    should_stop
        Asked now and then; if it says yes, what was found so far is returned, with the outcome CANCELLED.
    progress
        Told now and then how many line-hops of the run itself, what-if runs left out, have been simulated.

    Raises
    ------
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line.
    RunTooLarge
        If the run would take minutes or more memory than is sensible.
    """
    ranks = 1 if fold and not schedule.overrides else scenario.num_ranks
    check_budget(scenario, schedule, unit_bytes, ranks)
    try:
        lowered = lower(scenario, schedule, unit_bytes=unit_bytes, fold=fold)
    except HorizonError as error:
        raise RunTooLarge(f"{schedule.expression}: {error}") from error
    whole = run_folded(lowered.program, fold=fold, observe=observe, should_stop=should_stop, progress=progress)
    finished = whole.run
    timeline = timeline_of(lowered, finished)
    compute, comm, union = busy_ticks(timeline)
    waterfall, cil = None, None
    if explain_bytes is not None and finished.outcome is Outcome.DONE:
        known = finished if explain_bytes == unit_bytes else None
        waterfall, cil = _explain(scenario, schedule, explain_bytes, bound_ticks or 0, known, should_stop)
    return Result(
        scenario=scenario.name,
        schedule=schedule,
        unit_bytes=unit_bytes,
        line_bytes=scenario.gpu.line_bytes,
        clock_hz=scenario.gpu.clock_hz,
        outcome=finished.outcome,
        makespan_ticks=finished.makespan_ticks,
        compute_ticks=compute,
        comm_ticks=comm,
        union_ticks=union,
        dil=dil_of(lowered),
        cil=cil,
        waterfall=waterfall,
        line_hops=whole.line_hops,
        line_hops_represented=whole.line_hops_represented,
        traffic=traffic_of(lowered, finished),
        utilization=utilization_of(lowered, finished),
        num_ranks=scenario.num_ranks,
        ranks_simulated=whole.ranks_simulated,
        not_alike=whole.not_alike,
        core=finished.core,
        timeline=timeline,
        servers=server_loads(lowered.program, finished),
        critical_path=critical_path(lowered.program, finished),
        deadlock=circle_of_waits(lowered.program, finished),
    )


def _explain(
    scenario: Scenario,
    schedule: Schedule,
    unit_bytes: int,
    bound_ticks: int,
    known: Run | None,
    should_stop: ShouldStop | None,
) -> tuple[Waterfall | None, float | None]:
    """Differences of runs of the same schedule, each with one more loss idealised away; None if one is stopped."""

    def what_if(ideal: Idealization) -> tuple[Lowered, Run]:
        lowered = lower(scenario, schedule, unit_bytes=unit_bytes, ideal=ideal)
        return lowered, run_folded(lowered.program, should_stop=should_stop).run

    free, private = Idealization.FREE_LAUNCH, Idealization.PRIVATE_SERVERS
    as_is = known or what_if(Idealization.NONE)[1]
    no_launch_lowered, no_launch = what_if(free)
    alone_lowered, alone = what_if(free | private)
    whole = what_if(free | private | Idealization.WHOLE_KERNEL)[1]
    if not all(one.outcome is Outcome.DONE for one in (as_is, no_launch, alone, whole)):
        return None, None
    waterfall = Waterfall(
        unit_bytes=unit_bytes,
        makespan_ticks=as_is.makespan_ticks,
        launch_sync_ticks=as_is.makespan_ticks - no_launch.makespan_ticks,
        contention_ticks=no_launch.makespan_ticks - alone.makespan_ticks,
        decomposition_ticks=alone.makespan_ticks - whole.makespan_ticks,
        exposed_ticks=whole.makespan_ticks - bound_ticks,
        bound_ticks=bound_ticks,
    )
    apart = kernel_ticks(timeline_of(alone_lowered, alone))
    together = kernel_ticks(timeline_of(no_launch_lowered, no_launch))
    return waterfall, together / apart if apart else None
