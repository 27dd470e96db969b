"""Promises in the report of ``magus validate``: kernels for a plan against the best that was measured, by thread."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from ....compiler.ir import JsonObject
from ....compiler.resolve.expect.expectation import Verdict
from ..tables.promises import PromiseComparison
from .implementation_report import ErrorTarget

TITLE = "Kernels for a plan: promised and measured"
HEADER = ("best", "promised", "from", "to", "verdict")
WORDS = {Verdict.OVERLAP: "overlap", Verdict.WORTH_TRYING: "try", Verdict.SERIAL: "serial"}
NOTES = (
    "Best is the speedup of the fastest kernel of a thread over the library there, promised that of a kernel for the "
    "plan that advice recommends, with its interval and the verdict. Threads come from READMEs, issues and pull "
    "requests; nothing that a promise is made of was fitted to any of these rows.",
    "A kernel gains if it is more than 2% faster than the library. Where the best kernel of a thread loses, a better "
    "one may exist: overlap is then counted as lost, since nobody has shown that it is not.",
    "Overlap is not advised where kernels ship for an op and none of them is predicted to gain: of flux (issue 79), "
    "whose constants are those of another thread, and of Triton-distributed on 8 GPUs, 4096 x 4096 x 1024. Without the "
    "kernels that are fitted to the thread of a row overlap is advised for 12 shapes, and lost in the same one.",
    "Where it loses, Triton-distributed on 4 GPUs, the library's time is right to 9%: its own kernel takes 286 us, and "
    "its fast path, which calls the library there, 231 us.",
    "No kernel was timed on a shape of README's first example on MI300X. What is nearest is in its interval, 0.76x to "
    "3.33x: eight larger AG+GEMM on 8 MI300X, gathered by columns, gain 0.86x to 1.34x, at the median 1.25x (iris, "
    "pull 506; tuned, fp16).",
)
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
