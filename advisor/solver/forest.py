"""Trees for the template ``forest``: packings that load all links alike, by column generation.

The least time T in which all ranks send their shard to all others is that of a packing of trees: a linear program whose
columns are trees and whose rows are links. Duals of the links price new trees, the cheapest arborescence of each root
(Chu-Liu, Edmonds); the sum of their costs is a lower bound, which proves that a packing is within ``GAP`` of the best.
An edge of a tree is a route between two ranks without a rank in between, and loads the links of that route: so switches
need nothing of their own, and the routes are those that are simulated. A second program takes, of what is as good as
the best within some slack, the packing of the fewest levels: deep trees delay the last chunk.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from math import gcd
from random import Random
from typing import Any

import numpy as np

from ...compiler.ir import Fabric, checkpoint
from .even import even_packing
from .trees import (
    Column,
    Floats,
    Parents,
    TreeFlow,
    TreeGraph,
    graph_of,
    level_tree,
    shortest_tree,
    summed,
)

GAP, MOST_ROUNDS, SEED = 0.002, 60, 1
MOST_RANKS, MOST_ROOTS = 64, 32
"""Ranks that are alike are one root: its trees are those of all."""
FEW_RANKS = 16
"""Of more ranks one packing is sought; with more roots, with few rounds of the second program."""
Shape = tuple[float, float]
"""How much longer than the least time a packing of few levels may take, and by which part a copy counts as longer for
each level below it: links that bring in what others pass on are then done before these."""
SHALLOW: tuple[Shape, ...] = ((0.003, 0.0), (0.05, 0.0), (0.1, 0.0))
EARLY: tuple[Shape, ...] = ((0.003, 0.1), (0.003, 0.2), (0.003, 0.4))
LARGE: tuple[Shape, ...] = ((0.003, 0.0), (0.02, 0.0), (0.003, 0.04))
"""Of large tensors, whose chunks are a smaller part of all: a level holds up less."""
EVEN, MOST_EVEN = (TreeFlow.DOWN, TreeFlow.UP, TreeFlow.BOTH), 4
MANY_TREES, EVEN_TREES = 64, (2, 4)
"""Where a packing has more than so many trees, of so few roots that are not alike, the others that are tried have so
many of each root: with 16 MiB on a hypercube of 16 they take 1.12 times the bound, those of programs 1.48."""
LEVEL_ROUNDS, MANY_ROUNDS = 12, 4
"""How often, with few ranks and with many, trees of fewer levels are added for the prices of the second program."""
LEAST_SHARE = 0.03
"""Trees of a smaller share of a shard are left out: their chunks would be too small."""
WEIGHTS = 1000
"""Shares as whole numbers of this."""
BUSY = 0.1
"""How many levels as much time on links as the busiest has is worth: it decides among trees of nearly as many levels.
With 0.02 two boxes of six with a dead NIC take 3 % longer, a sum on an irregular graph of twelve 6 %."""
PEER_ROUNDS, PEER, USED = 8, 0.3, 0.1
"""How often edges that carry little are made dearer where a rank has too many peers, each time twice as much; by how
many levels at first those that carry nothing; and the shares of a shard that make an edge half as dear."""


@lru_cache(maxsize=8)
def packings(
    fabric: Fabric,
    num_ranks: int,
    flow: TreeFlow = TreeFlow.DOWN,
    most_peers: int = MOST_RANKS,
    shapes: tuple[Shape, ...] = SHALLOW,
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the trees of a few packings, as ``forest`` takes them, the least time first.

    There are none beyond ``MOST_RANKS`` ranks, nor beyond ``MOST_ROOTS`` that are not alike. No rank sends to more than
    ``most_peers``, if trees for that are found.
    """
    packer = _packed(fabric, num_ranks, flow, most_peers)
    if packer is None:
        return ()
    packer.add_shallow_trees()
    graph, roots, large, known = packer.graph, len(packer.graph.images), shapes == LARGE, dict(packer.columns)
    found = [packer.of_few_levels(*shapes[0])]
    many = flow in EVEN and roots <= MOST_EVEN and len(found[0]) * num_ranks > MANY_TREES * roots
    if many and not large:
        found += [even_packing(graph, count, packer.least) for count in EVEN_TREES]
    elif many or num_ranks <= FEW_RANKS:
        for shape in shapes[1:]:
            packer.columns = dict(known) if large else packer.columns  # from the same trees packings differ more
            found.append(packer.of_few_levels(*shape))
    return tuple(dict.fromkeys(_weighed(packing, graph) for packing in found if packing))


def prices_of(fabric: Fabric, num_ranks: int, flow: TreeFlow) -> tuple[tuple[float, ...], ...]:
    """Return prices of the links that prove how good a packing is, each that add up to 1; none where there is none."""
    packer = _packed(fabric, num_ranks, flow, MOST_RANKS)
    return () if packer is None else tuple(tuple(prices.tolist()) for prices in packer.prices)


def _packed(fabric: Fabric, num_ranks: int, flow: TreeFlow, most_peers: int) -> "_Packer | None":
    if not 2 < num_ranks <= MOST_RANKS:
        return None
    graph = graph_of(fabric, num_ranks, flow)
    if len(graph.images) > MOST_ROOTS:
        return None
    packer = _Packer(graph, most_peers)
    packer.pack()
    return packer


def _weighed(packing: Iterable[tuple[Column, float]], graph: TreeGraph) -> tuple[tuple[int, ...], ...]:
    """The trees of all ranks with whole weights: those of one pool are divided by what all have in common."""
    pools, common = 1 if graph.one_pool else graph.num_ranks, dict[int, int]()
    weights = [
        (root, parents, max(1, round(share * WEIGHTS)))
        for column, share in packing
        for root, parents in graph.images[column[0]].of_tree(*column, graph.num_ranks)
    ]
    for root, _, weight in weights:
        common[root % pools] = gcd(common.get(root % pools, 0), weight)
    return tuple((root, weight // common[root % pools], *parents) for root, parents, weight in weights)


def _most_of_each_port(graph: TreeGraph, most_peers: int) -> dict[int, int]:
    """How many peers a rank may have over each of the links at it: its part of the rates of all, and one at least."""
    found = dict[int, int]()
    for side in (0, 1):
        rates = defaultdict[int, dict[int, float]](dict)  # of each port of a rank
        for ends, port, loads in zip(graph.ends, graph.ports[side].tolist(), graph.loads, strict=True):
            rates[ends[side]][port] = 1 / loads[port]
        for of_rank in rates.values():
            whole = sum(of_rank.values())
            found |= {port: max(1, int(most_peers * rate / whole)) for port, rate in of_rank.items()}
    return found


class _Packer:
    """The trees that are known, and the program that chooses among them."""

    def __init__(self, graph: TreeGraph, most_peers: int) -> None:
        self.graph, self.most_peers, self.random = graph, most_peers, Random(SEED)
        self.is_small = len(graph.images) <= FEW_RANKS
        # Rows of each rank have trees of their own, which those of one root stand for, or all rows any.
        self.pools = {root: 0 if graph.one_pool else number for number, root in enumerate(graph.images)}
        self.parts = {root: len(images.ranks) if graph.one_pool else 1 for root, images in graph.images.items()}
        self.wholes = [graph.num_ranks if graph.one_pool else 1] * len(set(self.pools.values()))
        self.columns = dict[Column, Floats]()  # with the load of each link
        self.times = graph.loads.sum(axis=1)
        self.least, self.duals = 0.0, np.ones(graph.loads.shape[1])
        self.prices = list[Floats]()  # of the last round
        self.most_of_port = _most_of_each_port(graph, most_peers)

    def add(self, root: int, parents: Parents) -> bool:
        """Add a tree, unless it is known."""
        if (root, parents) in self.columns:
            return False
        self.columns[root, parents] = self.graph.loads_of(root, parents)
        return True

    def pack(self) -> None:
        """Find trees until those that are known reach the least time within ``GAP``."""
        from ortools.linear_solver import pywraplp

        links = self.graph.loads.shape[1]
        for root in self.graph.images:
            for _ in range(2):
                noise = np.array([self.random.uniform(1.0, 1.2) for _ in self.times])
                self.add(root, shortest_tree(self.graph, root, self.times * noise))
        solver = pywraplp.Solver.CreateSolver("GLOP")
        time = solver.NumVar(0, solver.infinity(), "")
        solver.Minimize(time)
        rows = [solver.Constraint(-solver.infinity(), 0) for _ in range(links)]
        for row in rows:
            row.SetCoefficient(time, -1)
        whole = [solver.Constraint(each, solver.infinity()) for each in self.wholes]
        known, bound, smooth = 0, 0.0, None
        for _ in range(MOST_ROUNDS):
            checkpoint()
            for (root, _parents), loads in list(self.columns.items())[known:]:
                share = solver.NumVar(0, solver.infinity(), "")
                whole[self.pools[root]].SetCoefficient(share, self.parts[root])
                for link in np.flatnonzero(loads):
                    rows[link].SetCoefficient(share, float(loads[link]))
            known = len(self.columns)
            if not _is_solved(solver):
                break
            self.least = time.solution_value()
            duals = np.maximum([-row.dual_value() for row in rows], 0)
            duals /= max(duals.sum(), 1e-30)
            smooth = duals if smooth is None else (smooth + duals) / 2  # smoothed duals need fewer rounds
            self.prices = [smooth / smooth.sum(), duals]
            for prices in self.prices:
                bound = max(bound, self._add_cheapest(prices))
            if self.least <= bound * (1 + GAP) or len(self.columns) == known:
                break
        self.duals = smooth if smooth is not None else self.duals

    def _add_cheapest(self, prices: Floats) -> float:
        """Add the cheapest tree of each root by ``prices`` of the links; return a time that no packing is below."""
        least = dict[int, float]()
        for root in self.graph.images:
            costs = self.graph.costs_of(root, prices)
            parents = self.graph.best_tree(root, costs + 1e-9 * self.times)
            self.add(root, parents)
            least[root] = float(self.graph.used(root, parents, costs)) / self.parts[root]
        return self.graph.num_ranks * min(least.values()) if self.graph.one_pool else sum(least.values())

    def add_shallow_trees(self, rounds: int = 12) -> None:
        """Add trees of few levels around the prices of the links, from which the second program begins."""
        links = self.graph.loads.shape[1]
        for number in range(rounds):
            noise = np.array([self.random.uniform(0.3, 1.7) for _ in range(links)])
            for root in self.graph.images:
                costs = self.graph.costs_of(root, (self.duals + 0.3 * self.duals.mean()) * noise)
                if number % 3 == 0:
                    self.add(root, self.graph.best_tree(root, costs + 1e-9 * self.times))
                else:
                    hop = costs.mean() * (0.02, 0.5, 2.0)[number % 3]
                    self.add(root, shortest_tree(self.graph, root, costs + hop * self.graph.levels))

    def of_few_levels(self, slack: float, early: float) -> list[tuple[Column, float]]:
        """Return trees with their shares, of the least sum of levels: see ``Shape``."""
        program = _FewLevels(self, slack, early)
        rounds = LEVEL_ROUNDS if self.is_small else MANY_ROUNDS
        if not program.improve(rounds):
            return []
        for number in range(PEER_ROUNDS):
            used = program.used()
            if not self._is_crowded(used):
                break
            program.avoid_others(used, PEER * 2**number)
            program.improve(rounds)
        while program.solve():
            taken = [(value, number) for number, value in enumerate(program.shares()) if value > 1e-9]
            largest = {self.pools[program.columns[at][0]]: at for _, at in sorted(taken)}
            small = [number for value, number in taken if value < LEAST_SHARE and number not in largest.values()]
            if not small:
                return [(program.columns[number], value) for value, number in taken]
            program.leave_out(small)
        return []

    def _is_crowded(self, used: Floats) -> bool:
        """Whether a rank has too many peers, or has over one of its ports."""
        graph, edges = self.graph, np.flatnonzero(used > 1e-6).tolist()
        for side in (0, 1):
            ways = {(graph.ends[edge], int(graph.ports[side, edge])) for edge in edges}
            of_rank, of_port = Counter(ends[side] for ends, _ in ways), Counter(port for _, port in ways)
            if max(of_rank.values()) > self.most_peers:
                return True
            if any(count > self.most_of_port[port] for port, count in of_port.items()):
                return True
        return False


class _FewLevels:
    """The second program: of trees that take little more than the least time those of the least sum of levels."""

    def __init__(self, packer: _Packer, slack: float, early: float) -> None:
        from ortools.linear_solver import pywraplp

        self.packer, self.early, self.columns = packer, early, list[Column]()
        self.solver, self._shares = pywraplp.Solver.CreateSolver("GLOP"), list[Any]()
        self.penalties = np.zeros(len(packer.graph.ends))
        self.whole = [self.solver.Constraint(each, each) for each in packer.wholes]
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
            share = self.solver.NumVar(0, self.solver.infinity(), "")
            loads = self.packer.graph.loads_of(*column, self.early) if self.early else self.packer.columns[column]
            self.columns.append(column)
            self._shares.append(share)
            self.whole[self.packer.pools[column[0]]].SetCoefficient(share, self.packer.parts[column[0]])
            self.solver.Objective().SetCoefficient(share, self._disadvantage(*column))
            for link in np.flatnonzero(loads):
                self.rows[link].SetCoefficient(share, float(loads[link]) / self.packer.least)

    def _disadvantage(self, root: int, parents: Parents) -> float:
        """The levels of a tree and its images, how long they hold links, and what their edges are to be avoided for."""
        graph, images = self.packer.graph, self.packer.graph.images[root]
        edges = graph.edges_of(root, parents)
        others = float(self.penalties[images.edges[:, edges]].sum())
        busy = BUSY * float(graph.loads[edges].sum()) / self.packer.least
        return len(images.ranks) * (graph.levels_of(root, parents) + busy) + others

    def improve(self, rounds: int) -> bool:
        """Add trees while that helps; whether there is a solution."""
        for _ in range(rounds):
            if not self.solve():
                return False
            if not self.add_trees():
                break
        return self.solve()

    def used(self) -> Floats:
        """The shares of the trees over each edge."""
        graph, found = self.packer.graph, np.zeros(len(self.penalties))
        for (root, parents), share in zip(self.columns, self.shares(), strict=True):
            if share > 1e-9:
                row = np.zeros(len(found))
                row[graph.edges_of(root, parents)] = share
                found += summed(graph.images[root].edges, row)
        return found

    def avoid_others(self, used: Floats, levels: float) -> None:
        """From now on prefer the edges that are much ``used``: those that are little become dearer with each call."""
        self.penalties = levels * USED / (used + USED)
        for column, share in zip(self.columns, self._shares, strict=True):
            self.solver.Objective().SetCoefficient(share, self._disadvantage(*column))

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
        known = len(packer.columns)
        for root, images in graph.images.items():
            links, others = graph.costs_of(root, prices), self.penalties[images.edges].sum(axis=0)
            others += BUSY * len(images.ranks) * packer.times / packer.least
            costs = links + others
            alike, least = len(images.ranks), packer.parts[root] * self.whole[packer.pools[root]].dual_value() - 1e-6
            trees = [level_tree(graph, root, costs), graph.best_tree(root, costs)]
            trees += [shortest_tree(graph, root, costs + hop * alike * graph.levels) for hop in (0.1, 1.0)]
            for parents in trees:
                used = graph.used(root, parents, links, self.early) + graph.used(root, parents, others)
                if used + alike * graph.levels_of(root, parents) < least:
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
