"""hierarchical: within nodes all at once (direct), across nodes in rings of ranks that have the same place in theirs.

all_gather goes across first, so that a block crosses each link between nodes once, and then spreads within. A
reduce_scatter sums within first and across then. Per rank, with g ranks in a node and N nodes: p (N - 1) transfers
across and p N (g - 1) within; all_reduce twice that.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..ir import Rejection
from . import direct, ring
from .base import TWO_PHASES, Algorithm, CollectiveProblem, Fragment, RankGroup, in_two_phases, rejection


def within(problem: CollectiveProblem) -> RankGroup:
    """The ranks of a node; each stands for all that have its place in theirs."""
    place, size = problem.rank % problem.node, problem.node
    offsets = tuple(((place + step) % size - place) % problem.num_ranks for step in range(size))
    return RankGroup(offsets, tuple(range(0, problem.num_ranks, size)))


def across(problem: CollectiveProblem) -> RankGroup:
    """The ranks with this place in their nodes."""
    return RankGroup(tuple(range(0, problem.num_ranks, problem.node)))


def named(problem: CollectiveProblem, stem: str) -> CollectiveProblem:
    """Return ``problem`` with ``stem`` added to the prefix of its names."""
    return replace(problem, prefix=f"{problem.prefix}{stem}_")


def gather(problem: CollectiveProblem, inside: Callable[[CollectiveProblem, RankGroup, str], Fragment]) -> Fragment:
    """In rings across nodes, and then by ``inside`` within each."""
    first = ring.gather(named(problem, "across"), across(problem), "y")
    second = inside(replace(named(problem, "within"), ready=first.ready), within(problem), "y")
    return Fragment((*first.steps, *second.steps), second.done)


def scatter(
    problem: CollectiveProblem, inside: Callable[[CollectiveProblem, RankGroup], Fragment], *, adds: bool
) -> Fragment:
    """By ``inside`` within each node, and then in rings across them, whose transfers may add as they land."""
    first = inside(named(problem, "within"), within(problem))
    second = ring.scatter(replace(named(problem, "across"), ready=first.ready, adds=adds), across(problem))
    return Fragment((*first.steps, *second.steps), second.done)


def _build(problem: CollectiveProblem) -> Fragment:
    # Transfers cannot add to data that a kernel of the destination still sums.
    scatter_direct = partial(scatter, inside=direct.scatter, adds=False)
    return in_two_phases(problem, scatter_direct, partial(gather, inside=direct.gather))


def _own_rule(problem: CollectiveProblem) -> Rejection | None:
    if problem.node < 2:
        return rejection("hierarchical needs ranks that are grouped into nodes of two or more")
    if problem.num_ranks % problem.node or problem.num_ranks <= problem.node:
        what = f"several whole nodes of {problem.node} ranks, there are {problem.num_ranks} ranks"
        return rejection(f"hierarchical needs {what}")
    return None


ALGORITHM = Algorithm("hierarchical", TWO_PHASES, _build, per_node=TWO_PHASES, own_rule=_own_rule, passes_on=True)
