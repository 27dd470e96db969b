"""Cuts by maximal flows are the narrowest of all cuts, each of which is looked at here."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magus.advisor.solver.cuts import Flows, narrowest_between, narrowest_from, strongest_partition, widest_spread
from magus.compiler.ir import Edge

RATES = st.sampled_from([3, 10, 16, 25, 50]).map(lambda number: number * 10**9)


@st.composite
def networks(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    """Two to six ranks and up to two switches that all reach each other; rates differ by direction, some have one."""
    ranks, switches = draw(st.integers(2, 6)), draw(st.integers(0, 2))
    nodes = range(ranks + switches)
    joined = [(node, draw(st.integers(0, node - 1))) for node in nodes[1:]]
    more = draw(st.lists(st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)), max_size=8))
    ends = sorted({*joined, *(pair[::-1] for pair in joined), *(pair for pair in more if pair[0] != pair[1])})
    return ranks, [Edge(*pair, "link", draw(RATES), 0) for pair in ends]


def every_cut(ranks: int, edges: list[Edge]) -> Iterator[tuple[frozenset[int], int]]:
    """Each group of nodes with a rank inside and one outside: its ranks, and the rate of the links out of it."""
    nodes = range(1 + max(edge.target for edge in edges))
    for group in chain.from_iterable(combinations(nodes, size) for size in range(1, len(nodes))):
        inside = frozenset(rank for rank in group if rank < ranks)
        if 0 < len(inside) < ranks:
            yield inside, sum(edge.bytes_per_s for edge in edges if edge.source in group and edge.target not in group)


@pytest.mark.slow
@settings(max_examples=200)
@given(networks())
def test_cuts_are_the_narrowest(network: tuple[int, list[Edge]]) -> None:
    ranks, edges = network
    flows, cuts = Flows(ranks, edges), list(every_cut(ranks, edges))

    into = min(Fraction(rate, len(inside)) for inside, rate in cuts if len(inside) == ranks - 1)
    found = widest_spread(flows, range(ranks))
    least = min(Fraction(rate, len(inside)) for inside, rate in cuts)
    assert (into if found is None else Fraction(found.bytes_per_s, len(found.ranks))) == least
    assert found is None or (found.ranks, found.bytes_per_s) in cuts
    assert narrowest_between(flows, range(ranks)).bytes_per_s == min(rate for _, rate in cuts)
    assert narrowest_from(flows, range(1, ranks)).bytes_per_s == min(rate for inside, rate in cuts if 0 in inside)


@settings(max_examples=50)
@given(networks())
def test_turned_round_they_are_what_enters(network: tuple[int, list[Edge]]) -> None:
    ranks, edges = network
    turned = [Edge(edge.target, edge.source, "link", edge.bytes_per_s, 0) for edge in edges]

    one, other = (
        widest_spread(Flows(ranks, edges, reverse=True), range(ranks)),
        widest_spread(Flows(ranks, turned), range(ranks)),
    )
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one.bytes_per_s * len(other.ranks) == other.bytes_per_s * len(one.ranks)


def every_partition(ranks: list[int]) -> Iterator[list[list[int]]]:
    """Each way to deal ``ranks`` to parts."""
    if not ranks:
        yield []
        return
    for parts in every_partition(ranks[1:]):
        yield [[ranks[0]], *parts]
        yield from ([*parts[:at], [ranks[0], *parts[at]], *parts[at + 1 :]] for at in range(len(parts)))


@pytest.mark.slow
@settings(max_examples=30)
@given(networks(), st.booleans())
def test_parts_have_the_least_rate_for_each_but_one(network: tuple[int, list[Edge]], both_ways: bool) -> None:
    """Of all partitions of all nodes; what enters a switch that is in no part does not count."""
    ranks, edges = network
    if both_ways:
        alike = {frozenset(edge.ends): edge.bytes_per_s for edge in edges}
        edges = [Edge(a, b, "link", rate, 0) for ends, rate in alike.items() for a, b in permutations(ends)]
    found = strongest_partition(Flows(ranks, edges))
    nodes, rates = 1 + max(edge.target for edge in edges), set[Fraction]()
    for parts in every_partition(list(range(nodes))):
        place = {node: number for number, part in enumerate(parts) if min(part) < ranks for node in part}
        if len(set(place.values())) > 1:
            entered = (
                edge for edge in edges if place.get(edge.target, place.get(edge.source)) != place.get(edge.source)
            )
            rates.add(Fraction(sum(edge.bytes_per_s for edge in entered), len(set(place.values())) - 1))
    assert set().union(*found.parts) == set(range(ranks)) and sum(map(len, found.parts)) == ranks
    reached = Fraction(found.bytes_per_s, len(found.parts) - 1)
    assert reached == min(rates) or (reached in rates and nodes > ranks and not both_ways)
