"""Ranks that see the same network: permutations of the nodes that map all links onto links of the same kind.

Trees of one root are trees of every rank that it is mapped onto. So of ranks that are alike one needs trees, and a
linear program has so many fewer columns and prices so many fewer roots: of two boxes with eight GPUs at a switch one
in place of sixteen.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping

from ...compiler.ir import checkpoint

Ends = tuple[int, int]
Image = tuple[int, ...]
"""What each node is mapped onto."""

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
