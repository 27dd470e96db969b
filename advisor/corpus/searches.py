"""Searches of a corpus: what one gives back, what a backend is, and the backend of processes of this machine."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TypeVar

from ...compiler.ir import ShouldStop
from ..failures import Failure, FailureKind, failed_simulation
from ..pools import open_processes
from ..processes import ProcessDied
from .families import Drawn, draw
from .keys import key_of
from .record import Record

Item = TypeVar("Item")
Found = TypeVar("Found")

OTHER_VERSION = "its worker has another version of Magus"
DIED = "its process died, perhaps for want of memory"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS")
"""How many threads the libraries of a process have, read when they are imported."""

Make = Callable[[Drawn], Record]
"""Searches a scenario: ``record_of``."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The record of scenario ``idx`` with its key, or why there is none."""

    idx: int
    found: Record | Failure
    key: str = ""
    seconds: float = 0.0


Task = Callable[[int], Attempt]
"""Makes the attempt at the scenario of an index; can be sent to other processes."""

Backend = Callable[[Task, Sequence[int]], Generator[Attempt, None, None]]
"""Does a task for each index somewhere and yields attempts as they end, in any order; closed, it ends what it began."""


def attempt(make: Make, seed: int, idx: int) -> Attempt:
    """Search scenario ``idx`` of a seed in this process; a failure is a result, so that the others go on."""
    started = perf_counter()
    try:
        drawn = draw(seed, idx)
        return Attempt(idx, make(drawn), key_of(drawn), perf_counter() - started)
    except Exception as error:
        return Attempt(idx, failed_simulation(scenario_name(idx), error))


def failed_for(idx: int, reason: str) -> Failure:
    """Return the failure of a scenario for a reason that is not in the scenario, such as a process that died."""
    return Failure(scenario_name(idx), FailureKind.ILLEGAL, reason)


def scenario_name(idx: int) -> str:
    """Return the name of a scenario in messages."""
    return f"scenario {idx}"


def on_this_machine(workers: int) -> Backend:
    """Return the backend of ``workers`` processes, of one thread each; one worker is this process."""
    return partial(_run, workers)


def _run(workers: int, task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
    yield from _results(workers, task, indices, lambda idx: Attempt(idx, failed_for(idx, DIED)))


def results_here(workers: int, task: Callable[[Item], Found], items: Sequence[Item]) -> Generator[Found, None, None]:
    """Yield the results of ``task`` for all ``items`` from ``workers`` processes, in the order in which they end.

    Raises
    ------
    ProcessDied
        If a process ends before it has a result.
    """
    yield from _results(workers, task, items)


def _results(
    workers: int, task: Callable[[Item], Found], items: Iterable[Item], died: Callable[[Item], Found] | None = None
) -> Generator[Found, None, None]:
    """Do a task for each item side by side; one whose process dies has the result ``died``. Closed, it ends all."""
    if workers == 1:
        yield from map(task, items)
        return
    with _one_thread_each(), open_processes(workers) as submit:
        begun = {submit(partial(_done, task), item): item for item in items}
        for future in as_completed(begun):
            try:
                found = future.result()
            except ProcessDied:
                if died is None:
                    raise
                found = died(begun[future])
            yield found


def _done(task: Callable[[Item], Found], item: Item, _: ShouldStop) -> Found:
    """In a process, which is ended where it is no longer wanted."""
    return task(item)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Have libraries of the processes that are spawned in the block use one thread each; those here have theirs."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
