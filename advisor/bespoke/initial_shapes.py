"""Initial shapes of a search: batches that grow or shrink, with the own block first, last or spread over them."""

from collections.abc import Iterator

from ...compiler.ir import Scenario
from ...compiler.templates.bespoke import Part
from .batches import Batches, Lengths, RowBatch, lengths_of, only_own, whole_batches
from .costs import shares, whole_rows

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
RATIOS = (1.0, 0.6, 1.7, 0.4, 2.5)
_SCALE = 1000


def shapes(scenario: Scenario) -> tuple[Batches, ...]:
    """Return batches for every count, ratio of one batch to the next, kind of cut and place of the own block."""
    whole, lengths = whole_rows(scenario), lengths_of(scenario)
    shaped = [
        batches
        for count in COUNTS
        for ratio in (RATIOS if count > 1 else RATIOS[:1])
        for weights in ([round(_SCALE * ratio**index) for index in range(count)],)
        for batches in (*_placed(whole, weights), *_cut(whole, weights, lengths))
    ]
    return tuple(dict.fromkeys((*shaped, *_by_peer(whole))))


def _placed(whole: Part, weights: list[int]) -> Iterator[Batches]:
    remote = [shares(rows, weights) for rows in whole[1:]]
    nothing = [0] * len(weights)
    for own, others in (
        ([whole[0], *nothing], [[0, *rows] for rows in remote]),
        ([*nothing, whole[0]], [[*rows, 0] for rows in remote]),
        (shares(whole[0], weights), remote),
    ):
        yield whole_batches(zip(own, *others, strict=True))


def _cut(whole: Part, weights: list[int], lengths: Lengths) -> Iterator[Batches]:
    """Yield all rows, or all remote rows, in slices of the inner dimension, or in bands if kernels precede copies.

    An own block in a batch of its own fills the time in which no remote rows can be computed.
    """
    sizes = tuple(filter(None, shares(lengths.cut, weights, lengths.step)))
    if len(sizes) < 2:
        return
    yield (lengths.batch(whole, sizes),)
    if whole[0]:
        own, others = RowBatch(only_own(whole[0], len(whole))), lengths.batch((0, *whole[1:]), sizes)
        yield (others, own) if lengths.produces else (own, others)


def _by_peer(whole: Part) -> Iterator[Batches]:
    """Yield one batch for each block, ordered by peer or by size, with the own block at either end."""
    n = len(whole)
    for order in (range(1, n), range(n - 1, 0, -1), sorted(range(1, n), key=lambda peer: whole[peer])):
        for blocks in ((0, *order), (*order, 0)):
            yield whole_batches(tuple(whole[k] * (k == block) for k in range(n)) for block in blocks)
