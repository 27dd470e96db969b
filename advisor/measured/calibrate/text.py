"""The result of ``magus calibrate`` as text for a terminal of 80 columns and as a document."""

import math
import textwrap
from collections.abc import Iterator

from ....compiler.ir import JsonObject
from .fitting import Fitted
from .implementation_run import ImplementationCalibration, implementation_command, implementation_text
from .run import Calibration, FittedPart, command, profile_text

SCHEMA = "magus-calibrate/1"
COLUMNS = 80
MAX_LEFT_OUT = 1000
MAX_LEFT_OUT_LINES = 12


def calibration_text(calibration: Calibration | ImplementationCalibration) -> str:
    """Return the report for a terminal."""
    return "\n".join(_lines(calibration))


def calibration_document(calibration: Calibration | ImplementationCalibration) -> JsonObject:
    """Return the document of ``magus calibrate --json``."""
    return {
        "schema": SCHEMA,
        **_subject(calibration),
        "parts": [_part_document(part) for part in calibration.parts],
        "kept": list(calibration.kept),
        "left_out": list(calibration.left_out[:MAX_LEFT_OUT]),
        "left_out_count": len(calibration.left_out),
        "profile": calibrated_text(calibration),
    }


def calibrated_text(calibration: Calibration | ImplementationCalibration) -> str:
    """Return the file in the language: a GPU or an implementation that extends the one that ships."""
    if isinstance(calibration, Calibration):
        return profile_text(calibration)
    return implementation_text(calibration)


def _subject(calibration: Calibration | ImplementationCalibration) -> JsonObject:
    if isinstance(calibration, Calibration):
        return {
            "command": command(calibration),
            "gpu": calibration.request.gpu,
            "extends": calibration.base,
        }
    return {
        "command": implementation_command(calibration),
        "implementation": calibration.name,
        "gpus": list(calibration.gpus),
        "extends": calibration.name,
    }


def _lines(calibration: Calibration | ImplementationCalibration) -> Iterator[str]:
    held_out = "a fifth of all held out" if isinstance(calibration, Calibration) else "the others held out"
    yield calibration.title
    for part in calibration.parts:
        yield from ("", f"{part.name}: {part.rows:,} of {part.of_rows:,} rows, {held_out}")
        yield from _wrapped(f"in {', '.join(part.files)}")
        yield f"  {'MAPE on held-out rows, percent':<36}{'rows':>8}{'before':>10}{'after':>10}"
        for errors in part.errors:
            before = "-" if errors.before is None else f"{errors.before:.1f}"
            yield f"  {errors.group:<36}{errors.rows:>8,}{before:>10}{errors.after:>10.1f}"
        yield f"  {'constant':<36}{'before':>14}{'after':>14}"
        for fitted in part.constants:
            start, end = fitted.constant.written(fitted.before), fitted.text
            yield f"  {fitted.constant.path:<36}{start:>14}{end:>14}{_mark(fitted)}"
    notes = [*calibration.kept, *_weak_lines(calibration)]
    if notes:
        yield ""
        for note in notes:
            yield from _wrapped(note)
    if calibration.left_out:
        yield from ("", "Not used:")
        for reason in calibration.left_out[:MAX_LEFT_OUT_LINES]:
            yield from _wrapped(reason)
        more = len(calibration.left_out) - MAX_LEFT_OUT_LINES
        if more > 0:
            yield f"  and {more:,} more, see --json"


def _mark(fitted: Fitted) -> str:
    return " !" if fitted.weak else ""


def _weak_lines(calibration: Calibration | ImplementationCalibration) -> Iterator[str]:
    for part in calibration.parts:
        for fitted in part.constants:
            if fitted.at_bound:
                yield f"! {fitted.constant.path} is at a bound: {fitted.text}"
            elif fitted.weak:
                yield f"! {fitted.constant.path} is hardly determined: standard error {_percent(fitted.relative_error)}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if math.isfinite(share) and share < 10 else "above 1000%"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, initial_indent="  ", subsequent_indent="    ")


def _part_document(part: FittedPart) -> JsonObject:
    return {
        "name": part.name,
        "files": list(part.files),
        "rows_fitted": part.rows,
        "rows_to_fit": part.of_rows,
        "held_out": [
            {
                "group": errors.group,
                "rows": errors.rows,
                "mape_before_percent": errors.before,
                "mape_after_percent": errors.after,
            }
            for errors in part.errors
        ],
        "constants": [_constant_document(fitted) for fitted in part.constants],
    }


def _constant_document(fitted: Fitted) -> JsonObject:
    return {
        "path": fitted.constant.path,
        "before": fitted.constant.written(fitted.before),
        "after": fitted.text,
        "relative_standard_error": fitted.relative_error if math.isfinite(fitted.relative_error) else None,
        "at_bound": fitted.at_bound,
        "weak": fitted.weak,
    }
