"""The search's form of a bespoke plan: batches in order, each with its rows and the cuts of its columns."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...compiler.ir import Choice, Scenario, cutting_of, inner_size, tile_cols
from ...compiler.templates.bespoke import Part, shortened, spelled
from ...compiler.templates.cuts import shortened_cuts, spelled_cuts


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of the own block and of the block of each peer; ``slices`` and ``columns`` as in ``Choice``."""

    rows: Part
    slices: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()


Batches = tuple[RowBatch, ...]


class Lengths(NamedTuple):
    """Dimensions to cut in steps of ``step``: the inner one and, if kernels come first, the output's columns.

    If kernels follow the collective, bands of columns start no kernel earlier: they only run one kernel as several in
    parallel, and no constant of a profile is fitted to that.
    """

    inner: int
    cols: int
    step: int
    produces: bool

    @property
    def cut(self) -> int:
        """The dimension that copies share: the columns if kernels precede the collective, else the inner dimension."""
        return self.cols if self.produces else self.inner

    def batch(self, rows: Part, sizes: tuple[int, ...]) -> RowBatch:
        """Return a batch whose copies have these shares of ``cut``; without ``sizes`` it is not cut."""
        return RowBatch(rows, (), sizes) if self.produces else RowBatch(rows, sizes)


def lengths_of(scenario: Scenario) -> Lengths:
    """Return the dimensions along which batches of ``scenario`` may be cut."""
    workload = scenario.workload
    step = cutting_of(workload).column_step
    return Lengths(inner_size(workload), tile_cols(workload), step, workload.pattern.produces)


def batches_of(choice: Choice) -> Batches:
    """Return the batches of a bespoke choice."""
    count = len(choice.parts)
    parts = spelled(choice.parts, choice.chunks)
    slices, columns = spelled_cuts(choice.slices, count), spelled_cuts(choice.columns, count)
    return tuple(RowBatch(*fields) for fields in zip(parts, slices, columns, strict=True))


def is_cut(choice: Choice) -> bool:
    """Whether any batch is cut into several kernels."""
    return bool(choice.slices or choice.columns)


def with_batches(choice: Choice, batches: Iterable[RowBatch]) -> Choice:
    """Return ``choice`` with other batches, without those that have no rows."""
    kept = [batch for batch in batches if any(batch.rows)]
    return replace(
        choice,
        parts=shortened(batch.rows for batch in kept),
        slices=shortened_cuts(tuple(batch.slices for batch in kept)),
        columns=shortened_cuts(tuple(batch.columns for batch in kept)),
    )


def only_own(rows: int, num_ranks: int) -> Part:
    """Return a part with ``rows`` of the own block and none of others."""
    return (rows, *(0,) * (num_ranks - 1))


def whole_batches(parts: Iterable[Part]) -> Batches:
    """Return batches of these rows that are not cut further, without empty ones."""
    return tuple(RowBatch(rows) for rows in parts if any(rows))
