"""A step of a run as plain text and as JSON: as measured, as simulated, as it could be."""

from collections.abc import Iterator
from typing import Any

from ...advisor.candidates.advice import Advice
from ...advisor.measured.traces.replay import AS_IT_RAN, KindTimes, ReplayedStep
from ...compiler.ir import TICKS_PER_US
from ...compiler.text.units import us_text
from ...simcore.figures.result import Result
from .door import bullet, table_lines, wrapped


def replay_text(step: ReplayedStep, result: Result, advice: Advice | None) -> str:
    """Return the times of a step, and where those of the simulation differ from the measured ones."""
    simulated = result.makespan_ticks / TICKS_PER_US
    rows: list[tuple[str, ...]] = [
        ("as measured", us_text(step.measured_us), "", f"{us_text(step.idle_us)} without a kernel"),
        ("as simulated", us_text(simulated), _error(simulated, step.measured_us), "in the order in which it ran"),
    ]
    if advice is not None:
        possible, schedule = _possible(simulated, advice)
        how = "as it ran: nothing recommended is faster" if schedule == AS_IT_RAN else f"by {schedule}, as simulated"
        rows.append(("as it could be", us_text(possible), f"{simulated / possible:.2f}x", how))
    lines = [*wrapped(step.title), "", *_table(rows), ""]
    kinds = [_kind_row(each) for each in step.kinds(result)]
    lines += _table([("kernels", "count", "measured", "simulated", "error"), *kinds])
    if advice is not None:
        lines += ["", *(line for reason in advice.reasons for line in bullet("-", reason))]
    lines += ["", *(line for doubt in step.doubts for line in bullet("!", doubt))]
    return "\n".join(lines) + "\n"


def replay_document(step: ReplayedStep, result: Result, advice: Advice | None) -> dict[str, Any]:
    """Return the document of ``magus replay --json``; what was not computed is null."""
    simulated = result.makespan_ticks / TICKS_PER_US
    possible, schedule = (None, None) if advice is None else _possible(simulated, advice)
    return {
        "schema": "magus-replay/1",
        "trace": step.title,
        "measured_us": step.measured_us,
        "simulated_us": simulated,
        "possible_us": possible,
        "schedule": schedule,
        "idle_us": step.idle_us,
        "kernels": [
            {
                "kind": each.kind,
                "count": each.count,
                "measured_us": each.measured_us,
                "simulated_us": each.simulated_us,
            }
            for each in step.kinds(result)
        ],
        "doubts": list(step.doubts),
    }


def _possible(simulated: float, advice: Advice) -> tuple[float, str]:
    """The shorter time in us of the recommended schedule and of the order in which the step ran, and its name.

    Kernels of a run share SMs, to which no profile is fitted, so that its order is never recommended.
    """
    return min((simulated, AS_IT_RAN), (advice.recommended.best_us, advice.recommended.expression))


def _error(simulated: float, measured: float) -> str:
    return f"{simulated / measured - 1:+.1%}" if measured else ""


def _kind_row(each: KindTimes) -> tuple[str, ...]:
    return (
        each.kind,
        str(each.count),
        us_text(each.measured_us),
        us_text(each.simulated_us),
        _error(each.simulated_us, each.measured_us),
    )


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table whose first column is words, and so is what stands behind four cells."""
    return table_lines([(row[:3], row[3]) if len(row) == 4 else (row, "") for row in rows], (0,))
