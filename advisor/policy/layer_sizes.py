"""Policy tables of layers of a model: one request, asked again for each number of tokens."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...compiler.codes import Code
from ...compiler.from_model.request import LayerRequest, layer_scenario
from ...compiler.ir import Cancelled, GraphChoice, GraphScenario, ShouldStop
from ...compiler.ir.stopping import never
from ...compiler.request.errors import RequestError
from ...simcore.program.program import PACKET_BYTES
from ..candidates.advice import Advice
from ..layers.joint import simulated
from ..options import AdviceOptions
from .cover import TOLERANCE
from .graph_sweep import Simulate
from .layer_rules import TOKENS, GraphAxis, layer_policy
from .table import PolicyTable


def across(should_stop: ShouldStop) -> Simulate:
    """Return how a schedule of one size is simulated at another: all layers, as finely as the advice there."""

    def ticks(scenario: GraphScenario, choice: GraphChoice, advice: Advice) -> int | None:
        unit = advice.recommended.unit_bytes or PACKET_BYTES
        result = simulated(scenario.system, scenario.graph, choice, unit, should_stop, fine=True)
        return None if result is None else result.makespan_ticks

    return ticks


def layer_table(
    request: LayerRequest,
    sizes: Sequence[int],
    options: AdviceOptions,
    advise: Callable[[GraphScenario, AdviceOptions], Advice],
    *,
    tolerance: float = TOLERANCE,
    told: Callable[[int, int], None] = lambda done, total: None,
    should_stop: ShouldStop = never,
) -> PolicyTable:
    """Return which schedule of a layer to use for which number of tokens; ``told`` of the sizes that are advised.

    Raises
    ------
    RequestError
        If there are no sizes, or one does not fit.
    Cancelled
        If ``should_stop`` returned true: a table with gaps is none.
    """
    if not sizes:
        raise RequestError(Code.MGS306, TOKENS, "no sizes are given")
    asked = sorted({replace(request, tokens=size).tokens for size in sizes})  # each is checked
    done = 0

    def advised(scenario: GraphScenario) -> Advice:
        nonlocal done
        advice = advise(scenario, replace(options, within_s=None))
        if advice.interrupted:
            raise Cancelled
        done += 1
        told(done, len(asked))
        return advice

    axis = GraphAxis(TOKENS, lambda size: layer_scenario(replace(request, tokens=size)), request.model.name)
    return layer_policy(axis, asked, advised, across(should_stop), tolerance=tolerance)
