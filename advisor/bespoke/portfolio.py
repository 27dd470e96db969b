"""The search for a bespoke schedule: templates, bound, dynamic programming, local search, CP-SAT, and simulation.

Each stage proposes plans, cheap ones first; the step-level estimate says which are worth a simulation, and the
simulated times decide. The search is anytime: whenever it is stopped, what was simulated until then is the answer.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random

from ...compiler.scenario import Scenario
from ...compiler.schedule import Choice, EngineChoice, EngineKind, EngineMode, Protocol, Schedule, Tactics
from ...compiler.templates.bespoke import Parts, shortened
from ..bounds import lower_bound
from ..variations import CHANGES
from ..workers import Workers
from .costs import whole_rows
from .dp import dp_parts
from .evaluate import NEVER, Evaluator, ShouldStop
from .exact import MOST_BATCHES, solved_parts
from .local import DRAWS, anneal
from .moves import STREAMS, lanes_of, neighbour
from .outcome import Budget, Found, Outcome, Stage
from .replays import Progress, Replays
from .seeds import shapes
from .uniform import as_parts, uniform_choices
from .ways import other_ways, search_ways, starts_of

# A schedule this close to the bound is as good as any.
CLOSE_ENOUGH = 1.01
# Of the simulations, what templates get, and what proposals get before the rest refines the best of them.
TEMPLATE_SHARE, PROPOSAL_SHARE = 0.2, 0.4
# Of the evaluations, up to which batches as templates have them and other shapes are tried, and up to which the local
# search by estimate goes.
ALIKE_UP_TO, SHAPES_UP_TO, LOCAL_UP_TO = 0.4, 0.5, 0.9
STARTS = 4
ENGINES = 2
# Neighbours that are estimated for each one that is simulated.
TRIED = 6
# Of the simulations, what ways get that the estimate knows nothing of.
CARRIED_OUT_SHARE = 0.15
# Of the evaluations, what the searches for other ways to carry out templates may take.
WAYS_SHARE = 0.25
# Schedules of which ways are simulated that the estimate knows nothing of.
VARIED = 3
# Plans that the estimate puts further behind the best known are left alone. It is between 0.84 and 1.18 of the
# simulated time over the scenarios of benchmarks/schedules.py.
WITHIN = 1.3
# Of what the solver finds on its way, the best so many are proposed.
SOLUTIONS = 8


def optimize(
    scenario: Scenario,
    budget: Budget,
    unit_of: Callable[[Schedule], int],
    *,
    seed: int = 0,
    pool: Workers | None = None,
    together: int = 1,
    known: Sequence[Found] = (),
    prelaunched: bool = False,
    should_stop: ShouldStop = lambda: False,
    progress: Progress = lambda done, total: None,
) -> Outcome:
    """The best schedules that the budget finds for ``scenario``, which overlaps a GEMM and a collective.

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
    evaluate = Evaluator(scenario, budget.evaluations, stop)
    search = _Search(scenario, budget, evaluate, replays, Random(f"bespoke {seed}"), seed, prelaunched)
    replays.found |= {found.choice: found for found in known}
    try:
        ended = search.run()
    except KeyboardInterrupt:
        replays.stopped, ended = True, ""
    cut_short = replays.stopped or stop()
    if cut_short:
        ended = "its time was over" if late() else "it was asked to stop"
    found = tuple(replays.ranked())
    return Outcome(found, search.bound_ticks, seed, evaluate.count, replays.count, not cut_short, ended)


@dataclass(slots=True)
class _Search:
    """State of one search. ``stage_of`` is which stage proposed a plan first.

    ``manners`` are the streams and tactics with which parts are proposed.
    """

    scenario: Scenario
    budget: Budget
    evaluate: Evaluator
    replays: Replays
    random: Random
    seed: int
    prelaunched: bool
    bound_ticks: int = 1
    engines: tuple[EngineChoice, ...] = ()
    manners: tuple[tuple[int, Tactics], ...] = ()
    stage_of: dict[Choice, Stage] = field(default_factory=dict)

    def run(self) -> str:
        """Go through the stages; returns why it ended early, if it did."""
        self.bound_ticks = lower_bound(self.scenario).ticks
        self._templates()
        if self._gap() < CLOSE_ENOUGH:
            return "a template is within 1 % of the lower bound"
        self._vary()
        whole = whole_rows(self.scenario)
        for engine in self.engines:
            self._propose(Stage.DP, dp_parts(self.scenario, engine), (engine,), 1.0)
        alike = dict.fromkeys(as_parts(found.choice, whole) for found in self.replays.ranked())
        self._propose(Stage.SHAPE, [parts for parts in alike if parts is not None], self.engines, ALIKE_UP_TO)
        self._propose(Stage.SHAPE, shapes(whole), self.engines, SHAPES_UP_TO)
        if any(choice.parts for choice in self._likely()):
            self._solve()
            self._anneal()
        self._simulate_proposals()
        self._carry_out()
        self._refine()
        return ""

    def _vary(self) -> None:
        """Templates carried out in other ways: engines, streams, chunks and waves, best first by the estimate."""
        known = sorted(self.evaluate.known, key=self.evaluate)
        last = self.evaluate.count + round(WAYS_SHARE * self.evaluate.limit)
        for start in starts_of([*known, *(found.choice for found in self.replays.ranked())]):
            for way in search_ways(self.evaluate, start, last - self.evaluate.count, self.engines):
                self.stage_of.setdefault(way, Stage.WAYS)
        best = min(self.stage_of, key=self.evaluate, default=None)
        self.manners = tuple((streams, Tactics()) for streams in STREAMS)
        if best is not None:
            # Plans with parts may be carried out as the best template is; a protocol is for some engines alone.
            likewise = best.streams, replace(best.tactics, protocol=Protocol.SIMPLE)
            self.manners = tuple(dict.fromkeys((*self.manners, likewise)))

    def _likely(self) -> list[Choice]:
        """Proposals that may win, the best by estimate first."""
        order = sorted(self.stage_of, key=self.evaluate)
        simulated = [found.ticks for found in self.replays.found.values()]
        limit = WITHIN * min([*simulated, *map(self.evaluate, order[:1])], default=NEVER)
        return [choice for choice in order if self.evaluate(choice) <= limit]

    def _gap(self) -> float:
        return min((found.ticks for found in self.replays.found.values()), default=NEVER) / self.bound_ticks

    def _templates(self) -> None:
        """Estimate all and simulate the best, unless some are known; remember the engines that did best."""
        if not self.replays.found:
            choices = uniform_choices(self.scenario)
            # The budget is for what comes after them.
            legal = [choice for choice in choices if not self.evaluate.should_stop() and self.evaluate(choice) < NEVER]
            count = max(1, round(TEMPLATE_SHARE * self.budget.simulations))
            self.replays([(choice, Stage.TEMPLATE) for choice in sorted(legal, key=self.evaluate)[:count]])
            self.evaluate.count = 0
        best = list(dict.fromkeys(found.choice.engine for found in self.replays.ranked()))[:ENGINES]
        self.engines = tuple(dict.fromkeys([*best, *self._spare_engines()]))

    def _spare_engines(self) -> list[EngineChoice]:
        """Two copy engines for each peer where the GPU has them: one sets up a copy while the other copies.

        With commands that were written before, where these are to be tried and quicker.
        """
        dma = self.scenario.gpu.dma
        most = min(dma.engines, 2 * (self.scenario.num_ranks - 1))
        if self.scenario.explore.engines or most < 1:
            return []
        before = self.prelaunched and dma.prelaunch_ticks < dma.setup_ticks
        return [EngineChoice(EngineKind.DMA, most, EngineMode.PRELAUNCHED if before else EngineMode.OWN)]

    def _propose(self, stage: Stage, found: Iterable[Parts], engines: Sequence[EngineChoice], up_to: float) -> None:
        """Estimate parts by every engine and number of streams, until a share of the evaluations is spent."""
        n = self.scenario.num_ranks
        for parts, engine, (streams, tactics) in product(found, engines, self.manners):
            for lanes in lanes_of(engine, n - 1)[: 1 if stage is Stage.SHAPE else 2]:
                if self.evaluate.spent or self.evaluate.count >= up_to * self.evaluate.limit:
                    return
                choice = Choice("bespoke", n, engine, streams, tactics, lanes=lanes, parts=shortened(parts))
                if self.evaluate(choice) < NEVER:
                    self.stage_of.setdefault(choice, stage)

    def _anneal(self) -> None:
        """Local search from the best proposals, no two alike but for streams and engine."""
        order, starts = sorted(self.stage_of, key=self.evaluate), dict[Parts, Choice]()
        for choice in order:
            if choice.parts:
                starts.setdefault(choice.parts, choice)
        budget = round(LOCAL_UP_TO * self.evaluate.limit) - self.evaluate.count
        for start in list(starts.values())[:STARTS]:
            if budget >= STARTS:
                anneal(self.evaluate, start, budget // STARTS, self.random, self.engines)
        for choice, ticks in self.evaluate.known.items():
            if choice.parts and ticks < NEVER:
                self.stage_of.setdefault(choice, Stage.LOCAL)

    def _solve(self) -> None:
        """CP-SAT from the best plan that its model can hold."""
        order = (each for each in sorted(self.stage_of, key=self.evaluate) if each.parts)
        start = next((each for each in order if len(each.parts) <= MOST_BATCHES), None)
        if start is not None and self.budget.solver_s > 0 and not self.evaluate.should_stop():
            stop, limit = self.evaluate.should_stop, self.budget.solver_s
            found = solved_parts(self.scenario, start, self.bound_ticks, self.seed, limit, stop)
            self._propose(Stage.SOLVER, found[:SOLUTIONS], (start.engine,), 1.0)

    def _simulate_proposals(self) -> None:
        """The best by estimate, after the best of each stage, engine and number of streams: estimates may err."""
        order, stages, kinds = self._likely(), dict[Stage, Choice](), dict[object, Choice]()
        for choice in order:
            stage = self.stage_of[choice]
            stages.setdefault(stage, choice)
            kinds.setdefault((stage, choice.engine, choice.streams), choice)
        first = dict.fromkeys([*stages.values(), *sorted(kinds.values(), key=self.evaluate)])
        count = round(PROPOSAL_SHARE * self.budget.simulations)
        chosen = list(dict.fromkeys([*list(first)[: count // 2], *order]))[:count]
        self.replays([(choice, self.stage_of[choice]) for choice in chosen])

    def _carry_out(self) -> None:
        """The best carried out in ways that the estimate knows nothing of."""
        best = self.replays.ranked()[:VARIED]
        ways = (change(self.scenario, found.choice) for change, found in product(CHANGES, best))
        tried = (way for way in ways if way is not None and not self.evaluate.spent)
        likely = [way for way in tried if self.evaluate(way) <= WITHIN * best[0].ticks]
        count = round(CARRIED_OUT_SHARE * self.budget.simulations)
        self.replays([(way, Stage.WAYS) for way in dict.fromkeys(likely)][:count])

    def _refine(self) -> None:
        """From the best by simulation to better neighbours: of a few drawn the one that the estimate likes."""
        for _ in range(DRAWS * self.replays.left):
            best = next((found for found in self.replays.ranked() if found.stage is not Stage.TEMPLATE), None)
            if best is None or self.replays.left <= 0 or self.evaluate.spent:
                return
            new = [choice for choice in self._near(best.choice) if choice not in self.replays.found]
            likely = min(new, key=self.evaluate, default=best.choice)
            if self.evaluate(likely) < NEVER:
                self.replays([(likely, Stage.REFINED)])
            elif not best.choice.parts:
                return

    def _near(self, choice: Choice) -> Iterable[Choice]:
        """Neighbours of a plan with parts, drawn; of a template all other ways to carry it out."""
        if choice.parts:
            return dict.fromkeys(neighbour(self.random, choice, self.engines) for _ in range(TRIED))
        return other_ways(self.scenario, choice, self.engines)
