"""Promises in the report of ``magus validate``: kernels for a plan against the best that was measured, by thread."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from ....compiler.ir import JsonObject
from ....compiler.resolve.expect.expectation import Verdict
from ..tables.promises import PromiseComparison
from .implementation_report import ErrorTarget
from .targets import notes_of

TITLE = "Kernels for a plan: promised and measured"
HEADER = ("best", "promised", "from", "to", "verdict")
WORDS = {Verdict.OVERLAP: "overlap", Verdict.WORTH_TRYING: "try", Verdict.SERIAL: "serial"}
NOTES = notes_of("promises")
GAINS = 1.02


def targets_of(rows: Sequence[PromiseComparison]) -> tuple[ErrorTarget, ...]:
    """Return how far promises lie above what was measured, how often intervals have it, and how often overlap loses."""
    if not rows:
        return ()
    gaining = [row for row in rows if row.row.speedup > GAINS]
    advised = [row for row in rows if row.verdict is Verdict.OVERLAP]
    figures = [ErrorTarget("promised above the best, median", 100 * (median(row.over_best for row in rows) - 1), 15)]
    if gaining:
        covered = 100 * sum(row.is_covered for row in gaining) / len(gaining)
        figures.append(ErrorTarget(f"intervals that cover a kernel that gains, of {len(gaining)}", covered, 80, True))
    if advised:
        lost = 100 * sum(row.is_lost for row in advised) / len(advised)
        figures.append(ErrorTarget(f"overlap advised and lost, of {len(advised)}", lost, 10))
    return tuple(figures)


def cells_of(row: PromiseComparison) -> tuple[str, ...]:
    """Return the columns of ``HEADER``."""
    low, high = ("", "") if row.interval is None else (f"{each:.2f}" for each in row.interval)
    return f"{row.row.speedup:.2f}", f"{row.promised:.2f}", low, high, WORDS.get(row.verdict, row.verdict.value)


def by_thread(rows: Sequence[PromiseComparison]) -> dict[str, list[PromiseComparison]]:
    """Return the rows of each thread."""
    threads: dict[str, list[PromiseComparison]] = defaultdict(list)
    for row in rows:
        threads[row.row.source].append(row)
    return threads


def summary_lines(rows: Sequence[PromiseComparison]) -> Iterator[str]:
    """Yield the figures of all rows, then promised over best by thread."""
    if not rows:
        return
    yield f"{len(rows)} shapes: {'; '.join(map(str, targets_of(rows)))}"
    medians = (
        f"{source} {median(row.over_best for row in group):.2f} ({len(group)})"
        for source, group in by_thread(rows).items()
    )
    yield f"promised over the best by thread, medians: {', '.join(medians)}"


def weak_spots(rows: Sequence[PromiseComparison]) -> Iterator[str]:
    """Yield each target that is missed."""
    yield from (f"promises: {target}" for target in targets_of(rows) if not target.met)


def promises_document(rows: Sequence[PromiseComparison]) -> JsonObject | None:
    """Return rows, figures and targets as a document; None without rows."""
    if not rows:
        return None
    return {
        "figures": [target.document() for target in targets_of(rows)],
        "rows": [
            {
                "gpu": row.row.gpu,
                "ranks": row.row.ranks,
                "dtype": row.row.dtype.value,
                "part": str(row.row.part),
                "source": row.row.source,
                "kernel": row.row.kernel,
                "library_us": row.row.library_us,
                "best_us": row.row.best_us,
                "measured_speedup": row.row.speedup,
                "promised_speedup": row.promised,
                "interval": None if row.interval is None else list(row.interval),
                "verdict": row.verdict.value,
            }
            for row in rows
        ],
        "notes": list(NOTES),
    }
