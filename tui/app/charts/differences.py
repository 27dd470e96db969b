"""Marked schedules side by side: a table of their figures, and which of these differ."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ....compiler.ir import Kernels, OpCase, OpPlan, Reduction, Scenario, Step, TileGroup, Transfer
from ....compiler.text.units import bytes_text, ticks_text
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


Value = int | float | str | None


@dataclass(frozen=True, slots=True)
class _Figure:
    """A row of the table: what is read of a run, or of the plan of one op, and how it is written.

    ``several`` is whether it is of several ops alone, or of one alone; None is of both.
    """

    label: str
    of_run: Callable[[ShownRun], Value] | None = None
    text: Callable[..., str] = str
    of_plan: Callable[[OpCase, OpPlan], Value] | None = None
    less_is_better: bool = True
    several: bool | None = None

    def value(self, scenario: Scenario, one: Compared) -> Value:
        """What is read of a schedule, None where that is not known yet."""
        if self.of_plan is not None:
            return None if one.schedule is None else self.of_plan(scenario.case, one.schedule)
        return None if one.run is None or self.of_run is None else self.of_run(one.run)


def differences_of(scenario: Scenario, marked: Sequence[Compared], bound_ticks: int | None) -> tuple[Difference, ...]:
    """Return the table: one row a figure, one value a schedule; what is not known yet is a dash.

    Of several ops the figures of each follow.
    """
    several = scenario.only_case is None
    figures = [each for each in _figures(bound_ticks) if each.several in (None, several)]
    figures += _op_figures(marked) if several else ()
    return tuple(_difference(figure, scenario, marked) for figure in figures)


def _difference(figure: _Figure, scenario: Scenario, marked: Sequence[Compared]) -> Difference:
    values = [figure.value(scenario, one) for one in marked]
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


def _num(plan: OpPlan, kind: type[Step]) -> int | None:
    """The number of steps of a kind; a call of the library does not say how many it makes."""
    return None if plan.engine.by_library else sum(isinstance(step, kind) for step in plan.steps_of(0))


def _sms(_: OpCase, plan: OpPlan) -> str:
    engine, sms = plan.engine, f"{plan.compute_sms} for kernels"
    return f"{sms}, {engine.copy_sms} copy" if engine.copy_sms else sms


def _share(share: float) -> str:
    return f"{share:.0%}"


def _figures(bound_ticks: int | None) -> Iterator[_Figure]:
    """Yield all rows; times of several ops are, but for the first two, of the layers that were simulated."""

    def gap(run: ShownRun) -> float | None:
        return run.makespan_ticks / bound_ticks - 1 if bound_ticks else None

    of_one, neutral = partial(_Figure, several=False), partial(_Figure, less_is_better=False)
    yield _Figure("makespan", lambda run: run.makespan_ticks, ticks_text)
    yield _Figure("a layer", lambda run: run.result.period_ticks, ticks_text, several=True)
    yield _Figure("exposed", lambda run: run.result.exposed_ticks, ticks_text)
    yield _Figure("gap to the bound", gap, lambda gap: f"{gap:.1%}")
    yield _Figure("communication", lambda run: run.result.comm_ticks, ticks_text)
    yield _Figure("compute", lambda run: run.result.compute_ticks, ticks_text)
    yield of_one("launches", of_plan=launches_of)
    yield of_one("waves", of_plan=waves_of)
    yield of_one("copies", of_plan=lambda _, plan: _num(plan, Transfer))
    yield of_one("sums", of_plan=lambda _, plan: _num(plan, Reduction))
    yield of_one("staging memory", of_plan=lambda _, plan: plan.staging_bytes, text=bytes_text)
    yield _Figure("staging memory", lambda run: run.result.schedule.staging_bytes, bytes_text, several=True)
    yield neutral("moved by", of_plan=lambda _, plan: str(plan.engine), several=False)
    yield neutral("SMs", of_plan=_sms, several=False)
    yield neutral("engines busy", lambda run: run.result.utilization.engines, _share, several=False)
    yield neutral("SMs busy", lambda run: run.result.utilization.sms, _share)
    yield neutral("links busy", lambda run: run.result.utilization.links, _share)
    yield neutral("HBM busy", lambda run: run.result.utilization.hbm, _share)


def _op_figures(marked: Sequence[Compared]) -> Iterator[_Figure]:
    """A row for each op with how long its kernels take, and one with how long its copies run beside no kernel."""
    runs = [one.run for one in marked if one.run is not None]
    for name in dict.fromkeys(op.name for run in runs for op in op_times(run)):
        for label, read in _OP_TIMES:
            found = [read(op) for run in runs for op in op_times(run) if op.name == name]
            if any(found):
                yield _Figure(f"{name} {label}", partial(_of_op, name, read), ticks_text)


def _of_op(name: str, read: Callable[[OpSummary], int], run: ShownRun) -> int | None:
    return next((read(op) for op in op_times(run) if op.name == name), None)


_OP_TIMES: tuple[tuple[str, Callable[[OpSummary], int]], ...] = (
    ("kernels", lambda op: op.compute_ticks),
    ("copies", lambda op: op.comm_ticks),
    ("exposed", lambda op: op.exposed_ticks),
)
