"""Options of ``magus simulate``, and how its runs stop and end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...compiler.ir import Cancelled, Scenario, ShouldStop
from ...simcore import Result, RunOutcome
from ..exit_codes import Exit
from ..text.door import say
from .interrupts import interruptible
from .out import NO_PICTURES, Pictures


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """Options of ``magus simulate``.

    ``schedule`` None is the first that the file declares, else serial. ``at_line`` simulates cache lines, else packets;
    ``fold`` simulates one rank for all that are alike. ``num_seeds`` adds percentiles over so many seeds from ``seed``
    on, in packets. ``record`` is the file for the writes to rank 0, and ``pictures`` those that show the run.
    ``given`` has ``--granularity`` if that was said.
    """

    schedule: str | None = None
    at_line: bool = True
    fold: bool = True
    seed: int | None = None
    num_seeds: int = 0
    record: Path | None = None
    pictures: Pictures = NO_PICTURES
    strict: bool = False
    as_json: bool = False
    given: frozenset[str] = frozenset()

    def seeds(self, scenario: Scenario) -> range:
        """The seeds to take percentiles over: as asked for, else those that the law of its routing names."""
        return seeds_of(scenario, self.num_seeds, self.seed or 0)


def seeds_of(scenario: Scenario, asked: int, first: int = 0) -> range:
    """So many seeds as were ``asked`` for; with 0 those that the file says for its routing, if there are several."""
    law = scenario.drawn
    if asked or law is None or law.draws == 1:
        return range(first, first + asked)
    return range(law.seed, law.seed + law.draws)


@contextmanager
def stoppable() -> Iterator[ShouldStop]:
    """Ctrl-C asks the run to stop; before there is anything to show it interrupts as usual."""
    try:
        with interruptible() as pressed:
            yield pressed
    except Cancelled:
        raise KeyboardInterrupt from None


def explain_outcome(result: Result) -> Exit:
    """Say why a run did not end."""
    say(f"magus: {result.outcome.value}")
    for sentence in result.deadlock:
        say(f"  {sentence}")
    if result.outcome is RunOutcome.CANCELLED:
        raise KeyboardInterrupt
    return Exit.INPUT
