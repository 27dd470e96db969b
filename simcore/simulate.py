"""From a System and a Plan to a Result: lower the plan, run it, and explain where the time went."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial

from ..compiler.codes import Code
from ..compiler.ir import (
    BackgroundWrite,
    Cancelled,
    EngineKind,
    OpCase,
    OpPlan,
    Plan,
    Rejection,
    Step,
    System,
    TileGroup,
    Transfer,
    Write,
    heeding,
)
from ..compiler.planning.build import ScheduleError
from .cores.endings import without_later_traffic
from .figures.metrics import kernel_ticks
from .figures.plan_result import result_of
from .figures.result import Result, Waterfall
from .fold.run import DEFAULT_OPTIONS, PERIODIC_LAYERS, Finished, RunOptions, period_ticks, run_folded
from .lower.budget import check_budget
from .lower.machine import Idealization
from .lower.plan import Lowered, lower, plan_of, plan_period, unit_of
from .lower.variability import (
    TARGET,
    Perturbation,
    lower_replayed,
    perturbation_of,
    perturbed,
    recorded_writes,
    writes_until,
)
from .memo.memo import memo_of, memoized
from .program.limits import HorizonError, RunTooLarge
from .program.program import PACKET_BYTES, Run, RunOutcome

VARIES = "the times of the ranks are drawn at random"
TRAFFIC = "traffic of other programs goes to some ranks"
REPLAYED = "rank 0 alone is simulated, what its peers write comes from a profile"


@dataclass(frozen=True, slots=True)
class Case:
    """A run that is to be made.

    Attributes
    ----------
    system, plan
        What to simulate.
    perturbation
        What changes the times of single ranks; None if all have the times of the plan.
    alike
        Whether one rank stands for all ranks with the same steps, whoever their peers are: see ``lower``.
    """

    system: System
    plan: Plan
    perturbation: Perturbation | None = None
    alike: bool = False

    @property
    def drawn(self) -> bool:
        """Whether each rank has times of its own."""
        return self.perturbation is not None and self.perturbation.seed is not None

    @property
    def only_copies(self) -> bool:
        """Whether copy engines do all that is done: no kernel and no other program meets them."""
        by_engines = all(part.schedule.engine.kind is EngineKind.DMA for part in self.plan.parts)
        return self.system.traffic is None and by_engines and self._step_kinds <= {Transfer}

    @property
    def has_tiles(self) -> bool:
        """Whether there are kernels whose parts may take longer than the whole."""
        return TileGroup in self._step_kinds

    @property
    def _step_kinds(self) -> set[type[Step]]:
        plans = ((part.schedule, part.schedule.period(self.system.num_ranks)) for part in self.plan.parts)
        return {type(step) for plan, period in plans for rank in range(period) for step in plan.steps_of(rank)}

    def lowered(
        self,
        unit_bytes: int,
        *,
        fold: bool = True,
        ideal: Idealization = Idealization.NONE,
        background: Sequence[BackgroundWrite] = (),
    ) -> Lowered:
        """Lower the case, with the writes of the ``background``; folded only where ranks cannot differ.

        Raises
        ------
        ValueError
            If ``unit_bytes`` is not a multiple of the GPU's line.
        ScheduleError
            If a profile is to be replayed that does not fit the plan, or by more than one part.
        RunTooLarge
            If the run would take minutes or more memory than is sensible.
        """
        system, plan, replay = self.system, self.plan, self.system.replay
        fold = fold and self.perturbation is None and not background
        try:
            if replay is not None:
                if len(plan.parts) > 1:
                    message = f"{system.name} replays a profile, which is one of a single op"
                    raise ScheduleError(Rejection(Code.MGS523, message))
                check_budget(system, plan, unit_bytes, 1)
                return self.varied(lower_replayed(system, plan, replay, unit_bytes=unit_bytes, ideal=ideal))
            ranks = plan_period(system, plan, alike=self.alike) if fold else system.num_ranks
            check_budget(system, plan, unit_bytes, ranks)
            return self.varied(
                lower(
                    system, plan, unit_bytes=unit_bytes, fold=fold, alike=self.alike, ideal=ideal, background=background
                )
            )
        except HorizonError as error:
            raise RunTooLarge(f"{plan.expression}: {error}") from error

    def varied(self, lowered: Lowered) -> Lowered:
        """``lowered`` with the times of this case; writes of a profile keep theirs."""
        if self.perturbation is None:
            return lowered
        ranks = range(self.system.num_ranks) if self.system.replay is None else (TARGET,)
        gets = (get for part in lowered.parts for get in part.gets())
        return lowered.with_program(perturbed(lowered.program, self.perturbation, ranks, gets))

    def run(self, lowered: Lowered, options: RunOptions = DEFAULT_OPTIONS) -> Finished:
        """Run the program of ``lowered``, one rank for all that are alike."""
        shifts = options.fold and lowered.only_shifts
        fold = options.fold and not shifts and not self.drawn and self.system.replay is None
        whole = run_folded(lowered.program, replace(options, fold=fold))
        if self.system.replay is not None:
            return replace(whole, ranks_simulated=1, not_alike=REPLAYED)
        if self.drawn:
            return replace(whole, not_alike=VARIES)
        return replace(whole, not_alike=f"the fabric repeats every {whole.ranks_simulated} ranks") if shifts else whole

    def simulated(
        self,
        unit_bytes: int,
        options: RunOptions = DEFAULT_OPTIONS,
        ideal: Idealization = Idealization.NONE,
        *,
        in_periods: bool = False,
    ) -> tuple[Lowered, Finished]:
        """Lower the case and run it, with the system's traffic beside it from the begin to the end of the plan.

        The ranks of one period stand for all where options say to fold, or ``in_periods``; no others do in the latter.
        The end is not known before: there are writes for a quarter longer than the last run took, until the plan ends
        before them. What has private servers meets no traffic.
        """
        lowered = self.lowered(unit_bytes, fold=options.fold or in_periods, ideal=ideal)
        finished, traffic = self.run(lowered, options), self.system.traffic
        if traffic is None or Idealization.PRIVATE_SERVERS in ideal:
            return lowered, finished
        seed = 0 if self.perturbation is None else self.perturbation.seed or 0
        until = 0
        while finished.run.outcome is RunOutcome.DONE and (end := finished.run.makespan_ticks) > until:
            until = end + end // 4
            lowered = self.lowered(unit_bytes, ideal=ideal, background=writes_until(traffic, until, seed))
            finished = self.run(lowered, replace(options, fold=False))
        return lowered, replace(finished, run=without_later_traffic(lowered.program, finished.run), not_alike=TRAFFIC)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Parameters of the what-if runs, which give the loss waterfall and ``cil``.

    Attributes
    ----------
    unit_bytes
        The granularity of these runs, in bytes.
    bound_ticks
        A lower bound on any schedule, at which the waterfall begins.
    makespan_ticks
        The time of the plan itself at this granularity; None if it is still to be simulated.
    """

    unit_bytes: int
    bound_ticks: int = 0
    makespan_ticks: int | None = None


def simulate(
    system: System,
    plan: Plan,
    *,
    name: str = "workload",
    unit_bytes: int = PACKET_BYTES,
    seed: int | None = None,
    what_if: WhatIf | None = None,
    alike: bool = False,
    options: RunOptions = DEFAULT_OPTIONS,
) -> Result:
    """Simulate ``plan`` on ``system``; while results are kept on disk, return the kept one.

    Parameters
    ----------
    system, plan
        What to simulate; a plan of one op has one part (``Plan.of_one``).
    name
        The name of the scenario in the result.
    unit_bytes
        The granularity in bytes: the line of the GPU, or a multiple of it for packets.
    seed
        Seed of the system's variability and traffic. Without one nothing is drawn: only ranks that the system declares
        late are late.
    what_if
        The runs that give ``waterfall`` and ``cil`` of the result; without them both are None.
    alike
        Let one rank stand for all ranks with the same plan. Times are then estimates, unless the fabric looks the same
        from each of these ranks.
    options
        How to run; no option changes a time. A run that is stopped returns what it has so far, with the outcome
        CANCELLED.

    Returns
    -------
    Result
        Times in ticks of 10 fs, bytes of traffic, losses, and the timeline.

    Raises
    ------
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line.
    ScheduleError
        If the system replays a profile, and this does not fit the plan or the plan has more than one part.
    RunTooLarge
        If the run would take minutes, or too much memory (``lower/budget.py``).
    Cancelled
        If ``options.should_stop`` returned true before the run began.
    """
    how = options.fold, options.observe, options.loads, options.path
    return memoized(
        memo_of(("simulate", system, plan, name, unit_bytes, seed, what_if, alike, how)),
        Result,
        lambda: _simulate(Case(system, plan, perturbation_of(system, seed), alike), name, unit_bytes, what_if, options),
        given=tuple(part.schedule for part in plan.parts),
        lasts=lambda result: result.outcome is RunOutcome.DONE and (what_if is None or result.waterfall is not None),
    )


def simulate_op(
    scenario: OpCase,
    schedule: OpPlan,
    *,
    unit_bytes: int = PACKET_BYTES,
    seed: int | None = None,
    what_if: WhatIf | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> Result:
    """Simulate the one op of ``scenario`` as ``schedule`` says; the other parameters are those of ``simulate``."""
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
    unit_bytes = unit_of(case.system, case.plan, unit_bytes)
    if what_if is not None:
        what_if = replace(what_if, unit_bytes=unit_of(case.system, case.plan, what_if.unit_bytes))
    with heeding(options.should_stop):
        several = case.plan.num_layers >= PERIODIC_LAYERS
        lowered, finished = case.simulated(unit_bytes, replace(options, observe=options.observe or several))
        losses: tuple[Waterfall | None, float | None] = (None, None)
        if what_if is not None and finished.run.outcome is RunOutcome.DONE:
            known = finished.run if what_if.unit_bytes == unit_bytes else None
            with suppress(Cancelled):  # the run itself is known
                # What ranks do is the same in all of these runs: where they were not alike, nobody looks again.
                fold = finished.ranks_simulated < lowered.program.ranks_simulated
                again = RunOptions(fold=fold, should_stop=options.should_stop)
                losses = _explain(case, what_if, known, again, in_periods=options.fold)
        period = period_ticks(lowered, finished.run) if several else None
        return result_of(name, lowered, finished, losses=losses, period=period, options=options)


def record_writes(
    scenario: OpCase, schedule: OpPlan, *, unit_bytes: int = PACKET_BYTES, seed: int | None = None
) -> tuple[Write, ...]:
    """Simulate ``schedule``, and return the writes of peers to rank 0: a profile that a system can replay.

    ``unit_bytes`` and ``seed`` are those of ``simulate``.

    Raises
    ------
    ScheduleError
        If the system itself replays a profile, or no peer writes to rank 0 in a way that can be replayed.
    RunTooLarge
        If the run would take minutes, or too much memory (``lower/budget.py``).
    """
    if scenario.system.replay is not None:
        raise ScheduleError(Rejection(Code.MGS523, f"{scenario.system.name} replays a profile, and records none"))
    case = Case(scenario.system, plan_of(scenario, schedule), perturbation_of(scenario.system, seed))
    lowered, finished = case.simulated(unit_bytes)
    return recorded_writes(lowered.parts[0], finished.run)


def _explain(
    case: Case, what_if: WhatIf, known: Run | None, options: RunOptions, *, in_periods: bool
) -> tuple[Waterfall | None, float | None]:
    """Differences of runs of the same plan, each with one more loss idealised away; None if one is stopped."""

    def run(ideal: Idealization) -> tuple[Lowered, Run]:
        lowered, finished = case.simulated(what_if.unit_bytes, options, ideal, in_periods=in_periods)
        return lowered, finished.run

    free, private = Idealization.FREE_LAUNCH, Idealization.PRIVATE_SERVERS
    makespan_ticks = what_if.makespan_ticks
    if makespan_ticks is None:
        known = known or run(Idealization.NONE)[1]
        makespan_ticks = known.makespan_ticks
    no_launch_lowered, no_launch = run(free)
    # Without kernels none has servers of its own; of sums alone none is whole.
    alone_lowered, alone = (no_launch_lowered, no_launch) if case.only_copies else run(free | private)
    whole = run(free | private | Idealization.WHOLE_KERNEL)[1] if case.has_tiles else alone
    runs = (no_launch, alone, whole, *([] if known is None else [known]))
    if not all(one.outcome is RunOutcome.DONE for one in runs):
        return None, None
    waterfall = Waterfall(
        unit_bytes=what_if.unit_bytes,
        makespan_ticks=makespan_ticks,
        launch_sync_ticks=makespan_ticks - no_launch.makespan_ticks,
        contention_ticks=no_launch.makespan_ticks - alone.makespan_ticks,
        decomposition_ticks=alone.makespan_ticks - whole.makespan_ticks,
        exposed_ticks=whole.makespan_ticks - what_if.bound_ticks,
        bound_ticks=what_if.bound_ticks,
        layers=case.plan.num_layers,
    )
    alone_ticks, together_ticks = kernel_ticks(alone_lowered, alone), kernel_ticks(no_launch_lowered, no_launch)
    return waterfall, together_ticks / alone_ticks if alone_ticks else None


BATCH = 64
"""Seeds whose results are one entry on disk."""


def simulate_seeds(
    system: System,
    plan: Plan,
    seeds: Sequence[int],
    *,
    name: str = "workload",
    unit_bytes: int = PACKET_BYTES,
    options: RunOptions = DEFAULT_OPTIONS,
) -> tuple[Result, ...]:
    """Simulate ``plan`` once for each of ``seeds``; every Result is the one of ``simulate`` with that seed.

    Only ``Result.core`` may differ, which says what ran. If the system draws nothing, one run stands for all seeds.

    Parameters
    ----------
    seeds
        Each from 0 on.
    options
        Only ``should_stop``, which is called often, and ``progress``, which gets the line-hops that are done, count.
    system, plan, name, unit_bytes
        As for ``simulate``.

    Raises
    ------
    ValueError
        If a seed is negative, or ``unit_bytes`` is not a multiple of the GPU's line.
    ScheduleError, RunTooLarge
        As ``simulate``.
    Cancelled
        If ``options.should_stop`` returned true before the runs began.
    """
    cases = [Case(system, plan, perturbation_of(system, seed)) for seed in seeds]
    if not cases:
        return ()
    options = RunOptions(should_stop=options.should_stop, progress=options.progress)
    if not system.random:
        one = simulate(system, plan, name=name, unit_bytes=unit_bytes, seed=seeds[0], options=options)
        return (one,) * len(cases)

    plain = cache(partial(replace(cases[0], perturbation=None).lowered, unit_bytes, fold=False))
    results: list[Result] = []
    schedules = tuple(part.schedule for part in plan.parts)
    for first in range(0, len(cases), BATCH):
        memo = memo_of(("seeds", system, plan, name, tuple(seeds[first : first + BATCH]), unit_bytes))
        compute = partial(_simulate_batch, name, cases[first : first + BATCH], unit_bytes, plain, options)
        results += memoized(
            memo,
            tuple[Result, ...],
            compute,
            given=schedules,
            lasts=lambda batch: all(result.outcome is RunOutcome.DONE for result in batch),
        )
    return tuple(results)


def _simulate_batch(
    name: str, cases: Sequence[Case], unit_bytes: int, plain: Callable[[], Lowered], options: RunOptions
) -> tuple[Result, ...]:
    results: list[Result] = []
    line_hops = 0  # of the seeds before

    def progress(of_this: int) -> None:
        if options.progress is not None:
            options.progress(line_hops + of_this)

    for case in cases:
        several = case.plan.num_layers > 1
        each = replace(options, fold=False, observe=several, progress=progress)
        with heeding(options.should_stop):
            if case.system.traffic is not None:
                lowered, alone = case.simulated(unit_bytes, each)
            else:
                lowered = case.varied(plain())
                alone = case.run(lowered, each)
        line_hops += alone.run.line_hops
        period = period_ticks(lowered, alone.run) if several else None
        results.append(result_of(name, lowered, alone, period=period))
    return tuple(results)
