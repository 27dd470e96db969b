"""One open file: compiles it, asks for advice, simulates candidates on demand and keeps the results. No Textual.

The calls block and never raise: errors are returned as a ``JobProblem`` to show. They may run in threads. Reading
the file again makes new ``Job`` objects, so a run in progress can only write to the old ones.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from ....advisor.answer.answer import run_of_candidate
from ....advisor.candidates.candidate import Candidate
from ....compiler.changed import Changes, changed_source
from ....compiler.ir import Cancelled, Progress, Scenario, Settings, ShouldStop
from ....compiler.planning.build import ScheduleError
from ....compiler.text.diagnostics import CompileError, Diagnostic, Source, render_text
from ....simcore.program.program import RunOutcome
from ....simcore.shown_run import ShownRun, run_of
from .backend import Backend
from .job import CANCELLED, AnyAdvice, AnyJob, Job, JobProblem, ProblemKind, StepJob
from .values import ValuesOfFile, changed_words


class _OfFile(TypedDict):
    """What all jobs of a file have."""

    warnings: tuple[Diagnostic, ...]
    path: Path
    what_if: ValuesOfFile


class Session:
    """A file with its settings, and a job for each of its workloads."""

    def __init__(self, path: Path, settings: Settings, workload: str | None, backend: Backend) -> None:
        self.path = path
        self.changes = Changes(tuple(settings))
        self._workload = workload
        self._backend = backend
        self.jobs: tuple[AnyJob, ...] = ()
        self.job_idx = 0
        self.problem: JobProblem | None = None

    @property
    def shown(self) -> AnyJob | None:
        """The job on screen; None while there is none."""
        return self.jobs[self.job_idx] if self.jobs else None

    @property
    def job(self) -> Job | None:
        """The job on screen if it is about ops."""
        return self.shown if isinstance(self.shown, Job) else None

    def of_other(self, path: Path) -> "Session":
        """Return a session of another file, with nothing changed."""
        return Session(path, (), None, self._backend)

    def read(self) -> tuple[AnyJob, ...] | JobProblem:
        """Compile the file from disk, with what was changed on screen."""
        path, changes = self.path, self.changes
        try:
            before = self._backend.compile(path, changes.params)
            compiled = self._backend.change(path, changes) if changes.numbers else before
            source = changed_source(path, changes) if compiled.steps else Source(str(path), "")
        except Exception as error:
            return _as_problem(error)
        if not compiled.workloads:
            text = f"{path} declares no workload, so there is nothing to advise on."
            return JobProblem(ProblemKind.FILE, text)
        what_if = ValuesOfFile(compiled.params, compiled.numbers, before.numbers, changes)
        known = _OfFile(warnings=compiled.warnings, path=path, what_if=what_if)
        return (
            *(StepJob(step, source=source, **known) for step in compiled.steps),
            *(Job(scenario, sweep_advice=self._backend.sweep, **known) for scenario in compiled.workloads),
        )

    def show(self, outcome: tuple[AnyJob, ...] | JobProblem) -> None:
        """Take the outcome of ``read``; the workload on screen stays if the file still has it."""
        before = self.shown.name if self.shown is not None else self._workload
        self.jobs, self.problem, self.job_idx = (), None, 0
        if isinstance(outcome, JobProblem):
            self.problem = outcome
            # The place is kept while the file has an error.
            self._workload = before
            return
        names = [job.name for job in outcome]
        if before in names:
            self.job_idx = names.index(before)
        elif before is not None:
            text = f"{self.path} has no workload '{before}'. It has: {', '.join(names)}."
            self.problem, self._workload = JobProblem(ProblemKind.FILE, text), None
            return
        self.jobs = outcome

    @property
    def summary(self) -> str:
        """The file, its settings and the number of warnings, in one line."""
        changes = changed_words(self.changes)
        count = len(self.shown.warnings) if self.shown is not None else 0
        warned = f"; {count} warning{'s' if count > 1 else ''}, see Why" if count else ""
        return f"{self.path}{f' with {changes}' if changes else ''}{warned}"

    def advise(
        self, job: AnyJob, progress: Progress, should_stop: ShouldStop, answered: Callable[[AnyAdvice], None]
    ) -> None:
        """Ask for advice and keep it with its runs; a run told to stop leaves the job as it is.

        ``answered`` is told in this thread what would be answered now.
        """
        try:
            job.advise(self._backend, progress, should_stop, answered)
        except Exception as error:
            # An error of a run that is being stopped is no answer: its processes may have ended already.
            if not should_stop():
                job.answer = _as_problem(error)

    def simulate(self, job: Job, expression: str, should_stop: ShouldStop, *, explain: bool) -> ShownRun | JobProblem:
        """Return the run of a candidate, simulated in packets unless known; ``explain`` adds its loss waterfall."""
        known = job.runs.get(expression)
        if known is not None and (job.explains(known) or not explain):
            return known
        outcome = self._simulated(job, expression, should_stop, explain=explain)
        if isinstance(outcome, JobProblem):
            if outcome is not CANCELLED:
                job.problems[expression] = outcome
        elif known is None or outcome.result.waterfall is not None:
            job.runs[expression] = outcome
        return outcome

    def _simulated(self, job: Job, expression: str, should_stop: ShouldStop, *, explain: bool) -> ShownRun | JobProblem:
        candidate, found = job.candidate(expression), job.found
        try:
            if candidate is None or found is None:
                return JobProblem(ProblemKind.FAULT, f"{expression} is not among the candidates")
            if candidate.several is not None:
                return self._simulated_graph(found.scenario, candidate, should_stop)
            bound_ticks = found.bound.ticks if explain and found.bound is not None else None
            result = self._backend.simulate(found.case, candidate.schedule, bound_ticks, should_stop)
        except Exception as error:
            return _as_problem(error)
        if result.outcome is RunOutcome.CANCELLED:
            return CANCELLED
        if result.outcome is not RunOutcome.DONE:
            return JobProblem(ProblemKind.OUTCOME, f"{expression}: {result.outcome.value}.")
        return run_of(found.case, result)

    def _simulated_graph(
        self, scenario: Scenario, candidate: Candidate, should_stop: ShouldStop
    ) -> ShownRun | JobProblem:
        if candidate.problem:
            return JobProblem(ProblemKind.OUTCOME, candidate.problem)
        done = self._backend.simulate_graph(scenario, candidate, should_stop)
        return run_of_candidate(scenario, done) or JobProblem(ProblemKind.OUTCOME, done.problem)


def _as_problem(error: Exception) -> JobProblem:
    """Return the problem to show for an exception of a stage."""
    if isinstance(error, CompileError):
        return JobProblem(ProblemKind.FILE, render_text(error.diagnostics))
    if isinstance(error, OSError):
        return JobProblem(ProblemKind.FILE, f"{error.filename or 'the file'}: {error.strerror or error}")
    if isinstance(error, ScheduleError):
        unfit = error.rejection
        lines = filter(None, (f"{unfit.code.name} error: {unfit.message}", unfit.hint))
        return JobProblem(ProblemKind.FILE, "\n".join(lines))
    # Imported here, since they import the solver: a file with an error is shown without it.
    from ....advisor.solver import NoFeasibleSchedule

    if isinstance(error, NoFeasibleSchedule):
        return JobProblem(ProblemKind.NOTHING_FEASIBLE, "\n".join(error.reasons) or str(error))
    if isinstance(error, Cancelled):
        return CANCELLED
    fault = "This is a fault of Magus, not of your file."
    return JobProblem(ProblemKind.FAULT, f"{type(error).__name__}: {error}\n{fault}")
