"""The implementation that ``magus calibrate --implementation`` writes: one that extends the shipped one."""

from collections.abc import Iterator

from ....compiler import format_text
from ....compiler.text.printable import printable
from .implementation_run import FittedMethod, ImplementationCalibration


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
    held = f"{errors.rows} held-out rows of {file}, mean of {errors.group}; {before} before"
    yield f'error {errors.after:.1f} % @measured "{held}"'
    yield f'shortest {method.shortest_us:.6g} us @measured "{file}"'
    yield "}"
