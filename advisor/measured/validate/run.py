"""All tables of a folder against the models: what ``magus validate`` runs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TypeVar

from ....compiler.ir import Progress
from ..tables.collective_sample import sampled, simulated_collectives
from ..tables.collectives import MeasuredPoint, collective_comparisons, shipped_points
from ..tables.copies import SmCopies, copy_comparisons, shipped_copies
from ..tables.copy_sample import sampled_copies, simulated_copies
from ..tables.csv_rows import MeasuredError, MissingTable
from ..tables.fused import FusedComparison, fused_comparisons, fused_found
from ..tables.fused_rows import FusedRow
from ..tables.gemm import gemm_comparisons, gemm_tables
from ..tables.gemm_sample import simulated_sample
from .report import Validation, comparable, summed_up

Found = TypeVar("Found")


def validate(folder: Path, *, sample: int, seed: int, progress: Progress = lambda *_: None) -> Validation:
    """Compare every table in ``folder`` that Magus knows.

    Of each GPU ``sample`` GEMMs, as many collectives of each kind and copies by SMs are simulated, and every fused
    kernel.

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
    left_out += [f"{row.gpu} {row.operation}: {row.label}: that is no time" for row in rows if not comparable(row)]
    rows = [row for row in rows if comparable(row)]
    fused = [each for each in kept_rows(fused_found(folder), left_out) if isinstance(each, FusedRow)]
    if not rows and not fused:
        raise MeasuredError("; ".join([f"{folder}: nothing to compare", *left_out[:3]]))
    points = [each for each in kept_rows(shipped_points(folder), []) if isinstance(each, MeasuredPoint)]
    samples = list(sampled(points, sample, seed))
    copies = [each for each in kept_rows(shipped_copies(folder), []) if isinstance(each, SmCopies)]
    copied = list(sampled_copies(copies, sample, seed))
    gemms = [min(sample, len(table.times_us)) for table in tables]
    advance = _counted([*gemms, *map(len, samples), *map(len, copied), len(fused)], progress)
    agreements = [simulated_sample(table, sample, seed, advance) for table in tables]
    agreements += [simulated_collectives(each, advance) for each in samples]
    agreements += [simulated_copies(each, advance) for each in copied]
    compared = kept_rows(fused_comparisons(fused, advance), left_out)
    return Validation(
        figures=summed_up(rows),
        agreements=tuple(each for each in agreements if each is not None),
        fused=tuple(each for each in compared if isinstance(each, FusedComparison)),
        left_out=tuple(left_out),
        seed=seed,
    )


def kept_rows(found: Iterable[Found | str], left_out: list[str]) -> Iterator[Found]:
    """What was found without the texts, which go to ``left_out``, as does that the table is not there."""
    try:
        for each in found:
            if isinstance(each, str):
                left_out.append(each)
            else:
                yield each
    except MissingTable as error:
        left_out.append(str(error))


def _counted(counts: Sequence[int], progress: Progress) -> Callable[[], None]:
    """What is to be called after each simulation, to tell ``progress`` how many there were and are."""
    total, done = sum(counts), count(1)
    return lambda: progress("sample", next(done), total)
