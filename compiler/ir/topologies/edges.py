"""Links one by one, both ways or one; nodes from the number of GPUs on are switches.

Routes are shortest paths, of several the lexicographically first by node numbers; but where that goes on to one of
several switches over equal links, destinations take these in turn, as routing tables of fat trees do (D-mod-K). Where a
shift of all ranks maps the graph onto itself, that is so for the first destinations, and routes to the others are
those, shifted.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache

from ...codes import Code
from ..hardware import Link
from ..stopping import Rejection, checkpoint
from .base import ArgumentKind, Fabric, Topology, TopologyArgument, Wire, layout_of, network_of
from .network import Ends, Network, NoRoute, Symmetry, edge_over

# Shifts that map a graph of single links onto itself: all ranks by a multiple of a period, switches with them.
#
# A switch takes the place of the one that has the same links to the shifted ranks; where two have, or one has none to a
# rank, switches cannot be told apart by that and no shift is looked for.


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


@dataclass(frozen=True, slots=True)
class EdgeGraph:
    """Links one by one; nodes from the number of GPUs on are switches."""

    wires: tuple[Wire, ...]
    switches: int = 0

    def __hash__(self) -> int:
        """Hash a few of the links: there may be thousands, and fabrics are keys of caches in constant use."""
        return hash((self.switches, len(self.wires), self.wires[:4]))


def _connect(fabric: Fabric, n: int) -> Network:
    """Build the given graph; a breadth-first search from each of the first destinations finds the routes to it."""
    graph = layout_of(fabric, EdgeGraph)
    links = {ends: wire.link for wire in graph.wires for ends in wire.ways}
    neighbours: list[list[int]] = [[] for _ in range(n + graph.switches)]
    before: list[list[int]] = [[] for _ in range(n + graph.switches)]
    for source, target in sorted(links):
        neighbours[source].append(target)
        before[target].append(source)
    shifts = find_shifts(n, graph.switches, links)

    @cache
    def distances(destination: int) -> dict[int, int]:
        checkpoint()
        distance, todo = {destination: 0}, deque([destination])
        while todo:
            node = todo.popleft()
            for other in before[node]:
                if other not in distance:
                    distance[other] = distance[node] + 1
                    todo.append(other)
        return distance

    def step(node: int, destination: int) -> int:
        back = destination - destination % shifts.period
        node = shifts.turned(node, -back)
        far = distances(destination - back)
        if node not in far:
            raise NoRoute(shifts.turned(node, back), destination)
        nearer = [other for other in neighbours[node] if far.get(other) == far[node] - 1]
        alike = [other for other in nearer if other >= n and links[node, other] == links[node, nearer[0]]]
        onward = alike[(destination - back) % len(alike)] if nearer[0] >= n else nearer[0]
        return shifts.turned(onward, back)

    symmetry = Symmetry(shifts.period, shifts.turned, shifts.of_switch)
    own = (edge_over(link, *ends, link.name) for ends, link in links.items() if not symmetry.of_edge(*ends, n))
    return Network(n, tuple(own), step, symmetry)


def _reject(fabric: Fabric, n: int) -> Rejection | None:
    try:
        network_of(fabric, n).check_reachable()
    except NoRoute as error:
        message = f"gpu {error.destination} cannot be reached from gpu {error.source}"
        return Rejection(Code.MGS421, message, f"add a link that leads on to {error.destination}")
    return None


def _more_links(fabric: Fabric) -> tuple[Link, ...]:
    return tuple(wire.link for wire in layout_of(fabric, EdgeGraph).wires)


TOPOLOGY = Topology(
    "edges",
    (TopologyArgument("switches", ArgumentKind.COUNT, optional=True, minimum=0),),
    "edges(switches=0, xgmi=[[0, 1], [1, 2]])",
    connect=_connect,
    layout=EdgeGraph,
    reject=_reject,
    more_links=_more_links,
    takes_links=True,
)
