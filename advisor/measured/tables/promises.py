"""What advice promises of a kernel for its plan, against the best kernel that was measured for the same shape.

Rows are the shapes of the tables that have a fused kernel, by any implementation, and the library's time beside it.
Each thread is a harness of its own, and nothing that a promised speedup is made of was fitted to these rows.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

from ....compiler import CompileError
from ....compiler.ir import DType, OpCase, Scenario
from ....compiler.planning.build import ScheduleError
from ....compiler.resolve.expect.expectation import Verdict
from ....simcore import RunTooLarge
from ...candidates.advice import Advice
from ...questions.advisor import Advisor
from ...solver import NoFeasibleSchedule
from .csv_rows import Rows, read_rows, reported, tables_of, whole_number
from .fused import COLUMNS, MAX_RANKS, NUMBERS, OPERATIONS, PATTERNS, FusedPart, partner_key, parts_of, scenario_on
from .gemm import gpu_named, peak_us
from .implementations import GPU_OF_SOURCE, SERIAL_NAMES, ImplementationRow, semantics_of

LIBRARY_NAMES = (*SERIAL_NAMES, "cuBLAS+NCCL", "torch+rccl")


@dataclass(frozen=True, slots=True)
class PromiseRow:
    """A shape of one GPU in one thread: the time of the library, and that of the fastest kernel there, ``kernel``."""

    gpu: str
    ranks: int
    dtype: DType
    part: FusedPart
    source: str
    kernel: str
    library_us: float
    best_us: float

    @property
    def label(self) -> str:
        """For instance ``8 x H100 AG+GEMM 1024 x 6656 x 4096``."""
        return f"{self.ranks} x {self.gpu} {self.part}"

    @property
    def speedup(self) -> float:
        """Of the fastest kernel over the library."""
        return self.library_us / self.best_us


@dataclass(frozen=True, slots=True)
class PromiseComparison:
    """A row with what advice says of its shape: the promised speedup, its interval if it has one, and the verdict.

    ``without_own`` is the interval without the kernels that ship with constants of the row's own thread.
    """

    row: PromiseRow
    promised: float
    interval: tuple[float, float] | None
    verdict: Verdict
    without_own: tuple[float, float] | None = None

    @property
    def over_best(self) -> float:
        """What is promised over the best that was measured; no less than the library, which is always there."""
        return self.promised / max(1.0, self.row.speedup)

    @property
    def is_covered(self) -> bool:
        """Whether the interval has the measured speedup in it."""
        return self._has(self.interval)

    @property
    def is_covered_without_own(self) -> bool:
        """Whether that without the kernels of its thread has it."""
        return self._has(self.without_own)

    def _has(self, interval: tuple[float, float] | None) -> bool:
        return interval is not None and interval[0] <= self.row.speedup <= interval[1]

    @property
    def is_lost(self) -> bool:
        """Whether overlap is advised where the best kernel is slower than the library."""
        return self.verdict is Verdict.OVERLAP and self.row.speedup < 1


def promise_rows(folder: Path) -> Iterator[PromiseRow | str]:
    """Yield the shapes of all tables of ``folder``, or why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for path in tables_of(folder, PATTERNS):
        table = read_rows(path, COLUMNS, NUMBERS)
        yield from reported(path, table, _shapes(table))


def _shapes(table: Rows) -> Iterator[PromiseRow | str]:
    """Yield the shapes of a table, or for each row why it is left out."""
    by_shape: dict[tuple[str, ...], list[Mapping[str, str]]] = defaultdict(list)
    for row in table.rows:
        if row["op"] in OPERATIONS:
            by_shape[partner_key(row)].append(row)
        else:
            yield "no promise: not one GEMM that needs a collective, or that one needs"
    for rows in by_shape.values():
        found = _row(rows)
        yield from repeat(found, len(rows)) if isinstance(found, str) else (found,)


def _row(rows: Sequence[Mapping[str, str]]) -> PromiseRow | str:
    """Return the shape that ``rows`` have in common, or why it is not compared with a promise."""
    first = rows[0]
    library = [float(row["time_us"]) for row in rows if row["impl"] in LIBRARY_NAMES]
    kernels = [(float(row["time_us"]), row["impl"]) for row in rows if row["impl"] not in LIBRARY_NAMES]
    if not library or not kernels:
        return "no promise: a kernel without the library's time beside it, or that alone"
    source = first.get("source", "")
    name, gpu = gpu_named(GPU_OF_SOURCE.get(source, first["gpu"].partition(" (")[0]))
    ranks, dtype = whole_number(first, "n_gpus", MAX_RANKS), first.get("dtype", "").partition(" ")[0]
    if gpu is None or ranks is None or ranks < 2 or dtype not in {each.value for each in DType}:
        return "no promise: the GPU, the number of GPUs or the type is not stated or not known"
    parts = parts_of({**first, "shape_semantics": semantics_of(first)}, ranks)
    if len(parts) != 1:
        return "no promise: the shape of one GPU is not stated"
    best_us, kernel = min(kernels)
    if min(best_us, *library) < peak_us(gpu, DType(dtype), (parts[0].m, parts[0].n, parts[0].k)):
        return f"no promise: faster than the peak of {name}, as {parts[0]} in {min(best_us, *library):.4g} us"
    return PromiseRow(name, ranks, DType(dtype), parts[0], source, kernel, min(library), best_us)


def promise_comparisons(
    rows: Sequence[PromiseRow], advance: Callable[[], None], fitted: Iterable[ImplementationRow] = ()
) -> Iterator[PromiseComparison | str]:
    """Yield what advice with its defaults says of every row, or why it says nothing.

    A shape of several threads is asked about once. ``advance`` is called after each row. ``fitted`` are rows of
    implementations, which say whose constants are of a thread.
    """
    of_thread: dict[str, set[str]] = defaultdict(set)
    for each in fitted:
        if not each.whole_thread:
            of_thread[each.source].add(each.name)
    advisor, known = Advisor.load(), dict[OpCase, Advice]()
    for row in rows:
        try:
            case = scenario_on(row.gpu, row.ranks, row.dtype, row.part)
            if case not in known:
                known[case] = advisor.recommend(Scenario.of_one(case))
            yield _compared(row, known[case], of_thread[row.source])
        except (CompileError, NoFeasibleSchedule, RunTooLarge, ScheduleError) as error:
            yield f"{row.label}: no promise: {str(error).splitlines()[0]}"
        advance()


def _compared(row: PromiseRow, advice: Advice, own: Collection[str]) -> PromiseComparison:
    promise = advice.promise
    if promise is None:
        return PromiseComparison(row, 1.0, None, advice.verdict)
    best = None if advice.offers is None else advice.offers.without(own).best_if_none_gains
    without = replace(promise, known=None if best is None else best.least)
    return PromiseComparison(row, promise.speedup, promise.interval, advice.verdict, without.interval)
