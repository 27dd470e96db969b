"""One open file: compiles it, asks for advice, simulates candidates on demand and keeps the results. No Textual.

The calls block and never raise: errors are returned as a ``SessionProblem`` to show. They may run in threads. Reading
the file again makes new ``WorkloadSession`` objects, so a run in progress can only write to the old ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...advisor.candidates.advice import Advice, Candidate
from ...compiler.changed import Changes, compile_changed_file
from ...compiler.ir import Cancelled, Progress, Scenario, Schedule, Settings, ShouldStop
from ...compiler.pipeline import Compiled, compile_file
from ...compiler.planning.build import ScheduleError
from ...compiler.text.diagnostics import CompileError, Diagnostic, render_text
from ...simcore.figures.result import Result
from ...simcore.program.outcome import RunOutcome
from .what_if import WhatIf, changed_words

if TYPE_CHECKING:
    from ...advisor.recommend import Advisor


class ProblemKind(Enum):
    """Kind of a problem; the value is the headline."""

    FILE = "The file cannot be used"
    NOTHING_FEASIBLE = "No schedule is feasible"
    CANCELLED = "Stopped"
    OUTCOME = "The simulation did not finish"
    FAULT = "Internal error"


@dataclass(frozen=True, slots=True)
class SessionProblem:
    """A problem to show in place of an answer; ``text`` may have many lines."""

    kind: ProblemKind
    text: str


MOST_MARKED = 4
"""Most schedules that are compared at once."""

CANCELLED = SessionProblem(ProblemKind.CANCELLED, "The run was stopped before it was done. Press e to start it again.")


SweepAdvice = Callable[[Scenario, bool, ShouldStop], Advice]
SWEEP_TOP, SWEEP_WORKERS = 4, 2


def _sweep_advice(scenario: Scenario, simulated: bool, should_stop: ShouldStop) -> Advice:
    """Return short advice: templates alone, of which few are simulated."""
    from ...advisor.options import AdviceOptions
    from ...advisor.recommend import Advisor

    options = AdviceOptions(top=SWEEP_TOP, verify=simulated, bespoke=0, workers=SWEEP_WORKERS)
    advice = Advisor().recommend(scenario, options, should_stop=should_stop)
    if advice.interrupted:
        raise Cancelled
    return advice


@dataclass(frozen=True, slots=True)
class Backend:
    """The stages that the application calls.

    ``recommend`` tells what it would answer now to the function it takes last. ``simulate`` takes the bound in ticks
    for the loss waterfall, None to leave the waterfall out. ``change`` compiles a file with numbers of the hardware
    changed. ``sweep`` is the short advice for one point of a sweep, which it simulates if asked to.
    """

    compile: Callable[[Path, Settings], Compiled]
    recommend: Callable[[Scenario, Progress, ShouldStop, Callable[[Advice], None]], Advice]
    simulate: Callable[[Scenario, Schedule, int | None, ShouldStop], Result]
    change: Callable[[Path, Changes], Compiled] = compile_changed_file
    sweep: SweepAdvice = _sweep_advice


@dataclass(slots=True)
class WorkloadSession:
    """The state of one workload.

    While it is ``advising`` the answer is what would be answered now, and once the user has ``stopped`` that it stays
    so. ``picked`` is the expression of the candidate on screen, ``simulating`` whether it is being simulated.
    ``marked`` are the expressions of those to be compared. ``results`` and ``problems`` of simulations are by
    expression. ``what_if`` are the values of the file at ``path`` from which the scenario was made.
    """

    scenario: Scenario
    answer: Advice | SessionProblem | None = None
    picked: str | None = None
    marked: tuple[str, ...] = ()
    simulating: bool = False
    results: dict[str, Result] = field(default_factory=dict)
    problems: dict[str, SessionProblem] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()
    advising: bool = False
    stopped: bool = False
    path: Path = Path()
    what_if: WhatIf = field(default_factory=WhatIf)
    sweep_advice: SweepAdvice = _sweep_advice

    @property
    def advice(self) -> Advice | None:
        """The advice, once there is one."""
        return self.answer if isinstance(self.answer, Advice) else None

    @property
    def is_answered(self) -> bool:
        """Whether there is nothing more to find: an answer that was not cut short, a problem, or the user's stop."""
        return self.stopped or (self.answer is not None and not (self.advice is not None and self.advice.interrupted))

    def take(self, advice: Advice) -> None:
        """Take an answer; the recommended schedule stays picked unless the user has picked another."""
        before = self.advice
        if self.picked is None or (before is not None and self.picked == before.recommended.expression):
            self.picked = advice.recommended.expression
        self.answer = advice

    @property
    def result(self) -> Result | None:
        """What was simulated of the picked candidate."""
        return self.results.get(self.picked or "")

    @property
    def problem(self) -> SessionProblem | None:
        """Why the picked candidate could not be simulated."""
        return self.problems.get(self.picked or "")

    def toggle_mark(self, expression: str) -> None:
        """Mark a candidate for comparison, or take its mark away; of more than ``MOST_MARKED`` the first goes."""
        if expression in self.marked:
            self.marked = tuple(each for each in self.marked if each != expression)
        else:
            self.marked = (*self.marked, expression)[-MOST_MARKED:]

    def candidate(self, expression: str) -> Candidate | None:
        """The candidate with this expression."""
        candidates = self.advice.candidates if self.advice is not None else ()
        return next((candidate for candidate in candidates if candidate.expression == expression), None)


class Session:
    """A file with its settings, and a job for each of its workloads."""

    def __init__(self, path: Path, settings: Settings, workload: str | None, backend: Backend) -> None:
        self.path = path
        self.changes = Changes(tuple(settings))
        self._workload = workload
        self._backend = backend
        self.jobs: tuple[WorkloadSession, ...] = ()
        self.job_idx = 0
        self.problem: SessionProblem | None = None

    @property
    def job(self) -> WorkloadSession | None:
        """The job on screen; None while there is none."""
        return self.jobs[self.job_idx] if self.jobs else None

    def read(self) -> tuple[WorkloadSession, ...] | SessionProblem:
        """Compile the file from disk, with what was changed on screen."""
        path, changes = self.path, self.changes
        try:
            before = self._backend.compile(path, changes.params)
            compiled = self._backend.change(path, changes) if changes.numbers else before
        except Exception as error:
            return _as_problem(error)
        if not compiled.scenarios:
            return SessionProblem(ProblemKind.FILE, _nothing_to_advise_on(path, compiled))
        sweep = self._backend.sweep
        what_if = WhatIf(compiled.params, compiled.numbers, before.numbers, changes)
        return tuple(
            WorkloadSession(scenario, warnings=compiled.warnings, path=path, what_if=what_if, sweep_advice=sweep)
            for scenario in compiled.scenarios
        )

    def show(self, outcome: tuple[WorkloadSession, ...] | SessionProblem) -> None:
        """Take the outcome of ``read``; the workload on screen stays if the file still has it."""
        before = self.job.scenario.workload.name if self.job is not None else self._workload
        self.jobs, self.problem, self.job_idx = (), None, 0
        if isinstance(outcome, SessionProblem):
            self.problem = outcome
            # The place is kept while the file has an error.
            self._workload = before
            return
        names = [job.scenario.workload.name for job in outcome]
        if before in names:
            self.job_idx = names.index(before)
        elif before is not None:
            text = f"{self.path} has no workload '{before}'. It has: {', '.join(names)}."
            self.problem, self._workload = SessionProblem(ProblemKind.FILE, text), None
            return
        self.jobs = outcome

    @property
    def summary(self) -> str:
        """The file, its settings and the number of warnings, in one line."""
        changes = changed_words(self.changes)
        count = len(self.job.warnings) if self.job is not None else 0
        warned = f"; {count} warning{'s' if count > 1 else ''}, see Why" if count else ""
        return f"{self.path}{f' with {changes}' if changes else ''}{warned}"

    def next_workload(self) -> None:
        """Make the next workload of the file the current one."""
        if self.jobs:
            self.job_idx = (self.job_idx + 1) % len(self.jobs)

    def advise(
        self, job: WorkloadSession, progress: Progress, should_stop: ShouldStop, answered: Callable[[Advice], None]
    ) -> Advice | SessionProblem:
        """Ask for advice and keep it with its results; a run told to stop leaves the job as it is.

        ``answered`` is told in this thread what would be answered now.
        """
        try:
            advice = self._backend.recommend(job.scenario, progress, should_stop, answered)
        except Exception as error:
            # An error of a run that is being stopped is no answer: its processes may have ended already.
            if should_stop():
                return CANCELLED
            job.answer = _as_problem(error)
            return job.answer
        if advice.interrupted and should_stop():
            return CANCELLED
        for result in (advice.result, advice.serial_result):
            if result is not None:
                job.results[result.schedule.expression] = result
        job.take(advice)
        return advice

    def simulate(
        self, job: WorkloadSession, expression: str, should_stop: ShouldStop, *, explain: bool
    ) -> Result | SessionProblem:
        """Return the Result of a candidate, simulated in packets unless known; ``explain`` adds its loss waterfall."""
        known = job.results.get(expression)
        if known is not None and (known.waterfall is not None or not explain):
            return known
        outcome = self._simulated(job, expression, should_stop, explain=explain)
        if isinstance(outcome, SessionProblem):
            if outcome is not CANCELLED:
                job.problems[expression] = outcome
        elif known is None or outcome.waterfall is not None:
            job.results[expression] = outcome
        return outcome

    def _simulated(
        self, job: WorkloadSession, expression: str, should_stop: ShouldStop, *, explain: bool
    ) -> Result | SessionProblem:
        candidate, advice = job.candidate(expression), job.advice
        if candidate is None or advice is None:
            return SessionProblem(ProblemKind.FAULT, f"{expression} is not among the candidates")
        bound_ticks = advice.bound.ticks if explain and advice.bound is not None else None
        try:
            result = self._backend.simulate(job.scenario, candidate.schedule, bound_ticks, should_stop)
        except Exception as error:
            return _as_problem(error)
        if result.outcome is RunOutcome.CANCELLED:
            return CANCELLED
        if result.outcome is not RunOutcome.DONE:
            return SessionProblem(ProblemKind.OUTCOME, f"{expression}: {result.outcome.value}.")
        return result


def _nothing_to_advise_on(path: Path, compiled: Compiled) -> str:
    if not compiled.graphs:
        return f"{path} declares no workload, so there is nothing to advise on."
    names = ", ".join(graph.name for graph in compiled.graphs)
    return (
        f"{path} has whole layers alone ({names}): their schedules are simulated, not searched.\n"
        f"Say: magus simulate {path}"
    )


def _as_problem(error: Exception) -> SessionProblem:
    """Return the problem to show for an exception of a stage."""
    if isinstance(error, CompileError):
        return SessionProblem(ProblemKind.FILE, render_text(error.diagnostics))
    if isinstance(error, OSError):
        return SessionProblem(ProblemKind.FILE, f"{error.filename or 'the file'}: {error.strerror or error}")
    if isinstance(error, ScheduleError):
        unfit = error.rejection
        lines = filter(None, (f"{unfit.code.name} error: {unfit.message}", unfit.hint))
        return SessionProblem(ProblemKind.FILE, "\n".join(lines))
    # Imported here, since they import the solver: a file with an error is shown without it.
    from ...advisor.solver import NoFeasibleSchedule

    if isinstance(error, NoFeasibleSchedule):
        return SessionProblem(ProblemKind.NOTHING_FEASIBLE, "\n".join(error.reasons) or str(error))
    if isinstance(error, Cancelled):
        return CANCELLED
    fault = "This is a fault of Magus, not of your file."
    return SessionProblem(ProblemKind.FAULT, f"{type(error).__name__}: {error}\n{fault}")


@cache
def _advisor() -> "Advisor":
    """Return the advisor with the shipped model, which takes longer to load than to answer."""
    from ...advisor.recommend import Advisor

    return Advisor.load()


def default_backend(workers: int) -> Backend:
    """Return the real stages; simulations of the advice run in ``workers`` processes, those on demand in this one."""

    def recommend(
        scenario: Scenario, progress: Progress, should_stop: ShouldStop, answered: Callable[[Advice], None]
    ) -> Advice:
        from ...advisor.options import AdviceOptions

        options = AdviceOptions(workers=workers, threshold=True)
        return _advisor().recommend(scenario, options, progress=progress, should_stop=should_stop, answered=answered)

    def simulate_packets(
        scenario: Scenario, schedule: Schedule, bound_ticks: int | None, should_stop: ShouldStop
    ) -> Result:
        from ...advisor.candidates.shortlist import packet_bytes
        from ...simcore import RunOptions, WhatIf, simulate

        unit = packet_bytes(scenario)
        what_if = None if bound_ticks is None else WhatIf(unit, bound_ticks)
        return simulate(
            scenario,
            schedule,
            unit_bytes=unit,
            what_if=what_if,
            options=RunOptions(should_stop=should_stop),
        )

    return Backend(compile_file, recommend, simulate_packets)
