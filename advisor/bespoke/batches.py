"""Batches of a bespoke plan: the rows and cuts of each, what they cost, and batches to begin with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...compiler.ir import (
    TICKS_PER_SECOND,
    EngineChoice,
    EngineKind,
    IndexRange,
    OpCase,
    OpChoice,
    Region,
    TileGroup,
    cutting_of,
    inner_size,
    tile_cols,
)
from ...compiler.planning.build import compute_sms, reject_choice
from ...compiler.planning.staging import template_input
from ...compiler.templates.bespoke import (
    Part,
    block_rows,
    cuts_tiles,
    shortened,
    shortened_cuts,
    spelled,
    spelled_cuts,
    whole_tiles,
)
from ...simcore.kernels.dispatch import compute_work
from ..estimate.fluid import FluidFabric
from ..estimate.step_costs import copy_setup_ticks


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of the own block and of the block of each peer; ``slices`` and ``columns`` as in ``OpChoice``."""

    rows: Part
    slices: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()


Batches = tuple[RowBatch, ...]


class Lengths(NamedTuple):
    """Dimensions to cut in steps of ``step``: the inner one and, if kernels come first, the output's columns.

    If kernels follow the collective, bands of columns start no kernel earlier: they only run one kernel as several in
    parallel, and no constant of a profile is fitted to that.
    """

    inner: int
    cols: int
    step: int
    produces: bool

    @property
    def cut(self) -> int:
        """The dimension that copies share: the columns if kernels precede the collective, else the inner dimension."""
        return self.cols if self.produces else self.inner

    def batch(self, rows: Part, sizes: tuple[int, ...]) -> RowBatch:
        """Return a batch whose copies have these shares of ``cut``; without ``sizes`` it is not cut."""
        return RowBatch(rows, (), sizes) if self.produces else RowBatch(rows, sizes)


def lengths_of(scenario: OpCase) -> Lengths:
    """Return the dimensions along which batches of ``scenario`` may be cut."""
    shape = scenario.shape
    step = cutting_of(shape).column_step
    return Lengths(inner_size(shape), tile_cols(shape), step, shape.pattern.produces)


def batches_of(choice: OpChoice) -> Batches:
    """Return the batches of a bespoke choice."""
    count = len(choice.parts)
    parts = spelled(choice.parts, choice.chunks)
    slices, columns = spelled_cuts(choice.slices, count), spelled_cuts(choice.columns, count)
    return tuple(RowBatch(*fields) for fields in zip(parts, slices, columns, strict=True))


def is_cut(choice: OpChoice) -> bool:
    """Whether any batch is cut into several kernels."""
    return bool(choice.slices or choice.columns)


def with_batches(choice: OpChoice, batches: Iterable[RowBatch]) -> OpChoice:
    """Return ``choice`` with other batches, without those that have no rows."""
    kept = [batch for batch in batches if any(batch.rows)]
    return replace(
        choice,
        parts=shortened(batch.rows for batch in kept),
        slices=shortened_cuts(tuple(batch.slices for batch in kept)),
        columns=shortened_cuts(tuple(batch.columns for batch in kept)),
    )


def in_whole_tiles(scenario: OpCase, choice: OpChoice) -> OpChoice | None:
    """Return the bespoke choice next to ``choice`` that cuts no tile; None if it cuts none, or none is near."""
    if not choice.parts or not cuts_tiles(choice.parts, choice.chunks):
        return None
    batches = zip(whole_tiles(choice.parts, choice.chunks), batches_of(choice), strict=True)
    whole = with_batches(choice, (replace(batch, rows=rows) for rows, batch in batches))
    is_one = len(whole.parts) == 1 and not is_cut(whole)  # which is serial
    return None if is_one or reject_choice(scenario, whole) is not None else whole


def only_own(rows: int, num_ranks: int) -> Part:
    """Return a part with ``rows`` of the own block and none of others."""
    return (rows, *(0,) * (num_ranks - 1))


def whole_batches(parts: Iterable[Part]) -> Batches:
    """Return batches of these rows that are not cut further, without empty ones."""
    return tuple(RowBatch(rows) for rows in parts if any(rows))


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

    scenario: OpCase
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

    def arrived(self, remote: int, copies: int) -> int:
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
def costs_of(scenario: OpCase, engine: EngineChoice, *, by_rows: bool = True) -> Costs:
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


@lru_cache(maxsize=64)
def whole_rows(scenario: OpCase) -> Part:
    """Return the rows of the own block, and of the blocks of peers 1, 2, ..."""
    return block_rows(template_input(scenario, OpChoice("bespoke", scenario.num_ranks, EngineChoice(EngineKind.SM, 1))))


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
def kernel_ticks(scenario: OpCase, engine: EngineChoice, rows: int, inner: int = 0, cols: int = 0) -> int:
    """Ticks from launch to end of a kernel of ``rows``, alone on the SMs that ``engine`` leaves; 0 without rows.

    An ``inner`` or ``cols`` of 0 stands for the whole dimension.
    """
    if not rows:
        return 0
    region = Region(0, IndexRange(0, rows), IndexRange(0, cols or tile_cols(scenario.shape)))
    group = TileGroup("g", (region,), IndexRange(0, inner or inner_size(scenario.shape)))
    return compute_work(scenario, group, compute_sms(scenario, engine, overlaps=True)).alone_ticks


def _moved(scenario: OpCase, engine: EngineChoice, whole: Part, grid: int) -> tuple[tuple[int, ...], int]:
    """Return ([d] time in which d units of every block pass links and engines, the latency to the farthest peer)."""
    moved, gpu, by_dma = scenario.shape.moved, scenario.gpu, engine.kind is EngineKind.DMA
    assert moved is not None, "batches move something"
    fabric, row_bytes = FluidFabric(scenario, by_sm=not by_dma), moved.dtype.bytes_of(moved.cols)
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


MAX_BATCHES = 10
# Numbers of batches that are kept, the best first, for each share of the own block that runs first.
NUM_KEPT = 3
# An end that no plan has: the sum of two such fits 64 bits.
NEVER = 1 << 61


def dp_batches(scenario: OpCase, engine: EngineChoice) -> tuple[Batches, ...]:
    """Return batches by their end, for each share of the own block that runs first (last if kernels precede copies)."""
    plans = [
        (end, costs.batches(own, remote))
        for costs in (costs_of(scenario, engine), costs_of(scenario, engine, by_rows=False))
        for first in range(OWN_UNITS, -1, -1)
        for end, own, remote in _plans(costs, first)
    ]
    return tuple(dict.fromkeys(batches for _, batches in sorted(plans, key=lambda plan: plan[0])))


def _plans(costs: Costs, first: int) -> list[tuple[int, list[int], list[int]]]:
    """Return (end, quarters of the own block by batch, remote units by batch) for the best numbers of batches."""
    ends, came_from = _ends(costs, first)
    plans = []
    for batches in sorted(range(1, len(ends)), key=lambda j: ends[j][costs.grid])[:NUM_KEPT]:
        units = list(_units(came_from, batches, costs.grid))[::-1]
        own = [OWN_UNITS - first, *(0,) * (batches - 1)]
        plans.append((ends[batches][costs.grid], [first, *own], [0, *units]))
    return plans


def _ends(costs: Costs, first: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return F by batches and units, and the v of each minimum; the rest of the own block is in the first batch."""
    grid, filler = costs.grid, OWN_UNITS - first
    with_own = _kernels(costs, filler)
    others = _kernels(costs, 0) if costs.by_rows else with_own
    ends, came_from = [[costs.kernel(first, 0), *[NEVER] * grid]], [[0] * (grid + 1)]
    for j in range(1, min(MAX_BATCHES, grid) + 1):
        arrived = np.array([[costs.arrived(u, j)] for u in range(grid + 1)])
        candidates = np.maximum(ends[-1], arrived) + (with_own if j == 1 else others)  # [u, v]
        ends.append(np.minimum(candidates.min(axis=1), NEVER).tolist())
        came_from.append(candidates.argmin(axis=1).tolist())
    return ends, came_from


def _kernels(costs: Costs, own: int) -> npt.NDArray[np.int64]:
    """Return [u, v] the ticks of a kernel over the units from v to u beside ``own`` quarters of the own block."""
    units = np.arange(costs.grid + 1)
    ticks = np.array([costs.kernel(own, d) + costs.event for d in units.tolist()])
    sizes = np.subtract.outer(units, units)
    return np.where(sizes > 0, ticks[sizes], NEVER)


def _units(came_from: list[list[int]], batches: int, grid: int) -> Iterator[int]:
    """Yield the units of each batch, the last batch first."""
    end = grid
    for j in range(batches, 0, -1):
        yield end - came_from[j][end]
        end = came_from[j][end]


COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
RATIOS = (1.0, 0.6, 1.7, 0.4, 2.5)
_SCALE = 1000


def shapes(scenario: OpCase) -> tuple[Batches, ...]:
    """Return batches for every count, ratio of one batch to the next, kind of cut and place of the own block."""
    whole, lengths = whole_rows(scenario), lengths_of(scenario)
    shaped = [
        batches
        for count in COUNTS
        for ratio in (RATIOS if count > 1 else RATIOS[:1])
        for weights in ([round(_SCALE * ratio**index) for index in range(count)],)
        for batches in (*_placed(whole, weights), *_cut(whole, weights, lengths))
    ]
    return tuple(dict.fromkeys((*shaped, *_by_peer(whole))))


def _placed(whole: Part, weights: list[int]) -> Iterator[Batches]:
    remote = [shares(rows, weights) for rows in whole[1:]]
    nothing = [0] * len(weights)
    for own, others in (
        ([whole[0], *nothing], [[0, *rows] for rows in remote]),
        ([*nothing, whole[0]], [[*rows, 0] for rows in remote]),
        (shares(whole[0], weights), remote),
    ):
        yield whole_batches(zip(own, *others, strict=True))


def _cut(whole: Part, weights: list[int], lengths: Lengths) -> Iterator[Batches]:
    """Yield all rows, or all remote rows, in slices of the inner dimension, or in bands if kernels precede copies.

    An own block in a batch of its own fills the time in which no remote rows can be computed.
    """
    sizes = tuple(filter(None, shares(lengths.cut, weights, lengths.step)))
    if len(sizes) < 2:
        return
    yield (lengths.batch(whole, sizes),)
    if whole[0]:
        own, others = RowBatch(only_own(whole[0], len(whole))), lengths.batch((0, *whole[1:]), sizes)
        yield (others, own) if lengths.produces else (own, others)


def _by_peer(whole: Part) -> Iterator[Batches]:
    """Yield one batch for each block, ordered by peer or by size, with the own block at either end."""
    n = len(whole)
    for order in (range(1, n), range(n - 1, 0, -1), sorted(range(1, n), key=lambda peer: whole[peer])):
        for blocks in ((0, *order), (*order, 0)):
            yield whole_batches(tuple(whole[k] * (k == block) for k in range(n)) for block in blocks)
