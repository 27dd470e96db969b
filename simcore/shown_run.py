"""A finished run with all that is needed to show it: the Result and the plans that ran.

Pictures, traces and timelines take this one form: one op is a run of one part, several have one or two each, whose
steps stand in the timeline as ``part.step``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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
from .figures.metrics import DataFlow, flows_of, flows_to, shown_name
from .figures.result import Interval, IntervalKind, OpResult, Result
from .figures.spans import Span
from .lower.one_kernel import part_as_kernels
from .simulate_layers import SHOWN_LAYER


@dataclass(frozen=True, slots=True)
class ShownPart:
    """A plan that ran; names of its steps in the timeline begin with ``prefix``.

    ``label`` says what its op is; ``planned`` is the part of a plan, None where the scenario is that of one op.
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
        inside = (
            flow
            for part in self.parts
            for flow in flows_of(part.scenario, part.schedule, intervals, timeline.period, rank, part.prefix)
        )
        return (*inside, *self._between(rank, intervals))

    def _between(self, rank: int, intervals: Mapping[tuple[int, str], Interval]) -> Iterator[DataFlow]:
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
            yield from self._landing(rank, intervals, landing)
            for wait in planned.waits if planned is not None else ():
                ends = _last(own[f"{wait.on}."], wait), _first(own[part.prefix], wait)
                if ends[0] is not None and ends[1] is not None and wait.what is not Awaited.BEGUN:
                    yield DataFlow(rank, rank, wait.on, ends[0], ends[1], ())

    def _landing(
        self,
        rank: int,
        intervals: Mapping[tuple[int, str], Interval],
        landing: Mapping[str, Sequence[tuple[Interval, str]]],
    ) -> Iterator[DataFlow]:
        """Copies whose signals are waited for, by the prefix of their part."""
        by_prefix, period = {part.prefix: part for part in self.parts}, self.result.timeline.period
        for prefix, waits in landing.items():
            maker = by_prefix[prefix]
            yield from flows_to(maker.scenario, maker.schedule, intervals, period, rank, waits, prefix)

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
