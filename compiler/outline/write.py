"""From an outline on a scenario to the plan written out, or to what keeps it from being one."""

from collections.abc import Iterator

from ..codes import Code
from ..ir import Choice, Kernels, Plan, Scenario
from ..planning.build import ScheduleError, check_engine, check_tactics, problem_of
from ..templates.base import TemplateInput
from .build import plan_of
from .check import Misfit, misfits
from .outline import Outline

# What is said of transfers; the rest of what a machine cannot do is said of kernels.
_OF_MOVE = (Code.MGS401, Code.MGS407, Code.MGS408)


def written_out(scenario: Scenario, outline: Outline) -> Plan:
    """Every transfer, kernel and sum of ``outline``, which has no misfits."""
    return plan_of(outline, _problem(scenario, outline))


def misfits_on(scenario: Scenario, outline: Outline) -> Iterator[Misfit]:
    """What the machine cannot do, then what does not fit the workload."""
    try:
        check_engine(scenario, outline.engine)
        check_tactics(scenario, outline.engine, outline.tactics)
    except ScheduleError as error:
        of_kernels = "kernel" if outline.tactics.kernel is Kernels.PERSISTENT else "sync"
        yield Misfit(error.code, "move" if error.code in _OF_MOVE else of_kernels, str(error), _worded(error.hint))
    yield from misfits(outline, _problem(scenario, outline))


def _problem(scenario: Scenario, outline: Outline) -> TemplateInput:
    tactics, order = outline.tactics, outline.ordering.order
    return problem_of(
        scenario,
        Choice("serial", scenario.num_ranks, outline.engine, outline.streams, tactics, outline.algorithm, order=order),
    )


def _worded(hint: str) -> str:
    """A hint in the words of statements: ``kernel persistent`` for ``kernel=persistent``."""
    return hint.replace("use engine ", "move by ").replace("wait=", "sync ").replace("=", " ")
