"""``magus sweep`` on a graph: joint advice over a grid of parameters, and from which size on which schedule."""

from collections.abc import Sequence
from itertools import count

from ....advisor import Advice, AdviceOptions, Advisor
from ....advisor.policy.graph_sweep import GraphSweep, Simulate, graph_swept
from ....advisor.policy.layer_sizes import across
from ....compiler.ir import Cancelled, GraphChoice, GraphScenario, JsonObject, Progress, Settings, ShouldStop
from ...exit_codes import Exit
from ...text.graph_sweep import graph_sweep_text
from ...text.progress import progress_line
from ..interrupts import interruptible
from ..swept import SweepForm, put_sweep


def sweep_graph(
    advice: AdviceOptions,
    tolerance: float,
    points: Sequence[tuple[Settings, GraphScenario]],
    varied: tuple[str, ...],
    form: SweepForm,
    *,
    some_failed: bool,
) -> Exit:
    """Print the advice for every point of a grid."""
    with interruptible() as stopped:
        sweep = swept(advice, tolerance, points, stopped)
    params = varied or tuple(name for name, _ in points[0][0])
    return put_sweep(
        sweep, len(points), form, lambda: graph_sweep_text(sweep, params), lambda: _rows(sweep), some_failed=some_failed
    )


def swept(
    options: AdviceOptions, tolerance: float, points: Sequence[tuple[Settings, GraphScenario]], stopped: ShouldStop
) -> GraphSweep:
    """Return the sweep, with progress; once ``stopped`` says so it ends with what was found."""
    advisor, done = Advisor.load(), 0
    with progress_line() as progress:
        simulate = counted(across(stopped), progress)

        def advise(scenario: GraphScenario) -> Advice:
            nonlocal done
            progress("sweep", done, len(points))
            advice = advisor.recommend(scenario, options, should_stop=stopped)
            if stopped():
                raise Cancelled
            done += 1
            return advice

        return graph_swept(points, advise, simulate, tolerance=tolerance)


def counted(simulate: Simulate, progress: Progress) -> Simulate:
    """Return ``simulate``, which tells how often it was called."""
    calls = count()

    def told(scenario: GraphScenario, choice: GraphChoice, advice: Advice) -> int | None:
        progress("across", next(calls), 0)
        return simulate(scenario, choice, advice)

    return told


def _rows(sweep: GraphSweep) -> list[JsonObject]:
    rows = []
    for point in sweep.points:
        document = point.document()
        settings, us = document.pop("settings"), document.pop("schedules_us")
        rows.append(settings | document | {f"us.{name}": us.get(name) for name in us})
    return rows
