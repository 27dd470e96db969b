"""The bytes that any schedule of a collective must bring into and out of each rank, and the links that take them.

Terms of one collective over n ranks, of T bytes in n shards of s, by the cut around a rank:

    all_gather       in  (n - 1) s                reduce_scatter   out (n - 1) s, in s
    all_reduce       in  T, out T                 all_to_all       in and out all blocks but the own
    broadcast        in  T (but the root), out T (the root)        send_recv   in T (rank 1), out T (rank 0)

Where no switch sums, what arrives can also be counted: each part of an all_reduce takes 2 (n - 1) messages, so that a
rank passes 2 (n - 1) / n of the tensor at least (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009), and each
of a reduce_scatter n - 1. A switch that copies to all saves bytes on the way in and none on the way out of it.
"""

from collections import Counter
from dataclasses import dataclass

from ..compiler.scenario import FabricKind, Pattern, Scenario
from ..compiler.tactics import why_no_reach
from ..compiler.templates.collective import collective_in
from ..compiler.topology import topology_of


@dataclass(frozen=True, slots=True)
class LeastTraffic:
    """Bytes into and out of each rank, whatever the schedule; ``total`` is what arrives at all ranks together.

    ``read`` is what each rank must read of its own data to send it: a lower bound, as what arrived may be in a cache.
    """

    into: tuple[int, ...]
    out: tuple[int, ...]
    total: int
    read: int = 0

    @property
    def busiest_bytes(self) -> int:
        """What arrives at some rank: the most of any, at least the mean over ranks."""
        return max(*self.into, -(-self.total // len(self.into)))


@dataclass(frozen=True, slots=True)
class Ports:
    """Bytes per second of all links together into each rank and out of it."""

    into: tuple[int, ...]
    out: tuple[int, ...]


def least_traffic(scenario: Scenario) -> LeastTraffic | None:
    """What must move, None if nothing does."""
    workload, n = scenario.workload, scenario.num_ranks
    kind, moved = collective_in(workload.pattern), workload.moved
    if kind is None or moved is None or n == 1:
        return None
    whole, shard = moved.num_bytes, moved.num_bytes // n
    sums = why_no_reach(scenario.system, sums=True) is None
    match kind:
        case Pattern.ALL_GATHER:
            return _alike(n, (n - 1) * shard, shard, read=shard)
        case Pattern.REDUCE_SCATTER:
            return _alike(n, shard, (n - 1) * shard, shard if sums else (n - 1) * shard, read=shard)
        case Pattern.ALL_REDUCE:
            return _alike(n, whole, whole, whole if sums else 2 * (n - 1) * shard, read=shard)
        case Pattern.ALL_TO_ALL:
            num_bytes = sum(_blocks(scenario)[1:])
            return _alike(n, num_bytes, num_bytes, read=num_bytes)
        case Pattern.BROADCAST:
            return LeastTraffic((0, *(whole,) * (n - 1)), (whole, *(0,) * (n - 1)), (n - 1) * whole)
        case _:
            return LeastTraffic((0, whole, *(0,) * (n - 2)), (whole, *(0,) * (n - 1)), whole)


def ring_bytes(scenario: Scenario) -> int:
    """For an all_to_all on a ring, the bytes that the links of a rank pass: each block takes all links of its way."""
    n, both_ways = scenario.num_ranks, scenario.system.fabric.both_ways
    return sum((min(k, n - k) if both_ways else k) * size for k, size in enumerate(_blocks(scenario)))


def ports_of(scenario: Scenario) -> Ports:
    """What the links into and out of each rank pass."""
    fabric, n = scenario.system.fabric, scenario.num_ranks
    rate = fabric.link.achieved_bytes_per_s
    match fabric.kind:
        case FabricKind.FULL_MESH:
            return Ports(((n - 1) * rate,) * n, ((n - 1) * rate,) * n)
        case FabricKind.RING:
            links = 2 if fabric.both_ways and n > 2 else 1
            return Ports((links * rate,) * n, (links * rate,) * n)
        case FabricKind.SWITCH:
            assert fabric.switch is not None, "the compiler gives every switch fabric its switch"
            return Ports((min(rate, fabric.switch.bytes_per_s),) * n, (rate,) * n)
        case _:
            return _uneven_ports(scenario)


def _uneven_ports(scenario: Scenario) -> Ports:
    into, out, n = Counter[int](), Counter[int](), scenario.num_ranks
    for edge in topology_of(scenario.system.fabric, n).edges:
        into[edge.target] += edge.bytes_per_s
        out[edge.source] += edge.bytes_per_s
    return Ports(tuple(into[rank] for rank in range(n)), tuple(out[rank] for rank in range(n)))


def _alike(n: int, into: int, out: int, arriving: int = 0, *, read: int) -> LeastTraffic:
    """The same for every rank; ``arriving`` is the mean over ranks where it is more than ``into``."""
    return LeastTraffic((into,) * n, (out,) * n, n * max(into, arriving), read)


def _blocks(scenario: Scenario) -> tuple[int, ...]:
    """Bytes that a rank has for each rank r + k of an all_to_all."""
    workload, n = scenario.workload, scenario.num_ranks
    assert workload.moved is not None, "an all_to_all moves a tensor"
    width = workload.moved.cols * workload.moved.dtype.num_bytes
    return tuple(rows * width for rows in workload.split or (workload.moved.rows // n,) * n)
