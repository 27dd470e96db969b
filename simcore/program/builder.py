"""The builder: collects servers, pools, ops and who waits for whom; ``assembly`` makes arrays of it."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

from .arrays import NONE
from .assembly import Described, DescribedServer, OpCall, assemble
from .limits import check_range
from .program import MAX_HORIZON_TICKS, PRIORITIES, Flow, OpKind, OpSpec, Program, Stage

MAX_RANKS, MAX_OPS = 1 << 24, 1 << 31
"""Far more than fits into memory op by op, and few enough for every index to fit into an integer."""


@dataclass(frozen=True, slots=True)
class GroupRanks:
    """One group of the ranks of a program: ``size`` of them, the ``first`` and each ``stride`` after the one before.

    Of these ``period`` are written. A group counts its ranks from 0, and around.
    """

    first: int
    stride: int
    size: int
    period: int

    def of(self, rank: int) -> int:
        """Return the rank of the program that the group counts as ``rank``."""
        return self.first + rank % self.size * self.stride

    def placed(self, stages: Iterable[Stage], rank: int, ranks: int) -> tuple[Stage, ...]:
        """Return the ``stages`` of an op of ``rank`` with hops at ranks of the program, ``ranks`` of which are written.

        Simultaneous units are served by how far ahead the op is in its group, around, which is the same for all that
        are alike. So a hop has a number that is so many times ``ranks`` less than it would be.
        """
        return tuple(
            [
                Stage(hold, tuple([Flow(self._route(flow[0], rank, ranks), *flow[1:]) for flow in flows]), polls)
                for hold, flows, polls in stages
            ]
        )

    def _route(self, route: Iterable[tuple[int, int]], rank: int, ranks: int) -> tuple[tuple[int, int], ...]:
        first, stride, size = self.first, self.stride, self.size
        at = (first + rank % size * stride) % ranks
        return tuple(
            [
                (server, at - (at - first - other % size * stride) % ranks - (rank - other) % size * ranks)
                for server, other in route
            ]
        )


class ProgramBuilder:
    """Collects servers, pools and ops, and lays them out as a ``Program``.

    With a ``period``, a divisor of the number of ranks, only so many ranks are described, and a rank of a route or of a
    wait stands for all that are a multiple of it away. That is exact if each server and pool sees exactly one member
    of every class of flows and ops, as the caller sees to. Without one all ranks are described.
    """

    def __init__(self, num_ranks: int, *, unit_bytes: int, period: int | None = None) -> None:
        if num_ranks < 1 or unit_bytes < 1:
            raise ValueError(f"a program needs at least one rank and one byte a unit, not {num_ranks} and {unit_bytes}")
        if num_ranks > MAX_RANKS:
            raise ValueError(f"a program has at most {MAX_RANKS} ranks, not {num_ranks}")
        if period is not None and (period < 1 or num_ranks % period):
            raise ValueError(f"{num_ranks} ranks do not repeat after {period}")
        self._described = Described(num_ranks, period or num_ranks, unit_bytes)
        self._next_local_id = [0] * self._described.ranks_simulated
        self._prefix = ""
        self._priorities: Mapping[OpKind, int] = {}
        self._group: GroupRanks | None = None

    def scoped(self, prefix: str, priorities: Mapping[OpKind, int]) -> "ProgramBuilder":
        """Return a builder of the same program whose ops have labels with ``prefix``, and ``priorities`` by kind."""
        scope = copy(self)  # what is collected is shared
        scope._prefix, scope._priorities = prefix, priorities
        return scope

    def on(self, group: GroupRanks) -> "ProgramBuilder":
        """Return a builder of the same program whose ranks are those of a group."""
        scope = copy(self)
        scope._group = group
        return scope

    @property
    def num_ops(self) -> int:
        """Ops so far."""
        return self._described.num_ops

    def server(
        self, name: str, service_ticks: int, latency_ticks: int, *, buffer_units: int = 0, credit_ticks: int = 0
    ) -> int:
        """Declare a FIFO server that stands on every rank; returns its declared number.

        With ``buffer_units`` there is room at it for so many units from each server that feeds it, and a slot that a
        unit leaves can be used ``credit_ticks`` later; 0 is room without limit. With a period, servers on ranks that
        differ by different numbers, modulo the number of ranks, count as different ones.
        """
        check_range(f"server {name!r}", service_ticks, latency_ticks, credit_ticks)
        check_range(f"the buffer of server {name!r}", min(buffer_units, MAX_HORIZON_TICKS))
        if service_ticks < 1:
            raise ValueError(f"server {name!r} must serve a unit in at least one tick, not {service_ticks}")
        if latency_ticks < 0:
            raise ValueError(f"server {name!r} has a negative latency, {latency_ticks} ticks")
        if buffer_units < 0 or credit_ticks < 0:
            raise ValueError(f"server {name!r} has a negative buffer or credit time")
        self._described.servers.append(DescribedServer(name, service_ticks, latency_ticks, buffer_units, credit_ticks))
        return len(self._described.servers) - 1

    def passing_ticks(self, server: int) -> int:
        """Time in which a unit passes a declared ``server`` that serves nothing else."""
        declared = self._described.servers[server]
        return declared.service_ticks + declared.latency_ticks

    def pool(self, name: str, slots: int) -> int:
        """Declare a pool of slots that stands on every rank; returns its declared number."""
        check_range(f"pool {name!r}", slots)
        if slots < 1:
            raise ValueError(f"pool {name!r} has no slots: an op that needs one would wait forever")
        self._described.pools.append((name, slots))
        return len(self._described.pools) - 1

    def op(self, rank: int, op: OpSpec, *, count: int = 1) -> range:
        """Define ``count`` ops like ``op`` with consecutive local ids; returns their global ids."""
        return self._called(rank, op, [count], [tuple(op.stages)])

    def runs(self, rank: int, op: OpSpec, runs: Iterable[tuple[int, tuple[Stage, ...]]]) -> range:
        """Define ops like ``op`` in runs of (number of ops, the stages of each); returns their global ids."""
        return self._called(rank, op, *([list(column) for column in zip(*runs, strict=True)] or ([], [])))

    def _called(self, rank: int, op: OpSpec, counts: list[int], stages: list[tuple[Stage, ...]]) -> range:
        described, name, times = self._described, f"op {op.label!r}", (op.setup_ticks, op.release_ticks)
        written = described.ranks_simulated
        if self._group is not None:
            placed = {id(each): self._group.placed(each, rank, written) for each in stages}
            stages, rank = [placed[id(each)] for each in stages], self._group.of(rank) % written
        if not 0 <= rank < written:
            raise ValueError(f"{name} is on rank {rank}; ranks 0 to {written - 1} are described here")
        if op.pool is not None and not 0 <= op.pool < len(described.pools):
            raise ValueError(f"{name} queues for pool {op.pool}, which is not declared")
        check_range(name, *times, *counts)
        first, total = described.num_ops, sum(counts)
        if first + total > MAX_OPS:
            raise ValueError(f"{name} makes {first + total} ops, at most {MAX_OPS} are possible")
        if min(*times, *counts) < 0:
            raise ValueError(f"{name} has a negative setup, release or count")
        priority = self._priorities.get(op.kind, 0) + op.priority
        if priority not in PRIORITIES:
            raise ValueError(f"{name} has priority {priority}, not one of {PRIORITIES[0]} to {PRIORITIES[-1]}")
        label = described.label_idx.setdefault(self._prefix + op.label, len(described.label_idx))
        pool = NONE if op.pool is None else op.pool * written + rank
        kind, local_id = int(OpKind(op.kind)), self._next_local_id[rank]
        described.calls.append(OpCall(kind, label, rank, local_id, pool, *times, priority, total))
        described.run_ops += counts
        described.stages += stages
        self._next_local_id[rank] += total
        described.num_ops += total
        return range(first, first + total)

    def after(self, ops: Iterable[int], wait_for: Iterable[int]) -> None:
        """Make every op of ``ops`` wait for every one of ``wait_for``.

        Where both sides are large the builder puts a JOIN op between them: n + m edges in place of n * m. Such joins
        come after all other ops in the arrays, and have no local id, pool or flows: nobody's order or times change.
        """
        waiters, sources = list(ops), list(wait_for)
        # The factor leaves small products as they are: a join is an op, dearer than a few edges.
        if len(waiters) * len(sources) > 4 * (len(waiters) + len(sources)):
            self._described.joins.append((waiters, sources))
        elif len(waiters) == 1:
            self._described.edge_from += sources
            self._described.edge_to += waiters * len(sources)
        else:
            for source in sources:
                self._described.edge_from += [source] * len(waiters)
                self._described.edge_to += waiters

    def flags(self, ops: Iterable[int], set_by: Iterable[int]) -> None:
        """Make the polling stage of every op of ``ops`` look for the flags that ``set_by`` set when they are done."""
        pollers, sources = list(ops), list(set_by)
        for source in sources:
            self._described.flag_from += [source] * len(pollers)
            self._described.flag_to += pollers

    def build(self) -> Program:
        """Check the description and lay it out.

        Raises
        ------
        ValueError
            If an id names nothing, a time is negative, ops wait for each other in a circle, or the program could
            outlast an int64 clock.
        """
        return assemble(self._described)
