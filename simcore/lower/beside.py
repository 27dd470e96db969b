"""Two plans at once on the same GPUs, each on groups of ranks of its own: a layer, and traffic of others beside it.

A rank is in one group of either kind, with one of all others of its group in each group of the other kind: there are
as many ranks as the product of both sizes, in numbers of this program. Its SMs, memory and engines are one for both
plans, and so are its ports where both groups lie behind switches. Neither plan waits for the other.

Folded, only ranks are written that nothing maps onto each other. Shifts inside all groups of one kind map those of the
other kind onto each other, with the plan that they have, so that ranks may be taken together that are alike in both.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...compiler.codes import Code
from ...compiler.ir import Fabric, OpCase, Plan, Rejection, System
from ..program.builder import GroupRanks, ProgramBuilder
from ..program.program import Program
from .machine import Idealization, Machine, ports_shared, with_network
from .plan import Composer, machines_of, on_their_sms, plan_period


@dataclass(frozen=True, slots=True)
class OnGroup:
    """A plan for each group of ranks; ``system`` is one of them."""

    system: System
    plan: Plan


@dataclass(frozen=True, slots=True)
class LoweredBeside:
    """The program of both plans; ``first`` and ``second`` are the ops of each."""

    program: Program
    first: tuple[range, ...]
    second: tuple[range, ...]


def rejected(one: System, other: System) -> Rejection | None:
    """Why it is not known which links groups share (MGS440); None if it is.

    Behind switches they share ports by name. Groups in a mesh, or along different sides of a torus, share no link.
    """
    names = {one.fabric.topology.name, other.fabric.topology.name}
    trees = all(fabric.topology.name == "fat_tree" for fabric in (one.fabric, other.fabric))
    if 1 in (one.num_ranks, other.num_ranks) or names in ({"full_mesh"}, {"torus"}):
        return None
    if names <= {"switch", "rails", "fat_tree"} and not trees:
        return None
    what = " and ".join(sorted(names))
    message = f"{one.name} and {other.name} may share links of {what}, and it is not known which"
    return Rejection(
        Code.MGS440, message, "groups of switch, rails, full_mesh and torus are simulated beside each other"
    )


def lower_beside(
    first: OnGroup, second: OnGroup, *, unit_bytes: int, fold: bool = True, alike: bool = False
) -> LoweredBeside:
    """Lower both plans, whose parts have different names, for ranks that are in one group of each.

    Parameters
    ----------
    fold, alike
        As ``lower`` has them.

    Raises
    ------
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line.
    """
    both = (first, second)
    merged = Plan(first.plan.expression, (*first.plan.parts, *second.plan.parts), first.plan.sums_priority)
    parts = tuple(on_their_sms(first.system, merged))
    merged = replace(merged, parts=parts)
    sizes = [on.system.num_ranks for on in both]
    least = [plan_period(on.system, on.plan, alike=alike) for on in both] if fold else sizes
    # Neighbours are those of whom more differ: only these can be told apart by the ranks that are written.
    strides = (1, sizes[0]) if least[0] >= least[1] else (sizes[1], 1)
    axes = list(zip(strides, sizes, strict=True))
    ranks = _period(axes, least)
    # Ranks of hops also tell how far ahead an op is; see ``GroupRanks``.
    builder = ProgramBuilder(ranks * (max(sizes) + 1), period=ranks, unit_bytes=unit_bytes)
    machines = machines_of(builder, first.system, merged, unit_bytes, Idealization.NONE)
    found: list[tuple[range, ...]] = []
    for on, (stride, size) in zip(both, axes, strict=True):
        own = _on_network(builder, machines, on, first.system.fabric, unit_bytes) if on is second else machines
        ops: list[range] = []
        for group in _groups(stride, size, ranks):
            begin, composer = builder.num_ops, Composer(merged, builder.on(group), own, group.period, {})
            for part in (each for each in parts if each.name in {one.name for one in on.plan.parts}):
                composer.lower(OpCase(part.name, on.system, part.shape), part, unit_bytes, Idealization.NONE)
            ops.append(range(begin, builder.num_ops))
        found.append(tuple(ops))
    return LoweredBeside(builder.build(), *found)


def _period(axes: Sequence[tuple[int, int]], least: Sequence[int]) -> int:
    """The fewest ranks to write, so that in each group as many follow each other as its plan repeats after.

    Ranks are taken for one whose numbers are a multiple of it apart.
    """
    total = math.prod(size for _, size in axes)
    for ranks in (number for number in range(1, total) if total % number == 0):
        apart = [ranks // math.gcd(stride, ranks) for stride, _ in axes]
        if all(own % few == 0 and size % own == 0 for own, few, (_, size) in zip(apart, least, axes, strict=True)):
            return ranks
    return total


def _groups(stride: int, size: int, ranks: int) -> Iterator[GroupRanks]:
    """A group for each of the ranks that are written, until these are all in one."""
    covered: set[int] = set()
    apart = ranks // math.gcd(stride, ranks)
    for rank in range(ranks):
        if rank not in covered:
            group = GroupRanks(rank - rank // stride % size * stride, stride, size, min(size, apart))
            covered |= {group.of(idx) % ranks for idx in range(group.period)}
            yield group


def _on_network(
    builder: ProgramBuilder, machines: Mapping[str, Machine], on: OnGroup, beside: Fabric, unit_bytes: int
) -> dict[str, Machine]:
    """The machines of the parts of ``on``, with the links of its groups: ports they share with those ``beside``."""
    network = OpCase("", on.system, on.plan.parts[0].shape).network
    mine = machines[on.plan.parts[0].name]
    shared = ports_shared(mine) if on.system.fabric.switch is not None and beside.switch is not None else {}
    placed = with_network(builder, mine, network, unit_bytes, shared)
    return {part.name: replace(machines[part.name], network=network, links=placed.links) for part in on.plan.parts}
