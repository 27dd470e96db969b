"""A bespoke plan as the search sees it: batches in order, each with its rows and how they are cut further."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...compiler.ir import Choice, Scenario, cutting_of, inner_size, tile_cols
from ...compiler.templates.bespoke import Part, shortened, spelled
from ...compiler.templates.cuts import shortened_cuts, spelled_cuts


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of the own block and of that of each peer, the ``slices`` and ``columns`` as in ``Choice``."""

    rows: Part
    slices: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()


Batches = tuple[Batch, ...]


class Lengths(NamedTuple):
    """What may be cut, in steps of ``step``: the inner dimension, and where kernels come first the output's columns.

    Bands of what follows a collective bring nothing earlier: they only run one kernel as several side by side, which no
    constant of a profile is fitted to.
    """

    inner: int
    cols: int
    step: int
    produces: bool

    @property
    def cut(self) -> int:
        """What a copy may have a share of: the columns where kernels come first, else the inner dimension."""
        return self.cols if self.produces else self.inner

    def batch(self, rows: Part, sizes: tuple[int, ...]) -> Batch:
        """A batch whose copies have these shares of ``cut``; one whole where there are none."""
        return Batch(rows, (), sizes) if self.produces else Batch(rows, sizes)


def lengths_of(scenario: Scenario) -> Lengths:
    """What the batches of ``scenario`` may be cut along."""
    workload = scenario.workload
    step = cutting_of(workload).column_step
    return Lengths(inner_size(workload), tile_cols(workload), step, workload.pattern.produces)


def batches_of(choice: Choice) -> Batches:
    """The batches of a bespoke choice."""
    count = len(choice.parts)
    parts = spelled(choice.parts, choice.chunks)
    slices, columns = spelled_cuts(choice.slices, count), spelled_cuts(choice.columns, count)
    return tuple(Batch(*each) for each in zip(parts, slices, columns, strict=True))


def is_cut(choice: Choice) -> bool:
    """Whether any batch is more than one kernel."""
    return bool(choice.slices or choice.columns)


def with_batches(choice: Choice, batches: Iterable[Batch]) -> Choice:
    """``choice`` with other batches; those without rows are left out."""
    kept = [batch for batch in batches if any(batch.rows)]
    return replace(
        choice,
        parts=shortened(batch.rows for batch in kept),
        slices=shortened_cuts(tuple(batch.slices for batch in kept)),
        columns=shortened_cuts(tuple(batch.columns for batch in kept)),
    )


def only_own(rows: int, num_ranks: int) -> Part:
    """So many rows of the own block, and none of others."""
    return (rows, *(0,) * (num_ranks - 1))


def whole_batches(parts: Iterable[Part]) -> Batches:
    """Batches of these rows that are not cut further."""
    return tuple(Batch(rows) for rows in parts if any(rows))
