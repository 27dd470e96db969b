"""How near to its kernels alone a layer can come: what sums, events and the network on chip take of any schedule.

Kernels run one after the other; each may have copies beside it, at a rate of its own. An integer program says which
collective runs beside which kernels, and which pair overlaps in itself, so that kernels are slowed least. The order of
kernels, chunks, engines and queues are left out, so that no schedule in one stream is faster, as long as

- sums have the SMs for as long as they take alone, and a kernel that waits for a whole collective pays for an event;
- a whole collective runs beside kernels that neither need it nor make what it takes: its neighbours are kernels alone,
  in one step each. A kernel is not interrupted, so that of collectives of which each needs the one before, with a
  kernel between, it is beside one at most;
- a pair that overlaps in itself takes at least what the fastest of all templates takes for it alone. One whose copies
  run beside kernels of others as well may take less: of that this says nothing.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from magus.advisor.layers import options as modes
from magus.advisor.layers.joint import COARSE_BYTES, LayerSpace, space_of
from magus.advisor.layers.op_runs import copiers_of
from magus.advisor.layers.options import OpOptions
from magus.compiler import compile_file
from magus.compiler.ir import Scenario, Workload, WorkloadCut
from magus.compiler.planning.parts import in_batches
from magus.examples import path

from .harness.report import Figure, main

RATES = np.linspace(0, 1, 41)
"""Shares of the links that copies may take beside a kernel."""

US = 10**8


@dataclass(frozen=True, slots=True)
class Moved:
    """A collective as copies of so many ``ticks`` alone, with ``sums``; by itself its pair takes ``together`` at least.

    ``beside`` are the kernels with which its copies may run where it is whole. Those of a ``chain``, by the number of a
    batch, need each other, with kernels between.
    """

    op: str
    ticks: int
    sums: int
    together: int | None
    beside: frozenset[str]
    chain: int | None


class _Beside(NamedTuple):
    """Copies of a collective beside a kernel at a rate, for a time of the kernel alone; without a name beside none."""

    collective: int
    kernel: str
    copied: float
    longer: float


@dataclass(slots=True)
class _Rows:
    """Rows of a linear program over so many columns."""

    columns: int
    rows: list[tuple[Mapping[int, float], float, float]] = field(default_factory=list)

    def add(self, row: Mapping[int, float], least: float, most: float) -> None:
        if row:
            self.rows.append((row, least, most))

    def constraint(self) -> LinearConstraint:
        matrix = np.zeros((len(self.rows), self.columns))
        for number, (row, _, _) in enumerate(self.rows):
            for column, value in row.items():
                matrix[number, column] = value
        return LinearConstraint(matrix, [row[1] for row in self.rows], [row[2] for row in self.rows])


def floor_ticks(space: LayerSpace, *, carried: bool, event_ticks: int) -> int:
    """Return the least time of a layer of ``space``; where it is ``carried`` on, layers follow each other."""
    moved = [_moved(space, op.name, carried=carried) for op in space.workload.ops if op.shape.moved is not None]
    kernels = {name: ticks / US for name, ticks in space.kernels.items() if ticks}
    beside = list(_beside_each(space, moved, kernels))
    pairs = sorted({(each.collective, each.kernel) for each in beside if each.kernel})
    place = {pair: len(beside) + number for number, pair in enumerate(pairs)}
    own = len(beside) + len(pairs)  # of collectives whose pair overlaps in itself
    rows = _Rows(own + len(moved))
    for number, each in enumerate(moved):
        copies = {column: one.copied for column, one in enumerate(beside) if one.collective == number}
        rows.add(copies | {own + number: each.ticks / US}, each.ticks / US, np.inf)
    for name, length in kernels.items():
        rows.add({column: 1 for column, one in enumerate(beside) if one.kernel == name}, 0, length)
        for chain in {each.chain for each in moved} - {None}:
            rows.add({place[pair]: 1 for pair in pairs if pair[1] == name and moved[pair[0]].chain == chain}, 0, 1)
    for (number, name), chosen in place.items():
        work = {column: 1.0 for column, one in enumerate(beside) if (one.collective, one.kernel) == (number, name)}
        rows.add(work | {chosen: -kernels[name]}, -np.inf, 0)
    costs = [one.longer for one in beside] + [0.0] * len(pairs)
    costs += [(each.together or 0) / US - kernels.get(each.op, 0) - _after(each, event_ticks) for each in moved]
    most = [np.inf] * len(beside) + [1] * len(pairs) + [float(each.together is not None) for each in moved]
    whole = [0] * len(beside) + [1] * (len(pairs) + len(moved))
    found = milp(costs, integrality=whole, bounds=Bounds(0, most), constraints=rows.constraint())
    fixed = sum(kernels.values()) + sum(_after(each, event_ticks) for each in moved)
    return int((fixed + found.mip_dual_bound) * US)


def _after(moved: Moved, event_ticks: int) -> float:
    """What a whole collective costs the stream of kernels besides its copies, in us."""
    return (moved.sums + event_ticks) / US


def _beside_each(space: LayerSpace, moved: Sequence[Moved], kernels: Mapping[str, float]) -> Iterator[_Beside]:
    for number, each in enumerate(moved):
        yield _Beside(number, "", 1.0, 1.0)
        for name in sorted(each.beside & kernels.keys()):
            for rate in map(float, RATES[1:]):
                longer = 1 / space.kernel_uses[name].beside(space.copy_uses[each.op], rate)
                yield _Beside(number, name, rate * longer, longer - 1)


def _moved(space: LayerSpace, name: str, *, carried: bool) -> Moved:
    op, op_options = space.workload.op(name), space.op_options[name]
    whole = min(
        (option for option in op_options if option.is_whole and not option.is_paced),
        key=lambda option: option.copies[1],
    )
    together = min((option.total for option in op_options if not option.is_whole), default=None)
    beside = frozenset(_beside(space.workload, name, carried=carried))
    chain = op.batch if carried and name in _chain(space.workload) else None
    return Moved(name, whole.copies[1] - whole.sums, whole.sums, together, beside, chain)


def _beside(graph: Workload, name: str, *, carried: bool) -> Iterator[str]:
    """Kernels that may run while a collective does: all that do not stand in line with it.

    Of layers that repeat kernels of others may, but not where both are of the chain from layer to layer.
    """
    chain = _chain(graph) if carried else frozenset[str]()
    line = _all(graph, name, made=True) | _all(graph, name, made=False) | {name}
    for op in graph.ops:
        in_chain = name in chain and op.name in chain and op.batch == graph.op(name).batch
        if not op.shape.is_collective and op.name != name and (op.name not in line or (carried and not in_chain)):
            yield op.name


def _chain(graph: Workload) -> frozenset[str]:
    """What each layer needs of the one before, and the next one of it."""
    assert graph.repeat is not None, "layers repeat"
    takes = {op.name for op in graph.ops if any(read.tensor in graph.repeat.carried for read in op.reads)}
    gives = {op for tensor, op, _ in graph.results if tensor in graph.repeat.carried.values()}
    behind = takes.union(*(_all(graph, name, made=False) for name in takes))
    return frozenset(behind & gives.union(*(_all(graph, name, made=True) for name in gives)))


def _all(graph: Workload, name: str, *, made: bool) -> set[str]:
    """All ops that an op needs (``made``), or that need it."""
    found, left = set[str](), [name]
    while left:
        now = left.pop()
        makers = {read.made_by for read in graph.op(now).reads if read.made_by}
        of = makers if made else {op.name for op in graph.ops if any(read.made_by == now for read in op.reads)}
        left += of - found
        found |= of
    return found


def _space(scenario: Scenario, batches: int) -> LayerSpace:
    """By copy engines, with every template that overlaps a pair in itself."""
    copier = next(copiers_of(scenario.system, scenario.workload, scenario.explore))
    op_options = OpOptions(scenario.system, copier, COARSE_BYTES, replace(scenario.explore, requested=()), paced=False)
    return space_of(op_options, WorkloadCut(batches), in_batches(scenario.workload, batches))


def measure() -> Iterator[Figure]:
    """Yield the least time over kernels alone, of the layers in the table of docs/layers.md."""
    modes.NUM_SHORTLISTED = modes.MOST_TOGETHER = 1000  # every template alone, and not those that are estimated best
    for file, workload, batches in (
        ("papers/layers", "back", 1),
        ("layers/llama70b_layer_backward", "back", 1),
        ("layers/llama70b_domino", "layer", 2),
    ):
        scenario = compile_file(path(file)).scenario(workload)
        space, repeats = _space(scenario, batches), scenario.workload.repeat is not None
        floor = floor_ticks(space, carried=repeats, event_ticks=scenario.system.gpu.launch.event_ticks)
        name = f"{file}, {workload}, {batches} batches"
        yield Figure(f"{name}: kernels alone", space.kernels_ticks / US, "us", "lower")
        yield Figure(f"{name}: floor", floor / US, "us", "lower")
        yield Figure("the same, over kernels alone", floor / space.kernels_ticks, "x", "lower")


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))
