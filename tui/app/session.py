"""One open file: compiles it, asks for advice, simulates candidates on demand and keeps the results. No Textual.

The calls block and never raise: errors are returned as a ``SessionProblem`` to show. They may run in threads. Reading
the file again makes new ``WorkloadSession`` objects, so a run in progress can only write to the old ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...advisor.candidates.advice import Advice, Candidate
from ...advisor.graph_answer import GraphAnswer, ShownSchedule
from ...compiler.changed import Changes, compile_changed_file
from ...compiler.ir import (
    Cancelled,
    GraphChoice,
    GraphScenario,
    Progress,
    Scenario,
    Schedule,
    Settings,
    ShouldStop,
)
from ...compiler.pipeline import Compiled, compile_file
from ...compiler.planning.build import ScheduleError
from ...compiler.text.diagnostics import CompileError, Diagnostic, render_text
from ...simcore.figures.result import Result
from ...simcore.program.outcome import RunOutcome
from ...simcore.shown_run import ShownRun, run_of_pair
from .finding import Finding, Ranked, Subject, has_waterfall, runs_in
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
GIVEN_UP = SessionProblem(ProblemKind.CANCELLED, "Its simulation was stopped. Pick it again to start anew.")


SweepAdvice = Callable[[Subject, bool, ShouldStop], Finding]
SWEEP_TOP, SWEEP_WORKERS = 4, 2


def _sweep_advice(scenario: Subject, simulated: bool, should_stop: ShouldStop) -> Finding:
    """Return short advice: templates alone, of which few are simulated; of a graph all declared schedules are."""
    if isinstance(scenario, GraphScenario):
        from ...advisor.graph_schedules import simulated_schedules

        answer = simulated_schedules(scenario, workers=SWEEP_WORKERS, should_stop=should_stop)
        if answer.interrupted:
            raise Cancelled
        return answer
    from ...advisor.options import AdviceOptions
    from ...advisor.recommend import Advisor

    options = AdviceOptions(top=SWEEP_TOP, verify=simulated, bespoke=0, workers=SWEEP_WORKERS)
    advice = Advisor().recommend(scenario, options, should_stop=should_stop)
    if advice.interrupted:
        raise Cancelled
    return advice


def _advised(
    scenario: GraphScenario,
    progress: Progress,
    should_stop: ShouldStop,
    answered: Callable[[GraphAnswer], None],
    workers: int = 1,
) -> GraphAnswer:
    """Return the advice on a graph: what its file declares, and what is searched."""
    from ...advisor.graph_advised import advised
    from ...advisor.options import AdviceOptions

    options = AdviceOptions(workers=workers)
    return advised(scenario, options, progress=progress, should_stop=should_stop, answered=answered)


def _simulated_schedule(scenario: GraphScenario, choice: GraphChoice, should_stop: ShouldStop) -> ShownSchedule:
    """Return one schedule of a graph, simulated."""
    from ...advisor.graph_schedules import simulated_candidate

    return simulated_candidate(scenario, choice, should_stop)


GraphStage = Callable[[GraphScenario, Progress, ShouldStop, Callable[[GraphAnswer], None]], GraphAnswer]


@dataclass(frozen=True, slots=True)
class Backend:
    """The stages that the application calls.

    ``recommend`` tells what it would answer now to the function it takes last. ``simulate`` takes the bound in ticks
    for the loss waterfall, None to leave the waterfall out. ``change`` compiles a file with numbers of the hardware
    changed. ``sweep`` is the short advice for one point of a sweep, which it simulates if asked to. ``recommend_graph``
    and ``simulate_graph`` are the stages for graphs.
    """

    compile: Callable[[Path, Settings], Compiled]
    recommend: Callable[[Scenario, Progress, ShouldStop, Callable[[Advice], None]], Advice]
    simulate: Callable[[Scenario, Schedule, int | None, ShouldStop], Result]
    change: Callable[[Path, Changes], Compiled] = compile_changed_file
    sweep: SweepAdvice = _sweep_advice
    recommend_graph: GraphStage = _advised
    simulate_graph: Callable[[GraphScenario, GraphChoice, ShouldStop], ShownSchedule] = _simulated_schedule


@dataclass(slots=True)
class WorkloadSession:
    """The state of one workload.

    While it is ``advising`` the answer is what would be answered now, and once the user has ``stopped`` that it stays
    so. ``picked`` is the expression of the candidate on screen, ``simulating`` whether it is being simulated.
    ``marked`` are the expressions of those to be compared. ``runs`` and ``problems`` of simulations are by
    expression. ``what_if`` are the values of the file at ``path`` from which the scenario was made.
    """

    scenario: Subject
    answer: Finding | SessionProblem | None = None
    picked: str | None = None
    marked: tuple[str, ...] = ()
    simulating: bool = False
    runs: dict[str, ShownRun] = field(default_factory=dict)
    problems: dict[str, SessionProblem] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()
    advising: bool = False
    stopped: bool = False
    path: Path = Path()
    what_if: WhatIf = field(default_factory=WhatIf)
    sweep_advice: SweepAdvice = _sweep_advice

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.scenario.workload.name if isinstance(self.scenario, Scenario) else self.scenario.graph.name

    @property
    def is_graph(self) -> bool:
        """Whether the workload is a graph."""
        return isinstance(self.scenario, GraphScenario)

    @property
    def found(self) -> Finding | None:
        """What was found, once there is anything."""
        return None if isinstance(self.answer, SessionProblem) else self.answer

    @property
    def advice(self) -> Advice | None:
        """The advice on a pair, once there is one."""
        return self.answer if isinstance(self.answer, Advice) else None

    @property
    def is_answered(self) -> bool:
        """Whether there is nothing more to find: an answer that was not cut short, a problem, or the user's stop."""
        return self.stopped or (self.answer is not None and not (self.found is not None and self.found.interrupted))

    def take(self, answer: Finding) -> None:
        """Take an answer with its runs; the recommended schedule stays picked unless the user has picked another."""
        before = self.found
        if self.picked is None or (before is not None and self.picked == before.recommended.expression):
            self.picked = answer.recommended.expression
        for expression, run in runs_in(answer).items():
            known = self.runs.get(expression)
            if known is None or known.result is not run.result:  # what is shown of a run is kept with it
                self.runs[expression] = run
        for each in answer.candidates:
            if isinstance(each, ShownSchedule) and each.problem:
                self.problems[each.expression] = SessionProblem(ProblemKind.OUTCOME, each.problem)
        self.answer = answer

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
        return run is not None and (run.result.waterfall is not None or not has_waterfall(self.scenario))

    @property
    def problem(self) -> SessionProblem | None:
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

    def candidate(self, expression: str) -> Ranked | None:
        """The candidate with this expression."""
        candidates = self.found.candidates if self.found is not None else ()
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

    def of_other(self, path: Path) -> "Session":
        """Return a session of another file, with nothing changed."""
        return Session(path, (), None, self._backend)

    def read(self) -> tuple[WorkloadSession, ...] | SessionProblem:
        """Compile the file from disk, with what was changed on screen."""
        path, changes = self.path, self.changes
        try:
            before = self._backend.compile(path, changes.params)
            compiled = self._backend.change(path, changes) if changes.numbers else before
        except Exception as error:
            return _as_problem(error)
        if not compiled.scenarios and not compiled.graphs:
            text = f"{path} declares no workload, so there is nothing to advise on."
            return SessionProblem(ProblemKind.FILE, text)
        sweep = self._backend.sweep
        what_if = WhatIf(compiled.params, compiled.numbers, before.numbers, changes)
        subjects: tuple[Subject, ...] = (*compiled.scenarios, *compiled.graphs)
        return tuple(
            WorkloadSession(scenario, warnings=compiled.warnings, path=path, what_if=what_if, sweep_advice=sweep)
            for scenario in subjects
        )

    def show(self, outcome: tuple[WorkloadSession, ...] | SessionProblem) -> None:
        """Take the outcome of ``read``; the workload on screen stays if the file still has it."""
        before = self.job.name if self.job is not None else self._workload
        self.jobs, self.problem, self.job_idx = (), None, 0
        if isinstance(outcome, SessionProblem):
            self.problem = outcome
            # The place is kept while the file has an error.
            self._workload = before
            return
        names = [job.name for job in outcome]
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
        self, job: WorkloadSession, progress: Progress, should_stop: ShouldStop, answered: Callable[[Finding], None]
    ) -> Finding | SessionProblem:
        """Ask for advice and keep it with its runs; a run told to stop leaves the job as it is.

        ``answered`` is told in this thread what would be answered now.
        """

        def told(answer: Finding) -> None:
            runs_in(answer)  # here and not on screen: of a graph this takes a moment
            answered(answer)

        try:
            answer = self._recommended(job.scenario, progress, should_stop, told)
        except Exception as error:
            # An error of a run that is being stopped is no answer: its processes may have ended already.
            if should_stop():
                return CANCELLED
            job.answer = _as_problem(error)
            return job.answer
        if answer.interrupted and should_stop():
            return CANCELLED
        job.take(answer)
        return answer

    def _recommended(
        self, scenario: Subject, progress: Progress, should_stop: ShouldStop, told: Callable[[Finding], None]
    ) -> Finding:
        if isinstance(scenario, GraphScenario):
            return self._backend.recommend_graph(scenario, progress, should_stop, told)
        return self._backend.recommend(scenario, progress, should_stop, told)

    def simulate(
        self, job: WorkloadSession, expression: str, should_stop: ShouldStop, *, explain: bool
    ) -> ShownRun | SessionProblem:
        """Return the run of a candidate, simulated in packets unless known; ``explain`` adds its loss waterfall."""
        known = job.runs.get(expression)
        if known is not None and (job.explains(known) or not explain):
            return known
        outcome = self._simulated(job, expression, should_stop, explain=explain)
        if isinstance(outcome, SessionProblem):
            if outcome is not CANCELLED:
                job.problems[expression] = outcome
        elif known is None or outcome.result.waterfall is not None:
            job.runs[expression] = outcome
        return outcome

    def _simulated(
        self, job: WorkloadSession, expression: str, should_stop: ShouldStop, *, explain: bool
    ) -> ShownRun | SessionProblem:
        candidate, found = job.candidate(expression), job.found
        try:
            if isinstance(candidate, ShownSchedule):
                return self._simulated_graph(candidate, should_stop)
            if not isinstance(candidate, Candidate) or not isinstance(job.scenario, Scenario) or found is None:
                return SessionProblem(ProblemKind.FAULT, f"{expression} is not among the candidates")
            bound_ticks = found.bound.ticks if explain and found.bound is not None else None
            result = self._backend.simulate(job.scenario, candidate.schedule, bound_ticks, should_stop)
        except Exception as error:
            return _as_problem(error)
        if result.outcome is RunOutcome.CANCELLED:
            return CANCELLED
        if result.outcome is not RunOutcome.DONE:
            return SessionProblem(ProblemKind.OUTCOME, f"{expression}: {result.outcome.value}.")
        return run_of_pair(job.scenario, result)

    def _simulated_graph(self, candidate: ShownSchedule, should_stop: ShouldStop) -> ShownRun | SessionProblem:
        if candidate.problem:
            return SessionProblem(ProblemKind.OUTCOME, candidate.problem)
        done = self._backend.simulate_graph(candidate.scenario, candidate.choice, should_stop)
        return done.run or SessionProblem(ProblemKind.OUTCOME, done.problem)


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

    recommend_graph = partial(_advised, workers=workers)
    return Backend(compile_file, recommend, simulate_packets, recommend_graph=recommend_graph)
