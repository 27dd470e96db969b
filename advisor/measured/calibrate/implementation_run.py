"""``magus calibrate --implementation``: fits the costs of a shipped implementation to a user's rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....compiler import CompileError, format_text
from ....compiler.codes import Code
from ....compiler.ir import Implementation, Method, Pattern, Progress, TransferPath
from ....compiler.text.diagnostics import Diagnostic, printable
from ...implementations.predict import FUSED_ERROR, error_of_rows
from ..tables.csv_rows import MeasuredError, tables_of
from ..tables.exchanges import PATTERN_OF, PATTERNS, ExchangeRow, exchange_rows
from ..tables.own_rows import OwnRows, own_rows
from ..validate.report import kept_rows
from .fitting import Constant, put_all
from .implementation_fit import (
    EXCHANGE,
    MAX_RATIO,
    MIN_HALF,
    OwnPoint,
    constants_of,
    errors_of,
    fit_exchange,
    fit_method,
    halves,
    implementation_named,
    point_of,
    start_of,
)
from .run import Errors, FittedPart


@dataclass(frozen=True, slots=True)
class FittedMethod:
    """One pattern after its fit; ``assumed`` are constants that are neither shipped nor determined by the rows.

    ``error`` is that of its promises, a share.
    """

    part: FittedPart
    pattern: Pattern
    method: Method
    assumed: tuple[Constant, ...]
    by_group: bool
    shortest_us: float
    error: float


@dataclass(frozen=True, slots=True)
class ImplementationCalibration:
    """The result of ``magus calibrate --implementation``; ``kept`` says what was not fitted or not determined."""

    name: str
    file: str
    gpus: tuple[str, ...]
    methods: tuple[FittedMethod, ...]
    kept: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def title(self) -> str:
        """The first line of the report."""
        return f"{self.name} on {', '.join(self.gpus)}, constants fitted to measured times"

    @property
    def parts(self) -> tuple[FittedPart, ...]:
        """The fitted parts, one for each pattern."""
        return tuple(each.part for each in self.methods)


def calibrate_implementation(path: Path, name: str, progress: Progress = lambda *_: None) -> ImplementationCalibration:
    """Fit the constants of the shipped implementation ``name`` to the rows of a file.

    Half of the rows of a pattern are held out. Where the fitted constants are no better there than those that ship,
    these are kept.

    Raises
    ------
    CompileError
        If no such implementation ships, rows are wrong or too few, or no fitted constants are better.
    MeasuredError
        The same of tables of dispatches and combines, to which exchanges are fitted: a table, or a folder of them.
    """
    implementation = implementation_named(name)
    if any(method.routed is not None for method in implementation.methods):
        progress("calibrate", 0, 0)
        return calibrate_exchange(path, implementation)
    of_library = all(method.is_library for method in implementation.methods)
    progress("compare", 0, 0)
    rows = own_rows(path, name, of_library)
    points = [point for row in rows.rows if (point := point_of(row, name, rows.report)) is not None]
    methods: list[FittedMethod] = []
    kept: list[str] = []
    patterns = [method.pattern for method in implementation.methods]
    for index, pattern in enumerate(patterns):
        progress("calibrate", index, len(patterns))
        own = [point for point in points if point.row.row.part.pattern is pattern]
        if not own:
            continue
        found = _fitted(implementation, pattern, own, path.name)
        if isinstance(found, str):
            kept.append(found)
        else:
            methods.append(found)
            kept += _undetermined(implementation, found)
    if not methods:
        _refuse(rows, kept)
    gpus = tuple(dict.fromkeys(point.row.row.gpu for point in points))
    left_out = tuple(f"{path.name}:{each.span.location.line}: {each.message}" for each in rows.report.diagnostics)
    return ImplementationCalibration(name, path.name, gpus, tuple(methods), tuple(kept), left_out)


def _fitted(
    implementation: Implementation, pattern: Pattern, points: Sequence[OwnPoint], file: str
) -> FittedMethod | str:
    """Return the fitted constants of a pattern, or why those that ship are kept."""
    method = implementation.method(pattern)
    assert method is not None, "a pattern that it does"
    label = f"{implementation.name}, {pattern.value}"
    if len(points) < 2 * MIN_HALF:
        return f"kept: {label}, {_rows(len(points))} where {2 * MIN_HALF} are needed, half of them to fit"
    rows, held, by_group = halves(points)
    start = start_of(method)
    fitted = fit_method(start, rows)
    if not fitted:
        return f"kept: {label}, the rows determine no constant"
    found = put_all(start, fitted)
    before, errors = None if method.missing else _mean(errors_of(method, held)), errors_of(found, held)
    after = _mean(errors)
    if before is not None and after >= before:
        return f"kept: {label}, {before:.1f}% off the {len(held)} held-out rows, the fitted constants {after:.1f}%"
    group = "speedup" if any(point.row.row.serial_us for point in held) else "time"
    part = FittedPart(
        pattern.value, fitted, len(rows), len(points), (file,), (Errors(group, len(held), before, after),)
    )
    determined = {one.constant.name for one in fitted}
    assumed = tuple(each for each in constants_of(method) if each.name in {*method.missing} - determined)
    shortest_us = min(point.row.row.fused_us for point in points)
    family = 0.0 if method.path is TransferPath.LIBRARY else FUSED_ERROR
    return FittedMethod(part, pattern, found, assumed, by_group, shortest_us, error_of_rows(errors, family))


def calibrate_exchange(path: Path, implementation: Implementation) -> ImplementationCalibration:
    """Fit the kernels of an implementation's dispatch and combine to the tables that ``magus validate`` reads.

    Raises
    ------
    MeasuredError
        If a table cannot be read, or nothing is fitted.
    """
    left_out: list[str] = []
    tables = [path] if path.is_file() else tables_of(path, PATTERNS)
    found = [row for row in kept_rows(exchange_rows(tables), left_out) if implementation.name in row.implementations]
    rows = [row for row in found if row.gpu in implementation.gpus]
    if len(rows) < len(found):
        left_out.append(f"{len(found) - len(rows):,} rows of GPUs that {implementation.name} is not for")
    results = [_fitted_exchange(method, rows, path.name, left_out) for method in implementation.methods]
    methods = tuple(each for each in results if isinstance(each, FittedMethod))
    kept = tuple(each for each in results if isinstance(each, str))
    if not methods:
        raise MeasuredError("; ".join([f"{path}: {', '.join(kept)}", *left_out[:3]]))
    gpus = tuple(dict.fromkeys(row.gpu for row in rows))
    return ImplementationCalibration(implementation.name, path.name, gpus, methods, kept, tuple(left_out))


def _fitted_exchange(method: Method, rows: Sequence[ExchangeRow], file: str, left_out: list[str]) -> FittedMethod | str:
    """Return the fitted constants of a pattern, or why those that ship are kept; every second row is held out."""
    kernel, own = method.routed, list[ExchangeRow]()
    assert kernel is not None, "both patterns of an exchange have one"
    for row in rows:
        if PATTERN_OF[row.phase] is method.pattern and row.is_of(kernel):
            if 1 / MAX_RATIO < row.time_us / row.us(kernel) < MAX_RATIO:
                own.append(row)
            else:
                left_out.append(f"{row.label}: {row.time_us:,.4g} us is no time of a {row.phase}, as in another unit")
    own.sort(key=lambda row: (row.time_us, row.label))
    constants = tuple(each for each in EXCHANGE if each.of(method) > 0)
    fit_to, held = own[::2], own[1::2]
    if len(fit_to) < len(constants) or not held:
        return f"kept: {method.pattern.value}, {_rows(len(fit_to))} to fit {len(constants)} constants"

    def errors(by: Method) -> list[float]:
        return [abs(row.us(by.routed) / row.time_us - 1) for row in held if by.routed]

    fitted = fit_exchange(constants, method, fit_to)
    new, before = put_all(method, fitted), _mean(errors(method))
    after = _mean(errors(new))
    if after >= before:
        return f"kept: {method.pattern.value}, {before:.1f}% off the held-out rows, the fitted constants {after:.1f}%"
    means = (Errors("time", len(held), before, after),)
    part = FittedPart(method.pattern.value, fitted, len(fit_to), len(own), (file,), means)
    return FittedMethod(part, method.pattern, new, (), False, own[0].time_us, error_of_rows(errors(new)))


def _mean(errors: Sequence[float]) -> float:
    """The mean of relative errors in percent."""
    return float(100 * np.mean(errors))


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _undetermined(implementation: Implementation, found: FittedMethod) -> Iterator[str]:
    """Yield a text for each constant that the rows do not determine."""
    shipped = implementation.method(found.pattern)
    assert shipped is not None
    determined = {one.constant.name for one in found.part.constants}
    for constant in constants_of(shipped):
        if constant.name not in determined:
            value = constant.written(constant.of(found.method))
            how = "assumed" if constant in found.assumed else "kept"
            yield f"{how}: {found.pattern.value} {constant.name} {value}, the rows do not determine it"


def _refuse(rows: OwnRows, kept: Sequence[str]) -> None:
    """Report that nothing was fitted, after the warnings of rows that were left out."""
    worse = any("held-out" in each for each in kept)
    message = "; ".join(each.removeprefix("kept: ") for each in kept) or "no row of it can be compared"
    code = Code.MGS532 if worse else Code.MGS531
    hint = "the constants that ship are kept" if worse else "half of the rows are held out, to measure the error"
    raise CompileError([*rows.report.diagnostics, Diagnostic(code, message, rows.whole, hint)])


def implementation_text(calibration: ImplementationCalibration) -> str:
    """Return the file in the canonical form of ``magus fmt``."""
    return format_text("\n".join(_lines(calibration)) + "\n")


def implementation_command(calibration: ImplementationCalibration) -> str:
    """Return the command that writes the file again, without folders."""
    return f"magus calibrate --implementation {calibration.name} --data {_file(calibration)}"


def _file(calibration: ImplementationCalibration) -> str:
    """Return the name of the rows' file as a text of the language can hold it."""
    return printable(calibration.file).replace('"', "'")


def _lines(calibration: ImplementationCalibration) -> Iterator[str]:
    name = calibration.name
    yield from ("mgs 1", "")
    yield f"# {name} on {', '.join(calibration.gpus)}, refitted to measured times by:"
    yield f"# {implementation_command(calibration)}"
    yield f"# Everything that is not said here is that of implementations/{name}."
    yield from ("", f'use "implementations/{name}" as shipped', "")
    yield f"implementation {name}_calibrated extends shipped.{name} {{"
    yield f"gpus {', '.join(calibration.gpus)}"
    for method in calibration.methods:
        yield ""
        yield from _block(calibration, method)
    yield "}"


def _block(calibration: ImplementationCalibration, method: FittedMethod) -> Iterator[str]:
    """Yield the block of a pattern: the fitted constants, those that are assumed, and the error."""
    part, file = method.part, _file(calibration)
    source = f"{file}: {part.rows} of {part.of_rows} rows, {'whole groups' if method.by_group else 'every second one'}"
    yield f"{method.pattern.value.replace('+', '_').lower()} {{"
    yield f'source fitted "{source}"'
    for fitted in part.constants:
        note = f' @fitted "{source}; at a bound"' if fitted.at_bound else ""
        yield f"{fitted.constant.name} {fitted.text}{note}"
    for constant in method.assumed:
        value = constant.written(constant.of(method.method))
        yield f'{constant.name} {value} @assumed "the rows of {file} do not determine it"'
    (errors,) = part.errors
    before = "not known" if errors.before is None else f"{errors.before:.1f} %"
    held = (
        f"{errors.rows} held-out rows of {file}; their mean of {errors.group} is {errors.after:.1f} %, {before} before"
    )
    yield f'error {100 * method.error:.1f} % @measured "{held}"'
    yield f'shortest {method.shortest_us:.6g} us @measured "{file}"'
    yield "}"
