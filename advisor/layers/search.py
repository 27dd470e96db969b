"""The search for a joint schedule: place the ops, simulate what is found, change the best step by step."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf

from ...compiler.ir import (
    Scenario,
    Schedule,
    WorkloadCut,
    checkpoint,
    even_groups,
)
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.groups import cut_up, experts_of_a_rank
from ...compiler.planning.parts import PlanError, batch_counts
from ...compiler.resolve.schedules.explore import BATCHES, GROUPS
from ..implementations.predict import MIN_GAIN
from .joint import JointRuns, LayerSpace, space_of
from .op_runs import copiers_of, of_one_op
from .options import OpOptions, is_limited
from .orders import (
    IN_TURN,
    baselines_of,
    cut_as,
    free_names,
    group_by_group,
    in_batches_of,
    in_one_program,
    short_at_the_ends,
)
from .placement import (
    LIMIT_S,
    QUICK_LIMIT_S,
    brings_ahead,
    other_paces,
    placed_choices,
    small_changes,
    with_other_handoff,
)
from .timing import LayerEstimates

LEAST_GAIN = 0.0005
"""Share of time that a change must gain: less is within the error of coarse packets."""

SLACK = 0.002
"""Changes that are estimated to lose more than this share of time are not simulated."""

PATIENCE = 6
"""Changes in a row that are simulated and gain nothing: then no further one is tried."""


def improved(runs: JointRuns, space: LayerSpace, start: Schedule) -> Iterator[Schedule]:
    """Yield ever faster schedules that small changes lead to from ``start``.

    They end where nothing is gained, or where the search has taken what it may. Estimates order schedules well, but do
    not know caches and priorities: a change counts once it is simulated.

    Raises
    ------
    Cancelled
        If the caller is asked to stop.
    """
    best, ticks, refused = start, runs.ticks(start), set[frozenset[object]]()
    while ticks is not None:
        for changed in _promising(space, best, refused):
            if runs.is_spent:
                return
            faster = runs.ticks(changed)
            if faster is not None and faster < ticks * (1 - LEAST_GAIN):
                best, ticks = changed, faster
                break
            refused.add(_change(best, changed))
        else:
            return
        yield best


def _promising(space: LayerSpace, choice: Schedule, refused: Container[frozenset[object]]) -> Iterator[Schedule]:
    """Yield the changes that are worth a simulation, the best by their estimate first, but those ``refused`` last."""
    estimates = LayerEstimates(space)
    limit = _estimate(estimates, choice)
    if limit is None:
        return
    estimated = []
    for place, changed in enumerate(small_changes(space.workload, space.op_options, space.following, choice)):
        checkpoint()
        estimate = _estimate(estimates, changed)
        if estimate is not None and estimate <= limit * (1 + SLACK):
            estimated.append((estimate, place, changed))
    best = [changed for _, _, changed in sorted(estimated, key=lambda each: each[:2])[:PATIENCE]]
    yield from sorted(best, key=lambda changed: _change(choice, changed) in refused)


def _change(before: Schedule, after: Schedule) -> frozenset[object]:
    """In what two schedules differ; what gained nothing in one seldom does in the next, where it is the same."""
    return frozenset(_said(before)) ^ frozenset(_said(after))


def _said(choice: Schedule) -> Iterator[object]:
    """What small changes may change, each by itself; of an order which part is behind which."""
    yield from pairwise(choice.order)
    for name in ("modes", "chained", "starts_with", "low", "deferred"):
        yield from ((name, each) for each in getattr(choice, name))
    yield from (("prefetch", choice.prefetch), ("sums first", choice.sums_first))


def at_its_paces(space: LayerSpace, choice: Schedule) -> Schedule:
    """Return ``choice`` with each whole collective as slow as is estimated to be best, one changed after the other."""
    estimates = LayerEstimates(space)
    best, least = choice, _estimate(estimates, choice)
    while least is not None:
        for slower in other_paces(space.workload, space.op_options, best):
            checkpoint()
            estimate = _estimate(estimates, slower)
            if estimate is not None and estimate < least * (1 - LEAST_GAIN):
                best, least = slower, estimate
                break
        else:
            break
    return best


def _best_estimated(space: LayerSpace, choices: Iterable[Schedule]) -> list[Schedule]:
    """The ``NUM_STARTS`` that are estimated to be fastest."""
    estimates = LayerEstimates(space)
    return sorted(choices, key=lambda each: _estimate(estimates, each) or inf)[:NUM_STARTS]


def _estimate(estimates: LayerEstimates, choice: Schedule) -> int | None:
    """The estimated time; None where the order cannot be kept."""
    try:
        return estimates.ticks(choice)
    except ScheduleError:
        return None


JOINT = "joint"
"""The name of schedules that were searched."""

USUAL_BATCHES = 2
"""Most batches unless the file explores others: what runtimes have is two."""

USUAL_GROUPS = (2, 3, 4, 6, 8, 12)
"""Numbers of groups of experts unless the file explores others."""

NUM_STARTS = 2
"""Schedules from which small changes are tried, the fastest that were placed."""


@dataclass(slots=True)
class JointSearch:
    """Searches schedules of one workload; what it has found so far stays when it is stopped.

    ``found`` holds the time of each schedule that could be simulated, and ``spaces`` those that it was searched in.
    ``known`` are what people have today and what the file declares, in words. ``places`` and
    ``climbs`` say whether the solver and small changes are used.
    """

    scenario: Scenario
    runs: JointRuns
    places: bool = True
    climbs: bool = True
    found: dict[Schedule, int] = field(default_factory=dict)
    known: dict[Schedule, str] = field(default_factory=dict)
    spaces: list[LayerSpace] = field(default_factory=list)
    origin: dict[Schedule, LayerSpace] = field(default_factory=dict)
    """Where each schedule comes from that the file does not declare."""
    searched: set[Schedule] = field(default_factory=set)

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
            if space.cut.groups:
                self._grouped(space)
            elif self.places:
                self._placed(space.quick(self.runs.ranks) if self.runs.ranks.are_many else space)
        for start in self._starts() if self.climbs or not self.runs.quick else self._starts()[:1]:
            if self.climbs:
                self._climbed(start)
            else:
                self._searched(self._at_handoff(start), self.origin[start])

    def _climbed(self, start: Schedule) -> None:
        """Change ``start`` step by step, and in the end its hand-offs; where that is stopped, the last step counts."""
        space = self.origin[start]
        best = self._at_handoff(self._faster(start, at_its_paces(space, start)))
        try:
            while True:
                for faster in improved(self.runs, space, best):
                    best = faster
                other = self._at_handoff(best)
                if other is best:
                    break
                best = other
        finally:
            self._searched(best, space)

    def _at_handoff(self, choice: Schedule) -> Schedule:
        """``choice`` with the other hand-offs, if that is faster."""
        return self._faster(choice, with_other_handoff(choice))

    def _faster(self, choice: Schedule, other: Schedule) -> Schedule:
        ticks, before = self.runs.ticks(other), self.runs.ticks(choice)
        return choice if ticks is None or before is None or before <= ticks else other

    def _starts(self) -> list[Schedule]:
        """The best of what is known, the fastest placed, and those in each number of batches, in groups, cut along."""
        best = self.best_searched()
        grouped = [choice for choice in best if choice.groups]
        best = [choice for choice in best if choice not in grouped[1:]]  # others differ in sizes alone
        of_each = {(choice.batches, bool(choice.groups), bool(choice.chained)): choice for choice in reversed(best)}
        first = [one for place, one in enumerate(best[:NUM_STARTS]) if not self._leads_where(best[:place], one)]
        return list(dict.fromkeys((*self._fastest_known(), *first, *of_each.values())))

    def _leads_where(self, others: Iterable[Schedule], one: Schedule) -> bool:
        """Whether small changes lead ``one`` where they lead one of ``others``: in another order it is as fast."""
        least = self.found[one] * (1 - LEAST_GAIN)
        return any(self.found[other] > least and _same(replace(one, order=other.order), other) for other in others)

    def _fastest_known(self) -> Iterator[Schedule]:
        """What people have or the file declares, where no schedule that was searched is faster, its order said."""
        known = [choice for choice in self.known if not choice.side_by_side]
        first = min(known, key=self.found.__getitem__, default=None)
        if first is None or self.found[first] > min(map(self.found.__getitem__, self.searched), default=inf):
            return
        space = self.space_of(first)
        if space is not None:
            ops = tuple(op.name for op in space.workload.ops)
            start = replace(first, name=JOINT, order=first.order or ops)
            self.origin[start] = space
            yield start

    def _spaces(self) -> Iterator[LayerSpace]:
        """Who copies, and how all is cut: left out where the kernels alone take longer than what was found."""
        system, workload = self.scenario.system, self.scenario.workload
        for copier in copiers_of(system, self.scenario.workload, self.scenario.explore, few=self.runs.ranks.are_many):
            explore = self.scenario.explore
            of_ops, paced = of_one_op(explore, copier), not is_limited(explore)
            op_options = OpOptions(system, copier, self.runs.unit_bytes, of_ops, paced, self.runs.ranks)
            for cut in self._cuts():
                try:
                    written_out = cut_up(workload, cut)
                except PlanError:  # such as a group of experts without rows
                    continue
                kernels = sum(op_options.kernel_ticks(op) for op in written_out.ops)
                if kernels * self.scenario.workload.num_layers >= self._least_in_one_stream():
                    continue
                yield space_of(op_options, cut, written_out)

    def _cuts(self) -> Iterator[WorkloadCut]:
        """In how many batches, and groups of experts: more and more of these until the last were slower by what counts.

        By less three groups may be slower than two where four are faster than both: their ends are shorter.
        """
        explore, workload = self.scenario.explore, self.scenario.workload
        experts, group_counts, batches = experts_of_a_rank(workload), explore.values(GROUPS), explore.values(BATCHES)
        for count in batches or [count for count in batch_counts(workload) if count <= USUAL_BATCHES]:
            if not group_counts or 1 in group_counts:
                yield WorkloadCut(count)
        least = inf
        for count in group_counts or (() if self.runs.ranks.are_many else USUAL_GROUPS):
            if 1 < count <= experts:
                sizes = (even_groups(experts, count),) if group_counts else ()
                for groups in dict.fromkeys((*sizes, short_at_the_ends(experts, count))):
                    yield from (WorkloadCut(num_batches, groups) for num_batches in batches or (1,))
                mine = [self.found[one] for one in self.searched if len(one.groups) == count]
                if not group_counts and min(mine, default=inf) >= least * (1 + MIN_GAIN):
                    return
                least = min([least, *mine])

    def _least_in_one_stream(self) -> float:
        """The shortest time so far of kernels that share no SMs: others are never the answer."""
        return min((ticks for choice, ticks in self.found.items() if not choice.side_by_side), default=inf)

    def _baselines(self, space: LayerSpace) -> None:
        if space.cut.batches > USUAL_BATCHES or space.cut.groups:
            return
        if space.cut.batches > 1:
            for each in in_batches_of(space.workload, space.op_options, space.cut.batches):
                self.take(each.choice, each.what, space)
            return
        for each in baselines_of(space.workload, space.op_options):
            self.take(each.choice, each.what, space)
            if each.choice.name == IN_TURN:
                start = in_one_program(each.choice, JOINT)
                self._searched(start, space)
                self._searched(cut_as(space.workload, space.op_options, space.following, start), space)

    def _placed(self, space: LayerSpace) -> None:
        placed = placed_choices(
            space,
            name=JOINT,
            layers=self.scenario.workload.num_layers,
            limit=QUICK_LIMIT_S if self.runs.quick else LIMIT_S,
            should_stop=self.runs.should_stop,
        )
        ahead = brings_ahead(space.workload)
        both = ((one, replace(one, prefetch=1, starts_with=())) if ahead else (one,) for one in placed)
        choices = [choice for of_one in both for choice in of_one]
        for choice in _best_estimated(space, choices) if self.runs.quick else choices:
            self._searched(choice, space)

    def _grouped(self, space: LayerSpace) -> None:
        """Groups one behind the other, with what else there is where it is estimated to be best."""
        for choice in _best_estimated(space, group_by_group(space.workload, space.op_options, JOINT, space.cut)):
            self._searched(choice, space)

    def take(self, choice: Schedule, what: str, space: LayerSpace | None = None) -> None:
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

    def try_searched(self, choice: Schedule, space: LayerSpace) -> float:
        """Simulate a schedule that another search has found; return its ticks, infinite where it cannot be.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        self._searched(choice, space)
        return self.found.get(choice, inf)

    def _searched(self, choice: Schedule, space: LayerSpace) -> None:
        ticks = self.runs.ticks(choice)
        if ticks is not None and not any(_same(choice, other) for other in self.found):
            self.found[choice], self.origin[choice] = ticks, space
            self.searched.add(choice)

    def best_searched(self) -> list[Schedule]:
        """Return the schedules that were searched, the fastest first."""
        in_turn = [choice for choice in self.found if choice in self.searched]  # equally fast ones stay in this order
        return sorted(in_turn, key=self.found.__getitem__)

    def space_of(self, choice: Schedule) -> LayerSpace | None:
        """Return the ops that a schedule is about with their options; None before there are any."""
        same = (self.origin[other] for other in self.origin if _same(choice, other))
        return next(same, next((each for each in self.spaces if each.cut == choice.cut), None))


def _same(one: Schedule, other: Schedule) -> bool:
    return replace(one, name="") == replace(other, name="")
