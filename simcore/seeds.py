"""The same schedule under many seeds: the program is lowered once, and the seeds run side by side where that pays."""

from collections.abc import Sequence
from dataclasses import replace

from ..compiler.ir import Scenario, Schedule, ShouldStop, StepsDone, heeding
from .cores.batch import run_lanes
from .figures.result import Result
from .fold.run import Finished, RunOptions
from .lower.variability import perturbation_of
from .program.program import PACKET_BYTES
from .simulate import result_of
from .simulation_case import Case

BATCH = 64
"""Seeds whose programs are in memory at one time."""


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
    variability = scenario.system.variability
    if variability is None or not variability.random:
        with heeding(should_stop):
            lowered = cases[0].lowered(unit_bytes)
        options = RunOptions(should_stop=should_stop, progress=progress)
        return (result_of(lowered, cases[0].run(lowered, options)),) * len(cases)
    with heeding(should_stop):
        plain = replace(cases[0], perturbation=None).lowered(unit_bytes, fold=False)
    results: list[Result] = []
    for first in range(0, len(cases), BATCH):
        batch = cases[first : first + BATCH]
        lowered_cases = [case.varied(plain) for case in batch]
        programs = [lowered.program for lowered in lowered_cases]
        runs = run_lanes(programs, should_stop=should_stop, progress=progress)
        for case, lowered, run in zip(batch, lowered_cases, runs, strict=True):
            alone = Finished(run, scenario.num_ranks, run.line_hops, run.line_hops, None)
            results.append(result_of(lowered, case.finished(alone)))
    return tuple(results)
