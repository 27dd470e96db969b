"""The runs that an answer brings, as they are shown."""

from collections.abc import Mapping

from ...compiler.ir import GraphScenario
from ...simcore import ShownRun, run_of
from ..candidates.advice import Advice
from ..candidates.candidate import Candidate


def run_of_candidate(scenario: GraphScenario, candidate: Candidate) -> ShownRun | None:
    """Return the run of a schedule of several ops, None if it is not simulated."""
    return None if candidate.result is None else run_of(scenario, candidate.result, candidate.joint)


def new_runs_of(advice: Advice, known: Mapping[str, ShownRun]) -> dict[str, ShownRun]:
    """Return the runs that an answer brings and that are not among the ``known``, by expressions of schedules."""

    def is_new(expression: str, result: object) -> bool:
        return expression not in known or known[expression].result is not result

    results = {one.schedule.expression: one for one in (advice.result, advice.serial_result) if one is not None}
    new = {name: run_of(advice.case, result) for name, result in results.items() if is_new(name, result)}
    for one in advice.candidates:
        if one.result is not None and is_new(one.expression, one.result):
            new[one.expression] = run_of(advice.scenario, one.result, one.joint)
    return new
