"""The same plan under many seeds: the program is lowered once, and varied and run for each seed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

from ..compiler.ir import GraphPlan, ShouldStop, StepsDone, System, heeding
from .cores.engine import run
from .figures.plan_result import result_of
from .figures.result import Result
from .fold.periods import period_ticks
from .fold.run import Finished, RunOptions
from .lower.plan import Lowered
from .lower.variability import perturbation_of
from .memo.memo import memo_of, memoized
from .program.outcome import RunOutcome
from .program.program import PACKET_BYTES
from .simulate import simulate
from .simulation_case import Case

BATCH = 64
"""Seeds whose results are one entry on disk."""


def simulate_seeds(
    system: System,
    plan: GraphPlan,
    seeds: Sequence[int],
    *,
    name: str = "workload",
    unit_bytes: int = PACKET_BYTES,
    should_stop: ShouldStop | None = None,
    progress: StepsDone | None = None,
) -> tuple[Result, ...]:
    """Simulate ``plan`` once for each of ``seeds``; every Result is the one of ``simulate`` with that seed.

    Only ``core`` may differ, which says what ran. Where nothing is drawn, one run stands for all seeds.

    Raises
    ------
    ValueError
        If a seed is negative, or ``unit_bytes`` is not a multiple of the GPU's line.
    ScheduleError, RunTooLarge
        As ``simulate``.
    Cancelled
        If ``should_stop`` said so before the runs began.
    """
    cases = [Case(system, plan, perturbation_of(system, seed)) for seed in seeds]
    if not cases:
        return ()
    options = RunOptions(should_stop=should_stop, progress=progress)
    variability = system.variability
    if variability is None or not variability.random:
        one = simulate(system, plan, name=name, unit_bytes=unit_bytes, seed=seeds[0], options=options)
        return (one,) * len(cases)

    @cache
    def plain() -> Lowered:
        with heeding(should_stop):
            return replace(cases[0], perturbation=None).lowered(unit_bytes, fold=False)

    results: list[Result] = []
    schedules = tuple(part.schedule for part in plan.parts)
    for first in range(0, len(cases), BATCH):
        memo = memo_of(("seeds", system, plan, name, tuple(seeds[first : first + BATCH]), unit_bytes))
        compute = partial(_simulate_batch, name, cases[first : first + BATCH], plain, options)
        batch: tuple[Result, ...] = memoized(memo, tuple[Result, ...], compute, given=schedules, lasts=_all_done)
        results.extend(batch)
    return tuple(results)


def _simulate_batch(
    name: str, cases: Sequence[Case], plain: Callable[[], Lowered], options: RunOptions
) -> tuple[Result, ...]:
    results: list[Result] = []
    line_hops = 0  # of the seeds before

    def progress(of_this: int) -> None:
        if options.progress is not None:
            options.progress(line_hops + of_this)

    for case in cases:
        lowered, several = case.varied(plain()), case.plan.num_layers > 1
        found = run(lowered.program, observe=several, should_stop=options.should_stop, progress=progress)
        line_hops += found.line_hops
        alone = case.finished(Finished(found, case.system.num_ranks, found.line_hops, found.line_hops, None))
        period = period_ticks(lowered, found) if several else None
        results.append(result_of(name, lowered, alone, period=period))
    return tuple(results)


def _all_done(results: Sequence[Result]) -> bool:
    return all(result.outcome is RunOutcome.DONE for result in results)
