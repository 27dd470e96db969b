"""The scoreboard of ``magus validate``: speedups that were promised and measured, by kernel, use of rows and size."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ....compiler.ir import JsonObject
from ....compiler.resolve.expect.expectation import Verdict
from ...implementations.predict import Promise
from ..tables.implementations import ImplementationComparison
from ..tables.promises import PromiseComparison
from .implementation_report import p90
from .promise_report import GAINS

TITLE = "Scoreboard"
HEADER = ("rows", "p50", "p90", "sign", "cover", "lost", "won")
SMALL_US = 250
EVERY, FOR_A_PLAN = "all implementations", "kernels for a plan"
FIT, HELD_OUT, UNSEEN = "fit", "held out", "thread never fitted"

NOTES = (
    "Rows are measured speedups over the library, by what they were used for: constants were fitted to them (fit), to "
    "other rows of their thread (held out), or to no row of it (thread never fitted). Small are kernels below "
    f"{SMALL_US} us. Of half of the rows the error of the speedup is at most p50, of nine tenths p90; of kernels for a "
    "plan it is what is promised over the best that was measured, or over the library where that is faster.",
    "Sign is the share of rows that are predicted faster than the library where they are, and slower where they are; "
    "rows without the library's time beside them are not counted. Cover is the share of intervals that have the "
    "measured speedup in them. Lost counts kernels that are advised and take longer than the library, won those that "
    "are not advised and gain more than 2%.",
)


@dataclass(frozen=True, slots=True)
class Scored:
    """One measured speedup: its error in percent and whether sign and interval have it, None if that does not count."""

    name: str
    group: str
    error: float
    sign: bool | None
    covered: bool | None
    lost: bool
    missed: bool


Line = tuple[str, str, tuple[str, ...]]  # the kernel, the group of its rows, and the columns of ``HEADER``


def board(promises: Sequence[PromiseComparison], rows: Sequence[ImplementationComparison]) -> Iterator[Line]:
    """Yield a line for each group of kernels for a plan, of all implementations, and of each."""
    scored = [*map(_of_promise, promises), *map(_of_row, rows)]
    groups: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for each in scored:
        for name in (each.name,) if each.name == FOR_A_PLAN else (EVERY, each.name):
            groups[name, each.group].append(each)
    uses, first = (UNSEEN, HELD_OUT, FIT), (FOR_A_PLAN, EVERY)

    def rank(key: tuple[str, str]) -> tuple[bool, bool, str, int, bool]:
        name, group = key
        return name != FOR_A_PLAN, name not in first, name, uses.index(group.split(", ")[0]), "small" not in group

    yield from ((*key, _cells(groups[key])) for key in sorted(groups, key=rank))


def _of_promise(each: PromiseComparison) -> Scored:
    row = each.row
    missed = each.verdict is Verdict.SERIAL and row.speedup > GAINS
    covered = None if each.interval is None else each.is_covered
    error = 100 * (each.over_best - 1)
    return Scored(FOR_A_PLAN, _group(UNSEEN, row.best_us), error, None, covered, each.is_lost, missed)


def _of_row(each: ImplementationComparison) -> Scored:
    row, promise = each.row, Promise(each.predicted, each.resolution or None)
    use = UNSEEN if row.whole_thread else HELD_OUT if row.held_out else FIT
    sign = each.sign_is_right if row.serial_us is not None else None
    interval = promise.interval
    covered = None if interval is None else interval[0] <= each.measured <= interval[1]
    missed = promise.verdict is Verdict.SERIAL and each.measured > GAINS
    return Scored(row.name, _group(use, row.fused_us), each.error, sign, covered, each.promised and each.slower, missed)


def _group(use: str, us: float) -> str:
    return f"{use}, {'small' if us < SMALL_US else f'from {SMALL_US} us'}"


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
