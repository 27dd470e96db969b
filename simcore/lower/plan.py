"""System + Plan -> Program: the plans of all parts on one machine, with the waits between them.

A plan of one op has one part. Each part is lowered as it would be alone, with its own hits in caches: what arrives for
it is what may lie between a write and its read. Streams and engines are shared:

- Kernels of a stream run in the order of parts. Streams of a plan beyond its first begin with its part, behind the
  kernels that were issued before.
- Parts by as many copy engines share them; those by fewer have some of their own, as far as the GPU has so many.
- A lone collective begins when the part before it in its stream has ended at its rank. One that reads nothing of
  other ops also waits for the kernels that were issued before it, as libraries make it wait for the stream it is called
  from.
- SMs that copy for a part are taken from the kernels that may run meanwhile, for as long as these run
  (``part_waits.py``). The channels of a library queue for the SMs of the kernels, and have them while they run.

A kernel that waits for copies, or for another stream, waits for an event as it does inside a plan.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter

import numpy as np

from ...compiler.ir import (
    BackgroundWrite,
    EngineKind,
    IndexRange,
    Kernels,
    OpCase,
    OpPlan,
    Part,
    Plan,
    Reduction,
    Region,
    Step,
    System,
    TileGroup,
    Transfer,
    Write,
    checkpoint,
)
from ..kernels.gemm import ticks_for
from ..program.builder import ProgramBuilder
from ..program.program import Flow, OpKind, OpSpec, Program, Stage, TrafficClass
from .cache_hits import Hits
from .collective import copied
from .machine import Idealization, Machine, build_machine, issues_commands
from .one_kernel import part_as_kernels
from .part_waits import Ends, ends_of_part, foreign_of, sms_of_parts, waits_inside, with_waits
from .state import Lowering, Runs
from .steps import LoweredPart, lower_steps, period_of

# Traffic of other programs: writes to peers that begin by themselves, and that nothing in a plan waits for.

LABEL = "traffic"


def add_writes(builder: ProgramBuilder, state: Lowering, writes: Sequence[BackgroundWrite]) -> None:
    """Add ``writes`` behind all else on the machine of ``state``, each at the pace of a copy engine and its links."""
    scenario, memory = state.scenario, state.machine.memory_for(TrafficClass.COMM)
    n = scenario.num_ranks
    for write in writes:
        links = scenario.network.route(write.rank, write.target)
        rate = min(scenario.gpu.dma.bytes_per_s, *(link.bytes_per_s for link in links))
        gap = ticks_for(state.unit_bytes, rate)
        ends = (memory.hbm, write.rank % n), (memory.hbm, write.target % n)
        route = (ends[0], *state.machine.route(write.rank, write.target), ends[1])
        flow = Flow(route, state.units(write.num_bytes), gap, gap, TrafficClass.COMM)
        spec = OpSpec(OpKind.TRAFFIC, LABEL, (Stage(0, copied(state, flow)),), release_ticks=write.ticks)
        builder.op(write.rank, spec)


def period_if_alike(schedule: OpPlan, num_ranks: int) -> int:
    """The ranks of a plan to lower if the fabric were the same around each: one, if ranks differ by peers alone."""
    if schedule.overrides:
        return num_ranks
    first, *others = schedule.by_rank or ((),)
    same = all(len(steps) == len(first) and all(map(_alike, first, steps)) for steps in others)
    return 1 if same else schedule.period(num_ranks)


_OF_TRANSFER = attrgetter(*(each.name for each in fields(Transfer) if each.name not in ("peer", "region")))
_OF_REDUCTION = attrgetter(*(each.name for each in fields(Reduction) if each.name != "region"))
_OF_GROUP = attrgetter(*(each.name for each in fields(TileGroup) if each.name != "regions"))


def _alike(one: Step, other: Step) -> bool:
    """Whether steps of two ranks are the same, whoever their peers are and whosever blocks they take."""
    match one, other:
        case (Transfer(), Transfer()):
            return _OF_TRANSFER(one) == _OF_TRANSFER(other) and _parts(one.region) == _parts(other.region)
        case (Reduction(), Reduction()):
            return _OF_REDUCTION(one) == _OF_REDUCTION(other) and _parts(one.region) == _parts(other.region)
        case (TileGroup(), TileGroup()):
            return _OF_GROUP(one) == _OF_GROUP(other) and [*map(_parts, one.regions)] == [*map(_parts, other.regions)]
    return False


def _parts(region: Region) -> tuple[IndexRange, IndexRange, int]:
    return region.rows, region.cols, len(region.also)


MAIN_STREAM = 0

Writes = Mapping[tuple[int, str], Sequence[Write]]


@dataclass(frozen=True, slots=True)
class Lowered:
    """The Program of a plan; each of ``parts`` is lowered into it, in the order of the plan, as its ``ops``."""

    system: System
    plan: Plan
    program: Program
    parts: tuple[LoweredPart, ...]
    ops: tuple[range, ...]

    def with_program(self, program: Program) -> "Lowered":
        """Return the same plan as a program with other times."""
        return replace(self, program=program, parts=tuple(replace(part, program=program) for part in self.parts))

    @property
    def only_shifts(self) -> bool:
        """Whether to take it that no fewer ranks can stand for all than those of the ``program``.

        Where all ranks have the same plan, with peers counted from the own rank, and use every link, shifts alone map
        it onto itself; and those that map the fabric onto itself are used already. If that misses others, more is
        simulated than need be, with the same times.
        """
        program, ranks = self.program, self.program.ranks_simulated
        if not 1 < ranks < program.num_ranks:
            return False
        if any(part.schedule.period(program.num_ranks) != 1 for part in self.plan.parts):
            return False
        units = np.bincount(program.hop_server, minlength=program.num_servers)
        return all(units[server * ranks + rank] for server, rank in self.parts[0].machine.links)


def plan_of(scenario: OpCase, schedule: OpPlan) -> Plan:
    """Return the plan of one op: ``schedule`` carries out the workload of ``scenario``."""
    return Plan.of_one(scenario.name, scenario.shape, schedule)


def plan_period(system: System, plan: Plan, *, alike: bool = False) -> int:
    """The least shift of all ranks that changes no plan of a part and not the fabric.

    With ``alike`` those are taken for alike that do the same whoever their peers are: an estimate.
    """
    if any(part.shape.ranks_differ for part in plan.parts):
        return system.num_ranks
    if alike:
        schedules = {id(part.schedule): part.schedule for part in plan.parts}  # layers share theirs
        return math.lcm(*(period_if_alike(schedule, system.num_ranks) for schedule in schedules.values()))
    return math.lcm(*(period_of(_scenario(system, part), part.schedule) for part in plan.parts))


def unit_of(system: System, plan: Plan, unit_bytes: int) -> int:
    """Units in which ``plan`` is simulated: ``unit_bytes``, but lines where work-groups ask for lines."""
    by_groups = any(part.schedule.engine.kernel is not None for part in plan.parts)
    return system.gpu.line_bytes if by_groups else unit_bytes


def lower(
    system: System,
    plan: Plan,
    *,
    unit_bytes: int,
    fold: bool = True,
    alike: bool = False,
    ideal: Idealization = Idealization.NONE,
    writes: Writes | None = None,
    background: Sequence[BackgroundWrite] = (),
) -> Lowered:
    """Lower a checked ``plan``; the memory traffic is cut into units of ``unit_bytes`` (a multiple of a line).

    Units are those of ``unit_of``.
    With ``fold`` only the ranks of one ``plan_period`` are; ``period_if_alike`` says which are taken for ``alike``.
    Transfers that ``writes`` holds, by rank and step of the only part, begin and are as large as it says, part by part.
    The writes of the ``background`` are beside the plan, which then is not folded.

    Raises
    ------
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line, or a copy to all or a sum of all meets no switch.
    """
    if unit_bytes < 1 or unit_bytes % system.gpu.line_bytes:
        raise ValueError(f"granularity must be a multiple of {system.gpu.line_bytes} B, got {unit_bytes} B")
    unit_bytes = unit_of(system, plan, unit_bytes)
    if len(plan.parts) > 1:
        plan = replace(plan, parts=tuple(on_their_sms(system, plan)))
    period = plan_period(system, plan, alike=alike) if fold else system.num_ranks
    builder = ProgramBuilder(system.num_ranks, period=period, unit_bytes=unit_bytes)
    composer = Composer(plan, builder, machines_of(builder, system, plan, unit_bytes, ideal), period, writes or {})
    states, ops = list[Lowering](), list[range]()
    for part in plan.parts:
        checkpoint()
        first = builder.num_ops
        states.append(composer.lower(_scenario(system, part), part, unit_bytes, ideal))
        ops.append(range(first, builder.num_ops))
    add_writes(builder, states[0], background)
    program = builder.build()
    parts = (
        LoweredPart(s.scenario, s.schedule, program, tuple(s.step_ops.values()), s.machine, s.hits) for s in states
    )
    return Lowered(system, plan, program, tuple(parts), tuple(ops))


def _scenario(system: System, part: Part) -> OpCase:
    return OpCase(part.name, system, part.shape)


def on_their_sms(system: System, plan: Plan) -> Iterator[Part]:
    """Yield the parts with the SMs that are left to kernels while others copy."""
    limited: dict[tuple[int, int], OpPlan] = {}  # layers share theirs
    for part, sms in zip(plan.parts, sms_of_parts(system, plan), strict=True):
        key = id(part.schedule), sms
        if key not in limited:
            limited[key] = replace(part.schedule, compute_sms=sms)
        yield replace(part, schedule=limited[key])


def machines_of(
    builder: ProgramBuilder, system: System, plan: Plan, unit_bytes: int, ideal: Idealization
) -> dict[str, Machine]:
    """Return one machine for all parts, with the pool of engines that each has; by the name of the part."""
    moving = [part for part in plan.parts if part.shape.moved is not None] or plan.parts[:1]
    kernels = (part for part in plan.parts if not part.shape.is_collective)
    scenario = _scenario(system, next(kernels, plan.parts[0]))
    own = _have_their_own(system, moving)
    largest: dict[object, OpPlan] = {}
    for part in moving:
        key = _pool_key(part.schedule, own=own)
        if key not in largest or part.schedule.engine.count > largest[key].engine.count:
            largest[key] = part.schedule
    machines: dict[object, Machine] = {}
    for key, schedule in largest.items():
        shared = next(iter(machines.values()), None)
        machines[key] = build_machine(builder, scenario, schedule, unit_bytes, ideal, shared)
    issue = next((machine.issue for machine in machines.values() if machine.issue is not None), None)
    found, first = {}, next(iter(machines.values()))
    pools = {next(iter(largest.values())).compute_sms: first.sms}  # of as many SMs
    for part in plan.parts:
        machine, sms = machines.get(_pool_key(part.schedule, own=own), first), part.schedule.compute_sms
        if sms not in pools:
            pools[sms] = builder.pool("sms", sms)
        found[part.name] = replace(
            machine,
            sms=pools[sms],
            engines=pools[sms] if machine.engines == machine.sms else machine.engines,
            issue=issue if issues_commands(scenario, part.schedule) else None,
        )
    return found


def _have_their_own(system: System, parts: Sequence[Part]) -> bool:
    """Whether the GPU has copy engines enough for parts by ``dma(7)`` and by ``dma(1)`` to have eight."""
    engines = (part.schedule.engine for part in parts)
    return sum({engine.count for engine in engines if engine.kind is EngineKind.DMA}) <= system.gpu.dma.engines


def _pool_key(schedule: OpPlan, *, own: bool) -> object:
    """Schedules with the same key share a pool of engines: those by as many copy engines, or where none has its own."""
    engine = schedule.engine
    if engine.on_kernels_sms:
        return "sms"
    return engine.kind, engine.kernel, engine.count if own and engine.kind is EngineKind.DMA else 0


@dataclass(slots=True)
class Composer:
    """Lowers the parts of a plan one after the other."""

    plan: Plan
    builder: ProgramBuilder
    machines: dict[str, Machine]
    period: int
    writes: Writes
    ends: dict[str, Ends] = field(default_factory=dict)  # by part
    issued: dict[int, int] = field(default_factory=dict)  # kernels and copies, by rank: one host issues them all
    queues: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)  # last ops by rank and stream
    units: dict[tuple[object, ...], Runs] = field(default_factory=dict)  # of kernels: those of layers are alike

    def lower(self, scenario: OpCase, part: Part, unit_bytes: int, ideal: Idealization) -> Lowering:
        """Lower one part behind those before it."""
        prefix = f"{part.name}." if len(self.plan.parts) > 1 else ""
        builder = self.builder.scoped(prefix, self._priorities(part))
        schedule = with_waits(scenario, part, part_as_kernels(scenario, self.plan, part))
        machine = self.machines[part.name]
        state = Lowering(scenario, schedule, unit_bytes, builder, machine, ideal, self.period, Hits(scenario, schedule))
        state.foreign, state.num_issued, state.writes = foreign_of(part, self.ends), self.issued, self.writes
        state.units_alike = self.units
        lower_steps(state)
        before = [self._before(part, rank) for rank in range(self.period)]
        for rank, ops in enumerate(before):
            builder.after(state.gates.get(rank, ()), ops)
            self._queue(state, part, rank)
        if part is not self.plan.parts[-1]:  # nothing waits for the last one
            self.ends[part.name] = ends_of_part(state, part, before)
        return state

    def _before(self, part: Part, rank: int) -> tuple[int, ...]:
        """What a part waits for in others at ``rank``."""
        whole = (op for wait in part.waits for op in self.ends[wait.on].parts[wait.what][rank])
        rows = (op for step in part.step_waits for op in self.ends[step.on].of(step.of)[rank])
        return tuple(dict.fromkeys((*whole, *rows)))

    def _priorities(self, part: Part) -> dict[OpKind, int]:
        """Of what a part runs on the SMs of kernels."""
        found = {OpKind.TILE: part.priority, OpKind.REDUCE: self.plan.sums_priority or part.priority}
        return found | ({OpKind.TRANSFER: part.priority} if part.schedule.engine.on_kernels_sms else {})

    def _queue(self, state: Lowering, part: Part, rank: int) -> None:
        """Make a lone collective, or the kernels of a part, follow what came before in their streams."""
        if part.shape.is_collective:
            self._queue_collective(state, part, rank)
        else:
            self._queue_kernels(state, part, rank)

    def _queue_collective(self, state: Lowering, part: Part, rank: int) -> None:
        """All of a collective behind all of the part before it in its stream."""
        steps, gates = state.schedule.steps_of(rank), state.gates.get(rank, ())
        behind = [*self.queues.get((rank, part.stream, 0), ())]
        if part.behind_kernels:
            behind += self.queues.get((rank, MAIN_STREAM, 0), ())
        heads = () if state.one_kernel else (step for step in steps if not waits_inside(step))
        begins = (op for step in heads for op in state.waiters[rank, step.name].on_kernels)
        self.builder.after((*begins, *gates), behind)
        self.queues[rank, part.stream, 0] = sorted({state.step_ops[rank, step.name].done for step in steps})

    def _queue_kernels(self, state: Lowering, part: Part, rank: int) -> None:
        """The first kernel of each stream of the plan behind the last one there, and behind the stream of its part."""
        gates = state.gates.get(rank, ())
        persistent = state.schedule.tactics.kernel is Kernels.PERSISTENT and bool(gates)
        ends: dict[int, list[int]] = {}  # of kernels, by stream of the plan
        for step in state.schedule.steps_of(rank):
            if isinstance(step, Transfer):
                continue
            if step.stream not in ends:
                before = (op for k in (step.stream, 0) for op in self.queues.get((rank, part.stream, k), ()))
                gated = persistent and isinstance(step, TileGroup)
                begins = gates if gated else state.waiters[rank, step.name].on_kernels
                self.builder.after(begins, dict.fromkeys(before))
            done = state.step_ops[rank, step.name].done
            ends[step.stream] = [*ends.get(step.stream, ()), done] if persistent else [done]
        self.queues |= {(rank, part.stream, stream): ops for stream, ops in ends.items()}
