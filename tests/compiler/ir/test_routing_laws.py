"""How many rows each expert gets, where experts lie, and to how many ranks a row goes."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import prod
from random import Random
from statistics import mean

import pytest

from magus.compiler.ir.operations.routing_laws import (
    MOST_SAMPLED,
    UNIFORM,
    RoutingLaw,
    placed,
    ranks_reached,
)

STEEP = RoutingLaw("power_law", Fraction(6, 5), 3)


def counted(*counts: int) -> RoutingLaw:
    return RoutingLaw("histogram", counts=counts)


SAMPLED = RoutingLaw("sampled", Fraction("1.9"), 3)


@pytest.mark.parametrize(
    "law", [UNIFORM, RoutingLaw("stride"), STEEP, RoutingLaw("power_law", Fraction(1), 5), SAMPLED]
)
@pytest.mark.parametrize("tokens", [1, 17, 400])
def test_every_row_goes_to_as_many_experts_once_each(law: RoutingLaw, tokens: int) -> None:
    rows = law.rows(64, tokens, 6)

    assert sum(rows) == 6 * tokens and min(rows) >= 0 and max(rows) <= tokens
    assert rows == law.rows(64, tokens, 6)


def test_rows_are_in_proportion_to_counts_as_far_as_there_are_rows() -> None:
    assert counted(1, 1, 2, 4).rows(4, 80, 1) == (10, 10, 20, 40)
    assert counted(0, 0, 1, 99).rows(4, 50, 2) == (17, 16, 17, 50)


@pytest.mark.parametrize(("ranks", "hot"), [(4, 1.4), (8, 1.8), (16, 2.5)])
def test_a_power_law_makes_one_rank_hot(ranks: int, hot: float) -> None:
    """256 experts, top 8, exponent 1.2: as drawn by the method of the collector, with another generator."""
    draws = [placed(RoutingLaw("power_law", Fraction(6, 5), seed), ranks, 256, 8, 4096) for seed in range(40)]

    assert mean(sum(each.rows) * ranks / (4096 * 8) for each in draws) == pytest.approx(hot, rel=0.1)


def test_experts_of_a_sampled_law_are_drawn_row_by_row() -> None:
    """The expert with most weight is in most rows, and one row has as many experts as it has copies."""
    rows = SAMPLED.rows(64, 400, 6)

    assert sorted(SAMPLED.rows(64, 1, 6)) == [0] * 58 + [1] * 6 and SAMPLED.rows(6, 7, 6) == (7,) * 6
    assert max(rows) > 4 * mean(rows) and rows != replace(SAMPLED, seed=4).rows(64, 400, 6)


def test_a_sampled_law_draws_with_chances_in_proportion_to_weights() -> None:
    """Of two experts drawn one after the other without repetition, with the weights that the law draws first."""
    draw = Random(3)
    weights = [(1 + draw.random() * (1024**-0.9 - 1)) ** (-1 / 0.9) for _ in range(3)]
    whole = sum(weights)
    first = [each / whole for each in weights]
    both = [own + sum(p * own / (1 - p) for p in first if p is not own) for own in first]

    assert SAMPLED.rows(3, 8000, 2) == pytest.approx([8000 * each for each in both], rel=0.02, abs=120)


def test_more_rows_than_are_drawn_have_the_same_shares() -> None:
    few, many = SAMPLED.rows(64, MOST_SAMPLED, 6), SAMPLED.rows(64, 4 * MOST_SAMPLED, 6)

    assert sum(many) == 24 * MOST_SAMPLED and many == pytest.approx([4 * each for each in few], abs=8)


def test_even_counts_reach_as_many_ranks_as_uniform_ones() -> None:
    assert placed(counted(*[1] * 32), 8, 32, 4, 512).reached == pytest.approx(ranks_reached(8, 32, 4), abs=1e-5)
    assert placed(RoutingLaw("stride"), 8, 32, 4, 512).reached == 4


def test_ranks_that_rows_reach_are_those_of_all_draws() -> None:
    """Each two of 6 experts are drawn in proportion to the product of their odds."""
    counts = (10, 40, 30, 20, 60, 40)
    odds = [each / (100 - each) for each in counts]
    weight = {pair: prod(odds[each] for each in pair) for pair in combinations(range(6), 2)}
    hit = sum(each for pair, each in weight.items() if {4, 5} & set(pair)) / sum(weight.values())
    found = placed(counted(*counts), 3, 6, 2, 100)

    assert found.rows == (60, 40)
    assert found.reach == pytest.approx(hit, abs=1e-5)
    assert found.reach < found.reached < 2


def test_replicas_and_places_cool_the_hottest_rank() -> None:
    in_order, greedy, more = (
        placed(STEEP, 8, 64, 6, 2000, replicas, greedy) for replicas, greedy in ((0, False), (0, True), (8, True))
    )
    hot = [sum(each.rows) for each in (in_order, greedy, more)]

    assert hot[0] > hot[1] >= hot[2] >= 6 * 2000 / 8
    assert [len(each.rows) for each in (in_order, greedy, more)] == [8, 8, 9]
    assert placed(counted(1, 1, 1, 9), 2, 4, 1, 120, 2, True).rows == (30, 30, 10)
