"""Rank 0 alone, with what its peers write taken from a profile; and the profile of a run in which all are simulated.

A write leaves memory at its peer before its time and travels over the links of its route into the memory of rank 0, in
the way of the schedule: as fast as its engines feed it, with the flags of its protocol. Flags that tiles set are writes
of their own, of 0 bytes. So a profile that was recorded
gives rank 0 the times it had, unless something but rank 0 kept the writes waiting: kernels or other copies at the
memory they were read from, traffic to other ranks on a link of their way, or a limit of bytes under way, which is
reached later without the way out of memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...compiler.codes import Code
from ...compiler.ir import (
    Arrival,
    Direction,
    GraphPlan,
    Reach,
    Rejection,
    Replay,
    Scenario,
    Schedule,
    Step,
    System,
    Transfer,
    Write,
    arrivals_at,
)
from ...compiler.planning.build import ScheduleError
from ..program.outcome import Run, RunOutcome
from ..program.program import Program, TrafficClass
from .copies import flag_lead_ticks
from .machine import Idealization
from .plan import Lowered, lower
from .protocols import sent_per_byte
from .state import StepOps, moved_bytes, split_evenly
from .steps import LoweredPart

TARGET = 0
"""The rank that is simulated."""

_SHOWN = 8


def lower_replayed(
    system: System,
    plan: GraphPlan,
    replay: Replay,
    *,
    unit_bytes: int,
    ideal: Idealization = Idealization.NONE,
) -> Lowered:
    """Lower the ``plan`` of one part at rank 0, and for its peers the writes of ``replay``; rank 0 alone has ``steps``.

    Raises
    ------
    ScheduleError
        If rank 0 waits for a signal that is not in the profile, or the profile has one that the plan does not know.
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line.
    """
    (part,) = plan.parts
    scenario, schedule = Scenario(part.name, system, part.workload), part.schedule
    arrivals = _arrivals(scenario, schedule)
    _check_signals(schedule, replay, arrivals)
    steps: list[list[Step]] = [list(schedule.steps_of(TARGET)), *([] for _ in range(1, scenario.num_ranks))]
    writes: dict[tuple[int, str], list[Write]] = {}
    for write in replay.writes:
        step = _put(arrivals[write.signal].transfer, write, scenario.num_ranks)
        if (write.rank, step.name) not in writes:
            steps[write.rank].append(step)
        writes.setdefault((write.rank, step.name), []).append(write)
    peers = replace(schedule, overrides=(), by_rank=tuple(map(tuple, steps)))
    replayed = replace(plan, parts=(replace(part, schedule=peers),))
    lowered = lower(system, replayed, unit_bytes=unit_bytes, fold=False, ideal=ideal, writes=writes)
    (only,) = lowered.parts
    target = tuple(ops for ops in only.steps if ops.rank == TARGET)
    return replace(lowered, plan=plan, parts=(replace(only, schedule=schedule, steps=target),))


def recorded_writes(lowered: LoweredPart, run: Run) -> tuple[Write, ...]:
    """Return the writes to rank 0, in the order of time, of a finished run in which every rank has its own ops.

    Raises
    ------
    ScheduleError
        If the run did not finish, or a switch copied something to rank 0: that has no time of its own.
    """
    if run.outcome is not RunOutcome.DONE or lowered.program.folded:
        raise ScheduleError(Rejection(Code.MGS523, "only a run that is done, of all ranks, has a profile"))
    of_step = {(ops.rank, ops.step.name): ops for ops in lowered.steps}
    writes: list[Write] = []
    for arrival in _arrivals(lowered.scenario, lowered.schedule).values():
        transfer = arrival.transfer
        if transfer.reach is Reach.ALL:
            message = f"{transfer.name} is copied by the switch, which a profile cannot say"
            raise ScheduleError(Rejection(Code.MGS523, message))
        writes += _parts(lowered, run, of_step[arrival.issuer, transfer.name], transfer)
    return tuple(sorted(writes, key=lambda write: (write.ticks, write.rank, write.signal)))


def _arrivals(scenario: Scenario, schedule: Schedule) -> dict[str, Arrival]:
    """Transfers of peers to rank 0, by signal."""
    if schedule.engine.by_library:
        message = "the library moves everything in one call, which a profile cannot say"
        raise ScheduleError(Rejection(Code.MGS523, message))
    arrivals = arrivals_at(scenario, schedule, TARGET)
    return {arrival.transfer.signal: arrival for arrival in arrivals if arrival.issuer != TARGET}


def _check_signals(schedule: Schedule, replay: Replay, arrivals: Mapping[str, Arrival]) -> None:
    known = {write.signal for write in replay.writes}
    awaited = {name for step in schedule.steps_of(TARGET) for name in step.after if name in arrivals}
    for code, names, message in (
        (Code.MGS521, awaited - known, "rank 0 waits for signals that the profile does not hold"),
        (Code.MGS522, known - set(arrivals), "the profile holds signals that no peer sets at rank 0 in this plan"),
    ):
        if names:
            shown = ", ".join(sorted(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            hint = "record a profile of this schedule: magus simulate FILE --schedule S --record-writes OUT.csv"
            raise ScheduleError(Rejection(code, f"{schedule.expression}: {message}: {shown}", hint))


def _put(transfer: Transfer, write: Write, num_ranks: int) -> Transfer:
    """``write`` as a put of its peer that waits for nothing."""
    return replace(
        transfer,
        name=f"replayed {write.signal}",
        direction=Direction.PUT,
        peer=(TARGET - write.rank) % num_ranks,
        after=(),
        reach=Reach.PEER,
    )


def _parts(lowered: LoweredPart, run: Run, ops: StepOps, transfer: Transfer) -> Iterator[Write]:
    """The write of each worker of a copy; or of each store of a tile, and each flag that a tile sets."""
    program = lowered.program
    lead, left = _lead_ticks(lowered, ops), moved_bytes(lowered.scenario, transfer.region)
    if sent_per_byte(lowered.schedule) != 1:  # flags leave before the data is read
        lead = 0
    by_tiles = lowered.schedule.engine.by_tiles
    back = flag_lead_ticks(lowered.scenario, ops.rank, transfer)
    for op, share in zip(ops.work, _bytes_of(lowered, ops, left), strict=True):
        begin = int(run.op_start[op] + program.op_setup_ticks[op])
        if by_tiles and not share:
            if not _is_store(program, op):
                yield Write(begin + back, ops.rank, transfer.signal, 0)
            continue
        num_bytes = min(left, share)
        left -= num_bytes
        if by_tiles:  # behind what its tile stores before
            begin += int(program.flow_offset_ticks[_first_flows(program, op).start])
        yield Write(begin + lead, ops.rank, transfer.signal, max(1, num_bytes))


def _is_store(program: Program, op: int) -> bool:
    """Whether an op of a tile sends data, and no flag: one that is too small for a unit has none."""
    flows = _first_flows(program, op)
    return len(flows) > 0 and program.flow_traffic[flows.start] == TrafficClass.COMM


def _bytes_of(lowered: LoweredPart, ops: StepOps, num_bytes: int) -> list[int]:
    """What each op of a copy sends of ``num_bytes``: lines were split among workers, units were dealt to tiles."""
    program, line = lowered.program, lowered.scenario.gpu.line_bytes
    if not lowered.schedule.engine.by_tiles:
        shares = split_evenly(-(-num_bytes // line), len(ops.work))
        return [share * line for count, share in shares for _ in range(count)]
    flows = [_first_flows(program, op) if _is_store(program, op) else range(0) for op in ops.work]
    return [int(program.flow_units[each.start : each.stop].sum()) * program.unit_bytes for each in flows]


def _first_flows(program: Program, op: int) -> range:
    """The flows of the first stage of an op."""
    stage = program.op_stage_ptr[op]
    return range(program.stage_flow_ptr[stage], program.stage_flow_ptr[stage + 1])


def _lead_ticks(lowered: LoweredPart, ops: StepOps) -> int:
    """Time from an engine through its peer's memory to the first link, nothing else there."""
    program, links = lowered.program, lowered.machine.link_servers
    flow = int(program.stage_flow_ptr[program.op_stage_ptr[ops.work.start]])
    hop, ticks = int(program.flow_first_hop[flow]), 0
    while (server := int(program.hop_server[hop])) // program.ranks_simulated not in links:
        ticks += int(program.service_ticks[server] + program.latency_ticks[server])
        hop = int(program.hop_next[hop])
    return ticks
