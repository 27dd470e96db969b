"""Write an outline out as a plan for a scenario, or say why it is none."""

from collections.abc import Iterator

from ..codes import Code
from ..ir import Choice, Kernels, Plan, Scenario
from ..planning.build import reject_execution
from ..planning.template_input import template_input
from ..templates import BASELINE
from ..templates.base import TemplateInput
from .build import plan_of
from .check import OutlineRejection, outline_rejections
from .outline import Outline

# Rejections of the machine that concern transfers; the others concern kernels.
_OF_MOVE = (Code.MGS401, Code.MGS407, Code.MGS408)


def written_out(scenario: Scenario, outline: Outline) -> Plan:
    """Write every transfer, kernel and sum of an ``outline`` without rejections."""
    return plan_of(outline, _problem(scenario, outline))


def rejections_on(scenario: Scenario, outline: Outline) -> Iterator[OutlineRejection]:
    """Return rejections by the machine, then those by the workload."""
    unfit = reject_execution(scenario, outline.engine, outline.tactics)
    if unfit is not None:
        of_kernels = "kernel" if outline.tactics.kernel is Kernels.PERSISTENT else "sync"
        statement = "move" if unfit.code in _OF_MOVE else of_kernels
        yield OutlineRejection(unfit.code, unfit.message, _worded(unfit.hint), statement)
    yield from outline_rejections(outline, _problem(scenario, outline))


def _problem(scenario: Scenario, outline: Outline) -> TemplateInput:
    n, engine, streams, order = scenario.num_ranks, outline.engine, outline.streams, outline.ordering.order
    choice = Choice(BASELINE.name, n, engine, streams, outline.tactics, outline.algorithm, order=order)
    return template_input(scenario, choice)


def _worded(hint: str) -> str:
    """Rewrite a hint in the words of statements: ``kernel persistent`` for ``kernel=persistent``."""
    return hint.replace("use engine ", "move by ").replace("wait=", "sync ").replace("=", " ")
