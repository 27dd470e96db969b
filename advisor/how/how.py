"""How to carry out a schedule: the steps of each group of ranks that do the same, folded."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import Scenario, Schedule
from .expressions import Affine
from .facts import StepAction, StepFacts, StepKind
from .folding import FoldedStep, Folder, Node
from .frames import Frame, Naming, shared_frames
from .plan_facts import PlanFacts
from .waits import LocalWaits, Unsayable


@dataclass(frozen=True, slots=True)
class RankSteps:
    """Ranks that do the same in ``frame``, and what they do in issue order."""

    ranks: tuple[int, ...]
    frame: Frame
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class How:
    """A plan told step by step; ``parts_of_block`` is as in ``PlanFacts``."""

    scenario: Scenario
    schedule: Schedule
    groups: tuple[RankSteps, ...]
    parts_of_block: int = 0


def how_of(scenario: Scenario, schedule: Schedule) -> How:
    """Return how to carry out ``schedule``. Every step of every rank is told exactly once."""
    facts, n = PlanFacts(scenario, schedule), scenario.num_ranks
    alike = schedule.symmetric and not scenario.workload.loads
    ranks, frames = tuple(range(n)), shared_frames(n, scenario.system.fabric.node_size)
    if schedule.engine.by_library:
        steps = facts.steps_of(0, frames[0])
        nodes = _by_library(steps)
        return How(scenario, schedule, (RankSteps(ranks, frames[0], nodes),))
    for frame in frames:
        first = facts.steps_of(0, frame)
        if alike or all(facts.steps_of(rank, frame) == first for rank in ranks[1:]):
            return How(scenario, schedule, (RankSteps(ranks, frame, _folded(first, frame)),), facts.parts_of_block)
    return How(scenario, schedule, tuple(_groups(facts, n)), facts.parts_of_block)


def _groups(facts: PlanFacts, num_ranks: int) -> list[RankSteps]:
    """Return the ranks that do the same, relative to each; if no two do, each rank by absolute ranks."""
    shifted = Frame(Naming.SHIFT, num_ranks)
    ranks: dict[tuple[StepFacts[int], ...], list[int]] = {}
    for rank in range(num_ranks):
        ranks.setdefault(facts.steps_of(rank, shifted), []).append(rank)
    if len(ranks) < num_ranks:
        return [RankSteps(tuple(same), shifted, _folded(steps, shifted)) for steps, same in ranks.items()]
    absolute = Frame(Naming.ABSOLUTE, num_ranks)
    return [
        RankSteps((rank,), absolute, _folded(facts.steps_of(rank, absolute), absolute)) for rank in range(num_ranks)
    ]


def _folded(steps: Sequence[StepFacts[int]], frame: Frame) -> tuple[Node, ...]:
    """Fold the steps of a rank so that it can be said of each what it waits for."""
    unfit: frozenset[int] = frozenset()
    while True:
        nodes = Folder(steps, frame, unfit).nodes()
        try:
            waits = LocalWaits(nodes)
            for entry in waits.entries:
                waits.of(entry)
        except Unsayable as error:
            unfit |= {error.place}
        else:
            return nodes


def _by_library(steps: Sequence[StepFacts[int]]) -> tuple[Node, ...]:
    """Return the kernels and one call for all that moves and all that sums what moved."""
    kernels = [place for place, step in enumerate(steps) if step.action.kind is StepKind.KERNEL]
    in_call = [place for place in range(len(steps)) if place not in kernels]
    needed = {each for place in in_call for each in steps[place].steps} & set(kernels)
    behind = [place for place in kernels if steps[place].landed or set(steps[place].steps) & set(in_call)]
    call = _after(StepFacts(StepAction(StepKind.LIBRARY)), needed, tuple(in_call))
    before = [_after(steps[place], set(steps[place].steps), (place,)) for place in kernels if place not in behind]
    first = in_call[0]
    then = [_after(steps[place], {first} | set(steps[place].steps) & set(kernels), (place,)) for place in behind]
    return *before, call, *then


def _after(step: StepFacts[int], places: Collection[int], own: tuple[int, ...]) -> FoldedStep:
    """Return a step that waits for the steps at ``places`` and for nothing else."""
    facts = replace(step, steps=tuple(sorted(places)), landed=())
    return FoldedStep(facts.with_numbers(Affine(number) for _, _, number in facts.numbers()), own, ())
