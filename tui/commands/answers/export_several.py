"""``magus export`` on a graph: its sweep, or the times of its ops, as the file of a runtime."""

from collections.abc import Callable, Mapping, Sequence

from ....advisor import AdviceOptions
from ....advisor.policy.graph_sweep import GraphSweep
from ....advisor.policy.layer_rules import GraphAxis, policy_of
from ....advisor.policy.layer_sizes import across
from ....advisor.targets import SCENARIO_TARGETS, TARGETS, Refused
from ....advisor.targets.policy import POLICY
from ....compiler.codes import Code
from ....compiler.ir import Cancelled, GraphScenario, Rejection, Settings
from ...text.door import say
from ...text.progress import progress_line
from ..interrupts import interruptible
from .sweep_several import counted, swept

Points = Sequence[tuple[Settings, GraphScenario]]


def graph_file(
    target: str,
    options: Mapping[str, str],
    points: Points,
    advice: AdviceOptions,
    tolerance: float,
    at: Callable[[Settings], GraphScenario],
) -> str | None:
    """Return the file of ``target`` for ``points``; ``at`` gives the graph under other settings. None if stopped.

    Raises
    ------
    Refused
        If the format cannot say it.
    """
    for of_scenarios in SCENARIO_TARGETS:
        if of_scenarios.name == target:
            return of_scenarios.text([each for _, graph in points for each in graph.cases], options)
    writer = next(each for each in TARGETS if each.name == target)
    writer.settled(options, several=True)  # before anything is simulated
    with interruptible() as stopped:
        sweep = swept(advice, tolerance, points, stopped)
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
                return writer.text(policy_of(sweep, axis, counted(across(stopped), progress)), options)
        except Cancelled:
            return None


def _axis(sweep: GraphSweep, at: Callable[[Settings], GraphScenario]) -> GraphAxis:
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
    return GraphAxis(name, lambda size: at(tuple((key, str(size) if key == name else text) for key, text in first)))
