"""Ranks that see the same network: permutations of the nodes that map all links onto links of the same kind, and tori.

Trees of one root are trees of every rank that it is mapped onto. So of ranks that are alike one needs trees, and a
linear program has so many fewer columns and prices so many fewer roots: of two boxes with eight GPUs at a switch one
in place of sixteen. On a torus all ranks are alike, and its trees are known without a program.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import product

from ...compiler.collectives.tori import Place, beside, hops_of
from ...compiler.ir import checkpoint

Ends = tuple[int, int]
Image = tuple[int, ...]
"""What each node is mapped onto."""

Trees = tuple[tuple[int, ...], ...]
"""Each a root, a weight and the parents of all ranks."""

MOST_STEPS = 5_000
"""Nodes that are placed at most in the search for one permutation: with many switches alike routes rarely follow."""


def images_of_ranks(
    num_ranks: int, links: Mapping[Ends, Hashable], follows: Callable[[Image], bool]
) -> dict[int, tuple[Image, ...]]:
    """Return one rank of each kind, with a permutation onto each rank of its kind, itself first.

    ``links`` has the kind of each link by its ends, of which those from ``num_ranks`` on are switches. ``follows`` says
    whether routes follow a permutation too. A rank for which none is found is one of its own kind.
    """
    search = _Search(num_ranks, links)
    found = dict[int, tuple[Image, ...]]()
    for rank in range(num_ranks):
        for first in found:
            image = next(search.images(first, rank, follows), None)
            if image is not None:
                found[first] = (*found[first], image)
                break
        else:
            found[rank] = (tuple(range(search.num_nodes)),)
    return found


class _Search:
    """Nodes with their neighbours and kinds: two of different kinds are mapped onto each other by no permutation."""

    def __init__(self, num_ranks: int, links: Mapping[Ends, Hashable]) -> None:
        self.num_ranks, self.num_nodes = num_ranks, max(num_ranks, *(max(ends) + 1 for ends in links))
        self.links, self.near, self.steps = links, defaultdict[int, set[int]](set), 0
        for source, target in links:
            self.near[source].add(target)
            self.near[target].add(source)
        self.kinds: list[Hashable] = [node < num_ranks for node in range(self.num_nodes)]
        for _ in range(self.num_nodes):
            finer = [self._finer(node) for node in range(self.num_nodes)]
            numbers = {kind: number for number, kind in enumerate(dict.fromkeys(finer))}
            known, self.kinds = len(set(self.kinds)), [numbers[kind] for kind in finer]
            if len(numbers) == known:
                break

    def _finer(self, node: int) -> Hashable:
        around = Counter(
            (self.links.get((node, other)), self.links.get((other, node)), self.kinds[other])
            for other in self.near[node]
        )
        return self.kinds[node], frozenset(around.items())

    def images(self, first: int, onto: int, follows: Callable[[Image], bool]) -> Iterator[Image]:
        """Yield permutations that map ``first`` onto another rank, those like a shift before others."""
        if self.kinds[first] != self.kinds[onto]:
            return
        order, above = [first], {first: first}
        for node in order:
            for other in sorted(self.near[node] - above.keys()):
                above[other] = node
                order.append(other)
        if len(order) < self.num_nodes:
            return  # not one piece
        self.steps = 0
        for image in self._placed(order, above, {first: onto}):
            if follows(image):
                yield image

    def _placed(self, order: list[int], above: dict[int, int], image: dict[int, int]) -> Iterator[Image]:
        checkpoint()
        if len(image) == len(order):
            yield tuple(image[node] for node in range(self.num_nodes))
            return
        node, shift = order[len(image)], image[order[0]] - order[0]
        free = self.near[image[above[node]]] - set(image.values())
        for other in sorted(free, key=lambda each: ((each - node - shift) % self.num_ranks, each)):
            self.steps += 1
            if self.steps > MOST_STEPS:
                return
            if self.kinds[other] == self.kinds[node] and self._fits(node, other, image):
                image[node] = other
                yield from self._placed(order, above, image)
                del image[node]

    def _fits(self, node: int, other: int, image: Mapping[int, int]) -> bool:
        """Whether links between a node and those that are placed are as between their images."""
        return all(
            self.links.get((node, near)) == self.links.get((other, image[near]))
            and self.links.get((near, node)) == self.links.get((image[near], other))
            for near in self.near[node]
            if near in image
        )


def buckets(grid: Place) -> Sequence[Trees]:
    """Trees of the bucket algorithm: along one dimension after the other, beginning with each, either way round.

    With all 2 d trees of each root all links carry as much at any time, as all sides are equal. With one or two,
    roots side by side begin with different dimensions, which loads links nearly evenly: fewer copies, each larger.
    """
    places = list(product(*map(range, grid)))
    numbers, dimensions = {place: number for number, place in enumerate(places)}, len(grid)

    def tree(root: tuple[int, ...], first: int, sign: int) -> tuple[int, ...]:
        above, reached = {root: root}, [root]
        for dimension in (*range(first, dimensions), *range(first)):
            ahead = grid[dimension] // 2  # with an even side the rank across the ring is reached one way alone
            for start, (way, hops) in product(tuple(reached), ((sign, ahead), (-sign, grid[dimension] - 1 - ahead))):
                for _ in range(hops):
                    at = (start[dimension] + way) % grid[dimension]
                    above[(*start[:dimension], at, *start[dimension + 1 :])] = start
                    start = (*start[:dimension], at, *start[dimension + 1 :])
                    reached.append(start)
        return numbers[root], 1, *(numbers[above[place]] for place in places)

    whole = tuple(tree(root, first, sign) for root in places for first in range(dimensions) for sign in (1, -1))
    two = tuple(tree(root, sum(root) % dimensions, sign) for root in places for sign in (1, -1))
    one = tuple(tree(root, sum(root) % dimensions, (-1) ** (sum(root) // dimensions)) for root in places)
    return whole, two, one


def early_trees(grid: Place) -> Trees:
    """One tree of each root, the same from all, in which copies arrive early: of many ranks a copy is a whole shard.

    All links of a direction then carry as many, one at a time, and the makespan of that one tree is that of all. With
    16 MiB on 4 x 4 x 4 buckets take 23 % longer, with 64 MiB 14 %; with 256 MiB all buckets are 4 % faster.
    """
    places = list(product(*map(range, grid)))
    numbers = {place: number for number, place in enumerate(places)}
    above = {places[0]: places[0]}
    for hop in hops_of(grid, 1):
        above |= {beside(grid, place, hop.way): place for place in hop.places}

    def at(root: Place, place: Place) -> Place:
        return tuple((one + other) % side for one, other, side in zip(root, place, grid, strict=True))

    found = ((root, {at(root, place): at(root, above[place]) for place in places}) for root in places)
    return tuple((numbers[root], 1, *(numbers[parents[place]] for place in places)) for root, parents in found)
