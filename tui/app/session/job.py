"""One workload on screen: its answer, what was simulated of it, and what went wrong. No Textual."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ....advisor.answer.runs import new_runs_of
from ....advisor.candidates.advice import Advice
from ....advisor.candidates.candidate import Candidate
from ....compiler.ir import GraphScenario
from ....compiler.text.diagnostics import Diagnostic
from ....simcore.figures.result import Result
from ....simcore.shown_run import ShownRun
from .backend import SweepAdvice, short_advice
from .what_if import ValuesOfFile


class ProblemKind(Enum):
    """Kind of a problem; the value is the headline."""

    FILE = "The file cannot be used"
    NOTHING_FEASIBLE = "No schedule is feasible"
    CANCELLED = "Stopped"
    OUTCOME = "The simulation did not finish"
    FAULT = "Internal error"


@dataclass(frozen=True, slots=True)
class JobProblem:
    """A problem to show in place of an answer; ``text`` may have many lines."""

    kind: ProblemKind
    text: str


MOST_MARKED = 4
"""Most schedules that are compared at once."""

CANCELLED = JobProblem(ProblemKind.CANCELLED, "The run was stopped before it was done. Press e to start it again.")
GIVEN_UP = JobProblem(ProblemKind.CANCELLED, "Its simulation was stopped. Pick it again to start anew.")


@dataclass(slots=True)
class Job:
    """The state of one workload.

    While it is ``advising`` the answer is what would be answered now, and once the user has ``stopped`` that it stays
    so. ``picked`` is the expression of the candidate on screen, ``simulating`` whether it is being simulated.
    ``marked`` are the expressions of those to be compared. ``runs`` and ``problems`` of simulations are by
    expression. ``what_if`` are the values of the file at ``path`` from which the scenario was made.
    """

    scenario: GraphScenario
    answer: Advice | JobProblem | None = None
    picked: str | None = None
    marked: tuple[str, ...] = ()
    simulating: bool = False
    runs: dict[str, ShownRun] = field(default_factory=dict)
    problems: dict[str, JobProblem] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()
    advising: bool = False
    stopped: bool = False
    path: Path = Path()
    what_if: ValuesOfFile = field(default_factory=ValuesOfFile)
    sweep_advice: SweepAdvice = short_advice

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.scenario.title

    @property
    def is_graph(self) -> bool:
        """Whether the workload is a graph."""
        return self.scenario.pair is None

    @property
    def found(self) -> Advice | None:
        """What was found, once there is anything."""
        return None if isinstance(self.answer, JobProblem) else self.answer

    @property
    def advice(self) -> Advice | None:
        """The advice on a pair, once there is one."""
        return None if self.is_graph else self.found

    @property
    def is_answered(self) -> bool:
        """Whether there is nothing more to find: an answer that was not cut short, a problem, or the user's stop."""
        return self.stopped or (self.answer is not None and not (self.found is not None and self.found.interrupted))

    def take(self, answer: Advice) -> None:
        """Take an answer with its runs; the recommended schedule stays picked unless the user has picked another."""
        before = self.found
        if self.picked is None or (before is not None and self.picked == before.recommended.expression):
            self.picked = answer.recommended.expression
        self.take_runs(answer)
        for each in answer.candidates:
            if each.problem:
                self.problems[each.expression] = JobProblem(ProblemKind.OUTCOME, each.problem)
        self.answer = answer

    def take_runs(self, answer: Advice) -> None:
        """Take the runs that an answer brings, which takes a moment where there are several ops."""
        self.runs |= new_runs_of(answer, self.runs)  # what is shown of a run is kept with it

    @property
    def run(self) -> ShownRun | None:
        """What was simulated of the picked candidate."""
        return self.runs.get(self.picked or "")

    @property
    def result(self) -> Result | None:
        """The figures of that."""
        return None if self.run is None else self.run.result

    @property
    def is_explained(self) -> bool:
        """Whether all is known of the picked candidate that a simulation can tell."""
        return self.explains(self.run)

    def explains(self, run: ShownRun | None) -> bool:
        """Whether a run has its losses explained, where that can be."""
        return run is not None and (run.result.waterfall is not None or self.is_graph)

    @property
    def problem(self) -> JobProblem | None:
        """Why the picked candidate could not be simulated."""
        return self.problems.get(self.picked or "")

    def stop(self) -> None:
        """Let what was found be the answer."""
        self.stopped, self.advising, self.answer = True, False, self.answer or CANCELLED

    def give_up(self) -> None:
        """Let the picked candidate be as it is, without what its simulation would have told."""
        self.simulating = False
        if self.picked is not None and self.run is None:
            self.problems[self.picked] = GIVEN_UP

    def try_again(self) -> None:
        """Forget that the simulation of the picked candidate was stopped."""
        if self.problem is GIVEN_UP:
            del self.problems[self.picked or ""]

    def toggle_mark(self, expression: str) -> None:
        """Mark a candidate for comparison, or take its mark away; of more than ``MOST_MARKED`` the first goes."""
        if expression in self.marked:
            self.marked = tuple(each for each in self.marked if each != expression)
        else:
            self.marked = (*self.marked, expression)[-MOST_MARKED:]

    def candidate(self, expression: str) -> Candidate | None:
        """The candidate with this expression."""
        candidates = self.found.candidates if self.found is not None else ()
        return next((candidate for candidate in candidates if candidate.expression == expression), None)
