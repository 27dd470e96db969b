"""What must move, in figures, and through which ports."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.advisor.bounds import link_loads
from magus.advisor.bounds.link_loads import LinkLoad, least_traffic, loads_of, ranks_text
from magus.advisor.solver.cuts import Flows
from magus.compiler import compile_text
from magus.compiler.ir import Edge, OpCase, Pattern
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.fabrics import UNEVEN
from tests.helpers.scenarios.scenarios import G, lone_gather

SWITCH, MESH, RING = SYSTEMS[:3]
WHOLE = 1024 * 256 * 2
RANKS = 4


@pytest.mark.parametrize(
    ("pattern", "system", "into", "out", "total"),
    [
        (Pattern.ALL_GATHER, MESH, Fraction(3, 4), Fraction(1, 4), 3),
        (Pattern.REDUCE_SCATTER, MESH, Fraction(1, 4), Fraction(3, 4), 3),
        (Pattern.REDUCE_SCATTER, SWITCH, Fraction(1, 4), Fraction(3, 4), 1),
        (Pattern.ALL_REDUCE, MESH, Fraction(1), Fraction(1), 6),
        (Pattern.ALL_REDUCE, SWITCH, Fraction(1), 1 + Fraction(2, 3 * 4), 4),
        (Pattern.ALL_TO_ALL, MESH, Fraction(3, 4), Fraction(3, 4), 3),
    ],
)
def test_every_rank_is_alike(pattern: Pattern, system: str, into: Fraction, out: Fraction, total: int) -> None:
    moved = least_traffic(scenario_of(pattern, system, RANKS, 1024, 256, 256))

    assert moved is not None
    assert set(moved.into) == {int(into * WHOLE)}
    assert set(moved.out) == {int(out * WHOLE)}
    assert moved.total == total * WHOLE


def test_a_root_sends_and_others_receive() -> None:
    everywhere = least_traffic(scenario_of(Pattern.BROADCAST, MESH, RANKS, 1024, 256, 256))
    one = least_traffic(scenario_of(Pattern.SEND_RECV, MESH, RANKS, 1024, 256, 256))

    assert everywhere is not None and one is not None
    assert (everywhere.into, everywhere.out) == ((0, WHOLE, WHOLE, WHOLE), (WHOLE, 0, 0, 0))
    assert (one.into, one.out, one.total) == ((0, WHOLE, 0, 0), (WHOLE, 0, 0, 0), WHOLE)
    assert everywhere.busiest_bytes == WHOLE


@pytest.mark.parametrize("pattern", [Pattern.GEMM, Pattern.KERNEL])
def test_kernels_move_nothing(pattern: Pattern) -> None:
    assert least_traffic(scenario_of(pattern, SWITCH, RANKS, 1024, 256, 256)) is None


def loads(scenario: OpCase) -> dict[str, LinkLoad]:
    """The largest load of each kind."""
    moved = least_traffic(scenario)
    assert moved is not None
    return {each.where: each for each in sorted(loads_of(scenario, moved), key=lambda load: load.num_bytes)}


def test_an_engine_asks_no_switch_for_sums() -> None:
    scenario = scenario_of(Pattern.ALL_REDUCE, SWITCH, RANKS, 1024, 256, 256)
    summed, added = least_traffic(scenario), least_traffic(scenario, can_sum=False)

    assert summed is not None and added is not None
    assert (summed.total, added.total) == (4 * WHOLE, 6 * WHOLE)
    assert (summed.issued, added.issued) == (WHOLE // 4 * 2, WHOLE // 4 * (3 + 1))


def test_blocks_of_an_all_to_all_take_each_link_of_their_way_around_a_ring() -> None:
    """To each neighbour 1 link and to the opposite rank 2: all to the right, or passed on half of them either way."""
    alone = scenario_of(Pattern.ALL_TO_ALL, RING, RANKS, 1024, 256, 256)
    (rate,) = {edge.bytes_per_s for edge in alone.network.edges}
    any_ways = loads(alone)["of all ways between ranks, passing others"]
    assert any_ways.num_bytes / any_ways.bytes_per_s == pytest.approx(WHOLE // 4 * (1 + 1) / rate)

    beside = loads(scenario_of(Pattern.A2A_GEMM, RING, RANKS, 1024, 256, 256))
    assert beside["around the ring to the left"].num_bytes == beside["around the ring to the right"].num_bytes // 3


def test_uneven_blocks_load_the_link_of_the_largest() -> None:
    text = "x = tensor bf16[1024, 256]; y = all_to_all(x, rows=[512, 64, 384, 64])"
    uneven = compile_text(f'use "amd/mi300x"\nsystem s {{ {MESH.format(ranks=4)} }}\nworkload one on s {{ {text} }}\n')

    assert loads(uneven.scenario().case)["from one rank to another"].num_bytes == 384 * 256 * 2


@pytest.mark.parametrize(
    ("pattern", "share"),
    [
        (Pattern.ALL_GATHER, Fraction(1, 2)),
        (Pattern.REDUCE_SCATTER, Fraction(1, 2)),
        (Pattern.ALL_REDUCE, Fraction(1)),
        (Pattern.BROADCAST, Fraction(1)),
    ],
)
def test_what_crosses_between_nodes(pattern: Pattern, share: Fraction) -> None:
    """Two nodes of two ranks, each with a link of the rail to its counterpart."""
    found = loads(scenario_of(pattern, SYSTEMS[3], RANKS, 1024, 256, 256))
    (cut,) = (load for where, load in found.items() if "ranks 0-1" in where or "ranks 2-3" in where)

    assert cut.where.startswith("into" if pattern is Pattern.REDUCE_SCATTER else "out of")
    assert (cut.num_bytes, cut.bytes_per_s) == (int(share * WHOLE), 2 * 46_500_000_000)


def test_a_sum_of_three_nodes_crosses_between_them_four_times() -> None:
    """Three nodes of two ranks, each rank with a NIC: a cut out of one node says less."""
    text = """use "nvidia/h100"
link nic { bandwidth 50 GB/s; achieved 45 GB/s; latency 1.5 us }
system s { gpus 6 x H100; fabric rails(nvswitch, link=nvlink, node=2, nic=nic) }
workload one on s { x = tensor bf16[960, 256]; y = all_reduce(x) }
"""
    found, whole = loads(compile_text(text).scenario().case), 960 * 256 * 2
    parts = found["between ranks 0-1; ranks 2-3; ranks 4-5"]
    (cut,) = (load for where, load in found.items() if where.startswith("out of ranks"))

    assert (parts.num_bytes, parts.bytes_per_s) == (4 * whole, 6 * 45_000_000_000)
    assert (cut.num_bytes, cut.bytes_per_s) == (whole, 2 * 45_000_000_000)


def test_the_narrow_cut_need_not_be_of_neighbours() -> None:
    """Two cliques whose ranks alternate, with one bridge."""
    cliques = "[[0, 2], [0, 4], [0, 6], [2, 4], [2, 6], [4, 6], [1, 3], [1, 5], [1, 7], [3, 5], [3, 7], [5, 7], [0, 1]]"
    system = f'use "amd/mi300x"\nsystem s {{ gpus 8 x MI300X; fabric edges(xgmi={cliques}) }}\n'
    text = f"{system}workload one on s {{ x = tensor bf16[256, 256] shard rows; xg = all_gather(x) }}\n"
    found = loads(compile_text(text).scenario().case)

    (cut,) = (load for where, load in found.items() if "ranks" in where and "all" not in where)
    assert cut.where in ("out of ranks 0, 2, 4, 6", "out of ranks 1, 3, 5, 7")
    assert cut.num_bytes == 4 * 256 * 256 * 2 // 8


@pytest.mark.parametrize(
    ("ranks", "text"), [((3,), "rank 3"), ((0, 1, 2), "ranks 0-2"), ((0, 2, 3, 7), "ranks 0, 2-3, 7")]
)
def test_ranks_are_named_by_ranges(ranks: tuple[int, ...], text: str) -> None:
    assert ranks_text(ranks) == text


def test_an_all_to_all_loads_the_rails_with_all_that_changes_node() -> None:
    """Each rail has the blocks that two ranks of a node send to one of the other."""
    found = loads(scenario_of(Pattern.ALL_TO_ALL, SYSTEMS[3], RANKS, 1024, 256, 256))

    assert found["of the busiest link"].num_bytes == WHOLE // 4 * 2


def test_ports_of_a_mesh_a_ring_and_a_star() -> None:
    mesh = scenario_of(Pattern.ALL_GATHER, MESH, RANKS, 1024, 256, 256).network
    ring = scenario_of(Pattern.ALL_GATHER, RING, RANKS, 1024, 256, 256).network
    ranks, fabric = UNEVEN["chain"]
    chain = lone_gather(256, 256, ranks=ranks, fabric=fabric).network

    assert set(mesh.bytes_per_s_into) == set(mesh.bytes_per_s_out) == {3 * 46_500_000_000}
    assert set(ring.bytes_per_s_into) == {2 * 46_500_000_000}
    assert [rate * 10 // G for rate in chain.bytes_per_s_into] == [465, 930, 930, 465]


@pytest.mark.parametrize("pattern", [Pattern.ALL_GATHER, Pattern.ALL_REDUCE])
def test_rates_too_large_for_a_flow_leave_a_bound_without_cuts(
    pattern: Pattern, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, fabric = UNEVEN["chain"]
    scenario = lone_gather(256, 256, ranks=ranks, fabric=fabric)
    scenario = replace(scenario, shape=replace(scenario.shape, pattern=pattern))
    rates = (2**62 - 1, 2**62 - 17, 2**62 - 19)  # of links side by side
    flows = Flows(ranks, [Edge(*edge.ends, "huge", rate, 0) for edge in scenario.network.edges for rate in rates])
    with pytest.raises(OverflowError):
        flows.cut_between(1, 2)

    monkeypatch.setattr(link_loads, "Flows", lambda *_, **__: flows)
    link_loads._narrowest_cut.cache_clear()
    link_loads._strongest_partition.cache_clear()
    moved = least_traffic(scenario)
    assert moved is not None and link_loads.narrow_cut(scenario) is None
    found = {load.where for load in loads_of(scenario, moved)}
    assert found == {"into a rank", "out of a rank", "into all ranks together"}
    link_loads._narrowest_cut.cache_clear()
    link_loads._strongest_partition.cache_clear()
