"""Routes: connected, shortest, the same every time."""

import pickle
from collections import Counter, deque
from itertools import pairwise, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import TOPOLOGIES, Fabric, Network, NoRoute, network_of
from magus.compiler.ir.topologies import base
from magus.compiler.ir.topologies.base import part_of
from tests.helpers.marks import examples
from tests.helpers.scenarios.fabrics import EVERY, UNEVEN, crossbar, fat_tree, graph, nic, rails, torus
from tests.helpers.scenarios.scenarios import full_mesh, nvlink, ring, switch, xgmi


def distances(network: Network, source: int) -> dict[int, int]:
    """Edges to each node, by breadth first search."""
    found, todo = {source: 0}, deque([source])
    while todo:
        node = todo.popleft()
        for edge in network.edges:
            if edge.source == node and edge.target not in found:
                found[edge.target] = found[node] + 1
                todo.append(edge.target)
    return found


def check_routes(network: Network) -> None:
    for source in range(network.num_ranks):
        far = distances(network, source)
        for destination in range(network.num_ranks):
            route = network.route(source, destination)
            assert len(route) == far[destination]
            if route:
                assert (route[0].source, route[-1].target) == (source, destination)
            assert all(one.target == other.source for one, other in pairwise(route))


@pytest.mark.parametrize("name", UNEVEN)
def test_routes_are_connected_and_shortest(name: str) -> None:
    num_ranks, fabric = UNEVEN[name]
    check_routes(network_of(fabric, num_ranks))


def test_every_topology_has_a_row_in_the_tests() -> None:
    assert {fabric.topology for _, fabric in EVERY.values()} == {*TOPOLOGIES, base.TOPOLOGY}


@pytest.mark.parametrize("name", EVERY)
def test_a_fabric_is_the_same_in_another_process(name: str) -> None:
    num_ranks, fabric = EVERY[name]
    sent = pickle.loads(pickle.dumps(fabric))

    assert sent == fabric and hash(sent) == hash(fabric)
    assert network_of(sent, num_ranks) is network_of(fabric, num_ranks)


@pytest.mark.parametrize("name", EVERY)
def test_rates_of_ports_are_those_of_the_edges_there(name: str) -> None:
    num_ranks, fabric = EVERY[name]
    network = network_of(fabric, num_ranks)

    for rank in range(num_ranks):
        assert network.bytes_per_s_into[rank] == sum(e.bytes_per_s for e in network.edges if e.target == rank)
        assert network.bytes_per_s_out[rank] == sum(e.bytes_per_s for e in network.edges if e.source == rank)
        assert all(network.edge(*edge.ends) == edge for edge in network.edges)


@pytest.mark.parametrize("fabric", [full_mesh(), switch(), ring()])
@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_routes_of_symmetric_fabrics_are_shortest_too(fabric: Fabric, num_ranks: int) -> None:
    check_routes(network_of(fabric, num_ranks))


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3))
@examples(20, deep=400)
def test_a_torus_of_any_shape_is_regular(shape: list[int]) -> None:
    network = network_of(torus(*shape), _product(shape))
    degree = sum(min(side - 1, 2) for side in shape)

    assert network.num_nodes == network.num_ranks
    assert len(network.edges) == degree * network.num_ranks
    assert len({edge.ends for edge in network.edges}) == len(network.edges)
    check_routes(network)


@given(data=st.data(), num_ranks=st.integers(2, 8), switches=st.integers(0, 3))
@examples(60)
def test_routes_of_any_graph_are_shortest_or_there_are_none(data: st.DataObject, num_ranks: int, switches: int) -> None:
    nodes = range(num_ranks + switches)
    pairs = [(a, b) for a, b in product(nodes, nodes) if a < b]
    ends = data.draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    turned = [pair[::-1] for pair in pairs if pair not in ends]
    one_way = data.draw(st.lists(st.sampled_from(turned), unique=True)) if turned else []
    network = network_of(graph(*ends, switches=switches, one_way=one_way), num_ranks)

    if all(rank in distances(network, source) for source in range(num_ranks) for rank in range(num_ranks)):
        network.check_reachable()
        check_routes(network)
        assert network_of(graph(*reversed(ends), switches=switches, one_way=one_way), num_ranks).path(
            0, 1
        ) == network.path(0, 1)
    else:
        with pytest.raises(NoRoute):
            network.check_reachable()


def test_an_island_that_nothing_leaves_is_found() -> None:
    network = network_of(graph((0, 1), (2, 3), one_way=[(1, 2)]), 4)
    with pytest.raises(NoRoute) as caught:
        network.check_reachable()

    assert (caught.value.source, caught.value.destination) == (2, 0)
    assert network.path(0, 3) == (0, 1, 2, 3)


def test_of_two_ways_as_short_the_one_over_lower_numbers_is_taken() -> None:
    diamond = network_of(graph((0, 2), (2, 3), (0, 1), (1, 3), (3, 4)), 5)

    assert diamond.path(0, 3) == (0, 1, 3)
    assert diamond.path(3, 0) == (3, 1, 0)


def test_a_shift_that_maps_a_graph_onto_itself_maps_its_routes_too() -> None:
    diamond = network_of(graph((0, 2), (2, 3), (0, 1), (1, 3)), 4)

    assert diamond.period == 2
    assert (diamond.path(2, 1), diamond.path(0, 3)) == ((2, 0, 1), (0, 2, 3))


PERIODS = {
    "torus 8": 2,
    "torus 3 x 4": 4,
    "torus 2 x 2 x 2": 4,
    "fat tree": 4,
    "fat tree that leaves share unevenly": 12,
    "rails": 4,
    "rails of single links": 4,
    "circle with chords": 2,
    "star": 1,
    "chain": 4,
    "two triangles": 3,
    "mesh": 1,
    "switch": 1,
}


@pytest.mark.parametrize("name", EVERY)
def test_routes_shifted_by_the_period_are_routes(name: str) -> None:
    num_ranks, fabric = EVERY[name]
    network = network_of(fabric, num_ranks)
    shift = network.period

    assert num_ranks % shift == 0 and shift == PERIODS.get(name, shift)
    for rank, destination in product(range(num_ranks), repeat=2):
        here = network.route(rank, destination)
        further = network.route((rank + shift) % num_ranks, (destination + shift) % num_ranks)
        assert [(edge.name, edge.bytes_per_s) for edge in here] == [(edge.name, edge.bytes_per_s) for edge in further]
        assert network.way(rank, destination) == tuple(
            (number, (ranks - shift) % num_ranks)
            for number, ranks in network.way((rank + shift) % num_ranks, (destination + shift) % num_ranks)
        )
        assert [edge.name for edge in here] == [
            network.own[number].name for number, _ in network.way(rank, destination)
        ]


def test_nodes_of_rails_in_single_links_are_found() -> None:
    num_ranks, fabric = EVERY["rails of single links"]
    network = network_of(fabric, num_ranks)

    assert network.edges and {len({e.ends for e in network.edges}), len(network.edges)} == {32}
    assert len(network.own) == 16


def test_a_torus_goes_one_dimension_after_the_other_the_last_first() -> None:
    network = network_of(torus(3, 4), 12)

    assert network.path(0, 5) == (0, 1, 5)
    assert network.path(0, 10) == (0, 1, 2, 10)  # halfway around goes up from even places, two of three goes down
    assert network.path(1, 11) == (1, 0, 3, 11)
    assert network.path(0, 3) == (0, 3)


@pytest.mark.parametrize(("shape", "most"), [([4, 4], 8), ([4, 8], 32), ([2, 4, 4], 16), ([8], 8)])
def test_routes_half_around_a_torus_load_both_ways_alike(shape: list[int], most: int) -> None:
    """Each rank sends to all others. A link of a side passes an eighth of its square for each rank beside that side."""
    network = network_of(torus(*shape), _product(shape))
    passed = Counter(edge.ends for ends in permutations(range(network.num_ranks), 2) for edge in network.route(*ends))

    assert max(passed.values()) == most


def test_a_group_inside_a_side_of_a_torus_goes_up_half_around() -> None:
    found = part_of(torus(8), 8, 2, 4)

    assert isinstance(found, Fabric)
    assert len({network_of(found, 4).num_links(rank, (rank + 2) % 4) for rank in range(4)}) == 1


def test_a_fat_tree_takes_the_spine_of_the_destination() -> None:
    network = network_of(fat_tree(4, 2), 8)

    assert network.path(0, 3) == (0, 8, 3)
    assert network.path(0, 6) == (0, 8, 10, 9, 6)
    assert {network.path(source, 7)[2] for source in range(4)} == {11}


def test_rails_reach_another_rail_over_the_gpu_of_the_own_node() -> None:
    network = network_of(rails(4), 8)
    to_the_same_rail, to_another = network.route(1, 5), network.route(1, 6)

    assert [edge.name for edge in to_the_same_rail] == ["nic-out", "nic-in"]
    assert [edge.name for edge in to_another] == ["up", "down", "nic-out", "nic-in"]
    assert to_another[1].target == 2
    assert network.latency_ticks(1, 5) == 2 * nic().latency_ticks


def test_an_edge_out_of_a_switch_has_the_rate_and_the_latency_of_its_port() -> None:
    up, down = network_of(fat_tree(4, 2), 8).route(0, 1)

    assert up.latency_ticks == nvlink().latency_ticks
    assert down.latency_ticks == nvlink().latency_ticks + crossbar().latency_ticks
    assert (up.bytes_per_s, down.bytes_per_s) == (nvlink().achieved_bytes_per_s,) * 2
    assert network_of(torus(4), 4).route(0, 1)[0].bytes_per_s == xgmi().achieved_bytes_per_s


def _product(shape: list[int]) -> int:
    total = 1
    for side in shape:
        total *= side
    return total
