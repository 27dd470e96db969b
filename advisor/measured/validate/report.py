"""The run of ``magus validate``: errors by GPU, operation and group, and the document of ``--json``."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TypeVar

import numpy as np

from ....compiler.ir import JsonObject, Progress
from ..tables import attention, collectives, custom_all_reduce, exchanges, experts, gemm, steps
from ..tables import fused as fused_rows
from ..tables.attention import attention_comparisons
from ..tables.collectives import collective_comparisons, copy_comparisons, shipped_copies, shipped_points
from ..tables.csv_rows import EVERY, MAX_RATIO, MeasuredError, MissingTable, TableComparison, grouped, tables_of
from ..tables.custom_all_reduce import custom_comparisons
from ..tables.exchanges import exchange_comparisons
from ..tables.experts import expert_comparisons, fused_layer_comparisons
from ..tables.fused import SWEEP_PATTERNS, sm_sweep_comparisons
from ..tables.gemm import gemm_comparisons, gemm_tables
from ..tables.implementations import (
    ImplementationComparison,
    implementation_comparisons,
    implementation_rows,
    shipped_comparisons,
)
from ..tables.promises import PromiseComparison, promise_comparisons, promise_rows
from ..tables.samples import Agreement, collective_samples, copy_samples, gemm_sample
from ..tables.steps import StepComparison, step_comparisons, step_rows
from . import implementation_report, promise_report, step_report
from .targets import BASELINES, FLOORS, NOTES, TARGETS, Reference, early_switches, median_target

SCHEMA = "magus-validate/1"
NUM_WORST = 3
MAX_LEFT_OUT = 1000


@dataclass(frozen=True, slots=True)
class ErrorStats:
    """Errors of one group in percent, defined in ``NOTES``; ``worst`` are the worst rows, the worst first."""

    gpu: str
    operation: str
    group: str
    rows: int
    mape: float
    median: float
    p90: float
    bias: float
    worst: tuple[TableComparison, ...]

    @property
    def target(self) -> float | None:
        """The target for the MAPE, None without a target."""
        return TARGETS.get((self.operation, self.group))

    @property
    def missed(self) -> bool:
        """Whether there is a target and it is not met."""
        return self.target is not None and self.mape > self.target

    @property
    def median_target(self) -> float | None:
        """The target for the median, None without one or if constants were fitted to the rows."""
        return median_target(self.operation, self.group)

    @property
    def floor(self) -> str | None:
        """The difference between two measurements, None if it is unknown."""
        return next((percent for _, percent in references_of(self, FLOORS)), None)


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of ``magus validate``; ``left_out`` says why rows were not compared.

    ``agreements`` compare simulated samples with the closed forms, ``promises`` what advice promises of kernels with
    what was measured, ``implementations`` what is shipped of them with the library, and ``steps`` whole training steps.
    ``times`` are rows of ``figures`` of implementations that are compared by their times.
    """

    figures: tuple[ErrorStats, ...]
    agreements: tuple[Agreement, ...]
    left_out: tuple[str, ...]
    seed: int
    promises: tuple[PromiseComparison, ...] = ()
    implementations: tuple[ImplementationComparison, ...] = ()
    steps: tuple[StepComparison, ...] = ()
    times: tuple[TableComparison, ...] = ()

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs in the order of the tables."""
        return tuple(dict.fromkeys(figures.gpu for figures in self.figures))


def summed_up(comparisons: Iterable[TableComparison]) -> tuple[ErrorStats, ...]:
    """Return the errors of every group by GPU and operation; those of several groups together come first."""
    stats = []
    for of_gpu in grouped(comparisons, lambda row: row.gpu).values():
        for of_operation in grouped(of_gpu, lambda row: row.operation).values():
            groups = grouped(of_operation, lambda row: row.group)
            if set(groups) != {EVERY}:
                stats.append(_figures(EVERY, [row for group in groups.values() for row in group]))
            stats += [_figures(group, rows) for group, rows in groups.items()]
    return tuple(stats)


def _figures(group: str, rows: list[TableComparison]) -> ErrorStats:
    ratios = np.array([row.predicted_us / row.measured_us for row in rows])
    logs = 100 * np.log(ratios)
    worst = np.argsort(-np.abs(logs), kind="stable")[:NUM_WORST]
    return ErrorStats(
        gpu=rows[0].gpu,
        operation=rows[0].operation,
        group=group,
        rows=len(rows),
        mape=float(100 * np.mean(np.abs(ratios - 1))),
        median=float(np.median(np.abs(logs))),
        p90=float(np.percentile(np.abs(logs), 90)),
        bias=float(np.median(logs)),
        worst=tuple(rows[index] for index in worst),
    )


def comparable(comparison: TableComparison) -> bool:
    """Whether both times are plausible: finite, above zero and within a factor of ``MAX_RATIO``."""
    measured, predicted = comparison.measured_us, comparison.predicted_us
    if not all(math.isfinite(us) and us > 0 for us in (measured, predicted)):
        return False
    return measured < predicted * MAX_RATIO and predicted < measured * MAX_RATIO


def references_of(figures: ErrorStats, references: Iterable[Reference]) -> Iterator[tuple[str, str]]:
    """Yield (name, percent) of each reference for this operation and group on this GPU."""
    for reference in references:
        percent = reference.on(figures.gpu)
        if percent and figures.operation in reference.operations and figures.group == reference.group:
            yield reference.what, percent


def weak_spots(validation: Validation) -> Iterator[str]:
    """Yield missed targets, groups above the target of their operation, and simulations that disagree."""
    for figures in validation.figures:
        if figures.missed:
            target = f"the target is {figures.target:g}%"
            yield f"{figures.gpu} {figures.operation}, {figures.group}: {figures.mape:.1f}%, {target}"
    for figures in validation.figures:
        whole = TARGETS.get((figures.operation, EVERY))
        if figures.target is None and whole is not None and figures.mape > whole:
            yield (
                f"{figures.gpu} {figures.operation}, {figures.group}: {figures.mape:.1f}%, above the {whole:g}% "
                f"set for all of {figures.operation}"
            )
    for figures in validation.figures:
        bound = figures.median_target
        if bound is not None and figures.median > bound:
            spot = f"{figures.gpu} {figures.operation}, {figures.group}"
            yield f"{spot}: median {figures.median:.1f}%, at most {bound:g}% wanted"
    for agreement in validation.agreements:
        if not agreement.agrees:
            yield (
                f"{agreement.gpu}: {agreement.beyond} of {agreement.counted} take more than {agreement.limit:.0%} "
                f"longer or shorter simulated than by the closed form, {agreement.worst} {agreement.largest:.1%}"
            )
    yield from promise_report.weak_spots(validation.promises)
    yield from implementation_report.weak_spots(validation.implementations)
    yield from step_report.weak_spots(validation.steps)


def validation_document(validation: Validation) -> JsonObject:
    """Return the document of ``magus validate --json``."""
    return {
        "schema": SCHEMA,
        "seed": validation.seed,
        "targets_met": _targets_met(validation),
        "early_switches": list(early_switches(validation.gpus)),
        "groups": [_group_document(figures) for figures in validation.figures],
        "simulated": [
            {
                "gpu": agreement.gpu,
                "operation": agreement.operation,
                "rows": agreement.rows,
                "median_difference_percent": 100 * agreement.median,
                "largest_difference_percent": 100 * agreement.largest,
                "limit_percent": 100 * agreement.limit,
                "agrees": agreement.agrees,
                "beyond_limit": agreement.beyond,
                "worst": agreement.worst,
                "too_large": agreement.too_large,
            }
            for agreement in validation.agreements
        ],
        "scoreboard": promise_report.board_document(validation.promises, validation.implementations, validation.times),
        "promises": promise_report.promises_document(validation.promises),
        "implementations": implementation_report.implementations_document(validation.implementations),
        "steps": step_report.steps_document(validation.steps),
        "weak_spots": list(weak_spots(validation)),
        "left_out": list(validation.left_out[:MAX_LEFT_OUT]),
        "left_out_count": len(validation.left_out),
        "notes": list(NOTES),
    }


def _targets_met(validation: Validation) -> bool:
    fused = [
        *promise_report.targets_of(validation.promises),
        *implementation_report.targets_of(validation.implementations),
        *step_report.targets_of(validation.steps),
    ]
    return all(target.met for target in fused) and not any(figures.missed for figures in validation.figures)


def _group_document(figures: ErrorStats) -> JsonObject:
    return {
        "gpu": figures.gpu,
        "operation": figures.operation,
        "group": figures.group,
        "rows": figures.rows,
        "mape_percent": figures.mape,
        "median_abs_ln_percent": figures.median,
        "p90_abs_ln_percent": figures.p90,
        "bias_ln_percent": figures.bias,
        "target_percent": figures.target,
        "target_met": None if figures.target is None else not figures.missed,
        "noise_floor": [_reference(what, percent) for what, percent in references_of(figures, FLOORS)],
        "baselines": [_reference(what, percent) for what, percent in references_of(figures, BASELINES)],
        "worst": [
            {"label": row.label, "measured": row.measured_us, "predicted": row.predicted_us} for row in figures.worst
        ],
    }


def _reference(what: str, percent: str) -> JsonObject:
    return {"what": what, "percent": percent}


Row = TypeVar("Row")
READ = (
    gemm.PATTERNS,
    gemm.QUANTIZE_PATTERNS,
    collectives.PATTERNS,
    collectives.RCCL_PATTERNS,
    custom_all_reduce.PATTERNS,
    attention.PATTERNS,
    experts.PATTERNS,
    experts.FUSED_PATTERNS,
    exchanges.PATTERNS,
    collectives.SM_PATTERNS,
    collectives.DMA_PATTERNS,
    fused_rows.PATTERNS,
    SWEEP_PATTERNS,
    steps.PATTERNS,
)
"""The names of the tables that are read."""
COMPARED = (
    collective_comparisons,
    copy_comparisons,
    custom_comparisons,
    sm_sweep_comparisons,
    exchange_comparisons,
    attention_comparisons,
    expert_comparisons,
    fused_layer_comparisons,
)
"""What compares tables with the models, beside those of GEMMs and of fused kernels."""


def validate(folder: Path, *, sample: int, seed: int, progress: Progress = lambda *_: None) -> Validation:
    """Compare every known table in ``folder`` with the models.

    For each GPU ``sample`` GEMMs, collectives of each kind and copies by SMs are simulated, and every fused kernel:
    what advice promises for its shape, and the implementation that is shipped.

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
    rows += chain.from_iterable(kept_rows(compared(folder), left_out) for compared in COMPARED)
    left_out += [
        f"{row.gpu} {row.operation}: {row.label}: {row.measured_us:.4g} us is no time of it, as in another unit"
        for row in rows
        if not comparable(row)
    ]
    rows = [row for row in rows if comparable(row)]
    promised = list(kept_rows(promise_rows(folder), left_out))
    trained = list(kept_rows(step_rows(folder), left_out))
    left_out += _unread(folder)
    implementations = implementation_rows(folder)
    if not rows and not promised and not implementations and not trained:
        raise MeasuredError("; ".join([f"{folder}: nothing to compare", *left_out[:3]]))
    rows += kept_rows(shipped_comparisons(), left_out)
    samples = [gemm_sample(table, sample, seed) for table in tables]
    samples += collective_samples(list(kept_rows(shipped_points(folder), [])), sample, seed)
    samples += copy_samples(list(kept_rows(shipped_copies(folder), [])), sample, seed)
    simulated = [each.rows for each in samples]
    advance = _counted(map(len, (*simulated, promised, implementations, trained)), progress)
    agreements = [each.agreement(advance) for each in samples]
    compared = tuple(kept_rows(promise_comparisons(promised, advance, implementations), left_out))
    shipped = tuple(kept_rows(implementation_comparisons(implementations, advance), left_out))
    shipped = implementation_report.by_other_threads(shipped)
    return Validation(
        figures=summed_up(rows),
        agreements=tuple(agreement for agreement in agreements if agreement is not None),
        promises=compared,
        implementations=shipped,
        steps=tuple(kept_rows(step_comparisons(trained, advance), left_out)),
        left_out=tuple(left_out),
        seed=seed,
        times=tuple(row for row in rows if row.kind),
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


def _counted(counts: Iterable[int], progress: Progress) -> Callable[[], None]:
    """Return a function to call after each simulation, which reports the number done and the total."""
    total, done = sum(counts), count(1)
    return lambda: progress("sample", next(done), total)
