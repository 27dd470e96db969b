"""Driving the terminal UI: wait for what is going on, and read the screen."""

import asyncio
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.pilot import Pilot
from textual.worker import WorkerState

SMALL, LARGE = (80, 24), (160, 45)
POLL_S, POLLS = 0.01, 3000
UNDER_WAY = (WorkerState.PENDING, WorkerState.RUNNING)
SOON_S = 0.02
"""What a timer starts within this time belongs to what is going on: a screen that changed is drawn within 17 ms."""
GUARD_S = 30.0
QUIET = 3
"""Turns of the loop with nothing to do, after which nothing is going on."""


async def idle(min_sleep: float = 0, max_sleep: float = GUARD_S) -> None:
    """Wait until the loop has nothing to do, nor by a timer that is due soon; ``max_sleep`` seconds at most.

    It stands in for Textual's, which sleeps for 20 ms and then looks whether the process has worked meanwhile.
    """
    loop: Any = asyncio.get_running_loop()
    begin, quiet = loop.time(), 0
    while quiet < QUIET and loop.time() < begin + max_sleep:
        due = [timer.when() for timer in loop._scheduled if not timer.cancelled() and timer.when() <= begin + SOON_S]
        await asyncio.sleep(max(0.0, min(due) - loop.time()) if due and not loop._ready else 0)
        quiet = 0 if due or loop._ready else quiet + 1


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the app go on until ``condition`` holds."""
    for _ in range(POLLS):
        await pilot.pause()
        if condition():
            return
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"it never came to that; the screen:\n{screen_text(pilot.app)}")


async def settled(pilot: Pilot[None]) -> None:
    """Let the app go on until nothing runs and every message is handled."""
    for _ in range(2):
        await until(pilot, lambda: not any(worker.state in UNDER_WAY for worker in pilot.app.workers))
    await pilot.pause()


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys and let everything happen that follows."""
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


def screen_text(app: object) -> str:
    """The screen as lines of text."""
    assert isinstance(app, App)
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"
