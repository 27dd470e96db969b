"""The links of a fabric that any schedule of a collective must load, and the bytes that they pass at least.

Loads are those of the links of each rank, of all ranks together, of cuts around groups of ranks and, for an all_to_all,
of each single link.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from ...compiler.ir import Edge, Fabric, Pattern, Scenario, checkpoint, network_of
from ...compiler.templates.collective import collective_in
from .least_traffic import LeastTraffic, block_table, blocks_of
from .routes import Ints, routes_of


@dataclass(frozen=True, slots=True)
class Ports:
    """Bytes per second of all links into each rank together, and of all links out of it."""

    into: tuple[int, ...]
    out: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Bytes that links of ``bytes_per_s`` together pass; ``where`` names the links, to follow the words "the links"."""

    num_bytes: int
    bytes_per_s: int
    where: str


def loads_of(scenario: Scenario, moved: LeastTraffic) -> Iterator[LinkLoad]:
    """Yield the least loads of the links of each rank, of all ranks, of groups; for an all_to_all of single links."""
    ports = ports_of(scenario)
    for num_bytes, rate in dict.fromkeys(zip(moved.into, ports.into, strict=True)):
        yield LinkLoad(num_bytes, rate, "into a rank")
    for num_bytes, rate in dict.fromkeys(zip(moved.out, ports.out, strict=True)):
        yield LinkLoad(num_bytes, rate, "out of a rank")
    yield LinkLoad(moved.total, sum(ports.into), "into all ranks together")
    if scenario.workload.pattern.exchanges:
        yield from _exchange_loads(scenario)
    elif not scenario.network.symmetric:
        yield from _group_loads(scenario)


def _exchange_loads(scenario: Scenario) -> Iterator[LinkLoad]:
    """Yield the loads of an all_to_all, whose blocks go to their target over the one route there is."""
    fabric, n = scenario.system.fabric, scenario.num_ranks
    if scenario.workload.loads:
        sent_to, ranks = np.array(block_table(scenario), np.int64), np.arange(n)
        yield from _busiest_links(fabric, n, lambda peer: sent_to[ranks, (ranks + peer) % n])
    else:
        yield from _routed_loads(fabric, n, blocks_of(scenario))


@lru_cache(maxsize=16)
def _routed_loads(fabric: Fabric, num_ranks: int, blocks: tuple[int, ...]) -> tuple[LinkLoad, ...]:
    """Return the busiest link of each rate if every rank sends ``blocks`` by relative peer."""
    network = network_of(fabric, num_ranks)
    passed = [0] * len(network.own)
    for rank, (peer, num_bytes) in product(range(network.period), enumerate(blocks)):
        for number, _ in network.way(rank, (rank + peer) % num_ranks):
            passed[number] += num_bytes
    return _busiest_of_each_kind(fabric, network.own, passed)


def _busiest_links(fabric: Fabric, num_ranks: int, sent_to: Callable[[int], Ints]) -> tuple[LinkLoad, ...]:
    """Return the busiest link of each rate; ``sent_to`` returns the bytes [ranks] sent to a relative peer."""
    table = routes_of(fabric, num_ranks)
    passed = np.zeros(len(table.edges), np.int64)
    for peer in range(1, num_ranks):
        passes = table.passes(peer)
        np.add.at(passed, passes.edge, sent_to(peer)[passes.rank])
    return _busiest_of_each_kind(fabric, table.edges, passed.tolist())


def _busiest_of_each_kind(fabric: Fabric, edges: Sequence[Edge], passed: Sequence[int]) -> tuple[LinkLoad, ...]:
    """Return the largest load for each rate and place."""
    most: dict[tuple[int, str], int] = {}
    for edge, num_bytes in zip(edges, passed, strict=True):
        kind = edge.bytes_per_s, fabric.topology.where(edge)
        most[kind] = max(num_bytes, most.get(kind, 0))
    return tuple(LinkLoad(num_bytes, *kind) for kind, num_bytes in most.items())


def _group_loads(scenario: Scenario) -> Iterator[LinkLoad]:
    """Yield the loads of the cut around each group of neighbours: nodes, rows of a torus, parts of a chain.

    The cut that takes the most time bounds any schedule (ForestColl, arXiv 2402.06787).
    """
    for size in _group_sizes(scenario):
        for has_root, into, out in _cuts(scenario.system.fabric, scenario.num_ranks, size):
            entering, leaving = _crossing(scenario, size, has_root=has_root)
            yield LinkLoad(entering, into, f"into {size} neighbours")
            yield LinkLoad(leaving, out, f"out of {size} neighbours")


@lru_cache(maxsize=64)
def _cuts(fabric: Fabric, num_ranks: int, size: int) -> tuple[tuple[bool, int, int], ...]:
    """Return the different cuts around groups of ``size``: whether rank 0 is inside, bytes per second in and out.

    A switch that joins only ranks of one group is inside the group.
    """
    network = network_of(fabric, num_ranks)
    into, out = defaultdict[int, list[Edge]](list), defaultdict[int, list[Edge]](list)
    for edge in network.edges:
        into[edge.target].append(edge)
        out[edge.source].append(edge)
    cuts = dict[tuple[bool, int, int], None]()
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
        cuts[first == 0, entering, leaving] = None
    return tuple(cuts)


def _group_sizes(scenario: Scenario) -> list[int]:
    """Return sizes of groups that divide the ranks, among them the size of nodes."""
    n = scenario.num_ranks
    return sorted(
        {size for size in (2, 4, 8, n // 2, scenario.system.fabric.node_size) if 1 < size < n and n % size == 0}
    )


def _crossing(scenario: Scenario, size: int, *, has_root: bool) -> tuple[int, int]:
    """Return the bytes into and out of ``size`` ranks; ``has_root``: the root of a broadcast is one of them."""
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
    """Return the rates of the links into and out of each rank."""
    network = scenario.network
    return Ports(network.bytes_per_s_into, network.bytes_per_s_out)
