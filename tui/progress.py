"""One line of progress on stderr, only where a person watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .door import say_raw

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


@contextmanager
def progress_line() -> Iterator[Callable[[str, int, int], None]]:
    """A callback that rewrites one line; silent if stderr is not a terminal, and gone at the end."""
    shown = sys.stderr.isatty()

    def report(stage: str, done: int, total: int) -> None:
        if shown:
            text = WORDS.get(stage, stage).format(done=done, total=total)
            say_raw(f"{CLEAR}{text} ...")

    try:
        yield report
    finally:
        if shown:
            say_raw(CLEAR)
