"""The answers for all workloads of a file, as one table with a total."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...advisor import Advice
from ...advisor.answer.export import advice_document
from ...advisor.candidates.advice import short_names
from ...advisor.candidates.candidate import Candidate
from ...compiler.ir import JsonObject, Scenario
from ..exit_codes import Exit
from .door import VERDICTS, hanging, table_lines, wrapped

SCHEMA = "magus-advice-list/1"
_HEAD = ("workload", "verdict", "us", "baseline", "gain")


@dataclass(frozen=True, slots=True)
class WorkloadAnswer:
    """The advice for one workload, or ``reason``, why there is none, with the exit code of that."""

    scenario: Scenario
    advice: Advice | None
    reason: str = ""
    exit_code: Exit = Exit.DONE


def several_text(answers: Sequence[WorkloadAnswer], source: Sequence[str]) -> str:
    """Return the table; ``source`` are the words that name the file on the command line."""
    return "\n".join(_lines(answers, source))


def several_document(answers: Sequence[WorkloadAnswer]) -> JsonObject:
    """Return the advice of each workload, and the sums of their times."""
    us, baseline_us = _sums(answers)
    return {
        "schema": SCHEMA,
        "workloads": [advice_document(answer.advice) for answer in answers if answer.advice is not None],
        "without_advice": {each.scenario.title: each.reason for each in answers if each.advice is None},
        "total": {"us": us, "baseline_us": baseline_us, "gain": baseline_us / us if us else None},
    }


def _sums(answers: Sequence[WorkloadAnswer]) -> tuple[float, float]:
    """Return the times of all workloads one after the other, recommended and by the baseline."""
    known = [answer.advice for answer in answers if answer.advice is not None]
    return sum(one.recommended.best_us for one in known), sum(one.serial.best_us for one in known)


def _time(candidate: Candidate) -> str:
    estimated = candidate.several is not None and candidate.is_estimate
    return f"{'~' if estimated else ''}{candidate.best_us:.1f}"


def _lines(answers: Sequence[WorkloadAnswer], source: Sequence[str]) -> Iterator[str]:
    known = [(answer.scenario, answer.advice) for answer in answers if answer.advice is not None]
    names = short_names((advice.recommended.expression, advice.recommended.choice) for _, advice in known)
    rows = [_row(scenario, advice, names) for scenario, advice in known]
    us, baseline_us = _sums(answers)
    if len(rows) > 1:
        rows.append((("all, in turn", "", f"{us:.1f}", f"{baseline_us:.1f}", f"{baseline_us / us:.2f}x"), ""))
    yield from table_lines([(_HEAD, "schedule"), *rows], words=(0, 1))
    for answer in answers:
        if answer.advice is None:
            yield from hanging(f"- {answer.scenario.title}: {answer.reason}", 2)
    yield ""
    first = next((answer for answer in answers if answer.advice is not None), answers[0])
    more = shlex.join(["magus", "advise", *source, "--workload", first.scenario.title])
    estimated = ", ~ estimated" if any("~" in cell for cells, _ in rows for cell in cells) else ""
    yield from wrapped(
        f"Each workload alone, in us{estimated}. --workload says more: the schedule in full, why, and what it rests on."
    )
    yield f"  {more}"


def _row(scenario: Scenario, advice: Advice, names: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    best, serial = advice.recommended, advice.serial
    marks = " (stopped early)" if advice.interrupted else ""
    cells = (
        scenario.title,
        VERDICTS[advice.verdict.value],
        _time(best),
        _time(serial),
        f"{advice.speedup:.2f}x",
    )
    return cells, names.get(best.expression, best.expression) + marks
