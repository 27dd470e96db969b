"""The state of a timeline on screen: which rows and which time are in view, where the cursor is, what stands out.

And a chunk that is followed: from its put over the links to the kernel that waits for it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ....compiler.ir import TICKS_PER_US, Direction, OpCase, Reach, Reduction, Region, Step, TileGroup, Transfer
from ....compiler.planning.plan import own_name
from ....compiler.text.units import bytes_text, ticks_text
from ....simcore.figures.metrics import DataFlow
from ....simcore.figures.result import Interval, IntervalKind, Result
from ....simcore.lower.state import moved_bytes
from ....simcore.shown_run import ShownRun, op_times
from .rows import RowsModel, Strip, TimelineCursor, strips_of
from .viewport import (
    NONE,
    Emphasis,
    Lanes,
    Standout,
    TimelineRow,
    Viewport,
    lanes_of_run,
    standout_of,
)

MOST_STOPS = 64
"""A chunk that is passed on around a large ring is followed so far."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop on the way of a chunk: an interval as an absolute rank has it, and the nodes that lead to it."""

    rank: int
    interval: Interval
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chunks:
    """The chunks of a run, to be followed; flows into a rank are looked up once."""

    run: ShownRun

    @cached_property
    def _known(self) -> dict[int, tuple[DataFlow, ...]]:
        return {}

    def chain_from(self, rank: int, interval: Interval) -> tuple[Stop, ...]:
        """Return the stops of the chunk that ``interval`` of ``rank`` moves, up to the kernel that waits for it.

        From a kernel the chunk that came last for it is followed, without one what it waits for of another op. Where
        several steps wait, the first kernel is taken, else the transfer that passes it on. From one of several ops its
        first step there is followed.
        """
        interval = self._first_step(rank, interval)
        if interval.kind is not IntervalKind.COMM:
            into = [flow for flow in self._into(rank) if flow.waiter == interval]
            if not into:
                return (Stop(rank, interval),)
            last = max(into, key=lambda flow: (flow.transfer.kind is IntervalKind.COMM, flow.transfer.end_ticks))
            return Stop(last.issuer, last.transfer), Stop(rank, interval, last.path)
        stops = [Stop(rank, interval)]
        while stops[-1].interval.kind is IntervalKind.COMM and len(stops) < MOST_STOPS:
            onward = self._onward(stops[-1])
            if onward is None:
                break
            stops.append(onward)
        return tuple(stops)

    def _first_step(self, rank: int, interval: Interval) -> Interval:
        """The step with which the time of an op begins; a step is one itself."""
        own = (part for part in self.run.parts if part.op == interval.name)
        names = {part.shown(step) for part in own for step in part.schedule.steps_of(rank)}
        begin = (
            each
            for each in (self.run.result.timeline.of_rank(rank) if names else ())
            if each.name in names and each.start_ticks == interval.start_ticks and _moves(each) is _moves(interval)
        )
        return next(begin, interval)

    def _into(self, rank: int) -> tuple[DataFlow, ...]:
        if rank not in self._known:
            self._known[rank] = self.run.flows(rank)
        return self._known[rank]

    def _onward(self, stop: Stop) -> Stop | None:
        """What waits for the transfer of ``stop``: a kernel if there is one, else the transfer that goes first."""
        flows = [
            flow
            for rank in self._reached(stop)
            for flow in self._into(rank)
            if flow.issuer == stop.rank and flow.transfer == stop.interval
        ]
        if not flows:
            return None
        flow = min(flows, key=lambda one: (one.waiter.kind is IntervalKind.COMM, one.waiter.start_ticks, one.rank))
        return Stop(flow.rank, flow.waiter, flow.path)

    def _reached(self, stop: Stop) -> Iterable[int]:
        """Return the ranks where the transfer of ``stop`` arrives or is told of; of many alike the next and the own."""
        num_ranks = self.run.num_ranks
        step = self.run.step_of(stop.rank, stop.interval.name)
        match step:
            case Transfer(reach=Reach.PEER, direction=Direction.PUT):
                return ((stop.rank + step.peer) % num_ranks,)
            case Transfer(reach=Reach.PEER, direction=Direction.GET):
                steps = self.run.part_of(stop.rank, stop.interval.name).schedule.steps_of(stop.rank)
                told = (each.peer for each in steps if isinstance(each, Transfer) and each.peer_after)
                return dict.fromkeys((stop.rank, *((stop.rank - peer) % num_ranks for peer in told)))
            case _:
                return dict.fromkeys(((stop.rank + 1) % num_ranks, stop.rank))


def _moves(interval: Interval) -> bool:
    return interval.kind is IntervalKind.COMM


MOST_NAMED = 3
"""Most waits that are named."""


def reported(run: ShownRun, rank: int, interval: Interval) -> str:
    """Return a line about ``interval``, shown at ``rank``: a step, or an op."""
    start, end = interval.start_ticks / TICKS_PER_US, interval.end_ticks / TICKS_PER_US
    parts = [f"{interval.name} on r{rank} {interval.lane}", f"{start:.1f} to {end:.1f} us ({end - start:.1f} us)"]
    step = run.step_of(rank, interval.name)
    if step is not None:
        parts.append(_work(run.part_of(rank, interval.name).scenario, rank, step))
        if step.after:
            parts.append(f"after {_listed(step.after)}")
        if isinstance(step, Transfer) and step.peer_after:
            parts.append(f"after {_listed(step.peer_after)} of its peer")
    parts += _op(run, interval.name)
    return " · ".join(parts)


def _op(run: ShownRun, name: str) -> list[str]:
    """What the op of that name is, and what hides its copies; nothing if that is the name of a step."""
    part = next((part for part in run.parts if part.op == name), None)
    if part is None:
        return []
    same = next((op for op in op_times(run) if op.name == own_name(name)), None)
    how = [f"{part.label} {same.span.schedule}".strip()] if same is not None else [part.label]
    return [*how, f"copies beside {same.beside_text}"] if same is not None and same.beside_text else how


def _work(scenario: OpCase, rank: int, step: Step) -> str:
    match step:
        case Transfer():
            return f"{step.direction.value} of {_moved(scenario, step.region)}{_way(scenario.num_ranks, rank, step)}"
        case TileGroup():
            rows = sum(region.rows.size for region in step.regions)
            return f"kernel {rows} x {step.regions[0].cols.size}, k {step.inner}"
        case Reduction():
            return f"sum of {step.num_parts} parts of {_moved(scenario, step.region)}"


def _moved(scenario: OpCase, region: Region) -> str:
    return bytes_text(moved_bytes(scenario, region)) if scenario.shape.moved is not None else "data"


def _way(num_ranks: int, rank: int, step: Transfer) -> str:
    if step.reach is Reach.ALL:
        return " to all ranks"
    peer = (rank + step.peer) % num_ranks
    return f" to r{peer}" if step.direction is Direction.PUT else f" from r{peer}"


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


class RanksShown(Enum):
    """Whose rows are shown."""

    ONE = "one rank"
    OWN = "the ranks that differ"
    ALL = "all ranks"


class TimelineModel(RowsModel):
    """One run on screen. No drawing and no keys: those are the widget's."""

    def __init__(self, run: ShownRun) -> None:
        self.run = run
        result = self.result
        self.lanes: Lanes = lanes_of_run(run)
        start, end = run.shown_span
        super().__init__(Viewport(start, max(1, end - start), max(1, result.makespan_ticks)))
        self.rank = 0
        self.ranks_shown = RanksShown.ONE
        self.emphasis = Emphasis.NONE
        self.standout: Standout = standout_of(run, Emphasis.NONE)
        self.stops: tuple[Stop, ...] = ()
        self.stop_idx = 0
        self._chunks = Chunks(run)
        self._strips: tuple[int, tuple[Strip, ...]] = NONE, ()
        self._lay_out()
        self.cursor = TimelineCursor(0, self.rows[0].first_after(start) if self.rows else NONE)

    @property
    def result(self) -> Result:
        """The figures of the run."""
        return self.run.result

    def taking_over(self, before: "TimelineModel") -> "TimelineModel":
        """Show the same part and rows as another Result of the same schedule did."""
        self.viewport = before.viewport.with_total(self.result.makespan_ticks)
        self.rank, self.ranks_shown = before.rank, before.ranks_shown
        self.emphasise(before.emphasis)
        self._lay_out()
        self.cursor = before.cursor if self._holds(before.cursor) else self.cursor
        return self

    # What is shown.

    @property
    def is_folded(self) -> bool:
        """Whether fewer ranks were simulated than there are."""
        return self.lanes.period < self.lanes.num_ranks

    @property
    def strips(self) -> tuple[Strip, ...]:
        """Use of links and memory at the rank of the cursor."""
        rank = self.rows[self.cursor.row_idx].rank if self.rows else self.rank
        if self._strips[0] != rank:
            self._strips = rank, strips_of(self.result.loads, rank)
        return self._strips[1]

    def story(self) -> str:
        """A line about the interval under the cursor, and about the chunk that is followed."""
        interval = self.interval
        if interval is None:
            return "nothing runs in this row" if self.rows else "nothing ran"
        line = reported(self.run, self.rows[self.cursor.row_idx].rank, interval)
        return f"{self._way()} · {line}" if self.stops else line

    def _way(self) -> str:
        """Where the chunk that is followed goes, the stop of the cursor in brackets."""
        words = []
        for idx, stop in enumerate(self.stops):
            if stop.path and idx:
                words.append(" > ".join(self._node(node) for node in stop.path))
            name = f"{stop.interval.name} r{stop.rank}"
            words.append(f"[{name}]" if idx == self.stop_idx else name)
        return " > ".join(words)

    def _node(self, node: int) -> str:
        return f"r{node}" if node < self.run.num_ranks else f"switch {node - self.run.num_ranks}"

    def followed_in(self, row: TimelineRow) -> frozenset[int]:
        """The intervals of a row on the way of the chunk that is followed."""
        here = (stop.interval for stop in self.stops if stop.rank == row.rank and stop.interval.lane == row.lane)
        return frozenset(row.number_of(interval) for interval in here) - {NONE}

    # Ranks.

    def next_ranks(self) -> None:
        """Show one rank, those that differ, or all of them, in turn."""
        order = [RanksShown.ONE, RanksShown.OWN, RanksShown.ALL]
        if self.lanes.period in (1, self.lanes.num_ranks):
            order.remove(RanksShown.OWN)
        self.ranks_shown = order[(order.index(self.ranks_shown) + 1) % len(order)]
        self._lay_out()

    def other_rank(self, ranks: int) -> None:
        """Show the rank so many further as the one rank."""
        self.rank = (self.rank + ranks) % self.lanes.num_ranks
        self._lay_out()

    def ranks_text(self) -> str:
        """Which ranks are shown, and for whom they stand."""
        period, num_ranks = self.lanes.period, self.lanes.num_ranks
        if self.ranks_shown is RanksShown.ALL or num_ranks == 1:
            return "all ranks"
        if self.ranks_shown is RanksShown.OWN:
            return f"{period} ranks, each stands for {num_ranks // period}"
        if period == 1:
            return f"rank {self.rank}, one stands for all {num_ranks}"
        return f"rank {self.rank} of {num_ranks}" + (f", {period} simulated" if self.is_folded else "")

    def _lay_out(self) -> None:
        """Make the rows; the cursor stays on its interval as far as it is still shown."""
        before = self.rows[self.cursor.row_idx] if self.rows else None
        match self.ranks_shown:
            case RanksShown.ONE:
                ranks: Sequence[int] = (self.rank,)
            case RanksShown.OWN:
                ranks = range(self.lanes.period)
            case RanksShown.ALL:
                ranks = range(self.lanes.num_ranks)
        # Of other ranks only what a chunk passes is shown.
        passed = {(stop.rank, stop.interval.lane) for stop in self.stops if stop.rank not in ranks}
        more = (row for rank in sorted({rank for rank, _ in passed}) for row in self.lanes.of_rank(rank))
        self.rows = (*self.lanes.of_ranks(ranks), *(row for row in more if (row.rank, row.lane) in passed))
        if before is not None:
            same = (idx for idx, row in enumerate(self.rows) if (row.rank, row.lane) == (before.rank, before.lane))
            row_idx = next(same, min(self.cursor.row_idx, max(0, len(self.rows) - 1)))
            alike = bool(self.rows) and self.rows[row_idx].intervals is before.intervals
            self.cursor = TimelineCursor(row_idx, self.cursor.number) if alike else self._nearest(row_idx, before)

    def _nearest(self, row_idx: int, before: TimelineRow) -> TimelineCursor:
        if not self.rows:
            return TimelineCursor()
        known = 0 <= self.cursor.number < len(before.intervals)
        return TimelineCursor(row_idx, self.rows[row_idx].at(int(before.starts[self.cursor.number]) if known else 0))

    def label(self, row: TimelineRow) -> str:
        """The lane, and whose it is if rows of several ranks are shown."""
        return f"r{row.rank} {row.lane}" if self.shows_many_ranks else row.lane

    @property
    def shows_many_ranks(self) -> bool:
        """Whether rows of more than one rank are shown, so that they must say whose they are."""
        return bool(self.rows) and self.rows[0].rank != self.rows[-1].rank

    # What stands out.

    def emphasise(self, emphasis: Emphasis) -> None:
        """Let something stand out; the same again lets nothing."""
        self.emphasis = Emphasis.NONE if emphasis is self.emphasis else emphasis
        self.standout = standout_of(self.run, self.emphasis)

    def follow(self) -> bool:
        """Follow the chunk under the cursor, or go to its next stop; behind the last one begin again.

        Return False if nothing waits for what is under the cursor, nor it for a chunk.
        """
        interval = self.interval
        if interval is None:
            return False
        rank = self.rows[self.cursor.row_idx].rank
        at_stop = self.stops and (self.stops[self.stop_idx].rank, self.stops[self.stop_idx].interval) == (
            rank,
            interval,
        )
        if at_stop:
            self._go_to_stop((self.stop_idx + 1) % len(self.stops))
            return True
        chain = self._chunks.chain_from(rank, interval)
        if len(chain) < 2:
            return False
        self.stops = chain
        self._lay_out()
        self._go_to_stop(0)
        return True

    def unfollow(self) -> None:
        """Follow nothing any more."""
        self.stops, self.stop_idx = (), 0
        self._lay_out()

    def _go_to_stop(self, stop_idx: int) -> None:
        self.stop_idx = stop_idx
        stop = self.stops[stop_idx]
        for row_idx, row in enumerate(self.rows):
            if (row.rank, row.lane) == (stop.rank, stop.interval.lane):
                self._go(row_idx, row.number_of(stop.interval))
                return

    # Words.

    def headline(self) -> str:
        """What is shown, in a line."""
        run = self.run
        parts = [run.makespan_text, self.result.granularity, self.ranks_text()]
        if run.result.layers > 1:
            parts.insert(
                1,
                f"{run.result.layers} layers"
                + (f", {run.result.num_simulated} here" if run.result.period_ticks else ""),
            )
        if self.viewport.zoom > 1:
            parts.append(f"zoom {self.viewport.zoom:.1f}x")
        if self.emphasis is not Emphasis.NONE:
            parts.append(f"only {self.emphasis.value}")
        return "  ".join(parts)

    def legend(self) -> Iterator[tuple[IntervalKind | None, str]]:
        """Yield the kinds that a rank has with how long it is busy with each, and what is exposed."""
        result = self.result
        times = {IntervalKind.COMPUTE: result.compute_ticks, IntervalKind.COMM: result.comm_ticks}
        used = {row.intervals[0].kind for row in self.lanes.own[0] if row.intervals}
        for kind in (kind for kind in IntervalKind if kind in used):
            yield kind, f"{kind.value} {ticks_text(times[kind])}" if kind in times else kind.value
        share = result.exposed_ticks / max(1, result.makespan_ticks)
        yield None, f" exposed {ticks_text(result.exposed_ticks)} ({share:.0%})"
