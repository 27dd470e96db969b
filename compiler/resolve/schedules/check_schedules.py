"""Declared schedules against their workload: a template must be legal there, a plan must move every byte once."""

from collections.abc import Iterator
from dataclasses import replace

from ...codes import Code
from ...ir import NamedSchedule, Plan, Scenario
from ...planning.build import ScheduleError, declared
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.names import Kind, Scope
from ...text.soundness import Soundness
from ...text.source import Span

Declaration = ast.Template | ast.Plan


def check_schedules(
    scope: Scope, scenarios: tuple[Scenario, ...], report: Report, *, as_written: bool
) -> tuple[Scenario, ...]:
    """Report what is wrong with the schedules that the file declares, and keep the legal ones.

    ``as_written`` means that no parameter is set from outside. A schedule that is illegal then is an error; one that
    only does not fit the sizes a user has set is left out with a warning: a file can be asked about other sizes.
    Schedules in which something is wrong already, or in what they name, are not looked at.
    """
    sound = Soundness(scope, report)
    places = {entry.name: entry.declaration for entry in scope.of_kind(Kind.SCHEDULE)}
    kept = []
    for scenario in scenarios:
        legal = tuple(
            named
            for named in scenario.schedules
            if sound.of_name(named.name) and _is_legal(scenario, named, places[named.name], report, as_written)
        )
        kept.append(replace(scenario, schedules=legal))
    return tuple(kept)


def _is_legal(scenario: Scenario, named: NamedSchedule, declaration: object, report: Report, as_written: bool) -> bool:
    assert isinstance(declaration, ast.Template | ast.Plan), "only these declare schedules"
    say = report.error if as_written else report.warn
    found: list[tuple[Code, str, Span, str]] = []
    try:
        schedule = declared(scenario, named)
    except ScheduleError as error:
        unfit = error.rejection
        found.append((unfit.code, unfit.message, _first(declaration), unfit.hint))
    else:
        if isinstance(named.body, Plan):
            from ...verify.check import check_plan  # few files have a plan: the others do not wait for its import

            faults = check_plan(scenario, schedule)
            found.extend((fault.code, fault.message, _place(declaration, fault.step), fault.hint) for fault in faults)
    for code, message, span, hint in found:
        say(code, message if as_written else f"{named.name} is left out: {message}", span, hint)
    return not found


def _head(declaration: Declaration) -> Span:
    """The declaration without its block."""
    return declaration.workload.span if isinstance(declaration, ast.Plan) else declaration.values[0].span


def _first(declaration: Declaration) -> Span:
    """The node that says how a schedule is carried out: engines and options of a plan, or the template."""
    return declaration.block.statements[0].span if isinstance(declaration, ast.Plan) else _head(declaration)


def _place(declaration: Declaration, step: str) -> Span:
    """The statement that defines ``step``, else the head of the schedule."""
    if isinstance(declaration, ast.Plan):
        for statement in _definitions(declaration.block):
            if statement.name == step:
                return statement.span
    return _head(declaration)


def _definitions(block: ast.Block) -> Iterator[ast.Define]:
    """Steps of all ranks, then those of single ranks."""
    yield from (statement for statement in block.statements if isinstance(statement, ast.Define))
    for statement in block.statements:
        if isinstance(statement, ast.Say) and statement.block is not None:
            yield from _definitions(statement.block)
