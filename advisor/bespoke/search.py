"""A bespoke search: annealing, and the stages that propose, estimate or simulate plans."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random

from ...compiler.ir import (
    CopyProtocol,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    OpCase,
    OpChoice,
    ShouldStop,
)
from ..candidates.candidate import forms_of, in_other_tiles
from ..work.workers import Failure, failed_stage
from .batches import Batches, dp_batches, is_cut, lengths_of, shapes, whole_batches, with_batches
from .cp_sat import MAX_BATCHES, as_batches, solved_parts, uniform_choices
from .neighbours import (
    INFEASIBLE,
    STREAMS,
    PlanEstimator,
    best_first_search,
    lanes_of,
    neighbour,
    single_knob_changes,
    start_points,
    usual_options,
    usual_or_first,
)
from .result import MAX_ESTIMATE_RATIO, PlanSimulator, Proposals, Proposer, SearchBudget, SearchOptions, SimulatedPlan

TEMPERATURE = 0.01
# Share of the budget after which the temperature is 0: only better plans are accepted.
COLD_AFTER = 0.8
# Most changes drawn for each evaluation of the budget; a change that leads to a plan tried before costs no evaluation.
DRAWS_PER_EVALUATION = 5


def anneal(
    estimator: PlanEstimator, start: OpChoice, budget: int, random: Random, engines: Sequence[EngineChoice]
) -> OpChoice:
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


log = logging.getLogger(__name__)

# A schedule this close to the bound ends the search.
MAX_RATIO_TO_BOUND = 1.01
# Shares of the simulation budget: templates; proposals; variants with other execution options. The rest refines the
# incumbent.
TEMPLATE_SHARE, PROPOSAL_SHARE, WITH_OPTIONS_SHARE = 0.2, 0.4, 0.15
# Share of the evaluations for other options of templates, and the shares of evaluations after which the stages end:
# shapes; variants of the best proposals; local search by estimate.
OPTIONS_SHARE, SHAPES_UP_TO, VARIANTS_UP_TO, LOCAL_UP_TO = 0.2, 0.45, 0.6, 0.9
# Proposals are compared on this number of streams; this number of the best are then tried with other streams, options,
# lanes and engines.
USUAL_STREAMS, NUM_VARIED = 2, 12
# Local searches that start, their share of the budget together, and the number of the best that then continue.
NUM_STARTS, START_SHARE, NUM_CONTINUED = 6, 0.5, 2
NUM_ENGINES = 2
# Neighbours that are estimated for each one that is simulated.
NEIGHBOURS_PER_SIMULATION = 6
# Schedules of which variants with other execution options are simulated.
NUM_WITH_OPTIONS = 3
# Solutions of the solver that are proposed, the best first.
NUM_SOLUTIONS = 8


@dataclass(slots=True)
class Search:
    """State of one search.

    ``engines`` are those to search with. ``variants`` are the streams and execution options with which the best batches
    are varied.
    """

    scenario: OpCase
    budget: SearchBudget
    options: SearchOptions
    estimator: PlanEstimator
    simulator: PlanSimulator
    proposals: Proposals
    random: Random
    engines: tuple[EngineChoice, ...] = ()
    variants: tuple[tuple[int, ExecutionOptions], ...] = ()
    failures: list[Failure] = field(default_factory=list)

    def run(self) -> str:
        """Run all stages; return why the search ended early, empty if it did not."""
        self.simulator.enough_ticks = MAX_RATIO_TO_BOUND * self.options.bound_ticks
        self._try_templates()
        if self.simulator.enough:
            return "a template is within 1 % of the lower bound"
        for stage in (
            self._propose_options,
            self._propose_batches,
            self._propose_variants,
            self._improve_batches,
            self._simulate_proposals,
            self._simulate_options,
            self._refine,
        ):
            self._attempt(stage)
        return "what was found is within 1 % of the lower bound" if self.simulator.enough else ""

    def _attempt(self, stage: Callable[[], None]) -> None:
        """Run a stage; if it fails, the others continue with what there is."""
        try:
            stage()
        except Exception as error:
            log.debug("a stage of the search failed", exc_info=True)
            self.failures.append(failed_stage("a part of the bespoke search", error))

    @property
    def _simulated(self) -> Iterable[SimulatedPlan]:
        return self.simulator.plans.values()

    def _try_templates(self) -> None:
        """Estimate all templates and simulate the best, unless some are known; select the engines that did best."""
        if not self.simulator.plans:
            choices = uniform_choices(self.scenario)
            feasible = [
                choice
                for choice in choices
                if not self.estimator.should_stop() and self.estimator.ticks(choice) < INFEASIBLE
            ]
            count = max(1, round(TEMPLATE_SHARE * self.budget.simulations))
            best = sorted(feasible, key=self.estimator.ticks)[:count]
            self.simulator.simulate([(choice, Proposer.TEMPLATE) for choice in best])
            self.estimator.count = 0  # the budget is for the stages after the templates
        engines = list(dict.fromkeys(plan.choice.engine for plan in self.simulator.ranked()))[:NUM_ENGINES]
        self.engines = tuple(dict.fromkeys([*engines, *self._spare_engines()]))

    def _spare_engines(self) -> list[EngineChoice]:
        """Two copy engines for each peer where the GPU has them: one sets up a copy while the other copies.

        Their commands are prelaunched if the search may do so and it is quicker.
        """
        dma = self.scenario.gpu.dma
        count = min(dma.engines, 2 * (self.scenario.num_ranks - 1))
        if self.scenario.explore.values("engine") or count < 1:
            return []
        prelaunched = self.options.prelaunched and dma.prelaunch_ticks < dma.setup_ticks
        return [EngineChoice(EngineKind.DMA, count, EngineMode.PRELAUNCHED if prelaunched else EngineMode.OWN)]

    def _propose_options(self) -> None:
        """Templates with other engines, streams, chunks and waves, best first by the estimate."""
        known = sorted(self.estimator.known, key=self.estimator.ticks)
        last = self.estimator.count + round(OPTIONS_SHARE * self.estimator.limit)
        for start in start_points([*known, *(plan.choice for plan in self.simulator.ranked())]):
            choices = best_first_search(self.estimator, start, last - self.estimator.count, self.engines)
            self.proposals.add_known(Proposer.OPTIONS, choices)
        usual = usual_options(self.scenario.explore)
        variants = [(streams, usual) for streams in self.scenario.explore.values("streams") or STREAMS]
        for best in self.proposals.ranked()[:1]:
            # Batches may have the options of the best template; but a protocol is legal with some engines alone.
            variants.append((best.streams, replace(best.tactics, protocol=CopyProtocol.SIMPLE)))
        self.variants = tuple(dict.fromkeys(variants))

    def _propose_batches(self) -> None:
        """Batches of templates, batches by dynamic programming, and batches that grow or shrink."""
        of_templates = (as_batches(self.scenario, plan.choice) for plan in self.simulator.ranked())
        sayable = [batches for batches in of_templates if batches is not None]
        self._propose(Proposer.SHAPE, sayable, self.engines, SHAPES_UP_TO)
        for engine in self.engines:
            self._propose(Proposer.DP, dp_batches(self.scenario, engine), (engine,), 1.0)
        self._propose(Proposer.SHAPE, shapes(self.scenario), self.engines[:1], SHAPES_UP_TO)

    def _propose(
        self, proposer: Proposer, proposed: Iterable[Batches], engines: Sequence[EngineChoice], up_to: float
    ) -> None:
        """Estimate batches with every engine, until the share ``up_to`` of the evaluations is spent."""
        explore = self.scenario.explore
        streams, options = usual_or_first(explore.values("streams"), USUAL_STREAMS), usual_options(explore)
        for batches, engine in product(proposed, engines):
            choice = OpChoice("bespoke", self.scenario.num_ranks, engine, streams, options)
            if not self.proposals.add(proposer, with_batches(choice, batches), up_to):
                return

    def _propose_variants(self) -> None:
        """The best proposals with every engine, in all ``variants``, and with one lane for each peer or none."""
        for base in self.proposals.different(NUM_VARIED):
            proposer = self.proposals.proposer_of[base]
            for engine, (streams, options) in product(self.engines, self.variants):
                for lanes in lanes_of(engine, self.scenario.num_ranks - 1)[:2]:
                    variant = replace(base, engine=engine, streams=streams, tactics=options, lanes=lanes)
                    if not self.proposals.add(proposer, variant, VARIANTS_UP_TO):
                        return

    def _improve_batches(self) -> None:
        """Improve plans with batches by the solver and by local search, if any are likely to be fast."""
        if any(choice.parts for choice in self.proposals.likely(self._simulated)):
            self._attempt(self._solve)
            self._attempt(self._anneal)

    def _solve(self) -> None:
        """Run CP-SAT from the best plan that its model can hold."""
        fits = (
            choice for choice in self.proposals.batched() if len(choice.parts) <= MAX_BATCHES and not is_cut(choice)
        )
        start = next(fits, None)
        if start is not None and self.budget.solver_s > 0 and not self.estimator.should_stop():
            stop, limit, bound_ticks = self.estimator.should_stop, self.budget.solver_s, self.options.bound_ticks
            parts = solved_parts(
                self.scenario, start, bound_ticks, self.options.seed, limit, stop, self._foresee_annealing
            )
            self._propose(Proposer.SOLVER, map(whole_batches, parts[:NUM_SOLUTIONS]), (start.engine,), 1.0)

    def _foresee_annealing(self, solved: ShouldStop) -> None:
        """Estimate what the local search asks for if the solver, which runs meanwhile, finds nothing better."""
        requested = self.estimator.should_stop
        estimator = self.estimator.copy(lambda: solved() or requested())
        proposals, random = Proposals(estimator, dict(self.proposals.proposer_of)), Random()
        random.setstate(self.random.getstate())
        ahead = replace(self, estimator=estimator, proposals=proposals, random=random, failures=[])
        ahead._attempt(ahead._anneal)  # where that fails, the local search tells it

    def _anneal(self) -> None:
        """Search locally from the best proposals, then further from the best of the results."""
        budget = round(LOCAL_UP_TO * self.estimator.limit) - self.estimator.count
        first, rest = round(START_SHARE * budget), round((1 - START_SHARE) * budget)
        annealed = self._annealed(self.proposals.different(NUM_STARTS), first)
        self._annealed(sorted(annealed, key=self.estimator.ticks)[:NUM_CONTINUED], rest)
        self.proposals.add_known(Proposer.LOCAL, [choice for choice in self.estimator.known if choice.parts])

    def _annealed(self, starts: Sequence[OpChoice], budget: int) -> list[OpChoice]:
        """Return the best choice found from each of ``starts``, which share a budget."""
        share = budget // max(1, len(starts))
        return [anneal(self.estimator, start, share, self.random, self.engines) for start in starts if share > 0]

    def _simulate_proposals(self) -> None:
        """Simulate the best proposals."""
        count = round(PROPOSAL_SHARE * self.budget.simulations)
        self.simulator.simulate(self.proposals.to_simulate(self._simulated, count))

    def _simulate_options(self) -> None:
        """Simulate the best plans with other execution options, the most promising by the estimate."""
        best = self.simulator.ranked()[:NUM_WITH_OPTIONS]
        if not best:  # all simulations failed
            return
        varied = (
            form for plan in best for kind in (forms_of, in_other_tiles) for form in kind(self.scenario, plan.choice)
        )
        forms = [form for form in varied if self.simulator.is_new(form)]
        likely = sorted(dict.fromkeys(forms), key=self.estimator.foresee)
        count = round(WITH_OPTIONS_SHARE * self.budget.simulations)
        limit = MAX_ESTIMATE_RATIO * best[0].ticks
        wanted = [form for form in likely[:count] if self.estimator.foresee(form) <= limit]
        self.simulator.simulate([(form, Proposer.OPTIONS) for form in wanted])

    def _refine(self) -> None:
        """Simulate neighbours of the incumbent: of a few drawn, the one with the lowest estimate.

        It ends when ``max_vain`` in a row were not faster.
        """
        vain, most = 0, math.inf if self.budget.max_vain is None else self.budget.max_vain
        for _ in range(DRAWS_PER_EVALUATION * self.simulator.left):
            best = self._incumbent()
            if best is None or vain >= most or self.simulator.left <= 0 or self.estimator.spent:
                break
            likely = self._likely_neighbour(best.choice, (), self.estimator.ticks)
            if self.estimator.ticks(likely) < INFEASIBLE:
                self._begin_with_next(best.choice, likely)
                self.simulator.simulate([(likely, Proposer.REFINED)])
                vain = vain + 1 if self._incumbent() is best else 0
            elif not best.choice.parts:
                break
        self.simulator.drop_begun()

    def _incumbent(self) -> SimulatedPlan | None:
        """The fastest simulated plan that is no template."""
        return next((plan for plan in self.simulator.ranked() if plan.proposer is not Proposer.TEMPLATE), None)

    def _begin_with_next(self, incumbent: OpChoice, likely: OpChoice) -> None:
        """Begin what follows while the incumbent stays, one for each worker, and take the draws for that back."""
        state, ahead = self.random.getstate(), [likely]
        for _ in range(1, min(self.simulator.pool.count, self.simulator.left)):
            following = self._likely_neighbour(incumbent, ahead, self.estimator.foresee)
            if self.estimator.foresee(following) == INFEASIBLE:
                break
            ahead.append(following)
        self.random.setstate(state)
        self.simulator.begin(ahead)

    def _likely_neighbour(
        self, incumbent: OpChoice, under_way: Sequence[OpChoice], ticks_of: Callable[[OpChoice], float]
    ) -> OpChoice:
        """Return the best of some neighbours that were not simulated yet; the incumbent if there are none."""
        drawn = self._neighbours(incumbent)
        new = [choice for choice in drawn if self.simulator.is_new(choice) and choice not in under_way]
        return min(new, key=ticks_of, default=incumbent)

    def _neighbours(self, choice: OpChoice) -> Iterable[OpChoice]:
        """Draw neighbours of a plan with batches; of a template return all with one knob changed."""
        if not choice.parts:
            return single_knob_changes(self.scenario, choice, self.engines)
        lengths = lengths_of(self.scenario)
        draws = range(NEIGHBOURS_PER_SIMULATION)
        return dict.fromkeys(neighbour(self.random, choice, self.engines, lengths) for _ in draws)
