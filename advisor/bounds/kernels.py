"""Least times of kernels: launched for each group, or one persistent kernel for each stream.

Every schedule has one of these classes, and a bound is the smaller one of both. A launched kernel begins after its
launch, which follows the data it waits for, and may have any rows, columns and slice of the inner dimension. A
persistent kernel is launched before; its units are tiles, each of the whole inner dimension or of an equal part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ...compiler.ir import (
    SPLITS,
    TICKS_PER_US,
    DType,
    GemmShape,
    GemvShape,
    Gpu,
    GroupedGemmShape,
    Kernels,
    OpCase,
    OpChoice,
    TileGroup,
    checkpoint,
    split_k,
)
from ...compiler.planning.build import build_op_plan
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.templates import BASELINE
from ...simcore.kernels.dispatch import BYTES_IN_FLIGHT_PER_SM, compute_work, gemv_work, least_sm_ticks
from ...simcore.kernels.gemm import gemm_work
from ...simcore.kernels.gemm_form import TileForm, library_tiles
from ...simcore.kernels.work import KernelWork
from .boxes import Floats, GemmForm, TiledKernels, all_boxes, halves


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """Least times in ticks of the kernels of one class.

    ``start`` is the earliest begin of a unit, ``first`` the earliest result, ``after`` the time from an arrival to the
    end of a kernel that needs it, ``launched`` the part of ``after`` before the first unit. ``sum_after`` is the time
    from an arrival to the end of a kernel that sums it, ``sum_launch`` the time from the end of a kernel of the rank to
    the end of a kernel that sums its results. Persistent ones compute a tile in one of ``splits`` parts.
    """

    scenario: OpCase
    kernels: Kernels
    start: int = 0
    first: int = 0
    after: int = 0
    launched: int = 0
    sum_after: int = 0
    sum_launch: int = 0
    splits: tuple[int, ...] = SPLITS[:1]

    @property
    def persistent(self) -> bool:
        """Whether there is one kernel for each stream."""
        return self.kernels is Kernels.PERSISTENT


def kernel_limits(scenario: OpCase) -> tuple[KernelLimits, ...]:
    """Return the limits of each class of kernels that the scenario allows."""
    launched, persistent = _sums(scenario, Kernels.LAUNCHED), _sums(scenario, Kernels.PERSISTENT)
    shape, gpu = scenario.shape, scenario.gpu
    if shape.gemm is None or shape.gemm.n == 1:
        if shape.pattern.overlaps and shape.gemm is None:
            return (_of_other_kernel(launched),)
        return launched, persistent
    return _of_launched(launched, gpu, shape.gemm), _of_persistent(persistent, gpu, shape.gemm)


def _sums(scenario: OpCase, kernels: Kernels) -> KernelLimits:
    """Return the limits of kernels that sum. A kernel that polls may be launched before the data to sum arrive."""
    gpu, latency = scenario.gpu, scenario.gpu.hbm.latency_ticks
    kernel, event, in_graph = _launch_ticks(gpu)
    after = 0 if kernels is Kernels.PERSISTENT else min(in_graph, kernel + event)
    return KernelLimits(scenario, kernels, sum_after=after + latency, sum_launch=min(in_graph, kernel))


def _launch_ticks(gpu: Gpu) -> tuple[int, int, int]:
    """Return what the launch of a kernel takes, waiting for an event, and a launch in a graph: no less without one."""
    kernel, event, in_graph = gpu.launch.kernel_ticks, gpu.launch.event_ticks, gpu.sync.graph_launch_ticks
    return kernel, event, kernel + event if in_graph is None else in_graph


def _of_other_kernel(limits: KernelLimits) -> KernelLimits:
    """Return the limits of a kernel other than a GEMM: a step of a tile, of which at least half remains."""
    model, kernel = limits.scenario.gpu.gemm, limits.scenario.shape.kernel
    if not least_sm_ticks(limits.scenario):
        return limits
    if isinstance(kernel, GroupedGemmShape):
        model = model.of(kernel.dtype)
    unit = (model.k_step_ticks + model.tile_ticks) // 2
    return replace(limits, start=model.start_ticks, first=unit, after=unit)


def _of_launched(limits: KernelLimits, gpu: Gpu, gemm: GemmShape) -> KernelLimits:
    """Return the limits of launched kernels, of one element at least: a GEMM, or a matrix times a vector."""
    kernel, event, in_graph = _launch_ticks(gpu)
    start = gemm_start_ticks(gpu, gemm.dtype)
    vector = min(kernel, in_graph)
    whole, vector_whole = _least_kernels(gpu, gemm, gemm.k)
    slice_, vector_slice = _least_kernels(gpu, gemm, 1)
    short = min(start + slice_, vector + vector_slice)
    waits, vector_waits = start + min(event, in_graph), min(kernel + event, in_graph)
    return replace(
        limits,
        start=min(start, vector),
        # The inner dimension at once, or slice after slice.
        first=min(start + whole, vector + vector_whole, 2 * short),
        after=min(waits + slice_, vector_waits + vector_slice),
        launched=min(waits, vector_waits),
    )


def _of_persistent(limits: KernelLimits, gpu: Gpu, gemm: GemmShape) -> KernelLimits:
    start = gemm_start_ticks(gpu, gemm.dtype)
    splits = gpu.splits_of(gemm.dtype, gemm.k) if limits.scenario.splits_k else limits.splits
    form, part = TileForm.of(gpu, gemm.dtype), split_k(gemm.k, splits[-1])
    us = min(form.us(tile, part) for tile in gpu.tiles_of(gemm.dtype))
    unit = int(us * TICKS_PER_US * (1 - 1e-6))
    return replace(limits, start=start, first=start + unit, after=unit, splits=splits)


def gemm_start_ticks(gpu: Gpu, dtype: DType) -> int:
    """Return the least time from the launch of a GEMM to its first unit.

    The simulator subtracts the time by which units last longer than their closed form (``fitted_start`` in
    ``simcore/lower/kernels.py``): without queues, the latency of L2.
    """
    return max(0, gpu.gemm.of(dtype).start_ticks - gpu.l2.latency_ticks)


@lru_cache(maxsize=1024)
def _least_kernels(gpu: Gpu, gemm: GemmShape, inner: int) -> tuple[int, int]:
    """Return the ticks of the shortest GEMM and matrix times a vector with that inner dimension, without launch."""
    whole = gemm_work(gpu, replace(gemm, m=1, n=1, k=inner), gpu.sms)
    return whole.unit_ticks, gemv_work(gpu, GemvShape(1, inner, gemm.dtype), gpu.sms).unit_ticks


def lone_kernel(scenario: OpCase) -> KernelWork | None:
    """Return the kernel of a workload that is one kernel other than a GEMM, else None."""
    if scenario.shape.kernel is None or scenario.shape.pattern.overlaps:
        return None
    schedule = build_op_plan(scenario, OpChoice(BASELINE.name, scenario.num_ranks, default_engine(scenario.system)))
    (group,) = (step for step in schedule.steps if isinstance(step, TileGroup))
    return compute_work(scenario, group, scenario.gpu.sms)


# Boxes divided in a round without a limit, and at least under each limit; fewer under tight limits, since kernels with
# much time do most of the work.
MAX_DIVIDED, MIN_DIVIDED = 144, 4
# Rounds of division at each refinement of a bound; more than the last gain little.
REFINEMENT_ROUNDS = (4, 10, 18, 28)
MAX_ROUNDS = REFINEMENT_ROUNDS[-1]
# Limits of time and of size, as shares of the time and size of the whole GEMM.
TIME_SHARES, SIZE_SHARES = tuple(1.2**-step for step in range(24)), tuple(1.22**-step for step in range(20))
# Factor that covers rounding errors of powers, and the ratio up to which two kernels count as equally fast.
ROUNDING_MARGIN, TIE_RATIO = 1 - 1e-6, 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Ratios:
    """The least SM time in us for each element of m n k.

    ``of_times`` is the least of kernels that last at most ``times`` us, ``of_sizes`` of kernels of at most ``sizes``
    elements. The last time is infinity, the last size the whole.
    """

    times: Floats
    of_times: Floats
    sizes: Floats
    of_sizes: Floats

    @property
    def least(self) -> float:
        """The least over all kernels."""
        return float(self.of_times[-1])

    def within(self, us: Floats) -> Floats:
        """Return the least over kernels that last at most ``us``."""
        return np.asarray(self.of_times[np.searchsorted(self.times, us)])

    def up_to(self, sizes: Floats) -> Floats:
        """Return the least over kernels of at most ``sizes`` elements."""
        return np.asarray(self.of_sizes[np.searchsorted(self.sizes, np.minimum(sizes, self.sizes[-1]))])


@dataclass(frozen=True, slots=True)
class KernelClass:
    """A class of kernels on ``fewest`` to ``most`` SMs; ``persistent`` kernels are one for each stream.

    A persistent kernel has all columns and the whole inner dimension, in one of ``splits`` parts, and its time is that
    of a unit. The time of a ``finished`` kernel includes all slices of the inner dimension, one after the other. Where
    kernels may be ``shared``, others may take what their last wave leaves.
    """

    fewest: int
    most: int
    persistent: bool = False
    finished: bool = False
    shared: bool = False
    splits: tuple[int, ...] = SPLITS[:1]


def least_ratios(gpu: Gpu, shape: GemmShape, kind: KernelClass, rounds: int = MAX_ROUNDS) -> Ratios:
    """Return the least SM time for each element, for any cut of ``shape`` into kernels of ``kind``.

    More ``rounds`` take more time and never give a lower bound.
    """
    return _search_of(gpu, shape, kind).ratios(rounds)


@lru_cache(maxsize=16)  # some 10 MB each, and a bound needs a few at once
def _search_of(gpu: Gpu, shape: GemmShape, kind: KernelClass) -> "_Search":
    return _Search(gpu, shape, kind)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of K kernels in B boxes, and of the T limits of time.

    ``least`` [B, K] is at most the SM time for each element of a kernel, infinite for one that is never the fastest;
    from limit ``limits`` [B, K] on it may last as long. ``bounds`` [T, B] are the least of kernels within each limit.
    """

    least: NDArray[np.float32]
    limits: NDArray[np.uint8]
    bounds: Floats

    def at(self, boxes: NDArray[np.intp] | NDArray[np.bool_]) -> "_Known":
        """What is known of ``boxes``."""
        return _Known(self.least[boxes], self.limits[boxes], self.bounds[:, boxes])

    def beside(self, other: "_Known") -> "_Known":
        """What is known of these boxes and of ``other`` ones."""
        return _Known(
            np.vstack([self.least, other.least]),
            np.vstack([self.limits, other.limits]),
            np.hstack([self.bounds, other.bounds]),
        )


class _Search:
    """Divides boxes of shapes, those with the lowest bound under any limit first; a search can be resumed.

    Threads may share one.
    """

    def __init__(self, gpu: Gpu, shape: GemmShape, kind: KernelClass) -> None:
        self._lock = Lock()
        self._gpu, self._shape, self._kind = gpu, shape, kind
        whole = gemm_work(gpu, shape, kind.most, static_order=kind.persistent)
        us = whole.waves * whole.unit_ticks / TICKS_PER_US
        self._times = np.append(us * np.array(TIME_SHARES[::-1]), np.inf)
        self._sizes = shape.m * shape.n * shape.k * np.array(SIZE_SHARES[::-1])
        fixed = kind.persistent
        self._form = GemmForm(gpu, shape, kind.fewest, kind.most, fixed, kind.shared)
        splits = kind.splits if fixed else SPLITS[:1] if self._form.by_waves else SPLITS
        tiles = gpu.tiles_of(shape.dtype) if fixed else library_tiles(gpu, shape.dtype)
        kernels = [(*tile, split) for tile in tiles if tile[1] <= kind.most for split in splits]
        self._kernels = TiledKernels.of(self._form, kernels)
        # Of tiles of one size the most square reads least. Any subset bounds the time of the fastest from above.
        rivals = {
            (block[0] * block[1], units, split): (block, units, split)
            for block, units, split in sorted(kernels, key=lambda each: min(each[0]) / max(each[0]))
        }
        self._rivals = TiledKernels.of(self._form, list(rivals.values()))
        self._low, self._high = all_boxes(shape, fixed=fixed)
        self._by_round = list[Ratios]()
        count = self._low.shape[1]
        nothing = _Known(
            np.zeros((count, len(kernels)), np.float32),
            np.zeros((count, len(kernels)), np.uint8),
            np.zeros((len(self._times), count)),
        )
        self._known = self._refined(self._low, self._high, nothing)

    def ratios(self, rounds: int) -> Ratios:
        """Return the ratios after ``rounds`` divisions."""
        with self._lock:
            if len(self._by_round) <= rounds:
                self._go_on(rounds)
            return self._by_round[rounds]

    def _go_on(self, rounds: int) -> None:
        limited = self._limited()
        while len(self._by_round) <= rounds:
            checkpoint()
            if self._by_round:
                self._divide(limited)
                limited = self._limited()
            self._by_round.append(self._ratios(limited))

    def _ratios(self, limited: Floats) -> Ratios:
        least = limited.min(axis=1)
        # A matrix times a vector is bound by the bytes in flight of an SM.
        gpu = self._gpu
        latency_us = (gpu.l2.latency_ticks + gpu.hbm.latency_ticks) / TICKS_PER_US
        vector = latency_us * self._shape.dtype.mean_bytes / BYTES_IN_FLIGHT_PER_SM
        least = ROUNDING_MARGIN * (least if self._kind.persistent else np.minimum(least, vector))
        return Ratios(self._times, least[: len(self._times)], self._sizes, least[len(self._times) :])

    def _divide(self, limited: Floats) -> None:
        """Halve the boxes with the lowest bounds."""
        low, high = self._low, self._high
        chosen = np.unique(np.concatenate(list(_lowest(limited))))
        chosen = chosen[(high[:, chosen] > low[:, chosen]).any(axis=0)]
        below, above = halves(low[:, chosen], high[:, chosen])
        parts = self._refined(below, above, self._known.at(np.tile(chosen, 2)))
        keep = np.ones(low.shape[1], bool)
        keep[chosen] = False
        self._low, self._high = np.hstack([low[:, keep], below]), np.hstack([high[:, keep], above])
        self._known = self._known.at(keep).beside(parts)

    def _limited(self) -> Floats:
        """Return [L, B] the bounds of boxes under each limit, of time and then of size."""
        small, bounds = self._low.prod(axis=0) <= self._sizes[:, None], self._known.bounds
        return np.vstack([bounds, np.where(small, bounds[-1], np.inf)])

    def _refined(self, low: Floats, high: Floats, known: "_Known") -> "_Known":
        """Return what is known of boxes [3, B], given what is known of boxes that contain them.

        Kernels that set the bounds of the larger boxes come first. Another one is computed only where what is known of
        it in the larger box is below the bounds that these give.
        """
        boxes, fastest = np.arange(low.shape[1])[:, None], self._fastest_us(low, high)
        least, limits, bounds = known.least.copy(), known.limits.copy(), np.full_like(known.bounds, np.inf)
        chosen, below = np.zeros(least.shape, bool), known.bounds
        for compare in (np.less_equal, np.less):
            chosen = compare(least, below[limits, boxes]) & np.isfinite(least) & ~chosen
            at, kernels = np.nonzero(chosen)
            ratios, lasts = self._of_pairs(kernels, low[:, at], high[:, at], [each[at] for each in fastest])
            first = np.searchsorted(self._times, lasts)
            np.minimum.at(bounds, (first, at), ratios)
            below = bounds = np.minimum.accumulate(bounds, axis=0)
            least[at, kernels], limits[at, kernels] = _rounded_down(ratios), first
        return _Known(least, limits, np.maximum(bounds, known.bounds))

    def _fastest_us(self, low: Floats, high: Floats) -> list[Floats]:
        """Return [B] the longest times of the fastest kernels in boxes: of those that write, and of those that add."""
        if self._form.by_waves or self._form.fixed:
            return [np.full(low.shape[1], np.inf)] * 2  # a persistent kernel may have any tile, whichever is fastest
        return [TIE_RATIO * each for each in self._rivals.fastest_us(low, high)]

    def _of_pairs(
        self, kernels: NDArray[np.intp], low: Floats, high: Floats, fastest: Sequence[Floats]
    ) -> tuple[Floats, Floats]:
        """Return [P] the least SM time for each element, and the least time, of kernels in boxes [3, P].

        The SM time is infinite for kernels that are never the fastest: whose least time, writing and adding, is above
        ``fastest``.
        """
        form, pairs, ratios = self._form, self._kernels.at(kernels), np.full(len(kernels), np.inf)
        waves, split = pairs.waves_us(low, form.most, pairs.unit_us(low)), pairs.split_us(low)
        memory = [form.memory_us(low, adds=adds) for adds in (False, True)]
        # No two times together are shorter than the longer one.
        near = [np.maximum(waves, each) + split <= limit for each, limit in zip(memory, fastest, strict=True)]
        (may,) = np.nonzero((near[0] | near[1]) & pairs.exists(high))
        alone, adding = (form.together(waves[may], each[may]) + split[may] for each in memory)
        picked = (alone <= fastest[0][may]) | (adding <= fastest[1][may])
        may, alone = may[picked], alone[picked]
        low, high = low[:, may], high[:, may]
        pairs = self._kernels.at(kernels[may])
        ratios[may] = pairs.per_element(low, high, alone)
        # Kernels that share the SMs may find all of them free: their tiles then run at once.
        by_unit, lasts = self._kind.persistent or self._kind.shared, np.zeros(len(kernels))
        lasts[may] = pairs.unit_us(low) if by_unit else alone + self._other_slices_us(high)
        return ratios, lasts

    def _other_slices_us(self, high: Floats) -> Floats:
        """Return the time of the other slices of a finished kernel: at least one more kernel, and the steps."""
        if not self._kind.finished:
            return np.zeros(high.shape[1])
        dtype, left = self._shape.dtype, self._shape.k - high[2]
        model = self._gpu.gemm.of(dtype)
        ticks = gemm_start_ticks(self._gpu, dtype) + model.tile_ticks + left / 64 * model.k_step_ticks
        return np.asarray(np.where(left > 0, ticks / TICKS_PER_US, 0.0))


def _lowest(limited: Floats) -> Iterator[NDArray[np.intp]]:
    """Yield the boxes with the lowest bounds under each limit."""
    batches = [max(MIN_DIVIDED, int(MAX_DIVIDED * share**2)) for share in (*TIME_SHARES[::-1], 1.0, *SIZE_SHARES[::-1])]
    for row, batch in zip(limited, batches, strict=True):
        boxes = np.argpartition(row, batch)[:batch] if row.size > batch else np.arange(row.size)
        yield boxes[np.isfinite(row[boxes])]


def _rounded_down(values: Floats) -> NDArray[np.float32]:
    """Return ``values`` in single precision, none above what it was."""
    single = values.astype(np.float32)
    return np.where(single > values, np.nextafter(single, np.float32(-np.inf)), single)
