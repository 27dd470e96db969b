"""The plans that the stages of a search have proposed, and the selection of those to pursue."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...compiler.ir import Choice
from .batches import Batches, batches_of, is_cut
from .plan_estimator import INFEASIBLE, PlanEstimator
from .result import Proposer, SimulatedPlan

# Plans whose estimate is above this multiple of the best known time are not pursued. Over the scenarios of
# benchmarks/schedules.py estimates are between 0.84 and 1.18 of the simulated time.
MAX_ESTIMATE_RATIO = 1.3


@dataclass(slots=True)
class Proposals:
    """Feasible plans, each with the part of the portfolio that was the first to propose it."""

    estimator: PlanEstimator
    proposer_of: dict[Choice, Proposer] = field(default_factory=dict)

    def add(self, proposer: Proposer, choice: Choice, up_to: float = 1.0) -> bool:
        """Estimate ``choice`` and keep it if feasible; false once the share ``up_to`` of the evaluations is spent."""
        if self.estimator.spent or self.estimator.count >= up_to * self.estimator.limit:
            return False
        if self.estimator.ticks(choice) < INFEASIBLE:
            self.proposer_of.setdefault(choice, proposer)
        return True

    def add_known(self, proposer: Proposer, choices: Iterable[Choice]) -> None:
        """Keep the feasible ones of ``choices``, which have been estimated."""
        for choice in choices:
            if self.estimator.known[choice] < INFEASIBLE:
                self.proposer_of.setdefault(choice, proposer)

    def ranked(self) -> list[Choice]:
        """Return all plans, the best by estimate first."""
        return sorted(self.proposer_of, key=self.estimator.ticks)

    def batched(self) -> list[Choice]:
        """Return the plans with batches, the best by estimate first."""
        return [choice for choice in self.ranked() if choice.parts]

    def different(self, count: int) -> list[Choice]:
        """Return the best plans with batches, one for each set of batches; at most half of them have cut batches."""
        best = dict[Batches, Choice]()
        for choice in self.batched():
            best.setdefault(batches_of(choice), choice)
        cut = [choice for choice in best.values() if is_cut(choice)]
        uncut = [choice for choice in best.values() if not is_cut(choice)]
        return sorted([*cut[: count // 2], *uncut[: count // 2]], key=self.estimator.ticks)

    def likely(self, simulated: Iterable[SimulatedPlan]) -> list[Choice]:
        """Return the plans that may be the fastest, the best by estimate first."""
        ranked = self.ranked()
        known = [*(plan.ticks for plan in simulated), *map(self.estimator.ticks, ranked[:1])]
        limit = MAX_ESTIMATE_RATIO * min(known, default=INFEASIBLE)
        return [choice for choice in ranked if self.estimator.ticks(choice) <= limit]

    def to_simulate(self, simulated: Iterable[SimulatedPlan], count: int) -> list[tuple[Choice, Proposer]]:
        """Return ``count`` likely plans: the best of each proposer, engine and number of streams, then the best of all.

        Estimates err, by proposer and engine in the same direction; so up to half of the plans are chosen by these.
        """
        likely, of_proposer, of_kind = self.likely(simulated), dict[Proposer, Choice](), dict[object, Choice]()
        for choice in likely:
            proposer = self.proposer_of[choice]
            of_proposer.setdefault(proposer, choice)
            of_kind.setdefault((proposer, choice.engine, choice.streams), choice)
        varied = dict.fromkeys([*of_proposer.values(), *sorted(of_kind.values(), key=self.estimator.ticks)])
        chosen = list(dict.fromkeys([*list(varied)[: count // 2], *likely]))[:count]
        return [(choice, self.proposer_of[choice]) for choice in chosen]
