"""Blocking work in threads, so that the screen stays responsive."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # the first frame waits for no import but those of its own
    from ...compiler.ir import ShouldStop

T = TypeVar("T")

GRACE_S = 2.0
"""Seconds for which the end of the program waits; a simulation looks whether to stop many times a second."""

_started: list[Thread] = []


async def in_thread(function: "Callable[[ShouldStop], T]") -> T:
    """Await ``function`` in a thread of its own; cancelling the awaiting task asks the function to stop.

    The thread is a daemon, for which the end of the program waits a moment alone (``wait_for_threads``). A thread of
    the event loop's pool would hold it up until it returns, and a solver or an import seldom looks at ``should_stop``.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    stop = Event()

    def settle(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type]

    def body() -> None:
        try:
            value, error = function(stop.is_set), None
        except BaseException as raised:
            value, error = None, raised
        with suppress(RuntimeError):  # the loop is closed: the program has ended
            loop.call_soon_threadsafe(settle, value, error)

    thread = Thread(target=body, daemon=True, name=f"magus {getattr(function, '__name__', 'work')}")
    _started.append(thread)
    thread.start()
    try:
        return await future
    finally:
        stop.set()


def wait_for_threads() -> None:
    """Wait until the threads that were told to stop have ended, or for ``GRACE_S``.

    A simulation runs without Python's lock. If it asked for that while the interpreter ends, the program would abort.
    """
    deadline = time.monotonic() + GRACE_S
    for thread in _started:
        thread.join(max(0.0, deadline - time.monotonic()))


def start_resource_tracker() -> None:
    """Start the resource tracker of multiprocessing while stderr, which it inherits, is still the real one."""
    if os.name == "posix":
        resource_tracker.ensure_running()
