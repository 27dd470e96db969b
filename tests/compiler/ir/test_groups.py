"""Groups of ranks of a larger system: what joins them, and what they share with the other groups of their axes."""

from collections import Counter
from itertools import permutations

import pytest

from magus.compiler.ir import Axis, Edge, Fabric, System, network_of
from magus.compiler.ir.topologies import part_of
from tests.helpers.scenarios.fabrics import fat_tree, graph, rails, torus
from tests.helpers.scenarios.scenarios import full_mesh, h100, ring, switch

WHOLE: dict[str, tuple[int, Fabric]] = {
    "mesh": (8, full_mesh()),
    "switch": (8, switch()),
    "ring": (12, ring()),
    "one way": (8, ring(both_ways=False)),
    "torus": (16, torus(4, 4)),
    "torus of three sides": (24, torus(2, 3, 4)),
    "rails": (24, rails(8)),
    "fat tree": (32, fat_tree(8, 4)),
    "fat tree with more spines than GPUs of a leaf": (16, fat_tree(4, 8)),
    "fat tree that leaves share unevenly": (12, fat_tree(4, 3)),
    "circle": (6, graph(*((i, (i + 1) % 6) for i in range(6)))),
    "two stars": (8, graph(*((i, 8 + i // 4) for i in range(8)), (8, 9), switches=2)),
}


def groups(num_ranks: int, stride: int, size: int) -> list[range]:
    span = stride * size
    return [range(base, base + span, stride) for base in range(num_ranks) if base % span < stride]


def shares(num_ranks: int) -> list[tuple[int, int]]:
    """Each stride and size of an axis of so many ranks."""
    sizes = [size for size in range(2, num_ranks) if num_ranks % size == 0]
    return [(s, size) for size in sizes for s in range(1, num_ranks // size + 1) if num_ranks // size % s == 0]


Routes = list[list[tuple[int, int, int, int]]]


def seen(routes: dict[tuple[int, int], tuple[Edge, ...]], over: Counter[tuple[int, int]]) -> Routes:
    """Routes by numbers of edges in the order in which they are passed, with rate, latency and groups of each edge."""
    numbers: dict[tuple[int, int], int] = {}
    return [
        [(numbers.setdefault(e.ends, len(numbers)), e.bytes_per_s, e.latency_ticks, over[e.ends]) for e in route]
        for route in routes.values()
    ]


def without_groups(routes: Routes) -> Routes:
    return [[(*hop[:3], 1) for hop in route] for route in routes]


@pytest.mark.parametrize("name", WHOLE)
def test_a_group_has_the_routes_of_the_whole_and_the_least_share_of_each_link(name: str) -> None:
    num_ranks, fabric = WHOLE[name]
    whole, sizes = network_of(fabric, num_ranks), list(shares(num_ranks))
    assert sizes
    for stride, size in sizes:
        each = [
            {ends: whole.route(*ends) for ends in permutations(group, 2)} for group in groups(num_ranks, stride, size)
        ]
        over = Counter(ends for routes in each for ends in {edge.ends for r in routes.values() for edge in r})
        wanted = [seen(routes, over) for routes in each]
        found = part_of(fabric, num_ranks, stride, size)

        alike = all(without_groups(other) == without_groups(wanted[0]) for other in wanted)
        assert alike == isinstance(found, Fabric), (stride, size)
        if not isinstance(found, Fabric):
            continue
        most = [[max(hops, key=lambda hop: hop[3]) for hops in zip(*r, strict=True)] for r in zip(*wanted, strict=True)]
        network = network_of(found, size)
        routes = {ends: network.route(*ends) for ends in permutations(range(size), 2)}
        alone = Counter(edge.ends for edge in network.edges)
        shared = [[(e, rate // n, late, 1) for e, rate, late, n in hops] for hops in most]
        assert seen(routes, alone) == shared, (stride, size)


@pytest.mark.parametrize(
    ("fabric", "stride", "size", "name"),
    [
        (rails(8), 1, 8, "switch"),
        (rails(8), 8, 2048, "rails"),
        (rails(8), 2, 64, "rails"),
        (fat_tree(16, 16), 8, 2048, "fat_tree"),
        (torus(64, 16, 16), 16, 16, "torus"),
        (switch(), 4, 512, "switch"),
    ],
)
def test_groups_of_large_systems_have_a_form_of_their_own(fabric: Fabric, stride: int, size: int, name: str) -> None:
    found = part_of(fabric, 16_384, stride, size)

    assert isinstance(found, Fabric) and found.topology.name == name


def system(fabric: Fabric, num_ranks: int, *axes: Axis) -> System:
    return System("pod", num_ranks, h100(), fabric, mesh=axes)


def test_axes_of_one_rank_join_with_those_beside_them() -> None:
    pod = system(rails(8), 16, Axis("tp", 1, 1), Axis("dp", 16, 1), Axis("pp", 1, 16))

    both, all_of = pod.group(("tp", "dp")), pod.group(("pp", "tp", "dp"))

    assert isinstance(both, System) and (both.num_ranks, both.fabric) == (16, pod.fabric)
    assert isinstance(all_of, System) and all_of.name == "pod.tp.dp.pp"


def test_a_group_is_called_by_its_axes_and_says_of_how_many_it_is() -> None:
    pod = system(rails(8), 16, Axis("tp", 8, 1), Axis("dp", 2, 8))
    group = pod.group(("tp",))

    assert isinstance(group, System)
    assert (pod.title, group.title) == ("16 x " + pod.gpu.name, "pod.tp, 8 of 16 x " + pod.gpu.name)
