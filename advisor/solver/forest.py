"""Trees for the template ``forest``: packings that load all links alike, by column generation.

The least time T in which all ranks send their shard to all others is that of a packing of trees: a linear program whose
columns are trees and whose rows are links. Duals of the links price new trees, the cheapest arborescence of each root
(Chu-Liu, Edmonds); the sum of their costs is a lower bound, which proves that a packing is within ``GAP`` of the best.
An edge of a tree is a route between two ranks without a rank in between, and loads the links of that route: so switches
need nothing of their own, and the routes are those that are simulated. A second program takes, of what is as good as
the best within some slack, the packing of the fewest levels: deep trees delay the last chunk.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from heapq import heappop, heappush
from itertools import permutations
from math import gcd
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Fabric, checkpoint, network_of

__all__ = ["MOST_RANKS", "packings"]

GAP, MOST_ROUNDS, SEED = 0.002, 60, 1
MOST_RANKS = 32
FEW_RANKS = 16
"""With more ranks one packing is sought, with few rounds of the second program: 3 s of 24 ranks, 4 of 32."""
SLACKS = (0.003, 0.05, 0.1)
"""How much longer than the least time a packing of few levels may take."""
LEVEL_ROUNDS, MANY_ROUNDS = 12, 4
"""How often, with few ranks and with many, trees of fewer levels are added for the prices of the second program."""
LEAST_SHARE = 0.03
"""Trees of a smaller share of a shard are left out: their chunks would be too small."""
WEIGHTS = 1000
"""Shares as whole numbers of this."""

Floats = npt.NDArray[np.float64]
Parents = tuple[int, ...]
"""The parent of each rank, at the root the root itself."""
Column = tuple[int, Parents]
"""A root and a tree."""


class TreeFlow(Enum):
    """What goes along the trees: data from the root, to the root, to it and down again, or all data from rank 0."""

    DOWN = "all_gather"
    UP = "reduce_scatter"
    BOTH = "all_reduce"
    FIRST = "broadcast"


@dataclass(frozen=True, eq=False, slots=True)
class _Graph:
    """Edges between ranks; ``loads`` [edges, links] is how long a byte on an edge holds each link, in us per MB.

    ``roots`` are those of trees. With ``one_pool`` it does not matter which is the root of how much. ``place`` has the
    number of an edge by its ends, ``onward`` the targets and numbers of the edges from each rank.
    """

    num_ranks: int
    roots: range
    one_pool: bool
    ends: tuple[tuple[int, int], ...]
    loads: Floats
    place: dict[tuple[int, int], int]
    onward: tuple[tuple[tuple[int, int], ...], ...]

    def edges_of(self, root: int, parents: Parents) -> list[int]:
        """The numbers of the edges of a tree."""
        return [self.place[above, rank] for rank, above in enumerate(parents) if rank != root]


def _graph(fabric: Fabric, num_ranks: int, flow: TreeFlow) -> _Graph:
    """The edges between ranks for what goes along the trees."""
    network = network_of(fabric, num_ranks)
    numbers = {edge.ends: number for number, edge in enumerate(network.edges)}
    one_way = dict[tuple[int, int], Floats]()
    for source, target in permutations(range(num_ranks), 2):
        if all(node >= num_ranks for node in network.path(source, target)[1:-1]):
            row = one_way[source, target] = np.zeros(len(numbers))
            for edge in network.route(source, target):
                row[numbers[edge.ends]] = 1e12 / edge.bytes_per_s
    if flow is TreeFlow.BOTH:
        one_way = {(a, b): row + one_way[b, a] for (a, b), row in one_way.items() if (b, a) in one_way}
    ends = [(b, a) if flow is TreeFlow.UP else (a, b) for a, b in one_way]
    rows = np.array(list(one_way.values())).reshape(len(ends), len(numbers))
    onward = (
        tuple((target, at) for at, (source, target) in enumerate(ends) if source == rank) for rank in range(num_ranks)
    )
    place = {each: at for at, each in enumerate(ends)}
    roots = range(1 if flow is TreeFlow.FIRST else num_ranks)
    one_pool = flow in (TreeFlow.BOTH, TreeFlow.FIRST)
    return _Graph(num_ranks, roots, one_pool, tuple(ends), rows, place, tuple(onward))


@lru_cache(maxsize=8)
def packings(fabric: Fabric, num_ranks: int, flow: TreeFlow = TreeFlow.DOWN) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the trees of a few packings, as ``forest`` takes them, the least time first.

    There are none beyond ``MOST_RANKS`` ranks, nor for sums at all ranks where links of one way are needed.
    """
    if not 2 < num_ranks <= MOST_RANKS:
        return ()
    graph = _graph(fabric, num_ranks, flow)
    if -1 in _shortest_tree(graph, 0, graph.loads.sum(axis=1)):
        return ()  # what goes up and down needs links both ways
    packer = _Packer(graph)
    packer.pack()
    packer.add_shallow_trees()
    found = (packer.of_few_levels(slack) for slack in (SLACKS if num_ranks <= FEW_RANKS else SLACKS[-1:]))
    return tuple(dict.fromkeys(_weighed(packing, packer.pools) for packing in found if packing))


def _weighed(packing: Iterable[tuple[Column, float]], pools: int) -> tuple[tuple[int, ...], ...]:
    """The trees with whole weights: those of one pool are divided by what all have in common."""
    weights = [(*column, max(1, round(share * WEIGHTS))) for column, share in packing]
    common = dict[int, int]()
    for root, _, weight in weights:
        common[root % pools] = gcd(common.get(root % pools, 0), weight)
    return tuple((root, weight // common[root % pools], *parents) for root, parents, weight in weights)


class _Packer:
    """The trees that are known, and the program that chooses among them."""

    def __init__(self, graph: _Graph) -> None:
        self.graph, self.random = graph, Random(SEED)
        # Rows of each rank have trees of their own, or all rows any: the pool of a root is its number modulo this.
        self.pools = 1 if graph.one_pool else graph.num_ranks
        self.columns = dict[Column, Floats]()  # with the load of each link
        self.times = graph.loads.sum(axis=1)
        self.least, self.duals = 0.0, np.ones(graph.loads.shape[1])

    def add(self, root: int, parents: Parents) -> bool:
        """Add a tree, unless it is known."""
        if (root, parents) in self.columns:
            return False
        self.columns[root, parents] = self.graph.loads[self.graph.edges_of(root, parents)].sum(axis=0)
        return True

    def pack(self) -> None:
        """Find trees until those that are known reach the least time within ``GAP``."""
        from ortools.linear_solver import pywraplp

        n, links = self.graph.num_ranks, self.graph.loads.shape[1]
        for root in self.graph.roots:
            for _ in range(2):
                noise = np.array([self.random.uniform(1.0, 1.2) for _ in self.times])
                self.add(root, _shortest_tree(self.graph, root, self.times * noise))
        solver = pywraplp.Solver.CreateSolver("GLOP")
        time = solver.NumVar(0, solver.infinity(), "")
        solver.Minimize(time)
        rows = [solver.Constraint(-solver.infinity(), 0) for _ in range(links)]
        for row in rows:
            row.SetCoefficient(time, -1)
        whole = [solver.Constraint(n / self.pools, solver.infinity()) for _ in range(self.pools)]
        known, bound, smooth = 0, 0.0, None
        for _ in range(MOST_ROUNDS):
            checkpoint()
            for (root, _parents), loads in list(self.columns.items())[known:]:
                share = solver.NumVar(0, solver.infinity(), "")
                whole[root % self.pools].SetCoefficient(share, 1)
                for link in np.flatnonzero(loads):
                    rows[link].SetCoefficient(share, float(loads[link]))
            known = len(self.columns)
            if not _is_solved(solver):
                break
            self.least = time.solution_value()
            duals = np.maximum([-row.dual_value() for row in rows], 0)
            duals /= max(duals.sum(), 1e-30)
            smooth = duals if smooth is None else (smooth + duals) / 2  # smoothed duals need fewer rounds
            for prices in (smooth, duals):
                costs = self.graph.loads @ prices
                trees = [_cheapest_tree(self.graph, root, costs + 1e-9 * self.times) for root in self.graph.roots]
                total = np.array([costs[self.graph.edges_of(*each)].sum() for each in enumerate(trees)])
                bound = max(bound, float(total.sum() if self.pools == n else n * total.min()))
                for root, parents in enumerate(trees):
                    self.add(root, parents)
            if self.least <= bound * (1 + GAP) or len(self.columns) == known:
                break
        self.duals = smooth if smooth is not None else self.duals

    def add_shallow_trees(self, rounds: int = 12) -> None:
        """Add trees of few levels around the prices of the links, from which the second program begins."""
        links = self.graph.loads.shape[1]
        for number in range(rounds):
            noise = np.array([self.random.uniform(0.3, 1.7) for _ in range(links)])
            costs = self.graph.loads @ ((self.duals + 0.3 * self.duals.mean()) * noise)
            hop = costs.mean() * (0.02, 0.5, 2.0)[number % 3]
            for root in self.graph.roots:
                if number % 3 == 0:
                    self.add(root, _cheapest_tree(self.graph, root, costs + 1e-9 * self.times))
                else:
                    self.add(root, _shortest_tree(self.graph, root, costs + hop))

    def of_few_levels(self, slack: float) -> list[tuple[Column, float]]:
        """Return trees with their shares, of the least sum of levels, that take ``slack`` more than the least time."""
        program = _FewLevels(self, slack)
        for _ in range(LEVEL_ROUNDS if self.graph.num_ranks <= FEW_RANKS else MANY_ROUNDS):
            if not program.solve():
                return []
            if not program.add_trees():
                break
        while program.solve():
            taken = [(value, number) for number, value in enumerate(program.shares()) if value > 1e-9]
            largest = {program.columns[at][0] % self.pools: at for _, at in sorted(taken)}
            small = [number for value, number in taken if value < LEAST_SHARE and number not in largest.values()]
            if not small:
                return [(program.columns[number], value) for value, number in taken]
            program.leave_out(small)
        return []


class _FewLevels:
    """The second program: of trees that take little more than the least time those of the least sum of levels."""

    def __init__(self, packer: _Packer, slack: float) -> None:
        from ortools.linear_solver import pywraplp

        self.packer, self.columns = packer, list[Column]()
        self.solver, self._shares = pywraplp.Solver.CreateSolver("GLOP"), list[Any]()
        share = packer.graph.num_ranks / packer.pools
        self.whole = [self.solver.Constraint(share, share) for _ in range(packer.pools)]
        links = range(packer.graph.loads.shape[1])
        self.rows = [self.solver.Constraint(-self.solver.infinity(), 1 + slack) for _ in links]
        over = self.solver.NumVar(0, self.solver.infinity(), "")
        self.solver.Objective().SetMinimization()
        self.solver.Objective().SetCoefficient(over, 1000)
        for row in self.rows:
            row.SetCoefficient(over, -1)
        self._take_new()

    def _take_new(self) -> None:
        """Take the columns that the packer has and this program has not."""
        for column in list(self.packer.columns)[len(self.columns) :]:
            share, loads = self.solver.NumVar(0, self.solver.infinity(), ""), self.packer.columns[column]
            self.columns.append(column)
            self._shares.append(share)
            self.whole[column[0] % self.packer.pools].SetCoefficient(share, 1)
            self.solver.Objective().SetCoefficient(share, _levels(*column))
            for link in np.flatnonzero(loads):
                self.rows[link].SetCoefficient(share, float(loads[link]) / self.packer.least)

    def solve(self) -> bool:
        """Whether there is a solution."""
        checkpoint()
        return _is_solved(self.solver)

    def shares(self) -> list[float]:
        """The share of each column."""
        return [share.solution_value() for share in self._shares]

    def leave_out(self, numbers: Iterable[int]) -> None:
        """Take none of these columns."""
        for number in numbers:
            self._shares[number].SetUb(0)

    def add_trees(self) -> bool:
        """Add trees that the prices of this program ask for; whether there are any."""
        graph, packer = self.packer.graph, self.packer
        prices = np.maximum([-row.dual_value() for row in self.rows], 0) / packer.least
        costs, known = graph.loads @ prices + 1e-9 * packer.times, len(packer.columns)
        for root in graph.roots:
            trees = [_level_tree(graph, root, costs), _cheapest_tree(graph, root, costs)]
            trees += [_shortest_tree(graph, root, costs + hop) for hop in (0.1, 1.0)]
            for parents in trees:
                cost = costs[graph.edges_of(root, parents)].sum() + _levels(root, parents)
                if cost < self.whole[root % packer.pools].dual_value() - 1e-6:
                    packer.add(root, parents)
        self._take_new()
        return len(packer.columns) > known


def _is_solved(solver: Any) -> bool:
    """Solve a program; once more from the beginning, by the dual simplex, where the last basis leads nowhere."""
    from ortools.linear_solver import pywraplp

    if solver.Solve() == solver.OPTIMAL:
        return True
    anew = pywraplp.MPSolverParameters()
    anew.SetIntegerParam(anew.INCREMENTALITY, anew.INCREMENTALITY_OFF)
    anew.SetIntegerParam(anew.LP_ALGORITHM, anew.DUAL)
    return bool(solver.Solve(anew) == solver.OPTIMAL)


def _levels(root: int, parents: Parents) -> int:
    def depth(rank: int) -> int:
        return 0 if rank == root else 1 + depth(parents[rank])

    return max(map(depth, range(len(parents))))


def _shortest_tree(graph: _Graph, root: int, costs: Floats) -> Parents:
    """The tree of the shortest ways from ``root`` (Dijkstra)."""
    weights, parents, waiting = costs.tolist(), [-1] * graph.num_ranks, [(0.0, root, root)]
    while waiting:
        away, rank, above = heappop(waiting)
        if parents[rank] < 0:
            parents[rank] = above
            for target, edge in graph.onward[rank]:
                if parents[target] < 0:
                    heappush(waiting, (away + weights[edge], target, rank))
    return tuple(parents)


def _level_tree(graph: _Graph, root: int, costs: Floats) -> Parents:
    """The cheapest tree of the fewest levels from ``root``: each rank is below the cheapest of those a level nearer."""
    weights, parents, level = costs.tolist(), [root] * graph.num_ranks, [root]
    seen = {root}
    while level:
        best = dict[int, tuple[float, int]]()
        for rank in level:
            for target, edge in graph.onward[rank]:
                if target not in seen:
                    best[target] = min(best.get(target, (np.inf, 0)), (weights[edge], rank))
        for target, (_, rank) in best.items():
            parents[target] = rank
        level = list(best)
        seen |= best.keys()
    return tuple(parents)


def _cheapest_tree(graph: _Graph, root: int, costs: Floats) -> Parents:
    """The cheapest arborescence from ``root`` (Chu and Liu, Edmonds)."""
    edges = [(*ends, cost, ends) for ends, cost in zip(graph.ends, costs.tolist(), strict=True)]
    parents = [root] * graph.num_ranks
    for source, target in _arborescence(list(range(graph.num_ranks)), root, edges):
        parents[target] = source
    return tuple(parents)


Weighed = tuple[int, int, float, tuple[int, int]]
"""An edge between contracted nodes, its cost, and the edge of the graph that it is."""


def _arborescence(nodes: Sequence[int], root: int, edges: Sequence[Weighed]) -> Iterator[tuple[int, int]]:
    best = dict[int, Weighed]()
    for edge in edges:
        if edge[1] != root and (edge[1] not in best or edge[2] < best[edge[1]][2]):
            best[edge[1]] = edge
    circle = _circle(nodes, root, best)
    if not circle:
        yield from (edge[3] for edge in best.values())
        return
    whole, inside = max(nodes) + 1, set(circle)
    cheapest, enters = dict[tuple[int, int], Weighed](), dict[tuple[int, int], int]()
    for source, target, cost, ends in edges:
        if source in inside and target in inside:
            continue
        if target in inside:
            edge = source, whole, cost - best[target][2], ends
        else:
            edge = whole if source in inside else source, target, cost, ends
        if edge[:2] not in cheapest or edge[2] < cheapest[edge[:2]][2]:
            cheapest[edge[:2]] = edge
            enters[edge[:2]] = target
    rest = [node for node in nodes if node not in inside]
    entered = {edge[3]: enters[pair] for pair, edge in cheapest.items() if pair[1] == whole}
    broken = None
    for ends in _arborescence([*rest, whole], root, list(cheapest.values())):
        broken = entered.get(ends, broken)
        yield ends
    yield from (best[node][3] for node in circle if node != broken)


def _circle(nodes: Sequence[int], root: int, best: dict[int, Weighed]) -> list[int]:
    """Nodes whose cheapest edges lead round, none if there are none."""
    seen = dict[int, int]()
    for start in nodes:
        node, way = start, list[int]()
        while node != root and node not in seen:
            seen[node] = start
            way.append(node)
            node = best[node][0]
        if node != root and seen[node] == start:
            return way[way.index(node) :]
    return []
