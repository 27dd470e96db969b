"""The profile that ``magus calibrate`` writes: a GPU in the language that extends a shipped one with new constants."""

from collections.abc import Iterator, Sequence

from ....compiler import format_text
from ....compiler.text.load import shipped_libraries
from .fitting import Fitted
from .gemm_fit import LARGE
from .run import Calibration, Errors, FittedPart

COLLECTIVES = ("rings", "all_to_all", "NVLS")
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
    library = next(name for name in shipped_libraries() if name.partition("/")[2] == base.lower())
    vendor = library.partition("/")[0]
    yield from ("mgs 1", "")
    yield f"# {gpu}, refitted to measured times by: {command(calibration)}"
    yield f"# Everything that is not said here is that of {library}."
    if gpu != base:
        yield f"# Its data sheet is not that of {base}: restate sms, clock, peak, cache and hbm, and calibrate again."
    yield from ("", f'use "{library}" as {vendor}', "", f"gpu {gpu} extends {vendor}.{base} {{")
    yield from _blocks(calibration)
    yield "}"


def _blocks(calibration: Calibration) -> Iterator[str]:
    gap = False
    for block in (
        _gemm(calibration),
        _plain(calibration, "DMA phase share", "dma"),
        _plain(calibration, "SM copy", "sm_copy"),
        _collectives(calibration),
    ):
        lines = list(block)
        if lines:
            yield from ([""] if gap else [])
            yield from lines
            gap = True


def _gemm(calibration: Calibration) -> Iterator[str]:
    part = calibration.part("gemm")
    if part is not None:
        large = [errors for errors in part.errors if errors.group == LARGE and errors.rows >= MIN_HELD_OUT]
        yield "gemm {"
        yield from _numbers(calibration, part)
        yield from _error(calibration, large or part.errors[:1], " with m, n, k >= 512" if large else "")
        yield "}"


def _plain(calibration: Calibration, name: str, block: str) -> Iterator[str]:
    part = calibration.part(name)
    if part is not None:
        yield f"{block} {{"
        yield from _numbers(calibration, part)
        yield "}"


def _collectives(calibration: Calibration) -> Iterator[str]:
    parts = {name: part for name in COLLECTIVES if (part := calibration.part(name)) is not None}
    if not parts:
        return
    yield "collectives {"
    if "rings" in parts:
        yield from _numbers(calibration, parts["rings"])
    yield from _error(calibration, [part.errors[0] for part in parts.values() if part.errors], "")
    for name in ("NVLS", "all_to_all"):
        if name in parts:
            yield from ("", f"{name.lower()} {{")
            yield from _numbers(calibration, parts[name])
            yield "}"
    yield "}"


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
