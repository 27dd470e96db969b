"""``magus export``: the rules of a sweep, or times of its kernels, as the file of a runtime."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....advisor.targets import SCENARIO_TARGETS, TARGETS, Refused, Target
from ....compiler.codes import Code
from ....compiler.ir import GraphScenario, Rejection, Settings
from ....compiler.pipeline import compile_text
from ...exit_codes import Exit
from ...text.door import put_text, say
from ..console import save, say_rejection
from ..inputs import source_of
from ..running import run_command
from .export_several import graph_file
from .sweep import SweepRequest, subjects_of, sweep_of

_ALL: tuple[Target[Any], ...] = (*TARGETS, *SCENARIO_TARGETS)
NAMES = tuple(target.name for target in _ALL)


def export_file(request: SweepRequest, target_name: str, options: Mapping[str, str], out: Path | None) -> Exit:
    """Write the rules or times for the points of ``request`` to ``out`` or stdout, as the target of that name."""
    target = next(each for each in _ALL if each.name == target_name)

    def action() -> Exit:
        try:
            subjects, failed = subjects_of(request)
            if subjects[0][1].pair is None:
                text = graph_file(target_name, options, subjects, request.advice, request.tolerance, _at(request))
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


def _at(request: SweepRequest) -> Callable[[Settings], GraphScenario]:
    """The graph of a request under settings; ``CompileError`` where it cannot be."""
    source = source_of(request.file)

    def graph(settings: Settings) -> GraphScenario:
        return compile_text(source.text, source.path, settings).scenario(request.workload)

    return graph


def _text(
    request: SweepRequest, points: Sequence[tuple[Settings, GraphScenario]], name: str, options: Mapping[str, str]
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
