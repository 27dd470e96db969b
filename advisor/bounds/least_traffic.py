"""The bytes that any schedule of a collective must bring into and out of each rank, and the links that take them.

Terms of one collective over n ranks, of T bytes in n shards of s, by the cut around a rank:

    all_gather       in  (n - 1) s                reduce_scatter   out (n - 1) s, in s
    all_reduce       in  T, out T                 all_to_all       in and out all blocks but the own
    broadcast        in  T (but the root), out T (the root)        send_recv   in T (rank 1), out T (rank 0)

Where no switch sums, what arrives can also be counted: each part of an all_reduce takes 2 (n - 1) messages, so that a
rank passes 2 (n - 1) / n of the tensor at least (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009), and each
of a reduce_scatter n - 1. A switch that copies to all saves bytes on the way in and none on the way out of it.

Of an all_reduce in a switch each part leaves all n ranks to be summed, and its sum leaves one of them again to be
copied: n + 1 messages on the way in and n on the way out. Without it, but copied by the switch, these are n and
2 (n - 1). A schedule may take either for each part, so that the mean is n + (n - 2) / (n - 1) on one of the ways.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...compiler.ir import Edge, Fabric, Pattern, Scenario, checkpoint, network_of
from ...compiler.planning.reach import reject_reach
from ...compiler.templates.collective import collective_in
from .routes import Ints, routes_of


@dataclass(frozen=True, slots=True)
class LeastTraffic:
    """Bytes into and out of each rank, whatever the schedule; ``total`` is what arrives at all ranks together.

    ``read`` is what each rank must read of its own data to send it: a lower bound, as what arrived may be in a cache.
    ``issued`` is what the engines of a rank move, in the mean over ranks; a copy to all or a sum of all counts once.
    Where ranks differ, ``rank`` is the one that ``read`` and the kernels are of.
    """

    into: tuple[int, ...]
    out: tuple[int, ...]
    total: int
    read: int = 0
    issued: int = 0
    rank: int | None = None

    @property
    def busiest_bytes(self) -> int:
        """What arrives at some rank: the most of any, at least the mean over ranks; at ``rank`` where they differ."""
        if self.rank is not None:
            return self.into[self.rank]
        return max(*self.into, -(-self.total // len(self.into)))


@dataclass(frozen=True, slots=True)
class Ports:
    """Bytes per second of all links together into each rank and out of it."""

    into: tuple[int, ...]
    out: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Bytes that links of ``bytes_per_s`` together pass; ``where`` says which, to be read after "the links"."""

    num_bytes: int
    bytes_per_s: int
    where: str


def least_traffic(scenario: Scenario, *, can_sum: bool = True) -> LeastTraffic | None:
    """What must move, None if nothing does; ``can_sum`` is whether what copies can ask a switch for sums."""
    workload, n = scenario.workload, scenario.num_ranks
    kind, moved = collective_in(workload.pattern), workload.moved
    if kind is None or moved is None or n == 1:
        return None
    whole, shard = moved.num_bytes, moved.num_bytes // n
    sums = can_sum and reject_reach(scenario.system, sums=True) is None
    # Copies of one shard to all others.
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
        case Pattern.ALL_TO_ALL if workload.loads:
            return _exchanged(scenario)
        case Pattern.ALL_TO_ALL:
            num_bytes = sum(blocks_of(scenario)[1:])
            return _alike(n, num_bytes, num_bytes, read=num_bytes, issued=num_bytes)
        case Pattern.BROADCAST:
            others = (n - 1) * whole
            return LeastTraffic((0, *(whole,) * (n - 1)), (whole, *(0,) * (n - 1)), others, issued=spread * shard)
        case _:
            return LeastTraffic((0, whole, *(0,) * (n - 2)), (whole, *(0,) * (n - 1)), whole, issued=shard)


def _exchanged(scenario: Scenario) -> LeastTraffic:
    """Of an all_to_all whose ranks send differently: each has what comes and goes, some copies their mean share."""
    n, table = scenario.num_ranks, block_table(scenario)
    into = tuple(sum(sent[rank] for sent in table) - table[rank][rank] for rank in range(n))
    out = tuple(sum(sent) - sent[rank] for rank, sent in enumerate(table))
    rank = scenario.workload.rank
    return LeastTraffic(into, out, sum(into), read=out[rank], issued=sum(into) // n, rank=rank)


def loads_of(scenario: Scenario, moved: LeastTraffic) -> Iterator[Load]:
    """What links pass at least: those of each rank, of all together, of nodes; of an all_to_all each single one."""
    ports = ports_of(scenario)
    for num_bytes, rate in dict.fromkeys(zip(moved.into, ports.into, strict=True)):
        yield Load(num_bytes, rate, "into a rank")
    for num_bytes, rate in dict.fromkeys(zip(moved.out, ports.out, strict=True)):
        yield Load(num_bytes, rate, "out of a rank")
    yield Load(moved.total, sum(ports.into), "into all ranks together")
    if scenario.workload.pattern.exchanges:
        yield from _exchange_loads(scenario)
    elif not scenario.system.fabric.symmetric:
        yield from _group_loads(scenario)


def _exchange_loads(scenario: Scenario) -> Iterator[Load]:
    """Of an all_to_all each block goes straight to the rank that it is for, over the one route there is."""
    fabric, n = scenario.system.fabric, scenario.num_ranks
    if scenario.workload.loads:
        sent_to, ranks = np.array(block_table(scenario), np.int64), np.arange(n)
        yield from _busiest_links(fabric, n, lambda peer: sent_to[ranks, (ranks + peer) % n])
    else:
        yield from _routed_loads(fabric, n, blocks_of(scenario))


@lru_cache(maxsize=16)
def _routed_loads(fabric: Fabric, num_ranks: int, blocks: tuple[int, ...]) -> tuple[Load, ...]:
    """Of the links of each rate the one that passes most, where every rank sends ``blocks`` by relative peer."""
    if not fabric.symmetric:
        return tuple(_busiest_links(fabric, num_ranks, lambda peer: np.full(num_ranks, blocks[peer], np.int64)))
    # All ranks pass the same, so that the links of rank 0 are enough.
    network = network_of(fabric, num_ranks)
    passed = [0] * len(network.own)
    for way, num_bytes in zip(network.ways, blocks, strict=True):
        for number, _ in way:
            passed[number] += num_bytes
    return _most_of_each(fabric, network.own, passed)


def _busiest_links(fabric: Fabric, num_ranks: int, sent_to: Callable[[int], Ints]) -> tuple[Load, ...]:
    """Of the links of each rate the one that passes most; ``sent_to`` a relative peer are bytes [ranks]."""
    table = routes_of(fabric, num_ranks)
    passed = np.zeros(len(table.edges), np.int64)
    for peer in range(1, num_ranks):
        passes = table.passes(peer)
        np.add.at(passed, passes.edge, sent_to(peer)[passes.rank])
    return _most_of_each(fabric, table.edges, passed.tolist())


def _most_of_each(fabric: Fabric, edges: Sequence[Edge], passed: Sequence[int]) -> tuple[Load, ...]:
    """The largest of the loads with the same rate and words."""
    most: dict[tuple[int, str], int] = {}
    for edge, num_bytes in zip(edges, passed, strict=True):
        kind = edge.bytes_per_s, fabric.topology.where(edge)
        most[kind] = max(num_bytes, most.get(kind, 0))
    return tuple(Load(num_bytes, *kind) for kind, num_bytes in most.items())


def _group_loads(scenario: Scenario) -> Iterator[Load]:
    """What crosses the cut around each group of neighbours: nodes, rows of a torus, parts of a chain.

    The cut that takes the most time bounds any schedule (ForestColl, arXiv 2402.06787).
    """
    for size in _group_sizes(scenario):
        for has_root, into, out in _cuts(scenario.system.fabric, scenario.num_ranks, size):
            entering, leaving = _crossing(scenario, size, has_root=has_root)
            yield Load(entering, into, f"into {size} neighbours")
            yield Load(leaving, out, f"out of {size} neighbours")


@lru_cache(maxsize=64)
def _cuts(fabric: Fabric, num_ranks: int, size: int) -> tuple[tuple[bool, int, int], ...]:
    """The cuts around groups of ``size``, those alike once: whether rank 0 is in it, bytes per second in and out.

    A switch that joins ranks of one group alone is on their side.
    """
    network = network_of(fabric, num_ranks)
    into, out = defaultdict[int, list[Edge]](list), defaultdict[int, list[Edge]](list)
    for edge in network.edges:
        into[edge.target].append(edge)
        out[edge.source].append(edge)
    found = dict[tuple[bool, int, int], None]()
    for first in range(0, num_ranks, size):
        checkpoint()
        group = set(range(first, first + size))
        switches = {edge.target for rank in group for edge in out[rank] if edge.target >= num_ranks}
        group |= {
            switch
            for switch in switches
            if all(edge.source in group or edge.source >= num_ranks for edge in into[switch])
        }
        entering = sum(edge.bytes_per_s for node in group for edge in into[node] if edge.source not in group)
        leaving = sum(edge.bytes_per_s for node in group for edge in out[node] if edge.target not in group)
        found[first == 0, entering, leaving] = None
    return tuple(found)


def _group_sizes(scenario: Scenario) -> list[int]:
    """Sizes that divide the ranks, those of nodes among them."""
    n = scenario.num_ranks
    return sorted(
        {size for size in (2, 4, 8, n // 2, scenario.system.fabric.node_size) if 1 < size < n and n % size == 0}
    )


def _crossing(scenario: Scenario, size: int, *, has_root: bool) -> tuple[int, int]:
    """Bytes into and out of ``size`` ranks, with the root of a broadcast among them or not."""
    workload, n = scenario.workload, scenario.num_ranks
    assert workload.moved is not None, "a collective moves a tensor"
    whole = workload.moved.num_bytes
    others = whole // n * (n - size)
    match collective_in(workload.pattern):
        case Pattern.ALL_GATHER:
            return others, whole // n * size
        case Pattern.REDUCE_SCATTER:
            return whole // n * size, others
        case Pattern.ALL_REDUCE:
            return whole, whole
        case Pattern.BROADCAST:
            return (0, whole) if has_root else (whole, 0)
        case _:
            return 0, 0


def ports_of(scenario: Scenario) -> Ports:
    """What the links into and out of each rank pass."""
    network = network_of(scenario.system.fabric, scenario.num_ranks)
    return Ports(network.bytes_per_s_into, network.bytes_per_s_out)


def _alike(n: int, into: int, out: int, arriving: int = 0, *, read: int, issued: int) -> LeastTraffic:
    """The same for every rank; ``arriving`` is the mean over ranks where it is more than ``into``."""
    return LeastTraffic((into,) * n, (out,) * n, n * max(into, arriving), read, issued)


def blocks_of(scenario: Scenario) -> tuple[int, ...]:
    """Bytes that a rank has for each rank r + k of an all_to_all; where ranks differ, what r + k has for it."""
    workload, n = scenario.workload, scenario.num_ranks
    if workload.loads:
        table = block_table(scenario)
        return tuple(table[(workload.rank + k) % n][workload.rank] for k in range(n))
    assert workload.moved is not None, "an all_to_all moves a tensor"
    width = workload.moved.cols * workload.moved.dtype.num_bytes
    return tuple(rows * width for rows in workload.split or (workload.moved.rows // n,) * n)


def block_table(scenario: Scenario) -> tuple[tuple[int, ...], ...]:
    """Bytes [from][to] of an all_to_all whose ranks send differently."""
    workload = scenario.workload
    assert workload.moved is not None, "an all_to_all moves a tensor"
    width = workload.moved.cols * workload.moved.dtype.num_bytes
    return tuple(tuple(rows * width for rows in sent) for sent in workload.loads)
