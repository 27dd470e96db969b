"""Local search: simulated annealing over small changes of a plan, with a budget of evaluations.

Kirkpatrick, Gelatt and Vecchi, Science 220 (1983): what is worse is taken with probability exp(-change / temperature),
and the temperature falls. Times are compared as ratios, so that the temperature means the same in every scenario.
"""

import math
from collections.abc import Sequence
from random import Random

from ...compiler.ir import Choice, EngineChoice
from .batches import lengths_of
from .mutations import neighbour
from .plan_estimator import PlanEstimator

TEMPERATURE = 0.01
# It is cold, and only better plans are taken, after this share of the budget.
COLD = 0.8
# Changes that lead to what was tried before cost nothing; so many for each evaluation are drawn at most.
DRAWS = 5


def anneal(
    evaluate: PlanEstimator, start: Choice, budget: int, random: Random, engines: Sequence[EngineChoice]
) -> Choice:
    """The best plan found from ``start`` with ``budget`` more evaluations; all that were tried stay in ``evaluate``."""
    now, now_ticks = start, evaluate(start)
    best, best_ticks = now, now_ticks
    before, lengths = evaluate.count, lengths_of(evaluate.scenario)
    for _ in range(DRAWS * budget):
        spent = (evaluate.count - before) / budget
        if spent >= 1 or evaluate.spent:
            break
        tried = neighbour(random, now, engines, lengths)
        ticks = evaluate(tried)
        heat = TEMPERATURE * max(0.0, 1 - spent / COLD)
        worse = ticks / now_ticks - 1
        if worse <= 0 or (heat > 0 and random.random() < math.exp(-worse / heat)):
            now, now_ticks = tried, ticks
        if ticks < best_ticks:
            best, best_ticks = tried, ticks
    return best
