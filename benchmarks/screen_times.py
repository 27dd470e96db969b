"""How long a user waits at the screen: for the first paint, and for the answer to another value.

    python -m benchmarks.screen_times

The first paint is timed in a process of its own behind a pseudo-terminal of 80 columns and 24 rows: until the first
sign of life, until the frame of the workbench, whose keys answer, and until the file is read. The answer to another
value is timed in this process, warm, as on a screen that is open: from the changed value to the first answer, to the
one in which the recommended schedule and the baseline are simulated, and to the final one. Nothing is kept on disk.
"""

import fcntl
import os
import pty
import select
import signal
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

from .harness.checkouts import environment
from .harness.report import Figure, main

EXAMPLE = "llama70b_tp8_mi300x"
# What the terminal has seen by then.
ENTERS, FRAME, READ = b"\x1b[?1049h", b"Candidates", b"Does overlap pay?"
PAINTS = 5
PATIENCE_S, WORKERS = 60.0, 2
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
    while (now_s := time.perf_counter() - begin) < PATIENCE_S:
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


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    file = path(EXAMPLE)
    first_paint([str(file)])  # it may have to write bytecode
    paints = [first_paint([str(file)]) for _ in range(PAINTS)]
    yield Figure("first sign of life of magus tui", median(each.first_s for each in paints), "s", "lower")
    yield Figure(
        "frame of the workbench, whose keys answer", median(each.frame_s for each in paints), "s", "lower", 1.0
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


if __name__ == "__main__":
    sys.exit(main("Waiting at the screen", measure))
