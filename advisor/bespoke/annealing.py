"""Local search: simulated annealing over small changes of a plan, with a budget of evaluations.

Kirkpatrick, Gelatt and Vecchi, Science 220 (1983): a worse plan is accepted with probability exp(-change /
temperature), and the temperature falls. Times are compared as ratios, so that the temperature means the same in every
scenario.
"""

import math
from collections.abc import Sequence
from random import Random

from ...compiler.ir import Choice, EngineChoice
from .batches import lengths_of
from .mutations import neighbour
from .plan_estimator import PlanEstimator

TEMPERATURE = 0.01
# Share of the budget after which the temperature is 0: only better plans are accepted.
COLD_AFTER = 0.8
# Most changes drawn for each evaluation of the budget; a change that leads to a plan tried before costs no evaluation.
DRAWS_PER_EVALUATION = 5


def anneal(
    estimator: PlanEstimator, start: Choice, budget: int, random: Random, engines: Sequence[EngineChoice]
) -> Choice:
    """Return the best plan found from ``start`` with ``budget`` evaluations; ``estimator`` keeps all plans tried."""
    current, current_ticks = start, estimator.ticks(start)
    best, best_ticks = current, current_ticks
    before, lengths = estimator.count, lengths_of(estimator.scenario)
    for _ in range(DRAWS_PER_EVALUATION * budget):
        spent = (estimator.count - before) / budget
        if spent >= 1 or estimator.spent:
            break
        changed = neighbour(random, current, engines, lengths)
        ticks = estimator.ticks(changed)
        temperature = TEMPERATURE * max(0.0, 1 - spent / COLD_AFTER)
        worse = ticks / current_ticks - 1
        if worse <= 0 or (temperature > 0 and random.random() < math.exp(-worse / temperature)):
            current, current_ticks = changed, ticks
        if ticks < best_ticks:
            best, best_ticks = changed, ticks
    return best
