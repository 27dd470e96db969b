"""Training steps in the report of ``magus validate``: measured and simulated, by source, and the order of pairs."""

from collections.abc import Iterator, Sequence
from statistics import mean

from ....compiler.ir import JsonObject
from ..tables.csv_rows import HELD_OUT, grouped
from ..tables.steps import StepComparison, in_order, pairs_of
from .implementation_report import ErrorTarget
from .targets import notes_of

TITLE = "Training steps"
HEADER = ("measured", "simulated", "error", "bubble", "use")
BOUNDS = {"A100": (4, 9), "H100": (10, 15)}
"""Percent by GPU that the mean and the worst error of rows that are held out may reach."""

NOTES = notes_of("steps")


def by_source(rows: Sequence[StepComparison]) -> dict[str, list[StepComparison]]:
    """Return the rows of each source."""
    return grouped(rows, lambda row: row.row.origin.label)


def targets_of(rows: Sequence[StepComparison]) -> tuple[ErrorTarget, ...]:
    """Return the errors of held-out rows by GPU, and how often pairs of rows come out in their order."""
    figures = []
    for gpu, (average, most) in BOUNDS.items():
        errors = [100 * abs(row.error) for row in rows if row.row.gpu == gpu and row.row.use == HELD_OUT]
        if errors:
            figures.append(ErrorTarget(f"{gpu} steps, mean of {len(errors)}", mean(errors), average))
            figures.append(ErrorTarget(f"{gpu} steps, worst", max(errors), most))
    pairs = [in_order(*pair) for pair in pairs_of(rows)]
    if pairs:
        share = 100 * sum(pairs) / len(pairs)
        figures.append(ErrorTarget(f"pairs of rows of one model in order, of {len(pairs)}", share, 95, True))
    return tuple(figures)


def cells_of(row: StepComparison) -> tuple[str, ...]:
    """Return the columns of ``HEADER``."""
    seconds = f"{row.row.seconds:.2f}", f"{row.outcome.seconds:.2f}"
    return *seconds, f"{100 * row.error:+.1f}", f"{100 * row.outcome.run.bubble:.1f}", row.row.use


def label_of(row: StepComparison) -> str:
    """The row and its layout: ``22B, tp8 dp1 pp1``."""
    return f"{row.row.name}, {row.row.ranks} x {row.row.gpu} {row.outcome.layout}"


def summary_lines(rows: Sequence[StepComparison]) -> Iterator[str]:
    """Yield the figures of all rows, then the errors by source."""
    if not rows:
        return
    yield "; ".join(map(str, targets_of(rows))) or "no row is held out"
    for source, group in by_source(rows).items():
        errors = [100 * row.error for row in group]
        stack = group[0].row.origin.stack or "no stack"
        said = f"mean {mean(errors):+.1f}%, mean of absolute ones {mean(map(abs, errors)):.1f}%"
        yield f"{source} ({len(group)} rows, {stack}): {said}, worst {max(errors, key=abs):+.1f}%"


def weak_spots(rows: Sequence[StepComparison]) -> Iterator[str]:
    """Yield each target that is missed."""
    yield from (f"steps: {target}" for target in targets_of(rows) if not target.met)


def steps_document(rows: Sequence[StepComparison]) -> JsonObject | None:
    """Return rows, figures and targets as a document; None without rows."""
    if not rows:
        return None
    return {
        "figures": [target.document() for target in targets_of(rows)],
        "rows": [
            {
                "source": row.row.source,
                "name": row.row.name,
                "gpu": row.row.gpu,
                "stack": row.row.origin.stack or None,
                "use": row.row.use,
                "assumed": row.row.assumed or None,
                "measured_s": row.row.seconds,
                "simulated": row.outcome.document(),
            }
            for row in rows
        ],
        "notes": list(NOTES),
    }
