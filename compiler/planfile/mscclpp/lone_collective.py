"""The transfers and sums of a lone collective in one order of all ranks, for a writer of execution plans of MSCCL++.

A transfer behind a sum or an arrival of its rows passes that on; else it carries the part of its rank. What a sum of
its destination adds is *staged*: it lands in scratch memory, where the sum reads it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from math import gcd

from ...ir import (
    Arrival,
    CopyProtocol,
    Direction,
    EngineMode,
    OpCase,
    OpPlan,
    Pattern,
    Reach,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    all_arrivals,
    before_each,
)
from ..write import ONE_OWNER, SEVERAL, unwritable
from .document import COLLECTIVES

COLLECTIVE_NAMES = {pattern: name for name, pattern in COLLECTIVES.items()}
Key = tuple[int, str]
"""A step: absolute rank and name."""


@dataclass(frozen=True)
class LoneCollective:
    """A schedule of a lone collective, whose transfers are of whole rows."""

    scenario: OpCase
    schedule: OpPlan

    @classmethod
    def of(cls, scenario: OpCase, schedule: OpPlan) -> "LoneCollective":
        """Check that such a plan exists.

        Raises
        ------
        ScheduleError
            If not, with the first reason.
        """
        shape = scenario.shape
        if shape.uneven_parts and shape.pattern in COLLECTIVE_NAMES:
            n = scenario.num_ranks
            message = f"a plan of MSCCL++ has equal chunks, and parts for {n} ranks are not of one size here"
            raise unwritable(message, f"rows or columns that are a multiple of {n}")
        if shape.pattern not in COLLECTIVE_NAMES or shape.uneven or shape.loads:
            message = f"no execution plan of MSCCL++ does {shape.label}"
            raise unwritable(message, f"it does a lone {', '.join(each.value for each in COLLECTIVE_NAMES)}")
        if schedule.tactics.protocol is CopyProtocol.LL128:
            raise unwritable("the executor has no packets of 128 bytes (ll128)", "protocol=ll, or simple")
        if schedule.engine.mode not in (EngineMode.OWN, EngineMode.CHANNELS):
            message = f"{schedule.engine}: engines of a plan take what comes as it comes"
            raise unwritable(message, f"engine={schedule.engine.kind.value}({schedule.engine.count})")
        collective = cls(scenario, schedule)
        for rank in range(scenario.num_ranks):
            for step in schedule.steps_of(rank):
                collective._check(step)
        return collective

    def _check(self, step: Step) -> None:
        shape = self.scenario.shape
        if not isinstance(step, TileGroup) and step.region.also:
            message = f"{step.name} takes {SEVERAL}, and an operation of a plan takes one piece of a buffer"
            raise unwritable(message, ONE_OWNER)
        if isinstance(step, Transfer):
            cols = shape.moved.cols if shape.moved is not None else 0
            if step.region.cols.size != cols:
                raise unwritable(f"{step.name} moves some columns of its rows", "split rows")
            if step.reach is Reach.PEER and step.reduce:
                message = f"{step.name} adds where it lands, and operations of a plan add what they read"
                raise unwritable(message, "engine=dma(n), where a kernel sums, or algorithm direct or one_shot")
            if step.reach is Reach.PEER and step.direction is Direction.GET:
                raise unwritable(f"{step.name} is a get, and puts are written", "transfer=put")
            if shape.pattern is Pattern.ALL_TO_ALL and step.passes:
                message = f"{step.name} puts a block to a rank that passes it on, for which a plan has no buffer here"
                raise unwritable(message, "a schedule whose blocks go straight, such as serial")
        elif isinstance(step, Reduction) and shape.pattern is Pattern.REDUCE_SCATTER and step.region.owner:
            message = f"{step.name} sums a part of the result of another rank"
            raise unwritable(message, "algorithm direct or one_shot; ring for an all_reduce")

    @property
    def packets(self) -> bool:
        """Whether data goes in packets, which carry a flag each."""
        return self.schedule.tactics.protocol is CopyProtocol.LL

    @property
    def by_switch(self) -> bool:
        """Whether the switch copies to all, or sums."""
        return any(isinstance(step, Transfer) and step.reach is Reach.ALL for step in self.schedule.steps_of(0))

    @cached_property
    def arrived(self) -> Mapping[Key, tuple[Arrival, ...]]:
        """The arrivals that each signal of a rank stands for."""
        found: dict[Key, list[Arrival]] = {}
        for rank, arrivals in enumerate(all_arrivals(self.scenario, self.schedule)):
            for arrival in arrivals:
                found.setdefault((rank, arrival.transfer.signal), []).append(arrival)
        return {key: tuple(arrivals) for key, arrivals in found.items()}

    @cached_property
    def before(self) -> tuple[Mapping[str, frozenset[str]], ...]:
        """For each rank and step what always happens there before."""
        return tuple(before_each(self.schedule.steps_of(rank)) for rank in range(self.scenario.num_ranks))

    def in_order(self) -> Iterator[tuple[int, Step]]:
        """Yield all steps of all ranks, each behind what it waits for; those that may run at once in issue order."""
        steps = {
            (rank, step.name): (place, step)
            for rank in range(self.scenario.num_ranks)
            for place, step in enumerate(self.schedule.steps_of(rank))
        }
        sorter = TopologicalSorter({key: set(self._waits(key, step)) for key, (_, step) in steps.items()})
        sorter.prepare()
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=lambda key: (steps[key][0], key[0]))
            for key in ready:
                yield key[0], steps[key][1]
            sorter.done(*ready)

    def _waits(self, key: Key, step: Step) -> Iterator[Key]:
        for name in step.after:
            arrivals = self.arrived.get((key[0], name))
            if arrivals is None:
                yield key[0], name
            for arrival in arrivals or ():
                yield arrival.issuer, arrival.transfer.name

    def is_own(self, rank: int, transfer: Transfer) -> bool:
        """Whether ``rank`` sends its own part, and neither a sum nor what has arrived."""
        before = self.before[rank][transfer.name]
        sums = [each for each in self.schedule.steps_of(rank) if isinstance(each, Reduction) and each.name in before]
        arrived = [each for signal in before for each in self.arrived.get((rank, signal), ())]
        parts = [each.region for each in arrived if not self.is_staged(each.issuer, each.transfer)]
        return not any(overlap(region, transfer.region) for region in (*parts, *(each.region for each in sums)))

    def is_staged(self, rank: int, transfer: Transfer) -> bool:
        """Whether a sum of its destination adds what ``rank`` sends."""
        return (rank, transfer.name) in self._staged

    @cached_property
    def _staged(self) -> frozenset[Key]:
        steps = ((rank, step) for rank in range(self.scenario.num_ranks) for step in self.schedule.steps_of(rank))
        sums = ((rank, step) for rank, step in steps if isinstance(step, Reduction))
        return frozenset((each.issuer, each.transfer.name) for at in sums for each in self.staged_for(*at))

    def staged_for(self, rank: int, step: Reduction) -> list[Arrival]:
        """Return the arrivals at ``rank`` whose parts ``step`` adds to the own one.

        Raises
        ------
        ScheduleError
            If they are not one of each other rank, of the rows of the sum.
        """
        signals = self.before[rank][step.name]
        found = [
            arrival
            for signal in sorted(signals)
            for arrival in self.arrived.get((rank, signal), ())
            if overlap(arrival.region, step.region)
        ]
        if len(found) != step.num_parts - 1 or any(arrival.region != step.region for arrival in found):
            raise unwritable(f"{step.name} adds parts that were cut in another way", "algorithm direct or one_shot")
        return sorted(found, key=lambda arrival: arrival.source)

    @cached_property
    def unit_rows(self) -> int:
        """Rows of a chunk: all regions begin and end between chunks."""
        unit = self.scenario.shape.moved_tensor.rows // self.scenario.num_ranks
        for rank in range(self.schedule.period(self.scenario.num_ranks)):
            for step in self.schedule.steps_of(rank):
                if isinstance(step, Transfer | Reduction):
                    unit = gcd(unit, step.region.rows.start, step.region.rows.stop)
        return unit

    @property
    def unit_bytes(self) -> int:
        """Bytes of a chunk."""
        moved = self.scenario.shape.moved_tensor
        return moved.dtype.bytes_of(self.unit_rows * moved.cols)

    @property
    def per_block(self) -> int:
        """Chunks in the row block of a rank."""
        return self.scenario.shape.moved_tensor.rows // self.scenario.num_ranks // self.unit_rows


def overlap(one: Region, other: Region) -> bool:
    """Whether two regions of one rank share rows."""
    return one.owner == other.owner and one.rows.meets(other.rows)
