"""The size that varies from rule to rule: the rows of a GEMM, or the bytes of a collective alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...compiler.codes import Code
from ...compiler.ir import GraphScenario, Pattern, Scenario, Workload
from ...compiler.request.errors import RequestError
from ...compiler.request.request import BESIDE_PATTERNS, COLLECTIVE_PATTERNS, Request
from ...compiler.request.scenario import scenario_of
from ..sensitivity.resized import num_rows, with_moved_rows, with_rows

ROWS, BYTES = "m", "num_bytes"
_HINT = "tables are for a GEMM with a collective of as many rows, and for even collectives alone"


@dataclass(frozen=True, slots=True)
class SizeAxis:
    """Scenarios that differ in one size: ``at`` returns that of a size, a multiple of ``grain``.

    ``field`` is what a request calls the size.
    """

    field: str
    grain: int
    at: Callable[[int], Scenario]


def axis_of(question: Request | GraphScenario) -> SizeAxis:
    """Return the axis of a request or a scenario.

    Raises
    ------
    RequestError
        If its sizes cannot be changed alone.
    """
    if isinstance(question, Request):
        return axis_of_request(question)
    axis = None if question.pair is None else axis_of_scenario(question.case)
    if axis is None:
        label = question.title if question.pair is None else question.case.workload.label
        raise RequestError(Code.MGS520, "pattern", f"{label} has no size that varies alone", _HINT)
    return axis


def check_sizes(axis: SizeAxis, sizes: Sequence[int]) -> None:
    """Check that there are sizes, and that they are multiples of the grain.

    Raises
    ------
    RequestError
        If not.
    """
    if not sizes:
        raise RequestError(Code.MGS306, axis.field, "no sizes are given")
    for size in sizes:
        if isinstance(size, bool) or not hasattr(size, "__index__") or size <= 0 or size % axis.grain:
            hint = f"multiples of {axis.grain}"
            raise RequestError(Code.MGS304, axis.field, f"{size!r:.40} does not divide among the ranks", hint)


def axis_of_request(request: Request) -> SizeAxis:
    """Return the axis of ``request``: its bytes if it has no GEMM, else its m.

    Raises
    ------
    RequestError
        If it has both, or no collective.
    """
    if request.kind in (*BESIDE_PATTERNS, Pattern.GEMM):
        raise RequestError(Code.MGS520, "pattern", f"{request.pattern} has no size that varies alone", _HINT)
    ranks = scenario_of(request).num_ranks
    if request.kind in COLLECTIVE_PATTERNS:
        moved = scenario_of(request).case.workload.moved
        assert moved is not None, "a collective moves a tensor"
        return SizeAxis(
            BYTES, ranks * moved.dtype.num_bytes, lambda size: scenario_of(replace(request, num_bytes=size)).case
        )
    return SizeAxis(ROWS, ranks, lambda size: scenario_of(replace(request, m=size)).case)


def axis_of_scenario(scenario: Scenario) -> SizeAxis | None:
    """Return the axis of the scenario of a file; None where its sizes cannot be changed alone."""
    if num_rows(scenario.workload) is not None:
        return SizeAxis(ROWS, scenario.num_ranks, lambda size: with_rows(scenario, size))
    moved = scenario.workload.moved
    if not scenario.is_algorithm_choice or moved is None or scenario.workload.uneven:
        return None
    row_bytes = moved.cols * moved.dtype.num_bytes
    return SizeAxis(BYTES, scenario.num_ranks * row_bytes, lambda size: with_moved_rows(scenario, size // row_bytes))


def size_of(workload: Workload, field: str) -> int | None:
    """Return the size of a workload on the axis of ``field``, None if it has none."""
    if field == ROWS:
        return None if workload.gemm is None else workload.gemm.m
    return None if workload.moved is None else workload.moved.num_bytes
