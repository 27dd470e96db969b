"""Scenario + Schedule -> Result: lower, run, and explain where the time went."""

from collections.abc import Callable
from contextlib import suppress

from ..compiler.codes import Code
from ..compiler.ir import Cancelled, Rejection, Scenario, Schedule, ShouldStop, Write, heeding
from ..compiler.planning.build import ScheduleError
from .figures.critical_path import critical_path
from .figures.deadlock import circle_of_waits
from .figures.metrics import busy_ticks, dil_of, kernel_ticks, server_loads, timeline_of, utilization_of
from .figures.result import PACKET_BYTES, Result, Waterfall
from .figures.traffic import traffic_of
from .fold.run import Finished
from .lower.machine import Idealization
from .lower.plan import Lowered
from .lower.replay import recorded_writes
from .lower.variability import perturbation_of
from .program.outcome import Run, RunOutcome
from .simulation_case import Case


def simulate(
    scenario: Scenario,
    schedule: Schedule,
    *,
    unit_bytes: int = PACKET_BYTES,
    fold: bool = True,
    bound_ticks: int | None = None,
    explain_bytes: int | None = None,
    observe: bool = False,
    seed: int | None = None,
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
    seed
        What the variability of the system is drawn with; without one only what is late by name is late.
    should_stop
        Asked at least once a second; if it says yes, what the run found so far is returned, with the outcome CANCELLED.
    progress
        Told now and then how many line-hops of the run itself, what-if runs left out, have been simulated.

    Raises
    ------
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line.
    RunTooLarge
        If the run would take minutes or more memory than is sensible.
    Cancelled
        If ``should_stop`` said so before the run began.
    """
    case = Case(scenario, schedule, perturbation_of(scenario.system, seed))
    with heeding(should_stop):
        lowered = case.lowered(unit_bytes, fold=fold)
        whole = case.run(lowered, fold=fold, observe=observe, should_stop=should_stop, progress=progress)
        waterfall, cil = None, None
        if explain_bytes is not None and whole.run.outcome is RunOutcome.DONE:
            known = whole.run if explain_bytes == unit_bytes else None
            with suppress(Cancelled):  # the run itself is known
                waterfall, cil = _explain(case, explain_bytes, bound_ticks or 0, known, should_stop)
        return result_of(lowered, whole, waterfall, cil)


def record_writes(
    scenario: Scenario, schedule: Schedule, *, unit_bytes: int = PACKET_BYTES, seed: int | None = None
) -> tuple[Write, ...]:
    """What peers write to rank 0 in a run of ``schedule``, as a profile that a system can replay.

    Raises
    ------
    ScheduleError
        If the system replays a profile itself, or the run has no profile.
    RunTooLarge
        If the run would take minutes or more memory than is sensible.
    """
    if scenario.system.replay is not None:
        message = f"{scenario.system.name} replays a profile, and records none"
        raise ScheduleError(Rejection(Code.MGS523, message))
    case = Case(scenario, schedule, perturbation_of(scenario.system, seed))
    lowered = case.lowered(unit_bytes, fold=False)
    return recorded_writes(lowered, case.run(lowered).run)


def result_of(
    lowered: Lowered, whole: Finished, waterfall: Waterfall | None = None, cil: float | None = None
) -> Result:
    """The figures of a finished run."""
    scenario, schedule, finished = lowered.scenario, lowered.schedule, whole.run
    timeline = timeline_of(lowered, finished)
    compute, comm, union = busy_ticks(timeline)
    return Result(
        scenario=scenario.name,
        schedule=schedule,
        unit_bytes=lowered.program.unit_bytes,
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
    case: Case, unit_bytes: int, bound_ticks: int, known: Run | None, should_stop: ShouldStop | None
) -> tuple[Waterfall | None, float | None]:
    """Differences of runs of the same schedule, each with one more loss idealised away; None if one is stopped."""

    def what_if(ideal: Idealization) -> tuple[Lowered, Run]:
        lowered = case.lowered(unit_bytes, ideal=ideal)
        return lowered, case.run(lowered, should_stop=should_stop).run

    free, private = Idealization.FREE_LAUNCH, Idealization.PRIVATE_SERVERS
    as_is = known or what_if(Idealization.NONE)[1]
    no_launch_lowered, no_launch = what_if(free)
    alone_lowered, alone = what_if(free | private)
    whole = what_if(free | private | Idealization.WHOLE_KERNEL)[1]
    if not all(one.outcome is RunOutcome.DONE for one in (as_is, no_launch, alone, whole)):
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
