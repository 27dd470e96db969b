"""A plan beside one persistent GEMM kernel: groups of tiles, copies and sums of each rank, in absolute places.

Buffers of a rank, by the names that copies use:

- a GEMM after a collective: ``a``, what it multiplies, with the rank's own block in it from the start; after an
  all_to_all ``x``, what the rank sends; ``c``, the output
- a GEMM before a collective: ``c``, the rank's own result; ``parts``, what peers send to be summed; ``y``, sums and
  what arrives as it stays
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..ir import (
    Arrival,
    Direction,
    OpCase,
    OpPlan,
    Pattern,
    Rect,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    all_arrivals,
    arrivals_at,
    before_each,
    moved_rows,
)
from .tile_tables import Copy, Group, Sum

# One rank of a plan beside its kernel: where regions lie, which flags are set when, where partial sums land.


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


@dataclass(frozen=True, slots=True)
class GemmProgram:
    """What one rank does: ``flags`` by what they say, groups in the order of the kernel, copies and sums in theirs.

    ``part_rows`` are the rows that it needs of the buffer ``parts``.
    """

    flags: tuple[str, ...]
    groups: tuple[Group, ...]
    steps: tuple[Copy | Sum, ...]
    part_rows: int


class NotExpressed(Exception):
    """What a program of copies and sums cannot say, as a sentence."""


def gemm_programs(scenario: OpCase, schedule: OpPlan) -> tuple[GemmProgram, ...]:
    """Return the program of each rank.

    Raises
    ------
    NotExpressed
        If a sum takes other pieces than those that arrive.
    """
    ranks = rank_views(scenario, schedule)
    return tuple(
        GemmProgram(
            tuple(rank.flag_names),
            tuple(_group(rank, step) for step in rank.groups.values()),
            tuple(_host_steps(rank, ranks)),
            (max(rank.planes.values(), default=-1) + 1) * rank.block,
        )
        for rank in ranks
    )


def check_expressed(scenario: OpCase, schedule: OpPlan) -> None:
    """Check, by the first of the ranks that a plan repeats, that ``gemm_programs`` can write it.

    Raises
    ------
    NotExpressed
        As there.
    """
    period, n = schedule.period(scenario.num_ranks), scenario.num_ranks
    views = (
        rank_views(scenario, schedule)[:period]
        if period * period > n
        else [RankView(scenario, schedule, rank, arrivals_at(scenario, schedule, rank)) for rank in range(period)]
    )
    for view in views:
        for step in view.steps.values():
            if isinstance(step, Transfer):
                _source_buffer(view, step, view.place(step.region))
            elif isinstance(step, Reduction):
                _sum(view, step)


def _group(rank: RankView, step: TileGroup) -> Group:
    """Groups of one kernel need no order among each other, but what they read has arrived."""
    waits = rank.flags(name for name in step.after if name not in rank.groups)
    if rank.pattern.consumes:
        places = map(rank.place, step.regions)
        reads = [Rect(place.top, place.bottom, step.k.start, step.k.stop) for place in places]
        arrived = (index for signal in rank.before[step.name] for index in rank.signals.get(signal, ()))
        read = {index for index in arrived if any(map(rank.landings[index].clip, reads))}
        waits = (*waits, *sorted(read - set(waits)))
    regions = tuple((tile.top, tile.bottom, tile.left, tile.right) for tile in map(rank.place, step.regions))
    return Group(step.name, regions, (step.k.start, step.k.stop), waits, rank.own_flags.get(step.name, -1))


def _host_steps(rank: RankView, ranks: Sequence[RankView]) -> Iterator[Copy | Sum]:
    for step in rank.steps.values():
        if isinstance(step, Transfer):
            yield _copy(rank, step, ranks)
        elif isinstance(step, Reduction):
            yield _sum(rank, step)


def _copy(rank: RankView, step: Transfer, ranks: Sequence[RankView]) -> Copy:
    peer = ranks[(rank.rank + step.peer) % len(ranks)]
    source, target = (rank, peer) if step.direction is Direction.PUT else (peer, rank)
    index = target.arrival_of[rank.rank, step.name]
    piece, landing, plane = rank.place(step.region), target.landings[index], target.planes.get(index)
    top = landing.top if plane is None else landing.top % rank.block + plane * rank.block
    return Copy(
        name=step.name,
        source=source.rank,
        source_buffer=_source_buffer(rank, step, piece),
        source_at=(piece.top, piece.left),
        target=target.rank,
        target_buffer="a" if rank.pattern.consumes else "y" if plane is None else "parts",
        target_at=(top, landing.left),
        size=(piece.bottom - piece.top, piece.right - piece.left),
        waits=rank.flags(step.after),
        lane=-1 if step.lane is None else step.lane,
        flag=index,
        done=rank.own_flags.get(step.name, -1),
    )


def _source_buffer(rank: RankView, step: Transfer, piece: Rect) -> str:
    """The buffer that a transfer reads; a get reads what its peer has from the start, and follows no kernel."""
    if rank.pattern.consumes:
        return "x" if rank.pattern.exchanges else "a"
    return _newest(rank, step.name, piece)


def _newest(rank: RankView, name: str, piece: Rect) -> str:
    """``y`` where something has made ``piece`` before the step ``name``, else ``c``."""
    known, made = rank.before[name], rank.made.get(piece.top // rank.block, ())
    found = [part for other, rect in made if other in known and (part := piece.clip(rect)) is not None]
    if found and piece not in found:
        raise NotExpressed(f"{name} takes {piece}, which several steps have made")
    return "y" if found else "c"


def _sum(rank: RankView, step: Reduction) -> Sum:
    place, parts = rank.place(step.region), []
    for index in rank.flags(name for name in step.after if name in rank.signals):
        here = place.clip(rank.landings[index])
        if here is not None:
            if here != place:
                name = rank.arrivals[index].transfer.name
                raise NotExpressed(f"{step.name} sums {place}, and {name} brings {here}")
            parts.append((place.top % rank.block + rank.planes[index] * rank.block, place.left))
    if len(parts) != step.num_parts - 1:
        raise NotExpressed(f"{step.name} sums {step.num_parts} parts, and waits for {len(parts)} that arrive")
    return Sum(
        name=step.name,
        at=(place.top, place.left),
        size=(place.bottom - place.top, place.right - place.left),
        own=_newest(rank, step.name, place),
        parts=tuple(parts),
        waits=rank.flags(step.after),
        done=rank.own_flags.get(step.name, -1),
    )
