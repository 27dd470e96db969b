"""Failures on the way to an answer: what failed, why, and the sentences that tell it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from ..compiler.planning.build import ScheduleError
from ..simcore import RunTooLarge


class FailureKind(Enum):
    """Why there is no result; the value says it in a few words."""

    STAGE = "failed and was left out"
    TOO_LARGE = "too large to simulate"
    ILLEGAL = "not carried out"
    NEVER_FINISHES = "never finishes"
    FAULT = "a fault of Magus"


@dataclass(frozen=True, slots=True)
class Failure:
    """A stage, or the simulation of a schedule, without a result; ``subject`` is the name of either."""

    subject: str
    kind: FailureKind
    reason: str


def failed_stage(name: str, error: Exception) -> Failure:
    """The failure of a stage of advice."""
    kind, reason = _classified(error)
    blame = f" ({kind.value}, not of your file)" if kind is FailureKind.FAULT else ""
    return Failure(name, FailureKind.STAGE, f"{reason}{blame}")


def failed_simulation(schedule: str, error: Exception) -> Failure:
    """The failure of a simulation of ``schedule``."""
    return Failure(schedule, *_classified(error))


def _classified(error: Exception) -> tuple[FailureKind, str]:
    """The kind of an exception, and its text with the code of a diagnostic where it has one."""
    if isinstance(error, RunTooLarge):
        return FailureKind.TOO_LARGE, f"MGS406: {error}"
    if isinstance(error, MemoryError):
        return FailureKind.TOO_LARGE, f"MGS406: memory ran out{f': {error}' if str(error) else ''}"
    if isinstance(error, ScheduleError):
        return FailureKind.ILLEGAL, f"{error.rejection.code.name}: {error}"
    return FailureKind.FAULT, f"{type(error).__name__}: {error}"


def failure_sentences(failures: Sequence[Failure]) -> Iterator[str]:
    """Yield a sentence for each stage, then one for each kind of failed simulation, with the first as the example."""
    kinds = list(FailureKind)
    ordered = sorted(dict.fromkeys(failures), key=lambda failure: kinds.index(failure.kind))
    for kind, group in groupby(ordered, key=lambda failure: failure.kind):
        if kind is FailureKind.STAGE:
            yield from (f"{failure.subject} {kind.value}: {failure.reason}" for failure in group)
            continue
        first, *others = group
        more = f", and {len(others)} more" if others else ""
        yield f"{kind.value}: {first.subject}{more}: {first.reason}"
