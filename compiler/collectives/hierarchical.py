"""hierarchical: within nodes all at once (direct), across nodes in rings of ranks that have the same place in theirs.

all_gather goes across first, so that a block crosses each link between nodes once, and then spreads within. A
reduce_scatter sums within first and across then. Per rank, with g ranks in a node and N nodes: p (N - 1) transfers
across and p N (g - 1) within; all_reduce twice that.
"""

from dataclasses import replace

from ..ir import Pattern, Rejection
from . import direct, ring
from .base import Algorithm, CollectiveProblem, Fragment, RankGroup, in_two_phases, rejection


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


def _gather(problem: CollectiveProblem) -> Fragment:
    first = ring.gather(named(problem, "across"), across(problem), "y")
    second = direct.gather(replace(named(problem, "within"), ready=first.ready), within(problem), "y")
    return Fragment((*first.steps, *second.steps), second.done)


def _scatter(problem: CollectiveProblem) -> Fragment:
    first = direct.scatter(named(problem, "within"), within(problem))
    # Transfers cannot add to data that a kernel of the destination still sums.
    second = ring.scatter(replace(named(problem, "across"), ready=first.ready, adds=False), across(problem))
    return Fragment((*first.steps, *second.steps), second.done)


def _build(problem: CollectiveProblem) -> Fragment:
    return in_two_phases(problem, _scatter, _gather)


def _own_rule(problem: CollectiveProblem) -> Rejection | None:
    if problem.node < 2:
        return rejection("hierarchical needs ranks that are grouped into nodes of two or more")
    if problem.num_ranks % problem.node or problem.num_ranks <= problem.node:
        what = f"several whole nodes of {problem.node} ranks, there are {problem.num_ranks} ranks"
        return rejection(f"hierarchical needs {what}")
    return None


_KINDS = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE)
ALGORITHM = Algorithm("hierarchical", _KINDS, _build, per_node=_KINDS, own_rule=_own_rule, passes_on=True)
