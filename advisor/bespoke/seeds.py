"""Shapes to begin a search from: batches that grow or shrink, with the own block first, last or in between."""

from collections.abc import Iterator

from ...compiler.templates.bespoke import Part, Parts
from .costs import shares

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
RATIOS = (1.0, 0.6, 1.7, 0.4, 2.5)
_SCALE = 1000


def shapes(whole: Part) -> tuple[Parts, ...]:
    """Every number of batches and ratio of one to the next, with each place of the own block."""
    found = [
        parts
        for count in COUNTS
        for ratio in (RATIOS if count > 1 else RATIOS[:1])
        for parts in _placed(whole, [round(_SCALE * ratio**index) for index in range(count)])
    ]
    return tuple(dict.fromkeys((*found, *_by_peer(whole))))


def _placed(whole: Part, weights: list[int]) -> Iterator[Parts]:
    remote = [shares(rows, weights) for rows in whole[1:]]
    nothing = [0] * len(weights)
    for own, others in (
        ([whole[0], *nothing], [[0, *rows] for rows in remote]),
        ([*nothing, whole[0]], [[*rows, 0] for rows in remote]),
        (shares(whole[0], weights), remote),
    ):
        yield tuple(part for part in zip(own, *others, strict=True) if any(part))


def _by_peer(whole: Part) -> Iterator[Parts]:
    """One block after the other, in the order of the peers and in that of their sizes, the own one at either end."""
    n = len(whole)
    for order in (range(1, n), range(n - 1, 0, -1), sorted(range(1, n), key=lambda peer: whole[peer])):
        for blocks in ((0, *order), (*order, 0)):
            yield tuple(tuple(whole[k] * (k == block) for k in range(n)) for block in blocks if whole[block])
