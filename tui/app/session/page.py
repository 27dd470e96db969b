"""The page that is written from the screen. No Textual."""

from dataclasses import replace
from pathlib import Path

from ....advisor.answer.export import advice_document
from ....advisor.candidates.advice import Advice
from ....compiler.changed import Changes
from ...report import ReportData, report_html
from ...report.step_page import step_html
from ...text.next_steps import NextStep, next_steps
from ...text.ops import scenario_words
from .job import Job
from .step_job import AnyJob, StepJob

NO_RUN = "The recommended schedule is not simulated yet, so there is nothing to draw."
NO_SWEEP = "This page was written from the screen, without a sweep: magus report makes one."


def report_of(job: AnyJob) -> str | None:
    """Return the page about what was found, None if there is nothing to draw yet."""
    if isinstance(job, StepJob):
        changes = job.what_if.changes
        settings = (*changes.params, *changes.numbers)
        return None if job.found is None else step_html(job.found, job.path.name, settings, job.what_if.numbers)
    return _of_ops(job)


def _of_ops(job: Job) -> str | None:
    """Return the page about what was found, None if the recommended schedule is not simulated yet."""
    found, changes, numbers = job.found, job.what_if.changes, job.what_if.numbers
    run = None if found is None else job.runs.get(found.recommended.expression)
    if found is None or run is None:
        return None
    settings = (*changes.params, *changes.numbers)
    report = ReportData(
        advice=found if job.has_several_ops else replace(found, result=run.result),
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
