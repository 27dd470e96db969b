"""Hops before and behind the steps of small plans, worked out by hand."""

from magus.compiler.ir import Direction, IndexRange, Reach, Reduction, Region, Step, Transfer
from magus.compiler.templates.pipelined import Hops

WHOLE = Region(0, IndexRange(0, 1), IndexRange(0, 1))


def put(name: str, peer: int, *after: str) -> Transfer:
    return Transfer(name, Direction.PUT, WHOLE, peer, f"s_{name}", after)


def test_a_chain_round_a_ring() -> None:
    """One rank stands for all; a sum is no hop, and what it waits for beside is as far from the end as it is."""
    steps = (put("a", 1, "made"), Reduction("r", WHOLE, 2, ("own", "s_a")), put("b", 1, "r"))
    hops = Hops([steps], 4, 0)

    assert [hops.before(0, name) for name in ("a", "s_a", "r", "b", "s_b")] == [1, 1, 1, 2, 2]
    assert [hops.behind(0, name) for name in ("made", "a", "r", "own", "b")] == [2, 2, 1, 1, 1]
    assert hops.before(3, "b") == 2 and hops.behind(3, "made") == 2
    assert hops.behind(0, "what nobody waits for") == 0


def test_the_longest_way_counts() -> None:
    steps = (put("a", 1), put("b", 2), put("c", 1, "s_a"), Reduction("r", WHOLE, 3, ("s_b", "s_c")))
    hops = Hops([steps], 4, 0)

    assert (hops.before(0, "r"), hops.before(0, "s_b")) == (2, 1)
    assert (hops.behind(0, "a"), hops.behind(0, "b"), hops.behind(0, "r")) == (2, 1, 0)


def test_a_hop_to_another_node_counts_as_many_as_a_node_has_ranks() -> None:
    """Ranks 0 and 1, 2 and 3: rank 1 passes on to 2 what it has from 0."""
    ranks: list[tuple[Step, ...]] = [(put("a", 1),), (put("b", 1, "s_a"),), (put("c", 1, "s_b"),), ()]
    hops = Hops(ranks, 4, 2)

    assert [hops.before(1, "s_a"), hops.before(2, "s_b"), hops.before(3, "s_c")] == [1, 3, 4]
    assert [hops.behind(0, "a"), hops.behind(1, "b"), hops.behind(2, "c")] == [4, 3, 1]
    alike = Hops([(put("a", 1),)], 4, 2)
    assert alike.before(0, "s_a") == 1  # where all are alike no rank is at the edge of its node


def test_gets_land_at_home_and_puts_to_all_everywhere() -> None:
    get = Transfer("g", Direction.GET, WHOLE, 3, "s_g")
    to_all = Transfer("t", Direction.PUT, WHOLE, 0, "s_t", ("s_g",), reach=Reach.ALL)
    ranks: list[tuple[Step, ...]] = [(get, to_all), (), (put("x", 1, "s_t"),), ()]
    hops = Hops(ranks, 4, 0)

    assert hops.before(0, "s_g") == 1
    assert [hops.before(rank, "s_t") for rank in range(4)] == [2, 2, 2, 2]
    assert hops.before(3, "s_x") == 3 and hops.behind(0, "g") == 3
