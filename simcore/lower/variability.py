"""Unequal times: what a seed draws for ranks and kernels, traffic, a Program with those times, replayed writes.

Every draw has a generator of its own, PCG64 (O'Neill, 2014) keyed by a hash of (seed, cause, rank, step): the order in
which anything is built does not matter, and a rank has the same luck on a larger system. Each takes one number u of 53
bits, uniform in (0, 1), and inverts the distribution, so that no draw depends on a library's sampling.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from itertools import count, takewhile
from statistics import NormalDist

import numpy as np

from ...compiler.codes import Code
from ...compiler.ir import (
    Arrival,
    BackgroundTraffic,
    BackgroundWrite,
    Direction,
    Distribution,
    OpCase,
    OpPlan,
    Plan,
    Reach,
    Rejection,
    Replay,
    Shape,
    Step,
    System,
    Transfer,
    Variability,
    Write,
    WriteStream,
    arrivals_at,
    checkpoint,
)
from ...compiler.planning.build import ScheduleError
from ..program.arrays import Int64Array
from ..program.limits import HorizonError, RunTooLarge, check_horizon
from ..program.program import MAX_HORIZON_TICKS, OpKind, Program, Run, RunOutcome, TrafficClass
from .copies import flag_lead_ticks
from .machine import Idealization, sent_per_byte
from .plan import Lowered, lower
from .state import StepOps, moved_bytes, split_evenly
from .steps import LoweredPart

FACTOR_BITS = 20
_ONE = 1 << FACTOR_BITS
"""Factors of kernel times are multiples of 2**-20, about a millionth: the last bits of a logarithm do not matter."""


DEVIATIONS = 4
"""Standard deviations at which a normal distribution is cut off."""


def drawn(distribution: Distribution, seed: int, cause: str, rank: int, step: str) -> Fraction:
    """Return the value of ``distribution`` for that key."""
    # Where there is one value, nothing is drawn: a hash and a generator for each of many writes take seconds.
    constant = distribution.shape is Shape.CONSTANT
    return _value(distribution, Fraction(0) if constant else uniform(seed, cause, rank, step))


def uniform(seed: int, cause: str, rank: int, step: str) -> Fraction:
    """A number in (0, 1) that depends on the key alone."""
    key = sha256(f"{seed}/{cause}/{rank}/{step}".encode()).digest()
    raw = int(np.random.PCG64(int.from_bytes(key[:16], "little")).random_raw())
    return Fraction(2 * (raw >> 11) + 1, 1 << 54)


def _value(distribution: Distribution, u: Fraction) -> Fraction:
    """The quantile of ``distribution``, which is not constant, at ``u``."""
    first = distribution.arguments[0]
    match distribution.shape:
        case Shape.CONSTANT:
            return first
        case Shape.UNIFORM:
            return first + (distribution.arguments[1] - first) * u
        case Shape.NORMAL:
            normal = NormalDist()
            tail = normal.cdf(-DEVIATIONS)
            return first * Fraction(normal.inv_cdf(tail + float(u) * (1 - 2 * tail)))
        case _:  # exponential
            return first * Fraction(-math.log1p(-float(u)))


@dataclass(frozen=True, slots=True)
class Perturbation:
    """The unequal times of one seed; without a seed only those that are not drawn."""

    variability: Variability
    seed: int | None

    def start_ticks(self, rank: int) -> int:
        """Begin of ``rank`` after time zero: its declared lateness and the drawn skew."""
        late = sum(delay.ticks for delay in self.variability.late if delay.rank == rank)
        skew = self.variability.skew
        if self.seed is None or skew is None:
            return late
        # A normal skew is taken positive: nobody begins before the run does.
        return late + abs(round(drawn(skew, self.seed, "skew", rank, "")))

    def factor(self, rank: int, step: str) -> Fraction:
        """Factor on the time of the kernel of ``step`` at ``rank``: jitter, times the factor of a straggler."""
        if self.seed is None:
            return Fraction(1)
        jitter, straggler, factor = self.variability.jitter, self.variability.straggler, Fraction(1)
        if jitter is not None:
            factor += drawn(jitter, self.seed, "jitter", rank, step)
        if straggler is not None and uniform(self.seed, "straggler", rank, "") < straggler.share:
            factor *= straggler.factor
        return Fraction(round(factor * _ONE), _ONE)


def perturbation_of(system: System, seed: int | None) -> Perturbation | None:
    """The perturbation of the ranks of ``system``; None if they are alike, and no traffic is drawn.

    Raises
    ------
    ValueError
        If the seed is negative.
    """
    if seed is not None and seed < 0:
        raise ValueError(f"a seed is a whole number from 0 up, not {seed}")
    variability = system.variability or Variability()
    if not (variability.late or (system.random and seed is not None)):
        return None
    return Perturbation(variability, seed)


def perturbed(
    program: Program,
    perturbation: Perturbation,
    ranks: Collection[int],
    gets: Iterable[tuple[range, Sequence[int]]] = (),
) -> Program:
    """``program``, in which every rank is simulated, with other times at ``ranks``; what is done and where stays.

    No op of a late rank is ready before the rank begins, and none of ``gets``, ops with the ranks whose data they read,
    before these begin. The time of a work unit on its SM and the gap between its memory accesses are multiplied by the
    factor of its kernel: the time rounded to the nearest tick, a half up, the gap down.

    Raises
    ------
    ValueError
        If the program is folded; a HorizonError if it could outlast the simulated clock.
    """
    if program.folded:
        raise ValueError("ranks that differ are simulated one by one: lower the plan with fold=False")
    starts = np.array([perturbation.start_ticks(rank) * (rank in ranks) for rank in range(program.num_ranks)], np.int64)
    begins = starts[program.op_rank] * (program.op_kind != OpKind.TRAFFIC)  # [O]
    for ops, read in gets:
        begins[ops.start : ops.stop] = np.maximum(begins[ops.start : ops.stop], starts[list(read)].max())
    factors = _op_factors(program, perturbation)  # [O]
    of_stages = np.where(program.stage_polls, _ONE, factors[program.stage_op])  # looking for a flag is no work
    of_flows = np.where(
        program.flow_traffic == TrafficClass.COMPUTE, factors[program.stage_op[program.flow_stage]], _ONE
    )
    varied = replace(
        program,
        op_release_ticks=np.maximum(program.op_release_ticks, begins),
        stage_hold_ticks=_scaled(program.stage_hold_ticks, of_stages, _ONE // 2),
        flow_gap_ticks=_scaled(program.flow_gap_ticks, of_flows, 0),
    )
    check_horizon(varied)
    return varied


def _scaled(ticks: Int64Array, factors: Int64Array, half: int) -> Int64Array:
    """``ticks`` times ``factors`` in 2**-20, rounded down after ``half`` is added."""
    if float(ticks.max(initial=0)) * float(factors.max(initial=_ONE)) / _ONE >= MAX_HORIZON_TICKS >> FACTOR_BITS:
        raise HorizonError("a kernel takes so long that its varied time is past the range of the simulated clock")
    return ticks * factors + half >> FACTOR_BITS


def _op_factors(program: Program, perturbation: Perturbation) -> Int64Array:
    """[O] factors of the times of each op, in 2**-20; 1 for all but work units."""
    factors = np.full(program.num_ops, _ONE, np.int64)
    kernels = np.flatnonzero(np.isin(program.op_kind, (OpKind.TILE, OpKind.REDUCE)))
    keys = program.op_rank[kernels] * len(program.labels) + program.op_label_idx[kernels]
    distinct, back = np.unique(keys, return_inverse=True)
    drawn = []
    for key in distinct.tolist():
        rank, label = divmod(key, len(program.labels))
        drawn.append(int(perturbation.factor(rank, program.labels[label]) * _ONE))
    factors[kernels] = np.array(drawn, np.int64)[back]
    return factors


TARGET = 0
"""The rank that is simulated."""

_SHOWN = 8


def check_compared(system: System) -> None:
    """Refuse to compare schedules where peers are replayed: their writes are by the signals of one schedule.

    Raises
    ------
    ScheduleError
        If ``system`` replays a profile.
    """
    if system.replay is None:
        return
    message = f"{system.name} replays what peers wrote in a run of one schedule, and others wait for other signals"
    beside = f'traffic {{ file "{system.replay.path}" }}'
    hint = f"simulate that schedule, or say {beside} for its writes beside every schedule"
    raise ScheduleError(Rejection(Code.MGS523, message, hint))


def lower_replayed(
    system: System,
    plan: Plan,
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
    scenario, schedule = OpCase(part.name, system, part.shape), part.schedule
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
    """Return the writes to rank 0, in the order of time, of a finished run.

    Where one rank stands for all, or those of a period, a peer writes what the rank does that stands for it.

    Raises
    ------
    ScheduleError
        If the run did not finish, or a switch copied something to rank 0: that has no time of its own.
    """
    if run.outcome is not RunOutcome.DONE:
        raise ScheduleError(Rejection(Code.MGS523, "only a run that is done has a profile"))
    ranks = 1 + max((ops.rank for ops in lowered.steps), default=0)
    of_step = {(ops.rank, ops.step.name): ops for ops in lowered.steps}
    writes: list[Write] = []
    for arrival in _arrivals(lowered.scenario, lowered.schedule).values():
        transfer = arrival.transfer
        if transfer.reach is Reach.ALL:
            message = f"{transfer.name} is copied by the switch, which a profile cannot say"
            raise ScheduleError(Rejection(Code.MGS523, message))
        own = of_step[arrival.issuer % ranks, transfer.name]
        writes += (replace(write, rank=arrival.issuer) for write in _parts(lowered, run, own, transfer))
    return tuple(sorted(writes, key=lambda write: (write.ticks, write.rank, write.signal)))


def _arrivals(scenario: OpCase, schedule: OpPlan) -> dict[str, Arrival]:
    """Transfers of peers to rank 0, by signal."""
    if schedule.engine.by_library:
        message = "the library moves everything in one call, which a profile cannot say"
        raise ScheduleError(Rejection(Code.MGS523, message))
    waiting = [step.name for step in schedule.steps_of(TARGET) if isinstance(step, Transfer) and step.peer_after]
    if waiting:
        message = f"{waiting[0]} waits for what its peer has, of which a profile of writes says nothing"
        raise ScheduleError(Rejection(Code.MGS523, message))
    arrivals = arrivals_at(scenario, schedule, TARGET)
    return {arrival.transfer.signal: arrival for arrival in arrivals if arrival.issuer != TARGET}


def _check_signals(schedule: OpPlan, replay: Replay, arrivals: Mapping[str, Arrival]) -> None:
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
    servers = (int(program.hop_server[hop]) for hop in program.way(flow))
    before = takewhile(lambda server: server // program.ranks_simulated not in links, servers)
    return sum(int(program.service_ticks[server] + program.latency_ticks[server]) for server in before)


# Traffic of other programs: writes to peers that begin by themselves.

MAX_WRITES = 200_000
"""Writes beside one plan; each is an op of its own."""


def writes_until(traffic: BackgroundTraffic, until: int, seed: int) -> tuple[BackgroundWrite, ...]:
    """Return the writes that begin before ``until``, in ticks, by time; ``seed`` draws the intervals.

    Raises
    ------
    RunTooLarge
        If there are more than ``MAX_WRITES``.
    """
    found = [write for write in traffic.writes if write.ticks < until]
    for number, stream in enumerate(traffic.streams):
        for rank in stream.ranks:
            checkpoint()
            for ticks in _begins(stream, rank, until, (seed, number)):
                found += [BackgroundWrite(ticks, rank, stream.target, stream.num_bytes)] * stream.count
                if len(found) > MAX_WRITES:
                    message = f"the traffic beside the plan has more than {MAX_WRITES} writes until it ends"
                    raise RunTooLarge(f"{message}: say larger and rarer ones")
    return tuple(sorted(found, key=lambda write: (write.ticks, write.rank, write.target)))


def _begins(stream: WriteStream, rank: int, until: int, key: tuple[int, int]) -> Iterator[int]:
    seed, number = key
    at = 0
    for turn in count():
        at += max(1, round(drawn(stream.interval, seed, f"traffic {number}", rank, str(turn))))
        if at >= until:
            return
        yield at
