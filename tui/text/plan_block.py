"""A schedule as a block of the language, to be pasted into its file."""

from collections.abc import Iterable
from itertools import count

from ...compiler.ir import Scenario, Schedule
from ...compiler.planfile.to_mgs import plan_text
from ...compiler.text.diagnostics import Report
from ...compiler.text.parsing.parse import check_size
from ...compiler.text.parsing.tokens import read_tokens
from ...compiler.text.printable import printable
from ...compiler.text.source import Source


def plan_block(scenario: Scenario, schedule: Schedule) -> str:
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
