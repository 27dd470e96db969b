"""GraphPlan -> Program: the plans of several parts on one machine, with the waits between them.

Each part is lowered as it would be alone, with its own hits in caches: what lands for it is what may lie between a
write and its read. Streams and engines are shared:

- Kernels of a stream run in the order of parts. Streams of a plan beyond its first begin with its part, behind the
  kernels that were issued before.
- A lone collective begins when the part before it in its stream has ended at its rank. One that reads nothing of
  other ops also waits for the kernels that were issued before it, as libraries make it wait for the stream it is called
  from.
- SMs that copy for any part are taken from the kernels of all, for as long as the program lasts.

A kernel that waits for copies, or for another stream, waits for an event as it does inside a plan.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...compiler.ir import (
    Awaited,
    EngineMode,
    GraphPlan,
    Kernels,
    Part,
    PartWait,
    Scenario,
    Schedule,
    Step,
    System,
    TileGroup,
    Transfer,
    checkpoint,
)
from ..program.builder import ProgramBuilder
from ..program.program import OpKind, Program
from .cache_hits import Hits
from .collective import with_library_links
from .machine import Idealization, Machine, build_machine, issues_commands
from .one_kernel import is_one_kernel
from .plan import Lowered, lower_steps, period_of, signals_at
from .state import Foreign, Lowering
from .whole_tiles import in_whole_tiles


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """The Program of a graph plan; each of ``parts`` is lowered into it, in the order of the plan, as its ``ops``."""

    system: System
    plan: GraphPlan
    program: Program
    parts: tuple[Lowered, ...]
    ops: tuple[range, ...]


def graph_period(system: System, plan: GraphPlan) -> int:
    """The least shift of all ranks that changes no plan of a part and not the fabric."""
    return math.lcm(*(period_of(_scenario(system, part), part.schedule) for part in plan.parts))


def lower_graph(
    system: System,
    plan: GraphPlan,
    *,
    unit_bytes: int,
    fold: bool = True,
    ideal: Idealization = Idealization.NONE,
) -> LoweredGraph:
    """Lower a checked ``plan``; see ``lower``.

    Raises
    ------
    ValueError
        As ``lower``.
    """
    if unit_bytes < 1 or unit_bytes % system.gpu.line_bytes:
        raise ValueError(f"granularity must be a multiple of {system.gpu.line_bytes} B, got {unit_bytes} B")
    plan = replace(plan, parts=tuple(_on_all_sms(system, plan)))
    period = graph_period(system, plan) if fold else system.num_ranks
    builder = ProgramBuilder(system.num_ranks, period=period, unit_bytes=unit_bytes)
    composer = _Composer(plan, builder, _machines(builder, system, plan, unit_bytes, ideal), period)
    states, ops = list[Lowering](), list[range]()
    for part in plan.parts:
        checkpoint()
        first = builder.num_ops
        states.append(composer.lower(_scenario(system, part), part, unit_bytes, ideal))
        ops.append(range(first, builder.num_ops))
    program = builder.build()
    parts = (Lowered(s.scenario, s.schedule, program, tuple(s.step_ops.values()), s.machine, s.hits) for s in states)
    return LoweredGraph(system, plan, program, tuple(parts), tuple(ops))


def _scenario(system: System, part: Part) -> Scenario:
    return Scenario(part.name, system, part.workload)


def _on_all_sms(system: System, plan: GraphPlan) -> Iterator[Part]:
    """The parts with the SMs that are left to kernels while those that copy are taken, for any of them."""
    if len(plan.parts) == 1:
        yield from plan.parts
        return
    engines = [part.schedule.engine for part in plan.parts if part.workload.moved is not None]
    taken = max((engine.count for engine in engines if not engine.leaves_all_sms), default=0)
    for part in plan.parts:
        yield replace(part, schedule=replace(part.schedule, compute_sms=system.gpu.sms - taken))


def _machines(
    builder: ProgramBuilder, system: System, plan: GraphPlan, unit_bytes: int, ideal: Idealization
) -> dict[str, Machine]:
    """One machine for all parts, with the pool of engines that each has; by the name of the part."""
    moving = [part for part in plan.parts if part.workload.moved is not None] or plan.parts[:1]
    for part in moving:
        system = with_library_links(_scenario(system, part), part.schedule).system
    kernels = (part for part in plan.parts if not part.workload.is_collective)
    scenario = _scenario(system, next(kernels, plan.parts[0]))
    largest: dict[object, Schedule] = {}
    for part in moving:
        key = _pool_key(part.schedule)
        if key not in largest or part.schedule.engine.count > largest[key].engine.count:
            largest[key] = part.schedule
    machines: dict[object, Machine] = {}
    for key, schedule in largest.items():
        shared = next(iter(machines.values()), None)
        machines[key] = build_machine(builder, scenario, schedule, unit_bytes, ideal, shared)
    issue = next((machine.issue for machine in machines.values() if machine.issue is not None), None)
    found = {}
    for part in plan.parts:
        machine = machines.get(_pool_key(part.schedule), next(iter(machines.values())))
        found[part.name] = replace(machine, issue=issue if issues_commands(scenario, part.schedule) else None)
    return found


def _pool_key(schedule: Schedule) -> object:
    """Schedules with the same key share a pool of engines."""
    engine = schedule.engine
    return "sms" if engine.mode in (EngineMode.SHARED, EngineMode.TILES) else engine.kind


@dataclass(slots=True)
class _Ends:
    """What others may wait for in a part that is lowered: ops by rank for each ``Awaited`` and each kernel by name."""

    stream: int
    in_kernels: bool  # whether it ends in kernels alone
    parts: dict[Awaited, tuple[tuple[int, ...], ...]]
    steps: dict[str, tuple[tuple[int, ...], ...]]


@dataclass(slots=True)
class _Composer:
    """Lowers the parts of a plan one after the other."""

    plan: GraphPlan
    builder: ProgramBuilder
    machines: dict[str, Machine]
    period: int
    ends: dict[str, _Ends] = field(default_factory=dict)  # by part
    issued: dict[int, int] = field(default_factory=dict)  # kernels and copies, by rank: one host issues them all
    queues: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)  # last ops by rank and stream

    def lower(self, scenario: Scenario, part: Part, unit_bytes: int, ideal: Idealization) -> Lowering:
        """Lower one part behind those before it."""
        prefix = f"{part.name}." if len(self.plan.parts) > 1 else ""
        builder = self.builder.scoped(prefix, self._priorities(part))
        schedule = _with_waits(scenario, part, in_whole_tiles(scenario, part.schedule))
        machine = self.machines[part.name]
        state = Lowering(scenario, schedule, unit_bytes, builder, machine, ideal, self.period, Hits(scenario, schedule))
        state.foreign, state.num_issued = self._foreign(part), self.issued
        lower_steps(state)
        for rank in range(self.period):
            whole = (op for wait in part.waits for op in self.ends[wait.on].parts[wait.what][rank])
            rows = (op for step in part.step_waits for op in self.ends[step.on].steps[step.of][rank])
            builder.after(state.gates.get(rank, ()), dict.fromkeys((*whole, *rows)))
            self._queue(state, part, rank)
        self.ends[part.name] = _ends(state, part)
        return state

    def _priorities(self, part: Part) -> dict[OpKind, int]:
        """Of what a part runs on the SMs of kernels."""
        found = {OpKind.TILE: part.priority, OpKind.REDUCE: self.plan.sums_priority or part.priority}
        return found | ({OpKind.TRANSFER: part.priority} if part.schedule.engine.mode is EngineMode.SHARED else {})

    def _foreign(self, part: Part) -> dict[str, Foreign]:
        """What the steps of ``part`` wait for in others, by the name that ``_with_waits`` gives it."""
        found = {}
        for wait in part.waits:
            ends = self.ends[wait.on]
            before = wait.what is Awaited.END and ends.in_kernels and ends.stream == part.stream
            found[_whole(wait)] = Foreign(ends.parts[wait.what], before)
        for step in part.step_waits:
            ends = self.ends[step.on]
            found[_single(step.on, step.of)] = Foreign(ends.steps[step.of], ends.stream == part.stream)
        return found

    def _queue(self, state: Lowering, part: Part, rank: int) -> None:
        """Make the kernels of a part, or all of a lone collective, follow what came before in their streams."""
        before: dict[int, list[int]] = {}
        steps = state.schedule.steps_of(rank)
        kernels: dict[int, list[int]] = {}  # their ends, by stream of the plan
        if part.workload.is_collective:
            behind = self.queues.get((rank, part.stream, 0), [])
            behind = [*behind, *(self.queues.get((rank, 0, 0), []) if part.behind_kernels else ())]
            heads = [step for step in steps if not _local_waits(state.schedule, step, steps)]
            first = (op for step in heads for op in state.waiters[rank, step.name].on_kernels)
            self.builder.after(() if state.one_kernel else tuple(first), behind)
            self.builder.after(state.gates.get(rank, ()), behind)
            self.queues[rank, part.stream, 0] = sorted({state.step_ops[rank, step.name].done for step in steps})
            return
        persistent = state.schedule.tactics.kernel is Kernels.PERSISTENT and bool(state.gates.get(rank))
        for step in steps:
            if isinstance(step, Transfer):
                continue
            if step.stream not in kernels:
                same, first_stream = (self.queues.get((rank, part.stream, k), []) for k in (step.stream, 0))
                before[step.stream] = list(dict.fromkeys((*same, *first_stream)))
                gated = persistent and isinstance(step, TileGroup)
                ops = state.gates[rank] if gated else state.waiters[rank, step.name].on_kernels
                self.builder.after(ops, before[step.stream])
            done = state.step_ops[rank, step.name].done
            kernels[step.stream] = [*kernels.get(step.stream, ()), done] if persistent else [done]
        self.queues |= {(rank, part.stream, stream): ends for stream, ends in kernels.items()}


def _with_waits(scenario: Scenario, part: Part, schedule: Schedule) -> Schedule:
    """``schedule`` whose steps also name what they wait for in other parts.

    What one launch or call carries out waits there: at the gates of the lowered part.
    """
    if not part.waits and not part.step_waits:
        return schedule
    held = is_one_kernel(scenario, schedule) or (schedule.engine.by_library and scenario.workload.is_collective)

    def waiting(steps: Sequence[Step]) -> tuple[Step, ...]:
        if held:
            return tuple(steps)
        return tuple(
            replace(step, after=tuple(dict.fromkeys((*step.after, *names))))
            for step, names in zip(steps, _names(part, schedule, steps), strict=True)
        )

    overridden = {each.rank: waiting(schedule.steps_of(each.rank)) for each in schedule.overrides}
    return replace(
        schedule,
        steps=waiting(schedule.steps),
        by_rank=tuple(waiting(steps) for steps in schedule.by_rank),
        overrides=tuple(
            replace(each, step=next(step for step in overridden[each.rank] if step.name == each.step.name))
            for each in schedule.overrides
        ),
    )


def _names(part: Part, schedule: Schedule, steps: Sequence[Step]) -> Iterator[list[str]]:
    """For each of ``steps`` the names of what it waits for in other parts.

    That of a whole part the copies wait for that wait for no step of their own plan, and the first kernel of each
    stream; the others come after these.
    """
    by_step: dict[str, list[str]] = {}
    for wait in part.step_waits:
        by_step.setdefault(wait.step, []).append(_single(wait.on, wait.of))
    every = [_whole(wait) for wait in part.waits]
    for_copies = [_whole(wait) for wait in part.waits if not wait.kernels_only]
    persistent, streams = schedule.tactics.kernel is Kernels.PERSISTENT, set[int]()
    for step in steps:
        names = by_step.get(step.name, [])
        if isinstance(step, Transfer):
            yield names + (for_copies if not _local_waits(schedule, step, steps) else [])
            continue
        first = step.stream not in streams
        streams.add(step.stream)
        gated = persistent and part.workload.gemm is not None
        yield names + (every if first and not gated else [])


def _local_waits(schedule: Schedule, step: Step, steps: Sequence[Step]) -> bool:
    """Whether a step waits for anything in its own plan."""
    return bool({*step.after} - {name for name in step.after if name.startswith(_MARK)})


_MARK = "@"
"""Begins the names of what is in other parts, which no step of a plan has."""


def _whole(wait: PartWait) -> str:
    return f"{_MARK}{wait.on} {wait.what.name}"


def _single(part: str, step: str) -> str:
    return f"{_MARK}{part}.{step}"


def _ends(state: Lowering, part: Part) -> _Ends:
    """What others may wait for in a part that has been lowered."""
    ranks = range(state.period)
    landed = tuple(tuple(_landed(state, rank)) for rank in ranks)
    awaited = {name for step in state.schedule.steps if not isinstance(step, Transfer) for name in step.after}
    arriving = {arrival.transfer.signal for arrival in state.hits.arrivals(0)}
    return _Ends(
        stream=part.stream,
        in_kernels=not part.workload.is_collective and arriving <= awaited,
        parts={
            Awaited.END: tuple(tuple(_all_of(state, rank, landed[rank])) for rank in ranks),
            Awaited.LANDED: landed,
            Awaited.BEGUN: tuple(tuple(_begun(state, rank)) for rank in ranks),
        },
        steps={
            step.name: tuple((state.step_ops[rank, step.name].done,) for rank in ranks)
            for step in state.schedule.steps
            if not isinstance(step, Transfer) and all((rank, step.name) in state.step_ops for rank in ranks)
        },
    )


def _landed(state: Lowering, rank: int) -> Iterable[int]:
    """The ends of all transfers that land at ``rank``."""
    senders = (sender for each in signals_at(state, rank).values() for sender in each)
    return dict.fromkeys(state.step_ops[sender].done for sender in senders)


def _all_of(state: Lowering, rank: int, landed: Iterable[int]) -> list[int]:
    """The op that is done when everything is over at ``rank``: its steps, what lands there, and looks at flags."""
    own = [ops.done for (at, _), ops in state.step_ops.items() if at == rank]
    looks = [op for (at, _), op in state.kernels.seen.items() if at == rank]
    ops = sorted({*own, *landed, *looks})
    return ops if len(ops) == 1 else [state.join(rank, "end", ops)]


def _begun(state: Lowering, rank: int) -> Iterable[int]:
    """The launches of the kernels that begin a part, or what a lone collective begins with."""
    steps = state.schedule.steps_of(rank)
    kernels = [step for step in steps if isinstance(step, TileGroup)]
    gates = state.gates.get(rank, [])
    if not kernels or (gates and not state.waiters[rank, kernels[0].name].queued):
        return tuple(gates)
    return tuple(state.waiters[rank, kernels[0].name].on_kernels)
