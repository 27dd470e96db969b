"""A step of a run as plain text and as JSON: as measured, as simulated, as it could be."""

from collections.abc import Iterator, Sequence
from typing import Any

from ...advisor.candidates.advice import Advice
from ...advisor.measured.traces.replay import AS_IT_RAN, KindTimes, ReplayedStep
from ...compiler.ir import TICKS_PER_US
from ...compiler.text.units import us_text
from ...simcore.figures.result import Result
from .door import bullet, table_lines, wrapped

MAX_REASONS = 6


def replay_text(step: ReplayedStep, results: Sequence[Result], advices: Sequence[Advice]) -> str:
    """Return the times of a step, and where those of the simulation differ from the measured ones.

    ``results`` and ``advices`` are those of its parts; parts without advice stay as they ran, and there may be none.
    """
    simulated = _simulated_us(step, results)
    rows: list[tuple[str, ...]] = [
        ("as measured", us_text(step.measured_us), "", f"{us_text(step.idle_us)} without a kernel{_waited(step)}"),
        ("as simulated", us_text(simulated), _error(simulated, step.measured_us), "in the order in which it ran"),
    ]
    if advices:
        possible, schedules = _possible(step, results, advices)
        rows.append(("as it could be", us_text(possible), f"{simulated / possible:.2f}x", _how(schedules)))
    lines = [*wrapped(step.title), "", *_table(rows), ""]
    kinds = [_kind_row(each) for each in step.kinds(results)]
    lines += _table([("kernels", "count", "measured", "simulated", "error"), *kinds])
    if advices:
        reasons = dict.fromkeys(reason for advice in advices for reason in advice.reasons)
        lines += ["", *(line for reason in list(reasons)[:MAX_REASONS] for line in bullet("-", reason))]
    lines += ["", *(line for doubt in step.doubts for line in bullet("!", doubt))]
    return "\n".join(lines) + "\n"


def _waited(step: ReplayedStep) -> str:
    return f", {us_text(step.waited_us)} waiting for ranks" if step.waited_us else ""


def _how(schedules: Sequence[str]) -> str:
    """By which schedules parts are as fast as they can be."""
    faster = [each for each in schedules if each != AS_IT_RAN]
    if not faster:
        return "as it ran: nothing recommended is faster"
    if len(schedules) == 1:
        return f"by {faster[0]}, as simulated"
    return f"{len(faster)} of {len(schedules)} parts by schedules that are faster, as simulated"


def replay_document(step: ReplayedStep, results: Sequence[Result], advices: Sequence[Advice]) -> dict[str, Any]:
    """Return the document of ``magus replay --json``; what was not computed is null."""
    possible, schedules = _possible(step, results, advices) if advices else (None, [None] * len(step.parts))
    return {
        "schema": "magus-replay/1",
        "trace": step.title,
        "measured_us": step.measured_us,
        "simulated_us": _simulated_us(step, results),
        "possible_us": possible,
        "parts": [
            {
                "workload": part.scenario.name,
                "measured_us": part.measured_us,
                "simulated_us": result.makespan_us,
                "schedule": schedule,
            }
            for part, result, schedule in zip(step.parts, results, schedules, strict=True)
        ],
        "idle_us": step.idle_us,
        "waited_us": step.waited_us,
        "kernels": [
            {
                "kind": each.kind,
                "count": each.count,
                "measured_us": each.measured_us,
                "simulated_us": each.simulated_us,
            }
            for each in step.kinds(results)
        ],
        "doubts": list(step.doubts),
    }


def _simulated_us(step: ReplayedStep, results: Sequence[Result]) -> float:
    return step.total_us([each.makespan_ticks / TICKS_PER_US for each in results])


def _possible(step: ReplayedStep, results: Sequence[Result], advices: Sequence[Advice]) -> tuple[float, list[str]]:
    """The time in us if each part takes the shorter of what is recommended and of how it ran, and the names of both.

    Kernels of a run share SMs, to which no profile is fitted, so that its order is never recommended.
    """
    choices = [(each.makespan_ticks / TICKS_PER_US, AS_IT_RAN) for each in results]
    for place, advice in enumerate(advices):
        choices[place] = min(choices[place], (advice.recommended.best_us, advice.recommended.expression))
    return step.total_us([time for time, _ in choices]), [schedule for _, schedule in choices]


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
