"""A corpus on this machine: searches in processes, by joblib."""

import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from threading import Thread
from typing import TypeVar

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError

from ..pools import interrupts_blocked_in_children
from .attempt import Attempt, Backend, Task, failed_for

Item = TypeVar("Item")
Found = TypeVar("Found")

WATCH_S = 1.0
"""Seconds between two looks whether the parent is alive."""
DIED = "its process died, perhaps for want of memory"


def on_this_machine(workers: int) -> Backend:
    """Return the backend of ``workers`` processes, of one thread each; one worker is this process."""
    return partial(_run, workers)


def results_here(workers: int, task: Callable[[Item], Found], items: Sequence[Item]) -> Generator[Found, None, None]:
    """Yield the results of ``task`` for all ``items`` from ``workers`` processes, in the order in which they end."""
    yield from _together(workers, task, iter(items), ahead=4 * workers)


def _run(workers: int, task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
    """Search ``indices``; if a process dies, go on with what it did not take, then try what it took one by one."""
    waiting, suspects = list(reversed(indices)), list[int]()
    while waiting:
        begun = dict[int, None]()
        try:
            for found in _together(workers, task, _taken(waiting, begun), ahead=2 * workers):
                del begun[found.idx]
                yield found
        except TerminatedWorkerError:
            suspects.extend(begun)
    for idx in suspects:
        try:
            yield from _together(workers, task, iter((idx,)), ahead=1)
        except TerminatedWorkerError:
            yield Attempt(idx, failed_for(idx, DIED))


def _taken(waiting: list[int], begun: dict[int, None]) -> Iterator[int]:
    """Yield what is waiting, from the end on, and note what is begun."""
    while waiting:
        idx = waiting.pop()
        begun[idx] = None
        yield idx


def _together(
    workers: int, task: Callable[[Item], Found], items: Iterator[Item], ahead: int
) -> Generator[Found, None, None]:
    """Do a task side by side, with at most ``ahead`` begun at a time; when closed, the processes are ended."""
    config = parallel_config(
        backend="loky", n_jobs=workers, inner_max_num_threads=1, initializer=_start_worker, initargs=(os.getpid(),)
    )
    with config, interrupts_blocked_in_children():
        parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=ahead)
        found = parallel(delayed(task)(item) for item in items)
    yield from found


def _start_worker(parent: int) -> None:
    """Initialize a process: the caller handles Ctrl-C, and the process ends when the caller dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "fork"):  # elsewhere the number of the parent stays when it dies
        Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os._exit(1)
