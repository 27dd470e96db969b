"""Promises in the report of ``magus validate``: kernels for a plan against the best that was measured, by thread.

And its scoreboard: speedups that were promised and measured, by kernel, use of rows and size.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from ....compiler.ir import JsonObject, percentile
from ....compiler.resolve.expect.expectation import Verdict
from ..tables import csv_rows, custom_all_reduce, exchanges
from ..tables.csv_rows import TableComparison, grouped
from ..tables.implementations import ImplementationComparison
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


def summary_lines(rows: Sequence[PromiseComparison]) -> Iterator[str]:
    """Yield the figures of all rows, then promised over best by thread."""
    if not rows:
        return
    yield f"{len(rows)} shapes: {'; '.join(map(str, targets_of(rows)))}"
    medians = (
        f"{source} {median(row.over_best for row in group):.2f} ({len(group)})"
        for source, group in grouped(rows, lambda row: row.row.source).items()
    )
    yield f"promised over the best by thread, medians: {', '.join(medians)}"
    beyond = [row for row in rows if row.interval is not None and not row.is_covered]
    outside = [row for row in rows if row.without_own is not None and not row.is_covered_without_own]
    lose, lose_without = (sum(row.row.speedup < 1 for row in group) for group in (beyond, outside))
    yield (
        f"not in their interval: {len(beyond)} of them, {lose} of which lose; without the kernels with constants of "
        f"their own thread {len(outside)}, {lose_without} of which lose"
    )


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
                "interval_without_own_thread": None if row.without_own is None else list(row.without_own),
                "verdict": row.verdict.value,
            }
            for row in rows
        ],
        "notes": list(NOTES),
    }


BOARD_TITLE = "Scoreboard"
BOARD_HEADER = ("rows", "p50", "p90", "sign", "cover", "lost", "won")
SMALL_US = 250
EVERY, FOR_A_PLAN = "all implementations", "kernels for a plan"
FIRST = (FOR_A_PLAN, EVERY)
FITTED = frozenset({custom_all_reduce.FIT, exchanges.FIT, csv_rows.FIT})
"""Groups of times whose rows constants were fitted to."""

BOARD_NOTES = tuple(note.format(small=SMALL_US) for note in notes_of("scoreboard"))


class RowUse(Enum):
    """What rows were used for; the value is its name in the table, and the first comes first."""

    UNSEEN = "thread never fitted"
    HELD_OUT = "held out"
    FIT = "fit"


@dataclass(frozen=True, slots=True)
class Scored:
    """One measured speedup or time: its error in percent and whether sign and interval have it, None if not known.

    It is ``small`` if its kernel takes less than ``SMALL_US``; ``kind`` is the name of all that are alike.
    """

    name: str
    kind: str
    use: RowUse
    small: bool
    error: float
    sign: bool | None = None
    covered: bool | None = None
    lost: bool | None = None
    missed: bool | None = None


Line = tuple[str, str, tuple[str, ...]]  # the kernel, the group of its rows, and the columns of ``BOARD_HEADER``


def board(
    promises: Sequence[PromiseComparison],
    rows: Sequence[ImplementationComparison],
    times: Sequence[TableComparison] = (),
) -> Iterator[Line]:
    """Yield a line for each group of kernels for a plan, of all implementations, and of each.

    Of those that are compared by ``times``, not speedups, each kind comes behind the others, and then each of it.
    """
    scored = [*map(_of_promise, promises), *map(_of_row, rows), *map(_of_time, times)]
    groups: dict[tuple[str, RowUse, bool], list[Scored]] = defaultdict(list)
    for each in scored:
        for name in dict.fromkeys((each.kind, each.name)):
            groups[name, each.use, each.small].append(each)
    kinds, uses = {each.name: each.kind for each in scored}, tuple(RowUse)

    def rank(key: tuple[str, RowUse, bool]) -> tuple[int, str, bool, str, int, bool]:
        name, use, small = key
        kind = kinds.get(name, name)
        place = FIRST.index(kind) if kind in FIRST else len(FIRST)
        return place, kind, name != kind, name, uses.index(use), not small

    for name, use, small in sorted(groups, key=rank):
        group = f"{use.value}, {'small' if small else f'from {SMALL_US} us'}"
        yield name, group, _cells(groups[name, use, small])


def _of_promise(each: PromiseComparison) -> Scored:
    row = each.row
    missed = each.verdict is Verdict.SERIAL and row.speedup > GAINS
    covered = None if each.interval is None else each.is_covered
    error = 100 * (each.over_best - 1)
    small = row.best_us < SMALL_US
    return Scored(FOR_A_PLAN, FOR_A_PLAN, RowUse.UNSEEN, small, error, None, covered, each.is_lost, missed)


def _of_row(each: ImplementationComparison) -> Scored:
    row, interval = each.row, each.promise.interval
    use = RowUse.UNSEEN if row.whole_thread else RowUse.HELD_OUT if row.held_out else RowUse.FIT
    sign = each.sign_is_right if row.serial_us is not None else None
    covered = None if interval is None else interval[0] <= each.measured <= interval[1]
    missed = each.promise.verdict is Verdict.SERIAL and each.measured > GAINS
    lost = each.promised and each.slower
    return Scored(row.name, EVERY, use, row.fused_us < SMALL_US, each.error, sign, covered, lost, missed)


def _of_time(each: TableComparison) -> Scored:
    """What an implementation takes; its interval is as wide as the error that it states."""
    off, small = each.measured_us / each.predicted_us - 1, each.measured_us < SMALL_US
    use = RowUse.FIT if each.group in FITTED else RowUse.HELD_OUT
    covered = None if each.error is None else abs(off) <= each.error
    error = 100 * (each.predicted_us / each.measured_us - 1)
    return Scored(each.operation, each.kind, use, small, error, covered=covered)


def _cells(rows: Sequence[Scored]) -> tuple[str, ...]:
    errors = [abs(row.error) for row in rows]
    ends = f"{median(errors):.1f}", f"{percentile(errors, 90):.1f}"
    shares = _share([row.sign for row in rows]), _share([row.covered for row in rows])
    counts = _count([row.lost for row in rows]), _count([row.missed for row in rows])
    return str(len(rows)), *ends, *shares, *counts


def _count(counted: Sequence[bool | None]) -> str:
    return "" if None in counted else str(sum(map(bool, counted)))


def _share(counted: Sequence[bool | None]) -> str:
    known = [each for each in counted if each is not None]
    return f"{100 * sum(known) / len(known):.0f}" if known else ""


def board_document(
    promises: Sequence[PromiseComparison],
    rows: Sequence[ImplementationComparison],
    times: Sequence[TableComparison] = (),
) -> list[JsonObject]:
    """Return the lines as a document."""
    return [
        {"kernel": name, "group": group, **dict(zip(BOARD_HEADER, cells, strict=True))}
        for name, group, cells in board(promises, rows, times)
    ]
