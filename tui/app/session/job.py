"""One workload or step on screen: its answer, runs, problems and page. No Textual."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar, Union

from ....advisor.answer.answer import new_runs_of
from ....advisor.answer.export import advice_document
from ....advisor.candidates.advice import Advice
from ....advisor.candidates.candidate import Candidate
from ....compiler.ir import Progress, Scenario, Settings, ShouldStop
from ....compiler.ir.step import StepScenario
from ....compiler.text.diagnostics import Diagnostic, Source
from ....simcore.shown_run import ShownRun
from ...text.next_steps import next_steps
from ...text.ops import scenario_words
from .backend import Backend, SweepAdvice, short_advice
from .values import ValuesOfFile
from .view import JobHead, head_of, row_of, selected_text, title_of


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

NO_RUN = "The recommended schedule is not simulated yet, so there is nothing to draw."
NO_SWEEP = "This page was written from the screen, without a sweep: magus report makes one."
CANCELLED = JobProblem(ProblemKind.CANCELLED, "The run was stopped before it was done. Press e to start it again.")
GIVEN_UP = JobProblem(ProblemKind.CANCELLED, "Its simulation was stopped. Pick it again to start anew.")


class _Answer(Protocol):
    """An answer, which may have been cut short."""

    @property
    def interrupted(self) -> bool: ...


S = TypeVar("S")
A = TypeVar("A", bound=_Answer)


@dataclass(slots=True)
class FileJob(ABC, Generic[S, A]):
    """The state of what a file asks: the question ``scenario``, and its answer.

    While it is ``advising`` the answer is what would be answered now, and once the user has ``stopped`` that it stays
    so. ``picked`` names the candidate on screen, and it may be ``simulating`` that. ``what_if`` are the values of the
    file at ``path`` from which the question was made.
    """

    WAITING: ClassVar[str]
    """What is said while there is no answer."""
    LOOKED_FOR: ClassVar[str]

    scenario: S
    answer: A | JobProblem | None = None
    picked: str | None = None
    warnings: tuple[Diagnostic, ...] = ()
    advising: bool = False
    simulating: bool = False
    stopped: bool = False
    path: Path = Path()
    what_if: ValuesOfFile = field(default_factory=ValuesOfFile)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the workload."""

    @property
    def found(self) -> A | None:
        """What was found, once there is anything."""
        return None if isinstance(self.answer, JobProblem) else self.answer

    @property
    def is_answered(self) -> bool:
        """Whether there is nothing more to find: an answer that was not cut short, a problem, or the user's stop."""
        return self.stopped or (self.answer is not None and not (self.found is not None and self.found.interrupted))

    @abstractmethod
    def ask(
        self, backend: Backend, progress: Progress, should_stop: ShouldStop, answered: Callable[["AnyAdvice"], None]
    ) -> A:
        """Return the answer; ``answered`` is told in this thread what would be answered now."""

    @abstractmethod
    def take(self, answer: A) -> None:
        """Take an answer; what the user has picked stays picked."""

    def advise(
        self, backend: Backend, progress: Progress, should_stop: ShouldStop, answered: Callable[["AnyAdvice"], None]
    ) -> None:
        """Take the answer, unless it was cut short by a stop: what was on screen then stays."""
        answer = self.ask(backend, progress, should_stop, answered)
        if not (answer.interrupted and should_stop()):
            self.take(answer)

    @abstractmethod
    def title(self, job_idx: int, num_jobs: int) -> str:
        """The question, and which of the questions of its file it is."""

    @abstractmethod
    def head(self, width: int) -> JobHead | None:
        """What stands above the panes; None while nothing is found."""

    @property
    @abstractmethod
    def selected(self) -> str:
        """The row under the cursor in full."""

    @abstractmethod
    def page(self) -> str | None:
        """The page about what was found; None if there is nothing to draw yet."""

    @property
    def settings(self) -> Settings:
        """What was changed on screen."""
        return (*self.what_if.changes.params, *self.what_if.changes.numbers)

    def stop(self) -> None:
        """Let what was found be the answer."""
        self.stopped, self.advising, self.answer = True, False, self.answer or CANCELLED

    def give_up(self) -> None:
        """Let the picked candidate be as it is, without what its simulation would have told."""
        self.simulating = False


@dataclass(slots=True)
class Job(FileJob[Scenario, Advice]):
    """The state of one workload.

    ``picked`` is the expression of the candidate on screen; ``marked`` are the expressions of those to be compared.
    ``runs`` and ``problems`` of simulations are by expression.
    """

    WAITING = "Does overlap pay? Schedules are being enumerated, ranked and simulated."
    LOOKED_FOR = "schedules"

    marked: tuple[str, ...] = ()
    runs: dict[str, ShownRun] = field(default_factory=dict)
    problems: dict[str, JobProblem] = field(default_factory=dict)
    sweep_advice: SweepAdvice = short_advice

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.scenario.title

    @property
    def has_several_ops(self) -> bool:
        """Whether the workload has several ops."""
        return self.scenario.only_case is None

    @property
    def advice(self) -> Advice | None:
        """The advice on a pair, once there is one."""
        return None if self.has_several_ops else self.found

    def ask(
        self, backend: Backend, progress: Progress, should_stop: ShouldStop, answered: Callable[["AnyAdvice"], None]
    ) -> Advice:
        """Ask for advice."""

        def reported(answer: Advice) -> None:
            self.take_runs(answer)  # here and not on screen
            answered(answer)

        return backend.recommend(self.scenario, progress, should_stop, reported)

    def title(self, job_idx: int, num_jobs: int) -> str:
        """Workload, pattern, GPUs, fabric and shape in one line."""
        return title_of(self.scenario, job_idx, num_jobs)

    def head(self, width: int) -> JobHead | None:
        """Verdict, figures, threshold, confidence and marks."""
        return None if self.found is None else head_of(self.found, width, advising=self.advising)

    @property
    def selected(self) -> str:
        """The candidate with its times."""
        row = None if self.found is None else row_of(self.found, self.runs, self.picked)
        return "" if row is None else selected_text(row)

    def page(self) -> str | None:
        """The page about the answer, once the recommended schedule is simulated."""
        from ...report import ReportData, report_html

        found, changes = self.found, self.what_if.changes
        run = None if found is None else self.runs.get(found.recommended.expression)
        if found is None or run is None:
            return None
        words = scenario_words(self.path, changes.params, self.name)
        report = ReportData(
            advice=found if self.has_several_ops else replace(found, result=run.result),
            run=run,
            data=advice_document(found, results=True),
            file=self.path.name,
            settings=self.settings,
            numbers=self.what_if.numbers,
            todo=() if changes.numbers else next_steps(found, words, how=False),
            sweep_note=NO_SWEEP,
        )
        return report_html(report)

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
    def is_explained(self) -> bool:
        """Whether the simulation of the picked candidate is complete."""
        return self.explains(self.run)

    def explains(self, run: ShownRun | None) -> bool:
        """Whether a run has its losses explained, where that can be."""
        return run is not None and (run.result.waterfall is not None or self.has_several_ops)

    @property
    def problem(self) -> JobProblem | None:
        """Why the picked candidate could not be simulated."""
        return self.problems.get(self.picked or "")

    def give_up(self) -> None:
        """Let the picked candidate be as it is, and say so where it has no run."""
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


# One training step on screen: its answer, and the schedule that the panes show. No Textual.

if TYPE_CHECKING:
    from ....advisor.steps.answer import StepAdvice


@dataclass(slots=True)
class StepJob(FileJob[StepScenario, "StepAdvice"]):
    """The state of one step; ``source`` is its text with the numbers of devices that were changed on screen.

    ``picked`` names the row of the schedule on screen, None the recommended one.
    """

    WAITING = "Which layout? Those that divide and fit are being simulated."
    LOOKED_FOR = "layouts"

    source: Source = field(default_factory=lambda: Source("", ""))

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.scenario.name

    def ask(
        self, backend: Backend, progress: Progress, should_stop: ShouldStop, answered: Callable[["AnyAdvice"], None]
    ) -> "StepAdvice":
        """Ask which layout to use."""
        return backend.advise_step(self.source, self.what_if.changes, self.name, progress, should_stop, answered)

    def title(self, job_idx: int, num_jobs: int) -> str:
        """The step in a line."""
        from .step_view import title_of_step

        return title_of_step(self.scenario, job_idx, num_jobs)

    def head(self, width: int) -> JobHead | None:
        """Verdict, figures and marks."""
        from .step_view import head_of

        return None if self.found is None else head_of(self.found, advising=self.advising)

    @property
    def selected(self) -> str:
        """The layout with its time."""
        from .step_view import picked_row, selected_text

        row = None if self.found is None else picked_row(self.found, self.picked)
        return "" if row is None else selected_text(row)

    def page(self) -> str | None:
        """The page about the answer."""
        from ...report.page import step_html

        if self.found is None:
            return None
        return step_html(self.found, self.path.name, self.settings, self.what_if.numbers)

    def take(self, answer: "StepAdvice") -> None:
        """Take an answer; what the user has picked stays picked."""
        self.answer = answer


AnyJob = Job | StepJob
"""What a file asks."""
AnyAdvice = Union[Advice, "StepAdvice"]
"""An answer about a workload or a step."""
