"""Where the bytes of a plan land, counted by themselves: no waits, no sums, no knowledge of how plans are checked."""

from collections import Counter
from collections.abc import Sequence

from magus.compiler.ir import Direction, Reach, Step, Transfer

Cell = tuple[int, int, int, int, int]
"""(rank it arrives at, rank whose bytes these are, block, row, column), all absolute."""


def landings(ranks: Sequence[Sequence[Step]]) -> Counter[Cell]:
    """How often each element arrives, of the steps of each absolute rank."""
    found: Counter[Cell] = Counter()
    for rank, steps in enumerate(ranks):
        for step in steps:
            if isinstance(step, Transfer):
                for source, at in _ends(rank, step, len(ranks)):
                    block = (rank + step.region.owner) % len(ranks)
                    rows, cols = step.region.rows, step.region.cols
                    for row in range(rows.start, rows.stop):
                        for col in range(cols.start, cols.stop):
                            found[at, source, block, row, col] += 1
    return found


def _ends(rank: int, step: Transfer, n: int) -> list[tuple[int, int]]:
    peer = (rank + step.peer) % n
    if step.reach is Reach.ALL:
        others = [other for other in range(n) if other != rank]
        return [(rank, other) for other in others] if step.direction is Direction.PUT else [(o, rank) for o in others]
    return [((rank + step.origin) % n, peer) if step.direction is Direction.PUT else (peer, rank)]
