"""Simulations side by side in processes; the results do not depend on how many there are.

A simulation that cannot be made takes no other with it: what failed is remembered, and the rest is simulated.
"""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from threading import Thread

from ..compiler.codes import Code
from ..compiler.ir import Cancelled, Scenario, Schedule, ShouldStop
from ..compiler.planning.build import ScheduleError
from ..simcore import EngineUnavailable, Result, RunOptions, RunOutcome, RunTooLarge, WhatIf, simulate

# How often a waiting caller looks whether it should stop, and how long its processes have to do so by themselves.
POLL_S, GRACE_S = 0.2, 0.5

log = logging.getLogger(__name__)


class FailureKind(Enum):
    """Why a schedule has no simulated time; the value says it in a few words."""

    TOO_LARGE = "too large to simulate"
    ILLEGAL = "not carried out"
    NEVER_FINISHES = "never finishes"
    FAULT = "a fault of Magus"


@dataclass(frozen=True, slots=True)
class Failure:
    """A simulation that gave no time."""

    schedule: str
    kind: FailureKind
    reason: str


@dataclass(frozen=True, slots=True)
class SimulationJob:
    """One simulation; fields as the arguments of ``simulate``."""

    scenario: Scenario
    schedule: Schedule
    unit_bytes: int
    bound_ticks: int | None = None
    explain_bytes: int | None = None


def run_job(job: SimulationJob, should_stop: ShouldStop | None = None) -> Result:
    """Run one job here."""
    return simulate(
        job.scenario,
        job.schedule,
        unit_bytes=job.unit_bytes,
        what_if=None if job.explain_bytes is None else WhatIf(job.explain_bytes, job.bound_ticks or 0),
        options=RunOptions(should_stop=should_stop),
    )


class Workers:
    """Runs jobs, in this process if there is no pool.

    ``failures`` are those of all jobs so far, in their order; ``stopped`` is whether the caller asked to stop, so that
    some have no result.
    """

    def __init__(self, pool: ProcessPoolExecutor | None, should_stop: ShouldStop | None) -> None:
        self._pool = pool
        self._should_stop = should_stop or (lambda: False)
        self.failures: list[Failure] = []
        self.stopped = False

    def run(self, jobs: Sequence[SimulationJob], progress: Callable[[int], None] | None = None) -> list[Result | None]:
        """Results in the order of ``jobs``, None for those that failed or were not begun before a stop.

        Raises
        ------
        EngineUnavailable
            If the core that was asked for is not installed.
        KeyboardInterrupt
            Unless ``should_stop`` knows of it.
        """
        found: list[Result | Failure | None] = [None] * len(jobs)
        try:
            self._fill(found, jobs, progress or (lambda _: None))
        except KeyboardInterrupt:
            if not self._should_stop():
                raise
        self.stopped = self.stopped or self._should_stop()
        self.failures.extend(each for each in found if isinstance(each, Failure))
        return [each if isinstance(each, Result) else None for each in found]

    def _fill(
        self, found: list[Result | Failure | None], jobs: Sequence[SimulationJob], report: Callable[[int], None]
    ) -> None:
        if self._pool is not None:
            self._fill_by(self._pool, found, jobs, report)
        for idx, job in enumerate(jobs):
            if found[idx] is None and not self._should_stop():
                found[idx] = _settled(job, partial(run_job, job, self._should_stop))
                report(sum(each is not None for each in found))

    def _fill_by(
        self,
        pool: ProcessPoolExecutor,
        found: list[Result | Failure | None],
        jobs: Sequence[SimulationJob],
        report: Callable[[int], None],
    ) -> None:
        """Run ``jobs`` in the processes of ``pool``; if those die, what they leave is for this process."""
        try:
            with deaf_children():
                running = {pool.submit(_run_in_process, job): idx for idx, job in enumerate(jobs)}
            while running and not self._should_stop():
                done, _ = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    idx = running.pop(future)
                    found[idx] = _settled(jobs[idx], future.result)
                report(len(jobs) - len(running))
        except BrokenExecutor:
            log.debug("the worker processes died", exc_info=True)
            self._pool = None


def _settled(job: SimulationJob, run: Callable[[], Result]) -> Result | Failure | None:
    """The result of a job, or why it has none; None if it was stopped, since a run that stops early looks fast."""
    name = job.schedule.expression
    try:
        result = run()
    except (EngineUnavailable, BrokenExecutor):
        raise
    except Cancelled:
        return None
    except Exception as error:
        log.debug("simulating %s failed", name, exc_info=True)
        return _failure_of(name, error)
    if result.outcome is RunOutcome.DEADLOCK:
        return Failure(name, FailureKind.NEVER_FINISHES, f"{Code.MGS503.name}: {'; '.join(result.deadlock[:2])}")
    if result.outcome is RunOutcome.CANCELLED:
        return None
    return result if result.outcome is RunOutcome.DONE else Failure(name, FailureKind.TOO_LARGE, result.outcome.value)


def _failure_of(schedule: str, error: Exception) -> Failure:
    """What an exception of a simulation means for the answer."""
    if isinstance(error, RunTooLarge):
        return Failure(schedule, FailureKind.TOO_LARGE, str(error))
    if isinstance(error, ScheduleError):
        return Failure(schedule, FailureKind.ILLEGAL, f"{error.rejection.code.name}: {error}")
    return Failure(schedule, FailureKind.FAULT, f"{type(error).__name__}: {error}")


# In a worker process: can be read once the caller wants no more of its jobs. It is a pipe and no event, whose lock a
# worker that is killed might take along.
_stop: Connection | None = None


def _remember(stop: Connection) -> None:
    """Prepare a worker: Ctrl-C is for the caller to handle, and a caller that dies takes its workers along."""
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes that are begun in the block do not hear of Ctrl-C, which a terminal sends to all, not even at first."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_in_process(job: SimulationJob) -> Result:
    return run_job(job, _stop.poll if _stop is not None else None)


@contextmanager
def open_workers(count: int, should_stop: ShouldStop | None = None) -> Iterator[Workers]:
    """``count`` processes, or this one alone for a count of one.

    Processes are spawned, not forked: a fork copies the locks of a caller's threads. When the block is left early they
    are told to stop and are waited for, so that none outlives its caller; those that do not hear of it are ended.
    """
    if count <= 1:
        yield Workers(None, should_stop)
        return
    with open_pool(count) as pool:
        yield Workers(pool, should_stop)


@contextmanager
def open_pool(count: int) -> Iterator[ProcessPoolExecutor]:
    """``count`` processes for whatever is submitted, which should be among ``deaf_children``; they end with the block.

    What they are in the middle of may not look up: making machine code, or one long call of numpy.
    """
    context = multiprocessing.get_context("spawn")
    heard, stop = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_remember, initargs=(heard,))
    try:
        yield pool
    finally:
        stop.send_bytes(b"stop")
        # Its own, since nothing that is public ends what runs.
        left = {process.sentinel: process for process in (pool._processes or {}).values()}
        pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + GRACE_S
        while left and (ended := connection.wait(list(left), max(0.0, deadline - time.monotonic()))):
            for sentinel in ended:
                del left[sentinel]  # type: ignore[arg-type]
        for process in left.values():
            process.terminate()
        pool.shutdown(wait=True)
        heard.close()
        stop.close()
