"""``magus validate``: compares all tables of a folder with the models."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TypeVar

from ....compiler.ir import Progress
from ..tables import collectives, copies, custom_all_reduce, fused_rows, gemm
from ..tables.collective_sample import sampled, simulated_collectives
from ..tables.collectives import collective_comparisons, shipped_points, tables_of
from ..tables.copies import copy_comparisons, shipped_copies
from ..tables.copy_sample import sampled_copies, simulated_copies
from ..tables.csv_rows import MeasuredError, MissingTable
from ..tables.custom_all_reduce import custom_comparisons
from ..tables.fused import comparable_rows, fused_comparisons
from ..tables.gemm import gemm_comparisons, gemm_tables
from ..tables.gemm_sample import simulated_sample
from ..tables.implementation_rows import compared_indices, implementation_rows
from ..tables.implementations import implementation_comparisons
from ..tables.shipped import shipped_comparisons
from .report import Validation, comparable, summed_up

Row = TypeVar("Row")
READ = (
    gemm.PATTERNS,
    collectives.PATTERNS,
    collectives.WITHOUT_MODEL,
    custom_all_reduce.PATTERNS,
    copies.SM_PATTERNS,
    copies.DMA_PATTERNS,
    fused_rows.PATTERNS,
)
"""The names of the tables that are read."""


def validate(folder: Path, *, sample: int, seed: int, progress: Progress = lambda *_: None) -> Validation:
    """Compare every known table in ``folder`` with the models.

    For each GPU ``sample`` GEMMs, collectives of each kind and copies by SMs are simulated, and every fused kernel: its
    schedule alone, and the implementation that is shipped.

    Raises
    ------
    MeasuredError
        If there is no such folder, no known table in it, or one that cannot be read.
    """
    if not folder.is_dir():
        raise MeasuredError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}")
    progress("compare", 0, 0)
    left_out: list[str] = []
    tables = list(kept_rows(gemm_tables(folder), left_out))
    rows = [row for table in tables for row in gemm_comparisons(table)]
    rows += chain(kept_rows(collective_comparisons(folder), left_out), kept_rows(copy_comparisons(folder), left_out))
    rows += kept_rows(custom_comparisons(folder), left_out)
    left_out += [f"{row.gpu} {row.operation}: {row.label}: that is no time" for row in rows if not comparable(row)]
    rows = [row for row in rows if comparable(row)]
    fused = list(kept_rows(comparable_rows(folder, compared_indices), left_out))
    left_out += _unread(folder)
    implementations = implementation_rows(folder)
    if not rows and not fused and not implementations:
        raise MeasuredError("; ".join([f"{folder}: nothing to compare", *left_out[:3]]))
    rows += kept_rows(shipped_comparisons(), left_out)
    operations = list(sampled(list(kept_rows(shipped_points(folder), [])), sample, seed))
    moved = list(sampled_copies(list(kept_rows(shipped_copies(folder), [])), sample, seed))
    gemms = [min(sample, len(table.times_us)) for table in tables]
    advance = _counted([*gemms, *map(len, operations), *map(len, moved), len(fused), len(implementations)], progress)
    agreements = [simulated_sample(table, sample, seed, advance) for table in tables]
    agreements += [simulated_collectives(points, advance) for points in operations]
    agreements += [simulated_copies(group, advance) for group in moved]
    compared = tuple(kept_rows(fused_comparisons(fused, advance), left_out))
    shipped = tuple(kept_rows(implementation_comparisons(implementations, advance), left_out))
    return Validation(
        figures=summed_up(rows),
        agreements=tuple(agreement for agreement in agreements if agreement is not None),
        fused=compared,
        implementations=shipped,
        left_out=tuple(left_out),
        seed=seed,
    )


def _unread(folder: Path) -> Iterator[str]:
    """Yield a text that names the tables that no comparison reads, if there are such."""
    read = {path.name for patterns in READ for path in tables_of(folder, patterns)}
    names = [path.name for path in tables_of(folder, ("*.csv", "*.csv.gz")) if path.name not in read]
    if names:
        yield f"no comparison reads tables of these names: {', '.join(names)}"


def kept_rows(rows: Iterable[Row | str], left_out: list[str]) -> Iterator[Row]:
    """Yield the rows; append texts, and the message of a missing table, to ``left_out``."""
    try:
        for row in rows:
            if isinstance(row, str):
                left_out.append(row)
            else:
                yield row
    except MissingTable as error:
        left_out.append(str(error))


def _counted(counts: Sequence[int], progress: Progress) -> Callable[[], None]:
    """Return a function to call after each simulation, which reports the number done and the total."""
    total, done = sum(counts), count(1)
    return lambda: progress("sample", next(done), total)
