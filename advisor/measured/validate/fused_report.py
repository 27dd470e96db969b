"""Fused kernels in the report of ``magus validate``: rows, errors by GPU and implementation, and a document."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from ....compiler.ir import JsonObject
from ..tables.fused import TARGET, FusedComparison

TITLE = "Fused kernels against serial"
HEADER = ("measured", "predicted", "error", "serial", "fused")
NOTES = (
    "Measured and predicted are speedups of the fused kernel over its serial partner, error is predicted over measured "
    "less one. Serial and fused are the errors of the two predicted times. All in percent but the speedups.",
    "Serial is the library's GEMM and its collective, the baseline of advice. Fused is the schedule of the kernel, "
    "simulated. No constant is fitted to these rows, which come from READMEs and threads, each of its own harness.",
    "A persistent kernel is simulated with the best of the library's tiles in a static order, so that its last wave is "
    "a whole one, and reads its weights once. kraken has one tile of 128 x 256, and below 4,096 rows goes through all "
    "columns of one row of tiles before the next. If rows side by side shared nothing, 2,048 rows would read the "
    "weights 16 times, which takes H100's memory 0.29, 0.58 and 1.16 ms for K = 4,096, 8,192 and 16,384, against 0.28, "
    "0.55 and 1.22 ms measured. No schedule here says the order of tiles.",
    "Barriers between ranks, the copy of the own shard into the shared buffer, and what launching takes beyond the "
    "constants of the profile are in the measured times and not in the schedules. They do not explain async-TP, "
    "whose difference grows with the weights that each of its eight small GEMMs reads.",
    "All_reduce in Triton-distributed is summed by the switch, in the schedule by the ranks.",
    "The layers of Triton-distributed have a gated activation between their GEMMs, which is left out of both times.",
)


def median_error(rows: Sequence[FusedComparison]) -> float:
    """Return the median error of the predicted speedup, in percent."""
    return median(abs(row.error) for row in rows)


def missed(rows: Sequence[FusedComparison]) -> bool:
    """Whether there are rows and their median error is above the target."""
    return bool(rows) and median_error(rows) > TARGET


def label_of(row: FusedComparison) -> str:
    """Return for instance ``H100 AG+GEMM 1024 x 6656 x 4096``."""
    return f"{row.row.gpu} {' then '.join(map(str, row.row.parts))}"


def implementation_of(row: FusedComparison) -> str:
    """Return the name of the implementation."""
    return row.row.implementation.name


def cells_of(row: FusedComparison) -> tuple[str, ...]:
    """Return the columns of ``HEADER``."""
    errors = (row.error, row.serial_error, row.fused_error)
    return f"{row.measured:.2f}", f"{row.predicted:.2f}", *(f"{error:+.1f}" for error in errors)


def summary_lines(rows: Sequence[FusedComparison]) -> Iterator[str]:
    """Yield median errors of all rows, by GPU and implementation, and of the two times."""
    if not rows:
        return
    verdict = "missed" if missed(rows) else "met"
    counted = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
    yield f"speedup, {counted}: median error {median_error(rows):.1f}%, the target of {TARGET:g}% is {verdict}"
    yield f"speedup by GPU: {_grouped(rows, _gpu)}"
    yield f"speedup by implementation: {_grouped(rows, implementation_of)}"
    serial = median(abs(row.serial_error) for row in rows)
    fused = median(abs(row.fused_error) for row in rows)
    yield f"times: median error {serial:.1f}% serial, {fused:.1f}% fused"


def weak_spots(rows: Sequence[FusedComparison]) -> Iterator[str]:
    """Yield the target if it is missed, with the implementations above it."""
    if not missed(rows):
        return
    above = [name for name, group in _groups(rows, implementation_of).items() if median_error(group) > TARGET]
    yield f"fused kernels: {median_error(rows):.1f}%, the target is {TARGET:g}%; above it: {', '.join(above)}"


def fused_document(rows: Sequence[FusedComparison]) -> JsonObject | None:
    """Return the rows and their median errors as a document; None without rows."""
    if not rows:
        return None
    return {
        "median_error_percent": median_error(rows),
        "target_percent": TARGET,
        "target_met": not missed(rows),
        "by_gpu": {name: median_error(group) for name, group in _groups(rows, _gpu).items()},
        "by_implementation": {name: median_error(group) for name, group in _groups(rows, implementation_of).items()},
        "rows": [_row_document(row) for row in rows],
        "notes": list(NOTES),
    }


def _row_document(row: FusedComparison) -> JsonObject:
    return {
        "gpu": row.row.gpu,
        "ranks": row.row.ranks,
        "parts": [str(part) for part in row.row.parts],
        "implementation": row.row.implementation.name,
        "measured_speedup": row.measured,
        "predicted_speedup": row.predicted,
        "error_percent": row.error,
        "serial_us": {"measured": row.row.serial_us, "predicted": row.serial_us},
        "fused_us": {"measured": row.row.fused_us, "predicted": row.fused_us},
    }


def _gpu(row: FusedComparison) -> str:
    return row.row.gpu


def _groups(rows: Sequence[FusedComparison], key: Callable[[FusedComparison], str]) -> dict[str, list[FusedComparison]]:
    groups: dict[str, list[FusedComparison]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _grouped(rows: Sequence[FusedComparison], key: Callable[[FusedComparison], str]) -> str:
    errors = (f"{name} {median_error(group):.1f}% ({len(group)})" for name, group in _groups(rows, key).items())
    return ", ".join(errors)
