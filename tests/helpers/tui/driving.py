"""Driving the terminal UI: wait for what is going on, read the screen, compare it with a golden file."""

import asyncio
import os
from collections.abc import Callable

from textual.app import App
from textual.pilot import Pilot
from textual.worker import WorkerState

from tests.helpers.paths import TESTS

GOLDEN = TESTS / "tui" / "golden"
UPDATE = "MAGUS_UPDATE_GOLDEN"
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


def check_golden(app: object, name: str) -> None:
    """Compare the screen with ``golden/NAME.txt``; with MAGUS_UPDATE_GOLDEN=1 write it instead."""
    # Without the last line: versions of Textual space the keys differently.
    path, found = GOLDEN / f"{name}.txt", "".join(screen_text(app).splitlines(keepends=True)[:-1])
    if os.environ.get(UPDATE):
        path.write_text(found, encoding="utf-8")
    wanted = path.read_text(encoding="utf-8")
    assert found == wanted, f"{name} changed; if it should, set {UPDATE}=1. It is now:\n{found}"
