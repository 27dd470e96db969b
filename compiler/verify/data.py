"""Data faults of a plan: every byte must arrive once, every tile be computed once, and nothing be used too early.

Partial sums are followed as sets of ranks, bits relative to the rank that has the cell: a transfer copies or adds one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..codes import Code
from ..ir import (
    Arrival,
    Direction,
    OpCase,
    OpPlan,
    Pattern,
    PlanFault,
    RankPlan,
    Reach,
    Rect,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    first_gap,
    moved_rows,
    uncovered,
)
from .accesses import AccessKind, AccessMap, Place, races, reads_result, unsummed_reads
from .happens_before import Event, Waits
from .steps import bring_hint, computed_faults, output_faults

_GATHERS = (Pattern.ALL_GATHER, Pattern.AG_GEMM, Pattern.GEMM_BESIDE_AG)


def passes_on(scenario: OpCase, schedule: OpPlan) -> bool:
    """Whether ranks sum on the way or forward data of others; False for an all_gather, which is checked directly."""
    pattern = scenario.shape.pattern
    if not pattern.reduces:
        return pattern.sums or pattern in (Pattern.BROADCAST, Pattern.SEND_RECV)
    n = scenario.num_ranks
    steps = [step for rank in range(schedule.period(n)) for step in schedule.steps_of(rank)]
    moves = [step for step in steps if isinstance(step, Transfer)]
    astray = [step for step in moves if _ends_astray(step, n)]
    sums = any(isinstance(step, Reduction) and any(owner % n for owner in step.region.owners) for step in steps)
    return any(step.reach is Reach.ALL for step in moves) or any(sums or step.reduce for step in astray)


def _ends_astray(step: Transfer, num_ranks: int) -> bool:
    """Whether a transfer ends at a rank that does not own all of it."""
    end = step.peer if step.direction is Direction.PUT else 0
    return any((owner - end) % num_ranks for owner in step.region.owners)


def data_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Return faults for bytes that never arrive, arrive twice, or are used before they arrive."""
    pattern = plan.scenario.shape.pattern
    flows = passes_on(plan.scenario, plan.schedule)
    if plan.scenario.shape.moved is not None and not flows:
        yield from _arrival_faults(plan)
    yield from output_faults(plan)
    if flows:
        return
    if pattern.reduces:
        yield from _sum_faults(plan)
    if pattern.exchanges:
        yield from _passed_twice(plan)
    for step in plan.steps.values():
        if isinstance(step, TileGroup) and plan.scenario.shape.stage(step.kernel).pattern.consumes:
            yield from _needs(plan, step, step.regions, plan.before[step.name], cols=(step.k.start, step.k.stop))
            yield from _own_faults(plan, step)
        elif isinstance(step, Transfer) and pattern in _GATHERS:
            yield from _source_faults(plan, step)
        elif isinstance(step, Transfer) and pattern.exchanges:
            yield from _exchange_faults(plan, step)
            yield from _output_faults(plan, step)
        elif isinstance(step, Transfer) and pattern.reduces:
            yield from _partial_faults(plan, step)
        elif isinstance(step, Reduction):
            yield from _reduction_faults(plan, step)


def _not_there(wanted: Rect, coming: Iterable[Arrival], before: frozenset[str]) -> Rect | None:
    """Return what of ``wanted`` no arrival of those ``coming`` brings whose signal is ``before``."""
    return first_gap(wanted, [Rect.of(each.region) for each in coming if each.transfer.signal in before])


def _coming_from(plan: RankPlan, other: int) -> Sequence[Arrival]:
    """Return what arrives of the data of rank r + ``other`` and is needed here."""
    if plan.scenario.shape.pattern in _GATHERS:
        return plan.arrivals_of(other)
    return [arrival for arrival in plan.arrivals_of(0) if arrival.source == other]


def _arrival_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Check arrivals: each remote block once for a gather, each peer's part of the own block once otherwise."""
    shape, n = plan.scenario.shape, plan.scenario.num_ranks
    moved = shape.moved_tensor
    for other in range(1, n):
        whole = Rect(0, moved_rows(shape, n, 0, other), 0, moved.cols)
        rects = [Rect.of(arrival.region) for arrival in _coming_from(plan, other)]
        missing, twice = uncovered(whole, rects) if whole.area else (None, None)
        for rect, how in ((missing, f"never reach rank {plan.rank}"), (twice, f"reach rank {plan.rank} twice")):
            if rect is not None:
                yield PlanFault(Code.MGS501, "", f"{rect} of {moved.name} from rank {(plan.rank + other) % n} {how}")


def _exchange_faults(plan: RankPlan, step: Transfer) -> Iterator[PlanFault]:
    """Check that an all_to_all brings every rank its own block, or to ranks that pass it on as soon as they have it."""
    n, puts, owner = plan.scenario.num_ranks, step.direction is Direction.PUT, step.region.owner
    may_pass = puts and owner and plan.scenario.shape.pattern is Pattern.ALL_TO_ALL and step.origin != step.peer
    if step.reach is Reach.ALL or (owner != (step.peer if puts else 0) and not may_pass):
        yield PlanFault(Code.MGS509, step.name, f"{step.name} moves block +{owner} to a rank that it is not for")
    if step.origin:
        here = [each for each in plan.arrivals if (each.source, each.region.owner) == (step.origin, owner)]
        missing = _not_there(Rect.of(step.region), here, plan.before[step.name])
        if missing is not None:
            source, target = ((plan.rank + each) % n for each in (step.origin, owner))
            message = f"{step.name} passes on {missing} from rank {source} for rank {target} without waiting for them"
            yield PlanFault(Code.MGS508, step.name, message)


def _passed_twice(plan: RankPlan) -> Iterator[PlanFault]:
    """Check that what a rank passes on in an all_to_all comes to it once."""
    passed = defaultdict[tuple[int, int], list[Rect]](list)
    for arrival in plan.arrivals:
        if arrival.region.owner:
            passed[arrival.source, arrival.region.owner].append(Rect.of(arrival.region))
    for ends, rects in passed.items():
        whole = Rect(0, max(rect.bottom for rect in rects), 0, max(rect.right for rect in rects))
        _, twice = uncovered(whole, rects)
        if twice is not None:
            source, target = ((plan.rank + each) % plan.scenario.num_ranks for each in ends)
            message = f"{twice} from rank {source} for rank {target} reach rank {plan.rank} twice"
            yield PlanFault(Code.MGS501, "", message)


def _output_faults(plan: RankPlan, step: Transfer) -> Iterator[PlanFault]:
    """Check that output of a kernel is put by the rank that computes it, after it is computed."""
    if not plan.scenario.shape.pattern.produces:
        return
    if step.direction is Direction.GET:
        yield PlanFault(Code.MGS508, step.name, f"{step.name}: what is computed is put by the rank that computes it")
    else:
        yield from computed_faults(plan, step, step.region)


def _own_faults(plan: RankPlan, step: TileGroup) -> Iterator[PlanFault]:
    """Check that the part of the own block that a second kernel needs is computed before it."""
    if plan.scenario.shape.pattern.produces:
        for region in step.regions:
            if region.owner % plan.scenario.num_ranks == 0:
                yield from computed_faults(plan, step, replace(region, cols=step.k))


def _sum_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Check that the own block is reduced exactly once, unless every part is added as it arrives."""
    moved = plan.scenario.shape.moved_tensor
    rects = [Rect.of(step.region) for step in plan.steps.values() if isinstance(step, Reduction)]
    adds = [arrival.transfer.reduce for arrival in plan.arrivals]
    if not rects and adds and all(adds):
        return
    for name in (each.transfer.name for each in plan.arrivals if each.transfer.reduce):
        message = f"{name} adds as it arrives; then every transfer must, and no kernel sums"
        yield PlanFault(Code.MGS507, name, message)
    missing, twice = uncovered(Rect(0, moved_rows(plan.scenario.shape, plan.scenario.num_ranks), 0, moved.cols), rects)
    for rect, fault in ((missing, "never summed"), (twice, "summed twice")):
        if rect is not None:
            yield PlanFault(Code.MGS507, "", f"{rect} of the own block are {fault}")


def _needs(
    plan: RankPlan, step: Step, regions: tuple[Region, ...], before: frozenset[str], cols: tuple[int, int] | None = None
) -> Iterator[PlanFault]:
    """Return faults for remote rows that ``step`` reads and that no signal it waits for brings."""
    n = plan.scenario.num_ranks
    for region in regions:
        if region.owner % n == 0:
            continue
        low, high = cols or (region.cols.start, region.cols.stop)
        wanted = Rect(region.rows.start, region.rows.stop, low, high)
        coming = _coming_from(plan, region.owner % n)
        missing = _not_there(wanted, coming, before)
        if missing is not None:
            owner = (plan.rank + region.owner) % n
            message = f"{step.name} uses {missing} of rank {owner}'s shard without waiting for them"
            yield PlanFault(Code.MGS508, step.name, message, bring_hint(plan, step, missing, region.owner, coming))


def _source_faults(plan: RankPlan, step: Transfer) -> Iterator[PlanFault]:
    """Check that who sends, or is asked, has the own shard or data that has arrived there."""
    n = plan.scenario.num_ranks
    if step.direction is Direction.PUT:
        yield from _needs(plan, step, step.region.each, plan.before[step.name])
    elif step.region.owner % n != step.peer % n and not step.peer_after:
        message = f"{step.name} gets what its peer does not own, and does not say when it is there"
        yield PlanFault(Code.MGS508, step.name, message, "peer_after with the signal that brings it there")
    elif step.peer_after:
        peer = plan.of_peer(step)
        known = frozenset(step.peer_after).union(*(peer.before.get(name, ()) for name in step.peer_after))
        region = replace(step.region, owner=(step.region.owner - step.peer) % n)
        for fault in _needs(peer, step, (region,), known):
            yield replace(fault, hint=fault.hint.replace("after", "peer_after", 1))


def _partial_faults(plan: RankPlan, step: Transfer) -> Iterator[PlanFault]:
    """Check that partial sums are sent after they are computed, and to their owner."""
    n, computes, block = plan.scenario.num_ranks, plan.scenario.shape.pattern is Pattern.GEMM_RS, step.region.owner
    if step.direction is Direction.GET and not computes:
        if block % n:
            yield PlanFault(Code.MGS508, step.name, f"{step.name} gets a part of block +{block}, which is not its own")
    elif step.direction is Direction.GET:
        yield PlanFault(Code.MGS508, step.name, f"{step.name}: partial sums are put by the rank that computes them")
    elif block % n != step.peer % n or step.region.also:
        yield PlanFault(Code.MGS508, step.name, f"{step.name} sends block +{block} to +{step.peer}, not its owner")
    elif computes:
        yield from computed_faults(plan, step, step.region)


def _reduction_faults(plan: RankPlan, step: Reduction) -> Iterator[PlanFault]:
    """Check that a reduction sums the own block, waits for every part and says their number."""
    n, pattern = plan.scenario.num_ranks, plan.scenario.shape.pattern
    if step.region.owner % n or step.region.also:
        yield PlanFault(Code.MGS509, step.name, f"{step.name} reduces a block that belongs to another rank")
    if step.num_parts != n:
        yield PlanFault(Code.MGS509, step.name, f"{step.name} sums {step.num_parts} parts, there are {n}")
    wanted = Rect.of(step.region)
    for other in range(1, n):
        coming = [each for each in plan.arrivals_of(0) if each.source == other]
        missing = _not_there(wanted, coming, plan.before[step.name])
        if missing is not None:
            sender = (plan.rank + other) % n
            message = f"{step.name} sums {missing} without waiting for the part of rank {sender}"
            yield PlanFault(Code.MGS508, step.name, message, bring_hint(plan, step, missing, other, coming))
    if pattern is Pattern.GEMM_RS:
        yield from computed_faults(plan, step, step.region)


def contribution_faults(scenario: OpCase, schedule: OpPlan) -> Iterator[PlanFault]:
    """Return faults: data read too early, added twice, lost or never brought. The plan must have no cycle of waits."""
    access_map = AccessMap(scenario, schedule, Waits(scenario, schedule))
    faults = races(access_map)
    if not faults:
        flow = _Flow(scenario, access_map)
        faults = list(flow.run()) or list(flow.lacking())
        if faults and not any(fault.step for fault in faults):
            faults = [*unsummed_reads(access_map), *faults]
    first: dict[tuple[Code, str], PlanFault] = {}
    for fault in faults:  # one of each code per step; data that is missing at the end belongs to no step
        first.setdefault((fault.code, fault.step or fault.message), fault)
    yield from first.values()


class _Flow:
    """Run the steps in an order that their waits allow, and track the contents of each place."""

    def __init__(self, scenario: OpCase, access_map: AccessMap) -> None:
        self._scenario, self._access_map, self._n = scenario, access_map, access_map.num_ranks
        gemm = scenario.shape.gemm
        self._inner = gemm.k if gemm is not None and access_map.computes else 0
        self._computed: dict[Place, int] = {}
        self._results: dict[Place, int] = {}
        self._parts: dict[Place, list[tuple[Event, int]]] = {}

    def run(self) -> Iterator[PlanFault]:
        """Run every step, and return its faults."""
        for rank, name in self._access_map.order.events:
            step = self._access_map.steps[rank, name]
            match step:
                case Transfer():
                    yield from self._move(rank, step)
                case TileGroup():
                    self._compute(rank, step)
                case Reduction():
                    yield from self._sum(rank, step)
        yield from self._never_summed()

    def lacking(self) -> Iterator[PlanFault]:
        """Return faults for data that is missing at the end."""
        pattern, everything = self._scenario.shape.pattern, (1 << self._n) - 1
        for rank in range(self._access_map.period):
            if pattern is Pattern.SEND_RECV and rank != 1:
                continue
            for block in range(self._n if not pattern.reduces else 1):
                for cell in self._access_map.grid.all_cells():
                    place = (rank, block, cell)
                    wanted = everything if self._access_map.sums else 1 << (-rank % self._n)
                    missing = wanted & ~self._held(place)
                    if missing and self._access_map.exists(place):
                        yield self._lacks(place, missing)
                        break

    def _own(self, place: Place) -> int:
        """Return 1, the bit of the rank's own part, if it has one by now."""
        if self._inner:
            return int(self._computed.get(place, 0) == self._inner)
        return int(self._access_map.sums or place[0] == 0)

    def _held(self, place: Place) -> int:
        return self._results.get(place, 0) | self._own(place)

    def _seen_from(self, parts: int, rank: int, other: int) -> int:
        """``parts`` counted from ``rank``, counted from ``other``."""
        shift = (rank - other) % self._n
        return (parts << shift | parts >> (self._n - shift)) & ((1 << self._n) - 1)

    def _compute(self, rank: int, group: TileGroup) -> None:
        if not self._inner:
            return
        for region in group.regions:
            for cell in self._access_map.grid.cells(region):
                place = self._access_map.place(rank, rank, region, cell)
                self._computed[place] = self._computed.get(place, 0) + group.k.size

    def _move(self, rank: int, step: Transfer) -> Iterator[PlanFault]:
        sources, destinations = self._access_map.ends(rank, step)
        for region, cell in self._access_map.cells(step):
            parts = 0
            for source in sources:
                place = self._access_map.place(source, rank, region, cell)
                read = self._read(place, rank - source, step)
                if not read & 1 and self._inner:
                    yield self._fault(Code.MGS508, step.name, place, "takes {} before they are computed")
                elif not read:
                    yield self._fault(Code.MGS508, step.name, place, "sends {}, which are not there")
                seen = self._seen_from(read, source, rank)
                if parts & seen:
                    yield self._fault(
                        Code.MGS507, step.name, place, f"adds {self._ranks(parts & seen, rank)} of {{}} twice"
                    )
                parts |= seen
            for at in destinations:
                place = self._access_map.place(at, rank, region, cell)
                yield from self._land(place, rank, step, at, self._seen_from(parts, rank, at))

    def _read(self, place: Place, issuer: int, step: Transfer) -> int:
        event = (issuer % self._n, step.name)
        return self._held(place) if reads_result(self._access_map, place, event) else self._own(place)

    def _land(self, place: Place, rank: int, step: Transfer, at: int, parts: int) -> Iterator[PlanFault]:
        held = self._held(place) | int(self._access_map.sums)
        match self._access_map.landing(place, rank, step, at):
            case AccessKind.ADD:
                if held & parts:
                    twice = self._ranks(held & parts, at)
                    yield self._fault(Code.MGS507, step.name, place, f"adds {twice} of {{}} a second time")
                self._results[place] = held | parts
            case AccessKind.PART:
                event = ((rank - at) % self._n, step.name)
                self._parts.setdefault(place, []).append((event, parts))
            case _:
                lost = held & ~parts
                if lost:
                    yield self._fault(Code.MGS507, step.name, place, f"overwrites {self._ranks(lost, at)} of {{}}")
                elif held == parts:
                    yield self._fault(Code.MGS501, step.name, place, "brings {} a second time")
                self._results[place] = parts

    def _sum(self, rank: int, step: Reduction) -> Iterator[PlanFault]:
        for region, cell in self._access_map.cells(step):
            place = self._access_map.place(rank, rank, region, cell)
            if not self._own(place):
                yield self._fault(Code.MGS508, step.name, place, "takes {} before they are computed")
            waiting = self._parts.get(place, [])
            summed = [each for each in waiting if self._access_map.happened(place, each[0], (0, step.name))]
            self._parts[place] = [each for each in waiting if each not in summed]
            if step.num_parts != 1 + len(summed):
                message = f"sums {step.num_parts} parts of {{}}, {1 + len(summed)} are there"
                yield self._fault(Code.MGS509, step.name, place, message)
            held = self._held(place) | 1
            for _, parts in summed:
                if held & parts:
                    twice = self._ranks(held & parts, rank)
                    yield self._fault(Code.MGS507, step.name, place, f"adds {twice} of {{}} a second time")
                held |= parts
            self._results[place] = held

    def _never_summed(self) -> Iterator[PlanFault]:
        for place, waiting in self._parts.items():
            for (_, name), _ in waiting:
                yield self._fault(Code.MGS508, name, place, "brings a part of {} that no kernel waits for and sums")

    def _lacks(self, place: Place, missing: int) -> PlanFault:
        rect, block, rank = self._access_map.where(place)
        if not self._access_map.sums:
            moved = self._scenario.shape.moved_tensor.name
            return PlanFault(Code.MGS501, "", f"{rect} of block {block} of {moved} never reach rank {rank}")
        return PlanFault(Code.MGS507, "", f"{rect} of block {block} at rank {rank} lack {self._ranks(missing, rank)}")

    def _ranks(self, parts: int, rank: int) -> str:
        names = sorted((rank + bit) % self._n for bit in range(self._n) if parts >> bit & 1)
        s = "s" if len(names) > 1 else ""
        return f"the part{s} of rank{s} {', '.join(map(str, names))}"

    def _fault(self, code: Code, step: str, place: Place, message: str) -> PlanFault:
        rect, block, rank = self._access_map.where(place)
        return PlanFault(code, step, f"{step} {message.format(f'{rect} of block {block} at rank {rank}')}")
