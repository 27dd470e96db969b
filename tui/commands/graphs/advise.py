"""``magus advise`` on a graph: one schedule for all of its ops together."""

from collections.abc import Sequence

from ....advisor import AdviceOptions, Advisor
from ....advisor.layers.export import graph_advice_document
from ....compiler.ir import GraphScenario
from ...exit_codes import Exit
from ...text.door import print_json, put, say
from ...text.graph_advice import graph_advice_text
from ...text.progress import progress_line
from ..interrupts import interruptible


def advise_graph(
    scenario: GraphScenario,
    options: AdviceOptions,
    source: Sequence[str],
    *,
    as_json: bool,
    strict: bool,
    of_pairs: str,
) -> Exit:
    """Print the advice for a graph; ``of_pairs`` is an option that was given and is about pairs alone, else empty."""
    if of_pairs:
        say(f"magus: {of_pairs} is for pairs: {scenario.name} is a graph of {len(scenario.graph.ops)} ops")
        return Exit.USAGE
    with progress_line() as progress, interruptible() as stopped:
        advice = Advisor.load().recommend(scenario, options, progress=progress, should_stop=stopped)
    if as_json:
        print_json(graph_advice_document(advice))
    else:
        put(graph_advice_text(advice, source))
    if advice.interrupted and (options.within_s is None or stopped()):
        return Exit.INTERRUPTED
    return Exit.NOT_FEASIBLE if strict and advice.outside_calibration else Exit.DONE
