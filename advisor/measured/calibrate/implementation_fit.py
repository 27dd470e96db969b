"""The constants of an implementation fitted to measured times of one pattern: the path, a call and a step.

What a row says is the speedup over the library, if it has a serial time. Then the time to reach is the fused time on
the machine of the profile: measured over serial, times the predicted serial one. So an error of the GEMM that both
times share is not taken for one of the implementation.

Simulated times jump where the order of events changes, so that they have no useful slopes. They are simulated on a
grid of the path's rate and the cost of a step, and the fit takes what lies between from logarithms on straight lines.
A finer grid around the first result follows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np

from ....compiler import CompileError
from ....compiler.codes import Code
from ....compiler.ir import (
    TICKS_PER_US,
    DType,
    Implementation,
    Method,
    OpCase,
    OpChoice,
    Pattern,
    Rejection,
    TransferPath,
)
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ....compiler.text.diagnostics import Diagnostic, Report, Source, Span, did_you_mean, listing
from ....compiler.text.units import us_text
from ...implementations.predict import predict_us
from ..tables.exchanges import ExchangeRow
from ..tables.fused import FusedPart, scenario_on
from ..tables.gemm import peak_us
from ..tables.implementations import LIBRARY
from ..tables.own_rows import OwnRow
from .fitting import Constant, ConstantUnit, Fitted, Floats, fit, put_all, with_values

CALL = Constant("call", ("call_ticks",), ConstantUnit.TIME, 0.1, 10_000, width=2)
STEP = Constant("step", ("step_ticks",), ConstantUnit.TIME, 0.05, 80, width=2)
RATE = Constant("rate", ("rate",), ConstantUnit.SHARE, 0.1, 1, width=2)
LIMIT = Constant("limit", ("limit_bytes_per_s",), ConstantUnit.RATE, 1, 10_000, width=2)
EXCHANGE = (
    *(
        Constant(f"exchange_{name}", ("routed", f"{name}_ticks"), ConstantUnit.TIME, 0.0001, 10_000, width=2)
        for name in ("start", "step", "expert", "row")
    ),
    Constant("exchange_bandwidth", ("routed", "bytes_per_s"), ConstantUnit.RATE, 1, 10_000, width=2),
)
"""Of a dispatch or a combine; those that ship as 0 stay so."""
STEP_NODES = (0.05, 5.0, 12.0, 30.0, 80.0)
RATE_NODES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
LIMIT_FACTORS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
FINER = 1.25
"""Ratio of the nodes of the finer grid."""
USUAL_US = ((CALL, 30), (STEP, 5))
"""Where the fit of a cost starts that is not known: a call of torch_nccl, and about a launch."""


@dataclass(frozen=True, slots=True)
class OwnPoint:
    """A row on its machine, where the schedule is ``choice``; ``target_us`` is the time to reach."""

    row: OwnRow
    scenario: OpCase
    choice: OpChoice
    target_us: float

    def us(self, method: Method) -> float:
        """Return the time of an implementation with this method."""
        own = replace(method, choice=self.choice)
        us = predict_us(self.scenario, Implementation("one", (), (), (own,)))
        assert not isinstance(us, Rejection), us
        return us


class _Times:
    """Times of a method without its call, by the constants of its path and step; simulated on the nodes of a grid."""

    def __init__(self, start: Method, axes: dict[Constant, Sequence[float]], points: Sequence[OwnPoint]) -> None:
        self.axes = axes
        self.targets_us = np.array([point.target_us for point in points])
        nodes = product(*axes.values())
        times = np.array([[point.us(with_values(start, tuple(axes), node)) for point in points] for node in nodes])
        self._logs: Floats = np.log(times).reshape(*map(len, axes.values()), len(points))

    def us(self, method: Method) -> Floats:
        """Return the time of each point."""
        logs = self._logs
        for axis, nodes in self.axes.items():
            places = np.log(nodes)
            at = np.clip(np.log(max(axis.of(method), nodes[0])), places[0], places[-1])
            right = int(np.clip(np.searchsorted(places, at), 1, len(nodes) - 1))
            share = (at - places[right - 1]) / (places[right] - places[right - 1])
            logs = (1 - share) * logs[right - 1] + share * logs[right]
        return np.exp(logs)


def constants_of(method: Method) -> tuple[Constant, ...]:
    """Return the constants that rows may determine, those first that most rows do."""
    if method.path is TransferPath.LIBRARY:
        return (CALL,)
    if method.limit_bytes_per_s is None:
        return CALL, RATE, STEP
    shipped = LIMIT.of(method)
    return CALL, replace(LIMIT, low=shipped * LIMIT_FACTORS[0], high=shipped * LIMIT_FACTORS[-1]), STEP


def start_of(method: Method) -> Method:
    """Return the method with usual costs in place of those that are not known."""
    known = replace(method, missing=())
    for constant, us in USUAL_US:
        if constant.name in method.missing:
            known = constant.put(known, Fraction(us))
    return known


def fit_method(start: Method, points: Sequence[OwnPoint]) -> tuple[Fitted, ...]:
    """Return the constants that the points determine: fewer than points, each with a small standard error.

    The one that is determined least is kept at its start, until the others are determined.
    """
    constants = constants_of(start)[: len(points) - 1]
    axes = {constant: _nodes(constant, start) for constant in constants if constant is not CALL}
    coarse = _fit_on(start, start, constants, _Times(replace(start, call_ticks=0), axes, points))
    finer = {one.constant: _finer(one, start) for one in coarse if one.constant is not CALL}
    times = _Times(replace(start, call_ticks=0), finer, points)
    found = put_all(start, coarse)
    left = list(constants)
    while left:
        fitted = _fit_on(start, found, left, times)
        weak = [one for one in fitted if one.undetermined]
        if not weak:
            return fitted
        left.remove(max(weak, key=lambda one: (one.relative_error, left.index(one.constant))).constant)
    return ()


def fit_exchange(constants: Sequence[Constant], start: Method, rows: Sequence[ExchangeRow]) -> tuple[Fitted, ...]:
    """Return the ``constants`` of a dispatch or a combine that fit ``rows`` best."""

    def logs(values: Floats) -> Floats:
        kernel = with_values(start, constants, values.tolist()).routed
        assert kernel is not None, "constants are of one"
        return np.log([row.us(kernel) for row in rows])

    measured_us = np.array([row.time_us for row in rows])
    return fit(constants, [[constant.of(start) for constant in constants]], logs, measured_us)


def errors_of(method: Method, points: Sequence[OwnPoint]) -> list[float]:
    """Return the relative errors of predicted speedups, or times."""
    return [abs(point.target_us / point.us(method) - 1) for point in points]


def _fit_on(start: Method, found: Method, constants: Sequence[Constant], times: _Times) -> tuple[Fitted, ...]:
    """Fit by the times of a grid, from ``start``, from ``found`` and from the nodes; the prior is around ``start``."""

    def logs(values: Floats) -> Floats:
        trial = with_values(start, constants, values.tolist())
        return np.log(times.us(trial) + trial.call_ticks / TICKS_PER_US)

    starts = [[constant.of(method) for constant in constants] for method in (start, found)]
    for axis, nodes in times.axes.items():
        if axis in constants:
            starts += [[node if one is axis else one.of(found) for one in constants] for node in nodes]
    return fit(constants, starts, logs, times.targets_us)


def _nodes(constant: Constant, start: Method) -> Sequence[float]:
    if constant is STEP:
        return STEP_NODES
    if constant is RATE:
        return RATE_NODES
    return [LIMIT.of(start) * factor for factor in LIMIT_FACTORS]


def _finer(one: Fitted, start: Method) -> Sequence[float]:
    """Return nodes around a fitted value, within the bounds, and the start, to which it may go back."""
    value, constant = float(one.value), one.constant
    nodes = (min(max(value * FINER**power, constant.low), constant.high) for power in (-1, 0, 1))
    back = min(max(constant.of(start), constant.low), constant.high)
    return sorted({*nodes, back})


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
    least_us = peak_us(scenario.gpu, measured.dtype, (measured.part.m, measured.part.n, measured.part.k))
    if min(measured.fused_us, measured.serial_us or measured.fused_us) < least_us:
        message = f"faster than the peak of {measured.gpu}: the GEMM alone takes {us_text(least_us)} there"
        return Rejection(Code.MGS303, message, "m, n and k are those of the GEMM of one GPU")
    library_us, target_us = predict_us(scenario, shipped[LIBRARY]), measured.fused_us
    if measured.serial_us is not None and not isinstance(library_us, Rejection):
        target_us *= library_us / measured.serial_us
    if not 1 / MAX_RATIO < measured.fused_us / us < MAX_RATIO:
        message = f"{measured.fused_us:,.4g} us cannot be its time: {us:,.4g} us are predicted"
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
