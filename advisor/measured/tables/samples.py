"""Simulations of random samples of measured GEMMs, collectives and copies, against the closed forms."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from ....compiler.collectives import signal_of
from ....compiler.ir import (
    TICKS_PER_SECOND,
    TICKS_PER_US,
    Direction,
    DType,
    EngineChoice,
    EngineKind,
    GemmShape,
    IndexRange,
    OpCase,
    OpChoice,
    OpPlan,
    OpShape,
    Pattern,
    Region,
    Shard,
    Tensor,
    Transfer,
)
from ....compiler.planning.build import build_op_plan
from ....compiler.planning.knobs.engine import default_engine
from ....compiler.planning.knobs.library import library_serial
from ....compiler.request.request import Request
from ....compiler.request.scenario import scenario_of
from ....compiler.templates import BASELINE
from ....simcore import PACKET_BYTES, RunTooLarge, affordable_unit, simulate_op
from ....simcore.kernels.copy import sm_copy_rate
from ....simcore.kernels.nccl import NcclCollective
from ....simcore.lower.collective import library_collective_time
from .collectives import MeasuredPoint, SmCopies, point_label
from .csv_rows import grouped
from .gemm import GemmTable, Shape, label_of, predicted_us

LIMIT = 0.02
"""Largest allowed difference of a simulated time from the closed form, as a share."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Differences of simulated times from the closed form, as shares of it.

    ``beyond`` is the number of rows above ``limit``, ``too_large`` the number that were not simulated.
    """

    gpu: str
    rows: int
    median: float
    largest: float
    worst: str
    beyond: int
    too_large: int = 0
    operation: str = "GEMM"

    @property
    def agrees(self) -> bool:
        """Whether no difference is above ``limit``."""
        return not self.beyond

    @property
    def limit(self) -> float:
        """The largest allowed difference."""
        return LIMIT

    @property
    def counted(self) -> str:
        """For instance ``200 GEMMs``, or ``63 of all_gather``."""
        return f"{self.rows} GEMMs" if self.operation == "GEMM" else f"{self.rows} of {self.operation}"


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of one operation on one GPU that are simulated: their labels, and what returns the difference of each.

    It is that of the simulated time from the closed form, as a share of the latter.
    """

    gpu: str
    operation: str
    rows: tuple[tuple[str, Callable[[], float]], ...]

    def agreement(self, advance: Callable[[], None]) -> Agreement | None:
        """Simulate all rows; ``advance`` is called after each. None if nothing was simulated."""
        differences: list[tuple[float, str]] = []
        for label, difference in self.rows:
            with suppress(RunTooLarge):
                differences.append((difference(), label))
            advance()
        if not differences:
            return None
        largest, worst = max(differences)
        return Agreement(
            gpu=self.gpu,
            rows=len(differences),
            median=median(difference for difference, _ in differences),
            largest=largest,
            worst=worst,
            beyond=sum(difference > LIMIT for difference, _ in differences),
            too_large=len(self.rows) - len(differences),
            operation=self.operation,
        )


MAX_LINE_HOPS = 200_000
"""Most line-hops of a simulation; units are coarse enough for that."""


def gemm_sample(table: GemmTable, count: int, seed: int) -> Sample:
    """Return ``count`` random shapes of ``table``, or all if there are fewer."""
    shapes = sorted(table.times_us)
    chosen = random.Random(seed).sample(shapes, min(count, len(shapes)))
    predicted = predicted_us(table.gpu, chosen, table.dtype)
    rows = tuple((label_of(each), partial(_gemm_difference, table, each, predicted[each])) for each in chosen)
    return Sample(table.gpu, "GEMM" if table.dtype is DType.BF16 else f"{table.dtype.value} GEMM", rows)


def _gemm_difference(table: GemmTable, shape: Shape, expected_us: float) -> float:
    return abs(_simulated_us(table.gpu, shape, table.dtype) / expected_us - 1)


def _simulated_us(gpu: str, shape: Shape, dtype: DType) -> float:
    """Return the makespan of the lone GEMM, scheduled as one kernel."""
    one = scenario_of(Request(Pattern.GEMM.value, m=64, n=64, k=64, gpu=gpu, ranks=1)).case
    lone = replace(one, shape=_workload(*shape, dtype))
    schedule = build_op_plan(lone, OpChoice(BASELINE.name, 1, default_engine(lone.system)))
    unit_bytes = affordable_unit(lone, schedule, PACKET_BYTES, MAX_LINE_HOPS)
    return simulate_op(lone, schedule, unit_bytes=unit_bytes).makespan_ticks / TICKS_PER_US


def _workload(m: int, n: int, k: int, dtype: DType) -> OpShape:
    x = Tensor("x", dtype, m, k, Shard.NONE)
    w = Tensor("w", dtype, k, n, Shard.NONE)
    return OpShape("lone", "", Pattern.GEMM, (x, w), None, GemmShape(m, n, k, dtype), "y")


MAX_UNITS = 8192
"""Most units that one rank moves; larger collectives are simulated in coarser units."""


def collective_on(
    gpu: str, ranks: int, operation: NcclCollective = NcclCollective.ALL_GATHER, num_bytes: int = 1024
) -> OpCase:
    """Return a collective alone on GPUs of the shipped library in their fabric; its bytes as nccl-tests counts them."""
    whole = ranks * DType.BF16.bytes_of(1)
    request = Request(operation.value, num_bytes=num_bytes // whole * whole, gpu=gpu, ranks=ranks)
    return scenario_of(request).case


def collective_samples(points: Sequence[MeasuredPoint], count: int, seed: int) -> Iterator[Sample]:
    """Yield for each GPU and operation ``count`` random points, or all if there are fewer."""
    for (gpu, operation), group in grouped(points, lambda point: (point.gpu, point.operation)).items():
        ordered = sorted(group, key=lambda point: (point.ranks, point.num_bytes))
        chosen = random.Random(seed).sample(ordered, min(count, len(ordered)))
        yield Sample(gpu, operation.value, tuple((point_label(each), partial(_difference, each)) for each in chosen))


def _difference(point: MeasuredPoint) -> float:
    scenario = collective_on(point.gpu, point.ranks, point.operation, point.num_bytes)
    expected, unit = library_collective_time(scenario), scenario.gpu.line_bytes
    while expected.moved_bytes > unit * MAX_UNITS:
        unit *= 2
    schedule = build_op_plan(scenario, library_serial(scenario))
    return abs(simulate_op(scenario, schedule, unit_bytes=unit).makespan_ticks / expected.ticks - 1)


COLUMNS = 64

MAX_COPY_UNITS = 32_768
"""Most units that one rank moves, several hundred for each SM; larger copies are simulated in coarser units."""


def copy_samples(copies: Sequence[SmCopies], count: int, seed: int) -> Iterator[Sample]:
    """Yield for each GPU ``count`` random copies, or all if there are fewer."""
    for gpu, group in grouped(copies, lambda copy: copy.gpu).items():
        chosen = random.Random(seed).sample(group, min(count, len(group)))
        rows = tuple((f"{each.label}, {each.sms} SMs", partial(_copy_difference, each)) for each in chosen)
        yield Sample(gpu, "SM copy", rows)


def _copy_difference(copies: SmCopies) -> float:
    scenario, peers = collective_on(copies.gpu, copies.ranks), range(1, copies.ranks)
    row_bytes = DType.BF16.bytes_of(COLUMNS)
    rows = max(1, round(copies.remote_bytes / (len(peers) * row_bytes)))
    unit = scenario.gpu.line_bytes
    while rows * len(peers) * row_bytes > unit * MAX_COPY_UNITS:
        unit *= 2
    result = simulate_op(_exchange(scenario, rows), _by_all_sms(rows, peers, copies.sms), unit_bytes=unit)
    expected = rows * len(peers) * row_bytes / sm_copy_rate(scenario.gpu, copies.sms) * TICKS_PER_SECOND
    return abs(result.makespan_ticks / expected - 1)


def _exchange(scenario: OpCase, rows: int) -> OpCase:
    """Return an all_to_all of ``rows`` rows from each rank to each other."""
    moved = Tensor("x", DType.BF16, rows * scenario.num_ranks, COLUMNS, Shard.NONE)
    return replace(scenario, shape=OpShape("combine", "", Pattern.ALL_TO_ALL, (moved,), moved, None, "y"))


def _by_all_sms(rows: int, peers: range, sms: int) -> OpPlan:
    """Return puts to one peer after the other, the nearest first; no two ranks send to the same peer at once."""
    puts = tuple(
        Transfer(f"x{peer}", Direction.PUT, _block(peer, rows), peer, signal_of(f"x{peer}"), lane=0) for peer in peers
    )
    return OpPlan("combine", puts, EngineChoice(EngineKind.SM, sms), sms, 0)


def _block(peer: int, rows: int) -> Region:
    return Region(peer, IndexRange(0, rows), IndexRange(0, COLUMNS))
