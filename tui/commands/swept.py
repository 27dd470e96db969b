"""What a sweep has found, of pairs or of a graph, in the form that was asked for; and how the command ends."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...advisor.policy.graph_sweep import GraphSweep
from ...advisor.policy.sweep import Sweep
from ...compiler.ir import JsonObject
from ..exit_codes import Exit
from ..text.door import print_json, put, put_text, say


@dataclass(frozen=True, slots=True)
class SweepForm:
    """As JSON, as CSV, or for people."""

    as_json: bool
    as_csv: bool


def put_sweep(
    sweep: Sweep | GraphSweep,
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
