"""The workloads of a file that are one op, and those of several."""

from magus.compiler.ir import OpCase, Scenario
from magus.compiler.pipeline import Compiled


def cases_in(found: Compiled) -> tuple[OpCase, ...]:
    """The one op of each workload that has no more."""
    return tuple(each.only_case for each in found.workloads if each.only_case is not None)


def several_in(found: Compiled) -> tuple[Scenario, ...]:
    """The workloads of several ops."""
    return tuple(each for each in found.workloads if each.only_case is None)
