"""The bytes that any schedule of a collective must move into and out of each rank.

Terms of one collective over n ranks, of T bytes in n shards of s, by the cut around a rank:

    all_gather       in  (n - 1) s                reduce_scatter   out (n - 1) s, in s
    all_reduce       in  T, out T                 all_to_all       in and out all blocks but the own
    broadcast        in  T (but the root), out T (the root)        send_recv   in T (rank 1), out T (rank 0)

Without sums in a switch, arriving messages count: each part of an all_reduce takes 2 (n - 1) messages, so that a
rank passes 2 (n - 1) / n of the tensor at least (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009), and each
of a reduce_scatter n - 1. A switch that copies to all saves bytes on the links into it, none on the links out of it.

In an all_reduce by a switch each part leaves all n ranks to be summed, and its sum leaves one of them again to be
copied: n + 1 messages into the switch and n out of it. Without sums in the switch, but with copies by it, these are n
and 2 (n - 1). A schedule may do either for each part, so that the mean in one direction is n + (n - 2) / (n - 1).
"""

from dataclasses import dataclass

from ...compiler.ir import Pattern, Scenario
from ...compiler.planning.template_input import reject_reach
from ...compiler.templates.collective import collective_in


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


def least_traffic(scenario: Scenario, *, can_sum: bool = True) -> LeastTraffic | None:
    """Return the least traffic, None if nothing moves; ``can_sum`` is whether engines can ask a switch for sums."""
    workload, n = scenario.workload, scenario.num_ranks
    kind, moved = collective_in(workload.pattern), workload.moved
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
    """Return the traffic of an all_to_all whose ranks send different amounts; ``issued`` is the mean over ranks."""
    n, table = scenario.num_ranks, block_table(scenario)
    into = tuple(sum(sent[rank] for sent in table) - table[rank][rank] for rank in range(n))
    out = tuple(sum(sent) - sent[rank] for rank, sent in enumerate(table))
    rank = scenario.workload.rank
    return LeastTraffic(into, out, sum(into), read=out[rank], issued=sum(into) // n, rank=rank)


def _alike(n: int, into: int, out: int, arriving: int = 0, *, read: int, issued: int) -> LeastTraffic:
    """Return traffic that is the same at every rank; ``arriving`` is the mean over ranks if that is above ``into``."""
    return LeastTraffic((into,) * n, (out,) * n, n * max(into, arriving), read, issued)


def blocks_of(scenario: Scenario) -> tuple[int, ...]:
    """Return the bytes [k] that rank r sends to r + k in an all_to_all; if ranks differ, that r + k sends to r."""
    workload, n = scenario.workload, scenario.num_ranks
    if workload.loads:
        table = block_table(scenario)
        return tuple(table[(workload.rank + k) % n][workload.rank] for k in range(n))
    assert workload.moved is not None, "an all_to_all moves a tensor"
    width = workload.moved.cols * workload.moved.dtype.num_bytes
    return tuple(rows * width for rows in workload.split or (workload.moved.rows // n,) * n)


def block_table(scenario: Scenario) -> tuple[tuple[int, ...], ...]:
    """Return the bytes [source][target] of an all_to_all whose ranks send different amounts."""
    workload = scenario.workload
    assert workload.moved is not None, "an all_to_all moves a tensor"
    width = workload.moved.cols * workload.moved.dtype.num_bytes
    return tuple(tuple(rows * width for rows in sent) for sent in workload.loads)
