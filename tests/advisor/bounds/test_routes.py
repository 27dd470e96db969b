"""Loads of links are those of a walk hop by hop, and no link is walked twice to one rank."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise, product

import pytest

from magus.advisor.bounds.link_loads import _routed_loads, _uneven_loads, farthest_ticks
from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, EngineChoice, EngineKind, EngineMode, Fabric, OpChoice, network_of
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
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

    table = tuple(tuple(blocks[(to - rank) % num_ranks] for to in range(num_ranks)) for rank in range(num_ranks))
    for loads in (_routed_loads(fabric, num_ranks, blocks), _uneven_loads(fabric, num_ranks, table)):
        assert {load.bytes_per_s: load.num_bytes for load in loads} == by_rate


def _walked(fabric: Fabric, num_ranks: int, peer: int) -> Counter[tuple[int, int]]:
    """How often each edge is passed where every rank sends to the one so much further; edges as they come."""
    path = network_of(fabric, num_ranks).path
    return Counter(ends for rank in range(num_ranks) for ends in pairwise(path(rank, (rank + peer) % num_ranks)))


def test_the_farthest_rank_is_found_by_the_ways_of_least_latency() -> None:
    """On a chain of four with a slow shortcut from end to end: three links of 0.7 us, or two beside one of 1 us."""
    text = """use "nvidia/a100"
link near extends nvlink {{ latency 0.7 us }}
link far extends nvlink {{ latency {far} us }}
system s {{ gpus 4 x A100; fabric edges(near=[[0, 1], [1, 2], [2, 3]], far=[[0, 3]]) }}
workload w on s {{ x = tensor bf16[{rows}, 64] shard rows; y = all_gather(x) }}"""
    bounds = {}
    for far, most in ((5, 2_100_000), (1, 1_400_000)):
        small, large = (compile_text(text.format(far=far, rows=rows)).scenario().case for rows in (4, 1 << 20))
        assert farthest_ticks(small) == farthest_ticks(large) == most * TICKS_PER_US // 10**6
        bounds[far] = lower_bound(small)
        best = build_op_plan(small, OpChoice("serial", 4, EngineChoice(EngineKind.DMA, 3, EngineMode.PRELAUNCHED)))
        assert bounds[far].ticks <= simulate_op(small, best, unit_bytes=128).total_ticks
        assert "farthest" not in next(each.sentence for each in lower_bound(large).terms if each.name == "links")
        assert "farthest" in next(each.sentence for each in bounds[far].terms if each.name == "links")
    assert bounds[5].ticks - bounds[1].ticks == 7 * TICKS_PER_US // 10


def test_what_is_broadcast_must_reach_the_rank_farthest_from_its_root() -> None:
    """On a chain of four with links of 2 us, of which rank 0 is an end, or next to one."""
    for chain, most in (("[[0, 1], [1, 2], [2, 3]]", 3), ("[[1, 0], [0, 2], [2, 3]]", 2)):
        case = (
            compile_text(f"""use "nvidia/a100"
link near extends nvlink {{ latency 2 us }}
system s {{ gpus 4 x A100; fabric edges(near={chain}) }}
workload w on s {{ x = tensor bf16[4, 64]; y = broadcast(x) }}""")
            .scenario()
            .case
        )
        assert farthest_ticks(case) == most * 2 * TICKS_PER_US
        best = build_op_plan(case, OpChoice("serial", 4, EngineChoice(EngineKind.DMA, 3, EngineMode.PRELAUNCHED)))
        bound = lower_bound(case)
        assert most * 2 * TICKS_PER_US < bound.ticks <= simulate_op(case, best, unit_bytes=128).total_ticks
        assert "farthest" in next(each.sentence for each in bound.terms if each.name == "links")
