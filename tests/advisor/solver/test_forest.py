"""Packings of trees reach the bound of the narrowest cut, on any network, within the error that is allowed."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction

import pytest

from magus.advisor.solver.cuts import Flows, narrowest_between, strongest_partition, widest_spread
from magus.advisor.solver.forest import EARLY, GAP, LARGE, MANY_TREES, MOST_RANKS, SHALLOW, packings
from magus.advisor.solver.trees import SLOW, TreeFlow, graph_of
from magus.compiler import compile_text
from magus.compiler.ir import Fabric, network_of
from tests.helpers.some import some

FABRICS = {
    "bridged triangles": (6, "edges(xgmi=[[0, 1], [0, 2], [1, 2], [3, 4], [3, 5], [4, 5]], slow=[[2, 3], [0, 5]])"),
    "a broken link": (5, "edges(xgmi=[[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [1, 3], [2, 3], [2, 4], [3, 4]])"),
    "two switches": (6, "edges(switches=2, xgmi=[[0, 6], [1, 6], [2, 6], [3, 7], [4, 7], [5, 7]], slow=[[6, 7]])"),
    "torus": (8, "torus(xgmi, shape=[2, 4])"),
    "two boxes": (8, "rails(hub, link=xgmi, node=4, nic=slow)"),
    "links of one way": (5, "edges(xgmi=[0 -> 1, 1 -> 2, 2 -> 3, 3 -> 4, 4 -> 0], slow=[[0, 2]])"),
    "three boxes": (9, "rails(hub, link=xgmi, node=3, nic=slow)"),
}


def fabric_of(name: str) -> tuple[int, Fabric]:
    ranks, fabric = FABRICS[name]
    text = f"""use "amd/mi300x"
link slow extends xgmi {{ bandwidth 32 GB/s; achieved 24 GB/s }}
switch hub {{ ports 4; bandwidth 100 GB/s; latency 1 us }}
system s {{ gpus {ranks} x MI300X; fabric {fabric} }}
workload one on s {{ x = tensor bf16[{ranks * 8}, 64] shard rows; y = all_gather(x) }}
"""
    return ranks, compile_text(text).scenario().case.system.fabric


def rate_of(ranks: int, fabric: Fabric) -> Fraction:
    """Bytes per second that each rank can send to all others at the most."""
    flows = Flows(ranks, network_of(fabric, ranks).edges)
    cut = widest_spread(flows, range(ranks))
    into = min(Fraction(flows.rate_into(rank) * flows.unit, ranks - 1) for rank in range(ranks))
    return into if cut is None else Fraction(cut.bytes_per_s, len(cut.ranks))


def slacks_of(found: Sequence[object]) -> tuple[float, ...]:
    """The slack of each packing: the first has the least, and of two that are the same one is left out."""
    slacks = [slack for slack, _ in SHALLOW]
    return slacks[0], *slacks[len(slacks) - len(found) + 1 :]


@pytest.mark.parametrize("name", FABRICS)
def test_trees_of_any_root_sum_as_fast_as_the_least_flow_between_two_ranks(name: str) -> None:
    ranks, fabric = fabric_of(name)
    network = network_of(fabric, ranks)
    flows = Flows(ranks, network.edges)
    parts = strongest_partition(flows)
    bound = max(1 / narrowest_between(flows, range(ranks)).bytes_per_s, 2 * (len(parts.parts) - 1) / parts.bytes_per_s)
    found = packings(fabric, ranks, TreeFlow.BOTH)
    assert found
    for trees, slack in zip(found, slacks_of(found), strict=True):
        loads, whole = defaultdict[tuple[int, int], float](float), sum(weight for _, weight, *_ in trees)
        for root, weight, *parents in trees:
            for rank in set(range(ranks)) - {root}:
                down, up = parents[rank], parents[rank - ranks]
                for edge in (*network.route(down, rank), *network.route(rank, up)):
                    loads[edge.ends] += weight / whole / edge.bytes_per_s
        assert 1 <= max(loads.values()) / bound <= (1 + GAP) * (1 + slack) * 1.02


@pytest.mark.parametrize("name", FABRICS)
def test_the_first_packing_loads_no_link_longer_than_the_narrowest_cut(name: str) -> None:
    ranks, fabric = fabric_of(name)
    found, network, rate = packings(fabric, ranks), network_of(fabric, ranks), float(rate_of(ranks, fabric))

    assert found
    for trees, slack in zip(found, slacks_of(found), strict=True):
        whole, loads = defaultdict[int, int](int), defaultdict[tuple[int, int], float](float)
        for root, weight, *_ in trees:
            whole[root] += weight
        for root, weight, *parents in trees:
            for rank, above in enumerate(parents):
                for edge in () if rank == root else network.route(above, rank):
                    loads[edge.ends] += weight / whole[root] / edge.bytes_per_s
        # Shares are whole numbers, and small ones are left out.
        assert max(loads.values()) * rate <= (1 + GAP) * (1 + slack) * 1.02
        assert set(whole) == set(range(ranks))


def test_the_same_trees_each_time() -> None:
    ranks, fabric = fabric_of("bridged triangles")
    first = packings(fabric, ranks)
    packings.cache_clear()

    assert first and packings(fabric, ranks) == first


def test_of_many_ranks_there_are_none() -> None:
    _, fabric = fabric_of("torus")
    assert packings(fabric, MOST_RANKS + 1) == () and packings(fabric, 2) == ()


def test_ranks_send_to_as_few_others_as_they_have_engines() -> None:
    """Three at each of two switches: by whatever routes the trees have up to five peers a rank."""
    ranks, fabric = fabric_of("two switches")

    def most_peers(found: Sequence[Sequence[tuple[int, ...]]]) -> int:
        passed = {
            (above, rank)
            for trees in some(found)
            for root, _, *parents in trees
            for rank, above in enumerate(parents)
            if rank != root
        }
        return max(sum(source == rank for source, _ in passed) for rank in range(ranks))

    assert most_peers(packings(fabric, ranks)) > 3 >= most_peers(packings(fabric, ranks, TreeFlow.DOWN, 3))


def test_a_rank_has_one_peer_over_a_nic_that_has_a_small_part_of_its_rates() -> None:
    """Two rings of four, each rank with a NIC at one switch: by that it reaches all others, and by links two."""
    rings = [[first + rank, first + (rank + 1) % 4] for first in (0, 4) for rank in range(4)]
    nics = [[rank, 8] for rank in range(8)]
    text = f"""use "amd/mi300x"
link nic extends xgmi {{ bandwidth 24 GB/s; achieved 24 GB/s }}
system s {{ gpus 8 x MI300X; fabric edges(switches=1, xgmi={rings}, nic={nics}) }}
workload one on s {{ x = tensor bf16[128, 64] shard rows; y = all_gather(x) }}
"""
    fabric = compile_text(text).scenario().case.system.fabric
    joined = {frozenset(pair) for pair in rings}

    def peers_over_nics(found: Sequence[Sequence[tuple[int, ...]]]) -> Counter[int]:
        trees = some(found)[0]
        ways = {(above, rank) for root, _, *parents in trees for rank, above in enumerate(parents) if rank != root}
        return Counter(end for source, target in ways if {source, target} not in joined for end in (source, ~target))

    for flow in (TreeFlow.DOWN, TreeFlow.UP, TreeFlow.BOTH):
        assert max(peers_over_nics(packings(fabric, 8, flow, 8)).values()) == 1
    assert max(peers_over_nics(packings(fabric, 8)).values()) > 1


def test_where_packings_have_many_trees_two_and_four_of_each_rank_are_nearly_as_even() -> None:
    links = [[rank, rank ^ 1 << bit] for rank in range(16) for bit in range(4) if rank < rank ^ 1 << bit]
    fabric = (
        compile_text(f"""use "amd/mi300x"
system s {{ gpus 16 x MI300X; fabric edges(xgmi={links}) }}
workload one on s {{ x = tensor bf16[128, 64] shard rows; y = all_gather(x) }}
""")
        .scenario()
        .case.system.fabric
    )
    first, *even = packings(fabric, 16)
    assert len(first) > MANY_TREES and [len(trees) for trees in even] == [32, 64]
    for trees in even:
        loads = Counter[tuple[int, int]]()
        for root, weight, *parents in trees:
            reached = {root}
            for _ in parents:
                reached |= {rank for rank, above in enumerate(parents) if above in reached}
            assert weight == 1 and reached == set(range(16))
            loads.update((above, rank) for rank, above in enumerate(parents) if rank != root)
        shards = max(loads.values()) * 16 / len(trees)
        assert 15 / 4 <= shards <= 1.1 * 15 / 4  # a rank gets 15 shards over four links
    large = packings(fabric, 16, shapes=LARGE)  # their chunks are large enough
    assert large[0] == first and not set(large) & set(even)


def test_links_that_bring_in_what_is_passed_on_are_done_early() -> None:
    """Two boxes of six at a switch each, five NICs between them: rank 3, without one, gets all over the switch."""
    hubs, nics = [[rank, 12 + rank // 6] for rank in range(12)], [[rank, rank + 6] for rank in range(6) if rank != 3]
    text = f"""use "amd/mi300x"
link wide extends xgmi {{ bandwidth 400 GB/s; achieved 360 GB/s }}
system s {{ gpus 12 x MI300X; fabric edges(switches=2, wide={hubs}, xgmi={nics}) }}
workload one on s {{ x = tensor bf16[120, 64] shard rows; y = all_gather(x) }}
"""
    fabric = compile_text(text).scenario().case.system.fabric

    def shards_of_a_nic(trees: Sequence[tuple[int, ...]]) -> float:
        whole, loads = Counter[int](), defaultdict[tuple[int, int], float](float)
        for root, weight, *_ in trees:
            whole[root] += weight
        for root, weight, *parents in trees:
            for rank, above in enumerate(parents):
                loads[above, rank] += weight / whole[root] * ((above < 6) != (rank < 6))
        return max(loads.values())

    first, early = (packings(fabric, 12, shapes=(shape,))[0] for shape in (SHALLOW[0], EARLY[1]))
    assert 6 / 5 <= shards_of_a_nic(early) < 1.25 < shards_of_a_nic(first)


def test_a_level_over_a_slow_link_counts_more() -> None:
    """The link from 0 to 1 has a quarter of the rate of the others; where all are alike each level counts as one."""
    text = """use "amd/mi300x"
link slow extends xgmi {{ bandwidth {0} GB/s; achieved {0} GB/s }}
link fast extends xgmi {{ bandwidth 64 GB/s; achieved 64 GB/s }}
system s {{ gpus 4 x MI300X; fabric edges(slow=[[0, 1]], fast=[[1, 2], [2, 3], [3, 0], [0, 2]]) }}
workload one on s {{ x = tensor bf16[32, 64] shard rows; y = all_gather(x) }}
"""
    for rate, levels in ((16, 1 - SLOW + SLOW * 4), (64, 1)):
        graph = graph_of(compile_text(text.format(rate)).scenario().case.system.fabric, 4, TreeFlow.DOWN)
        assert graph.levels_of(0, (0, 0, 0, 0)) == pytest.approx(max(levels, 1))
        assert graph.levels_of(0, (0, 2, 0, 0)) == 2
