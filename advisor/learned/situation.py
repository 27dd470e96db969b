"""The situation of a scenario in numbers: ratios of closed-form times that decide which structure suits it.

Nothing is estimated step by step, so that a situation takes milliseconds. None of the numbers is a name: a GPU or a
fabric that was never seen is described like any other.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, EngineChoice, EngineKind, Scenario
from ...compiler.planning.knobs.engine import default_engine, max_copy_sms
from ...simcore.kernels.dispatch import whole_works
from ..bespoke.costs import Costs, costs_of, kernel_ticks
from ..estimate.fluid import FluidFabric

FloatArray = npt.NDArray[np.float64]

# Numbers of kernels of equal rows, and of equal slices or bands, whose times together are compared with the whole.
CUTS = (2, 4, 8, 16)
# SMs that copy.
FEW_SMS, MANY_SMS = 8, 32


@dataclass(frozen=True, slots=True)
class Situation:
    """Numbers of a scenario by their names, which are the same for every scenario."""

    names: tuple[str, ...]
    values: FloatArray

    @classmethod
    def of(cls, scenario: Scenario) -> "Situation":
        """Return the situation of a scenario that overlaps a GEMM and a collective."""
        names, values = zip(*_named(scenario), strict=True)
        return cls(names, np.array(values, np.float64))

    def __getitem__(self, name: str) -> float:
        return float(self.values[self.names.index(name)])

    def ratio(self, name: str) -> float:
        """Return a number that is kept as a logarithm."""
        return math.exp(self[name])


def _named(scenario: Scenario) -> Iterator[tuple[str, float]]:
    yield from _work(scenario)
    dma = costs_of(scenario, default_engine(scenario.system))
    few, many = (
        costs_of(scenario, EngineChoice(EngineKind.SM, max(1, min(count, max_copy_sms(scenario.gpu)))))
        for count in (FEW_SMS, MANY_SMS)
    )
    yield from _against(scenario, dma, few, many)
    yield from _cutting(scenario, dma, many)


def _work(scenario: Scenario) -> Iterator[tuple[str, float]]:
    """Sizes and shape: what is computed and moved, by whom."""
    gpu, workload, n = scenario.gpu, scenario.workload, scenario.num_ranks
    (work, *_), moved = whole_works(scenario), workload.moved
    assert moved is not None, "a collective moves something"
    yield "log_ranks", _log(n)
    yield "consumes", float(workload.pattern.consumes)
    yield "sums", float(workload.pattern.sums)
    yield "keeps_all", float(workload.pattern.sums and not workload.pattern.reduces)
    yield "log_whole_us", _log(work.alone_ticks / TICKS_PER_US)
    yield "waves", _log(work.num_units / gpu.sms)
    yield "last_wave", work.num_units / gpu.sms / math.ceil(work.num_units / gpu.sms)
    bytes_ = work.hbm_read_bytes + work.hbm_write_bytes
    yield "hbm_use", bytes_ * TICKS_PER_SECOND / gpu.hbm.achieved_bytes_per_s / work.alone_ticks
    yield "log_rows", _log(moved.rows / n)
    yield "log_cols", _log(moved.cols)
    yield "start_share", work.start_ticks / work.alone_ticks
    yield "engines_per_peer", gpu.dma.engines / (n - 1)
    yield "protocols", float(len(scenario.system.fabric.link.protocols))


def _against(scenario: Scenario, dma: Costs, few: Costs, many: Costs) -> Iterator[tuple[str, float]]:
    """Communication against compute, and what each step costs against them."""
    gpu, network = scenario.gpu, scenario.network
    whole = sum(work.alone_ticks for work in whole_works(scenario))
    moved = dma.moved[-1]
    yield "log_comm_over_whole", _log(moved / whole)
    yield "log_passing_over_comm", _log(_passing_ticks(scenario, dma) / moved)
    yield "log_few_over_comm", _log(few.moved[-1] / moved)
    yield "log_many_over_comm", _log(many.moved[-1] / moved)
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


def _passing_ticks(scenario: Scenario, costs: Costs) -> float:
    """Return the time in which every block has been passed on from neighbour to neighbour, in one direction."""
    moved = scenario.workload.moved
    assert moved is not None, "a collective moves something"
    _, ticks_per_byte, _ = FluidFabric(scenario, by_sm=False).queue_to(1)
    return sum(costs.whole[1:]) * moved.cols * moved.dtype.num_bytes * ticks_per_byte


def _cutting(scenario: Scenario, dma: Costs, many: Costs) -> Iterator[tuple[str, float]]:
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
