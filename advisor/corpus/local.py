"""A corpus on this machine: searches in processes."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from ...compiler.ir import ShouldStop
from ..pools import open_processes
from ..processes import ProcessDied
from .attempt import Attempt, Backend, Task, failed_for

Item = TypeVar("Item")
Found = TypeVar("Found")

DIED = "its process died, perhaps for want of memory"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS")
"""How many threads the libraries of a process have, read when they are imported."""


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
