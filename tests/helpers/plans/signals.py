"""The steps of all ranks, who sets which signal where, and what each step waits for; nothing is carried out here."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from magus.compiler.ir import Direction, Reach, Reduction, Region, Step, Transfer

Cell = tuple[int, int, int]
"""(block, row, column) of the moved tensor."""
Event = tuple[int, str, bool]
"""(rank, step, whether it ends)."""


class Wrong(AssertionError):
    """What the steps did is not what their pattern asks for."""


class Deadlock(Wrong):
    """Steps are left, and all of them wait."""


def demand(condition: bool, message: str) -> None:
    if not condition:
        raise Wrong(message)


class Steps:
    """``steps`` of each rank on blocks of ``rows`` x ``cols`` elements."""

    def __init__(self, steps: Sequence[Sequence[Step]], rows: int, cols: int) -> None:
        self.n, self.rows, self.cols = len(steps), rows, cols
        self.steps = [{step.name: step for step in mine} for mine in steps]
        for mine, named in zip(steps, self.steps, strict=True):
            demand(len(mine) == len(named), "two steps of one name")
        self.signals = self._signals()
        self.queued = [self._queues(mine) for mine in steps]
        self.staging = [self._parts(rank) for rank in range(self.n)]
        self.makers = [self._makers(rank) for rank in range(self.n)]
        self.closures: dict[tuple[int, str], frozenset[str]] = {}

    def cells(self, rank: int, region: Region) -> list[Cell]:
        """Cells of a region, owners relative to ``rank``."""
        demand(0 <= region.rows.start < region.rows.stop <= self.rows, f"rows {region.rows} of {self.rows}")
        demand(0 <= region.cols.start < region.cols.stop <= self.cols, f"columns {region.cols} of {self.cols}")
        return [
            ((rank + owner) % self.n, row, col)
            for owner in region.owners
            for row in range(region.rows.start, region.rows.stop)
            for col in range(region.cols.start, region.cols.stop)
        ]

    def _destinations(self, rank: int, step: Transfer) -> list[int]:
        if step.direction is Direction.GET:
            return [rank]
        if step.reach is Reach.ALL:
            return [other for other in range(self.n) if other != rank]
        return [(rank + step.peer) % self.n]

    def _signals(self) -> dict[tuple[int, str], list[tuple[int, str]]]:
        """Transfers that set each signal at each rank; only those that reach all may share one."""
        found: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        for rank, steps in enumerate(self.steps):
            for step in steps.values():
                if isinstance(step, Transfer):
                    demand(step.reach is Reach.ALL or step.peer % self.n != 0, f"{step.name} goes to its own rank")
                    for destination in self._destinations(rank, step):
                        found[destination, step.signal].append((rank, step.name))
        for (rank, signal), setters in found.items():
            shared = all(self._transfer(*setter).reach is Reach.ALL for setter in setters)
            demand(len(setters) == 1 or shared, f"{signal} is set twice at {rank}")
            demand(signal not in self.steps[rank], f"{signal} is a step and a signal")
        return found

    def _transfer(self, rank: int, name: str) -> Transfer:
        step = self.steps[rank][name]
        assert isinstance(step, Transfer)
        return step

    @staticmethod
    def _queues(steps: Sequence[Step]) -> dict[str, str]:
        last: dict[tuple[bool, int], str] = {}
        behind: dict[str, str] = {}
        for step in steps:
            number = step.lane if isinstance(step, Transfer) else step.stream
            if number is None:
                continue
            queue = (isinstance(step, Transfer), number)
            if queue in last:
                behind[step.name] = last[queue]
            last[queue] = step.name
        return behind

    def waits(self, rank: int, step: Step) -> Iterator[Event]:
        """Ends of steps that must come before ``step`` begins."""
        for name in step.after:
            setters = [(rank, name)] if name in self.steps[rank] else self.signals.get((rank, name), [])
            demand(bool(setters), f"{step.name} waits for {name}, which nothing sets at {rank}")
            yield from ((issuer, setter, True) for issuer, setter in setters)
        if step.name in self.queued[rank]:
            yield rank, self.queued[rank][step.name], True

    def closure(self, rank: int, name: str) -> frozenset[str]:
        """Steps and signals that this rank knows to be over before the step of that name begins."""
        if (rank, name) not in self.closures:
            seen, todo = set[str](), [name]
            while todo:
                at = todo.pop()
                step = self.steps[rank].get(at)
                behind = () if step is None else (*step.after, *filter(None, [self.queued[rank].get(at)]))
                todo += [other for other in behind if other not in seen]
                seen.update(behind)
            self.closures[rank, name] = frozenset(seen)
        return self.closures[rank, name]

    def _parts(self, rank: int) -> set[str]:
        """Signals of transfers that land beside the result, to be summed by a reduction of their cells that waits."""
        parts = set[str]()
        for step in self.steps[rank].values():
            cells = set(self.cells(rank, step.region)) if isinstance(step, Reduction) else set[Cell]()
            for name in step.after if cells else ():
                for issuer, setter in self.signals.get((rank, name), ()):
                    transfer = self._transfer(issuer, setter)
                    if not transfer.reduce and not cells.isdisjoint(self.cells(issuer, transfer.region)):
                        parts.add(name)
        return parts

    def _makers(self, rank: int) -> dict[Cell, set[str]]:
        """Names that leave a result in each cell of ``rank``."""
        makers: dict[Cell, set[str]] = defaultdict(set)
        for step in self.steps[rank].values():
            if isinstance(step, Reduction):
                for cell in self.cells(rank, step.region):
                    makers[cell].add(step.name)
        for (at, signal), setters in self.signals.items():
            if at == rank and signal not in self.staging[rank]:
                for issuer, name in setters:
                    for cell in self.cells(issuer, self._transfer(issuer, name).region):
                        makers[cell].add(signal)
        return makers
