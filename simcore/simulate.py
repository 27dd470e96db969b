"""Scenario + Schedule -> Result: lower, run, and explain where the time went."""

from contextlib import suppress
from dataclasses import dataclass, replace

from ..compiler.codes import Code
from ..compiler.ir import Cancelled, Explore, Rejection, Scenario, Schedule, Write, heeding
from ..compiler.planning.build import ScheduleError
from .figures.critical_path import critical_path
from .figures.deadlock import circle_of_waits
from .figures.load_buckets import loads_of
from .figures.loads import NO_LOADS
from .figures.metrics import busy_ticks, dil_of, kernel_ticks, server_loads, timeline_of, utilization_of
from .figures.result import Result, Waterfall
from .figures.traffic import traffic_of
from .fold.run import DEFAULT_OPTIONS, Finished, RunOptions
from .lower.machine import Idealization
from .lower.plan import Lowered
from .lower.replay import recorded_writes
from .lower.variability import perturbation_of
from .memo.memo import Memo, memo_of, memoized
from .program.outcome import Run, RunOutcome
from .program.program import PACKET_BYTES
from .simulation_case import Case


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The what-if runs behind the loss waterfall and ``cil``.

    They are made in units of ``unit_bytes``; the waterfall ends at ``bound_ticks``, a lower bound on any schedule.
    """

    unit_bytes: int
    bound_ticks: int = 0


def simulate(
    scenario: Scenario,
    schedule: Schedule,
    *,
    unit_bytes: int = PACKET_BYTES,
    seed: int | None = None,
    what_if: WhatIf | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> Result:
    """Simulate ``schedule`` in units of ``unit_bytes``; while results are kept on disk, return the kept one.

    Parameters
    ----------
    seed
        Seed of the system's variability; without one only the ranks that are late by name are late.
    what_if
        The runs behind ``waterfall`` and ``cil``; without them both are None.
    options
        How to run it; none of them changes a time. A run that is stopped is returned as far as it got, with the outcome
        CANCELLED.

    Raises
    ------
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line.
    RunTooLarge
        If the run would take minutes or more memory than is sensible.
    Cancelled
        If ``options.should_stop`` said so before the run began.
    """
    return memoized(
        _memo(scenario, schedule, unit_bytes, seed, what_if, options),
        Result,
        lambda: _simulate(
            Case(scenario, schedule, perturbation_of(scenario.system, seed)), unit_bytes, what_if, options
        ),
        given=(schedule,),
        lasts=lambda result: result.outcome is RunOutcome.DONE and (what_if is None or result.waterfall is not None),
    )


def _memo(
    scenario: Scenario,
    schedule: Schedule,
    unit_bytes: int,
    seed: int | None,
    what_if: WhatIf | None,
    options: RunOptions,
) -> Memo | None:
    """Where the result is kept."""
    how = options.fold, options.observe, options.loads
    return memo_of(("simulate", simulated_part(scenario), schedule, unit_bytes, seed, what_if, how))


def simulated_part(scenario: Scenario) -> Scenario:
    """Return ``scenario`` without what no simulation looks at: the schedules that its file declares and explores."""
    return replace(scenario, schedules=(), explore=Explore())


def _simulate(case: Case, unit_bytes: int, what_if: WhatIf | None, options: RunOptions) -> Result:
    with heeding(options.should_stop):
        lowered = case.lowered(unit_bytes, fold=options.fold)
        finished = case.run(lowered, options)
        waterfall, cil = None, None
        if what_if is not None and finished.run.outcome is RunOutcome.DONE:
            known = finished.run if what_if.unit_bytes == unit_bytes else None
            with suppress(Cancelled):  # the run itself is known
                # What ranks do is the same in all of these runs: where they were not alike, nobody looks again.
                alike = finished.ranks_simulated < lowered.program.ranks_simulated
                again = RunOptions(fold=alike, should_stop=options.should_stop)
                waterfall, cil = _explain(case, what_if, known, again)
        return result_of(lowered, finished, waterfall, cil, loads=options.loads)


def record_writes(
    scenario: Scenario, schedule: Schedule, *, unit_bytes: int = PACKET_BYTES, seed: int | None = None
) -> tuple[Write, ...]:
    """Return the writes of peers to rank 0 in a run of ``schedule``: a profile that a system can replay.

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
    lowered: Lowered, whole: Finished, waterfall: Waterfall | None = None, cil: float | None = None, loads: bool = True
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
        loads=loads_of(lowered, finished) if loads else NO_LOADS,
    )


def _explain(
    case: Case, what_if: WhatIf, known: Run | None, options: RunOptions
) -> tuple[Waterfall | None, float | None]:
    """Differences of runs of the same schedule, each with one more loss idealised away; None if one is stopped."""

    def run(ideal: Idealization) -> tuple[Lowered, Run]:
        lowered = case.lowered(what_if.unit_bytes, ideal=ideal)
        return lowered, case.run(lowered, options).run

    free, private = Idealization.FREE_LAUNCH, Idealization.PRIVATE_SERVERS
    as_is = known or run(Idealization.NONE)[1]
    no_launch_lowered, no_launch = run(free)
    alone_lowered, alone = run(free | private)
    whole = run(free | private | Idealization.WHOLE_KERNEL)[1]
    if not all(one.outcome is RunOutcome.DONE for one in (as_is, no_launch, alone, whole)):
        return None, None
    waterfall = Waterfall(
        unit_bytes=what_if.unit_bytes,
        makespan_ticks=as_is.makespan_ticks,
        launch_sync_ticks=as_is.makespan_ticks - no_launch.makespan_ticks,
        contention_ticks=no_launch.makespan_ticks - alone.makespan_ticks,
        decomposition_ticks=alone.makespan_ticks - whole.makespan_ticks,
        exposed_ticks=whole.makespan_ticks - what_if.bound_ticks,
        bound_ticks=what_if.bound_ticks,
    )
    apart = kernel_ticks(timeline_of(alone_lowered, alone))
    together = kernel_ticks(timeline_of(no_launch_lowered, no_launch))
    return waterfall, together / apart if apart else None
