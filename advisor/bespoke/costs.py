"""Costs of batches in integer ticks, by the closed forms of the simulator's kernels, copies and links.

The blocks of the peers are cut on a grid of ``grid`` units; a unit is the same share of the block of every peer. A
batch of d units is one kernel over their share, and one copy for each peer. The share is one of the rows, or of the
columns of the moved tensor with all remote rows: slices of the inner dimension, or bands of the output's columns.
"""

from dataclasses import dataclass
from functools import lru_cache

from ...compiler.ir import (
    TICKS_PER_SECOND,
    Choice,
    EngineChoice,
    EngineKind,
    IndexRange,
    Region,
    Scenario,
    TileGroup,
    inner_size,
    tile_cols,
)
from ...compiler.planning.build import compute_sms
from ...compiler.planning.template_input import template_input
from ...compiler.templates.bespoke import Part, block_rows
from ...simcore.kernels.dispatch import compute_work
from ..estimate.fluid import FluidFabric
from ..estimate.step_costs import copy_setup_ticks
from .batches import Batches, Lengths, lengths_of, only_own, whole_batches

# Rows of proposed parts are multiples of this, the smallest tile of any kernel.
GRAIN = 16
MAX_UNITS = 64
# Units of the own block: a batch has a number of quarters of it.
OWN_UNITS = 4


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of the batches of one scenario, copied by one engine, with shares of rows or, not ``by_rows``, of columns.

    ``whole`` are the rows of the own block and of the block of each peer. ``moved[d]`` is the time from the begin of
    copies until d units have passed links and engines. ``setup`` is added for each copy after the first, ``lead`` is
    the setup and latency of the first; ``event`` is added to a kernel that waits.
    """

    scenario: Scenario
    engine: EngineChoice
    by_rows: bool
    whole: Part
    lengths: Lengths
    grid: int
    moved: tuple[int, ...]
    setup: int
    lead: int
    event: int

    def kernel(self, own: int, remote: int) -> int:
        """Ticks of a kernel over ``own`` quarters of the own block and ``remote`` units of the others, alone."""
        rows, others = self.whole[0] * own // OWN_UNITS, sum(self.whole[1:])
        if self.by_rows:
            return kernel_ticks(self.scenario, self.engine, rows + others * remote // self.grid)
        if not remote:
            return kernel_ticks(self.scenario, self.engine, rows)
        lengths, share = self.lengths, max(1, self.lengths.cut * remote // self.grid)
        inner, cols = (lengths.inner, share) if lengths.produces else (share, lengths.cols)
        return kernel_ticks(self.scenario, self.engine, rows + others, inner, cols)

    def landed(self, remote: int, copies: int) -> int:
        """Time at which the first ``remote`` units have arrived, in ``copies`` copies for each peer begun at once."""
        return self.lead + (copies - 1) * self.setup + self.moved[remote]

    def batches(self, own: list[int], remote: list[int]) -> Batches:
        """Return batches with these shares of the own block and of the others, in reverse if kernels precede copies.

        If columns are cut, one batch has all remote rows and the own rows after the first share.
        """
        produces = self.lengths.produces
        if self.by_rows:
            columns = [shares(self.whole[0], own), *(shares(rows, remote) for rows in self.whole[1:])]
            return whole_batches(zip(*columns, strict=True))[:: -1 if produces else 1]
        before = shares(self.whole[0], [own[0], sum(own[1:])])
        cut = tuple(size for size in shares(self.lengths.cut, remote, self.lengths.step) if size)
        cut = () if len(cut) == 1 else cut
        batch = self.lengths.batch((before[1], *self.whole[1:]), cut[::-1] if produces else cut)
        alone = whole_batches([only_own(before[0], len(self.whole))])
        return (batch, *alone) if produces else (*alone, batch)


@lru_cache(maxsize=64)
def costs_of(scenario: Scenario, engine: EngineChoice, *, by_rows: bool = True) -> Costs:
    """Return the costs of ``scenario`` with ``engine`` as the copy engine."""
    gpu, peers, by_dma = scenario.gpu, scenario.num_ranks - 1, engine.kind is EngineKind.DMA
    whole = whole_rows(scenario)
    lengths = lengths_of(scenario)
    grid = max(1, min(MAX_UNITS, max(whole) // GRAIN if by_rows else lengths.cut // lengths.step))
    moved, latency = _moved(scenario, engine, whole, grid)
    setup = copy_setup_ticks(gpu, engine)
    # A second engine for each peer sets up the next copy while the first is under way.
    hidden = by_dma and engine.count >= 2 * peers
    event = gpu.launch.event_ticks
    setups = 0 if hidden else setup
    return Costs(scenario, engine, by_rows, whole, lengths, grid, moved, setups, setup + latency, event)


def whole_rows(scenario: Scenario) -> Part:
    """Return the rows of the own block, and of the blocks of peers 1, 2, ..."""
    return block_rows(template_input(scenario, Choice("bespoke", scenario.num_ranks, EngineChoice(EngineKind.SM, 1))))


def shares(rows: int, weights: list[int], grain: int = GRAIN) -> list[int]:
    """Split ``rows`` in proportion to ``weights``, in multiples of ``grain`` except for the last share."""
    total, passed, before, split = max(1, sum(weights)), 0, 0, []
    for weight in weights:
        passed += weight
        edge = rows if passed == total else min(rows, round(rows * passed / total / grain) * grain)
        split.append(edge - before)
        before = edge
    return split


@lru_cache(maxsize=8192)
def kernel_ticks(scenario: Scenario, engine: EngineChoice, rows: int, inner: int = 0, cols: int = 0) -> int:
    """Ticks from launch to end of a kernel of ``rows``, alone on the SMs that ``engine`` leaves; 0 without rows.

    An ``inner`` or ``cols`` of 0 stands for the whole dimension.
    """
    if not rows:
        return 0
    region = Region(0, IndexRange(0, rows), IndexRange(0, cols or tile_cols(scenario.workload)))
    group = TileGroup("g", (region,), IndexRange(0, inner or inner_size(scenario.workload)))
    return compute_work(scenario, group, compute_sms(scenario, engine, overlaps=True)).alone_ticks


def _moved(scenario: Scenario, engine: EngineChoice, whole: Part, grid: int) -> tuple[tuple[int, ...], int]:
    """Return ([d] time in which d units of every block pass links and engines, the latency to the farthest peer)."""
    moved, gpu, by_dma = scenario.workload.moved, scenario.gpu, engine.kind is EngineKind.DMA
    assert moved is not None, "batches move something"
    fabric, row_bytes = FluidFabric(scenario, by_sm=not by_dma), moved.cols * moved.dtype.num_bytes
    rate = (gpu.dma if by_dma else gpu.sm_copy).bytes_per_s
    workers = 1 if by_dma else max(1, engine.count // (len(whole) - 1))
    loads: dict[int, float] = {}
    latest = 0.0
    for peer in range(1, len(whole)):
        link, ticks_per_byte, latency = fabric.queue_to(peer)
        loads[id(link)] = loads.get(id(link), 0.0) + whole[peer] * row_bytes * ticks_per_byte
        latest = max(latest, latency)
    one = max(whole[1:]) * row_bytes * TICKS_PER_SECOND / (workers * rate)
    pool = sum(whole[1:]) * row_bytes * TICKS_PER_SECOND / (engine.count * rate)
    ticks = max(one, pool, *loads.values())
    return tuple(round(ticks * d / grid) for d in range(grid + 1)), round(latest)
