"""The search for a bespoke schedule: templates, dynamic programming, local search, CP-SAT, and simulation.

Each stage proposes plans, cheap stages first; the step-level estimate selects the plans that are worth a simulation,
and the simulated times decide. The search is anytime: if it is stopped, the plans simulated so far are the answer.
"""

import time
from random import Random

from ...compiler.ir import Cancelled, Counted, Scenario, ShouldStop, heeding
from ..workers import Workers
from .plan_estimator import PlanEstimator
from .proposals import Proposals
from .result import SearchBudget, SearchOptions, SearchResult
from .search import Search
from .simulate_proposals import PlanSimulator


def optimize(
    scenario: Scenario,
    budget: SearchBudget,
    options: SearchOptions,
    *,
    pool: Workers | None = None,
    should_stop: ShouldStop = lambda: False,
    progress: Counted = lambda done, total: None,
) -> SearchResult:
    """Return the best schedules that the budget finds for ``scenario``, which overlaps a GEMM and a collective.

    A stage that fails is left out. If Ctrl-C interrupts the search and ``should_stop`` returns true, the search ends
    with the plans simulated so far. ``pool`` runs the simulations, this process if there is none.
    """
    deadline = None if budget.seconds is None else time.monotonic() + budget.seconds

    def late() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    def stop() -> bool:
        return late() or should_stop()

    pool = pool or Workers(should_stop=stop)
    simulator = PlanSimulator(scenario, pool, budget.simulations, options.unit_of, progress)
    simulator.plans |= {plan.choice: plan for plan in options.known}
    estimator = PlanEstimator(scenario, budget.evaluations, stop)
    random = Random(f"bespoke {options.seed}")
    search = Search(scenario, budget, options, estimator, simulator, Proposals(estimator), random)
    ended = ""
    try:
        with heeding(stop):
            ended = search.run()
    except Cancelled:
        simulator.stopped = True
    except KeyboardInterrupt:
        if not should_stop():
            raise
        simulator.stopped = True
    cut_short = simulator.stopped or stop()
    if cut_short:
        ended = "its time was over" if late() else "it was asked to stop"
    return SearchResult(
        plans=tuple(simulator.ranked()),
        seed=options.seed,
        evaluations=estimator.count,
        simulations=simulator.count,
        reproducible=not cut_short,
        stopped=ended,
        failures=tuple(search.failures),
    )
