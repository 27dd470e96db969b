"""Predicted times of implementations and of the library, and the speedups that they promise."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...compiler.codes import Code
from ...compiler.ir import (
    TICKS_PER_US,
    Fabric,
    GemmModel,
    Implementation,
    Method,
    OpCase,
    OpChoice,
    Rejection,
    TransferPath,
    WrittenPlan,
    percentile,
)
from ...compiler.planning.build import ScheduleError, build_op_plan
from ...compiler.planning.knobs.library import library_on, library_rejection, library_serial
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.resolve.schedules.implementation_blocks import reject_exchange, with_routed
from ...compiler.text.units import bytes_text, us_text
from ...simcore import PACKET_BYTES, RunTooLarge, affordable_unit, simulate_op
from ...simcore.kernels.nccl import NcclProtocol
from ...simcore.lower.collective import library_collective_time


def machine_of(scenario: OpCase, method: Method) -> OpCase:
    """Return ``scenario`` with the rate of the path of ``method``, its tiles, and its cost of each step."""
    system = scenario.system
    gpu = replace(
        system.gpu,
        gemm=_gemm(scenario, method),
        launch=replace(system.gpu.launch, host_ticks=method.step_ticks),
    )
    return replace(scenario, system=replace(system, gpu=gpu, fabric=_fabric(system.fabric, method)))


def with_kernels(scenario: OpCase, method: Method) -> OpCase:
    """Return ``scenario`` with a library that leaves to the kernels of ``method`` what they do.

    Raises
    ------
    ScheduleError
        If there are such kernels, and none for the number of ranks.
    """
    system, library = scenario.system, scenario.gpu.collectives
    if method.routed is not None:
        ScheduleError.require(reject_exchange(method, scenario))
        return replace(scenario, system=with_routed(system, (method.routed,)))
    if not method.kernels or library is None:
        return scenario
    known = sorted({ranks for kernel in method.kernels for ranks, _ in kernel.below})
    if scenario.num_ranks not in known:
        message = f"its all_reduce was measured on {', '.join(map(str, known))} GPUs"
        raise ScheduleError(Rejection(Code.MGS530, message))
    gpu = replace(system.gpu, collectives=replace(library, kernels=method.kernels))
    return replace(scenario, system=replace(system, gpu=gpu))


def method_on(scenario: OpCase, implementation: Implementation) -> Method | None:
    """Return how ``implementation`` carries out an op: two calls of the library where it leaves it to that.

    None if it does not do the pattern.
    """
    method = implementation.method_of(scenario.shape)
    if method is None or not _leaves(scenario, method):
        return method
    call = round(CALL_US * TICKS_PER_US)
    return Method(method.pattern, method.choice, TransferPath.LIBRARY, call_ticks=call, graph_call_ticks=0)


def _leaves(scenario: OpCase, method: Method) -> bool:
    gemm = scenario.shape.gemm
    return gemm is not None and gemm.flops < method.library_below_flops


def about_kernels(scenario: OpCase, method: Method) -> str:
    """Return how long its own all_reduce takes and up to which size there is one, or from where on it is the library.

    Empty where it always has kernels of its own.
    """
    if _leaves(scenario, method):
        return f"below {method.library_below_flops / 1e9:,.0f} GFLOP of a GPU it calls the library"
    moved, own = scenario.shape.moved, with_kernels(scenario, method)
    model = library_on(own.system)
    if model is None or not model.kernels or moved is None:
        return ""
    limit = bytes_text(max(kernel.below_bytes(own.num_ranks) for kernel in model.kernels))
    time, library = library_collective_time(own), library_collective_time(scenario)
    if time.protocol is not NcclProtocol.FRAMEWORK:
        return f"from {limit} on its all_reduce is the library's"
    took = f"{us_text(time.us)}, the library's {us_text(library.us)}"
    return f"its all_reduce of {bytes_text(moved.num_bytes)} takes {took}; from {limit} on it is the library's"


def _fabric(fabric: Fabric, method: Method) -> Fabric:
    """The fabric with the links as fast as the path reaches."""
    rate = math.floor(method.rate * fabric.link.achieved_bytes_per_s)
    if method.limit_bytes_per_s is not None:
        rate = min(rate, method.limit_bytes_per_s)
    return replace(fabric, link=replace(fabric.link, achieved_bytes_per_s=rate))


def _gemm(scenario: OpCase, method: Method) -> GemmModel:
    """The GEMM form with the tiles of the implementation, and memory that much slower as it reads more than once."""
    if not method.tiles:
        return scenario.gpu.gemm
    model = scenario.gemm_model
    own = replace(model, tiles=method.tiles, pair_tiles=(), splits_k=False, ragged_ticks=None)
    return replace(own, hbm_fraction=model.hbm_fraction / _reads(scenario, method))


def _reads(scenario: OpCase, method: Method) -> Fraction:
    """Bytes that the kernel reads and writes, over those of a kernel that reads each operand once."""
    gemm = scenario.shape.gemm
    if gemm is None or gemm.m >= method.rereads_below:
        return Fraction(1)
    tile_rows = math.ceil(gemm.m / method.tiles[0][0])
    again = max(Fraction(0), tile_rows / method.rows_per_read - 1) * gemm.k * gemm.n
    return 1 + again / (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)


MAX_LINE_HOPS = 2_000_000


def predict_us(scenario: OpCase, implementation: Implementation) -> float | Rejection:
    """Return the predicted time of ``implementation`` in us, or why there is none."""
    method = method_on(scenario, implementation)
    if method is None:
        return Rejection(Code.MGS530, f"{implementation.name} does not do {scenario.shape.pattern.value}")
    if method.missing:
        return Rejection(Code.MGS209, f"{implementation.name}: {', '.join(method.missing)} not known")
    try:
        if method.path is TransferPath.LIBRARY:
            us = library_us(with_kernels(scenario, method))
        else:
            us = simulated_us(machine_of(scenario, method), method.choice)
    except ScheduleError as error:
        return error.rejection
    except RunTooLarge as error:
        return Rejection(Code.MGS406, str(error).splitlines()[0])
    return us + (method.call_ticks + method.barrier_ticks) / TICKS_PER_US


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Predicted times in us: called as benchmarks do, in a CUDA graph, and where the GPU waits for the host.

    Benchmarks call in a loop, so that the host runs ahead of the GPU at least in part.
    """

    us: float
    graph_us: float
    host_us: float

    def __add__(self, other: "CallTimes") -> "CallTimes":
        return CallTimes(self.us + other.us, self.graph_us + other.graph_us, self.host_us + other.host_us)

    @classmethod
    def sum(cls, times: "Iterable[CallTimes]") -> "CallTimes":
        """Return the times of calls one after the other."""
        return sum(times, cls(0.0, 0.0, 0.0))


def call_times(scenario: OpCase, implementation: Implementation) -> CallTimes | Rejection:
    """Return the predicted times of ``implementation``, or why there are none."""
    us, method = predict_us(scenario, implementation), method_on(scenario, implementation)
    if isinstance(us, Rejection) or method is None:
        return us if isinstance(us, Rejection) else CallTimes(us, us, us)
    replayed = _in_graph(method)
    graph_us: float | Rejection = us + (replayed.call_ticks - method.call_ticks) / TICKS_PER_US
    if method.step_ticks:
        graph_us = predict_us(scenario, replace(implementation, methods=(replayed,)))
    if isinstance(graph_us, Rejection):
        return graph_us
    return CallTimes(us, graph_us, max(us, method.host_ticks / TICKS_PER_US))


def _in_graph(method: Method) -> Method:
    """The method in a graph; where that was not measured, a call is as much shorter as the library's is."""
    ticks = method.graph_call_ticks
    if ticks is None:
        ticks = max(0, method.call_ticks - round(CALL_US * TICKS_PER_US))
    return replace(method, call_ticks=ticks, step_ticks=0)


def library_us(scenario: OpCase) -> float:
    """Return the simulated time of the library's kernels and its collective one after the other.

    Raises
    ------
    ScheduleError
        If the library's time is not known here.
    RunTooLarge
        As ``simulated_us``.
    """
    ScheduleError.require(library_rejection(scenario))
    return simulated_us(scenario, library_serial(scenario))


def simulated_us(scenario: OpCase, body: OpChoice | WrittenPlan) -> float:
    """Return the simulated time of a schedule, in packets or as coarse as a run of a second needs.

    Raises
    ------
    ScheduleError
        If the schedule does not fit the scenario.
    RunTooLarge
        If the run would take minutes or more memory than is sensible.
    """
    schedule = build_op_plan(scenario, body)
    unit_bytes = affordable_unit(scenario, schedule, PACKET_BYTES, MAX_LINE_HOPS)
    return simulate_op(scenario, schedule, unit_bytes=unit_bytes).makespan_ticks / TICKS_PER_US


MIN_GAIN = 0.02
"""Smallest gain that is worth a change."""

CALL_US = 30.0
"""A call from the host, of a kernel as of the library: that of ``torch_nccl``, from its serial rows. 0 in a graph."""

LARGE_FLOPS = 100e9
SMALL_COST, LARGE_COST = 1.11, 1.02
"""Times of a kernel of one's own over those of the library's GEMM, below ``LARGE_FLOPS`` and from there on.

Measured on an H100, with a persistent Triton GEMM that looks at flags: ``advisor/measured/rows/gemm_tiles_h100.csv``.
"""

KERNEL_ERROR = 0.28
"""Of 34 published kernels that gain 29 are within it, with ``beside`` of A800 33; where overlap is advised
1 of 11 loses: docs/accuracy.md.

The call and the cost of a kernel are those above; none of these was fitted to those kernels but the error itself.
"""

FUSED_ERROR = 0.21
"""Of 44 speedups of kernels for a GEMM with its collective, to which nothing was fitted, nine tenths are within it:
docs/accuracy.md. That of a method by itself is no less, unless it has ``FEW_ROWS`` such rows.
"""

FEW_ROWS = 10
"""Of fewer rows nine tenths are all."""

MOST_ERROR = 0.9
"""Errors beyond this say nothing."""

KERNEL_SHORTEST_US = 40.0
"""The shortest time among those kernels."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A predicted speedup with its error.

    ``error`` is relative: nine of ten such speedups are within it; None if it is not known. ``outside`` says why it was
    not measured for a case like this, empty if it was. ``in_graph`` and ``on_host`` are the speedups if everything is
    replayed in a CUDA graph, and if the GPU waits for each call; None if they equal ``speedup``. ``slower`` is by how
    much longer it may take because GEMMs beside copies were not measured on this GPU, see ``Beside``.
    The best kernel that ships has ``known`` at least where none is predicted to gain: who writes one may do no better.
    """

    speedup: float
    error: float | None
    outside: str = ""
    in_graph: float | None = None
    on_host: float | None = None
    slower: float = 0.0
    known: float | None = None

    @property
    def by_call(self) -> tuple[float, float]:
        """The least and the most speedup, whatever the calls."""
        known = [each for each in (self.speedup, self.in_graph, self.on_host) if each is not None]
        return min(known), max(known)

    @property
    def least(self) -> float:
        """The least speedup that calls and the error leave possible, as far as that was measured."""
        least = self.by_call[0] / (1 + (self.error or 0.0)) / (1 + self.slower)
        return least if self.known is None else min(least, self.known)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The speedups that calls and the error leave possible, as (low, high); None if it was not measured."""
        return None if self.error is None else (self.least, self.by_call[1] / (1 - self.error))

    @property
    def pays(self) -> bool:
        """Whether to switch it on: by any call it gains, and more than its error where that was measured."""
        least, _ = self.by_call
        return least > max(1 + MIN_GAIN, (1 + (self.error or 0.0)) * (1 + self.slower))

    def over(self, factor: float) -> "Promise":
        """The same over a baseline that takes ``factor`` times as long."""
        others = self.in_graph, self.on_host, self.known
        graph, host, known = (None if each is None else each * factor for each in others)
        return replace(self, speedup=self.speedup * factor, in_graph=graph, on_host=host, known=known)

    @property
    def verdict(self) -> Verdict:
        """OVERLAP if the gain is beyond the error, WORTH_TRYING if it is not but is a gain by any call, else SERIAL."""
        least, _ = self.by_call
        if least <= 1 + MIN_GAIN:
            return Verdict.SERIAL
        if self.error is None or self.outside or not self.pays:
            return Verdict.WORTH_TRYING
        return Verdict.OVERLAP


def error_of_rows(own: Sequence[float], family: float = 0.0) -> float:
    """Return the error of a promise by those of rows that nothing was fitted to; with few, no less than ``family``."""
    return max(percentile(own, 90) if own else 0.0, family if len(own) < FEW_ROWS else 0.0)


def error_of(method: Method) -> float | None:
    """Return the error of speedups by ``method``: its own, else that of its family where it was measured."""
    if method.error is not None:
        return float(method.error)
    return FUSED_ERROR if method.shortest_ticks and method.path is not TransferPath.LIBRARY else None


def widened(error: float, others: Sequence[float]) -> float:
    """Return an error with ``others`` on top, of what is uncertain besides."""
    return min(MOST_ERROR, (1 + error) * math.prod(1 + other for other in others) - 1)


def kernel_us(us: float, flops: int, num_calls: int = 1, alike_us: float = 0.0) -> float:
    """Return the time in us of a kernel for a schedule of ``us``, of which ``alike_us`` are no part of it.

    ``flops`` are those of the largest product of one GPU that is part of it.
    """
    cost = LARGE_COST if flops >= LARGE_FLOPS else SMALL_COST
    return alike_us + (us - alike_us) * cost + num_calls * CALL_US


def kernel_promise(
    speedup: float, us: float, resolution: float, errors: Sequence[float] = (), in_graph: float | None = None
) -> Promise:
    """Return what a kernel of ``us`` promises, and ``in_graph``; its error is no less than what the profile resolves.

    Other ``errors``, of a profile that is not validated and of what was estimated, come on top.
    """
    shorter = us < KERNEL_SHORTEST_US
    outside = f"kernels were measured from {us_text(KERNEL_SHORTEST_US)} on" if shorter else ""
    return Promise(speedup, widened(max(KERNEL_ERROR, resolution), errors), outside, in_graph)
