"""The search for a joint schedule: place the ops, simulate what is found, change the best step by step."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf

from ...compiler.ir import GraphChoice, GraphScenario
from ...compiler.planning.graph_batches import batch_counts, in_batches
from ...compiler.resolve.schedules.explore import BATCHES
from .baselines import IN_TURN, baselines_of, cut_along, free_names, in_batches_of, in_one_program
from .climbing import at_its_paces, improved
from .copiers import copiers_of, of_one_op
from .joint import JointRuns
from .modes import Ways
from .moves import brings_ahead, with_other_seams
from .pacing import is_limited
from .placement import placed_choices
from .space import LayerSpace, space_of

JOINT = "joint"
"""The name of schedules that were searched."""

USUAL_BATCHES = 2
"""Most batches unless the file explores others: what runtimes have is two."""

NUM_STARTS = 2
"""Schedules from which small changes are tried, the fastest that were placed."""


@dataclass(slots=True)
class JointSearch:
    """Searches schedules of one graph; what it has found so far stays when it is stopped.

    ``found`` holds the time of each schedule that could be simulated, and ``spaces`` those that it was searched in.
    ``known`` are what people have today and what the file declares, in words. ``places`` and
    ``climbs`` say whether the solver and small changes are used.
    """

    scenario: GraphScenario
    runs: JointRuns
    places: bool = True
    climbs: bool = True
    seed: int = 0
    found: dict[GraphChoice, int] = field(default_factory=dict)
    known: dict[GraphChoice, str] = field(default_factory=dict)
    spaces: list[LayerSpace] = field(default_factory=list)
    origin: dict[GraphChoice, LayerSpace] = field(default_factory=dict)
    """Where each schedule comes from that the file does not declare."""
    searched: set[GraphChoice] = field(default_factory=set)

    def run(self) -> None:
        """Search until nothing better is found.

        Raises
        ------
        Cancelled
            If the caller is asked to stop; what was found is there.
        """
        for choice in self.scenario.schedules:
            self.take(choice, "declared in the file")
        for space in self._spaces():
            self.spaces.append(space)
            self._baselines(space)
            if self.places:
                self._placed(space.quick(self.runs.ranks) if self.runs.ranks.are_many else space)
        for start in self._starts():
            if self.climbs:
                self._climbed(start)
            else:
                self._searched(self._at_seams(start), self.origin[start])

    def _climbed(self, start: GraphChoice) -> None:
        """Change ``start`` step by step, and in the end its seams; where that is stopped, the last step counts."""
        space = self.origin[start]
        best = self._at_seams(self._at_paces(start, space))
        try:
            while True:
                for faster in improved(self.runs, space, best):
                    best = faster
                other = self._at_seams(best)
                if other is best:
                    break
                best = other
        finally:
            self._searched(best, space)

    def _at_seams(self, choice: GraphChoice) -> GraphChoice:
        """``choice`` with the other seams, if that is faster."""
        other = with_other_seams(choice)
        ticks, before = self.runs.ticks(other), self.runs.ticks(choice)
        return choice if ticks is None or before is None or before <= ticks else other

    def _at_paces(self, start: GraphChoice, space: LayerSpace) -> GraphChoice:
        """``start`` with slower collectives, if that is faster."""
        slower = at_its_paces(space, start)
        ticks, before = self.runs.ticks(slower), self.runs.ticks(start)
        return start if ticks is None or before is None or before <= ticks else slower

    def _starts(self) -> list[GraphChoice]:
        """The best of what is known, the fastest placed, and those in each number of batches, cut along or not."""
        best = self.best_searched()
        of_each = {(choice.batches, bool(choice.along)): choice for choice in reversed(best)}
        return list(dict.fromkeys((*self._fastest_known(), *best[:NUM_STARTS], *of_each.values())))

    def _fastest_known(self) -> Iterator[GraphChoice]:
        """What people have or the file declares, where no schedule that was searched is faster, its order said."""
        known = [choice for choice in self.known if not choice.side_by_side]
        first = min(known, key=self.found.__getitem__, default=None)
        if first is None or self.found[first] > min(map(self.found.__getitem__, self.searched), default=inf):
            return
        space = self.space_of(first)
        if space is not None:
            ops = tuple(op.name for op in space.graph.ops)
            start = replace(first, name=JOINT, order=first.order or ops)
            self.origin[start] = space
            yield start

    def _spaces(self) -> Iterator[LayerSpace]:
        """Who copies, in how many batches: left out where the kernels alone take longer than what was found."""
        system, graph = self.scenario.system, self.scenario.graph
        usual = [count for count in batch_counts(graph) if count <= USUAL_BATCHES]
        for copier in copiers_of(system, self.scenario.graph, self.scenario.explore, few=self.runs.ranks.are_many):
            explore = self.scenario.explore
            of_ops, paced = of_one_op(explore, copier), not is_limited(explore)
            ways = Ways(system, copier, self.runs.unit_bytes, of_ops, paced, self.runs.ranks)
            for batches in self.scenario.explore.values(BATCHES) or usual:
                written_out = in_batches(graph, batches)
                kernels = sum(ways.kernel_ticks(op) for op in written_out.ops)
                if kernels * self.scenario.graph.num_layers >= self._least_in_one_stream():
                    continue
                yield space_of(ways, batches, written_out)

    def _least_in_one_stream(self) -> float:
        """The shortest time so far of kernels that share no SMs: others are never the answer."""
        return min((ticks for choice, ticks in self.found.items() if not choice.side_by_side), default=inf)

    def _baselines(self, space: LayerSpace) -> None:
        if space.batches > USUAL_BATCHES:
            return
        if space.batches > 1:
            for each in in_batches_of(space.graph, space.ways, space.batches):
                self.take(each.choice, each.what, space)
            return
        for each in baselines_of(space.graph, space.ways):
            self.take(each.choice, each.what, space)
            if each.choice.name == IN_TURN:
                start = in_one_program(each.choice, JOINT)
                self._searched(start, space)
                self._searched(cut_along(space.graph, space.ways, space.following, start), space)

    def _placed(self, space: LayerSpace) -> None:
        choices = placed_choices(
            space.graph,
            space.ways,
            name=JOINT,
            batches=space.batches,
            layers=self.scenario.graph.num_layers,
            seed=self.seed,
            should_stop=self.runs.should_stop,
        )
        for choice in choices:
            self._searched(choice, space)
            if brings_ahead(space.graph):
                self._searched(replace(choice, ahead=1, beside=()), space)

    def take(self, choice: GraphChoice, what: str, space: LayerSpace | None = None) -> None:
        """Simulate what people have; by another copier than the first it has another name."""
        first = self.spaces[0].copier if self.spaces else None
        if space is not None and space.copier != first:
            engine = str(space.copier).translate({ord("("): "", ord(")"): ""})
            choice, what = replace(choice, name=f"{choice.name}_{engine}"), f"{what}, by {space.copier}"
        if space is not None:
            choice = replace(choice, name=next(free_names(choice.name, self.scenario.schedules)))
        ticks = self.runs.ticks(choice)
        if ticks is not None and not any(_same(choice, other) for other in self.known):
            self.found[choice], self.known[choice] = ticks, what
            if space is not None:
                self.origin[choice] = space

    def try_searched(self, choice: GraphChoice, space: LayerSpace) -> float:
        """Simulate a schedule that another search has found; return its ticks, infinite where it cannot be.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        self._searched(choice, space)
        return self.found.get(choice, inf)

    def _searched(self, choice: GraphChoice, space: LayerSpace) -> None:
        ticks = self.runs.ticks(choice)
        if ticks is not None and not any(_same(choice, other) for other in self.found):
            self.found[choice], self.origin[choice] = ticks, space
            self.searched.add(choice)

    def best_searched(self) -> list[GraphChoice]:
        """Return the schedules that were searched, the fastest first."""
        return sorted(self.searched, key=self._rank)

    def _rank(self, choice: GraphChoice) -> tuple[int, int]:
        """Equally fast ones in the order in which they were found."""
        return self.found[choice], list(self.found).index(choice)

    def space_of(self, choice: GraphChoice) -> LayerSpace | None:
        """Return the ops that a schedule is about with their ways; None before there are any."""
        same = (self.origin[other] for other in self.origin if _same(choice, other))
        return next(same, next((each for each in self.spaces if each.batches == choice.batches), None))


def _same(one: GraphChoice, other: GraphChoice) -> bool:
    return replace(one, name="") == replace(other, name="")
