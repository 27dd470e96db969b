"""Ranks that are taken for alike though the fabric is not the same around each of them: one is lowered for all.

On rails the ranks of a node have as many peers in the node and out of it, but meet them in another order, and a plan
for nodes has peers for each rank by its place. One rank for all is then an estimate: as good as exact where the order
does not matter, as in ``hierarchical``, and wrong where it does, or where ranks differ by what they do, as the last of
a node does in a ring. So who takes ranks for alike compares both, part by part.
"""

from dataclasses import replace

from ...compiler.ir import Reduction, Schedule, Step, TileGroup, Transfer


def period_if_alike(schedule: Schedule, num_ranks: int) -> int:
    """The ranks of a plan to lower if the fabric were the same around each: one, if ranks differ by peers alone."""
    if schedule.overrides:
        return num_ranks
    roles = {tuple(map(_role, steps)) for steps in schedule.by_rank}
    return 1 if len(roles) <= 1 else schedule.period(num_ranks)


def _role(step: Step) -> Step:
    """What a step is, whoever its peer is and whosever block it takes."""
    match step:
        case Transfer():
            return replace(step, peer=0, region=replace(step.region, owner=0))
        case Reduction():
            return replace(step, region=replace(step.region, owner=0))
        case TileGroup():
            return replace(step, regions=tuple(replace(region, owner=0) for region in step.regions))
