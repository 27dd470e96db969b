"""One search of a corpus: what a worker does, and what it gives back; and what a backend is."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from time import perf_counter

from ..failures import Failure, FailureKind, failed_simulation
from .families import Drawn, draw
from .keys import key_of
from .record import Record

OTHER_VERSION = "its worker has another version of Magus"

Make = Callable[[Drawn], Record]
"""Searches a scenario: ``record_of``."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The record of scenario ``idx`` with its key, or why there is none."""

    idx: int
    found: Record | Failure
    key: str = ""
    seconds: float = 0.0


Task = Callable[[int], Attempt]
"""Makes the attempt at the scenario of an index; can be sent to other processes."""

Backend = Callable[[Task, Sequence[int]], Generator[Attempt, None, None]]
"""Does a task for each index somewhere and yields attempts as they end, in any order; closed, it ends what it began."""


def attempt(make: Make, seed: int, idx: int) -> Attempt:
    """Search scenario ``idx`` of a seed in this process; a failure is a result, so that the others go on."""
    started = perf_counter()
    try:
        drawn = draw(seed, idx)
        return Attempt(idx, make(drawn), key_of(drawn), perf_counter() - started)
    except Exception as error:
        return Attempt(idx, failed_simulation(scenario_name(idx), error))


def failed_for(idx: int, reason: str) -> Failure:
    """Return the failure of a scenario for a reason that is not in the scenario, such as a process that died."""
    return Failure(scenario_name(idx), FailureKind.ILLEGAL, reason)


def scenario_name(idx: int) -> str:
    """Return the name of a scenario in messages."""
    return f"scenario {idx}"
