"""How many rows each expert gets: evenly, by a power law, sampled, or as counted; where experts lie, the hottest rank.

Every rank is taken as the hottest, for which the others wait. A power law draws weights of experts between 1 and 0.8 of
all rows, or between 0.01 and 2 where fewer rows than experts are sent, as the collector of aiconfigurator does
(``power_law_logits_v3``); no expert gets more than all rows, and what is over goes to those with least. Such counts
are rounded weights, unlike those of few rows; a sampled law draws the experts of each row, one after the other and
none twice, with chances by weights between 1 and 1024 (``sampled_power_law_logits`` of that collector). Replicas and
their places are those of DeepSeek's EPLB: each goes to the expert with most rows a copy, and copies, the largest first,
to the rank with least rows that has room; a copy has an equal part of the rows.

To how many ranks a row goes follows from the rows of experts alone: of all ways to draw ``top`` of them without order
or repetition, each counts as the product of its experts' odds (conditional Poisson sampling; Hajek, 1964).
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import ceil, comb
from random import Random

EVEN_LAWS = ("uniform", "stride")
DRAWN_LAWS = ("power_law", "sampled")

MOST_WEIGHT = 1024.0
"""Of an expert of a sampled law; the least is 1."""

MOST_SAMPLED = 8192
"""Rows whose experts are drawn; of more rows each expert has the share that it has of these."""


@dataclass(frozen=True, slots=True)
class RoutingLaw:
    """``uniform``, ``stride``; ``loads``, ``histogram`` of ``counts``; ``power_law``, ``sampled`` with an ``exponent``.

    The last two are drawn with ``seed``, the first of so many ``draws`` that an answer covers. A stride sends a row to
    as many ranks as there can be, as tables of measured times that say balanced do. The counts of loads are rows of
    experts, those of a histogram shares.
    """

    name: str = "uniform"
    exponent: Fraction = Fraction(0)
    seed: int = 0
    counts: tuple[int, ...] = ()
    draws: int = 1

    def rows(self, experts: int, tokens: int, top: int) -> tuple[int, ...]:
        """The rows of each expert, ``tokens * top`` together."""
        if self.name in EVEN_LAWS:
            return evenly(tokens * top, experts)
        if self.name == "sampled":
            counts = _sampled(self.exponent, self.seed, experts, min(tokens, MOST_SAMPLED), top)
            return counts if tokens <= MOST_SAMPLED else _shared(list(map(float, counts)), tokens, top)
        if self.name == "power_law":
            low, high = (1.0, tokens * 0.8) if tokens * top > experts else (0.01, 2.0)
            draw = Random(self.seed)
            weights = [_power(draw.random(), low, high, float(self.exponent)) for _ in range(experts)]
        else:
            weights = list(map(float, self.counts))
        return _shared(weights, tokens, top)


UNIFORM = RoutingLaw()


SPREAD = (5**0.5 - 1) / 2
"""Multiples of the golden ratio, without what is whole, lie evenly between 0 and 1."""


def evenly(rows: int, parts: int) -> tuple[int, ...]:
    """``rows`` in ``parts`` that differ by one at most, the larger first."""
    least, more = divmod(rows, parts)
    return tuple(least + (part < more) for part in range(parts))


def _power(u: float, low: float, high: float, exponent: float) -> float:
    """The value that a share ``u`` of all is below."""
    power = 1 - exponent
    if not power:
        return float(low * (high / low) ** u)
    return float(((high**power - low**power) * u + low**power) ** (1 / power))


@lru_cache(maxsize=256)
def _sampled(exponent: Fraction, seed: int, experts: int, tokens: int, top: int) -> tuple[int, ...]:
    """The rows of each expert if every row draws ``top`` of them, in proportion to weights of a power law."""
    draw, every, rows = Random(seed), range(experts), [0] * experts
    weights = [_power(draw.random(), 1.0, MOST_WEIGHT, float(exponent)) for _ in every]
    upto = list(accumulate(weights))
    for _ in range(tokens):
        taken: set[int] = set()
        while len(taken) < top:
            (expert,) = draw.choices(every, cum_weights=upto)
            if expert in taken:  # another than these, with the chances that the rest has
                left = [0.0 if each in taken else weight for each, weight in enumerate(weights)]
                (expert,) = draw.choices(every, left)
            taken.add(expert)
            rows[expert] += 1
    return tuple(rows)


def _shared(weights: list[float], tokens: int, top: int) -> tuple[int, ...]:
    """``tokens * top`` rows in proportion to ``weights``, to the nearest and at most ``tokens`` each.

    What is over goes to those with least, and what is missing is taken from those with most, of equal ones here and
    there: so that no rank has all of it.
    """
    total, whole = tokens * top, sum(weights)
    rows = [min(tokens, round(total * weight / whole)) for weight in weights]
    while over := total - sum(rows):
        sign = 1 if over > 0 else -1
        able = (expert for expert, each in enumerate(rows) if (each < tokens if over > 0 else each))
        chosen = sorted(able, key=lambda each: (sign * rows[each], each * SPREAD % 1))
        for expert, more in zip(chosen, evenly(abs(over), len(chosen)), strict=True):
            rows[expert] = max(0, min(tokens, rows[expert] + sign * more))
    return tuple(rows)


def ranks_reached(num_ranks: int, experts: int, top: int, taken: int | None = None) -> Fraction:
    """To how many ranks a row goes on average, of which each has as many experts, if all experts are as likely.

    With ``taken`` only so many experts of each rank count.

    >>> float(ranks_reached(8, 256, 8)), float(ranks_reached(8, 8, 8)), float(ranks_reached(64, 256, 1))
    (5.29465200038248, 8.0, 1.0)
    >>> float(ranks_reached(8, 256, 8, taken=1))
    0.25
    """
    counted = experts // num_ranks if taken is None else taken
    return num_ranks * (1 - Fraction(comb(experts - counted, top), comb(experts, top)))


@dataclass(frozen=True, slots=True)
class HottestRank:
    """Rows of each expert of the hottest rank, and to how many ranks a row goes: to it (0 to 1), and to all."""

    rows: tuple[int, ...]
    reach: Fraction
    reached: Fraction


@lru_cache(maxsize=256)
def placed(
    law: RoutingLaw,
    ranks: int,
    experts: int,
    top: int,
    tokens: int,
    replicas: int = 0,
    greedy: bool = False,
    group: tuple[int, int] | None = None,
) -> HottestRank:
    """The hottest of ``ranks``, which have ``experts + replicas`` in equal numbers, for ``tokens`` rows in all.

    Replicas are placed greedily. ``tokens`` need not be a multiple of the ranks: of an even law a rank has the mean.
    Of a ``group`` only the experts from its first on count, so many of each rank; the hottest is that of all experts.
    """
    first, taken = group or (0, (experts + replicas) // ranks)
    # Strides lie as far apart as can be: two experts of a row are in one group only where it is wider.
    strided = min(Fraction(min(top, ranks), ranks), Fraction(top * taken, experts + replicas))
    if law.name in EVEN_LAWS and not replicas:
        rows = evenly(ceil(Fraction(tokens * top, ranks)), experts // ranks)[first : first + taken]
        reached = ranks_reached(ranks, experts, top, taken) if law.name == "uniform" else ranks * strided
        return HottestRank(rows, reached / ranks, reached)
    by_rank = rows_by_rank(law, ranks, experts, top, tokens, replicas, greedy)
    slots, parts = [rows for each in by_rank for rows in each], [each[first : first + taken] for each in by_rank]
    if law.name == "stride":
        reach = [strided] * ranks
    else:
        ways = _ways(slots, tokens, top)
        reach = [1 - Fraction(_ways(_without(slots, each), tokens, top) / ways) for each in parts]
    hottest = max(range(ranks), key=lambda rank: sum(by_rank[rank]))
    of_hottest, of_all = (each.limit_denominator(10**6) for each in (reach[hottest], sum(reach, Fraction(0))))
    return HottestRank(tuple(parts[hottest]), of_hottest, of_all)


@lru_cache(maxsize=256)
def rows_by_rank(
    law: RoutingLaw, ranks: int, experts: int, top: int, tokens: int, replicas: int = 0, greedy: bool = False
) -> tuple[tuple[int, ...], ...]:
    """The rows of each expert of each rank; arguments as of ``placed``."""
    slots = _replicated(law.rows(experts, tokens, top), replicas)
    if greedy or replicas:
        return tuple(_packed(slots, ranks))
    size = len(slots) // ranks
    return tuple(tuple(slots[rank * size : (rank + 1) * size]) for rank in range(ranks))


def _replicated(rows: tuple[int, ...], replicas: int) -> list[int]:
    """The rows of each copy of each expert, with so many more copies than experts."""
    copies = [1] * len(rows)
    for _ in range(replicas):
        copies[max(range(len(rows)), key=lambda each: Fraction(rows[each], copies[each]))] += 1
    return [part for count, num in zip(rows, copies, strict=True) for part in evenly(count, num)]


def _packed(slots: list[int], ranks: int) -> list[tuple[int, ...]]:
    """Equal numbers of slots on each rank, the largest first to the rank with least rows that has room."""
    found: list[list[int]] = [[] for _ in range(ranks)]
    for rows in sorted(slots, reverse=True):
        min((each for each in found if len(each) < len(slots) // ranks), key=sum).append(rows)
    return [tuple(each) for each in found]


MOST_LIKELY = 0.999
"""An expert that takes all rows has no odds; this is the largest share that has."""


def _without(slots: list[int], own: tuple[int, ...]) -> list[int]:
    """Slots of other ranks."""
    others = list(slots)
    for rows in own:
        others.remove(rows)
    return others


def _ways(slots: list[int], tokens: int, top: int) -> float:
    """The products of odds, added over all ways to draw ``top`` of the slots."""
    total = [1.0] + [0.0] * top
    for rows in slots:
        share = min(MOST_LIKELY, rows / tokens)
        odds = share / (1 - share)
        for drawn in range(top, 0, -1):
            total[drawn] += odds * total[drawn - 1]
    return total[top]
