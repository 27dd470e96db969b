"""The links of a fabric that any schedule of a collective must load, and the bytes that they pass at least.

Loads are those of the links of each rank, of all ranks together, of the narrowest cut and, for an all_to_all, of each
single link.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import ceil

import numpy as np
import numpy.typing as npt

from ...compiler.ir import (
    TICKS_PER_SECOND,
    Edge,
    Fabric,
    Network,
    OpCase,
    OpPlan,
    Pattern,
    Reach,
    Step,
    Transfer,
    checkpoint,
    network_of,
)
from ...compiler.planning.staging import reject_reach
from ...compiler.templates.collective import collective_in
from ...simcore.lower.copies import ends_of
from ...simcore.lower.state import moved_bytes
from ...simcore.lower.steps import period_of
from ..solver.cuts import (
    Flows,
    LinkCut,
    LinkParts,
    exchange_us,
    least_costs,
    narrowest_between,
    narrowest_from,
    strongest_partition,
    widest_spread,
)

MOST_TARGETS = 64
"""Ranks that a cut is asked to leave out: each costs a maximal flow, some milliseconds on 1,000 links."""
SHOWN_PARTS = 4
"""Parts of a network that are named."""
RELAYED = 0.99
"""Of the time of straight copies: what passing on must save to be looked at. The least time is known within 0.2 %."""


@dataclass(frozen=True, slots=True)
class LeastTraffic:
    """Least bytes into and out of each rank; ``total`` are the bytes that arrive at all ranks together.

    ``read`` are the own data that each rank reads to send them: a lower bound, as data that arrived may be in a cache.
    ``issued`` are the bytes that the engines of a rank move, the mean over ranks; a copy to all or a sum of all counts
    once. If ranks differ, ``read`` and the kernels are those of ``rank``.
    """

    into: tuple[int, ...]
    out: tuple[int, ...]
    total: int
    read: int = 0
    issued: int = 0
    rank: int | None = None

    @property
    def busiest_bytes(self) -> int:
        """Bytes that arrive at the busiest rank, at least the mean over ranks; at ``rank`` if ranks differ."""
        if self.rank is not None:
            return self.into[self.rank]
        return max(*self.into, -(-self.total // len(self.into)))


def least_traffic(scenario: OpCase, *, can_sum: bool = True) -> LeastTraffic | None:
    """Return the least traffic, None if nothing moves; ``can_sum`` is whether engines can ask a switch for sums."""
    shape, n = scenario.shape, scenario.num_ranks
    kind, moved = collective_in(shape.pattern), shape.moved
    if kind is None or moved is None or n == 1:
        return None
    whole, shard = moved.num_bytes, moved.num_bytes // n
    sums = can_sum and reject_reach(scenario.system, sums=True) is None
    # Copies that bring one shard to all others.
    spread = 1 if reject_reach(scenario.system, sums=False) is None else n - 1
    match kind:
        case Pattern.ALL_GATHER:
            return _alike(n, (n - 1) * shard, shard, read=shard, issued=spread * shard)
        case Pattern.REDUCE_SCATTER:
            arriving = shard if sums else (n - 1) * shard
            return _alike(n, shard, (n - 1) * shard, arriving, read=shard, issued=arriving)
        case Pattern.ALL_REDUCE:
            arriving = whole if sums else 2 * (n - 1) * shard
            out = whole + shard * (n - 2) // (n - 1) if sums else whole
            return _alike(n, whole, out, arriving, read=shard, issued=((1 if sums else n - 1) + spread) * shard)
        case Pattern.ALL_TO_ALL if shape.loads:
            return _exchanged(scenario)
        case Pattern.ALL_TO_ALL:
            num_bytes = sum(blocks_of(scenario)[1:])
            return _alike(n, num_bytes, num_bytes, read=num_bytes, issued=num_bytes)
        case Pattern.BROADCAST:
            others = (n - 1) * whole
            return LeastTraffic((0, *(whole,) * (n - 1)), (whole, *(0,) * (n - 1)), others, issued=spread * shard)
        case _:
            return LeastTraffic((0, whole, *(0,) * (n - 2)), (whole, *(0,) * (n - 1)), whole, issued=shard)


def _exchanged(scenario: OpCase) -> LeastTraffic:
    """Return the traffic of an all_to_all whose ranks send different amounts; ``issued`` is the mean over ranks."""
    n, table = scenario.num_ranks, block_table(scenario)
    into = tuple(sum(sent[rank] for sent in table) - table[rank][rank] for rank in range(n))
    out = tuple(sum(sent) - sent[rank] for rank, sent in enumerate(table))
    rank = scenario.shape.rank
    return LeastTraffic(into, out, sum(into), read=out[rank], issued=sum(into) // n, rank=rank)


def _alike(n: int, into: int, out: int, arriving: int = 0, *, read: int, issued: int) -> LeastTraffic:
    """Return traffic that is the same at every rank; ``arriving`` is the mean over ranks if that is above ``into``."""
    return LeastTraffic((into,) * n, (out,) * n, n * max(into, arriving), read, issued)


def blocks_of(scenario: OpCase) -> tuple[int, ...]:
    """Return the bytes [k] that rank r sends to r + k in an all_to_all; if ranks differ, that r + k sends to r."""
    shape, n = scenario.shape, scenario.num_ranks
    if shape.loads:
        table = block_table(scenario)
        return tuple(table[(shape.rank + k) % n][shape.rank] for k in range(n))
    assert shape.moved is not None, "an all_to_all moves a tensor"
    width = shape.moved.dtype.bytes_of(shape.moved.cols)
    return tuple(rows * width for rows in shape.split or (shape.moved.rows // n,) * n)


def block_table(scenario: OpCase) -> tuple[tuple[int, ...], ...]:
    """Return the bytes [source][target] of an all_to_all whose ranks send different amounts."""
    shape = scenario.shape
    assert shape.moved is not None, "an all_to_all moves a tensor"
    width = shape.moved.dtype.bytes_of(shape.moved.cols)
    return tuple(tuple(rows * width for rows in sent) for sent in shape.loads)


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Bytes that links of ``bytes_per_s`` together pass; ``where`` names the links, to follow the words "the links"."""

    num_bytes: int
    bytes_per_s: int
    where: str


def loads_of(scenario: OpCase, moved: LeastTraffic) -> Iterator[LinkLoad]:
    """Yield the least loads of the links of each rank, of all ranks, of a cut; for an all_to_all of single links."""
    network = scenario.network
    for num_bytes, rate in dict.fromkeys(zip(moved.into, network.bytes_per_s_into, strict=True)):
        yield LinkLoad(num_bytes, rate, "into a rank")
    for num_bytes, rate in dict.fromkeys(zip(moved.out, network.bytes_per_s_out, strict=True)):
        yield LinkLoad(num_bytes, rate, "out of a rank")
    yield LinkLoad(moved.total, sum(network.bytes_per_s_into), "into all ranks together")
    whole = scenario.shape.moved.num_bytes if scenario.shape.moved else 0
    if collective_in(scenario.shape.pattern) is Pattern.ALL_REDUCE and moved.total > scenario.num_ranks * whole:
        yield from _part_loads(scenario, whole)  # no switch sums: each sum is made at a rank
    if scenario.shape.pattern.exchanges:
        yield from _exchange_loads(scenario)
    else:
        yield from _cut_loads(scenario)


def farthest_ticks(scenario: OpCase) -> int:
    """The latency that something of one rank needs to the rank farthest from it, by whichever links it goes.

    That is so in a collective alone that gathers equal shards, sums or broadcasts. 0 where all ranks see the same
    network, whose links are next to each other, and beyond ``MOST_TARGETS`` ranks.
    """
    shape, n = scenario.shape, scenario.num_ranks
    meets = shape.pattern in (Pattern.ALL_GATHER, Pattern.BROADCAST) or (shape.is_collective and shape.pattern.sums)
    few = 1 < n <= MOST_TARGETS and not scenario.network.symmetric
    roots = 1 if shape.pattern is Pattern.BROADCAST else n
    return _longest_way(scenario.system.fabric, n, roots) if meets and few and not shape.loads else 0


@lru_cache(maxsize=64)
def _longest_way(fabric: Fabric, num_ranks: int, roots: int) -> int:
    """Of the ways of least latency from the first ranks, so many ``roots``, to any the longest, in ticks."""
    ticks = {edge.ends: edge.latency_ticks for edge in network_of(fabric, num_ranks).edges}
    ways = islice(least_costs(num_ranks, ticks), roots)
    return max(away[rank] for away in ways for rank in range(num_ranks))


def relayed_load(scenario: OpCase) -> LinkLoad | None:
    """The load of an all_to_all alone whose blocks are passed on, where that loads the busiest links less.

    None elsewhere, where straight copies pass no rank, for blocks that differ, and beyond 16 ranks that are no ring.
    """
    shape, n = scenario.shape, scenario.num_ranks
    if shape.pattern is not Pattern.ALL_TO_ALL or shape.uneven or shape.loads or not passes_ranks(scenario):
        return None
    fabric, blocks = scenario.system.fabric, blocks_of(scenario)
    straight = max(load.num_bytes / load.bytes_per_s for load in _routed_loads(fabric, n, blocks))
    us = exchange_us(fabric, n)
    if not us or us * blocks[1] >= straight * 1e12 * RELAYED:
        return None
    whole = n * (n - 1)
    return LinkLoad(whole * blocks[1], ceil(whole * 1e12 / us), "of all ways between ranks, passing others")


def passes_ranks(scenario: OpCase) -> bool:
    """Whether straight copies may pass other ranks: the network is not the same for all, or it is and they do."""
    network, n = scenario.network, scenario.num_ranks
    return not network.symmetric or any(node < n for other in range(1, n) for node in network.path(0, other)[1:-1])


def _exchange_loads(scenario: OpCase) -> Iterator[LinkLoad]:
    """Yield the loads of an all_to_all, whose blocks go to their target over the one route there is, or by any."""
    fabric, n = scenario.system.fabric, scenario.num_ranks
    relayed = relayed_load(scenario)
    if relayed is not None:
        yield relayed
        return
    if scenario.shape.loads:
        yield from _uneven_loads(fabric, n, block_table(scenario))
    else:
        yield from _routed_loads(fabric, n, blocks_of(scenario))


@lru_cache(maxsize=16)
def _routed_loads(fabric: Fabric, num_ranks: int, blocks: tuple[int, ...]) -> tuple[LinkLoad, ...]:
    """Return the busiest link of each rate if every rank sends ``blocks`` by relative peer."""
    network, ranks, by_peer = network_of(fabric, num_ranks), np.arange(num_ranks), np.array(blocks, np.int64)
    sent = {target: by_peer[(target - ranks) % num_ranks] for target in range(network.period)}
    return _busiest_of_each_kind(fabric, network.own, _passed(network, sent).sum(axis=0).tolist())


@lru_cache(maxsize=16)
def _uneven_loads(fabric: Fabric, num_ranks: int, table: tuple[tuple[int, ...], ...]) -> tuple[LinkLoad, ...]:
    """Return the busiest link of each rate if ranks send the bytes [source][target] of ``table``."""
    network = network_of(fabric, num_ranks)
    sent = dict(enumerate(np.array(table, np.int64).T))
    return _busiest_of_each_kind(fabric, network.edges, _passed(network, sent).ravel().tolist())


def _passed(network: Network, sent: Mapping[int, Ints]) -> Ints:
    """Return the bytes [shift, edge of ``own``] that links pass; ``sent`` [ranks] are those to each target."""
    passed = np.zeros((network.num_ranks // network.period, len(network.own)), np.int64)
    for target, num_bytes in sent.items():
        tree, node = network.tree_to(target), np.arange(network.num_ranks)
        onward, edge, shift = np.zeros((3, max(network.num_ranks, *tree) + 1), np.int64)
        for at, (following, (number, ranks)) in tree.items():
            onward[at], edge[at], shift[at] = following, number, ranks // network.period
        while (moving := node != target).any():
            node, num_bytes = node[moving], num_bytes[moving]
            np.add.at(passed, (shift[node], edge[node]), num_bytes)
            node = onward[node]
    return passed


def _busiest_of_each_kind(fabric: Fabric, edges: Sequence[Edge], passed: Sequence[int]) -> tuple[LinkLoad, ...]:
    """Return the largest load for each rate and place."""
    most: dict[tuple[int, str], int] = {}
    for edge, num_bytes in zip(edges, passed, strict=True):
        kind = edge.bytes_per_s, fabric.topology.where(edge)
        most[kind] = max(num_bytes, most.get(kind, 0))
    return tuple(LinkLoad(num_bytes, *kind) for kind, num_bytes in most.items())


def _cut_loads(scenario: OpCase) -> tuple[LinkLoad, ...]:
    """Return the load of the narrowest cut of the network, for what its collective sends across."""
    shape, n, cut = scenario.shape, scenario.num_ranks, narrow_cut(scenario)
    if cut is None or shape.moved is None:
        return ()
    kind, whole = collective_in(shape.pattern), shape.moved.num_bytes
    shares = len(cut.ranks) if kind in (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER) else n
    return (LinkLoad(whole // n * shares, cut.bytes_per_s, cut_text(scenario, cut)),)


def _part_loads(scenario: OpCase, whole: int) -> Iterator[LinkLoad]:
    """Yield the load of all links between parts of the network, if there are more than two and fewer than ranks.

    Not where all ranks see the same network, nor beyond ``MOST_TARGETS`` ranks.
    """
    n = scenario.num_ranks
    if not scenario.network.symmetric and n <= MOST_TARGETS:
        found = _strongest_partition(scenario.system.fabric, n)
        if found is not None and 2 < len(found.parts) < n:
            names = [ranks_text(part) for part in found.parts[:SHOWN_PARTS]]
            more = len(found.parts) - len(names)
            text = f"between {'; '.join(names)}" + (f" and {more} more parts" if more else "")
            yield LinkLoad(2 * (len(found.parts) - 1) * whole, found.bytes_per_s, text)


@lru_cache(maxsize=64)
def _strongest_partition(fabric: Fabric, num_ranks: int) -> LinkParts | None:
    with suppress(OverflowError):  # then the bound is one without it
        return strongest_partition(Flows(num_ranks, network_of(fabric, num_ranks).edges))
    return None


def narrow_cut(scenario: OpCase) -> LinkCut | None:
    """Return the narrowest cut of the network for the collective of ``scenario``.

    None where the links of single ranks are as narrow, as in all symmetric networks, and of an all_to_all.
    """
    kind = collective_in(scenario.shape.pattern)
    if kind is None or scenario.shape.pattern.exchanges or scenario.network.symmetric:
        return None
    return _narrowest_cut(scenario.system.fabric, scenario.num_ranks, kind)


def cut_text(scenario: OpCase, cut: LinkCut) -> str:
    """Return the links of a cut in words: ``out of ranks 0-3``."""
    direction = "into" if collective_in(scenario.shape.pattern) is Pattern.REDUCE_SCATTER else "out of"
    return f"{direction} {ranks_text(cut.ranks)}"


@lru_cache(maxsize=64)
def _narrowest_cut(fabric: Fabric, num_ranks: int, kind: Pattern) -> LinkCut | None:
    """Return the narrowest cut for a collective; None where the links of single ranks are as narrow.

    Every cut gives a bound: of a large network without symmetry only some ranks are looked at. None also where rates
    are too large for a flow.
    """
    network = network_of(fabric, num_ranks)
    flows = Flows(num_ranks, network.edges, reverse=kind is Pattern.REDUCE_SCATTER)
    targets = sorted(range(network.period), key=flows.rate_into)[:MOST_TARGETS]
    with suppress(OverflowError):
        match kind:
            case Pattern.ALL_GATHER | Pattern.REDUCE_SCATTER:
                return widest_spread(flows, targets)
            case Pattern.ALL_REDUCE:
                return narrowest_between(flows, targets)
            case Pattern.BROADCAST:
                return narrowest_from(flows, range(1, min(num_ranks, MOST_TARGETS + 1)))
    return None


def ranks_text(ranks: Collection[int]) -> str:
    """Return ranks in words, neighbours as ranges: ``ranks 0-3, 6``."""
    ordered = sorted(ranks)
    firsts = [rank for rank in ordered if rank - 1 not in ranks]
    lasts = [rank for rank in ordered if rank + 1 not in ranks]
    spans = [f"{one}" if one == other else f"{one}-{other}" for one, other in zip(firsts, lasts, strict=True)]
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {', '.join(spans)}"


def busiest_link_ticks(scenario: OpCase, schedule: OpPlan) -> int:
    """Return the ticks that the bytes of ``schedule`` take on the link that needs most for them.

    Copies to all and sums of all are left out, and so is the library, whose plan is not known: the time is then less.
    """
    if schedule.engine.by_library:
        return 0
    n, network, ranks = scenario.num_ranks, scenario.network, period_of(scenario, schedule)
    loads = [0] * len(network.own)  # bytes, of all links together that a shift maps onto each other
    steps, sent = tuple[Step, ...](), Counter[tuple[int, int]]()
    for rank in range(ranks):
        checkpoint()
        if schedule.steps_of(rank) != steps:
            steps = schedule.steps_of(rank)
            sent = _sent(scenario, steps)
        for (source, target), num_bytes in sent.items():
            for link, _ in network.way((rank + source) % n, (rank + target) % n):
                loads[link] += num_bytes
    alike = ranks // network.period  # of those links, that ``ranks`` load
    times = (
        load * TICKS_PER_SECOND // (alike * edge.bytes_per_s) for load, edge in zip(loads, network.own, strict=True)
    )
    return max(times, default=0)


def _sent(scenario: OpCase, steps: tuple[Step, ...]) -> Counter[tuple[int, int]]:
    """Count the bytes that the steps of a rank send, by source and target as seen from that rank."""
    sent = Counter[tuple[int, int]]()
    for step in steps:
        if isinstance(step, Transfer) and step.reach is not Reach.ALL:
            sent[ends_of(0, step)] += moved_bytes(scenario, step.region)
    return sent
