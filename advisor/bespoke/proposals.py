"""What the stages of a search have proposed, and which of it is looked at further."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...compiler.ir import Choice
from .batches import Batches, batches_of, is_cut
from .plan_estimator import NEVER, PlanEstimator
from .result import Proposer, SimulatedPlan

# Plans that the estimate puts further behind the best known are left alone. It is between 0.84 and 1.18 of the
# simulated time over the scenarios of benchmarks/schedules.py.
WITHIN = 1.3


@dataclass(slots=True)
class Proposals:
    """Plans that can run, with the stage that was the first to propose each."""

    evaluate: PlanEstimator
    stage_of: dict[Choice, Proposer] = field(default_factory=dict)

    def add(self, stage: Proposer, choice: Choice, up_to: float = 1.0) -> bool:
        """Estimate ``choice`` and keep it if it can run; whether a share of the evaluations allows it."""
        if self.evaluate.spent or self.evaluate.count >= up_to * self.evaluate.limit:
            return False
        if self.evaluate(choice) < NEVER:
            self.stage_of.setdefault(choice, stage)
        return True

    def add_known(self, stage: Proposer, choices: Iterable[Choice]) -> None:
        """Keep ``choices``, which have been estimated."""
        for choice in choices:
            if self.evaluate.known[choice] < NEVER:
                self.stage_of.setdefault(choice, stage)

    def ranked(self) -> list[Choice]:
        """All of them, the best by estimate first."""
        return sorted(self.stage_of, key=self.evaluate)

    def batched(self) -> list[Choice]:
        """Those with batches of their own."""
        return [choice for choice in self.ranked() if choice.parts]

    def different(self, count: int) -> list[Choice]:
        """The best with batches, no two alike but for how they are carried out; at most half of them cut further."""
        best = dict[Batches, Choice]()
        for choice in self.batched():
            best.setdefault(batches_of(choice), choice)
        cut, uncut = ([each for each in best.values() if is_cut(each) is wanted] for wanted in (True, False))
        return sorted([*cut[: count // 2], *uncut[: count // 2]], key=self.evaluate)

    def likely(self, simulated: Iterable[SimulatedPlan]) -> list[Choice]:
        """Those that may be the fastest, the best by estimate first."""
        order = self.ranked()
        known = [*(found.ticks for found in simulated), *map(self.evaluate, order[:1])]
        limit = WITHIN * min(known, default=NEVER)
        return [choice for choice in order if self.evaluate(choice) <= limit]

    def to_simulate(self, simulated: Iterable[SimulatedPlan], count: int) -> list[tuple[Choice, Proposer]]:
        """So many likely ones: the best by estimate, behind the best of each stage, engine and number of streams.

        Estimates may err.
        """
        order, stages, kinds = self.likely(simulated), dict[Proposer, Choice](), dict[object, Choice]()
        for choice in order:
            stage = self.stage_of[choice]
            stages.setdefault(stage, choice)
            kinds.setdefault((stage, choice.engine, choice.streams), choice)
        first = list(dict.fromkeys([*stages.values(), *sorted(kinds.values(), key=self.evaluate)]))
        chosen = list(dict.fromkeys([*first[: count // 2], *order]))[:count]
        return [(choice, self.stage_of[choice]) for choice in chosen]
