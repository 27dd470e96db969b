"""What a batch costs, in integer ticks: the closed forms of the simulator's kernels, copies and links.

A shard is cut on a grid of ``grid`` units; a unit is the same share of the block of every peer. A batch of d units is
one kernel over d / grid of all remote rows, and one copy for each peer.
"""

from dataclasses import dataclass
from functools import lru_cache

from ...compiler.extents import inner_size, tile_cols
from ...compiler.plan import compute_sms, problem_of
from ...compiler.scenario import TICKS_PER_SECOND, Scenario
from ...compiler.schedule import Choice, EngineChoice, EngineKind, Region, Span, TileGroup
from ...compiler.templates.bespoke import Part, Parts, block_rows
from ...simcore.kernels.pick import compute_work
from ..estimate import copy_setup_ticks
from ..fluid import FluidFabric

# Rows in the parts that are proposed are multiples of this, the smallest tile of any kernel.
GRAIN = 16
MOST_UNITS = 24
# Of the own block, what comes in a batch is counted in quarters.
OWN_UNITS = 4


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of the batches of one scenario, copied by one engine.

    ``whole`` are the rows of the own block and of that of each peer. ``moved[d]`` is when d units have passed their
    links and engines once copies have begun; ``setup`` is what each copy after the first adds, ``lead`` what the first
    takes before and after that; ``event`` is added to a kernel that waits.
    """

    scenario: Scenario
    engine: EngineChoice
    whole: Part
    grid: int
    moved: tuple[int, ...]
    setup: int
    lead: int
    event: int

    def kernel(self, own: int, remote: int) -> int:
        """Ticks of a kernel over ``own`` quarters of the own block and ``remote`` units of the others', if alone."""
        rows = self.whole[0] * own // OWN_UNITS + sum(self.whole[1:]) * remote // self.grid
        return kernel_ticks(self.scenario, self.engine, rows)

    def landed(self, remote: int, copies: int) -> int:
        """When the first ``remote`` units are there, in so many copies for each peer that begin at once."""
        return self.lead + (copies - 1) * self.setup + self.moved[remote]

    def parts(self, own: list[int], remote: list[int]) -> Parts:
        """Parts with so many shares of the own block, and of the others', in each batch."""
        columns = [shares(self.whole[0], own), *(shares(rows, remote) for rows in self.whole[1:])]
        return tuple(part for part in zip(*columns, strict=True) if any(part))


@lru_cache(maxsize=64)
def costs_of(scenario: Scenario, engine: EngineChoice) -> Costs:
    """The costs of ``scenario``, whose copies are put by ``engine``."""
    gpu, peers, by_dma = scenario.gpu, scenario.num_ranks - 1, engine.kind is EngineKind.DMA
    whole = whole_rows(scenario)
    grid = max(1, min(MOST_UNITS, max(whole) // GRAIN))
    moved, latency = _moved(scenario, engine, whole, grid)
    setup = copy_setup_ticks(gpu, engine)
    # A second engine for each peer sets up the next copy while the first is under way.
    hidden = by_dma and engine.count >= 2 * peers
    event = gpu.launch.event_ticks
    return Costs(scenario, engine, whole, grid, moved, 0 if hidden else setup, setup + latency, event)


def whole_rows(scenario: Scenario) -> Part:
    """Rows of the own block, and of those that concern peer 1, 2, ..."""
    return block_rows(problem_of(scenario, Choice("bespoke", scenario.num_ranks, EngineChoice(EngineKind.SM, 1))))


def shares(rows: int, weights: list[int]) -> list[int]:
    """``rows`` in proportion to ``weights``, in multiples of ``GRAIN`` but for the last share."""
    total, passed, before, found = max(1, sum(weights)), 0, 0, []
    for weight in weights:
        passed += weight
        edge = rows if passed == total else min(rows, round(rows * passed / total / GRAIN) * GRAIN)
        found.append(edge - before)
        before = edge
    return found


@lru_cache(maxsize=8192)
def kernel_ticks(scenario: Scenario, engine: EngineChoice, rows: int) -> int:
    """A kernel of so many rows from its launch to its end, alone on the SMs that ``engine`` leaves; 0 without rows."""
    if not rows:
        return 0
    region = Region(0, Span(0, rows), Span(0, tile_cols(scenario.workload)))
    group = TileGroup("g", (region,), Span(0, inner_size(scenario.workload)))
    return compute_work(scenario, group, compute_sms(scenario, engine, overlaps=True)).alone_ticks


def _moved(scenario: Scenario, engine: EngineChoice, whole: Part, grid: int) -> tuple[tuple[int, ...], int]:
    """([d] when d units of every block have passed their links and engines, the latency to the farthest peer)."""
    moved, gpu, by_dma = scenario.workload.moved, scenario.gpu, engine.kind is EngineKind.DMA
    assert moved is not None, "batches move something"
    fabric, row_bytes = FluidFabric(scenario, by_sm=not by_dma), moved.cols * moved.dtype.num_bytes
    rate = (gpu.dma if by_dma else gpu.sm_copy).bytes_per_s
    workers = 1 if by_dma else max(1, engine.count // (len(whole) - 1))
    loads: dict[int, float] = {}
    latest = 0.0
    for peer in range(1, len(whole)):
        link, ticks_per_byte, latency = fabric.path_to(peer)
        loads[id(link)] = loads.get(id(link), 0.0) + whole[peer] * row_bytes * ticks_per_byte
        latest = max(latest, latency)
    one = max(whole[1:]) * row_bytes * TICKS_PER_SECOND / (workers * rate)
    pool = sum(whole[1:]) * row_bytes * TICKS_PER_SECOND / (engine.count * rate)
    ticks = max(one, pool, *loads.values())
    return tuple(round(ticks * d / grid) for d in range(grid + 1)), round(latest)
