"""What the screen needs of an answer and its schedules: the advice on a pair gives it, and so does that on a graph.

No Textual.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ....advisor.bounds.lower_bound import Bound
from ....advisor.candidates.advice import Advice, Confidence, is_algorithm_choice
from ....advisor.graphs.answer import ShownSchedule
from ....compiler.ir import GraphScenario, Scenario
from ....compiler.resolve.expect.expectation import Verdict
from ....simcore.shown_run import ShownRun, run_of_pair

Subject = Scenario | GraphScenario
"""What is asked about."""


class Ranked(Protocol):
    """A schedule in the ranking; see ``Candidate``."""

    @property
    def expression(self) -> str:
        """Its identity."""

    @property
    def is_serial(self) -> bool:
        """Whether nothing overlaps."""

    @property
    def predicted_us(self) -> float | None:
        """Predicted makespan."""

    @property
    def simulated_us(self) -> float | None:
        """Simulated makespan."""

    @property
    def best_us(self) -> float:
        """Best known time, else infinite."""

    @property
    def is_estimate(self) -> bool:
        """Whether that time is not simulated, or of a few of many layers."""

    @property
    def unit_bytes(self) -> int | None:
        """The granularity of the simulation."""


class Finding(Protocol):
    """What is recommended, and why; see ``Advice``."""

    @property
    def scenario(self) -> Subject:
        """What was asked about."""

    @property
    def verdict(self) -> Verdict:
        """Whether overlap pays."""

    @property
    def why_serial(self) -> str:
        """The reason of a serial verdict."""

    @property
    def candidates(self) -> Sequence[Ranked]:
        """All schedules, the best first."""

    @property
    def recommended(self) -> Ranked:
        """The one to use."""

    @property
    def serial(self) -> Ranked:
        """The baseline."""

    @property
    def speedup(self) -> float:
        """The gain over the baseline."""

    @property
    def bound(self) -> Bound | None:
        """The lower bound."""

    @property
    def gap_to_bound(self) -> float | None:
        """How far the answer is above it."""

    @property
    def ties(self) -> Sequence[str]:
        """Schedules that cannot be told from the recommended one."""

    @property
    def confidence(self) -> Confidence:
        """How far to trust it."""

    @property
    def confidence_reason(self) -> str:
        """Why that far."""

    @property
    def reasons(self) -> Sequence[str]:
        """Why, in sentences."""

    @property
    def marks(self) -> Sequence[str]:
        """Warnings."""

    @property
    def interrupted(self) -> bool:
        """Whether it is not final."""

    @property
    def baseline(self) -> str:
        """The baseline in words."""

    @property
    def against(self) -> str:
        """The baseline behind its time."""

    @property
    def short_names(self) -> Mapping[str, str]:
        """Short names of schedules, by their expressions."""

    def name_of(self, expression: str) -> str:
        """The short name of a schedule, else its expression."""


def is_choice_of_algorithm(answer: Finding) -> bool:
    """Whether the question is which algorithm, not whether to overlap."""
    return isinstance(answer.scenario, Scenario) and is_algorithm_choice(answer.scenario)


def runs_in(answer: Finding) -> dict[str, ShownRun]:
    """Return the runs that an answer brings, by the expressions of their schedules."""
    if isinstance(answer, Advice):
        return {
            result.schedule.expression: run_of_pair(answer.scenario, result)
            for result in (answer.result, answer.serial_result)
            if result is not None
        }
    graphs = (each for each in answer.candidates if isinstance(each, ShownSchedule))
    return {each.expression: each.run for each in graphs if each.run is not None}


def has_waterfall(subject: Subject) -> bool:
    """Whether losses of its schedules are explained by what-if runs."""
    return isinstance(subject, Scenario)
