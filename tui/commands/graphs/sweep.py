"""``magus sweep`` on a graph: joint advice over a grid of parameters, and from which size on which schedule."""

import csv
import io
from collections.abc import Sequence

from ....advisor import AdviceOptions, GraphAdvice, recommend_graph
from ....advisor.layers.joint import simulated
from ....advisor.policy.graph_sweep import GraphSweep, graph_swept
from ....compiler import Scenario
from ....compiler.ir import Cancelled, GraphChoice, GraphScenario, Settings
from ....simcore.program.program import PACKET_BYTES
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
    sweep = _swept(advice, tolerance, points)
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


def _swept(options: AdviceOptions, tolerance: float, points: Sequence[tuple[Settings, GraphScenario]]) -> GraphSweep:
    """Return the sweep, with progress; Ctrl-C ends it with what was found."""
    done = across = 0
    with progress_line() as progress, interruptible() as stopped:

        def advise(scenario: GraphScenario) -> GraphAdvice:
            nonlocal done
            progress("sweep", done, len(points))
            advice = recommend_graph(scenario, options, should_stop=stopped)
            if stopped():
                raise Cancelled
            done += 1
            return advice

        def simulate(scenario: GraphScenario, choice: GraphChoice, advice: GraphAdvice) -> int | None:
            nonlocal across
            progress("across", across, 0)
            across += 1
            unit = advice.recommended.unit_bytes or PACKET_BYTES
            result = simulated(scenario.system, scenario.graph, choice, unit, stopped, fine=True)
            return None if result is None else result.makespan_ticks

        return graph_swept(points, advise, simulate, tolerance=tolerance)


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
