"""Progress on stderr: one line that is rewritten on a terminal, else a new line every few seconds.

A log, a pipe and a dumb terminal cannot rewrite a line. The first simulation after an installation waits for numba,
which reports nothing: both kinds of lines say so.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Thread
from time import monotonic

from ...compiler.ir import Progress, makes_code
from .door import columns, is_rich, say, say_raw

WORDS = {
    "propose": "proposing schedules",
    "enumerate": "enumerating schedules",
    "rank": "ranking {total} schedules",
    "simulate": "simulating the shortlist {done}/{total}",
    "place": "placing the ops",
    "joint": "simulating joint schedules, {done} so far",
    "joint search": "searching a schedule for all ops together",
    "layers": "simulating all layers {done}/{total}",
    "across": "simulating schedules of other points, {done} so far",
    "offers": "timing what can be switched on",
    "bespoke": "searching for chunks of other sizes, simulation {done}/{total}",
    "run": "simulating, {done:,} line-hops so far",
    "confirm": "confirming line by line {done}/{total}",
    "distill": "estimating shapes {done}/{total}",
    "sweep": "advising, point {done}/{total}",
    "between": "advising, {done} sizes between the points so far",
    "models": "asking about models, {done}/{total} answered",
    "sensitivity": "changing hardware numbers",
    "draws": "drawing the routing",
    "threshold": "looking for the threshold",
    "draw": "drawing scenarios {done}/{total}",
    "corpus": "searching scenarios {done}/{total}{rate}",
    "label": "estimating structures in scenarios {done}/{total}{rate}",
    "evaluate": "evaluating, part {done}/{total}",
    "fit": "fitting the model",
    "compare": "comparing with the tables",
    "calibrate": "fitting constants, part {done} of {total}",
    "layouts that fit": "looking for layouts that fit {done}/{total}",
    "layers ahead": "simulating layers {done}/{total}",
    "layouts": "simulating layouts {done}/{total}",
    "contention": "simulating traffic beside layers {done}/{total}",
    "sample": "simulating a sample {done}/{total}",
}
OF_AN_ANSWER = (
    ("propose", "enumerate", "rank", "simulate", "bespoke", "confirm"),
    ("place", "joint", "joint search", "bespoke", "offers", "layers"),
    ("layouts that fit", "layers ahead", "layouts", "contention"),
)
"""The stages of an answer in their order: of one op, of several, of a step; a later one may report an earlier again."""
COMPILING = "compiling the simulator, once for this installation ..."
CLEAR = "\r\x1b[K"
EVERY_S = 5.0
"""Seconds between lines where a line cannot be rewritten."""
REWRITTEN_EVERY_S = 1.0
"""Seconds after which a line is rewritten while nothing is reported."""


@dataclass(frozen=True, slots=True)
class ProgressState:
    """Progress of a stage: ``done`` of ``total``; it began with ``first`` done at ``since_s``.

    ``stages`` are those of the answer, none outside of answers, and ``number`` of them have begun.
    """

    stage: str
    done: int
    total: int
    first: int
    since_s: float
    stages: tuple[str, ...] = ()
    number: int = 0

    def moved(self, stage: str, done: int, total: int, now_s: float) -> "ProgressState":
        """Return the state after a report; another stage starts a new state."""
        stages = self.stages or next((each for each in OF_AN_ANSWER if stage in each), ())
        number = max(self.number, stages.index(stage) + 1 if stage in stages else 0)
        if (stage, total) != (self.stage, self.total):
            return ProgressState(stage, done, total, done, now_s, stages, number)
        return replace(self, done=done, stages=stages, number=number)

    def per_s(self, now_s: float) -> float | None:
        """Return how many of the stage were done a second so far; None as long as that is unknown."""
        num_done, seconds = self.done - self.first, now_s - self.since_s
        return num_done / seconds if num_done > 0 and seconds > 0 else None

    def left_s(self, now_s: float) -> float | None:
        """Seconds to the end of the stage at the pace so far; None as long as the pace is unknown."""
        pace = self.per_s(now_s)
        if pace is None or self.total <= 1 or self.done > self.total:
            return None
        return (self.total - self.done) / pace

    def text(self, now_s: float) -> str:
        """The progress in words, with the time left."""
        left, pace = self.left_s(now_s), self.per_s(now_s)
        rate = "" if pace is None else f", {60 * pace:.3g} a minute"
        words = WORDS.get(self.stage, self.stage).format(done=self.done, total=self.total, rate=rate)
        words = f"{self.number} of {len(self.stages)}: {words}" if self.number else words
        return f"{words} ..." + (f" about {duration_text(left)} left" if left is not None and left >= 1 else "")


def duration_text(seconds: float) -> str:
    """Return a time of waiting, rounded to hours, minutes or seconds."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def progress_line(clock: Callable[[], float] = monotonic) -> Iterator[Progress]:
    """Yield a callback that takes a stage, the number done and the total; at the end the rewritten line is cleared."""
    rewrites, begun_s = is_rich(sys.stderr), clock()
    state, ended = ProgressState("", 0, 0, 0, begun_s), Event()

    def report(stage: str, done: int, total: int) -> None:
        nonlocal state
        state = state.moved(stage, done, total, clock())
        if rewrites:
            rewrite(state.text(clock()))

    def rewrite(text: str) -> None:
        say_raw(CLEAR + text[: columns() - 1])

    def repeat() -> None:
        while not ended.wait(REWRITTEN_EVERY_S if rewrites else EVERY_S):
            text = COMPILING if makes_code.is_set() else state.text(clock()) if state.stage else ""
            if text and rewrites:
                rewrite(text)
            elif text:
                say(f"{text} ({duration_text(clock() - begun_s)} so far)")

    printer = Thread(target=repeat, daemon=True, name="magus progress")
    printer.start()
    try:
        yield report
    finally:
        ended.set()
        printer.join()
        if rewrites:
            say_raw(CLEAR)
