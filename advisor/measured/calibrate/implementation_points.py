"""The rows of an implementation with their scenarios, and why others are left out."""

from collections.abc import Sequence

from ....compiler import CompileError
from ....compiler.codes import Code
from ....compiler.ir import DType, Implementation, Pattern, Rejection
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ....compiler.text.diagnostics import Diagnostic, Report, did_you_mean, listing
from ....compiler.text.source import Source, Span
from ...implementations.predict import predict_us
from ..tables.fused import scenario_on
from ..tables.fused_rows import FusedPart
from ..tables.implementations import LIBRARY
from ..tables.own_rows import OwnRow
from .implementation_fit import OwnPoint, start_of

MIN_HALF = 2
"""Least number of rows in each half."""
MAX_RATIO = 50
"""A measured time that differs more from the predicted one is in another unit, or of something else."""
_USUAL = FusedPart(Pattern.AG_GEMM, 512, 512, 512)


def implementation_named(name: str) -> Implementation:
    """Return the shipped implementation of that name, with its schedules for 8 H100.

    Raises
    ------
    CompileError
        If there is none.
    """
    shipped = {each.name: each for each in shipped_implementations(scenario_on("H100", 8, DType.BF16, _USUAL).system)}
    if name not in shipped:
        hint = did_you_mean(name, shipped) or f"those that ship are {listing(shipped)}"
        span = Span(Source("--implementation", name), 0, len(name))
        raise CompileError([Diagnostic(Code.MGS203, f"unknown implementation '{name[:64]}'", span, hint)])
    return shipped[name]


def point_of(row: OwnRow, name: str, report: Report) -> OwnPoint | None:
    """Return the row with its scenario; None, with a warning, if implementation ``name`` has no prediction for it."""
    try:
        point = _point(row, name)
    except CompileError as error:
        first = error.first
        point = Rejection(first.code, first.message, first.hint)
    if isinstance(point, Rejection):
        report.warn(point.code, point.message, row.span, point.hint)
        return None
    return point


def _point(row: OwnRow, name: str) -> OwnPoint | Rejection:
    measured = row.row
    scenario = scenario_on(measured.gpu, measured.ranks, measured.dtype, measured.part)
    shipped = {each.name: each for each in shipped_implementations(scenario.system)}
    if name not in shipped:
        return Rejection(Code.MGS401, f"{name} takes more engines than {measured.gpu} has")
    rejection = _reject(shipped[name], row)
    method = shipped[name].method(measured.part.pattern)
    if rejection is not None or method is None:
        return rejection or Rejection(Code.MGS530, f"{name} does not do this")
    us = predict_us(scenario, Implementation("one", (), (), (start_of(method),)))
    if isinstance(us, Rejection):
        return us
    library_us, target_us = predict_us(scenario, shipped[LIBRARY]), measured.fused_us
    if measured.serial_us is not None and not isinstance(library_us, Rejection):
        target_us *= library_us / measured.serial_us
    if not 1 / MAX_RATIO < measured.fused_us / us < MAX_RATIO:
        message = f"{measured.fused_us:,.4g} us is no time of this: {us:,.4g} us are predicted"
        return Rejection(Code.MGS303, message, "is it in the unit of its column, and of this shape?")
    return OwnPoint(row, scenario, method.choice, target_us)


def _reject(implementation: Implementation, row: OwnRow) -> Rejection | None:
    """Why the implementation does not do the pattern or the type of a row, None if it does."""
    name, pattern, dtype = implementation.name, row.row.part.pattern, row.row.dtype
    if implementation.method(pattern) is None:
        does = ", ".join(method.pattern.value for method in implementation.methods)
        return Rejection(Code.MGS530, f"{name} does not do {pattern.value}", f"it does {does}")
    if dtype not in implementation.dtypes:
        known = ", ".join(each.value for each in implementation.dtypes)
        return Rejection(Code.MGS530, f"{name} does not do {dtype.value}", f"it does {known}")
    return None


def halves(points: Sequence[OwnPoint]) -> tuple[list[OwnPoint], list[OwnPoint], bool]:
    """Return the points to fit, those held out, and whether whole groups are: else every second one is, by time."""
    groups = sorted({point.row.row.source for point in points})
    held = [point for point in points if groups.index(point.row.row.source) % 2]
    rows = [point for point in points if not groups.index(point.row.row.source) % 2]
    if min(len(rows), len(held)) >= MIN_HALF:
        return rows, held, True
    ordered = sorted(points, key=lambda point: (point.row.row.fused_us, point.row.span.start))
    return ordered[::2], ordered[1::2], False
