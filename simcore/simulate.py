"""System + GraphPlan -> Result: lower, run, and explain where the time went; a plan of one op has one part."""

from contextlib import suppress
from dataclasses import dataclass, replace

from ..compiler.codes import Code
from ..compiler.ir import Cancelled, GraphPlan, Rejection, Scenario, Schedule, System, Write, heeding
from ..compiler.planning.build import ScheduleError
from .figures.metrics import kernel_ticks
from .figures.plan_result import result_of
from .figures.result import Result, Waterfall
from .fold.periods import period_ticks
from .fold.run import DEFAULT_OPTIONS, RunOptions
from .lower.machine import Idealization
from .lower.plan import Lowered, plan_of
from .lower.replay import recorded_writes
from .lower.variability import perturbation_of
from .memo.memo import memo_of, memoized
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
    system: System,
    plan: GraphPlan,
    *,
    name: str = "workload",
    unit_bytes: int = PACKET_BYTES,
    seed: int | None = None,
    what_if: WhatIf | None = None,
    alike: bool = False,
    options: RunOptions = DEFAULT_OPTIONS,
) -> Result:
    """Simulate ``plan`` in units of ``unit_bytes``; while results are kept on disk, return the kept one.

    Parameters
    ----------
    name
        That of the scenario in the result.
    seed
        Seed of the system's variability; without one only the ranks that are late by name are late.
    what_if
        The runs behind ``waterfall`` and ``cil``; without them both are None.
    alike
        Take ranks that have the same plan for alike: times are estimates unless the fabric is the same around each.
    options
        How to run it; none of them changes a time. A run that is stopped is returned as far as it got, with the outcome
        CANCELLED.

    Raises
    ------
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line.
    ScheduleError
        If the system replays a profile that does not fit the plan, or the plan has more than one part.
    RunTooLarge
        If the run would take minutes or more memory than is sensible.
    Cancelled
        If ``options.should_stop`` said so before the run began.
    """
    how = options.fold, options.observe, options.loads
    return memoized(
        memo_of(("simulate", system, plan, name, unit_bytes, seed, what_if, alike, how)),
        Result,
        lambda: _simulate(Case(system, plan, perturbation_of(system, seed), alike), name, unit_bytes, what_if, options),
        given=tuple(part.schedule for part in plan.parts),
        lasts=lambda result: result.outcome is RunOutcome.DONE and (what_if is None or result.waterfall is not None),
    )


def simulate_op(
    scenario: Scenario,
    schedule: Schedule,
    *,
    unit_bytes: int = PACKET_BYTES,
    seed: int | None = None,
    what_if: WhatIf | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> Result:
    """Simulate the op of ``scenario`` under ``schedule``: a plan of one part; see ``simulate``."""
    return simulate(
        scenario.system,
        plan_of(scenario, schedule),
        name=scenario.name,
        unit_bytes=unit_bytes,
        seed=seed,
        what_if=what_if,
        options=options,
    )


def _simulate(case: Case, name: str, unit_bytes: int, what_if: WhatIf | None, options: RunOptions) -> Result:
    with heeding(options.should_stop):
        lowered, several = case.lowered(unit_bytes, fold=options.fold), case.plan.num_layers > 1
        finished = case.run(lowered, replace(options, observe=options.observe or several))
        losses: tuple[Waterfall | None, float | None] = (None, None)
        if what_if is not None and finished.run.outcome is RunOutcome.DONE:
            known = finished.run if what_if.unit_bytes == unit_bytes else None
            with suppress(Cancelled):  # the run itself is known
                # What ranks do is the same in all of these runs: where they were not alike, nobody looks again.
                fold = finished.ranks_simulated < lowered.program.ranks_simulated
                losses = _explain(case, what_if, known, RunOptions(fold=fold, should_stop=options.should_stop))
        period = period_ticks(lowered, finished.run) if several else None
        return result_of(name, lowered, finished, losses=losses, period=period, loads=options.loads)


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
    case = Case(scenario.system, plan_of(scenario, schedule), perturbation_of(scenario.system, seed))
    lowered = case.lowered(unit_bytes, fold=False)
    return recorded_writes(lowered.parts[0], case.run(lowered).run)


def _explain(
    case: Case, what_if: WhatIf, known: Run | None, options: RunOptions
) -> tuple[Waterfall | None, float | None]:
    """Differences of runs of the same plan, each with one more loss idealised away; None if one is stopped."""

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
    apart, together = kernel_ticks(alone_lowered, alone), kernel_ticks(no_launch_lowered, no_launch)
    return waterfall, together / apart if apart else None
