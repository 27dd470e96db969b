"""Schedules for a scenario at once: structures that won elsewhere, chosen by trees and then by the estimate.

The library holds structures of schedules that full searches found. In a new situation a closed form says how long each
takes, and trees how far the closed form is off; the most promising by either are fitted to the scenario and estimated
step by step.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, tee

import numpy as np
import numpy.typing as npt

from ...compiler.ir import TICKS_PER_US, Choice, Scenario, Schedule, ShouldStop, checkpoint
from ...compiler.ir.stopping import never
from ...compiler.planning.build import build_schedules
from ...compiler.templates import BY_NAME
from ..bespoke.explore_limits import is_explored
from ..candidates.variations import may_deadlock
from ..estimate.makespan import estimates
from .boosted_trees import BoostedTrees, ModelError
from .errors import NO_ERRORS, EstimateErrors
from .pairs import PIPELINE, FeatureScale, names_of_features, pair_features
from .shapes import Shapes
from .situation import Situation
from .structure import Structure, fitted

FloatArray = npt.NDArray[np.float64]

# Proposals that are estimated, and how many are where there is no time for more: on unseen families these are within
# 3 % of a full search in 61 % of scenarios, all of them with small changes in 88 %.
DEFAULT_COUNT, LEAST = 24, 3
# Structures that trees are asked about, the fastest by the closed form: of 160 drawn scenarios, the best 24 by trees
# were among them in 148.
CORRECTED = 384


@dataclass(frozen=True, slots=True)
class Library:
    """Structures with ``origins`` [P, F], the situations in which they won.

    All are of kernels after a collective, or, if not ``consumes``, of kernels before one.
    """

    structures: tuple[Structure, ...]
    origins: FloatArray
    consumes: bool
    _shapes: dict[int, Shapes] = field(default_factory=dict, compare=False, repr=False)

    def shapes(self, num_ranks: int) -> Shapes:
        """Return the structures on ``num_ranks`` ranks as arrays, made when they are first asked for."""
        if num_ranks not in self._shapes:
            self._shapes[num_ranks] = Shapes.of(self.structures, num_ranks, consumes=self.consumes)
        return self._shapes[num_ranks]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A schedule that may be the best, with its estimated time."""

    choice: Choice
    schedule: Schedule
    estimate_ticks: float

    @property
    def estimate_us(self) -> float:
        """The estimated time in us."""
        return self.estimate_ticks / TICKS_PER_US


@dataclass(frozen=True, slots=True)
class ProposalModel:
    """Proposes schedules; ``before`` is the library for kernels before a collective, ``after`` for those after one.

    ``names`` are those of the numbers of a situation. Without ``trees`` the closed form of the pipeline chooses.
    ``errors`` say how far the estimates of proposals are off. ``digest`` is the hash of the file that the model was
    read from, or empty.
    """

    names: tuple[str, ...]
    before: Library
    after: Library
    scale: FeatureScale
    trees: BoostedTrees | None
    errors: EstimateErrors = NO_ERRORS
    digest: str = ""

    def library(self, scenario: Scenario) -> Library:
        """Return the library of the kind of ``scenario``."""
        return self.after if scenario.workload.pattern.consumes else self.before

    def ranking(self, situation: Situation, library: Library) -> Iterator[int]:
        """Yield the places of structures in ``library``: in turn the best with the trees and by the closed form alone.

        Trees err where they have seen nothing like the situation, such as on a fabric that they were not fitted to.
        """
        shapes = library.shapes(situation.num_ranks)
        features = pair_features(situation, shapes, library.origins, self.scale)
        times = features[:, names_of_features(self.names).index(PIPELINE)]
        by_time = np.argsort(times, kind="stable")
        likely = by_time[: CORRECTED if self.trees is not None else 0]
        corrected = times[likely] + (0.0 if self.trees is None else self.trees.predict(features[likely]))
        best = likely[np.argsort(corrected, kind="stable")]
        yield from dict.fromkeys(chain.from_iterable(zip(best.tolist(), by_time.tolist(), strict=False)))
        yield from by_time[len(best) :].tolist()

    def choices(self, scenario: Scenario) -> Iterator[Choice]:
        """Yield legal choices of ``scenario`` that the file lets be explored, the most promising first.

        Raises
        ------
        ModelError
            If the model was fitted to other numbers of situations.
        """
        library, seen, situation = self.library(scenario), set[Choice](), Situation.of(scenario)
        if situation.names != self.names:
            raise ModelError("the model was fitted to other numbers than this version computes; run `magus train`")
        templates = scenario.explore.values("schedules") or tuple(BY_NAME)
        for place in self.ranking(situation, library) if library.structures else ():
            checkpoint()
            choice = fitted(library.structures[place], scenario)
            if choice is None or choice in seen or choice.template not in templates or may_deadlock(choice):
                continue
            if not is_explored(scenario.explore, choice):
                continue
            seen.add(choice)
            yield choice

    def propose(self, scenario: Scenario, count: int = DEFAULT_COUNT, late: ShouldStop = never) -> tuple[Proposal, ...]:
        """Return ``count`` proposals, the fastest by the estimate first; fewer where no more structures fit.

        Once it is ``late``, no more are estimated than the first ``LEAST``.
        """
        proposals = list[Proposal]()
        for proposal in estimated(scenario, islice(self.choices(scenario), count)):
            proposals.append(proposal)
            if len(proposals) >= LEAST and late():
                break
        return tuple(sorted(proposals, key=lambda each: (each.estimate_ticks, each.schedule.expression)))


def estimated(scenario: Scenario, choices: Iterable[Choice]) -> Iterator[Proposal]:
    """Yield each of ``choices`` with its schedule and estimate, one after the other."""
    chosen, to_build = tee(choices)
    schedules, to_estimate = tee(build_schedules(scenario, to_build))
    ticks = (each.makespan_ticks for each in estimates(scenario, to_estimate))
    for choice, schedule, each in zip(chosen, schedules, ticks, strict=True):
        checkpoint()
        yield Proposal(choice, schedule, each)
