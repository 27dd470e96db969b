"""All tables of a folder against the models: what ``magus validate`` runs."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TypeVar

from .collectives import collective_comparisons
from .copies import copy_comparisons
from .gemm import GemmTable, gemm_comparisons, gemm_tables
from .gemm_sample import Agreement, simulated_sample
from .report import Validation, comparable, summed_up
from .rows import MeasuredError, MissingTable

Progress = Callable[[str, int, int], None]
Found = TypeVar("Found")


def validate(folder: Path, *, sample: int, seed: int, progress: Progress = lambda *_: None) -> Validation:
    """Compare every table in ``folder`` that Magus knows, and simulate ``sample`` GEMMs for each GPU.

    Raises
    ------
    MeasuredError
        If there is no such folder, no known table in it, or one that cannot be read.
    """
    if not folder.is_dir():
        raise MeasuredError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}")
    progress("compare", 0, 0)
    left_out: list[str] = []
    tables = list(_kept(gemm_tables(folder), left_out))
    rows = [row for table in tables for row in gemm_comparisons(table)]
    rows += chain(_kept(collective_comparisons(folder), left_out), _kept(copy_comparisons(folder), left_out))
    left_out += [f"{row.gpu} {row.operation}: {row.label}: that is no time" for row in rows if not comparable(row)]
    rows = [row for row in rows if comparable(row)]
    if not rows:
        raise MeasuredError("; ".join([f"{folder}: nothing to compare", *left_out[:3]]))
    agreements = tuple(_agreements(tables, sample, seed, progress))
    return Validation(summed_up(rows), agreements, tuple(left_out), seed)


def _kept(found: Iterable[Found | str], left_out: list[str]) -> Iterator[Found]:
    """What was found without the texts, which go to ``left_out``, as does that the table is not there."""
    try:
        for each in found:
            if isinstance(each, str):
                left_out.append(each)
            else:
                yield each
    except MissingTable as error:
        left_out.append(str(error))


def _agreements(tables: list[GemmTable], sample: int, seed: int, progress: Progress) -> Iterator[Agreement]:
    total = sum(min(sample, len(table.times_us)) for table in tables)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        progress("sample", done, total)

    for table in tables:
        agreement = simulated_sample(table, sample, seed, advance)
        if agreement is not None:
            yield agreement
