"""Progress on stderr: one line that is rewritten where a person watches, else a line every few seconds.

A log, a pipe and a dumb terminal cannot take a line back, but whoever reads them wants to know that something goes on.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic

from .door import is_rich, say, say_raw
from .wrap import columns

WORDS = {
    "enumerate": "enumerating schedules",
    "rank": "ranking {total} schedules",
    "simulate": "simulating the shortlist {done}/{total}",
    "bespoke": "searching for chunks of other sizes, simulation {done}/{total}",
    "run": "simulating, {done:,} line-hops so far",
    "confirm": "confirming line by line {done}/{total}",
    "dataset": "simulating scenarios {done}/{total}",
    "fit": "fitting the ranker",
    "compare": "comparing with the tables",
    "calibrate": "fitting constants, part {done} of {total}",
    "sample": "simulating a sample {done}/{total}",
}
CLEAR = "\r\x1b[K"
EVERY_S = 5.0
"""Seconds from line to line where lines stay."""


@dataclass(frozen=True, slots=True)
class ProgressState:
    """How far a stage is: ``done`` of ``total``, since it began with ``first`` done at ``since_s``."""

    stage: str
    done: int
    total: int
    first: int
    since_s: float

    def moved(self, stage: str, done: int, total: int, now_s: float) -> "ProgressState":
        """The standing after a report; another stage begins anew."""
        if (stage, total) != (self.stage, self.total):
            return ProgressState(stage, done, total, done, now_s)
        return ProgressState(stage, done, total, self.first, self.since_s)

    def left_s(self, now_s: float) -> float | None:
        """Seconds to the end of the stage at the pace so far; None where it cannot be told yet."""
        made, took = self.done - self.first, now_s - self.since_s
        if made <= 0 or took <= 0 or self.total <= 1 or self.done > self.total:
            return None
        return took * (self.total - self.done) / made

    def text(self, now_s: float) -> str:
        """In words, with the time left."""
        left = self.left_s(now_s)
        words = WORDS.get(self.stage, self.stage).format(done=self.done, total=self.total)
        return f"{words} ..." + (f" about {spelled(left)} left" if left is not None and left >= 1 else "")


def spelled(seconds: float) -> str:
    """A time as people say it, rounded to its unit."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def progress_line(clock: Callable[[], float] = monotonic) -> Iterator[Callable[[str, int, int], None]]:
    """A callback that takes a stage, what is done of it and the total; the rewritten line is gone at the end."""
    rewrites, begun_s = is_rich(sys.stderr), clock()
    standing, ended = ProgressState("", 0, 0, 0, begun_s), Event()

    def report(stage: str, done: int, total: int) -> None:
        nonlocal standing
        standing = standing.moved(stage, done, total, clock())
        if rewrites:
            say_raw(CLEAR + standing.text(clock())[: columns() - 1])

    def speak() -> None:
        while not ended.wait(EVERY_S):
            if standing.stage:
                say(f"{standing.text(clock())} ({spelled(clock() - begun_s)} so far)")

    speaker = None if rewrites else Thread(target=speak, daemon=True, name="magus progress")
    if speaker is not None:
        speaker.start()
    try:
        yield report
    finally:
        ended.set()
        if speaker is not None:
            speaker.join()
        else:
            say_raw(CLEAR)
