"""System + GraphPlan -> GraphResult: the plans of several ops in one program, run once."""

from dataclasses import replace

from ..compiler.codes import Code
from ..compiler.ir import GraphPlan, Rejection, System, heeding
from ..compiler.planning.build import ScheduleError
from .figures.graph_result import GraphResult, graph_result_of
from .fold.periods import period_ticks
from .fold.run import DEFAULT_OPTIONS, RunOptions, run_folded
from .lower.budget import check_graph_budget
from .lower.compose import LoweredGraph, graph_period, lower_graph
from .lower.variability import perturbation_of, perturbed
from .memo.memo import memo_of, memoized
from .program.checks import HorizonError
from .program.limits import RunTooLarge
from .program.outcome import RunOutcome
from .program.program import PACKET_BYTES

VARIES = "the times of the ranks are drawn at random"


def simulate_graph(
    system: System,
    plan: GraphPlan,
    *,
    name: str = "graph",
    unit_bytes: int = PACKET_BYTES,
    seed: int | None = None,
    alike: bool = False,
    options: RunOptions = DEFAULT_OPTIONS,
) -> GraphResult:
    """Simulate ``plan`` in units of ``unit_bytes``; while results are kept on disk, return the kept one.

    Parameters and errors are those of ``simulate``; ``name`` is that of the scenario in the result. Where ranks that
    have the same plan are taken for ``alike``, times are estimates unless the fabric is the same around each of them.

    Raises
    ------
    ScheduleError
        If the system replays a profile, which is one of a single pair.
    """
    if system.replay is not None:
        message = f"{system.name} replays a profile, which is one of a single pair"
        raise ScheduleError(Rejection(Code.MGS523, message))
    how = options.fold, options.observe, options.loads
    return memoized(
        memo_of(("simulate_graph", system, plan, name, unit_bytes, seed, alike, how)),
        GraphResult,
        lambda: _simulate(system, plan, name, unit_bytes, seed, alike, options),
        lasts=lambda result: result.whole.outcome is RunOutcome.DONE,
    )


def _simulate(
    system: System, plan: GraphPlan, name: str, unit_bytes: int, seed: int | None, alike: bool, options: RunOptions
) -> GraphResult:
    with heeding(options.should_stop):
        lowered, drawn = _lowered(system, plan, unit_bytes, seed, alike, options.fold)
        layers = plan.parts[-1].layer
        how = replace(options, fold=options.fold and not drawn, observe=options.observe or layers > 1)
        finished = run_folded(lowered.program, how)
        period = period_ticks(lowered, finished.run) if layers > 1 else None
        finished = replace(finished, not_alike=VARIES) if drawn else finished
        return graph_result_of(name, lowered, finished, period, loads=options.loads)


def _lowered(
    system: System, plan: GraphPlan, unit_bytes: int, seed: int | None, alike: bool, fold: bool
) -> tuple[LoweredGraph, bool]:
    """The program, with the times of a seed, and whether ranks have times of their own."""
    perturbation = perturbation_of(system, seed)
    fold = fold and perturbation is None
    ranks = graph_period(system, plan, alike=alike) if fold else system.num_ranks
    check_graph_budget(system, plan, unit_bytes, ranks)
    try:
        lowered = lower_graph(system, plan, unit_bytes=unit_bytes, fold=fold, alike=alike)
        if perturbation is None:
            return lowered, False
        gets = (get for part in lowered.parts for get in part.gets())
        program = perturbed(lowered.program, perturbation, range(system.num_ranks), gets)
    except HorizonError as error:
        raise RunTooLarge(f"{plan.expression}: {error}") from error
    parts = tuple(replace(part, program=program) for part in lowered.parts)
    return replace(lowered, program=program, parts=parts), perturbation.seed is not None
