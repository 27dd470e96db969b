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

from . import language, screen_times
from .report import Figure, main
from .timeline_frames import frames_ms

SIZE = (120, 40)
KEYS = ("j", "k", "2", "1", "5", "6", "1", "j", "s")
PAUSE_S = 0.05
INTERVALS = 100_000
TARGET_MS = 50.0


def key_waits_ms(example: str) -> list[float]:
    """Wall time in ms from each key to the screen that shows it, while the advice on ``example`` is simulated.

    Panes that show a candidate have one: keys begin with the first answer.
    """
    return asyncio.run(_key_waits_ms(example))


async def _key_waits_ms(example: str) -> list[float]:
    waits: list[float] = []
    app = MagusApp(path(example))
    async with app.run_test(size=SIZE) as pilot:
        while app.session.job is None or app.session.job.advice is None:
            await pilot.pause(PAUSE_S)
        number = 0
        while app.session.job.advising:
            begin = time.perf_counter()
            await pilot.press(KEYS[number % len(KEYS)])
            waits.append((time.perf_counter() - begin) * 1e3)
            number += 1
            await asyncio.sleep(PAUSE_S)
    return waits


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
