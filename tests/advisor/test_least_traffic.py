"""What must move, in figures, and through which ports."""

from fractions import Fraction

import pytest

from magus.advisor.least_traffic import least_traffic, ports_of, ring_bytes
from magus.compiler.scenario import Pattern
from tests.advisor.drawing import SYSTEMS, scenario_of
from tests.fabrics import UNEVEN
from tests.scenarios import G, lone_gather

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
        (Pattern.ALL_REDUCE, SWITCH, Fraction(1), Fraction(1), 4),
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


def test_blocks_of_an_all_to_all_take_each_link_of_their_way_around_a_ring() -> None:
    """To the right neighbour 1 link, to the opposite rank 2, to the left neighbour 1: a quarter of the tensor each."""
    assert ring_bytes(scenario_of(Pattern.ALL_TO_ALL, RING, RANKS, 1024, 256, 256)) == WHOLE // 4 * (1 + 2 + 1)


def test_ports_of_a_mesh_a_ring_and_a_star() -> None:
    mesh = ports_of(scenario_of(Pattern.ALL_GATHER, MESH, RANKS, 1024, 256, 256))
    ring = ports_of(scenario_of(Pattern.ALL_GATHER, RING, RANKS, 1024, 256, 256))
    ranks, fabric = UNEVEN["chain"]
    chain = ports_of(lone_gather(256, 256, ranks=ranks, fabric=fabric))

    assert set(mesh.into) == set(mesh.out) == {3 * 46_500_000_000}
    assert set(ring.into) == {2 * 46_500_000_000}
    assert [rate * 10 // G for rate in chain.into] == [465, 930, 930, 465]
