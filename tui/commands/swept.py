"""What a sweep has found, in the form that was requested; and how the command ends."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...advisor.policy.build import Sweep
from ...advisor.policy.workload_sweep import WorkloadSweep
from ...advisor.sensitivity.several import ParamAxis, values_around
from ...compiler.ir import JsonObject, Scenario
from ...compiler.pipeline import compile_text
from ..exit_codes import Exit
from ..text.door import print_json, put, put_text, say
from .inputs import ScenarioInput, is_stdin, source_of


@dataclass(frozen=True, slots=True)
class SweepForm:
    """As JSON, as CSV, or for people."""

    as_json: bool
    as_csv: bool


def put_sweep(
    sweep: Sweep | WorkloadSweep,
    num_points: int,
    form: SweepForm,
    text: Callable[[], str],
    rows: Callable[[], Sequence[JsonObject]],
    *,
    some_failed: bool,
) -> Exit:
    """Print a sweep of ``num_points`` as ``text`` or as ``rows``; ``some_failed``: other points did not compile."""
    for settings, reason in sweep.failed:
        say(f"magus: with {', '.join(f'{name} = {text}' for name, text in settings)}: {reason}")
    if form.as_json:
        print_json(sweep.document())
    elif not sweep.points:
        return Exit.NOT_FEASIBLE
    elif form.as_csv:
        put_text(_csv(rows()))
    else:
        put(text())
    if sweep.interrupted:
        say(f"magus: stopped early: {len(sweep.points)} of {num_points} points, no rules")
        return Exit.INTERRUPTED
    if sweep.failed:
        return Exit.NOT_FEASIBLE
    return Exit.INPUT if some_failed else Exit.DONE


def _csv(rows: Sequence[JsonObject]) -> str:
    columns = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def axis_over(source: ScenarioInput, name: str | None) -> ParamAxis | None:
    """Return the values of a parameter, and the scenario at each; None where there is none, which is said.

    Without a ``name`` it is the only parameter with a whole number.

    Raises
    ------
    CompileError
        If the file has an error.
    """
    if is_stdin(source.file):
        say("magus: --threshold of several ops reads the file again: give its name")
        return None
    text = source_of(source.file)
    params = compile_text(text.text, text.path, source.settings).params
    whole = {each.name: each for each in params if each.value.isdecimal()}
    if name not in whole and (name is not None or len(whole) != 1):
        names = f"one of {', '.join(whole)}" if whole else "but the file has no parameter with a whole number"
        say(f"magus: --threshold of several ops is about a parameter: name it with --over, {names}")
        return None
    param = whole[name] if name is not None else next(iter(whole.values()))
    others = tuple((key, value) for key, value in source.settings if key != param.name)

    def at(value: int) -> Scenario:
        return compile_text(text.text, text.path, (*others, (param.name, str(value)))).scenario(source.workload)

    listed = tuple(sorted(int(each) for each in param.choices if each.isdecimal()))
    now = int(param.value)
    return ParamAxis(param.name, now, listed or values_around(now), at)
