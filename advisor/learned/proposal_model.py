"""Schedules for a scenario at once: structures that won elsewhere, chosen by trees and then by the estimate.

The library holds structures of schedules that full searches found. In a new situation a closed form says how long each
takes, and trees how far the closed form is off; the most promising by either are fitted to the scenario and estimated
step by step.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, product, tee, zip_longest
from random import Random

import numpy as np
import numpy.typing as npt

from ...compiler.ir import (
    TICKS_PER_US,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    OpCase,
    OpChoice,
    OpPlan,
    ShouldStop,
    checkpoint,
)
from ...compiler.ir.stopping import never
from ...compiler.planning.build import build_op_plan, build_schedules, reject_choice
from ...compiler.planning.knobs.engine import max_copy_sms
from ...compiler.templates import BASELINE, BY_NAME
from ..bespoke import Proposer
from ..bespoke.batches import Lengths, in_whole_tiles, lengths_of
from ..bespoke.neighbours import PlanEstimator, is_explored, neighbour, single_knob_changes
from ..candidates.candidate import Candidate, ScheduleOrigin, SearchProvenance, forms_of, may_deadlock
from ..candidates.predicted import origin_of
from ..estimate.makespan import makespans
from .boosted_trees import BoostedTrees, ModelError
from .pipeline import (
    NO_ERRORS,
    PIPELINE,
    EstimateErrors,
    FeatureScale,
    names_of_features,
    pair_features,
    pipeline_times,
)
from .situation import Situation
from .structure import COPY_SMS, ENGINES_PER_PEER, Shapes, Structure, fitted, structure_of

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

    choice: OpChoice
    schedule: OpPlan
    estimate_ticks: float

    @property
    def estimate_us(self) -> float:
        """The estimated time in us."""
        return self.estimate_ticks / TICKS_PER_US


NEAR_COUNT, NEAR_STRUCTURES = 5, 2
"""Proposals that are estimated where answers nearby are known, and how many of them such an answer says."""


@dataclass(frozen=True, slots=True)
class Near:
    """What is best for scenarios nearby, that of the nearest first: ``structures`` that overlap, ``serials`` do not."""

    structures: tuple[Structure, ...] = ()
    serials: tuple[OpChoice, ...] = ()

    @classmethod
    def of(cls, scenario: OpCase, candidates: Iterable[Candidate]) -> "Near":
        """Return what the answer with these ``candidates`` to ``scenario`` says to others."""
        known = sorted((one for one in candidates if not one.is_library), key=lambda one: one.best_us)
        chosen = [(one.choice, one) for one in known if one.choice is not None]
        overlapping = [choice for choice, one in chosen if not one.is_serial][:NEAR_STRUCTURES]
        serials = [choice for choice, one in chosen if one.is_serial and one.has_usual_options][:1]
        serials += [choice for choice, one in chosen if one.is_serial][:1]
        return cls(tuple(structure_of(scenario, choice) for choice in overlapping), tuple(serials))

    @classmethod
    def joined(cls, nearest: Sequence["Near"]) -> "Near":
        """Return what several answers say: the best of each before the second of any."""
        structures = chain.from_iterable(zip_longest(*(each.structures for each in nearest)))
        serials = chain.from_iterable(each.serials for each in nearest)
        return cls(tuple(dict.fromkeys(filter(None, structures))), tuple(dict.fromkeys(serials)))


ALONE = Near()


@dataclass(frozen=True, slots=True)
class ProposalModel:
    """Proposes schedules; ``before`` is the library for kernels before a collective, ``after`` for those after one.

    ``names`` are those of the numbers of a situation. Without ``trees`` the closed form of the pipeline chooses.
    ``errors`` say how far the estimates of proposals are off. ``digest`` is the hash of the file that the model was
    read from, or empty. Where something ``near`` is known, it is proposed alone.
    """

    names: tuple[str, ...]
    before: Library
    after: Library
    scale: FeatureScale
    trees: BoostedTrees | None
    errors: EstimateErrors = NO_ERRORS
    digest: str = ""
    near: Near = ALONE

    def library(self, scenario: OpCase) -> Library:
        """Return the library of the kind of ``scenario``."""
        return self.after if scenario.shape.pattern.consumes else self.before

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

    def choices(self, scenario: OpCase) -> Iterator[OpChoice]:
        """Yield legal choices of ``scenario`` that the file lets be explored, the most promising first.

        Raises
        ------
        ModelError
            If the model was fitted to other numbers of situations.
        """
        library, seen, situation = self.library(scenario), set[OpChoice](), Situation.of(scenario)
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

    def propose(
        self, scenario: OpCase, count: int = DEFAULT_COUNT, time_up: ShouldStop = never
    ) -> tuple[Proposal, ...]:
        """Return ``count`` proposals, the fastest by the estimate first; fewer where no more structures fit.

        Once ``time_up``, no more are estimated than the first ``LEAST``.
        """
        proposals = list[Proposal]()
        fits = (fitted(structure, scenario) for structure in self.near.structures)
        near = [each for each in dict.fromkeys(fits) if each is not None and is_explored(scenario.explore, each)]
        chosen = near[:NEAR_COUNT] or islice(self.choices(scenario), count)
        for proposal in estimated(scenario, chosen):
            proposals.append(proposal)
            if len(proposals) >= LEAST and time_up():
                break
        return tuple(sorted(proposals, key=lambda each: (each.estimate_ticks, each.schedule.expression)))


def estimated(scenario: OpCase, choices: Iterable[OpChoice]) -> Iterator[Proposal]:
    """Yield each of ``choices`` with its schedule and estimate, one after the other."""
    chosen, to_build = tee(choices)
    schedules, to_estimate = tee(build_schedules(scenario, to_build))
    for choice, schedule, each in zip(chosen, schedules, makespans(scenario, to_estimate), strict=True):
        checkpoint()
        yield Proposal(choice, schedule, each)


def fastest(scenario: OpCase, situation: Situation, choices: Iterable[OpChoice]) -> Iterator[OpChoice]:
    """Yield the legal ones of ``choices`` that the file lets be explored, the fastest by the closed form first.

    ``situation`` is that of ``scenario``, which overlaps a GEMM and a collective.
    """
    explore, consumes = scenario.explore, scenario.shape.pattern.consumes
    requested = [one for one in dict.fromkeys(choices) if not may_deadlock(one) and is_explored(explore, one)]
    if not requested:
        return
    structures = [structure_of(scenario, choice) for choice in requested]
    times = pipeline_times(situation, Shapes.of(structures, scenario.num_ranks, consumes=consumes))
    ranked = (requested[place] for place in np.argsort(times, kind="stable"))
    yield from (choice for choice in ranked if reject_choice(scenario, choice) is None)


# Estimates of changes: at once, and where the best are simulated within a time; so many are made before the best is
# changed further.
DEFAULT_EVALUATIONS, MANY_EVALUATIONS, PER_STEP = 32, 200, 4
# Changes of batches that are drawn for a step, and the share of them that is changed twice.
DRAWS, TWICE = 40, 0.3


def polished(
    scenario: OpCase,
    start: Proposal,
    evaluations: int = DEFAULT_EVALUATIONS,
    time_up: ShouldStop = never,
) -> Proposal:
    """Return the best schedule that about ``evaluations`` estimates find near ``start`` before ``time_up``."""
    estimator = PlanEstimator(scenario, evaluations)
    estimator.known[start.choice] = start.estimate_ticks
    changes = _Changes(scenario, usual_engines(scenario), lengths_of(scenario), Random("polish 0"))
    situation, best = Situation.of(scenario), start.choice
    while not estimator.spent and not time_up():
        new = (choice for choice in changes.of(best) if choice not in estimator.known)
        chosen = list(islice(fastest(scenario, situation, new), min(PER_STEP, evaluations - estimator.count)))
        if not chosen:
            break
        best = min((best, *chosen), key=estimator.ticks)
    return start if best == start.choice else Proposal(best, build_op_plan(scenario, best), estimator.ticks(best))


@dataclass(frozen=True, slots=True)
class _Changes:
    """Draws changes of choices."""

    scenario: OpCase
    engines: tuple[EngineChoice, ...]
    lengths: Lengths
    random: Random

    def of(self, best: OpChoice) -> Iterator[OpChoice]:
        """Yield ``best`` with one knob changed, and with other batches."""
        yield from single_knob_changes(self.scenario, best, self.engines)
        for _ in range(DRAWS if best.parts else 0):
            changed = neighbour(self.random, best, self.engines, self.lengths)
            again = self.random.random() < TWICE
            yield neighbour(self.random, changed, self.engines, self.lengths) if again else changed


def usual_engines(scenario: OpCase) -> tuple[EngineChoice, ...]:
    """Return the engines to try: usual numbers of SMs, and one or two copy engines for each peer."""
    peers, dma = scenario.num_ranks - 1, scenario.gpu.dma.engines
    by_sm = [EngineChoice(EngineKind.SM, max(1, min(sms, max_copy_sms(scenario.gpu)))) for sms in COPY_SMS]
    by_dma = [EngineChoice(EngineKind.DMA, min(dma, round(each * peers))) for each in ENGINES_PER_PEER]
    return tuple(dict.fromkeys((*by_sm, *by_dma)))


# The empty one is the direct exchange.
ALGORITHMS = ("", "ring", "double_ring")
# Execution options that are estimated: with these, none of 24 drawn scenarios had a faster serial schedule.
NUM_FORMS = 6


def serial_proposals(scenario: OpCase, near: Sequence[OpChoice] = ()) -> tuple[Proposal, ...]:
    """Return serial schedules with their estimates, the fastest first; at once, as proposals are made.

    They are those of answers ``near`` by, as far as these can be.
    """
    known = estimated(scenario, [one for one in near if reject_choice(scenario, one) is None])
    proposals = tuple(sorted(known, key=lambda each: (each.estimate_ticks, each.schedule.expression)))
    if any(one.choice.tactics == ExecutionOptions() for one in proposals):
        return proposals
    engines = usual_engines(scenario)
    knobs = product(ALGORITHMS, engines)
    bases = (OpChoice(BASELINE.name, scenario.num_ranks, engine, algorithm=name) for name, engine in knobs)
    legal = (one for one in bases if is_explored(scenario.explore, one) and reject_choice(scenario, one) is None)
    found = {each.choice: each for each in estimated(scenario, legal)}
    by_kind: dict[object, OpChoice] = {}
    for choice in sorted(found, key=lambda choice: found[choice].estimate_ticks):
        by_kind.setdefault(choice.engine.kind, choice)
    forms = (form for base in by_kind.values() for form in forms_of(scenario, base))
    chosen = islice(fastest(scenario, Situation.of(scenario), forms), NUM_FORMS)
    found |= {each.choice: each for each in estimated(scenario, chosen)}
    return tuple(sorted(found.values(), key=lambda each: (each.estimate_ticks, each.schedule.expression)))


def proposed_candidates(
    scenario: OpCase, model: ProposalModel, changes: int = DEFAULT_EVALUATIONS, time_up: ShouldStop = never
) -> list[Candidate]:
    """Return the proposals of ``model`` with their estimates, the fastest first, and what small ``changes`` make of it.

    Those that need more memory for staging than the file allows are left out. Once ``time_up`` there are some, and
    they are what was found until then.
    """
    proposals = model.propose(scenario, time_up=time_up)
    evaluations = len(proposals)
    if proposals and not time_up() and not model.near.structures:
        better = polished(scenario, proposals[0], changes, time_up=time_up)
        proposals = tuple({each.choice: each for each in (better, *proposals)}.values())
        evaluations += changes
    whole = None if not proposals or time_up() else in_whole_tiles(scenario, proposals[0].choice)
    if whole is not None and whole not in {each.choice for each in proposals} and is_explored(scenario.explore, whole):
        proposals = (*proposals, *estimated(scenario, (whole,)))
        evaluations += 1
    return _candidates(scenario, proposals, evaluations, model.errors)


def serial_candidates(scenario: OpCase, model: ProposalModel) -> list[Candidate]:
    """Return the fastest serial schedule by its estimate, and with the usual options: baselines without simulation."""
    proposals = serial_proposals(scenario, model.near.serials)
    found = _candidates(scenario, proposals, len(proposals), model.errors)
    usual = [candidate for candidate in found if candidate.has_usual_options]
    return list(dict.fromkeys((*found[:1], *usual[:1])))


def _candidates(
    scenario: OpCase, proposals: Sequence[Proposal], evaluations: int, errors: EstimateErrors
) -> list[Candidate]:
    limit = scenario.explore.staging_limit_bytes
    return [
        _candidate(scenario, proposal, evaluations, errors)
        for proposal in proposals
        if limit is None or proposal.schedule.staging_bytes <= limit
    ]


def _candidate(scenario: OpCase, proposal: Proposal, evaluations: int, errors: EstimateErrors) -> Candidate:
    choice = proposal.choice
    provenance = SearchProvenance(
        found_by=Proposer.LEARNED.value, seed=0, evaluations=evaluations, simulations=0, reproducible=True, solver=""
    )
    low, high = (proposal.estimate_us * math.exp(each) for each in errors.time)
    return Candidate(
        proposal.schedule.expression,
        choice,
        proposal.schedule,
        origin_of(scenario, choice, ScheduleOrigin.BESPOKE if choice.parts else ScheduleOrigin.PROPOSED),
        proposal.estimate_us,
        provenance=provenance if choice.parts else None,
        interval_us=(low, high),
        gain_error=math.exp(max(map(abs, errors.gain))) - 1,
    )
