"""The search for a bespoke schedule: templates, bound, dynamic programming, local search, CP-SAT, and simulation.

Each stage proposes plans, cheap ones first; the step-level estimate says which are worth a simulation, and the
simulated times decide. The search is anytime: whenever it is stopped, what was simulated until then is the answer.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random

from ...compiler.ir import (
    Cancelled,
    Choice,
    CopyProtocol,
    Counted,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Scenario,
    Schedule,
    ShouldStop,
    heeding,
)
from ..bounds.lower_bound import lower_bound
from ..candidates.variations import CHANGES
from ..workers import Workers
from .annealing import DRAWS, anneal
from .batches import Batches, is_cut, lengths_of, whole_batches, with_batches
from .cp_sat import MOST_BATCHES, solved_parts
from .dp import dp_batches
from .explore_limits import usual_of, usual_options
from .initial_shapes import shapes
from .mutations import STREAMS, lanes_of, neighbour
from .neighbours import other_ways, search_ways, starts_of
from .plan_estimator import NEVER, PlanEstimator
from .proposals import WITHIN, Proposals
from .result import Proposer, SearchBudget, SearchResult, SimulatedPlan
from .simulate_proposals import Replays
from .uniform import as_batches, uniform_choices

log = logging.getLogger(__name__)

# A schedule this close to the bound is as good as any.
CLOSE_ENOUGH = 1.01
# Of the simulations, what templates get, what proposals get, and what ways get that the estimate knows nothing of,
# before the rest refines the best.
TEMPLATE_SHARE, PROPOSAL_SHARE, CARRIED_OUT_SHARE = 0.2, 0.4, 0.15
# Of the evaluations, what other ways to carry out templates get, and up to which shapes are tried, the best proposals
# varied, and the local search by estimate goes.
WAYS_SHARE, SHAPES_UP_TO, VARIED_UP_TO, LOCAL_UP_TO = 0.2, 0.45, 0.6, 0.9
# Proposals are compared on so many streams; the best are then tried with other streams, tactics, lanes and engines.
USUAL_STREAMS, VARIED = 2, 12
# Local searches that begin, with this share of the budget together; the best two then go on.
STARTS, BEGIN_SHARE, GO_ON = 6, 0.5, 2
ENGINES = 2
# Neighbours that are estimated for each one that is simulated.
TRIED = 6
# Schedules of which ways are simulated that the estimate knows nothing of.
CARRIED_OUT = 3
# Of what the solver finds on its way, the best so many are proposed.
SOLUTIONS = 8


def optimize(
    scenario: Scenario,
    budget: SearchBudget,
    unit_of: Callable[[Schedule], int],
    *,
    seed: int = 0,
    pool: Workers | None = None,
    together: int = 1,
    known: Sequence[SimulatedPlan] = (),
    prelaunched: bool = False,
    should_stop: ShouldStop = lambda: False,
    progress: Counted = lambda done, total: None,
) -> SearchResult:
    """The best schedules that the budget finds for ``scenario``, which overlaps a GEMM and a collective.

    A stage that fails is left out. The keyboard ends the search with what it found if ``should_stop`` knows of it.

    Parameters
    ----------
    unit_of
        The granularity at which a schedule is simulated.
    seed
        Of the local search and the solver.
    pool
        Where simulations run, ``together`` at a time, which changes nothing else; here without one.
    known
        Templates that were simulated before, to begin with; without any all are tried, at every chunk count.
    prelaunched
        Whether copy engines whose commands were written before are tried unasked. They make every schedule quicker,
        serial ones too, which beside a baseline without them would look like overlap.
    """
    deadline = None if budget.seconds is None else time.monotonic() + budget.seconds

    def late() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    def stop() -> bool:
        return late() or should_stop()

    replays = Replays(scenario, pool or Workers(None, stop), budget.simulations, unit_of, progress, together)
    evaluate = PlanEstimator(scenario, budget.evaluations, stop)
    search = _Search(
        scenario, budget, evaluate, replays, Random(f"bespoke {seed}"), seed, prelaunched, Proposals(evaluate)
    )
    replays.found |= {found.choice: found for found in known}
    ended = ""
    try:
        with heeding(stop):
            ended = search.run()
    except Cancelled:
        replays.stopped = True
    except KeyboardInterrupt:
        if not should_stop():
            raise
        replays.stopped = True
    cut_short = replays.stopped or stop()
    if cut_short:
        ended = "its time was over" if late() else "it was asked to stop"
    found = tuple(replays.ranked())
    faults = tuple(search.faults)
    return SearchResult(found, search.bound_ticks, seed, evaluate.count, replays.count, not cut_short, ended, faults)


@dataclass(slots=True)
class _Search:
    """State of one search.

    ``manners`` are the streams and tactics with which the best batches are varied, ``faults`` what went wrong.
    """

    scenario: Scenario
    budget: SearchBudget
    evaluate: PlanEstimator
    replays: Replays
    random: Random
    seed: int
    prelaunched: bool
    proposals: Proposals
    bound_ticks: int = 1
    engines: tuple[EngineChoice, ...] = ()
    manners: tuple[tuple[int, ExecutionOptions], ...] = ()
    faults: list[str] = field(default_factory=list)

    def run(self) -> str:
        """Go through the stages; returns why it ended early, if it did."""
        self.bound_ticks = lower_bound(self.scenario).ticks
        self.replays.enough_ticks = CLOSE_ENOUGH * self.bound_ticks
        self._templates()
        if self.replays.enough:
            return "a template is within 1 % of the lower bound"
        stages = (
            self._other_ways,
            self._batches,
            self._vary,
            self._improve,
            self._likely,
            self._carry_out,
            self._refine,
        )
        for stage in stages:
            self._attempt(stage)
        return "what was found is within 1 % of the lower bound" if self.replays.enough else ""

    def _attempt(self, stage: Callable[[], None]) -> None:
        """Go through a stage; if it fails, the others go on with what there is."""
        try:
            stage()
        except Exception as error:
            log.debug("a stage of the search failed", exc_info=True)
            self.faults.append(f"{type(error).__name__}: {error}")

    def _improve(self) -> None:
        """What the solver and the local search make of plans with batches, if any are likely to be fast."""
        if any(choice.parts for choice in self.proposals.likely(self._simulated)):
            self._attempt(self._solve)
            self._attempt(self._anneal)

    def _likely(self) -> None:
        """Simulate the best proposals."""
        count = round(PROPOSAL_SHARE * self.budget.simulations)
        self.replays(self.proposals.to_simulate(self._simulated, count))

    @property
    def _simulated(self) -> Iterable[SimulatedPlan]:
        return self.replays.found.values()

    def _templates(self) -> None:
        """Estimate all and simulate the best, unless some are known; remember the engines that did best."""
        if not self.replays.found:
            choices = uniform_choices(self.scenario)
            # The budget is for what comes after them.
            legal = [choice for choice in choices if not self.evaluate.should_stop() and self.evaluate(choice) < NEVER]
            count = max(1, round(TEMPLATE_SHARE * self.budget.simulations))
            self.replays([(choice, Proposer.TEMPLATE) for choice in sorted(legal, key=self.evaluate)[:count]])
            self.evaluate.count = 0
        best = list(dict.fromkeys(found.choice.engine for found in self.replays.ranked()))[:ENGINES]
        self.engines = tuple(dict.fromkeys([*best, *self._spare_engines()]))

    def _spare_engines(self) -> list[EngineChoice]:
        """Two copy engines for each peer where the GPU has them: one sets up a copy while the other copies.

        With commands that were written before, where these are to be tried and quicker.
        """
        dma = self.scenario.gpu.dma
        most = min(dma.engines, 2 * (self.scenario.num_ranks - 1))
        if self.scenario.explore.values("engine") or most < 1:
            return []
        before = self.prelaunched and dma.prelaunch_ticks < dma.setup_ticks
        return [EngineChoice(EngineKind.DMA, most, EngineMode.PRELAUNCHED if before else EngineMode.OWN)]

    def _other_ways(self) -> None:
        """Templates carried out in other ways: engines, streams, chunks and waves, best first by the estimate."""
        known = sorted(self.evaluate.known, key=self.evaluate)
        last = self.evaluate.count + round(WAYS_SHARE * self.evaluate.limit)
        for start in starts_of([*known, *(found.choice for found in self.replays.ranked())]):
            ways = search_ways(self.evaluate, start, last - self.evaluate.count, self.engines)
            self.proposals.add_known(Proposer.WAYS, ways)
        usual = usual_options(self.scenario.explore)
        manners = [(streams, usual) for streams in self.scenario.explore.values("streams") or STREAMS]
        for best in self.proposals.ranked()[:1]:
            # Batches may be carried out as the best template is; a protocol is for some engines alone.
            manners.append((best.streams, replace(best.tactics, protocol=CopyProtocol.SIMPLE)))
        self.manners = tuple(dict.fromkeys(manners))

    def _batches(self) -> None:
        """Batches as templates have them, by dynamic programming, and that grow or shrink."""
        alike = (as_batches(self.scenario, found.choice) for found in self.replays.ranked())
        self._propose(Proposer.SHAPE, [batches for batches in alike if batches is not None], self.engines, SHAPES_UP_TO)
        for engine in self.engines:
            self._propose(Proposer.DP, dp_batches(self.scenario, engine), (engine,), 1.0)
        self._propose(Proposer.SHAPE, shapes(self.scenario), self.engines[:1], SHAPES_UP_TO)

    def _propose(
        self, stage: Proposer, found: Iterable[Batches], engines: Sequence[EngineChoice], up_to: float
    ) -> None:
        """Estimate batches by every engine, until a share of the evaluations is spent."""
        streams, tactics = (
            usual_of(self.scenario.explore.values("streams"), USUAL_STREAMS),
            usual_options(self.scenario.explore),
        )
        for batches, engine in product(found, engines):
            choice = Choice("bespoke", self.scenario.num_ranks, engine, streams, tactics)
            if not self.proposals.add(stage, with_batches(choice, batches), up_to):
                return

    def _vary(self) -> None:
        """The best proposals by every engine, in all ``manners``, and with one lane for each peer or none."""
        for base in self.proposals.different(VARIED):
            stage = self.proposals.stage_of[base]
            for engine, (streams, tactics) in product(self.engines, self.manners):
                for lanes in lanes_of(engine, self.scenario.num_ranks - 1)[:2]:
                    other = replace(base, engine=engine, streams=streams, tactics=tactics, lanes=lanes)
                    if not self.proposals.add(stage, other, VARIED_UP_TO):
                        return

    def _solve(self) -> None:
        """CP-SAT from the best plan that its model can hold."""
        fits = (each for each in self.proposals.batched() if len(each.parts) <= MOST_BATCHES and not is_cut(each))
        start = next(fits, None)
        if start is not None and self.budget.solver_s > 0 and not self.evaluate.should_stop():
            stop, limit = self.evaluate.should_stop, self.budget.solver_s
            found = solved_parts(self.scenario, start, self.bound_ticks, self.seed, limit, stop)
            self._propose(Proposer.SOLVER, map(whole_batches, found[:SOLUTIONS]), (start.engine,), 1.0)

    def _anneal(self) -> None:
        """Local search from the best proposals, then further from the best that it found."""
        budget = round(LOCAL_UP_TO * self.evaluate.limit) - self.evaluate.count
        begin, go_on = round(BEGIN_SHARE * budget), round((1 - BEGIN_SHARE) * budget)
        found = self._annealed(self.proposals.different(STARTS), begin)
        self._annealed(sorted(found, key=self.evaluate)[:GO_ON], go_on)
        self.proposals.add_known(Proposer.LOCAL, [choice for choice in self.evaluate.known if choice.parts])

    def _annealed(self, starts: Sequence[Choice], budget: int) -> list[Choice]:
        """The best found from each of ``starts``, which share a budget."""
        each = budget // max(1, len(starts))
        return [anneal(self.evaluate, start, each, self.random, self.engines) for start in starts if each > 0]

    def _carry_out(self) -> None:
        """The best carried out in ways that the estimate knows nothing of."""
        best = self.replays.ranked()[:CARRIED_OUT]
        ways = (change(self.scenario, found.choice) for change, found in product(CHANGES, best))
        tried = (way for way in ways if way is not None and not self.evaluate.spent)
        likely = [way for way in tried if self.evaluate(way) <= WITHIN * best[0].ticks]
        count = round(CARRIED_OUT_SHARE * self.budget.simulations)
        self.replays([(way, Proposer.WAYS) for way in dict.fromkeys(likely)][:count])

    def _refine(self) -> None:
        """From the best by simulation to better neighbours: of a few drawn the one that the estimate likes."""
        for _ in range(DRAWS * self.replays.left):
            best = next((found for found in self.replays.ranked() if found.stage is not Proposer.TEMPLATE), None)
            if best is None or self.replays.left <= 0 or self.evaluate.spent:
                return
            new = [choice for choice in self._near(best.choice) if self.replays.is_new(choice)]
            likely = min(new, key=self.evaluate, default=best.choice)
            if self.evaluate(likely) < NEVER:
                self.replays([(likely, Proposer.REFINED)])
            elif not best.choice.parts:
                return

    def _near(self, choice: Choice) -> Iterable[Choice]:
        """Neighbours of a plan with batches, drawn; of a template all other ways to carry it out."""
        if not choice.parts:
            return other_ways(self.scenario, choice, self.engines)
        lengths = lengths_of(self.scenario)
        return dict.fromkeys(neighbour(self.random, choice, self.engines, lengths) for _ in range(TRIED))
