"""Several plans on the same GPUs, each on groups of ranks of its own: at once, or some behind others.

Such are a layer and traffic of others beside it, or the passes of all stages of a pipeline. Of two plans on two axes a
rank is in one group of either kind, with one of all others of its group in each group of the other kind: there are as
many ranks as the product of both sizes, in numbers of this program. Its SMs, memory and engines are one for all plans,
and so are its ports where all groups lie behind switches.

Folded, only ranks are written that nothing maps onto each other. Shifts inside all groups of one kind map those of the
other kind onto each other, with the plan that they have, so that ranks may be taken together that are alike in both.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ...compiler.codes import Code
from ...compiler.ir import Fabric, OpCase, Part, Plan, Rejection, System
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


class Together:
    """Lowers ``plans`` into the program of ``builder``, each as often as is said, for units of ``unit_bytes``.

    Any of them may run beside any other: each has the SMs that all others leave. The machine is that of the first.
    """

    def __init__(self, builder: ProgramBuilder, plans: Sequence[OnGroup], unit_bytes: int) -> None:
        self._builder, self._unit = builder, unit_bytes
        first = plans[0].system
        named = [_named(number, on.plan.parts) for number, on in enumerate(plans)]
        merged = Plan(plans[0].plan.expression, tuple(chain(*named)), plans[0].plan.sums_priority)
        merged = replace(merged, parts=tuple(on_their_sms(first, merged)))
        machines = machines_of(builder, first, merged, unit_bytes, Idealization.NONE)
        networks: dict[System, Machine] = {first: machines[merged.parts[0].name]}
        self._lowered: dict[OnGroup, tuple[Plan, dict[str, Machine]]] = {}
        parts = iter(merged.parts)
        for on in plans:
            own = [(part, next(parts)) for part in on.plan.parts]
            if on.system not in networks:
                networks[on.system] = _on_network(builder, networks[first], on, first.fabric, unit_bytes)
            at = networks[on.system]
            placed = {
                part.name: replace(machines[limited.name], network=at.network, links=at.links) for part, limited in own
            }
            plan = replace(on.plan, parts=tuple(replace(part, schedule=limited.schedule) for part, limited in own))
            self._lowered[on] = plan, placed

    def lower(self, on: OnGroup, groups: Iterable[GroupRanks], after: Iterable[range] = ()) -> tuple[range, ...]:
        """Lower one of the plans for each of ``groups``, to begin when all ops ``after`` which it comes are done.

        Returns the ops of each group.
        """
        plan, machines = self._lowered[on]
        awaited, found = [op for ops in after for op in ops], list[range]()
        for group in groups:
            begin = self._builder.num_ops
            composer = Composer(plan, self._builder.on(group), machines, group.period, {})
            for part in plan.parts:
                composer.lower(OpCase(part.name, on.system, part.shape), part, self._unit, Idealization.NONE)
            found.append(range(begin, self._builder.num_ops))
            if awaited:
                self._builder.after(found[-1], awaited)
        return tuple(found)


def lower_beside(
    first: OnGroup,
    second: OnGroup,
    *,
    unit_bytes: int,
    fold: bool = True,
    alike: bool = False,
    same_group: bool = False,
) -> LoweredBeside:
    """Lower both plans for ranks that are in one group of each; neither waits for the other.

    Parameters
    ----------
    same_group
        Whether both are on the same groups of ranks, and not along two axes.
    fold, alike
        As ``lower`` has them.

    Raises
    ------
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line.
    """
    both = (first, second)
    sizes = [on.system.num_ranks for on in both]
    least = [plan_period(on.system, on.plan, alike=alike) for on in both] if fold else sizes
    # Neighbours are those of whom more differ: only these can be told apart by the ranks that are written.
    strides = (1, sizes[0]) if least[0] >= least[1] else (sizes[1], 1)
    axes = [(1, size) for size in sizes] if same_group else list(zip(strides, sizes, strict=True))
    ranks = math.lcm(*least) if same_group else _period(axes, least)
    builder = builder_for(ranks, max(sizes), unit_bytes)
    together = Together(builder, both, unit_bytes)
    found = [together.lower(on, _groups(*axis, ranks)) for on, axis in zip(both, axes, strict=True)]
    return LoweredBeside(builder.build(), *found)


def builder_for(ranks: int, largest: int, unit_bytes: int) -> ProgramBuilder:
    """Return a builder of so many ranks in groups, of which the ``largest`` has so many."""
    # Ranks of hops also tell how far ahead an op is; see ``GroupRanks``.
    return ProgramBuilder(ranks * (largest + 1), period=ranks, unit_bytes=unit_bytes)


def _named(number: int, parts: Sequence[Part]) -> Iterator[Part]:
    """The parts of one of several plans by names that no other has."""

    def own(name: str) -> str:
        return f"{number} {name}"

    for part in parts:
        waits = tuple(replace(wait, on=own(wait.on)) for wait in part.waits)
        steps = tuple(replace(wait, on=own(wait.on)) for wait in part.step_waits)
        yield replace(part, name=own(part.name), waits=waits, step_waits=steps)


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


def _on_network(builder: ProgramBuilder, machine: Machine, on: OnGroup, beside: Fabric, unit_bytes: int) -> Machine:
    """The machine with the links of the groups of ``on``: ports they share with those ``beside``."""
    network = OpCase("", on.system, on.plan.parts[0].shape).network
    shared = ports_shared(machine) if on.system.fabric.switch is not None and beside.switch is not None else {}
    return with_network(builder, machine, network, unit_bytes, shared)
