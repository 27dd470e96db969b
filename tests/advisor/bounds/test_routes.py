"""The table of routes says what a walk hop by hop says, and is not walked hop by hop."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise, product

import pytest

from magus.advisor.bounds.link_loads import _routed_loads, routes_of
from magus.compiler.ir import Fabric, network_of
from tests.helpers.scenarios.fabrics import EVERY, UNEVEN, torus


@pytest.mark.parametrize("name", EVERY)
def test_links_are_counted_as_they_are_walked(name: str) -> None:
    num_ranks, fabric = EVERY[name]
    network = network_of(fabric, num_ranks)
    for source, destination in product(range(num_ranks), repeat=2):
        walked = len(network.route(source, destination))
        assert network.num_links(source, destination) == walked


def test_no_link_is_walked_twice_to_one_rank() -> None:
    num_ranks, steps = 96, Counter[tuple[int, int]]()
    plain = network_of(torus(num_ranks), num_ranks)

    def counted(node: int, destination: int) -> int:
        steps[node, destination] += 1
        return plain.step(node, destination)

    network = replace(plain, step=counted, _distances={})
    for source, destination in product(range(num_ranks), repeat=2):
        network.num_links(source, destination)

    assert max(steps.values()) == 1


@pytest.mark.parametrize("name", UNEVEN)
def test_passes_are_those_of_a_walk(name: str) -> None:
    num_ranks, fabric = UNEVEN[name]
    table = routes_of(fabric, num_ranks)
    for peer in range(1, num_ranks):
        walked = _walked(fabric, num_ranks, peer)
        times = table.times(table.passes(peer)).tolist()
        assert {edge.ends: count for edge, count in zip(table.edges, times, strict=True) if count} == walked


@pytest.mark.parametrize("name", UNEVEN)
def test_the_busiest_link_of_an_exchange_is_that_of_a_walk(name: str) -> None:
    num_ranks, fabric = UNEVEN[name]
    network, blocks = network_of(fabric, num_ranks), tuple(1000 + 7 * peer for peer in range(num_ranks))
    passed = Counter[tuple[int, int]]()
    for peer in range(1, num_ranks):
        for ends, times in _walked(fabric, num_ranks, peer).items():
            passed[ends] += times * blocks[peer]
    by_rate = defaultdict[int, int](int)
    for ends, num_bytes in passed.items():
        rate = network.edge(*ends).bytes_per_s
        by_rate[rate] = max(by_rate[rate], num_bytes)

    found = {load.bytes_per_s: load.num_bytes for load in _routed_loads(fabric, num_ranks, blocks)}
    assert found == by_rate


def _walked(fabric: Fabric, num_ranks: int, peer: int) -> Counter[tuple[int, int]]:
    """How often each edge is passed where every rank sends to the one so much further; edges as they come."""
    path = network_of(fabric, num_ranks).path
    return Counter(ends for rank in range(num_ranks) for ends in pairwise(path(rank, (rank + peer) % num_ranks)))
