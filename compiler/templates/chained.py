"""Plans for two kernels with a collective between them, from a plan for each kernel and the collective.

What the first kernel makes moves as in the plan for it. The second kernel is cut as in the plan for it, and waits for
the transfers that bring the same there: both plans cut what moves alike. What it takes of the own block it has from the
first kernel. Its kernels run in streams of their own, behind all of the first where SMs are scarce (Syncopate,
arXiv 2601.20595, has GEMM-A2A-GEMM as such a chain).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..ir import Rect, Step, TileGroup, Transfer

_SECOND = "then_"


def chained(first: Sequence[Step], second: Sequence[Step]) -> tuple[Step, ...]:
    """One plan of both: ``first`` makes what moves, ``second`` takes it. Names of the latter begin with ``then_``."""
    makers = [step for step in first if isinstance(step, TileGroup)]
    streams = 1 + max((step.stream for step in makers), default=0)
    delivered = _delivered(first, second)
    steps = list(first)
    for step in second:
        if isinstance(step, TileGroup):
            arrived = (name for each in step.after for name in delivered.get(each, (_SECOND + each,)))
            after = tuple(dict.fromkeys((*_own(makers, step), *arrived)))
            steps.append(replace(step, name=_SECOND + step.name, after=after, stream=streams + step.stream, kernel=1))
    return tuple(steps)


def _delivered(first: Iterable[Step], second: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    """Names in ``first`` by signal and transfer name in ``second``: those of the transfers of the same data."""
    made = {(step.peer, step.region): step for step in first if isinstance(step, Transfer)}
    found: dict[str, tuple[str, ...]] = {}
    for step in second:
        if isinstance(step, Transfer):
            same = made[step.peer, step.region]
            found |= {step.signal: (same.signal,), step.name: (same.name,)}
    return found


def _own(makers: Iterable[TileGroup], step: TileGroup) -> Iterator[str]:
    """The kernels that make what ``step`` takes of the own block."""
    wanted = [Rect.of(replace(region, cols=step.k)) for region in step.regions if region.owner == 0]
    for maker in makers:
        here = [Rect.of(region) for region in maker.regions if region.owner == 0]
        if any(one.clip(other) is not None for one in here for other in wanted):
            yield maker.name
