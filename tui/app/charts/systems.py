"""The workloads of a file side by side, such as one on several systems: baseline, answer and bound of each as bars."""

from collections.abc import Iterator, Sequence

from ....advisor.candidates.advice import Advice
from ....compiler.ir import TICKS_PER_US
from ....compiler.text.diagnostics import printable
from ....compiler.text.units import us_text
from ..session.job import Job, JobProblem
from ..session.view import shortened

BASELINE, ANSWER, BOUND = "▒", "█", "┃"
INDENT = 3
MIN_NAME = 12
"""Columns below which the name of a schedule is left out."""
ALL_KEY = "a"
HEAD = f" All workloads: {BASELINE} baseline  {ANSWER} recommended  {BOUND} no schedule can be faster"
WAITING = f"not answered yet; {ALL_KEY} answers all workloads of the file"
LOOKING = "looking for schedules ..."

StyledLine = list[tuple[str, str]]
"""A line of text: parts with the name of a component style each."""


def systems_lines(jobs: Sequence[Job], width: int) -> Iterator[StyledLine]:
    """Yield lines of at most ``width`` columns: a heading, and for each job its name, its system and its bars.

    Bars of all jobs have one scale. Of a job without an answer the line says why.
    """
    found = [job.found for job in jobs if job.found is not None]
    longest = max((advice.serial.best_us for advice in found), default=1.0)
    yield [(shortened(HEAD, width), "head")]
    for job in jobs:
        system = job.scenario.system
        where = f"{job.name}: {system.title}, {system.fabric.topology.name}"
        yield [(f" {shortened(printable(where), width - 2)}", "bold head")]
        if job.found is None:
            yield [(f"{'':{INDENT}}{shortened(_why_not(job), width - INDENT)}", "empty")]
        else:
            yield from _bars(job.found, longest, width)


def _why_not(job: Job) -> str:
    if isinstance(job.answer, JobProblem):
        return printable(f"{job.answer.kind.value}: {job.answer.text.splitlines()[0]}")
    return LOOKING if job.advising else WAITING


def _bars(advice: Advice, longest_us: float, width: int) -> Iterator[StyledLine]:
    """The baseline with its time, and below it the answer with the bound in its bar, time, gain and name."""
    room = max(8, (width - INDENT) // 2)

    def columns(us: float) -> int:
        return max(1, min(room, round(room * us / longest_us)))

    best, later = advice.recommended, ", not final" if advice.interrupted else ""
    said = f" {us_text(best.best_us)}, {advice.speedup:.2f}x{later}"
    name, left = f": {printable(advice.name_of(best.expression))}", width - INDENT - columns(best.best_us) - len(said)
    bar = columns(best.best_us)
    before = bar if advice.bound is None else min(bar, columns(advice.bound.ticks / TICKS_PER_US)) - 1
    yield [
        (f"{'':{INDENT}}{BASELINE * columns(advice.serial.best_us)}", "comm-0"),
        (f" {us_text(advice.serial.best_us)}", "axis"),
    ]
    yield [
        (f"{'':{INDENT}}{ANSWER * before}", "compute-0"),
        (BOUND if before < bar else "", "exposed"),
        (ANSWER * (bar - before - 1), "compute-0"),
        (said + (shortened(name, left) if left > MIN_NAME else ""), "head"),
    ]
