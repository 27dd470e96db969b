"""Waiting at the terminal: the first paint, keys while a simulation runs, large timelines, other values, an editor.

The first paint is timed in a process of its own behind a pseudo-terminal of 80 columns and 24 rows: until the first
sign of life, until the frame of the workbench, whose keys answer, and until the file is read. The answer to another
value is timed in this process, warm, as on a screen that is open: from the changed value to the first answer, to the
one in which the recommended schedule and the baseline are simulated, and to the final one. Nothing is kept on disk.
"""

import asyncio
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from magus.advisor import Advice, AdviceOptions, Advisor
from magus.compiler.changed import Changes, compile_changed_file
from magus.examples import path
from magus.tui.app.app import MagusApp
from magus.tui.app.panes.candidates import CandidatesPane

from . import language
from .harness.checkouts import environment
from .harness.report import Figure, main
from .harness.timeline_frames import frames_ms

EXAMPLE = "llama70b_tp8_mi300x"
# What the terminal has seen by then.
ENTERS, FRAME, READ = b"\x1b[?1049h", b"Candidates", b"Does overlap pay?"
PAINTS = 5
PAINT_PATIENCE_S, WORKERS = 60.0, 2
CHANGES = (Changes((("M", "4096"),)), Changes((), (("xgmi.achieved", "40 GB/s"),)))


@dataclass(frozen=True, slots=True)
class Paint:
    """Seconds from the start of the process to the first sign of life, the frame of the workbench, and the question."""

    first_s: float
    frame_s: float
    read_s: float


@dataclass(frozen=True, slots=True)
class Answered:
    """Seconds from a changed value to the first answer, to the first that is simulated, and to the final one."""

    first_s: float
    confirmed_s: float
    final_s: float


def first_paint(arguments: Sequence[str]) -> Paint:
    """Run ``magus tui`` with ``arguments`` behind a pseudo-terminal and time what appears.

    Raises
    ------
    TimeoutError
        If the workbench does not appear.
    """
    with TemporaryDirectory() as folder:
        variables = {"TERM": "xterm-256color", "MAGUS_STATE_DIR": folder, "MAGUS_NO_CACHE": "1"}
        variables = {**environment(*map(Path, filter(None, sys.path))), **variables}
        begin = time.perf_counter()
        process, terminal = pty.fork()
        if process == 0:
            os.execve(sys.executable, [sys.executable, "-m", "magus.tui.cli", "tui", *arguments], variables)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        try:
            return _painted(terminal, begin)
        finally:
            os.kill(process, signal.SIGTERM)
            with suppress(OSError):  # read until the process has closed its end
                while os.read(terminal, 1 << 16):
                    pass
            os.waitpid(process, 0)
            os.close(terminal)


def _painted(terminal: int, begin: float) -> Paint:
    seen, found = b"", dict[bytes, float]()
    while (now_s := time.perf_counter() - begin) < PAINT_PATIENCE_S:
        if select.select([terminal], [], [], 0.01)[0]:
            seen += os.read(terminal, 1 << 16)
            now_s = time.perf_counter() - begin
        for mark in (ENTERS, FRAME, READ):
            if mark in seen:
                found.setdefault(mark, now_s)
        if len(found) == 3:
            return Paint(found[ENTERS], found[FRAME], found[READ])
    raise TimeoutError("the workbench did not appear")


def answered(advisor: Advisor, file: Path, changes: Changes) -> Answered:
    """Answer the question of ``file`` with other values, and time what a screen would show when."""
    begin = time.perf_counter()
    seconds: dict[bool, float] = {}

    def reported(advice: Advice) -> None:
        simulated = advice.recommended.simulated_ticks is not None and advice.serial.simulated_ticks is not None
        seconds.setdefault(simulated, time.perf_counter() - begin)

    scenario = compile_changed_file(file, changes).scenario()
    advisor.recommend(scenario, AdviceOptions(workers=WORKERS), answered=reported)
    final_s = time.perf_counter() - begin
    return Answered(min(seconds.values(), default=final_s), seconds.get(True, final_s), final_s)


def _screen_figures() -> Iterator[Figure]:
    file = path(EXAMPLE)
    first_paint([str(file)])  # it may have to write bytecode
    paints = [first_paint([str(file)]) for _ in range(PAINTS)]
    yield Figure("first sign of life of magus tui", median(each.first_s for each in paints), "s", "lower")
    yield Figure(
        "frame of the workbench, whose keys answer",
        median(each.frame_s for each in paints),
        "s",
        "lower",
        1.0,
    )
    yield Figure("file read, and its question on the screen", median(each.read_s for each in paints), "s", "lower")
    advisor = Advisor.load()  # as the screen does, once
    answered(advisor, file, Changes())
    for changes in CHANGES:
        (name, value), *_ = (*changes.params, *changes.numbers)
        found = answered(advisor, file, changes)
        yield Figure(f"{name} = {value}: first answer", found.first_s, "s", "lower", 1.0)
        yield Figure(f"{name} = {value}: simulated answer", found.confirmed_s, "s", "lower", 3.0)
        yield Figure(f"{name} = {value}: final answer", found.final_s, "s", "lower")


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
    yield from _screen_figures()
    waits = key_waits_ms(EXAMPLE)
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
