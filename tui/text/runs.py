"""Schedules carried out with real data, as text and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.ir import Rejection
from ...runtime import RunReport
from .wrap import hanging, wrapped

SCHEMA = "magus-run/1"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Carried:
    """A schedule with the report of its run, or with the reason why there is none."""

    schedule: str
    report: RunReport | None
    rejection: Rejection | None = None

    @property
    def exact(self) -> bool:
        """Whether it was carried out, and right."""
        return self.report is not None and self.report.exact

    @property
    def outcome(self) -> str:
        """What became of it, in a word or two."""
        return REFUSED if self.report is None else self.report.runs[-1].outcome.value

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is wrong, or why it was not carried out."""
        if self.rejection is not None:
            return (f"{self.rejection.code.name}: {self.rejection.message}",)
        return self.report.runs[-1].sentences if self.report is not None else ()


def run_text(carried: Carried, seeds: range) -> str:
    """Return the schedule, and below it what was carried out and what became of it."""
    lines = [*wrapped(carried.schedule), *hanging(_summary(carried, seeds), 4, "  ")]
    return "\n".join([*lines, *(line for sentence in carried.sentences for line in hanging(sentence, 6, "    "))])


def _summary(carried: Carried, seeds: range) -> str:
    report = carried.report
    if report is None:
        return "not carried out:"
    steps = ", ".join(
        (_count(report.copies, "copy", "copies"), _count(report.kernels, "kernel"), _count(report.sums, "sum"))
    )
    failed = f"seed {report.runs[-1].seed}"
    which = f"seeds {seeds.start} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds.start}"
    where = f"{report.num_ranks} ranks" + (f", {report.layers} layers" if report.layers > 1 else "")
    return f"{carried.outcome} on {where}: {steps}; {which if report.exact else failed}"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def runs_document(workload: str, ranks: int, seeds: range, carried: Sequence[Carried]) -> dict[str, Any]:
    """Return the document of ``magus run --json``; a run that fails is the last of its schedule."""
    return {
        "schema": SCHEMA,
        "workload": workload,
        "ranks": ranks,
        "seeds": {"first": seeds.start, "count": len(seeds)},
        "exact": all(each.exact for each in carried),
        "schedules": [_one(each) for each in carried],
    }


def _one(carried: Carried) -> dict[str, Any]:
    report = carried.report
    return {
        "schedule": carried.schedule,
        "outcome": carried.outcome,
        "seed": None if report is None or report.exact else report.runs[-1].seed,
        "copies": None if report is None else report.copies,
        "kernels": None if report is None else report.kernels,
        "sums": None if report is None else report.sums,
        "layers": None if report is None else report.layers,
        "sentences": list(carried.sentences),
    }
