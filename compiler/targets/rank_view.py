"""One rank of a plan beside its kernel: where regions lie, which flags are set when, where partial sums land."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ..ir import (
    Arrival,
    OpCase,
    OpPlan,
    Pattern,
    Rect,
    Reduction,
    Region,
    Step,
    TileGroup,
    all_arrivals,
    before_each,
    moved_rows,
)


def rank_views(scenario: OpCase, schedule: OpPlan) -> tuple["RankView", ...]:
    """Return the view of each rank."""
    arrivals = all_arrivals(scenario, schedule)
    return tuple(RankView(scenario, schedule, rank, arrivals[rank]) for rank in range(scenario.num_ranks))


@dataclass(frozen=True)
class RankView:
    """The plan of absolute rank ``rank``. ``arrivals`` are numbered, and so are the flags that they set."""

    scenario: OpCase
    schedule: OpPlan
    rank: int
    arrivals: tuple[Arrival, ...]

    @property
    def pattern(self) -> Pattern:
        """The pattern of the workload."""
        return self.scenario.shape.pattern

    @cached_property
    def steps(self) -> dict[str, Step]:
        """The steps by name, in the order of issue."""
        return {step.name: step for step in self.schedule.steps_of(self.rank)}

    @cached_property
    def groups(self) -> dict[str, TileGroup]:
        """The groups of tiles by name, in the order of issue."""
        return {name: step for name, step in self.steps.items() if isinstance(step, TileGroup)}

    @cached_property
    def sums(self) -> tuple[Reduction, ...]:
        """The sums, in the order of issue."""
        return tuple(step for step in self.steps.values() if isinstance(step, Reduction))

    @cached_property
    def before(self) -> dict[str, frozenset[str]]:
        """The steps and signals that always happen here before each step."""
        return before_each(self.steps.values())

    # Places.

    @cached_property
    def block(self) -> int:
        """Rows of a block of the moved tensor."""
        return moved_rows(self.scenario.shape, self.scenario.num_ranks)

    def place(self, region: Region, block: int | None = None) -> Rect:
        """Return a region in the whole tensor, in row block ``block`` if that is not the region's own."""
        owner = (self.rank + region.owner) % self.scenario.num_ranks if block is None else block
        top = owner * self.block
        return Rect(top + region.rows.start, top + region.rows.stop, region.cols.start, region.cols.stop)

    @cached_property
    def landings(self) -> tuple[Rect, ...]:
        """Where each arrival arrives; blocks of an all_to_all are filed by the rank that they come from."""
        sources = [(self.rank + arrival.source) % self.scenario.num_ranks for arrival in self.arrivals]
        return tuple(
            self.place(arrival.region, source if self.pattern.exchanges else None)
            for arrival, source in zip(self.arrivals, sources, strict=True)
        )

    @cached_property
    def arrival_of(self) -> dict[tuple[int, str], int]:
        """The number of the arrival that a rank issues under a name."""
        return {(arrival.issuer, arrival.transfer.name): index for index, arrival in enumerate(self.arrivals)}

    # Flags: one for each arrival, and one for each own step that something waits for.

    @cached_property
    def signals(self) -> dict[str, tuple[int, ...]]:
        """The arrivals that set each signal."""
        signals: dict[str, tuple[int, ...]] = {}
        for index, arrival in enumerate(self.arrivals):
            signals[arrival.transfer.signal] = (*signals.get(arrival.transfer.signal, ()), index)
        return signals

    @cached_property
    def own_flags(self) -> dict[str, int]:
        """The flags of own steps. A group that only groups wait for has none: they are of one kernel."""
        awaited = {
            name
            for step in self.steps.values()
            for name in step.after
            if name not in self.groups or step.name not in self.groups
        }
        names = [name for name in self.steps if name in awaited]
        return {name: len(self.arrivals) + index for index, name in enumerate(names)}

    def flags(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the flags to wait for so that all of ``names`` have happened."""
        found = (flag for name in names for flag in self.signals.get(name) or (self.own_flags[name],))
        return tuple(dict.fromkeys(found))

    @property
    def flag_names(self) -> Iterator[str]:
        """What each flag says."""
        yield from (f"{arrival.transfer.name} of rank {arrival.issuer} has arrived" for arrival in self.arrivals)
        yield from (f"{name} is done" for name in self.own_flags)

    # Sums.

    @cached_property
    def planes(self) -> dict[int, int]:
        """For each arrival that is summed its plane of the buffer for parts, as many rows as a block."""
        taken: list[list[Rect]] = []
        planes: dict[int, int] = {}
        summed = {name for step in self.sums for name in step.after}
        for index, arrival in enumerate(self.arrivals):
            if arrival.transfer.signal in summed:
                rect = Rect.of(arrival.region)
                plane = next((at for at, rects in enumerate(taken) if not any(map(rect.clip, rects))), len(taken))
                if plane == len(taken):
                    taken.append([])
                taken[plane].append(rect)
                planes[index] = plane
        return planes

    @cached_property
    def made(self) -> dict[int, list[tuple[str, Rect]]]:
        """For each block the results in it: the name of a sum, or of the signal of what arrives to stay; and place."""
        places = [(step.name, self.place(step.region)) for step in self.sums]
        for index, arrival in enumerate(self.arrivals):
            if index not in self.planes:
                places.append((arrival.transfer.signal, self.landings[index]))
        made: dict[int, list[tuple[str, Rect]]] = {}
        for name, rect in places:
            made.setdefault(rect.top // self.block, []).append((name, rect))
        return made
