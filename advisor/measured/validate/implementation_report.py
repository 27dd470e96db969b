"""Implementations in the report of ``magus validate``: rows, errors of the held-out half, and a document."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ....compiler.ir import JsonObject, percentile
from ...implementations.predict import error_of_rows
from ..tables.implementations import ImplementationComparison
from .targets import notes_of

TITLE = "Implementations"
HEADER = ("measured", "predicted", "error", "time", "half")
NOTES = notes_of("implementations")


@dataclass(frozen=True, slots=True)
class ErrorTarget:
    """A figure of the held-out rows in percent, and the bound that was set for it."""

    name: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure is within its bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def document(self) -> JsonObject:
        """Return it as JSON."""
        figure = {"figure": self.name, "percent": self.value}
        return {**figure, "target_percent": self.bound, "target_met": self.met}

    def __str__(self) -> str:
        way = "at least" if self.at_least else "at most"
        return f"{self.name} {self.value:.1f}%, {way} {self.bound:g}% wanted: {'met' if self.met else 'missed'}"


def by_other_threads(rows: Sequence[ImplementationComparison]) -> tuple[ImplementationComparison, ...]:
    """Return the rows with the errors of their promises, each without the rows of its own thread."""
    held = [row for row in rows if row.row.held_out]

    def within(row: ImplementationComparison) -> float | None:
        others = [each for each in held if each.row.source != row.row.source]
        method = row.row.name, row.row.part.pattern
        own = [abs(each.error) / 100 for each in others if (each.row.name, each.row.part.pattern) == method]
        family = percentile([abs(each.error) / 100 for each in others], 90) if others else 0.0
        return error_of_rows(own, family) or None

    return tuple(replace(row, within=within(row)) for row in rows)


def targets_of(rows: Sequence[ImplementationComparison]) -> tuple[ErrorTarget, ...]:
    """Return the figures of the held-out rows; none without such rows."""
    held = [row for row in rows if row.row.held_out]
    paired = [row for row in held if row.row.serial_us is not None]
    figures = [*_figures(held, 90)]
    if paired:
        wrong = sum(row.promised and row.slower for row in paired)
        figures.append(ErrorTarget("promised and slower", 100 * wrong / len(paired), 5))
    return tuple(figures)


def unseen_targets(rows: Sequence[ImplementationComparison]) -> tuple[ErrorTarget, ...]:
    """Return the figures of threads that nothing was fitted to; none without such rows."""
    return tuple(_figures([row for row in rows if row.row.whole_thread], 95))


def _figures(rows: Sequence[ImplementationComparison], sign: float) -> Iterator[ErrorTarget]:
    if not rows:
        return
    errors = [abs(row.error) for row in rows]
    yield ErrorTarget("median error of the speedup", median(errors), 10)
    yield ErrorTarget("p90", percentile(errors, 90), 30)
    right = [row.sign_is_right for row in rows if row.row.serial_us is not None]
    if right:
        yield ErrorTarget("right sign", 100 * sum(right) / len(right), sign, at_least=True)


def cells_of(row: ImplementationComparison) -> tuple[str, ...]:
    """Return the columns of ``HEADER``."""
    mark = "" if row.row.serial_us is not None else "~"
    half = "held out" if row.row.held_out else "fit"
    return f"{mark}{row.measured:.2f}", f"{row.predicted:.2f}", f"{row.error:+.1f}", f"{row.fused_error:+.1f}", half


def summary_lines(rows: Sequence[ImplementationComparison]) -> Iterator[str]:
    """Yield the figures of the held-out half, and the errors of threads that nothing was fitted to."""
    held = sum(row.row.held_out for row in rows)
    if held:
        yield f"held out, {held} of {len(rows)} rows: {'; '.join(map(str, targets_of(rows)))}"
    unseen = [row for row in rows if row.row.whole_thread]
    if unseen:
        labels = ", ".join(f"{row.row.name} {row.error:+.1f}%" for row in unseen)
        yield f"threads of which no row was fitted to: {'; '.join(map(str, unseen_targets(rows)))} ({labels})"


def weak_spots(rows: Sequence[ImplementationComparison]) -> Iterator[str]:
    """Yield each target that is missed."""
    yield from (f"implementations, held out: {target}" for target in targets_of(rows) if not target.met)
    unseen = (target for target in unseen_targets(rows) if not target.met)
    yield from (f"implementations, threads never fitted: {target}" for target in unseen)


def implementations_document(rows: Sequence[ImplementationComparison]) -> JsonObject | None:
    """Return rows, figures and targets as a document; None without rows."""
    if not rows:
        return None
    return {
        "held_out": [target.document() for target in targets_of(rows)],
        "threads_never_fitted": [target.document() for target in unseen_targets(rows)],
        "rows": [_row_document(row) for row in rows],
        "notes": list(NOTES),
    }


def _row_document(row: ImplementationComparison) -> JsonObject:
    return {
        "implementation": row.row.name,
        "gpu": row.row.gpu,
        "ranks": row.row.ranks,
        "dtype": row.row.dtype.value,
        "part": str(row.row.part),
        "source": row.row.source,
        "held_out": row.row.held_out,
        "measured_speedup": row.measured if row.row.serial_us is not None else None,
        "predicted_speedup": row.predicted,
        "error_percent": row.error,
        "serial_us": {"measured": row.row.serial_us, "predicted": row.serial_us},
        "fused_us": {"measured": row.row.fused_us, "predicted": row.fused_us},
    }
