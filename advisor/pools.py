"""Processes for work beside the caller: how they begin, hear of a stop, and end."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing import connection
from multiprocessing.connection import Connection
from threading import Thread
from typing import TypeVar

from ..compiler.ir import Cancelled, ShouldStop
from ..simcore.memo.memo import current_store, use
from ..simcore.memo.store import Store

# Seconds between two checks whether to stop; seconds that the processes have to end by themselves, and to be gone then.
POLL_S, GRACE_S, GONE_S = 0.2, 0.5, 5.0

T = TypeVar("T")

# In a worker process: readable once the caller wants no more results. A pipe, not an event: a worker that is killed
# might keep the lock of an event.
_stop: Connection | None = None


def _start_worker(stop: Connection, store: Store | None) -> None:
    """Initialize a worker: the caller handles Ctrl-C, the worker ends when the caller dies, and both use one store."""
    global _stop
    _stop = stop
    use(store)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """End this process when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def interrupts_blocked_in_children() -> Iterator[None]:
    """Block Ctrl-C, which a terminal sends to all processes, in the processes that are started in the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stopped_here() -> bool:
    """Whether this is a worker process whose caller wants no more results."""
    return _stop is not None and _stop.poll()


_forks: ContextVar[bool] = ContextVar("forks", default=False)


@contextmanager
def forking() -> Iterator[None]:
    """Fork the processes that this thread opens in the block, on Linux; elsewhere system libraries may not survive it.

    For programs that know their threads: a fork copies locks as they are, and nobody is left who opens them.
    """
    before = _forks.set(sys.platform == "linux")
    try:
        yield
    finally:
        _forks.reset(before)


def forks() -> bool:
    """Whether this thread forks the processes that it opens."""
    return _forks.get()


@contextmanager
def open_pool(count: int) -> Iterator[ProcessPoolExecutor]:
    """Open ``count`` processes that end with the block; submit under ``interrupts_blocked_in_children``.

    A process may not react to the stop at once: while it compiles machine code, or in one long call of numpy.
    """
    context = multiprocessing.get_context("fork" if forks() else "spawn")
    stop_receiver, stop_sender = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        count, mp_context=context, initializer=_start_worker, initargs=(stop_receiver, current_store())
    )
    try:
        yield pool
    finally:
        stop_sender.send_bytes(b"stop")
        # Private attributes: the public interface cannot end a running process, and forgets who waits for its end.
        manager = pool._executor_manager_thread
        running = {process.sentinel: process for process in (pool._processes or {}).values()}
        pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + GRACE_S
        while running and (ended := connection.wait(list(running), max(0.0, deadline - time.monotonic()))):
            for sentinel in ended:
                del running[sentinel]  # type: ignore[arg-type]
        for process in running.values():
            process.terminate()
        if manager is not None:
            manager.join(GONE_S)  # type: ignore[attr-defined]  # a thread, whatever the stubs say
        stop_receiver.close()
        stop_sender.close()


def in_worker(function: Callable[..., T], *arguments: object, should_stop: ShouldStop) -> T:
    """Return what ``function`` of the top of a module returns in a process of its own; it asks ``stopped_here``.

    Raises
    ------
    Cancelled
        If ``should_stop`` returned true first.
    BrokenExecutor
        If the process died.
    """
    with open_pool(1) as pool:
        with interrupts_blocked_in_children():
            future = pool.submit(function, *arguments)
        while not should_stop():
            done, _ = wait([future], timeout=POLL_S)
            if done:
                return future.result()
    raise Cancelled
