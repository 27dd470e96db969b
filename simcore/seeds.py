"""The same schedule under many seeds: the program is lowered once, and varied and run for each seed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

from ..compiler.ir import Scenario, Schedule, ShouldStop, StepsDone, heeding
from .cores.engine import run
from .figures.result import Result
from .fold.run import Finished, RunOptions
from .lower.plan import Lowered
from .lower.variability import perturbation_of
from .memo.memo import memo_of, memoized
from .program.outcome import RunOutcome
from .program.program import PACKET_BYTES
from .simulate import result_of, simulate, simulated_part
from .simulation_case import Case

BATCH = 64
"""Seeds whose results are one entry on disk."""


def simulate_seeds(
    scenario: Scenario,
    schedule: Schedule,
    seeds: Sequence[int],
    *,
    unit_bytes: int = PACKET_BYTES,
    should_stop: ShouldStop | None = None,
    progress: StepsDone | None = None,
) -> tuple[Result, ...]:
    """Simulate ``schedule`` once for each of ``seeds``; every Result is the one of ``simulate`` with that seed.

    Only ``core`` may differ, which says what ran. Where nothing is drawn, one run stands for all seeds.

    Raises
    ------
    ValueError
        If a seed is negative, or ``unit_bytes`` is not a multiple of the GPU's line.
    RunTooLarge
        If a run would take minutes or more memory than is sensible.
    Cancelled
        If ``should_stop`` said so before the runs began.
    """
    cases = [Case(scenario, schedule, perturbation_of(scenario.system, seed)) for seed in seeds]
    if not cases:
        return ()
    options = RunOptions(should_stop=should_stop, progress=progress)
    variability = scenario.system.variability
    if variability is None or not variability.random:
        return (simulate(scenario, schedule, unit_bytes=unit_bytes, seed=seeds[0], options=options),) * len(cases)

    @cache
    def plain() -> Lowered:
        with heeding(should_stop):
            return replace(cases[0], perturbation=None).lowered(unit_bytes, fold=False)

    results: list[Result] = []
    for first in range(0, len(cases), BATCH):
        memo = memo_of(("seeds", simulated_part(scenario), schedule, tuple(seeds[first : first + BATCH]), unit_bytes))
        compute = partial(_simulate_batch, cases[first : first + BATCH], plain, options)
        batch: tuple[Result, ...] = memoized(memo, tuple[Result, ...], compute, given=(schedule,), lasts=_all_done)
        results.extend(batch)
    return tuple(results)


def _simulate_batch(cases: Sequence[Case], plain: Callable[[], Lowered], options: RunOptions) -> tuple[Result, ...]:
    results: list[Result] = []
    line_hops = 0  # of the seeds before

    def progress(of_this: int) -> None:
        if options.progress is not None:
            options.progress(line_hops + of_this)

    for case in cases:
        lowered = case.varied(plain())
        found = run(lowered.program, should_stop=options.should_stop, progress=progress)
        line_hops += found.line_hops
        alone = Finished(found, case.scenario.num_ranks, found.line_hops, found.line_hops, None)
        results.append(result_of(lowered, case.finished(alone)))
    return tuple(results)


def _all_done(results: Sequence[Result]) -> bool:
    return all(result.outcome is RunOutcome.DONE for result in results)
