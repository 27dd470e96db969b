"""The scoreboard of ``magus validate``: speedups that were promised and measured, by kernel, use of rows and size."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from ....compiler.ir import JsonObject
from ....compiler.resolve.expect.expectation import Verdict
from ...implementations.predict import p90
from ..tables.implementations import ImplementationComparison
from ..tables.promises import PromiseComparison
from .promise_report import GAINS

TITLE = "Scoreboard"
HEADER = ("rows", "p50", "p90", "sign", "cover", "lost", "won")
SMALL_US = 250
EVERY, FOR_A_PLAN = "all implementations", "kernels for a plan"

NOTES = (
    "Rows are measured speedups over the library, by what they were used for: constants were fitted to them (fit), to "
    "other rows of their thread (held out), or to no row of it (thread never fitted). Small are kernels below "
    f"{SMALL_US} us. Of half of the rows the error of the speedup is at most p50, of nine tenths p90; of kernels for a "
    "plan it is what is promised over the best that was measured, or over the library where that is faster.",
    "Sign is the share of rows that are predicted faster than the library where they are, and slower where they are; "
    "rows without the library's time beside them are not counted. Cover is the share of intervals that have the "
    "measured speedup in them; those of implementations are as wide as the errors of other threads say. Lost counts "
    "kernels that are advised and take longer than the library, won those that are not advised and gain more than 2%.",
)


class RowUse(Enum):
    """What rows were used for; the value is its name in the table, and the first comes first."""

    UNSEEN = "thread never fitted"
    HELD_OUT = "held out"
    FIT = "fit"


@dataclass(frozen=True, slots=True)
class Scored:
    """One measured speedup: its error in percent and whether sign and interval have it, None if that does not count.

    It is ``small`` if its kernel takes less than ``SMALL_US``.
    """

    name: str
    use: RowUse
    small: bool
    error: float
    sign: bool | None
    covered: bool | None
    lost: bool
    missed: bool


Line = tuple[str, str, tuple[str, ...]]  # the kernel, the group of its rows, and the columns of ``HEADER``


def board(promises: Sequence[PromiseComparison], rows: Sequence[ImplementationComparison]) -> Iterator[Line]:
    """Yield a line for each group of kernels for a plan, of all implementations, and of each."""
    scored = [*map(_of_promise, promises), *map(_of_row, rows)]
    groups: dict[tuple[str, RowUse, bool], list[Scored]] = defaultdict(list)
    for each in scored:
        for name in (each.name,) if each.name == FOR_A_PLAN else (EVERY, each.name):
            groups[name, each.use, each.small].append(each)
    uses, first = tuple(RowUse), (FOR_A_PLAN, EVERY)

    def rank(key: tuple[str, RowUse, bool]) -> tuple[bool, bool, str, int, bool]:
        name, use, small = key
        return name != FOR_A_PLAN, name not in first, name, uses.index(use), not small

    for name, use, small in sorted(groups, key=rank):
        group = f"{use.value}, {'small' if small else f'from {SMALL_US} us'}"
        yield name, group, _cells(groups[name, use, small])


def _of_promise(each: PromiseComparison) -> Scored:
    row = each.row
    missed = each.verdict is Verdict.SERIAL and row.speedup > GAINS
    covered = None if each.interval is None else each.is_covered
    error = 100 * (each.over_best - 1)
    return Scored(FOR_A_PLAN, RowUse.UNSEEN, row.best_us < SMALL_US, error, None, covered, each.is_lost, missed)


def _of_row(each: ImplementationComparison) -> Scored:
    row, interval = each.row, each.promise.interval
    use = RowUse.UNSEEN if row.whole_thread else RowUse.HELD_OUT if row.held_out else RowUse.FIT
    sign = each.sign_is_right if row.serial_us is not None else None
    covered = None if interval is None else interval[0] <= each.measured <= interval[1]
    missed = each.promise.verdict is Verdict.SERIAL and each.measured > GAINS
    lost = each.promised and each.slower
    return Scored(row.name, use, row.fused_us < SMALL_US, each.error, sign, covered, lost, missed)


def _cells(rows: Sequence[Scored]) -> tuple[str, ...]:
    errors = [abs(row.error) for row in rows]
    ends = f"{median(errors):.1f}", f"{p90(errors):.1f}"
    shares = _share([row.sign for row in rows]), _share([row.covered for row in rows])
    return str(len(rows)), *ends, *shares, str(sum(row.lost for row in rows)), str(sum(row.missed for row in rows))


def _share(counted: Sequence[bool | None]) -> str:
    known = [each for each in counted if each is not None]
    return f"{100 * sum(known) / len(known):.0f}" if known else ""


def board_document(promises: Sequence[PromiseComparison], rows: Sequence[ImplementationComparison]) -> list[JsonObject]:
    """Return the lines as a document."""
    return [
        {"kernel": name, "group": group, **dict(zip(HEADER, cells, strict=True))}
        for name, group, cells in board(promises, rows)
    ]
