"""The ranks whose partial sums each cell of the moved tensor holds, at every rank and step of a plan.

Used for plans that sum on the way or forward data of other ranks. A cell carries the set of ranks whose part it holds,
as bits relative to the rank that has the cell. A transfer copies the set or adds it.
"""

from collections.abc import Iterator

from ..codes import Code
from ..ir import OpCase, OpPlan, Pattern, PlanFault, Reduction, TileGroup, Transfer
from .accesses import AccessKind, AccessMap, Place, races, reads_result, unsummed_reads
from .happens_before import Event, Waits


def contribution_faults(scenario: OpCase, schedule: OpPlan) -> Iterator[PlanFault]:
    """Return faults: data read too early, added twice, lost or never brought. The plan must have no cycle of waits."""
    access_map = AccessMap(scenario, schedule, Waits(scenario, schedule))
    faults = races(access_map)
    if not faults:
        flow = _Flow(scenario, access_map)
        faults = list(flow.run()) or list(flow.lacking())
        if faults and not any(fault.step for fault in faults):
            faults = [*unsummed_reads(access_map), *faults]
    reported: set[tuple[Code, str]] = set()
    for fault in faults:
        # One fault of each code per step; data that is missing at the end belongs to no step.
        key = fault.code, fault.step or fault.message
        if key not in reported:
            reported.add(key)
            yield fault


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
        for cell in self._access_map.grid.cells(step.region):
            parts = 0
            for source in sources:
                place = self._access_map.place(source, rank, step.region, cell)
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
                place = self._access_map.place(at, rank, step.region, cell)
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
        for cell in self._access_map.grid.cells(step.region):
            place = self._access_map.place(rank, rank, step.region, cell)
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
        message = f"{rect} of block {block} at rank {rank} lack {self._ranks(missing, rank)}"
        return PlanFault(Code.MGS507, "", message)

    def _ranks(self, parts: int, rank: int) -> str:
        names = sorted((rank + bit) % self._n for bit in range(self._n) if parts >> bit & 1)
        if len(names) == 1:
            return f"the part of rank {names[0]}"
        return f"the parts of ranks {', '.join(map(str, names))}"

    def _fault(self, code: Code, step: str, place: Place, message: str) -> PlanFault:
        rect, block, rank = self._access_map.where(place)
        return PlanFault(code, step, f"{step} {message.format(f'{rect} of block {block} at rank {rank}')}")
