"""Driving the terminal UI: wait for what is going on, and read the screen."""

import asyncio
from collections.abc import Callable

from textual.app import App
from textual.pilot import Pilot
from textual.worker import WorkerState

SMALL, LARGE = (80, 24), (160, 45)
POLL_S, POLLS = 0.01, 3000
UNDER_WAY = (WorkerState.PENDING, WorkerState.RUNNING)


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
