"""The answer on screen as the page of ``magus report``, without its sweep. No Textual."""

from dataclasses import replace
from pathlib import Path

from ....advisor.answer.export import advice_document
from ....advisor.candidates.advice import Advice
from ....compiler.changed import Changes
from ...report import ReportData, report_html
from ...text.next_steps import NextStep, next_steps
from ...text.question import scenario_words
from .job import Job

NO_RUN = "The recommended schedule is not simulated yet, so there is nothing to draw."
NO_SWEEP = "This page was written from the screen, without a sweep: magus report makes one."


def report_name(job: Job) -> str:
    """Return the name that is offered for the page."""
    return f"{job.path.stem}_report.html"


def report_of(job: Job) -> str | None:
    """Return the page about what was found, None if the recommended schedule is not simulated yet."""
    found, changes, numbers = job.found, job.what_if.changes, job.what_if.numbers
    run = None if found is None else job.runs.get(found.recommended.expression)
    if found is None or run is None:
        return None
    settings = (*changes.params, *changes.numbers)
    report = ReportData(
        advice=found if job.is_graph else replace(found, result=run.result),
        run=run,
        data=advice_document(found, results=True),
        file=job.path.name,
        settings=settings,
        numbers=numbers,
        todo=_next(found, job.path, changes, job.name),
        sweep_note=NO_SWEEP,
    )
    return report_html(report)


def _next(advice: Advice, path: Path, changes: Changes, name: str) -> tuple[NextStep, ...]:
    return () if changes.numbers else next_steps(advice, scenario_words(path, changes.params, name), how=False)
