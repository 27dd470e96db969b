"""Where GPUs and switches of a fabric are drawn, from its graph alone.

Without switches ranks lie on a circle, or on the grid of their topology. With switches GPUs lie in a row. Above it are
the switches that join ranks far apart, and those that join other switches. The switches of nodes, which join
neighbours, lie between, or below if other switches are above. Where GPUs are joined to each other too, they lie on a
circle, and the switches within.
"""

from dataclasses import dataclass
from math import cos, pi, sin

from ....compiler.ir import Network, Scenario
from ....simcore.shown_run import ShownRun

MOST_RANKS = 64
MOST_LINKS = 512
MARGIN = 0.06
"""Room around a grid for the stubs of links that close it, as a share of the map."""
DEPTH = 0.75
"""How far the last layer of a grid lies from the first, in steps of the grid."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node of the fabric; ``x`` and ``y`` run from 0 to 1, to the right and down."""

    node: int
    label: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class DrawnLink:
    """A link between two places, from a to b; of a link that closes a grid only the stubs at both ends are drawn."""

    a: int
    b: int
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class FabricMap:
    """Places by node, and the links between them, each once for both directions."""

    places: tuple[NodePlace, ...]
    wires: tuple[DrawnLink, ...]


def fabric_map(scenario: Scenario | ShownRun) -> FabricMap | None:
    """Return the map of the fabric of ``scenario``, or of a run; None if it is too large to be drawn node by node."""
    network, num_ranks = scenario.network, scenario.num_ranks
    if num_ranks > MOST_RANKS:
        return None
    pairs = tuple(dict.fromkeys((min(edge.ends), max(edge.ends)) for edge in network.edges))
    if len(pairs) > MOST_LINKS:
        return None
    fabric = scenario.system.fabric
    sides = tuple(side for side in fabric.topology.grid(fabric) if side > 1)
    if any(b < num_ranks for _, b in pairs) and network.num_nodes > num_ranks:
        places = _with_centre(network, pairs)
    elif network.num_nodes > num_ranks:
        places = _in_levels(network, pairs)
    elif len(sides) > 1:
        places = _on_grid(sides)
    else:
        places = _on_circle(num_ranks)
    grid = sides if len(sides) > 1 and network.num_nodes == num_ranks else ()
    return FabricMap(places, tuple(DrawnLink(a, b, bool(grid) and _is_far(a, b, grid)) for a, b in pairs))


def _on_circle(num_ranks: int) -> tuple[NodePlace, ...]:
    angles = [2 * pi * rank / num_ranks - pi / 2 for rank in range(num_ranks)]
    return tuple(
        NodePlace(rank, str(rank), 0.5 + 0.5 * cos(angle), 0.5 + 0.5 * sin(angle)) for rank, angle in enumerate(angles)
    )


def _with_centre(network: Network, pairs: tuple[tuple[int, int], ...]) -> tuple[NodePlace, ...]:
    """Ranks on a circle, each switch towards the ranks that it joins."""
    num_ranks = network.num_ranks
    places = list(_on_circle(num_ranks))
    for node in range(num_ranks, network.num_nodes):
        joined = [places[a] for a, b in pairs if b == node and a < num_ranks]
        x = sum(place.x for place in joined) / len(joined) if joined else 0.5
        y = sum(place.y for place in joined) / len(joined) if joined else 0.5
        places.append(NodePlace(node, f"s{node - num_ranks}", (0.5 + x) / 2, (0.5 + y) / 2))
    return tuple(places)


def _coordinates(rank: int, sides: tuple[int, ...]) -> tuple[int, ...]:
    found = []
    for side in reversed(sides):
        found.append(rank % side)
        rank //= side
    return tuple(reversed(found))


def _on_grid(sides: tuple[int, ...]) -> tuple[NodePlace, ...]:
    """Rows and columns; the layers of a third dimension lie behind each other, each a little lower and to the right."""
    layers, rows, columns = (1, *sides) if len(sides) == 2 else sides
    places = []
    for rank in range(layers * rows * columns):
        layer, row, column = _coordinates(rank, (layers, rows, columns))
        shift = layer * DEPTH / max(1, layers - 1)
        last = DEPTH if layers > 1 else 0
        x, y = (column + shift) / max(1, columns - 1 + last), (row + shift) / max(1, rows - 1 + last)
        places.append(NodePlace(rank, str(rank), *(MARGIN + at * (1 - 2 * MARGIN) for at in (x, y))))
    return tuple(places)


def _is_far(a: int, b: int, sides: tuple[int, ...]) -> bool:
    """Whether a link joins the two ends of a row of the grid."""
    apart = (abs(x - y) for x, y in zip(_coordinates(a, sides), _coordinates(b, sides), strict=True))
    return max(apart) > 1


def _in_levels(network: Network, pairs: tuple[tuple[int, int], ...]) -> tuple[NodePlace, ...]:
    num_ranks, num_nodes = network.num_ranks, network.num_nodes
    below: list[list[int]] = [[] for _ in range(num_nodes)]
    for a, b in pairs:
        if a < num_ranks <= b:
            below[b].append(a)
    near = [node for node in range(num_ranks, num_nodes) if below[node] and _consecutive(sorted(below[node]))]
    far = [node for node in range(num_ranks, num_nodes) if node not in near]
    scattered = any(below[node] for node in far)
    places = [
        NodePlace(rank, str(rank), _spread(rank, num_ranks), 0.5 if near and scattered else 1.0)
        for rank in range(num_ranks)
    ]
    for node in near:
        middle = sum(_spread(rank, num_ranks) for rank in below[node]) / len(below[node])
        places.append(NodePlace(node, f"s{node - num_ranks}", middle, 1.0 if scattered else 0.5 if far else 0.0))
    for idx, node in enumerate(far):
        places.append(NodePlace(node, f"s{node - num_ranks}", _spread(idx, len(far)), 0.0))
    return tuple(sorted(places, key=lambda place: place.node))


def _consecutive(ranks: list[int]) -> bool:
    return ranks[-1] - ranks[0] == len(ranks) - 1


def _spread(idx: int, count: int) -> float:
    return (idx + 0.5) / count
