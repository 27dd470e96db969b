"""Declared schedules against their workload: each must be possible there, and a plan must move every byte once."""

from collections.abc import Iterator
from dataclasses import replace

from ...ir import (
    OpCase,
    Rejection,
    Scenario,
    Schedule,
    WrittenPlan,
    without_batch,
)
from ...planning.build import ScheduleError, build_op_plan
from ...text import syntax as ast
from ...text.diagnostics import Report, Span
from ...text.names import Kind, Scope, Soundness
from ..values.words import head_word

Declaration = ast.TemplateNode | ast.PlanNode


def check_schedules(
    scope: Scope, scenarios: tuple[Scenario, ...], report: Report, *, as_written: bool
) -> tuple[Scenario, ...]:
    """Report what is wrong with the schedules that the file declares, and keep those that are possible.

    ``as_written`` means that no parameter is set from outside. A schedule that is impossible then is an error; one that
    only does not fit the sizes a user has set is left out with a warning: a file can be asked about other sizes.
    Schedules in which something is wrong already, or in what they name, are not looked at.
    """
    sound, say = Soundness(scope, report), report.error if as_written else report.warn
    places = {entry.name: entry.schedule for entry in scope.of_kind(Kind.SCHEDULE)}
    kept = []
    for scenario in scenarios:
        possible = []
        for choice in scenario.schedules:
            declaration = places[choice.name]
            if not sound.of_name(choice.name):
                continue
            faults = tuple(_faults(scenario, choice, declaration))
            for unfit, span in faults:
                message = unfit.message if as_written else f"{choice.name} is left out: {unfit.message}"
                say(unfit.code, message, span, unfit.hint)
            if not faults:
                possible.append(choice)
        kept.append(replace(scenario, schedules=tuple(possible)))
    return tuple(kept)


_Fault = tuple[Rejection, Span]


def _faults(scenario: Scenario, choice: Schedule, declaration: Declaration) -> Iterator[_Fault]:
    workload, body = scenario.workload.only_shape, choice.body
    if workload is None or body is None:
        assert isinstance(declaration, ast.PlanNode), "a schedule of several ops is a block"
        yield from _faults_of_ops(scenario, choice, declaration)
        return
    op = OpCase(scenario.name, scenario.system, workload)
    block, head = _block(declaration), _head(declaration)
    try:
        schedule = build_op_plan(op, body, choice.name)
    except ScheduleError as error:
        yield error.rejection, block.statements[0].span if block is not None else head
        return
    if isinstance(body, WrittenPlan):
        from ...verify.check import check_plan  # few files have a plan: the others do not wait for its import

        for fault in check_plan(op, schedule):
            yield Rejection(fault.code, fault.message, fault.hint), _step(block, fault.step) or head


def _faults_of_ops(scenario: Scenario, choice: Schedule, declaration: ast.PlanNode) -> Iterator[_Fault]:
    from ...planning.groups import cut_up  # few files have such a schedule, as above
    from ...planning.parts import PlanError
    from ...planning.plan import build_plan
    from ...verify.check import check_plan

    system, workload = scenario.system, scenario.workload
    try:
        build_plan(system, workload, choice, min(workload.num_layers, 1 + choice.layers_shifted))
    except PlanError as error:
        yield error.rejection, _statement(declaration, without_batch(error.at))
        return
    for mode in choice.modes:
        if isinstance(mode.body, WrittenPlan):
            op = OpCase(mode.op, system, cut_up(workload, choice.cut).op(mode.op).shape)
            for fault in check_plan(op, build_op_plan(op, mode.body, mode.op)):
                block = _block_of(declaration, without_batch(mode.op))
                span = _step(block, fault.step) or _statement(declaration, without_batch(mode.op))
                yield Rejection(fault.code, fault.message, fault.hint), span


def _block(declaration: Declaration) -> ast.BlockNode | None:
    """The block of the lone op: that of the schedule, unless it stands in there; None where there is none."""
    if isinstance(declaration, ast.TemplateNode):
        return None
    inner = (each.block for each in declaration.block.statements if isinstance(each, ast.Say) and _is_of_an_op(each))
    return next(inner, declaration.block)


def _head(declaration: Declaration) -> Span:
    """The declaration without its block."""
    return declaration.workload.span if isinstance(declaration, ast.PlanNode) else declaration.values[0].span


def _step(block: ast.BlockNode | None, step: str) -> Span | None:
    """The statement that defines ``step``."""
    steps = _definitions(block) if block is not None else ()
    return next((statement.span for statement in steps if statement.name == step), None)


def _definitions(block: ast.BlockNode) -> Iterator[ast.Define]:
    """Steps of all ranks, then those of single ranks."""
    yield from (statement for statement in block.statements if isinstance(statement, ast.Define))
    for statement in block.statements:
        if isinstance(statement, ast.Say) and statement.block is not None:
            yield from _definitions(statement.block)


def _is_of_an_op(statement: ast.Say) -> bool:
    return statement.block is not None and head_word(statement) not in ("rank", "override")


def _block_of(declaration: ast.PlanNode, op: str) -> ast.BlockNode | None:
    """The block that says how ``op`` is carried out."""
    statements = (each for each in declaration.block.statements if isinstance(each, ast.Say))
    return next((each.block for each in statements if each.block is not None and op in _names_in(each)), None)


def _statement(declaration: ast.PlanNode, at: str) -> Span:
    """The statement that defines the op ``at``, begins with that word or names it; else the head of the schedule."""
    for statement in declaration.block.statements:
        if isinstance(statement, ast.Define) and statement.name == at:
            return statement.span
    for statement in declaration.block.statements:
        if isinstance(statement, ast.Say) and at in _names_in(statement):
            return statement.span
    return declaration.workload.span


def _names_in(statement: ast.Say) -> Iterator[str]:
    return (name for group in statement.phrase for part in group.parts for name in _names(part))


def _names(part: ast.Expression) -> Iterator[str]:
    """The name that ``qkv``, ``qkv[0]``, ``qkv.all_gather`` or ``qkv[0] = serial()`` begins with."""
    match part:
        case ast.Name(text=text):
            yield text
        case ast.Index(base=base) | ast.Member(base=base) | ast.Compare(left=base):
            yield from _names(base)
