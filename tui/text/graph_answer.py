"""An answer about a graph in sentences, and how one of its schedules is carried out."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from ...advisor.candidates.advice import Advice
from ...advisor.candidates.candidate import Candidate
from ...compiler.ir import GraphScenario, Settings
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_expression import graph_choice_text
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.quantities import us_text
from ...simcore.op_spans import op_times
from ...simcore.shown_run import ShownRun
from .wrap import bullet, wrapped


def graph_verdict(answer: Advice) -> str:
    """Return whether overlap pays, and with which schedule."""
    best = answer.recommended
    if answer.verdict is Verdict.OVERLAP:
        against = f"{us_text(answer.serial.best_us)} {answer.against}"
        return (
            f"OVERLAP pays: {answer.speedup:.2f}x over {answer.baseline} with {best.expression}: "
            f"{us_text(best.best_us)} against {against}."
        )
    return f"SERIAL: {answer.why_serial}; use {best.expression}, {us_text(best.best_us)}."


def schedule_text(scenario: GraphScenario, candidate: Candidate) -> str:
    """Return the block that declares a schedule; serial is always there, and so is its block."""
    try:
        return graph_choice_text(candidate.joint, scenario.graph.name)
    except ScheduleError as error:
        return f"{error.rejection.message}.\n"


def scenario_words(path: Path, settings: Settings, workload: str) -> tuple[str, ...]:
    """Return what names a workload of a file on the command line."""
    given = (word for name, value in settings for word in ("--set", f"{name}={value}"))
    return str(path), "--workload", workload, *given


def graph_how_lines(
    scenario: GraphScenario, candidate: Candidate, run: ShownRun | None, words: tuple[str, ...]
) -> Iterator[str]:
    """Yield how a schedule is carried out: its block, what each op does, and commands; ``words`` name the workload."""
    yield "y copies the name, m the block."
    yield ""
    yield from schedule_text(scenario, candidate).rstrip().splitlines()
    yield ""
    for op in op_times(run) if run is not None else ():
        how = op.span.schedule or "as usual"
        beside = f"; its copies run beside {op.beside_text}" if op.beside_text else ""
        yield from bullet("-", f"{op.name}, {op.span.label}: {how}{beside}")
    yield ""
    name = ("--schedule", candidate.expression)
    if not candidate.is_serial and candidate.joint not in scenario.schedules:
        yield "With the block in the file:"
    for what, command in (
        ("Simulate it, line by line", ("simulate", *words, *name)),
        ("Its trace and its drawing", ("simulate", *words, *name, "--trace", "run.json", "--svg", "run.svg")),
        ("Its plan", ("plan", *words, *name, "--format", "json", "-o", "plan.json")),
        ("All schedules as a page", ("report", *words, "-o", "report.html")),
    ):
        yield from wrapped(f"{what}:")
        yield f"  magus {shlex.join(command)}"
