"""Regions of a tensor: rows and columns in the row blocks of ranks, rectangles, and gaps between these."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Half-open range of indices, as in Python."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of indices."""
        return self.stop - self.start

    def meets(self, other: "IndexRange") -> bool:
        """Whether both have indices in common."""
        return max(self.start, other.start) < min(self.stop, other.stop)

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}"


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of the moved tensor or of the output.

    Attributes
    ----------
    owner
        It lies in the row block of rank r + ``owner``.
    rows, cols
        Its rows, counted from the start of that row block, and its columns, counted from the start of the tensor.
    also
        Further owners: the same rows and columns of their row blocks, which one copy moves or one kernel sums.
    """

    owner: int
    rows: IndexRange
    cols: IndexRange
    also: tuple[int, ...] = ()

    @property
    def owners(self) -> tuple[int, ...]:
        """All of whose row blocks it has rows."""
        return (self.owner, *self.also)

    @property
    def elements(self) -> int:
        """Elements of all owners."""
        return self.rows.size * self.cols.size * (1 + len(self.also))

    @property
    def each(self) -> tuple["Region", ...]:
        """The same as a region of each owner."""
        return tuple([Region(owner, self.rows, self.cols) for owner in self.owners]) if self.also else (self,)

    def meets(self, other: "Region") -> bool:
        """Whether both have elements in common."""
        same = self.owner == other.owner or not {*self.owners}.isdisjoint(other.owners)
        return same and self.rows.meets(other.rows) and self.cols.meets(other.cols)


@dataclass(frozen=True, slots=True)
class Rect:
    """Rows ``top:bottom`` and columns ``left:right``, ends excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @classmethod
    def of(cls, region: Region) -> "Rect":
        """Return the rectangle of ``region`` within its shard."""
        return cls(region.rows.start, region.rows.stop, region.cols.start, region.cols.stop)

    @property
    def area(self) -> int:
        """Number of elements."""
        return (self.bottom - self.top) * (self.right - self.left)

    def clip(self, other: "Rect") -> "Rect | None":
        """Return the intersection, None if it is empty."""
        top, bottom = max(self.top, other.top), min(self.bottom, other.bottom)
        left, right = max(self.left, other.left), min(self.right, other.right)
        return Rect(top, bottom, left, right) if top < bottom and left < right else None

    def __str__(self) -> str:
        return f"rows {self.top}:{self.bottom}, columns {self.left}:{self.right}"


def uncovered(whole: Rect, parts: Sequence[Rect]) -> tuple[Rect | None, Rect | None]:
    """Return the first rectangle of ``whole`` that no part covers and the first that two cover.

    Parts lie inside ``whole``.

    Sweeps over the row edges; inside a strip the column intervals are sorted, so the cost is about
    strips * parts in a strip, small for plans whose chunks are slices.
    """
    missing: Rect | None = None
    twice: Rect | None = None
    edges = sorted({whole.top, whole.bottom} | {part.top for part in parts} | {part.bottom for part in parts})
    ordered = sorted(parts, key=lambda part: part.top)
    active: list[Rect] = []
    upcoming = 0
    for top, bottom in pairwise(edges):
        active = [part for part in active if part.bottom > top]
        while upcoming < len(ordered) and ordered[upcoming].top <= top:
            active.append(ordered[upcoming])
            upcoming += 1
        reached = whole.left
        for part in sorted(active, key=lambda part: part.left):
            if part.left > reached and missing is None:
                missing = Rect(top, bottom, reached, part.left)
            if part.left < reached and twice is None:
                twice = Rect(top, bottom, part.left, min(reached, part.right))
            reached = max(reached, part.right)
        if reached < whole.right and missing is None:
            missing = Rect(top, bottom, reached, whole.right)
        if missing is not None and twice is not None:
            break
    return missing, twice


def first_gap(whole: Rect, parts: Iterable[Rect]) -> Rect | None:
    """Return the first rectangle of ``whole`` that no part covers; parts may reach beyond it."""
    clipped = (part.clip(whole) for part in parts)
    return uncovered(whole, [part for part in clipped if part is not None])[0]
