"""How a schedule of several ops is carried out, for the screen: its block, what each op does, and commands."""

import shlex
from collections.abc import Iterator

from ...advisor.candidates.candidate import Candidate
from ...compiler.ir import GraphScenario
from ...simcore.op_spans import op_times
from ...simcore.shown_run import ShownRun
from .ops import schedule_text
from .wrap import bullet, wrapped


def picked_lines(
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
