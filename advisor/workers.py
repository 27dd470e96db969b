"""Simulations side by side in processes; the results do not depend on how many there are."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.synchronize import Event
from threading import Thread

from ..compiler.codes import Code
from ..compiler.plan import ScheduleError
from ..compiler.scenario import Scenario
from ..compiler.schedule import Schedule
from ..simcore import Outcome, Result, simulate

# How often a waiting caller looks whether it should stop.
POLL_S = 0.2


class Cancelled(Exception):
    """The caller asked to stop; what was found before is lost with it."""


@dataclass(frozen=True, slots=True)
class Job:
    """One simulation; fields as the arguments of ``simulate``."""

    scenario: Scenario
    schedule: Schedule
    unit_bytes: int
    bound_ticks: int | None = None
    explain_bytes: int | None = None


def run_job(job: Job, should_stop: Callable[[], bool] | None = None) -> Result:
    """Run one job here."""
    return simulate(
        job.scenario,
        job.schedule,
        unit_bytes=job.unit_bytes,
        bound_ticks=job.bound_ticks,
        explain_bytes=job.explain_bytes,
        should_stop=should_stop,
    )


class Workers:
    """Runs jobs, in this process if there is no pool."""

    def __init__(self, pool: ProcessPoolExecutor | None, should_stop: Callable[[], bool] | None) -> None:
        self._pool = pool
        self._should_stop = should_stop or (lambda: False)

    def run(self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None) -> list[Result]:
        """Results in the order of ``jobs``.

        Raises
        ------
        Cancelled
            If the caller asked to stop.
        """
        report = progress or (lambda _: None)
        if self._pool is None:
            return self._run_here(jobs, report)
        futures = [self._pool.submit(_run_in_process, job) for job in jobs]
        pending: set[Future[Result]] = set(futures)
        while pending:
            _, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
            report(len(futures) - len(pending))
            if self._should_stop():
                raise Cancelled
        return [_finished(future.result()) for future in futures]

    def _run_here(self, jobs: Sequence[Job], report: Callable[[int], None]) -> list[Result]:
        results = []
        for job in jobs:
            results.append(run_job(job, self._should_stop))
            if self._should_stop():
                raise Cancelled
            report(len(results))
        return [_finished(result) for result in results]


def _finished(result: Result) -> Result:
    """A run that stopped early looks fast, so it must not be compared with others."""
    if result.outcome is Outcome.CANCELLED:
        raise Cancelled
    if result.outcome is Outcome.DEADLOCK:
        why = "; ".join(result.deadlock[:2])
        message = f"{result.schedule.expression} never finishes: {why}"
        raise ScheduleError(Code.MGS503, message, "copies that share the SMs of a persistent kernel may get none")
    if result.outcome is not Outcome.DONE:
        raise RuntimeError(f"{result.schedule.expression}: {result.outcome.value}")
    return result


# In a worker process: set when the caller wants no more of its jobs.
_stop: Event | None = None


def _remember(stop: Event) -> None:
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


def _run_in_process(job: Job) -> Result:
    return run_job(job, _stop.is_set if _stop is not None else None)


@contextmanager
def open_workers(count: int, should_stop: Callable[[], bool] | None = None) -> Iterator[Workers]:
    """``count`` processes, or this one alone for a count of one.

    Processes are spawned, not forked: a fork copies the locks of a caller's threads. When the block is left early they
    are told to stop and are waited for, so that none outlives its caller.
    """
    if count <= 1:
        yield Workers(None, should_stop)
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_remember, initargs=(stop,))
    try:
        yield Workers(pool, should_stop)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
