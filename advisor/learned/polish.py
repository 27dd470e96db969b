"""A proposal improved by the estimate: other knobs, then small changes of its batches; better ones are kept."""

from random import Random

from ...compiler.ir import Choice, EngineChoice, EngineKind, Scenario
from ...compiler.planning.build import build_schedule
from ...compiler.planning.knobs.engine import max_copy_sms
from ..bespoke.batches import lengths_of
from ..bespoke.mutations import neighbour
from ..bespoke.neighbours import best_first_search, single_knob_changes
from ..bespoke.plan_estimator import PlanEstimator
from .catalogue import COPY_SMS, ENGINES_PER_PEER
from .proposal_model import Proposal

# Estimates of neighbours of the best proposal.
DEFAULT_EVALUATIONS = 24
# Most changes drawn for each estimate: those that were tried before cost none.
DRAWS_PER_ESTIMATE = 5


def polished(scenario: Scenario, start: Proposal, evaluations: int = DEFAULT_EVALUATIONS, seed: int = 0) -> Proposal:
    """Return the best schedule that about ``evaluations`` estimates find near ``start``."""
    estimator = PlanEstimator(scenario, evaluations)
    estimator.known[start.choice] = start.estimate_ticks
    engines = usual_engines(scenario)
    if start.choice.parts:
        changes = (choice for choice in single_knob_changes(scenario, start.choice, engines) if not estimator.spent)
        best = _with_other_parts(estimator, min((start.choice, *changes), key=estimator.ticks), engines, seed)
    else:
        best = min(best_first_search(estimator, start.choice, evaluations, engines), key=estimator.ticks)
    return start if best == start.choice else Proposal(best, build_schedule(scenario, best), estimator.ticks(best))


def _with_other_parts(estimator: PlanEstimator, best: Choice, engines: tuple[EngineChoice, ...], seed: int) -> Choice:
    """Return the best plan after small changes of batches, until all estimates are made."""
    random, lengths = Random(f"polish {seed}"), lengths_of(estimator.scenario)
    for _ in range(DRAWS_PER_ESTIMATE * estimator.limit):
        if estimator.spent:
            break
        best = min(best, neighbour(random, best, engines, lengths), key=estimator.ticks)
    return best


def usual_engines(scenario: Scenario) -> tuple[EngineChoice, ...]:
    """Return the engines to try: usual numbers of SMs, and one or two copy engines for each peer."""
    peers, dma = scenario.num_ranks - 1, scenario.gpu.dma.engines
    by_sm = [EngineChoice(EngineKind.SM, max(1, min(sms, max_copy_sms(scenario.gpu)))) for sms in COPY_SMS]
    by_dma = [EngineChoice(EngineKind.DMA, min(dma, round(each * peers))) for each in ENGINES_PER_PEER]
    return tuple(dict.fromkeys((*by_sm, *by_dma)))
