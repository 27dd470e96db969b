"""Simulations side by side, in threads or in processes; the results do not depend on either, or on their number.

Threads share what is imported and cached, and start at once. They suit simulations that are machine code for most of
the time, which holds no lock of Python's; others run in processes. Forked processes start at once too, and take no
turns with a caller that is busy itself, if it allows them.

A simulation that fails stops no other: its failure is recorded, and the rest is simulated.
"""

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import groupby
from typing import TypeVar

from ...compiler.codes import Code
from ...compiler.ir import Cancelled, OpCase, OpPlan, ShouldStop, StepsDone
from ...compiler.planning.build import ScheduleError
from ...simcore import (
    EngineUnavailable,
    Result,
    RunOptions,
    RunOutcome,
    RunTooLarge,
    WhatIf,
    check_unlike,
    runs_compiled,
    simulate_op,
)
from .pools import Submit, open_processes, open_threads, result_of
from .processes import POLL_S, ProcessDied, forks


class FailureKind(Enum):
    """Why there is no result; the value says it in a few words."""

    STAGE = "failed and was left out"
    TOO_LARGE = "too large to simulate"
    ILLEGAL = "not carried out"
    NEVER_FINISHES = "never finishes"
    FAULT = "a fault of Magus"


@dataclass(frozen=True, slots=True)
class Failure:
    """A stage, or the simulation of a schedule, without a result; ``subject`` is the name of either."""

    subject: str
    kind: FailureKind
    reason: str


def failed_stage(name: str, error: Exception) -> Failure:
    """The failure of a stage of advice."""
    kind, reason = _classified(error)
    blame = f" ({kind.value}, not of your file)" if kind is FailureKind.FAULT else ""
    return Failure(name, FailureKind.STAGE, f"{reason}{blame}")


def failed_simulation(schedule: str, error: Exception) -> Failure:
    """The failure of a simulation of ``schedule``."""
    return Failure(schedule, *_classified(error))


def _classified(error: Exception) -> tuple[FailureKind, str]:
    """The kind of an exception, and its text with the code of a diagnostic where it has one."""
    if isinstance(error, RunTooLarge):
        return FailureKind.TOO_LARGE, f"MGS406: {error}"
    if isinstance(error, MemoryError):
        return FailureKind.TOO_LARGE, f"MGS406: memory ran out{f': {error}' if str(error) else ''}"
    if isinstance(error, ScheduleError):
        return FailureKind.ILLEGAL, f"{error.rejection.code.name}: {error}"
    return FailureKind.FAULT, f"{type(error).__name__}: {error}"


def failure_sentences(failures: Sequence[Failure]) -> Iterator[str]:
    """Yield a sentence for each stage, then one for each kind of failed simulation, with the first as the example."""
    kinds = list(FailureKind)
    ordered = sorted(dict.fromkeys(failures), key=lambda failure: kinds.index(failure.kind))
    for kind, group in groupby(ordered, key=lambda failure: failure.kind):
        if kind is FailureKind.STAGE:
            yield from (f"{failure.subject} {kind.value}: {failure.reason}" for failure in group)
            continue
        first, *others = group
        more = f", and {len(others)} more" if others else ""
        yield f"{kind.value}: {first.subject}{more}: {first.reason}"


log = logging.getLogger(__name__)

T = TypeVar("T")
Argument = TypeVar("Argument")


@dataclass(frozen=True, slots=True)
class SimulationJob:
    """One simulation; the fields are arguments of ``simulate``, the last that of ``WhatIf``."""

    scenario: OpCase
    schedule: OpPlan
    unit_bytes: int
    bound_ticks: int | None = None
    explain_bytes: int | None = None
    loads: bool = False
    makespan_ticks: int | None = None


def run_job(job: SimulationJob, should_stop: ShouldStop | None = None) -> Result:
    """Run one job in this process.

    Raises
    ------
    RunTooLarge
        If it takes longer than one of the runs of an answer may, by ``check_unlike``, or more than any run may.
    """
    check_unlike(job.scenario, job.schedule)
    return simulate_op(
        job.scenario,
        job.schedule,
        unit_bytes=job.unit_bytes,
        what_if=None
        if job.explain_bytes is None
        else WhatIf(job.explain_bytes, job.bound_ticks or 0, job.makespan_ticks),
        options=RunOptions(should_stop=should_stop, loads=job.loads),
    )


@dataclass(frozen=True, slots=True)
class Begun:
    """A job that a worker may be running already; ``future`` is None if there are no workers."""

    job: SimulationJob
    future: Future[Result] | None = None

    def drop(self) -> None:
        """Leave the job out, unless a worker has it already."""
        if self.future is not None:
            self.future.cancel()


class Workers:
    """Runs jobs in ``count`` workers by ``submit``, in this thread without it.

    ``failures`` are those of all jobs so far, in the order of the jobs; ``stopped`` is whether the caller asked to
    stop, so that some jobs have no result. ``on_result`` is called with each Result as soon as it is known, in any
    order.
    """

    def __init__(
        self,
        should_stop: ShouldStop | None = None,
        submit: Submit | None = None,
        count: int = 1,
        *,
        computes: bool = False,
    ) -> None:
        self.count = count
        self._submit, self._computes = submit, computes
        self.should_stop = should_stop or (lambda: False)
        self.failures: list[Failure] = []
        self.stopped = False
        self.on_result: Callable[[SimulationJob, Result], None] | None = None
        self._ahead: list[Begun] = []

    @property
    def works_beside(self) -> bool:
        """Whether what is begun runs beside the caller."""
        return self._submit is not None

    def run(self, jobs: Sequence[SimulationJob], progress: StepsDone | None = None) -> list[Result | None]:
        """Begin ``jobs`` and finish them."""
        return self.finish(self.begin(jobs), progress)

    def begin(self, jobs: Sequence[SimulationJob]) -> tuple[Begun, ...]:
        """Begin ``jobs`` where there are workers: they run beside what the caller does until it asks to finish them.

        A job that is begun and never finished has no effect. One that was begun ``ahead`` is under way already.
        """
        return tuple(map(self._begun, jobs))

    def ahead(self, jobs: Sequence[SimulationJob]) -> None:
        """Begin ``jobs`` that may be wanted, while workers would wait; what wants an equal one begins no other."""
        self._ahead += self.begin(jobs) if self.works_beside else ()

    def compute(self, function: Callable[[Argument, ShouldStop], T], argument: Argument) -> Callable[[], T]:
        """Begin ``function`` of the top of a module in a forked process; return what waits for what it returns.

        Without such processes, or if they die, it is called once it is waited for.
        """
        future = self._submit(function, argument) if self._computes and self._submit is not None else None

        def found() -> T:
            try:
                return function(argument, self.should_stop) if future is None else result_of(future, self.should_stop)
            except ProcessDied:
                self._lose_processes()
            return function(argument, self.should_stop)

        return found

    def _begun(self, job: SimulationJob) -> Begun:
        for idx, begun in enumerate(self._ahead):
            if begun.job == job:
                return self._ahead.pop(idx)
        return Begun(job, None if self._submit is None else self._submit(run_job, job))

    def finish(self, begun: Sequence[Begun], progress: StepsDone | None = None) -> list[Result | None]:
        """Return results in the order of ``begun``, None for those that failed or were not begun before a stop.

        Raises
        ------
        EngineUnavailable
            If the core that the caller chose is not installed.
        KeyboardInterrupt
            Unless ``should_stop`` returns true.
        """
        outcomes: list[Result | Failure | None] = [None] * len(begun)
        try:
            self._fill(outcomes, begun, progress or (lambda _: None))
        except KeyboardInterrupt:
            if not self.should_stop():
                raise
        self.stopped = self.stopped or self.should_stop()
        self.failures.extend(outcome for outcome in outcomes if isinstance(outcome, Failure))
        return [outcome if isinstance(outcome, Result) else None for outcome in outcomes]

    def _fill(self, outcomes: list[Result | Failure | None], begun: Sequence[Begun], report: StepsDone) -> None:
        """Take what the workers return; run here what is left: without workers all, after processes died the rest."""
        try:
            self._take(outcomes, begun, report)
        except ProcessDied:
            self._lose_processes()
        for idx, job in enumerate(one.job for one in begun):
            if outcomes[idx] is None and not self.should_stop():
                outcomes[idx] = self._reported(job, _outcome_of(job, partial(run_job, job, self.should_stop)))
                report(sum(outcome is not None for outcome in outcomes))

    def _take(self, outcomes: list[Result | Failure | None], begun: Sequence[Begun], report: StepsDone) -> None:
        running = {one.future: idx for idx, one in enumerate(begun) if one.future is not None}
        stop = False
        while running and not stop:
            stop = self.should_stop()
            done, _ = wait(running, timeout=0 if stop else POLL_S, return_when=FIRST_COMPLETED)
            for future in done:
                idx = running.pop(future)
                outcomes[idx] = self._reported(begun[idx].job, _outcome_of(begun[idx].job, future.result))
            report(len(begun) - len(running))

    def _reported(self, job: SimulationJob, outcome: Result | Failure | None) -> Result | Failure | None:
        if self.on_result is not None and isinstance(outcome, Result):
            self.on_result(job, outcome)
        return outcome

    def _lose_processes(self) -> None:
        log.debug("a worker process died", exc_info=True)
        self._submit = None


def _outcome_of(job: SimulationJob, run: Callable[[], Result]) -> Result | Failure | None:
    """Return the result of a job, or why it has none; None if it was stopped: a run that stops early looks fast."""
    name = job.schedule.expression
    try:
        result = run()
    except (EngineUnavailable, ProcessDied):
        raise
    except (Cancelled, CancelledError):
        return None
    except Exception as error:
        log.debug("simulating %s failed", name, exc_info=True)
        return failed_simulation(name, error)
    if result.outcome is RunOutcome.DEADLOCK:
        return Failure(name, FailureKind.NEVER_FINISHES, f"{Code.MGS503.name}: {'; '.join(result.deadlock[:2])}")
    if result.outcome is RunOutcome.CANCELLED:
        return None
    return result if result.outcome is RunOutcome.DONE else Failure(name, FailureKind.TOO_LARGE, result.outcome.value)


def suits_threads(scenario: OpCase) -> bool:
    """Whether simulations of ``scenario`` are machine code for most of the time.

    Where all ranks see the same fabric one of them is lowered; lowering every rank is much Python, and long calls of
    numpy that hear of no stop.
    """
    return runs_compiled() and scenario.network.symmetric


@contextmanager
def open_workers(
    count: int, should_stop: ShouldStop | None = None, *, threads: bool = False, busy: bool = False
) -> Iterator[Workers]:
    """Open ``count`` processes or ``threads``, or run jobs in this thread for a count of one.

    A process that answers questions beside others opens none of its own. Processes are spawned unless the caller is
    ``forking``; one that is ``busy`` with Python beside them then has no ``threads`` either. When the block is left
    early, threads are asked to stop and waited for, and processes are ended, so that none outlives its caller.
    """
    daemon = multiprocessing.current_process().daemon
    if count <= 1 or (not threads and daemon):
        yield Workers(should_stop)
    elif threads and (daemon or not (busy and forks())):
        with open_threads(count) as submit:
            yield Workers(should_stop, submit, count)
    else:
        with open_processes(count) as submit:
            yield Workers(should_stop, submit, count, computes=forks())
