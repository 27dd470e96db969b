"""Shifts that map a graph of single links onto itself: all ranks by a multiple of a period, switches with them.

A switch takes the place of the one that has the same links to the shifted ranks; where two have, or one has none to a
rank, switches cannot be told apart by that and no shift is looked for.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from ..stopping import checkpoint
from .network import Ends


@dataclass(frozen=True, slots=True)
class Shifts:
    """Shifts by multiples of ``period`` of the ``num_ranks``.

    ``orbits`` has for each switch those it takes the places of, shift by shift, and ``place`` its own among them.
    """

    num_ranks: int
    period: int
    orbits: tuple[tuple[int, ...], ...] = ()
    place: tuple[int, ...] = ()

    def turned(self, node: int, ranks: int) -> int:
        """Return the number of ``node``, a rank or a switch, after a shift by ``ranks``."""
        if node < self.num_ranks:
            return (node + ranks) % self.num_ranks
        if not self.orbits:
            return node
        orbit = self.orbits[node - self.num_ranks]
        return orbit[(self.place[node - self.num_ranks] + ranks // self.period) % len(orbit)]

    def of_switch(self, switch: int) -> int | None:
        """Return the ranks by which ``switch`` is shifted from the first of its orbit; None in a shorter orbit."""
        if not self.orbits or len(self.orbits[switch - self.num_ranks]) * self.period < self.num_ranks:
            return None
        return self.place[switch - self.num_ranks] * self.period


def find_shifts(num_ranks: int, num_switches: int, links: Mapping[Ends, Hashable]) -> Shifts:
    """Find the least shift that maps ``links``, by their ends and in both directions, onto themselves."""
    none = Shifts(num_ranks, num_ranks)
    for period in (size for size in range(1, num_ranks) if num_ranks % size == 0):
        checkpoint()
        shifts = _with_switches(num_ranks, num_switches, links, period)
        if shifts is None:
            continue
        free = all(min(ends) < num_ranks or any(shifts.of_switch(end) is not None for end in ends) for ends in links)
        if free and all(
            links.get((shifts.turned(source, period), shifts.turned(target, period))) == link
            for (source, target), link in links.items()
        ):
            return shifts
    return none


def _with_switches(num_ranks: int, num_switches: int, links: Mapping[Ends, Hashable], period: int) -> Shifts | None:
    """The shift of ranks by ``period``, with the places that switches take; None if it maps them onto no others."""
    below: list[set[tuple[int, Hashable]]] = [set() for _ in range(num_switches)]
    for (source, target), link in links.items():
        if source >= num_ranks and target < num_ranks:
            below[source - num_ranks].add((target, link))
    known = {frozenset(ranks): switch for switch, ranks in enumerate(below) if ranks}
    if len(known) < num_switches:
        return None
    onward = [known.get(frozenset(((rank + period) % num_ranks, link) for rank, link in ranks)) for ranks in below]
    orbits: list[tuple[int, ...]] = [()] * num_switches
    place = [0] * num_switches
    for first in range(num_switches):
        orbit, switch = list[int](), first
        while not orbits[first]:
            orbit.append(switch + num_ranks)
            following = onward[switch]
            if following is None:
                return None
            switch = following
            if switch == first:
                for at, member in enumerate(orbit):
                    orbits[member - num_ranks], place[member - num_ranks] = tuple(orbit), at
    return Shifts(num_ranks, period, tuple(orbits), tuple(place))
