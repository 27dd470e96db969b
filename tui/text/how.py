"""How to carry out a schedule, as plain text."""

import shlex
from collections.abc import Iterable, Iterator
from itertools import count, groupby

from ...advisor.candidates.candidate import Candidate
from ...advisor.how.code import code_lines
from ...advisor.how.how import How, RankSteps
from ...advisor.how.parts import PartHow, intro_lines
from ...advisor.how.words import Told, told_steps
from ...compiler.ir import OpCase, OpPlan, Scenario
from ...compiler.planfile.write import plan_text
from ...compiler.text.diagnostics import Report, Source, printable
from ...compiler.text.parsing.parse import check_size
from ...compiler.text.parsing.tokens import read_tokens
from ...simcore.op_spans import op_times
from ...simcore.shown_run import ShownRun
from .door import bullet, columns, hanging, wrapped
from .ops import schedule_text

MOST_GROUPS = 8
"""Most groups of ranks whose steps are shown."""
MOST_LINES = 60
"""Most lines that are shown of one group, and of the pseudo-code."""


def how_text(parts: tuple[PartHow, ...], name: str) -> str:
    """Return what is taken for granted, numbered steps, and pseudo-code, of each part of a plan."""
    return "\n".join(plan_lines(parts, name))


def plan_lines(parts: tuple[PartHow, ...], name: str) -> Iterator[str]:
    """Yield the lines of ``how_text``, with the ``name`` of the schedule."""
    if len(parts) == 1:
        yield from how_lines(parts[0].how, name)
        return
    yield from wrapped(f"How to carry out {name}: {len(parts)} parts, issued in this order.")
    for number, told in enumerate(parts, 1):
        yield ""
        waits = f"; it waits for {', and for '.join(told.waits)}" if told.waits else ""
        yield from wrapped(f"Part {number}, {told.part.name}, {told.label}, {told.stream}{waits}.")
        yield from how_lines(told.how, told.part.schedule.expression)


def how_lines(how: How, name: str) -> Iterator[str]:
    """Yield how one part is carried out, under the ``name`` of its schedule."""
    yield from wrapped(f"How to carry out {name}:")
    for sentence in intro_lines(how):
        yield from bullet("-", sentence)
    yield ""
    for number, told in groupby(told_steps(how), lambda line: line.group):
        if number == MOST_GROUPS:
            left = sum(len(group.ranks) for group in how.groups[MOST_GROUPS:])
            yield from wrapped(f"The steps of {left} more ranks are left out here; JSON has them.")
            break
        if len(how.groups) > 1:
            yield from wrapped(f"On {_ranks_text(how.groups[number])}:")
        yield from _limited([line for each in told for line in _step_lines(each)])
    yield ""
    yield from wrapped("In pseudo-code, commands are queued at once and wait in their queues:")
    of_one = len(how.groups) > 1
    yield from _limited([line for each in code_lines(how, only_first=of_one) for line in _code_lines(each)])
    if of_one:
        yield from wrapped("The other ranks do their steps in the same way.")


def _ranks_text(group: RankSteps) -> str:
    ranks = ", ".join(map(str, group.ranks))
    return f"rank {ranks}" if len(group.ranks) == 1 else f"ranks r = {ranks}"


def _step_lines(told: Told) -> list[str]:
    indent = "  " + "  " * told.number.count(".")
    first = f"{indent}{told.number}{'' if '.' in told.number else '.'} "
    return hanging(told.text, len(first), first)


def _code_lines(line: str) -> list[str]:
    indent = len(line) - len(line.lstrip())
    return hanging(line.lstrip(), indent + 6, "  " + " " * indent) if len(line) + 2 > columns() else [f"  {line}"]


def _limited(lines: list[str]) -> Iterator[str]:
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"  {len(lines) - MOST_LINES} more lines are left out here; JSON has all steps."


def plan_block(scenario: OpCase, schedule: OpPlan) -> str:
    """Return the plan in the language, under a comment with its expression."""
    # The name may be that of a file, and a comment is one line.
    name = free_name(named.name for named in scenario.schedules)
    return f"# {printable(schedule.expression)}\n{plan_text(scenario, schedule, name)}"


def is_too_long(text: str) -> bool:
    """Whether no file can hold the text."""
    report = Report()
    with report.trial():
        source = Source("plan", text)
        check_size(source, report)
        read_tokens(source, report)
    return report.has_errors


def free_name(taken: Iterable[str]) -> str:
    """A name that no schedule of the workload has, so that the plan can be pasted into its file."""
    names = set(taken)
    return next(name for number in count(1) if (name := f"plan_{number}") not in names)


def picked_lines(
    scenario: Scenario, candidate: Candidate, run: ShownRun | None, words: tuple[str, ...]
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
