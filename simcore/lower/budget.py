"""Cost of a run, estimated before anything is built, so that a huge run is refused before it begins."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from ...compiler.ir import (
    EngineKind,
    Kernels,
    OpCase,
    OpPlan,
    Plan,
    Reach,
    Reduction,
    Step,
    System,
    TileGroup,
    Transfer,
    checkpoint,
    network_of,
    num_sharing,
)
from ..kernels.dispatch import by_stream, compute_work, reduce_work, shared_works, stream_work
from ..kernels.work import KernelWork
from ..program.limits import RunTooLarge
from .collective import num_slices
from .copies import ends_of
from .machine import NOC_PACKET_BYTES, noc_of, noc_packet_bytes, noc_packet_ticks, sent_per_byte
from .state import moved_bytes
from .steps import period_of

MAX_LINE_HOPS = 4_000_000_000
"""About two minutes on one core at 30 million line-hops a second."""

MAX_OPS = 2_000_000
"""Work units and workers of transfers; each costs some microseconds and some hundred bytes."""


MAX_ROUTED = 25_000_000
"""Links on the routes of all transfers. Each costs some hundred bytes; this many need all memory a run may take."""


MAX_BETWEEN_ALL = 10_000_000
"""Links on routes between all pairs of GPUs; estimates and bounds go through those that no shift maps onto others."""

MAX_UNLIKE = 500_000
"""Ops and links on their ways in one of the dozen runs of an answer, where no ranks are alike: about ten seconds."""

_SAMPLED = 16


def check_routes(system: System) -> None:
    """Refuse a fabric with more links on its routes than fit into memory, by the mean length of a few of them.

    Raises
    ------
    RunTooLarge
        If the routes between all pairs pass about more than ``MAX_BETWEEN_ALL``.
    """
    n, network = system.num_ranks, network_of(system.fabric, system.num_ranks)
    if n * network.period <= MAX_BETWEEN_ALL // n:  # a route is no longer than all ranks
        return
    ends = [number * n // (_SAMPLED + 1) for number in range(1, _SAMPLED + 1)]
    about = n * network.period * sum(network.num_links(0, end) for end in ends) // _SAMPLED
    if about > MAX_BETWEEN_ALL:
        message = f"the routes between all pairs of the {n:,} GPUs of {system.name} pass about {about:.1e} links"
        raise RunTooLarge(f"{message}, the limit is {MAX_BETWEEN_ALL:.1e}: ask about fewer GPUs")


class Cost(NamedTuple):
    """Bytes times the servers they pass, ops, and links on the routes of transfers; polls are left out.

    ``packets`` are the units of ``NOC_PACKET_BYTES`` that pass networks on chip.
    """

    byte_hops: int
    ops: int
    routed: int
    packets: int = 0

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, count: int) -> "Cost":
        """So many of these."""
        return Cost(*(each * count for each in self))

    def line_hops(self, unit_bytes: int) -> int:
        """Units times the servers they pass, in units of ``unit_bytes``."""
        return self.byte_hops // unit_bytes + self.packets * NOC_PACKET_BYTES // noc_packet_bytes(unit_bytes)


def check_budget(system: System, plan: Plan, unit_bytes: int, ranks: int) -> None:
    """Refuse a run of ``ranks`` simulated ranks in units of ``unit_bytes`` that is too large.

    Ranks are added up until the limit is passed; the estimate takes the others to cost as much.

    Raises
    ------
    RunTooLarge
        If there are more than ``MAX_LINE_HOPS``, ``MAX_OPS`` or ``MAX_ROUTED``.
    """
    keys = [(id(part.shape), id(part.schedule)) for part in plan.parts]  # layers share both
    parts, counts = dict(zip(keys, plan.parts, strict=True)).values(), Counter(keys).values()
    of_parts = (_costs(OpCase(p.name, system, p.shape), p.schedule, range(ranks)) for p in parts)
    costs = (reduce(Cost.plus, map(Cost.times, at_rank, counts)) for at_rank in zip(*of_parts, strict=True))
    total, lower = Cost(0, 0, 0), "fold symmetric ranks, or ask about smaller sizes"
    if unit_bytes <= system.gpu.line_bytes:
        lower = f"simulate in packets (--granularity packet), {lower}"
    for counted, cost in enumerate(costs, 1):
        total = total.plus(cost)
        for number, limit, unit, hint in (
            (total.line_hops(unit_bytes), MAX_LINE_HOPS, "line-hops", lower),
            (total.ops, MAX_OPS, "tiles and transfers", "ask about smaller sizes or fewer chunks"),
            (total.routed, MAX_ROUTED, "links on the ways of its transfers", "ask about fewer ranks or chunks"),
        ):
            if number > limit:
                about = number * ranks // counted
                message = f"{plan.expression} has about {about:.1e} {unit}, the limit is {limit:.1e}"
                raise RunTooLarge(f"{message}: {hint}")


def check_unlike(scenario: OpCase, schedule: OpPlan) -> None:
    """Refuse a run of an answer in which every rank is lowered by itself, and together they are too many.

    Raises
    ------
    RunTooLarge
        If no shift of ranks keeps plan and fabric, and there are about more than ``MAX_UNLIKE`` ops and links.
    """
    n = scenario.num_ranks
    if period_of(scenario, schedule) < n:
        return
    cost = cost_of(scenario, schedule, (_busiest(scenario, schedule),))
    about = n * (cost.ops + cost.routed)
    if about > MAX_UNLIKE:
        message = f"{schedule.expression} has about {about:.1e} copies and links on their ways, for no ranks are alike"
        raise RunTooLarge(f"{message}; an answer simulates {MAX_UNLIKE:.1e}, `magus simulate` more")


def affordable_unit(scenario: OpCase, schedule: OpPlan, unit_bytes: int, max_line_hops: int) -> int:
    """``unit_bytes``, doubled until the rank with most steps has no more than ``max_line_hops`` line-hops."""
    cost = cost_of(scenario, schedule, (_busiest(scenario, schedule),))
    while cost.line_hops(unit_bytes) > max_line_hops:
        unit_bytes *= 2
    return unit_bytes


def line_hops(scenario: OpCase, schedule: OpPlan, unit_bytes: int) -> int:
    """Line-hops of the rank with most steps in units of ``unit_bytes``."""
    return cost_of(scenario, schedule, (_busiest(scenario, schedule),)).line_hops(unit_bytes)


def _busiest(scenario: OpCase, schedule: OpPlan) -> int:
    return max(range(schedule.period(scenario.num_ranks)), key=lambda rank: len(schedule.steps_of(rank)))


def cost_of(scenario: OpCase, schedule: OpPlan, ranks: Iterable[int]) -> Cost:
    """Total cost of ``ranks``."""
    return reduce(Cost.plus, _costs(scenario, schedule, ranks), Cost(0, 0, 0))


@dataclass(frozen=True, slots=True)
class _Way:
    """Transfers over links: their ends as seen from the rank, bytes on each link, and ops that go there."""

    source: int
    target: int
    num_bytes: int
    ops: int


def _costs(scenario: OpCase, schedule: OpPlan, ranks: Iterable[int]) -> Iterator[Cost]:
    """Cost of each of ``ranks``; ranks with the same steps differ only in their routes."""
    n, network = scenario.num_ranks, scenario.network
    known: tuple[Step, ...] | None = None
    here, ways = Cost(0, 0, 0), list[_Way]()
    for rank in ranks:
        checkpoint()
        steps = schedule.steps_of(rank)
        if steps != known or scenario.shape.loads:
            at = scenario.at(rank)
            known, here, ways = steps, _at_the_ends(at, schedule, steps), _ways(scenario, schedule, steps)
        on_links, routed = 0, 0
        for way in ways:
            links = network.num_links((rank + way.source) % n, (rank + way.target) % n)
            on_links += links * way.num_bytes
            routed += links * way.ops
        yield here.plus(Cost(on_links, 0, routed))


def _at_the_ends(scenario: OpCase, schedule: OpPlan, steps: Sequence[Step]) -> Cost:
    """Cost of ``steps`` at a rank, without the links between two ranks."""
    byte_hops, ops, packets, sharing = 0, 0, 0, num_sharing(steps, schedule.engine)
    noc = noc_of(scenario)
    for step in steps:
        if isinstance(step, Transfer):
            byte_hops += _copied(scenario, schedule, step)
            ops += _copying(scenario, schedule, step, sharing)
            packets += 2 * moved_bytes(scenario, step.region) // NOC_PACKET_BYTES if noc is not None else 0
    for work in _kernels(scenario, schedule, steps):
        byte_hops += work.l2_hit_bytes + 2 * (work.below_l2_bytes + work.hbm_write_bytes)
        ops += work.num_units
        if noc is not None:
            packets += work.num_units * (work.noc_ticks // noc_packet_ticks(noc, NOC_PACKET_BYTES))
    return Cost(byte_hops, ops, 0, packets)


def _copied(scenario: OpCase, schedule: OpPlan, step: Transfer) -> int:
    """Bytes of a transfer times the memories on their way, links left out, as if nothing hit a cache.

    Those of a switch that copies or sums are counted, since there is one way for all.
    """
    n, size = scenario.num_ranks, moved_bytes(scenario, step.region)
    reads = 2 if scenario.mover(schedule.engine, step, 0) is EngineKind.SM else 1
    if step.reach is Reach.ALL:
        return size * (n * (reads + 1) + 2 if step.reduce else reads + 1 + 2 * (n - 1))
    return int(size * (reads + sent_per_byte(schedule) * (1 + step.reduce)))


def _ways(scenario: OpCase, schedule: OpPlan, steps: Sequence[Step]) -> list[_Way]:
    """The transfers of ``steps`` from one rank to another, those with the same ends together: a ring has many."""
    sent, sharing = sent_per_byte(schedule), num_sharing(steps, schedule.engine)
    num_bytes, ops = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for step in steps:
        if isinstance(step, Transfer) and step.reach is not Reach.ALL:
            ends = ends_of(0, step)
            num_bytes[ends] += int(moved_bytes(scenario, step.region) * sent)
            ops[ends] += _copying(scenario, schedule, step, sharing)
    return [_Way(*ends, num_bytes[ends], ops[ends]) for ends in ops]


def _copying(scenario: OpCase, schedule: OpPlan, step: Transfer, sharing: int) -> int:
    """Ops of a transfer: one for each engine or SM that has a part of it, and those of slices in a switch."""
    to_all, workers = step.reach is Reach.ALL, 1
    if scenario.mover(schedule.engine, step, 0) is EngineKind.SM:
        workers = schedule.engine.sms_of(step, sharing)
    num_bytes = moved_bytes(scenario, step.region)
    taking_part = max(1, min(workers, num_bytes // scenario.gpu.line_bytes))
    return taking_part * (3 * num_slices(num_bytes // taking_part) + 1 if to_all else 1)


def _kernels(scenario: OpCase, schedule: OpPlan, steps: Sequence[Step]) -> Iterator[KernelWork]:
    """The kernels of a rank; the groups of a stream are one if they are persistent."""
    gpu, sms = scenario.gpu, schedule.compute_sms
    shared = shared_works(scenario, schedule, steps)
    persistent = schedule.tactics.kernel is Kernels.PERSISTENT and scenario.shape.gemm is not None
    for step in steps:
        if isinstance(step, Reduction):
            yield reduce_work(gpu, moved_bytes(scenario, step.region), step.num_parts, sms)
        elif isinstance(step, TileGroup) and not persistent:
            yield shared.get(step.name) or compute_work(scenario, step, sms)
    for groups in by_stream(steps).values() if persistent else ():
        yield stream_work(scenario, schedule, groups)
