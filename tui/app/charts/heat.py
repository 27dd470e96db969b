"""How busy links and memories are in a window of time: by link, by node, and by pair of ranks."""

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import cos, pi, sin

import numpy as np

from ....advisor.bounds.link_loads import cut_text, narrow_cut
from ....advisor.solver.cuts import LinkCut
from ....compiler.ir import Network, OpCase
from ....compiler.text.units import rate_text
from ....simcore.figures.result import LoadKind, Loads
from ....simcore.program.arrays import FloatArray, Int64Array
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
    """A link between two places, ``one_way`` from a to b alone; of one that closes a grid only stubs are drawn."""

    a: int
    b: int
    wraps: bool = False
    one_way: bool = False


@dataclass(frozen=True, slots=True)
class FabricMap:
    """Places by node, and the links between them, each once for both directions."""

    places: tuple[NodePlace, ...]
    wires: tuple[DrawnLink, ...]


def fabric_map(scenario: OpCase | ShownRun) -> FabricMap | None:
    """Return the map of the fabric of ``scenario``, or of a run; None if it is too large to be drawn node by node."""
    network, num_ranks = scenario.network, scenario.num_ranks
    if num_ranks > MOST_RANKS:
        return None
    ways = dict.fromkeys(edge.ends for edge in network.edges)
    pairs = tuple(dict.fromkeys((min(ends), max(ends)) for ends in ways))
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
    drawn = (_drawn(pair, ways, wraps=bool(grid) and _is_far(*pair, grid)) for pair in pairs)
    return FabricMap(places, tuple(drawn))


def _drawn(pair: tuple[int, int], ways: Container[tuple[int, int]], *, wraps: bool) -> DrawnLink:
    """A link from its lower end, unless it goes the other way alone."""
    here, back = pair in ways, pair[::-1] in ways
    return DrawnLink(*(pair if here else pair[::-1]), wraps, one_way=not (here and back))


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


RAMP = " ·░▒▓█"
"""Signs of shares from nothing to full."""

MOST_PAIRS = 1 << 16
"""Pairs of ranks whose routes are looked up; of more ranks every so many are shown."""

WINDOWS = 32
"""Windows that the run is cut into for scrubbing."""


def level_of(share: float) -> int:
    """The sign of a share in the ramp: none at nothing, the lowest above it."""
    if share <= 0.001:
        return 0
    return max(1, min(len(RAMP) - 1, round(share * (len(RAMP) - 1) + 0.2)))


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the run, in ticks."""

    start_ticks: float
    end_ticks: float


class HeatModel:
    """Loads of one run, looked at through a window of time."""

    def __init__(self, scenario: OpCase | ShownRun, loads: Loads, case: OpCase | None = None) -> None:
        """Take the loads of a run; ``case`` is the op whose narrowest cut is shown, None for none."""
        self.scenario, self.loads, self._case = scenario, loads, case
        self.window = self.whole
        self.map: FabricMap | None = fabric_map(scenario)

    @property
    def whole(self) -> Window:
        """The whole run."""
        return Window(0, max(1, self.loads.span_ticks))

    @property
    def is_whole(self) -> bool:
        """Whether all of the run is looked at."""
        return self.window == self.whole

    def scrub(self, windows: int) -> None:
        """Look at the window so many further on; from the whole run at the first, or at the last."""
        size = self.whole.end_ticks / WINDOWS
        if self.is_whole:
            start = 0.0 if windows > 0 else self.whole.end_ticks - size
        else:
            start = min(max(0.0, self.window.start_ticks + windows * size), self.whole.end_ticks - size)
        self.window = Window(start, start + size)

    def look_at(self, start_ticks: int, end_ticks: int) -> None:
        """Look at a part of the run; at all of it if that has no length."""
        start, end = max(0, start_ticks), min(self.loads.span_ticks, end_ticks)
        self.window = Window(start, end) if start < end else self.whole

    @cached_property
    def _so_far(self) -> FloatArray:
        """[L, B + 1] busy share times time up to the edge of each bucket."""
        busy = self.loads.utilization * np.diff(self.loads.edges_ticks)
        return np.concatenate([np.zeros((len(self.loads.each), 1)), np.cumsum(busy, axis=1)], axis=1)

    def shares(self) -> FloatArray:
        """[L] share of the window in which each link and memory is busy, from 0 to 1."""
        edges = self.loads.edges_ticks.astype(float)
        ends = (self.window.start_ticks, self.window.end_ticks)
        at = [np.clip(np.searchsorted(edges, end, "right") - 1, 0, len(edges) - 2) for end in ends]
        reached = [
            self._so_far[:, place]
            + (self._so_far[:, place + 1] - self._so_far[:, place])
            * ((end - edges[place]) / max(1.0, edges[place + 1] - edges[place]))
            for place, end in zip(at, ends, strict=True)
        ]
        found: FloatArray = np.clip((reached[1] - reached[0]) / max(1.0, ends[1] - ends[0]), 0.0, 1.0)
        return found

    @cached_property
    def wire_rows(self) -> tuple[tuple[int, ...], ...]:
        """Rows of the loads of each link of the map, of both directions."""
        assert self.map is not None, "asked only where there is a map"
        rows = self.loads.links(self.scenario.network)
        both = (((wire.a, wire.b), (wire.b, wire.a)) for wire in self.map.wires)
        return tuple(tuple(rows[ends] for ends in pair if ends in rows) for pair in both)

    @cached_property
    def _cut(self) -> LinkCut | None:
        """The narrowest cut, which bounds every schedule; of large fabrics it is left out, as their map is."""
        return None if self._case is None or self.map is None else narrow_cut(self._case)

    @cached_property
    def cut_wires(self) -> frozenset[int]:
        """Places in the map of the links that the narrowest cut crosses."""
        if self._cut is None or self.map is None:
            return frozenset()
        crossed = {frozenset(ends) for ends in self._cut.links}
        return frozenset(idx for idx, wire in enumerate(self.map.wires) if {wire.a, wire.b} in crossed)

    @property
    def cut_text(self) -> str:
        """The narrowest cut in words, empty without one: ``out of ranks 0-3, 100 GB/s``."""
        if self._cut is None or self._case is None:
            return ""
        return f"{cut_text(self._case, self._cut)}, {rate_text(self._cut.bytes_per_s)}"

    def memory_share(self, shares: FloatArray, rank: int) -> float:
        """How busy the HBM of a rank is."""
        return float(shares[self.loads.memory(rank)])

    def busiest(self, shares: FloatArray, count: int) -> tuple[str, ...]:
        """The busiest links in words, of alike ones the first."""
        links = [row for row, load in enumerate(self.loads.each) if load.kind is LoadKind.LINK and shares[row] > 0]
        links.sort(key=lambda row: (-round(float(shares[row]), 3), row))
        return tuple(self._reported(row, float(shares[row])) for row in links[:count])

    def _reported(self, row: int, share: float) -> str:
        load, rate = self.loads.each[row], float(self.loads.capacity_bytes_per_s[row])
        return f"{self.node_text(load.source)} > {self.node_text(load.target)} {share:.0%} of {rate_text(rate)}"

    def node_text(self, node: int) -> str:
        """What a node is called."""
        return f"r{node}" if node < self.scenario.num_ranks else f"s{node - self.scenario.num_ranks}"

    # Pairs of ranks.

    @cached_property
    def shown_ranks(self) -> tuple[int, ...]:
        """The ranks of the matrix: all, or every so many."""
        num_ranks, step = self.scenario.num_ranks, 1
        while (num_ranks // step) ** 2 > MOST_PAIRS:
            step *= 2
        return tuple(range(0, num_ranks, step))

    @cached_property
    def _row_of_hop(self) -> dict[tuple[int, int], int]:
        """Row of each edge of ``network.own`` by its number and the ranks it is shifted by; idle ones have none."""
        network = self.scenario.network
        rows = {
            (load.source, load.target): row for row, load in enumerate(self.loads.each) if load.kind is LoadKind.LINK
        }
        hops = {
            (number, ranks): network.shifted_ends(edge.ends, ranks)
            for ranks in range(0, self.loads.period, network.period)
            for number, edge in enumerate(network.own)
        }
        return {hop: rows[ends] for hop, ends in hops.items() if ends in rows}

    @cached_property
    def _routes(self) -> tuple[Int64Array, Int64Array]:
        """Rows of the loads on the way between each pair of shown ranks, and the pair of each."""
        network, num_ranks, period = self.scenario.network, self.scenario.num_ranks, self.loads.period
        row_of_hop, known = self._row_of_hop, dict[tuple[int, int], list[int]]()
        rows: list[int] = []
        pairs: list[int] = []
        shown = self.shown_ranks
        for place, (source, target) in enumerate(product(shown, shown)):
            shift = source - source % period
            ends = source - shift, (target - shift) % num_ranks
            if ends not in known:
                hops = network.way(*ends) if source != target else ()
                passed = ((number, ranks % period) for number, ranks in hops)
                known[ends] = [row_of_hop[hop] for hop in passed if hop in row_of_hop]
            rows += known[ends]
            pairs += [place] * len(known[ends])
        return np.array(rows, np.int64), np.array(pairs, np.int64)

    def matrix(self, shares: FloatArray) -> FloatArray:
        """[S, S] share of the busiest link on the way from each shown rank to each other."""
        size = len(self.shown_ranks)
        rows, pairs = self._routes
        found = np.zeros(size * size)
        np.maximum.at(found, pairs, shares[rows])
        return found.reshape(size, size)


def shrunk(matrix: FloatArray, most: int) -> tuple[FloatArray, int]:
    """Return a matrix of at most ``most`` rows and columns, the largest of each block, and the size of a block."""
    block = -(-len(matrix) // max(1, most))
    size = -(-len(matrix) // block)
    padded = np.zeros((size * block, size * block))
    padded[: len(matrix), : len(matrix)] = matrix
    return padded.reshape(size, block, size, block).max(axis=(1, 3)), block
