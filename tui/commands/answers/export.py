"""``magus export`` and ``distill``: a sweep's rules or times as the file of a runtime, and a small rule."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....advisor import AdviceOptions, Request, RequestError
from ....advisor.policy.distill import distilled, rule_document, rule_python, summary
from ....advisor.policy.layer_rules import SettingAxis, across, policy_of
from ....advisor.policy.workload_sweep import WorkloadSweep
from ....advisor.targets import SCENARIO_TARGETS, TARGETS, Refused, Target
from ....advisor.targets.policy import POLICY
from ....compiler.codes import Code
from ....compiler.ir import Cancelled, Rejection, Scenario, Settings
from ....compiler.pipeline import compile_text
from ....compiler.request.request import KERNEL_PATTERNS, one_of
from ...exit_codes import Exit
from ...text.door import put_text, say
from ...text.progress import progress_line
from ..console import save, say_rejection, say_request_error
from ..inputs import source_of
from ..interrupts import interruptible
from ..running import run_command
from .sweep import SweepRequest, counting, subjects_of, sweep_of, swept_jointly

_ALL: tuple[Target[Any], ...] = (*TARGETS, *SCENARIO_TARGETS)
NAMES = tuple(target.name for target in _ALL)


def export_file(request: SweepRequest, target_name: str, options: Mapping[str, str], out: Path | None) -> Exit:
    """Write the rules or times for the points of ``request`` to ``out`` or stdout, as the target of that name."""
    target = next(each for each in _ALL if each.name == target_name)

    def action() -> Exit:
        try:
            subjects, failed = subjects_of(request)
            if subjects[0][1].only_case is None:
                text = _file_of_several(target_name, options, subjects, request.advice, request.tolerance, _at(request))
            else:
                target.settled(options)  # before anything is simulated
                text = _text(request, subjects, target_name, options)
        except Refused as error:
            say_rejection(error.rejection)
            return Exit.INPUT
        if text is None:
            say("magus: stopped early: nothing is written, since a table with gaps is none")
            return Exit.INTERRUPTED
        if out is not None:
            done = save(out, text, f"{out}: {target.about}")
            return Exit.INPUT if failed else done
        put_text(text)
        return Exit.INPUT if failed else Exit.DONE

    return run_command(action)


def _at(request: SweepRequest) -> Callable[[Settings], Scenario]:
    """The scenario of a request under settings; ``CompileError`` where it cannot be."""
    source = source_of(request.file)

    def scenario_at(settings: Settings) -> Scenario:
        return compile_text(source.text, source.path, settings).scenario(request.workload)

    return scenario_at


def _text(
    request: SweepRequest, points: Sequence[tuple[Settings, Scenario]], name: str, options: Mapping[str, str]
) -> str | None:
    """Return the file; None if the sweep for it was stopped."""
    for of_scenarios in SCENARIO_TARGETS:
        if of_scenarios.name == name:
            return of_scenarios.text([scenario.case for _, scenario in points], options)
    target = next(each for each in TARGETS if each.name == name)
    sweep = sweep_of(request, points)
    if sweep.interrupted:
        return None
    if sweep.policy is None:
        hint = "a table is about one size: sweep the rows of one GEMM, or the bytes of one collective"
        raise Refused(Rejection(Code.MGS520, "these points have no size that varies alone", hint))
    return target.text(sweep.policy, options)


def _file_of_several(
    target: str,
    options: Mapping[str, str],
    points: Sequence[tuple[Settings, Scenario]],
    advice: AdviceOptions,
    tolerance: float,
    at: Callable[[Settings], Scenario],
) -> str | None:
    """Return the file of ``target`` for ``points``; ``at`` gives the workload under other settings. None if stopped.

    Raises
    ------
    Refused
        If the format cannot say it.
    """
    for of_scenarios in SCENARIO_TARGETS:
        if of_scenarios.name == target:
            return of_scenarios.text([each for _, workload in points for each in workload.cases], options)
    writer = next(each for each in TARGETS if each.name == target)
    writer.settled(options, several=True)  # before anything is simulated
    with interruptible() as stopped:
        sweep = swept_jointly(advice, tolerance, points, stopped)
        for settings, reason in sweep.failed:
            say(f"magus: with {', '.join(f'{name} = {text}' for name, text in settings)}: {reason}")
        if sweep.interrupted:
            return None
        if not sweep.points:
            raise Refused(Rejection(Code.MGS510, "no schedule is feasible at any point", "sweep others"))
        if writer is not POLICY:
            return writer.text(sweep, options)
        try:
            with progress_line() as progress:
                axis = _axis(sweep, at)
                return writer.text(policy_of(sweep, axis, counting(across(stopped), progress)), options)
        except Cancelled:
            return None


def _axis(sweep: WorkloadSweep, at: Callable[[Settings], Scenario]) -> SettingAxis:
    """The parameter that varies, in whole numbers.

    Raises
    ------
    Refused
        If none does, or several, or a point is missing.
    """
    first = sweep.points[0].settings
    varied = [name for name, text in first if any(dict(point.settings)[name] != text for point in sweep.points)]
    whole = len(varied) == 1 and all(dict(point.settings)[varied[0]].isdecimal() for point in sweep.points)
    if not whole or not sweep.rules:
        message = "a table is about one parameter that varies, at points that can all be carried out"
        raise Refused(Rejection(Code.MGS520, message, "--set M=1024..8192"))
    (name,) = varied
    return SettingAxis(name, lambda size: at(tuple((key, str(size) if key == name else text) for key, text in first)))


OVERLAPPING = tuple(pattern for pattern in KERNEL_PATTERNS if pattern.overlaps)
ANY = 1024
"""A size for each rank, so that all can be divided: the rule is for all sizes."""


def write_rule(
    question: dict[str, object], num_ranks: int, *, num_shapes: int, seed: int, as_json: bool, out: Path | None
) -> Exit:
    """Write the rule for the fields of a request in ``question`` to ``out`` or stdout, and say how good it is."""

    def action() -> Exit:
        try:
            one_of("pattern", question["pattern"], [pattern.value for pattern in OVERLAPPING])
            sizes = dict.fromkeys("mnk", ANY * num_ranks)
            request = Request(**question, ranks=num_ranks, **sizes)  # type: ignore[arg-type]
            with progress_line() as progress:
                rule = distilled(
                    request,
                    num_shapes=num_shapes,
                    seed=seed,
                    progress=lambda done, total: progress("distill", done, total),
                )
        except RequestError as error:
            say_request_error(error)
            return Exit.INPUT
        text = json.dumps(rule_document(rule), indent=2) + "\n" if as_json else rule_python(rule)
        if out is not None:
            return save(out, text, f"{out}: {summary(rule)}")
        say(summary(rule))
        put_text(text)
        return Exit.DONE

    return run_command(action)
