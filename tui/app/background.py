"""Blocking work in threads, so that the screen stays responsive."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from threading import Event, Thread
from typing import TypeVar

from ...compiler.ir import ShouldStop

T = TypeVar("T")


async def in_thread(function: Callable[[ShouldStop], T]) -> T:
    """Await ``function`` in a thread of its own; when the awaiting task is cancelled, the function is told to stop.

    The thread is a daemon and nothing waits for it. A thread of the event loop's pool would hold up the end of the
    program until it returns, and a solver or an import seldom looks at ``should_stop``.
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

    Thread(target=body, daemon=True, name=f"magus {getattr(function, '__name__', 'work')}").start()
    try:
        return await future
    finally:
        stop.set()


def start_resource_tracker() -> None:
    """Start the resource tracker of multiprocessing while stderr, which it inherits, is still the real one."""
    if os.name == "posix":
        resource_tracker.ensure_running()
