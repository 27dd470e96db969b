"""A proposal improved by the estimate: other knobs and small changes of its batches; better ones are kept.

Many changes are drawn for each that is estimated: the closed form of the pipeline says which.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from ...compiler.ir import Choice, EngineChoice, EngineKind, Scenario, ShouldStop
from ...compiler.ir.stopping import never
from ...compiler.planning.build import build_schedule
from ...compiler.planning.knobs.engine import max_copy_sms
from ..bespoke.batches import Lengths, lengths_of
from ..bespoke.mutations import neighbour
from ..bespoke.neighbours import single_knob_changes
from ..bespoke.plan_estimator import PlanEstimator
from .catalogue import COPY_SMS, ENGINES_PER_PEER
from .proposal_model import Proposal
from .screen import Screen

# Estimates of changes: at once, and where the best are simulated within a time; so many are made before the best is
# changed further.
DEFAULT_EVALUATIONS, MANY_EVALUATIONS, PER_STEP = 32, 200, 4
# Changes of batches that are drawn for a step, and the share of them that is changed twice.
DRAWS, TWICE = 40, 0.3


def polished(
    scenario: Scenario,
    start: Proposal,
    evaluations: int = DEFAULT_EVALUATIONS,
    seed: int = 0,
    late: ShouldStop = never,
) -> Proposal:
    """Return the best schedule that about ``evaluations`` estimates find near ``start`` before it is ``late``."""
    estimator = PlanEstimator(scenario, evaluations)
    estimator.known[start.choice] = start.estimate_ticks
    changes = _Changes(scenario, usual_engines(scenario), lengths_of(scenario), Random(f"polish {seed}"))
    screen, best = Screen.of(scenario), start.choice
    while not estimator.spent and not late():
        new = (choice for choice in changes.of(best) if choice not in estimator.known)
        chosen = list(islice(screen.fastest(new), min(PER_STEP, evaluations - estimator.count)))
        if not chosen:
            break
        best = min((best, *chosen), key=estimator.ticks)
    return start if best == start.choice else Proposal(best, build_schedule(scenario, best), estimator.ticks(best))


@dataclass(frozen=True, slots=True)
class _Changes:
    """Draws changes of choices."""

    scenario: Scenario
    engines: tuple[EngineChoice, ...]
    lengths: Lengths
    random: Random

    def of(self, best: Choice) -> Iterator[Choice]:
        """Yield ``best`` with one knob changed, and with other batches."""
        yield from single_knob_changes(self.scenario, best, self.engines)
        for _ in range(DRAWS if best.parts else 0):
            changed = neighbour(self.random, best, self.engines, self.lengths)
            again = self.random.random() < TWICE
            yield neighbour(self.random, changed, self.engines, self.lengths) if again else changed


def usual_engines(scenario: Scenario) -> tuple[EngineChoice, ...]:
    """Return the engines to try: usual numbers of SMs, and one or two copy engines for each peer."""
    peers, dma = scenario.num_ranks - 1, scenario.gpu.dma.engines
    by_sm = [EngineChoice(EngineKind.SM, max(1, min(sms, max_copy_sms(scenario.gpu)))) for sms in COPY_SMS]
    by_dma = [EngineChoice(EngineKind.DMA, min(dma, round(each * peers))) for each in ENGINES_PER_PEER]
    return tuple(dict.fromkeys((*by_sm, *by_dma)))
