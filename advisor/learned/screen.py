"""Which of many choices are worth an estimate: those that the closed form of the pipeline takes for the fastest.

An estimate takes a millisecond, the closed form ten microseconds a choice. It is some percent off, mostly by as much
for a schedule and for a small change of it: what it says of changes is better than what it says of times.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ...compiler.ir import Choice, Scenario
from ...compiler.planning.build import reject_choice
from ..bespoke.explore_limits import is_explored
from ..candidates.variations import may_deadlock
from .pipeline import pipeline_times
from .shapes import Shapes
from .situation import Situation
from .structure import structure_of


@dataclass(frozen=True, slots=True)
class Screen:
    """Ranks choices of a scenario."""

    scenario: Scenario
    situation: Situation

    @classmethod
    def of(cls, scenario: Scenario) -> "Screen":
        """Return the screen of a scenario that overlaps a GEMM and a collective."""
        return cls(scenario, Situation.of(scenario))

    def fastest(self, choices: Iterable[Choice]) -> Iterator[Choice]:
        """Yield the legal ones of ``choices`` that the file lets be explored, the fastest by the closed form first."""
        explore, consumes = self.scenario.explore, self.scenario.workload.pattern.consumes
        asked = [one for one in dict.fromkeys(choices) if not may_deadlock(one) and is_explored(explore, one)]
        if not asked:
            return
        structures = [structure_of(self.scenario, choice) for choice in asked]
        times = pipeline_times(self.situation, Shapes.of(structures, self.scenario.num_ranks, consumes=consumes))
        ranked = (asked[place] for place in np.argsort(times, kind="stable"))
        yield from (choice for choice in ranked if reject_choice(self.scenario, choice) is None)
