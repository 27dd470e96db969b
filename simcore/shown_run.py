"""A finished run with all that is needed to show it: the Result and the plans that ran.

Pictures, traces and timelines take this one form: one op is a run of one part, several have one or two each, whose
steps stand in the timeline as ``part.step``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..compiler.ir import (
    Awaited,
    Network,
    OpCase,
    OpPlan,
    Part,
    PartWait,
    Plan,
    Scenario,
    Schedule,
    Step,
    System,
    Workload,
)
from ..compiler.planning.groups import labels_of
from ..compiler.planning.plan import build_plan, in_layer, own_name
from ..compiler.text.units import ticks_text
from .figures.load_buckets import Span, overlap_ticks, total_ticks, union_of, union_of_spans
from .figures.metrics import DataFlow, StepFlows, shown_name
from .figures.result import Interval, IntervalKind, OpResult, Result
from .lower.one_kernel import part_as_kernels
from .simulate_layers import SHOWN_LAYER


@dataclass(frozen=True, slots=True)
class ShownPart:
    """One part of a run; names of its steps in the timeline begin with ``prefix``.

    ``scenario`` and ``schedule`` are the op and its steps, ``label`` the pattern of the op for people. ``planned`` is
    the part of the plan, None in the run of one op.
    """

    prefix: str
    scenario: OpCase
    schedule: OpPlan
    label: str
    planned: Part | None = None

    @property
    def op(self) -> str:
        """The op that it carries out, or half of one; empty in the run of one op."""
        return "" if self.planned is None else self.planned.op

    @property
    def layer(self) -> int:
        """The layer of its op, from 1."""
        return 1 if self.planned is None else self.planned.layer

    def shown(self, step: Step) -> str:
        """The name of a step in the timeline."""
        return self.prefix + shown_name(self.scenario, self.schedule, step)


@dataclass(frozen=True, eq=False)
class ShownRun:
    """``title`` is the name of the workload, ``expression`` that of the schedule."""

    title: str
    expression: str
    system: System
    result: Result
    parts: tuple[ShownPart, ...]

    @property
    def ops(self) -> tuple[OpResult, ...]:
        """The times of ops; none where the scenario is that of one op, which is the whole."""
        return () if self.parts[0].planned is None else self.result.ops

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return self.system.num_ranks

    @property
    def network(self) -> Network:
        """The graph of the fabric."""
        return self.parts[0].scenario.network

    @property
    def makespan_ticks(self) -> int:
        """The time of all layers, simulated or repeated."""
        return self.result.total_ticks

    @property
    def makespan_text(self) -> str:
        """The same with its unit, ``~`` before an estimate."""
        return f"{'~' if self.result.is_estimate else ''}{ticks_text(self.makespan_ticks)}"

    @cached_property
    def _steps(self) -> dict[int, dict[str, tuple[ShownPart, Step]]]:
        return {}

    def _steps_of(self, rank: int) -> dict[str, tuple[ShownPart, Step]]:
        if rank not in self._steps:
            steps = ((part, step) for part in self.parts for step in part.schedule.steps_of(rank))
            found: dict[str, tuple[ShownPart, Step]] = {}
            for part, step in steps:
                found.setdefault(part.shown(step), (part, step))
            self._steps[rank] = found
        return self._steps[rank]

    def part_of(self, rank: int, name: str) -> ShownPart:
        """The part to which the interval ``name`` of a rank belongs."""
        found = self._steps_of(rank).get(name)
        return self.parts[0] if found is None else found[0]

    def step_of(self, rank: int, name: str) -> Step | None:
        """The step of the interval ``name`` of a rank; None where a call of the library stands for several."""
        part, step = self._steps_of(rank).get(name, (None, None))
        return step if part is not None and step is not None and part.prefix + step.name == name else None

    def flows(self, rank: int) -> tuple[DataFlow, ...]:
        """What each step of an absolute ``rank`` waits for: transfers of its part, and what it reads of other ops."""
        timeline = self.result.timeline
        intervals = {(each.rank, each.name): each for each in timeline.intervals}
        of_parts = {
            part.prefix: StepFlows(part.scenario, part.schedule, intervals, timeline.period, part.prefix)
            for part in self.parts
        }
        inside = (flow for each in of_parts.values() for flow in each.of(rank))
        return (*inside, *self._between(rank, of_parts))

    def _between(self, rank: int, of_parts: Mapping[str, StepFlows]) -> Iterator[DataFlow]:
        """What steps of one op wait for in another: rows that a step makes or copies bring, or the end of a part."""
        own = self.intervals_of_parts(rank)
        by_name = {interval.name: interval for of_part in own.values() for interval in of_part}
        for part in self.parts:
            planned, landing = part.planned, dict[str, list[tuple[Interval, str]]]()
            for each in planned.step_waits if planned is not None else ():
                maker, waiter = by_name.get(f"{each.on}.{each.of}"), by_name.get(part.prefix + each.step)
                if maker is not None and waiter is not None:
                    yield DataFlow(rank, rank, each.on, maker, waiter, ())
                elif waiter is not None:
                    landing.setdefault(f"{each.on}.", []).append((waiter, each.of))
            for prefix, waits in landing.items():  # copies of other parts
                yield from of_parts[prefix].to(rank, waits)
            for wait in planned.waits if planned is not None else ():
                ends = _last(own[f"{wait.on}."], wait), _first(own[part.prefix], wait)
                if ends[0] is not None and ends[1] is not None and wait.what is not Awaited.BEGUN:
                    yield DataFlow(rank, rank, wait.on, ends[0], ends[1], ())

    def intervals_of_parts(self, rank: int) -> dict[str, list[Interval]]:
        """The intervals of a rank by the prefix of their part, in the order of the timeline."""
        found: dict[str, list[Interval]] = {part.prefix: [] for part in self.parts}
        for interval in self.result.timeline.of_rank(rank):
            found[self.part_of(rank, interval.name).prefix].append(interval)
        return found

    @property
    def shown_span(self) -> Span:
        """The time to look at first: the run, and of layers that repeat one within, which stands for all."""
        layer = [op for op in self.ops if op.name == in_layer(own_name(op.name), SHOWN_LAYER)]
        if self.result.num_simulated <= SHOWN_LAYER or not layer:
            return 0, self.result.makespan_ticks
        return min(op.begin_ticks for op in layer), max(op.end_ticks for op in layer)


def _last(makers: Sequence[Interval], wait: PartWait) -> Interval | None:
    """The interval after which what is waited for is there: of what is gathered a copy."""
    chosen = (each for each in makers if wait.what is Awaited.END or each.kind is IntervalKind.COMM)
    return max(chosen, key=lambda each: each.end_ticks, default=None)


def _first(waiting: Sequence[Interval], wait: PartWait) -> Interval | None:
    """The interval that begins when what is waited for is there."""
    chosen = (each for each in waiting if not wait.kernels_only or each.kind is not IntervalKind.COMM)
    return min(chosen, key=lambda each: each.start_ticks, default=None)


def run_of(scenario: OpCase | Scenario, result: Result, schedule: Schedule | Plan | None = None) -> ShownRun:
    """Return the run of a scenario: of one op under ``result.schedule``, of several under ``schedule``.

    Of layers that repeat it has those that were simulated.
    """
    if isinstance(scenario, OpCase):
        only = ShownPart("", scenario, result.schedule, scenario.shape.label)
        return ShownRun(scenario.shape.name, result.schedule.expression, scenario.system, result, (only,))
    assert schedule is not None, "several ops have no schedule in common"
    system, workload = scenario.system, scenario.workload
    plan = schedule
    if isinstance(plan, Schedule):
        plan = build_plan(system, workload, plan, result.num_simulated)
    name = schedule.name if isinstance(schedule, Schedule) else schedule.expression
    return ShownRun(scenario.title, name, system, result, tuple(_shown_parts(system, workload, plan)))


def _shown_parts(system: System, workload: Workload, plan: Plan) -> Iterator[ShownPart]:
    alone, labels = len(plan.parts) == 1, labels_of(workload, plan.cut)
    for part in plan.parts:
        here = OpCase(part.name, system, part.shape)
        prefix = "" if alone else f"{part.name}."
        yield ShownPart(prefix, here, part_as_kernels(here, plan, part), labels[own_name(part.op)], part)


# The ops of a workload over time at one rank: when kernels and copies of each run, and what runs beside its copies.

LEAST_REPORTED = 0.05
"""Share of the time of its copies from which on an op beside them is told."""


@dataclass(frozen=True, slots=True)
class OpSpan:
    """One op in one layer at one rank: ``kernels`` and ``copies`` are the spans in which any of them run.

    ``schedule`` is how it is carried out, empty for a kernel alone that is whole.
    """

    name: str
    layer: int
    label: str
    schedule: str
    kernels: tuple[Span, ...]
    copies: tuple[Span, ...]

    @property
    def start_ticks(self) -> int:
        """The begin of its first step."""
        return min(start for start, _ in (*self.kernels, *self.copies))

    @property
    def end_ticks(self) -> int:
        """The end of its last step."""
        return max(end for _, end in (*self.kernels, *self.copies))


@dataclass(frozen=True, slots=True)
class OpRow:
    """An op in all layers, in the order of time; where a layer begins it before the last one ends, in further rows."""

    name: str
    spans: tuple[OpSpan, ...]


def op_rows(run: ShownRun, rank: int) -> tuple[OpRow, ...]:
    """Return the rows of ``rank`` in the order in which ops are issued; none for a pair."""
    by_op: dict[str, list[OpSpan]] = {}
    for span in op_spans(run, rank):
        by_op.setdefault(own_name(span.name), []).append(span)
    return tuple(OpRow(name, row) for name, spans in by_op.items() for row in _rows(spans))


def op_spans(run: ShownRun, rank: int) -> tuple[OpSpan, ...]:
    """Return each op of every layer at ``rank``, in the order in which they are issued; none for a pair."""
    intervals = run.intervals_of_parts(rank)
    found = []
    for op in dict.fromkeys(part.op for part in run.parts if part.op):
        parts = [part for part in run.parts if part.op == op]
        own = [interval for part in parts for interval in intervals[part.prefix]]
        if own:
            copies = union_of(each for each in own if each.kind is IntervalKind.COMM)
            kernels = union_of(each for each in own if each.kind is not IntervalKind.COMM)
            found.append(OpSpan(op, parts[0].layer, parts[0].label, _carried_out(parts), kernels, copies))
    return tuple(found)


def _carried_out(parts: Sequence[ShownPart]) -> str:
    """How an op is carried out, where there is a choice: kernels alone are as usual unless they are cut."""
    moving = [part for part in parts if part.scenario.shape.moved is not None]
    if not moving:
        return parts[0].schedule.expression if len(parts[0].schedule.steps) > 1 else ""
    return moving[0].schedule.expression if len(parts) == 1 else f"apart by {moving[0].schedule.engine}"


@dataclass(frozen=True, slots=True)
class OpSummary:
    """The times of an op at rank 0, in the layer that is shown for all.

    ``beside`` are (op, ticks) of the ops whose kernels run during its copies, the longest first; ``exposed_ticks`` is
    how long its copies run while no kernel does.
    """

    span: OpSpan
    compute_ticks: int
    comm_ticks: int
    exposed_ticks: int
    beside: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """Its name without the layer."""
        return own_name(self.span.name)

    @property
    def beside_text(self) -> str:
        """What runs beside its copies, with shares of their time; empty where nothing does to speak of."""
        reported = (pair for pair in self.beside if pair[1] >= self.comm_ticks * LEAST_REPORTED)
        return ", ".join(f"{self._said(name)} ({ticks / self.comm_ticks:.0%})" for name, ticks in reported)

    def _said(self, name: str) -> str:
        """An op of its layer by its name, others with their layer."""
        layer = int(name.partition("@")[2] or 1)
        where = {-1: " of the layer before", 1: " of the next layer"}.get(layer - self.span.layer, "")
        return f"{own_name(name)}{where}"


@lru_cache(maxsize=16)
def op_times(run: ShownRun) -> tuple[OpSummary, ...]:
    """Return the ops of one layer in the order in which they are issued; none for a pair."""
    spans = op_spans(run, 0)
    layer = min(SHOWN_LAYER, run.result.num_simulated)
    kernels = union_of_spans(span for each in spans for span in each.kernels)
    return tuple(_reported(each, spans, kernels) for each in spans if each.layer == layer)


def _reported(op: OpSpan, spans: Sequence[OpSpan], kernels: Sequence[Span]) -> OpSummary:
    hiding = [(each.name, overlap_ticks(op.copies, each.kernels)) for each in spans]
    comm = total_ticks(op.copies)
    return OpSummary(
        op,
        total_ticks(op.kernels),
        comm,
        comm - overlap_ticks(op.copies, kernels),
        tuple(sorted((pair for pair in hiding if pair[1]), key=lambda pair: -pair[1])),
    )


def _rows(spans: Iterable[OpSpan]) -> Iterator[tuple[OpSpan, ...]]:
    """Deal spans to rows, each to the first that is free when it begins."""
    rows: list[list[OpSpan]] = []
    for span in sorted(spans, key=lambda each: (each.start_ticks, each.end_ticks)):
        free = next((row for row in rows if row[-1].end_ticks <= span.start_ticks), None)
        if free is None:
            rows.append([span])
        else:
            free.append(span)
    yield from map(tuple, rows)
