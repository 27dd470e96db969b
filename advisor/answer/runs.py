"""The runs that an answer brings, as they are shown."""

from collections.abc import Mapping

from ...compiler.ir import GraphScenario
from ...simcore.shown_run import ShownRun, run_of_graph, run_of_pair
from ..candidates.advice import Advice
from ..candidates.candidate import Candidate


def run_of(scenario: GraphScenario, candidate: Candidate) -> ShownRun | None:
    """Return the run of a schedule of several ops, None if it is not simulated."""
    return None if candidate.result is None else run_of_graph(scenario, candidate.joint, candidate.result)


def new_runs_of(advice: Advice, known: Mapping[str, ShownRun]) -> dict[str, ShownRun]:
    """Return the runs that an answer brings and that are not among the ``known``, by expressions of schedules."""

    def is_new(expression: str, result: object) -> bool:
        return expression not in known or known[expression].result is not result

    results = {one.schedule.expression: one for one in (advice.result, advice.serial_result) if one is not None}
    new = {name: run_of_pair(advice.case, result) for name, result in results.items() if is_new(name, result)}
    for one in advice.candidates:
        if one.result is not None and is_new(one.expression, one.result.simulated.whole):
            new[one.expression] = run_of_graph(advice.scenario, one.joint, one.result)
    return new
