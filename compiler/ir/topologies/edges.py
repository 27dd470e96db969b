"""Links one by one, both ways or one; nodes from the number of GPUs on are switches.

Routes are shortest paths, of several the lexicographically first by node numbers; but where that goes on to one of
several switches over equal links, destinations take these in turn, as routing tables of fat trees do (D-mod-K). Where a
shift of all ranks maps the graph onto itself, that is so for the first destinations, and routes to the others are
those, shifted.
"""

from collections import deque
from dataclasses import dataclass
from functools import cache

from ...codes import Code
from ..hardware import Link
from ..stopping import Rejection, checkpoint
from .base import ArgumentKind, Fabric, Topology, TopologyArgument, Wire, layout_of, network_of
from .network import Network, NoRoute, Symmetry, edge_over
from .shifts import find_shifts


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
        return Rejection(Code.MGS421, message, f"add a link to {error.destination}, or one that joins the parts")
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
