"""``magus sweep`` on a graph: joint advice over a grid of parameters, and from which size on which schedule."""

import csv
import io
from collections.abc import Sequence
from itertools import count

from ....advisor import AdviceOptions, GraphAdvice, recommend_graph
from ....advisor.policy.graph_sweep import GraphSweep, Simulate, graph_swept
from ....advisor.policy.layer_sizes import across
from ....compiler import Scenario
from ....compiler.ir import Cancelled, GraphChoice, GraphScenario, Progress, Settings, ShouldStop
from ...exit_codes import Exit
from ...text.door import print_json, put, put_text, say
from ...text.graph_sweep import graph_sweep_text
from ...text.progress import progress_line
from ..interrupts import interruptible


def sweep_graph(
    advice: AdviceOptions,
    tolerance: float,
    subjects: Sequence[tuple[Settings, Scenario | GraphScenario]],
    varied: tuple[str, ...],
    as_json: bool,
    as_csv: bool,
    some_failed: bool,
) -> Exit:
    """Print the advice for every point of a grid."""
    points = [(settings, one) for settings, one in subjects if isinstance(one, GraphScenario)]
    with interruptible() as stopped:
        sweep = swept(advice, tolerance, points, stopped)
    for settings, reason in sweep.failed:
        say(f"magus: with {', '.join(f'{name} = {text}' for name, text in settings)}: {reason}")
    if as_json:
        print_json(sweep.document())
    elif not sweep.points:
        return Exit.NOT_FEASIBLE
    elif as_csv:
        put_text(_csv(sweep))
    else:
        put(graph_sweep_text(sweep, varied or tuple(name for name, _ in points[0][0])))
    if sweep.interrupted:
        say(f"magus: stopped early: {len(sweep.points)} of {len(points)} points, no rules")
        return Exit.INTERRUPTED
    if sweep.failed:
        return Exit.NOT_FEASIBLE
    return Exit.INPUT if some_failed else Exit.DONE


def swept(
    options: AdviceOptions, tolerance: float, points: Sequence[tuple[Settings, GraphScenario]], stopped: ShouldStop
) -> GraphSweep:
    """Return the sweep, with progress; once ``stopped`` says so it ends with what was found."""
    done = 0
    with progress_line() as progress:
        simulate = counted(across(stopped), progress)

        def advise(scenario: GraphScenario) -> GraphAdvice:
            nonlocal done
            progress("sweep", done, len(points))
            advice = recommend_graph(scenario, options, should_stop=stopped)
            if stopped():
                raise Cancelled
            done += 1
            return advice

        return graph_swept(points, advise, simulate, tolerance=tolerance)


def counted(simulate: Simulate, progress: Progress) -> Simulate:
    """Return ``simulate``, which tells how often it was called."""
    calls = count()

    def told(scenario: GraphScenario, choice: GraphChoice, advice: GraphAdvice) -> int | None:
        progress("across", next(calls), 0)
        return simulate(scenario, choice, advice)

    return told


def _csv(sweep: GraphSweep) -> str:
    rows = []
    for point in sweep.points:
        document = point.document()
        settings, us = document.pop("settings"), document.pop("schedules_us")
        rows.append(settings | document | {f"us.{name}": us.get(name) for name in us})
    columns = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
