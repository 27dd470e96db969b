"""Carries out the steps of all ranks on sets of contributions, in any order that the waits allow.

It knows nothing of how plans are made or checked. An element of the moved tensor is a cell (block, row, column); its
value is the set of ranks whose contribution it holds. Every step reads when it begins and writes when it ends, and any
step whose waits are over may be next. Data and results are apart, as in ``collectives.base``: a transfer reads the
result of its rank where something it waits for has made it, else the data.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from random import Random

from magus.compiler.ir import Direction, Pattern, Reach, Reduction, Region, Step, TileGroup, Transfer
from tests.helpers.plans.signals import Cell, Deadlock, Event, Steps, Wrong, demand

__all__ = ["Deadlock", "Ranks", "Wrong"]

Value = frozenset[int]


class Ranks(Steps):
    """All ranks while they carry out ``steps``, those of each; blocks are ``rows`` x ``cols``."""

    def __init__(
        self,
        pattern: Pattern,
        steps: Sequence[Sequence[Step]],
        rows: int,
        cols: int = 1,
        split: tuple[int, ...] = (),
    ) -> None:
        super().__init__(steps, rows, cols)
        self.pattern, self.split = pattern, split
        self.data = self._start()
        self.result: dict[tuple[int, Cell], Value] = {}
        self.staged: dict[tuple[int, str, Cell], Value] = {}
        self.passed: dict[tuple[int, int, Cell], Value] = {}  # what a rank has of another for a third
        self.read: dict[tuple[int, str], dict[Cell, Value]] = {}
        self.computed: dict[tuple[int, Cell], int] = defaultdict(int)

    # What there is before anything runs.

    def _start(self) -> dict[tuple[int, Cell], Value]:
        match self.pattern:
            case Pattern.GEMM_RS | Pattern.GEMM_AR | Pattern.GEMM_A2A | Pattern.GEMM | Pattern.KERNEL:
                return {}
            case Pattern.GEMM_A2A_GEMM:
                return {}
            case Pattern.BROADCAST | Pattern.SEND_RECV:
                holders = [(0, block) for block in range(self.n)]
            case Pattern.ALL_GATHER | Pattern.AG_GEMM | Pattern.GEMM_BESIDE_AG:
                holders = [(rank, rank) for rank in range(self.n)]
            case _:
                holders = [(rank, block) for rank in range(self.n) for block in range(self.n)]
        return {
            (rank, (block, row, col)): frozenset({rank})
            for rank, block in holders
            for row in range(self.rows_between(rank, block))
            for col in range(self.cols)
        }

    def rows_between(self, rank: int, block: int) -> int:
        """Rows that ``rank`` has of ``block``."""
        return self.split[(block - rank) % self.n] if self.split and self.pattern.exchanges else self.rows

    # Running.

    def run(self, rng: Random) -> None:
        """Carry out everything; the next event is any of those that may be."""
        missing: dict[Event, int] = {}
        followers: dict[Event, list[Event]] = defaultdict(list)
        for rank, steps in enumerate(self.steps):
            for step in steps.values():
                begin, end, before = (rank, step.name, False), (rank, step.name, True), set(self.waits(rank, step))
                missing[begin], missing[end] = len(before), 1
                followers[begin].append(end)
                for event in before:
                    followers[event].append(begin)
        ready = [event for event, count in missing.items() if not count]
        done = 0
        while ready:
            position = rng.randrange(len(ready))
            ready[position], ready[-1] = ready[-1], ready[position]
            event = ready.pop()
            self._happen(event)
            done += 1
            for follower in followers[event]:
                missing[follower] -= 1
                if not missing[follower]:
                    ready.append(follower)
        if done < len(missing):
            raise Deadlock(f"{len(missing) - done} events wait for each other")

    def _happen(self, event: Event) -> None:
        rank, name, ends = event
        match self.steps[rank][name], ends:
            case Transfer() as step, False:
                self.read[rank, name] = self._values(rank, step)
            case Transfer() as step, True:
                for destination in self._destinations(rank, step):
                    self._land(rank, step, destination, self.read[rank, name])
            case Reduction() as step, False:
                self.read[rank, name] = {cell: self._sum(rank, step, cell) for cell in self.cells(rank, step.region)}
            case Reduction(), True:
                self.result |= {(rank, cell): value for cell, value in self.read[rank, name].items()}
            case TileGroup() as step, ends:
                self._compute(rank, step, ends)

    def _values(self, rank: int, step: Transfer) -> dict[Cell, Value]:
        cells = self.cells(rank, step.region)
        if step.reach is Reach.ALL and step.direction is Direction.GET:
            return {cell: self._together([self._own(other, cell) for other in range(self.n)]) for cell in cells}
        if step.direction is Direction.GET:
            return {cell: self._own((rank + step.peer) % self.n, cell) for cell in cells}
        if step.origin:
            source = (rank + step.origin) % self.n
            missing = [cell for cell in cells if (rank, source, cell) not in self.passed]
            demand(not missing, f"{step.name} passes on what rank {source} has not sent to {rank}")
            return {cell: self.passed[rank, source, cell] for cell in cells}
        return {cell: self._known(rank, step.name, cell) for cell in cells}

    def _own(self, rank: int, cell: Cell) -> Value:
        demand((rank, cell) in self.data, f"rank {rank} has no data in {cell}")
        return self.data[rank, cell]

    def _known(self, rank: int, name: str, cell: Cell) -> Value:
        """What the step of that name finds at its rank."""
        if self.makers[rank].get(cell, set()) & self.closure(rank, name):
            return self.result[rank, cell]
        return self._own(rank, cell)

    def _sum(self, rank: int, step: Reduction, cell: Cell) -> Value:
        parts = [self.staged[rank, name, cell] for name in step.after if (rank, name, cell) in self.staged]
        demand(len(parts) == step.num_parts - 1, f"{step.name} sums {len(parts) + 1} parts, not {step.num_parts}")
        return self._together([self._known(rank, step.name, cell), *parts])

    @staticmethod
    def _together(values: Sequence[Value]) -> Value:
        total: Value = frozenset().union(*values)
        demand(sum(map(len, values)) == len(total), "a contribution is added twice")
        return total

    def _land(self, rank: int, step: Transfer, destination: int, values: dict[Cell, Value]) -> None:
        for cell, value in values.items():
            if self.pattern.exchanges:
                puts = step.direction is Direction.PUT
                source = (rank + (step.origin if puts else step.peer)) % self.n
                if puts and cell[0] != destination:  # to be passed on
                    demand((destination, source, cell) not in self.passed, f"{cell} of {source} passes twice")
                    self.passed[destination, source, cell] = value
                    continue
                demand(cell[0] == destination, f"{step.name} takes block {cell[0]} to {destination}")
                demand((destination, (source, *cell[1:])) not in self.result, f"{cell} comes twice")
                self.result[destination, (source, *cell[1:])] = value
            elif step.signal in self.staging[destination]:
                self.staged[destination, step.signal, cell] = value
            elif step.reduce and step.reach is Reach.PEER:
                before = self.result.get((destination, cell)) or self._own(destination, cell)
                self.result[destination, cell] = self._together([before, value])
            else:
                self.result[destination, cell] = value

    def _compute(self, rank: int, step: TileGroup, ends: bool) -> None:
        """A kernel reads final values of what is moved when it begins, or makes the data of its rank when it ends."""
        if self.pattern.produces and not step.kernel:
            for cell in [cell for region in step.regions for cell in self.cells(rank, region)] if ends else ():
                demand((rank, cell) not in self.data, f"{step.name} computes {cell} again")
                self.data[rank, cell] = frozenset({rank})
        elif not self.pattern.independent and self.pattern not in (Pattern.GEMM, Pattern.KERNEL) and not ends:
            inner = step.k if self.pattern.consumes else None
            for region in step.regions:
                for cell in self.cells(rank, Region(region.owner, region.rows, inner or region.cols)):
                    found = self._found(rank, cell)
                    demand(found == self._wanted(rank, cell), f"{step.name} finds {found} in {cell}, not what will be")
                    self.computed[rank, cell] += 1

    # What must be there when all is done.

    def check(self) -> None:
        """Compare with what the pattern asks for."""
        computes = self.pattern.consumes
        cells = product(range(self.n), range(self.rows), range(self.cols))
        for rank, cell in product(range(self.n), cells):
            wanted = self._wanted(rank, cell)
            if computes:
                count = self.computed.get((rank, cell), 0)
                demand(count == (wanted is not None), f"rank {rank} computes {cell} {count} times")
            elif wanted is not None:
                found = self._found(rank, cell)
                demand(found == wanted, f"rank {rank} ends with {found} in {cell}")

    def _found(self, rank: int, cell: Cell) -> Value | None:
        """The result; data that stays where it is counts as one."""
        if self.pattern.exchanges and cell[0] != rank:
            return self.result.get((rank, cell))
        return self.result.get((rank, cell), self.data.get((rank, cell)))

    def _wanted(self, rank: int, cell: Cell) -> Value | None:
        """What the pattern leaves in a cell, None where it asks for nothing; of an exchange blocks are senders."""
        block, row, _ = cell
        match self.pattern:
            case Pattern.ALL_REDUCE | Pattern.GEMM_AR:
                return frozenset(range(self.n))
            case Pattern.REDUCE_SCATTER | Pattern.GEMM_RS:
                return frozenset(range(self.n)) if block == rank else None
            case Pattern.BROADCAST:
                return frozenset({0})
            case Pattern.SEND_RECV:
                return frozenset({0}) if rank == 1 else None
            case _ if self.pattern.exchanges:
                return frozenset({block}) if row < self.rows_between(block, rank) else None
            case Pattern.ALL_GATHER | Pattern.AG_GEMM | Pattern.GEMM_BESIDE_AG:
                return frozenset({block})
            case _:
                return None
