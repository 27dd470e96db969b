"""Marked schedules side by side: a table of their figures, and which of these differ."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ....compiler.ir import (
    Kernels,
    OpCase,
    OpPlan,
    Reduction,
    Scenario,
    Step,
    TileGroup,
    Transfer,
)
from ....compiler.text.units import bytes_text, ticks_text
from ....simcore.figures.result import Result
from ....simcore.kernels.dispatch import compute_shape, stream_work, work_of
from ....simcore.shown_run import OpSummary, ShownRun, op_times

UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of each schedule; ``best_idx`` is the schedule with the least, None where less is not better."""

    label: str
    values: tuple[str, ...]
    best_idx: int | None = None

    @property
    def differs(self) -> bool:
        """Whether they are not all the same."""
        return len(set(self.values) - {UNKNOWN}) > 1


@dataclass(frozen=True, slots=True)
class Compared:
    """A marked schedule: its name, and its run once it is simulated, or the ``problem`` that left it without.

    ``schedule`` is None for one of a graph.
    """

    name: str
    schedule: OpPlan | None
    run: ShownRun | None
    problem: str | None = None

    @property
    def result(self) -> Result | None:
        """The figures of the run."""
        return None if self.run is None else self.run.result


@dataclass(frozen=True, slots=True)
class _Figure:
    """A row of the table: what is read, how it is written, and whether less of it is better."""

    label: str
    value: Callable[[Any, Compared, int | None], int | float | str | None]
    text: Callable[..., str] = str
    less_is_better: bool = True


def differences_of(scenario: Scenario, marked: Sequence[Compared], bound_ticks: int | None) -> tuple[Difference, ...]:
    """Return the table: one row a figure, one value a schedule; what is not known yet is a dash.

    Of several ops the figures of each follow.
    """
    figures: tuple[_Figure, ...] = _FIGURES
    if scenario.only_case is None:
        figures = (*_GRAPH_FIGURES, *_op_figures(marked))
    return tuple(_difference(figure, scenario, marked, bound_ticks) for figure in figures)


def _difference(figure: _Figure, scenario: Scenario, marked: Sequence[Compared], bound_ticks: int | None) -> Difference:
    values = [figure.value(scenario, one, bound_ticks) for one in marked]
    texts = tuple(UNKNOWN if value is None else figure.text(value) for value in values)
    numbers = [value for value in values if isinstance(value, int | float)]
    best = None
    if figure.less_is_better and len(numbers) == len(values) and len(set(texts)) > 1:
        best = min(range(len(numbers)), key=lambda idx: numbers[idx])
    return Difference(figure.label, texts, best)


def launches_of(scenario: OpCase, schedule: OpPlan) -> int:
    """Kernels that rank 0 launches: one for each group and sum, one a stream of a persistent kernel.

    Of the copies and sums of the library there is one call.
    """
    kernels = [step for step in schedule.steps_of(0) if not isinstance(step, Transfer)]
    groups = [step for step in kernels if isinstance(step, TileGroup)]
    if schedule.engine.by_library:
        return len(groups) + 1
    if _persistent(scenario, schedule):
        return len({step.stream for step in groups}) + len(kernels) - len(groups)
    return len(kernels)


def waves_of(scenario: OpCase, schedule: OpPlan) -> int:
    """Waves of tiles of all kernels of rank 0, on the SMs that the schedule leaves to them."""
    here, sms = scenario.at(0), schedule.compute_sms
    groups = [step for step in schedule.steps_of(0) if isinstance(step, TileGroup)]
    if _persistent(scenario, schedule):
        streams = sorted({step.stream for step in groups})
        kernels = ([step for step in groups if step.stream == each] for each in streams)
        return sum(stream_work(here, schedule, kernel).waves for kernel in kernels)
    known: dict[object, int] = {}
    total = 0
    for step in groups:
        key = (compute_shape(here, step), step.accumulate)
        if key not in known:
            known[key] = work_of(here.gpu, key[0], sms, step.accumulate).waves
        total += known[key]
    return total


def _persistent(scenario: OpCase, schedule: OpPlan) -> bool:
    return schedule.tactics.kernel is Kernels.PERSISTENT and scenario.shape.gemm is not None


def _of_run(read: Callable[[ShownRun], int | float | str | None]) -> Callable[..., int | float | str | None]:
    return lambda scenario, one, bound_ticks: None if one.run is None else read(one.run)


def _of_schedule(read: Callable[..., int]) -> Callable[..., int | None]:
    return lambda scenario, one, bound_ticks: None if one.schedule is None else read(scenario.case, one.schedule)


def _of_result(read: Callable[[Result], int | float | str | None]) -> Callable[..., int | float | str | None]:
    return lambda scenario, one, bound_ticks: None if one.result is None else read(one.result)


def _gap(scenario: Scenario, one: Compared, bound_ticks: int | None) -> float | None:
    if one.run is None or not bound_ticks:
        return None
    return one.run.makespan_ticks / bound_ticks - 1


def _num(kind: type[Step]) -> Callable[..., int | None]:
    """The number of steps of a kind; a call of the library does not say how many it makes."""

    def count(scenario: Scenario, one: Compared, bound_ticks: int | None) -> int | None:
        if one.schedule is None:
            return None
        steps = one.schedule.steps_of(0)
        return None if one.schedule.engine.by_library else sum(isinstance(step, kind) for step in steps)

    return count


def _moved_by(scenario: OpCase, one: Compared, bound_ticks: int | None) -> str | None:
    return None if one.schedule is None else str(one.schedule.engine)


def _sms(scenario: OpCase, one: Compared, bound_ticks: int | None) -> str | None:
    if one.schedule is None:
        return None
    engine, sms = one.schedule.engine, f"{one.schedule.compute_sms} for kernels"
    return f"{sms}, {engine.copy_sms} copy" if engine.copy_sms else sms


def _share(share: float) -> str:
    return f"{share:.0%}"


_FIGURES = (
    _Figure("makespan", _of_result(lambda result: result.makespan_ticks), ticks_text),
    _Figure("exposed", _of_result(lambda result: result.exposed_ticks), ticks_text),
    _Figure("gap to the bound", _gap, lambda gap: f"{gap:.1%}"),
    _Figure("communication", _of_result(lambda result: result.comm_ticks), ticks_text),
    _Figure("compute", _of_result(lambda result: result.compute_ticks), ticks_text),
    _Figure("launches", _of_schedule(launches_of)),
    _Figure("waves", _of_schedule(waves_of)),
    _Figure("copies", _num(Transfer)),
    _Figure("sums", _num(Reduction)),
    _Figure("staging memory", _of_schedule(lambda _, schedule: schedule.staging_bytes), bytes_text),
    _Figure("moved by", _moved_by, less_is_better=False),
    _Figure("SMs", _sms, less_is_better=False),
    _Figure("engines busy", _of_result(lambda result: result.utilization.engines), _share, less_is_better=False),
    _Figure("SMs busy", _of_result(lambda result: result.utilization.sms), _share, less_is_better=False),
    _Figure("links busy", _of_result(lambda result: result.utilization.links), _share, less_is_better=False),
    _Figure("HBM busy", _of_result(lambda result: result.utilization.hbm), _share, less_is_better=False),
)

_GRAPH_FIGURES = (
    _Figure("makespan", _of_run(lambda run: run.makespan_ticks), ticks_text),
    _Figure("a layer", _of_run(lambda run: run.result.period_ticks), ticks_text),
    _Figure("exposed", _of_result(lambda result: result.exposed_ticks), ticks_text),
    _Figure("gap to the bound", _gap, lambda gap: f"{gap:.1%}"),
    _Figure("communication", _of_result(lambda result: result.comm_ticks), ticks_text),
    _Figure("compute", _of_result(lambda result: result.compute_ticks), ticks_text),
    _Figure("staging memory", _of_result(lambda result: result.schedule.staging_bytes), bytes_text),
    *(figure for figure in _FIGURES if figure.label.endswith(" busy") and not figure.label.startswith("engines")),
)
"""Figures of several ops: but for the first two of the layers that were simulated."""


def _op_figures(marked: Sequence[Compared]) -> Iterator[_Figure]:
    """A row for each op with how long its kernels take, and one with how long its copies run beside no kernel."""
    runs = [one.run for one in marked if one.run is not None]
    for name in dict.fromkeys(op.name for run in runs for op in op_times(run)):
        for label, read in _OP_TIMES:
            found = [read(op) for run in runs for op in op_times(run) if op.name == name]
            if any(found):
                yield _Figure(f"{name} {label}", partial(_of_op, name, read), ticks_text)


def _of_op(name: str, read: Callable[[OpSummary], int], _: Any, one: Compared, __: int | None) -> int | None:
    ops = () if one.run is None else op_times(one.run)
    return next((read(op) for op in ops if op.name == name), None)


_OP_TIMES: tuple[tuple[str, Callable[[OpSummary], int]], ...] = (
    ("kernels", lambda op: op.compute_ticks),
    ("copies", lambda op: op.comm_ticks),
    ("exposed", lambda op: op.exposed_ticks),
)
