"""``magus export`` and ``distill``: a sweep's rules or times as the file of a runtime, and a small rule."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ....advisor import Request, enumerate_space, lower_bound
from ....advisor.answer.export import schedules_document, space_document
from ....advisor.bounds.lower_bound import workload_bound
from ....advisor.policy.distill import distilled, rule_document, rule_python, summary
from ....advisor.targets import SCENARIO_TARGETS, TARGETS, Refused, Target
from ....compiler.codes import Code
from ....compiler.ir import Rejection, Scenario, Settings
from ....compiler.request.request import KERNEL_PATTERNS, one_of
from ...text.door import Exit, interruptible, put_answer, say
from ...text.progress import progress_line
from ...text.sweep import space_text
from ..inputs import ScenarioInput, deliver
from ..running import command
from .sweep import SweepRequest, say_failed, subjects_of, sweep_of

# ``magus schedules``: the feasible space in its canonical order, or the ops and their schedules; and the bound.


@command
def list_schedules(source: ScenarioInput, *, limit: int | None, as_json: bool) -> Exit:
    """Print at most ``limit`` feasible schedules and the bound on all of them; of several ops those of the file."""
    question = source.scenario()
    case, space, cut_short = question.only_case, None, False
    if case is None:
        bound = workload_bound(question)
        document = schedules_document(question, bound)
    else:
        with interruptible() as stopped:
            space = enumerate_space(case, limit=limit, should_stop=stopped)
            cut_short = stopped()
        bound = lower_bound(case)
        document = space_document(case, space, bound)
    put_answer(space_text(question, space, bound), document, as_json=as_json)
    return Exit.INTERRUPTED if cut_short else Exit.DONE


_ALL: tuple[Target[Any], ...] = (*TARGETS, *SCENARIO_TARGETS)
NAMES = tuple(target.name for target in _ALL)


@command
def export_file(request: SweepRequest, target_name: str, options: Mapping[str, str], out: Path | None) -> Exit:
    """Write the rules or times for the points of ``request`` to ``out`` or stdout, as the target of that name."""
    target = next(each for each in _ALL if each.name == target_name)
    subjects, failed = subjects_of(request)
    text = _text(request, subjects, target_name, options)
    if text is None:
        say("magus: stopped early: nothing is written, since a table with gaps is none")
        return Exit.INTERRUPTED
    done = deliver(text, out, target.about)
    return Exit.INPUT if failed else done


def _text(
    request: SweepRequest, points: Sequence[tuple[Settings, Scenario]], name: str, options: Mapping[str, str]
) -> str | None:
    """Return the file; None if the sweep for it was stopped.

    Raises
    ------
    Refused
        If the format cannot say it, or those who worked on the sweep were lost.
    """
    for of_scenarios in SCENARIO_TARGETS:
        if of_scenarios.name == name:
            return of_scenarios.text([case for _, scenario in points for case in scenario.cases], options)
    target, several = next(each for each in TARGETS if each.name == name), points[0][1].only_case is None
    target.settled(options, several=several)  # before anything is simulated
    sweep = sweep_of(request, points)
    say_failed(sweep)
    if sweep.lost is not None:
        raise Refused(sweep.lost)
    if sweep.interrupted:
        return None
    if not sweep.points:
        raise Refused(Rejection(Code.MGS510, "no schedule is feasible at any point", "sweep others"))
    if sweep.policy is None:
        hint = "a table is about one size: sweep the rows of one GEMM, or the bytes of one collective"
        raise Refused(Rejection(Code.MGS520, "these points have no size that varies alone", hint))
    return target.text(sweep.policy, options)


OVERLAPPING = tuple(pattern for pattern in KERNEL_PATTERNS if pattern.overlaps)
ANY = 1024
"""A size for each rank, so that all can be divided: the rule is for all sizes."""


@command
def write_rule(
    question: dict[str, object],
    num_ranks: int,
    *,
    num_shapes: int,
    seed: int,
    static: bool,
    as_json: bool,
    out: Path | None,
) -> Exit:
    """Write the rule for the fields of a request in ``question`` to ``out`` or stdout, and say how good it is.

    It is FiCCO's if it is to be ``static``.
    """
    one_of("pattern", question["pattern"], [pattern.value for pattern in OVERLAPPING])
    sizes = dict.fromkeys("mnk", ANY * num_ranks)
    request = Request(**question, ranks=num_ranks, **sizes)  # type: ignore[arg-type]
    with progress_line() as progress:
        reported = partial(progress, "distill")
        rule = distilled(request, num_shapes=num_shapes, seed=seed, static=static, progress=reported)
    text = json.dumps(rule_document(rule), indent=2) + "\n" if as_json else rule_python(rule)
    if out is None:
        say(summary(rule))
    return deliver(text, out, summary(rule))
