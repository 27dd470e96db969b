"""The situation of a scenario in numbers: ratios of closed-form times that decide which structure suits it.

Nothing is estimated step by step, so that a situation takes milliseconds. None of the numbers is a name: a GPU or a
fabric that was never seen is described like any other.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, EngineChoice, EngineKind, OpCase
from ...compiler.planning.knobs.engine import default_engine, max_copy_sms
from ...simcore.kernels.dispatch import reduce_work, whole_works
from ..bespoke.batches import Costs, costs_of, kernel_ticks
from ..estimate.fluid import FluidFabric

FloatArray = npt.NDArray[np.float64]

# Numbers of kernels of equal rows, and of equal slices or bands, whose times together are compared with the whole.
CUTS = (2, 4, 8, 16)
# SMs that copy, of a kernel beside them.
MANY_SMS = 32


@dataclass(frozen=True, slots=True)
class Situation:
    """Numbers of a scenario by their names, which are the same for every scenario."""

    names: tuple[str, ...]
    values: FloatArray

    @classmethod
    def of(cls, scenario: OpCase) -> "Situation":
        """Return the situation of a scenario that overlaps a GEMM and a collective."""
        names, values = zip(*_named(scenario), strict=True)
        return cls(names, np.array(values, np.float64))

    def __getitem__(self, name: str) -> float:
        return float(self.values[self.names.index(name)])

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""
        return round(self.ratio("log_ranks"))

    def ratio(self, name: str) -> float:
        """Return a number that is kept as a logarithm."""
        return math.exp(self[name])


def _named(scenario: OpCase) -> Iterator[tuple[str, float]]:
    yield from _work(scenario)
    dma = costs_of(scenario, default_engine(scenario.system))
    many = costs_of(scenario, EngineChoice(EngineKind.SM, max(1, min(MANY_SMS, max_copy_sms(scenario.gpu)))))
    yield from _against(scenario, dma, many)
    yield from _cutting(scenario, dma, many)


def _work(scenario: OpCase) -> Iterator[tuple[str, float]]:
    """Sizes and shape: what is computed and moved, by whom."""
    gpu, shape, n = scenario.gpu, scenario.shape, scenario.num_ranks
    (work, *_), moved = whole_works(scenario), shape.moved
    assert moved is not None, "a collective moves something"
    yield "log_ranks", _log(n)
    yield "consumes", float(shape.pattern.consumes)
    yield "sums", float(shape.pattern.sums)
    yield "keeps_all", float(shape.pattern.sums and not shape.pattern.reduces)
    yield "log_whole_us", _log(work.alone_ticks / TICKS_PER_US)
    yield "waves", _log(work.num_units / gpu.sms)
    yield "last_wave", work.num_units / gpu.sms / math.ceil(work.num_units / gpu.sms)
    bytes_ = work.hbm_read_bytes + work.hbm_write_bytes
    yield "hbm_use", bytes_ * TICKS_PER_SECOND / gpu.hbm.achieved_bytes_per_s / work.alone_ticks
    yield "log_rows", _log(moved.rows / n)
    yield "shared_tiles", float(bool(work.block_rows and moved.rows // n % work.block_rows))
    yield "log_cols", _log(moved.cols)
    yield "start_share", work.start_ticks / work.alone_ticks
    yield "sum_over_whole", _sum_ticks(scenario) / work.alone_ticks
    yield "engines_per_peer", gpu.dma.engines / (n - 1)
    yield "protocols", float(len(scenario.system.fabric.link.protocols))


def _against(scenario: OpCase, dma: Costs, many: Costs) -> Iterator[tuple[str, float]]:
    """Communication against compute, and what each step costs against them."""
    gpu, network = scenario.gpu, scenario.network
    whole = sum(work.alone_ticks for work in whole_works(scenario))
    moved = dma.moved[-1]
    yield "log_comm_over_whole", _log(moved / whole)
    at_once, one_way, both_ways, one_by_one = _link_ticks(scenario, dma)
    yield "log_links_over_comm", _log(at_once / moved)
    yield "log_passing_over_comm", _log(one_way / moved)
    yield "log_both_ways_over_comm", _log(both_ways / moved)
    yield "log_one_by_one_over_comm", _log(one_by_one / moved)
    sent_ticks = _sent_bytes(scenario, dma) * TICKS_PER_SECOND
    yield "log_engine_over_comm", _log(sent_ticks / gpu.dma.bytes_per_s / moved)
    yield "log_sm_over_comm", _log(sent_ticks / gpu.sm_copy.bytes_per_s / moved)
    yield "setup_over_comm", _log(dma.lead / moved)
    yield "sm_setup_over_comm", _log(many.lead / moved)
    yield "setup_over_sm_setup", _log(dma.lead / max(1, many.lead))
    yield "event_over_whole", _log(gpu.launch.event_ticks / whole)
    yield "launch_over_comm", _log(gpu.launch.kernel_ticks / moved)
    hops = [network.num_links(0, peer) for peer in range(1, scenario.num_ranks)]
    yield "mean_hops", sum(hops) / len(hops)
    yield (
        "latency_over_comm",
        _log(max(network.latency_ticks(0, peer) for peer in range(1, scenario.num_ranks)) / moved),
    )
    own, remote = dma.whole[0], max(dma.whole[1:])
    yield "own_over_remote", _log(own / max(1, remote))


def _sum_ticks(scenario: OpCase) -> int:
    """Return the time in which a rank adds up its own block of all ranks; 0 if nothing is summed."""
    moved, n = scenario.shape.moved, scenario.num_ranks
    assert moved is not None, "a collective moves something"
    if not scenario.shape.pattern.sums:
        return 0
    block_bytes = moved.num_bytes // n
    return reduce_work(scenario.gpu, block_bytes, n, scenario.gpu.sms).unit_ticks


def _sent_bytes(scenario: OpCase, costs: Costs) -> int:
    """Return the bytes that a rank sends to others, once."""
    moved = scenario.shape.moved
    assert moved is not None, "a collective moves something"
    return sum(costs.whole[1:]) * moved.dtype.bytes_of(moved.cols)


def _link_ticks(scenario: OpCase, costs: Costs) -> tuple[float, float, float, float]:
    """Return the times of the busiest link in which every rank sends its blocks: at once, by neighbours, in turn.

    Neighbours pass blocks on in one direction, the second time, or half of them each way, the third. The last one is
    that of copies to one peer after the other.
    """
    moved, n = scenario.shape.moved, scenario.num_ranks
    assert moved is not None, "a collective moves something"
    fabric, row_bytes = FluidFabric(scenario, by_sm=False), moved.dtype.bytes_of(moved.cols)
    links = [fabric.queue_to(peer) for peer in range(1, n)]
    (onward, there, _), (back, again, _) = links[0], links[-1]
    block, half = sum(costs.whole[1:]) / (n - 1) * row_bytes, n // 2
    ways = half * there, (n - 1 - half) * again
    both = sum(ways) if onward is back else max(ways)
    loads: dict[int, float] = {}
    for rows, (link, ticks, _) in zip(costs.whole[1:], links, strict=True):
        loads[id(link)] = loads.get(id(link), 0.0) + rows * row_bytes * ticks
    return max(loads.values()), (n - 1) * block * there, both * block, sum(loads.values())


def _cutting(scenario: OpCase, dma: Costs, many: Costs) -> Iterator[tuple[str, float]]:
    """Time of equal parts together, each a kernel alone, over the time of the whole."""
    rows, lengths = sum(dma.whole), dma.lengths
    whole = kernel_ticks(scenario, dma.engine, rows)
    yield "whole_beside_sms", _log(kernel_ticks(scenario, many.engine, rows) / whole)
    for cuts in CUTS:
        yield f"rows_by_{cuts}", _log(cuts * kernel_ticks(scenario, dma.engine, max(1, rows // cuts)) / whole)
    for cuts in CUTS:
        size = max(1, lengths.cut // cuts)
        inner, cols = (lengths.inner, size) if lengths.produces else (size, lengths.cols)
        yield f"cut_by_{cuts}", _log(cuts * kernel_ticks(scenario, dma.engine, rows, inner, cols) / whole)


def _log(value: float) -> float:
    return math.log(max(value, 1e-9))
