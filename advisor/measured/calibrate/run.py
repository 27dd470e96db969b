"""``magus calibrate``: fits the constants of kernels, collectives and copies of a profile to measured times."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ....compiler import format_text
from ....compiler.ir import TYPES_WITH_CONSTANTS, Gpu, Progress
from ....compiler.machine.known_gpus import library_gpu
from ..tables.collectives import DMA_GPU, DMA_PATTERNS, SM_PATTERNS, collective_points, phase_shares, sm_copies
from ..tables.csv_rows import MAX_RATIO, MeasuredError, grouped, tables_of
from ..tables.gemm import gemm_tables, profile_of
from ..validate.report import kept_rows
from .fitting import Fitted, put_all, with_values
from .kernel_parts import ATTENTION_PARTS, KERNEL_PARTS, kernel_parts
from .parts import (
    GEMM_PARTS,
    LARGE,
    FittedRow,
    ProfilePart,
    collective_parts,
    dma_part,
    gemm_parts,
    mean_error,
    parted,
    sm_copy_part,
)

PARTS = (*GEMM_PARTS.values(), "rings", "all_to_all", "NVLS", "SM copy", "DMA phase share", *KERNEL_PARTS)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Errors:
    """Mean errors (MAPE, percent) on held-out rows of one group, with the initial and the fitted constants.

    ``before`` is None if there were no initial ones.
    """

    group: str
    rows: int
    before: float | None
    after: float


@dataclass(frozen=True, slots=True)
class FittedPart:
    """One part after its fit: constants, number of rows, files, and errors on held-out rows."""

    name: str
    constants: tuple[Fitted, ...]
    rows: int
    of_rows: int
    files: tuple[str, ...]
    errors: tuple[Errors, ...]

    @property
    def block(self) -> str:
        """The path of the block that has its constants."""
        return self.constants[0].constant.path.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class FitRequest:
    """A fit: the GPU of the tables, and the GPU whose constants are the start if not its own."""

    gpu: str
    start: str = ""
    sample: int = 300
    seed: int = 0
    fit_switch: bool = False


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of ``magus calibrate``.

    ``base`` is the shipped GPU that the result extends. ``kept`` says why a part was not fitted, ``left_out`` why a row
    was not used.
    """

    request: FitRequest
    base: str
    gpu: Gpu
    parts: tuple[FittedPart, ...]
    kept: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def title(self) -> str:
        """The first line of the report."""
        return f"{self.request.gpu}, constants fitted to measured times"

    def part(self, name: str) -> FittedPart | None:
        """Return the part of that name, None if it was not fitted."""
        return next((part for part in self.parts if part.name == name), None)


def calibrate(folder: Path, request: FitRequest, progress: Progress = lambda *_: None) -> Calibration:
    """Fit all parts for which the tables of ``folder`` have rows.

    Raises
    ------
    MeasuredError
        If there is no such folder, no such profile, no row of the GPU, or a table that cannot be read.
    """
    if not folder.is_dir():
        raise MeasuredError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}")
    base, gpu, start = _profiles(request)
    progress("compare", 0, 0)
    left_out: list[str] = []
    has_peak = gpu.name == request.gpu  # else its data sheet is that of a sibling
    parts = [_plausible(part, gpu, has_peak, left_out) for part in _parts(folder, request, gpu, left_out)]
    with_rows = {part.name: part for part in parts if part.rows}
    if not with_rows:
        raise MeasuredError("; ".join([f"{folder}: no rows of {request.gpu}", *left_out[:3]]))
    fitted: list[FittedPart] = []
    kept: list[str] = []
    for index, name in enumerate(each for each in PARTS if each in with_rows):
        progress("calibrate", index, len(with_rows))
        block = name.partition(" ")[0]
        if name in KERNEL_PARTS and getattr(gpu, block) is None:
            gpu = replace(gpu, **{block: getattr(start, block)})
        part = _fitted(with_rows[name], gpu, start, request)
        if isinstance(part, str):
            kept.append(part)
        else:
            fitted.append(part)
            gpu = put_all(gpu, part.constants)
            if name == "rings" and gpu.collectives is not None:  # over which links, the rows do not say
                own = replace(gpu.collectives, link_bytes_per_s=None, link_latency_ticks=None)
                gpu = replace(gpu, collectives=own)
    if len(with_rows) < len(PARTS):
        kept.append(f"kept: {', '.join(each for each in PARTS if each not in with_rows)}, no rows")
    if not fitted:
        raise MeasuredError(f"{folder}: too few rows of {request.gpu}: {'; '.join(kept)}")
    return Calibration(request, base, gpu, tuple(fitted), tuple(kept), tuple(left_out))


def _profiles(request: FitRequest) -> tuple[str, Gpu, Gpu]:
    """Return the name of the shipped GPU to extend, its profile, and the profile whose constants are the start."""
    for name in (request.gpu, request.start):
        if name and not _NAME.fullmatch(name):
            raise MeasuredError(f"{name[:40]!r} is no name of a GPU")
    own, sibling = profile_of(request.gpu), profile_of(request.start)
    if request.start and sibling is None:
        raise MeasuredError(f"there is no profile of {request.start} to start from")
    base = own or sibling
    if base is None:
        raise MeasuredError(f"there is no profile of {request.gpu}; name a sibling to start from: --from GPU")
    return base.name, base, sibling or base


def _parts(folder: Path, request: FitRequest, gpu: Gpu, left_out: list[str]) -> Iterator[ProfilePart]:
    """Yield the parts for which ``folder`` has rows; append to ``left_out`` why other rows are not used."""
    name = request.gpu
    tables = list(kept_rows(gemm_tables(folder, name), left_out))
    left_out.extend(
        f"{each.file}: {gpu.name} has no peak rate for {each.dtype.value}"
        for each in tables
        if not gpu.peak(each.dtype)
    )
    yield from gemm_parts(gpu, [each for each in tables if gpu.peak(each.dtype)])
    points = list(kept_rows(collective_points(folder, lambda _: gpu, name), left_out))
    yield from collective_parts(gpu, points, request.fit_switch)
    for path in tables_of(folder, SM_PATTERNS):
        yield sm_copy_part(list(kept_rows(sm_copies(path, lambda _: gpu, name), left_out)))
    if name == DMA_GPU:
        for path in tables_of(folder, DMA_PATTERNS):
            yield dma_part(list(kept_rows(phase_shares(path, gpu), left_out)), path.name)
    yield from kernel_parts(folder, name, gpu, left_out)


def _plausible(part: ProfilePart, gpu: Gpu, has_peak: bool, left_out: list[str]) -> ProfilePart:
    """Return the part without rows that are ``MAX_RATIO`` off the prediction, or above the peak of ``gpu``."""
    if not part.rows:
        return part
    measured = np.array([row.measured for row in part.rows])
    ratios = measured / part.predict(gpu, part.rows)
    other_unit = (ratios > MAX_RATIO) | (ratios < 1 / MAX_RATIO)
    too_fast = ~other_unit & (measured < np.array([row.least_us for row in part.rows])) & has_peak
    for wrong, reason in (
        (other_unit, f"more than {MAX_RATIO} times as long or short as predicted, as in another unit"),
        (too_fast, f"faster than the peak of {gpu.name}"),
    ):
        if wrong.any():
            row, count = part.rows[int(wrong.argmax())], np.count_nonzero(wrong)
            label = f"{part.name} {' x '.join(str(each) for each in row.key)}"
            left_out.append(f"{row.file}: {label} in {row.measured:.4g} us and {count - 1:,} more: {reason}")
    bad = other_unit | too_fast
    return replace(part, rows=tuple(row for row, wrong in zip(part.rows, bad.tolist(), strict=True) if not wrong))


def _fitted(part: ProfilePart, gpu: Gpu, start: Gpu, request: FitRequest) -> FittedPart | str:
    """Return the fitted part, or why it is kept."""
    rows, held = parted(part.rows, request.sample, request.seed)
    if len(rows) < part.num_constants:
        return f"kept: {part.name}, {len(rows)} rows to fit {part.num_constants} constants"
    if not _can_start(part.name, start):
        return f"kept: {part.name}, the profile of {start.name} has none to start from"
    constants = part.fit(gpu, start, rows)
    files = tuple(dict.fromkeys(row.file for row in part.rows))
    before = with_values(gpu, [each.constant for each in constants], [each.before for each in constants])
    errors = tuple(_errors(part, before, put_all(gpu, constants), held))
    return FittedPart(part.name, constants, len(rows), len(part.rows) - len(held), files, errors)


def _can_start(part: str, start: Gpu) -> bool:
    """Whether a profile has the constants of a part."""
    collectives = start.collectives
    match part:
        case "rings":
            return collectives is not None
        case "all_to_all":
            return collectives is not None and collectives.all_to_all is not None
        case "NVLS":
            return collectives is not None and collectives.nvls is not None
        case "SM copy":
            return start.sm_copy.saturation is not None
        case "DMA phase share":
            return start.dma.phases is not None
    return part not in KERNEL_PARTS or getattr(start, part.partition(" ")[0]) is not None


def _errors(part: ProfilePart, before: Gpu, after: Gpu, held: tuple[FittedRow, ...]) -> Iterator[Errors]:
    """Yield errors by group; of several groups first those of all together."""
    groups = grouped(held, lambda row: row.group)
    if len(groups) > 1:
        groups = {f"{part.name}, all": list(held), **dict(sorted(groups.items()))}
    for group, rows in groups.items():
        yield Errors(group, len(rows), *(100 * mean_error(part.predict, gpu, rows) for gpu in (before, after)))


COLLECTIVES = "collectives"
BLOCKS = (
    *("gemm", *(f"gemm.{each}" for each in TYPES_WITH_CONSTANTS), "dma", "sm_copy"),
    *(COLLECTIVES, "collectives.nvls", "collectives.all_to_all"),
    *(*ATTENTION_PARTS, "grouped", *(f"grouped.{each}" for each in TYPES_WITH_CONSTANTS)),
)
"""All blocks in the order of a file, by their paths."""
MIN_HELD_OUT = 5
"""Least number of held-out rows for which an error is written."""


def profile_text(calibration: Calibration) -> str:
    """Return the file in the canonical form of ``magus fmt``."""
    return format_text("\n".join(_lines(calibration)) + "\n")


def command(calibration: Calibration) -> str:
    """Return the command that writes the file again, without paths."""
    request = calibration.request
    start = f" --from {request.start}" if request.start else ""
    switch = " --fit-switch" if request.fit_switch else ""
    return f"magus calibrate --gpu {request.gpu}{start} --sample {request.sample} --seed {request.seed}{switch}"


def _lines(calibration: Calibration) -> Iterator[str]:
    gpu, base = calibration.request.gpu, calibration.base
    known = library_gpu(base)
    assert known is not None, "what is extended ships"
    library, vendor = known.library, known.library.partition("/")[0]
    yield from ("mgs 1", "")
    yield f"# {gpu}, refitted to measured times by: {command(calibration)}"
    yield f"# Everything that is not said here is that of {library}."
    if gpu != base:
        yield f"# Its data sheet is not that of {base}: restate sms, clock, peak, cache and hbm, and calibrate again."
    yield from ("", f'use "{library}" as {vendor}', "", f"gpu {gpu} extends {vendor}.{base} {{")
    yield from _blocks(calibration)
    yield "}"


def _blocks(calibration: Calibration) -> Iterator[str]:
    """Yield the blocks of all parts, those of types and of some collectives inside another."""
    parts = {part.block: part for part in calibration.parts}
    found = [each for each in BLOCKS if each in parts]
    for place, outer in enumerate(dict.fromkeys(each.partition(".")[0] for each in found)):
        yield from [""] if place else []
        yield f"{outer} {{"
        if outer in parts:
            yield from _inside(calibration, parts[outer])
        if outer == COLLECTIVES:
            errors = [part.errors[0] for block, part in parts.items() if block.startswith(outer) and part.errors]
            yield from _error(calibration, errors, "")
        for block in found:
            if block.startswith(f"{outer}."):
                yield from [""] if outer == COLLECTIVES else []
                yield f"{block.rpartition('.')[2]} {{"
                yield from _inside(calibration, parts[block])
                yield "}"
        yield "}"


def _inside(calibration: Calibration, part: FittedPart) -> Iterator[str]:
    """Yield the numbers of a part; of a GEMM their error, of attention what its kernel is taken to be."""
    yield from _numbers(calibration, part)
    if part.name in GEMM_PARTS.values():
        large = [errors for errors in part.errors if LARGE in errors.group and errors.rows >= MIN_HELD_OUT]
        yield from _error(calibration, large or part.errors[:1], " with m, n, k >= 512" if large else "")
    if part.name in ATTENTION_PARTS and getattr(profile_of(calibration.base), part.name) is None:
        for word in ("queries", "packed", "decode_packed"):
            count = getattr(getattr(calibration.gpu, part.name), word)
            yield from (f'{word} {count} @assumed "that of {calibration.request.start}"',) if count else ()


def _numbers(calibration: Calibration, part: FittedPart) -> Iterator[str]:
    source = f"{', '.join(part.files)}: {part.rows:,} of {part.of_rows:,} rows, seed {calibration.request.seed}"
    yield f'source fitted "{source}"'
    yield from (_number(fitted, source) for fitted in part.constants)


def _number(fitted: Fitted, source: str) -> str:
    """Return the line of a constant; one that the rows do not determine is marked as assumed."""
    note = ""
    if fitted.undetermined:
        note = f' @assumed "hardly determined by {source}"'
    elif fitted.at_bound:
        note = f' @fitted "{source}; at a bound"'
    return f"{fitted.constant.name} {fitted.text}{note}"


def _error(calibration: Calibration, errors: Sequence[Errors], which: str) -> Iterator[str]:
    """Yield the mean error on held-out rows, nothing if there are too few."""
    rows = sum(one.rows for one in errors)
    if rows >= MIN_HELD_OUT:
        percent = sum(one.after * one.rows for one in errors) / rows
        yield f'error {percent:.1f} % @measured "{rows:,} held-out rows{which}, seed {calibration.request.seed}"'
