"""Waiting at the terminal: the first paint, keys while a simulation runs, large timelines, other values, an editor.

python -m benchmarks.tui
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator

from magus.examples import path
from magus.tui.app.app import MagusApp
from magus.tui.app.panes.candidates import CandidatesPane

from . import language, screen_times
from .harness.report import Figure, main
from .harness.timeline_frames import frames_ms

SIZE = (120, 40)
PAUSE_S, PATIENCE_S = 0.05, 10.0
INTERVALS = 100_000
TARGET_MS = 50.0


def key_waits_ms(example: str) -> list[float]:
    """Wall time in ms from a key that moves the cursor to the frame that shows it, while ``example`` is simulated.

    Keys begin with the first answer, which has candidates to move through.
    """
    return asyncio.run(_key_waits_ms(example))


async def _key_waits_ms(example: str) -> list[float]:
    waits: list[float] = []
    app = MagusApp(path(example))
    async with app.run_test(size=SIZE) as pilot:
        while app.session.job is None or app.session.job.found is None:
            await pilot.pause(PAUSE_S)
        while app.session.job.advising:
            wait_ms = await _key_wait_ms(app)
            waits += [] if wait_ms is None else [wait_ms]
            await asyncio.sleep(PAUSE_S)
    return waits


async def _key_wait_ms(app: MagusApp) -> float | None:
    """None if candidates that were ranked anew have put the cursor back meanwhile."""
    table, drawn = app.bench.view_of(CandidatesPane).target, asyncio.Event()
    before, begin = table.cursor_row, time.perf_counter()
    app.simulate_key("k" if before else "j")
    while table.cursor_row == before:
        await asyncio.sleep(0)
        if time.perf_counter() - begin > PATIENCE_S:
            return None
    table.call_after_refresh(drawn.set)
    await drawn.wait()
    return (time.perf_counter() - begin) * 1e3


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    yield from screen_times.measure()
    waits = key_waits_ms(screen_times.EXAMPLE)
    yield Figure("key while a simulation runs, median", statistics.median(waits), "ms", "lower", TARGET_MS)
    yield Figure("key while a simulation runs, 95 % quantile", statistics.quantiles(waits, n=20)[-1], "ms", "lower")
    yield Figure("keys pressed meanwhile", len(waits), "keys", "higher")
    for name, frames in frames_ms(INTERVALS).items():
        what = f"frame of {INTERVALS:,} intervals, {name}"
        yield Figure(f"{what}, median", statistics.median(frames), "ms", "lower", TARGET_MS)
        yield Figure(f"{what}, longest", max(frames), "ms", "lower")
    yield from language.measure()


if __name__ == "__main__":
    sys.exit(main("The terminal UI", measure))
