"""Declaration of a template, writing of its plan, and steps that several templates share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ..codes import Code
from ..ir import (
    Pattern,
    PeerOrder,
    Reduction,
    Region,
    Rejection,
    Step,
    TileGroup,
    Transfer,
    checkpoint,
)
from ..text.vocabulary import CHUNKS_PER_RANK, MAX_STREAMS
from .template_input import TemplateInput as TemplateInput
from .template_input import put as put


class Cut(Enum):
    """The part of a tensor that a template divides into chunks."""

    SHARD = "whole shards"
    ROWS = "rows of each shard"
    COLUMNS = "the inner dimension or heads where a kernel follows, the output's columns where it comes first"


def _alike(problem: TemplateInput) -> int:
    return 1


Build = Callable[[TemplateInput], Iterator[Step]]
"""Writes the steps of a rank."""


def on_either_side(gather: Build, scatter: Build) -> Build:
    """Write with ``gather`` where the kernel takes what moves, and with ``scatter`` where it makes it."""
    return lambda problem: scatter(problem) if problem.pattern.produces else gather(problem)


@dataclass(frozen=True, slots=True)
class Template:
    """A named family of schedules.

    ``overlaps``: kernels run beside transfers, so that SMs used for copying are taken from them. ``min_pieces`` is the
    least number of chunks per shard that makes sense. ``build`` writes the steps of the rank of its input, which ranks
    repeat after a ``period``. A template that is not ``explored`` is built where a file names it, and left out of a
    search. ``default_algorithm`` is the usual collective algorithm.
    ``twins`` are pairs (algorithm, template): with that algorithm the plan is that of the other template.

    ``knobs`` are the words of the knobs that not every template has (``planning/knobs``). Where
    ``rows_from_all_ranks``, each kernel has the same rows of all ranks. With ``any_engine`` the steps are the same
    whether copy engines or SMs copy. ``words`` say what it does where the kernel follows the collective and where it
    comes first, with ``{parts}``, ``{rounds}``, ``{slices}`` and ``{algorithm}``; a template without them is named.
    """

    name: str
    cut: Cut
    overlaps: bool
    min_pieces: int
    patterns: tuple[Pattern, ...]
    build: Build
    default_streams: int = 1
    period: Callable[[TemplateInput], int] = _alike
    default_algorithm: str = ""
    default_pieces: int = CHUNKS_PER_RANK
    explored: bool = True
    knobs: tuple[str, ...] = ()
    rows_from_all_ranks: bool = False
    any_engine: bool = False
    twins: tuple[tuple[str, str], ...] = ()
    words: tuple[str, str] = ("", "")

    @property
    def cuts_shards(self) -> bool:
        """Whether the number of chunks is a choice."""
        return self.cut is not Cut.SHARD

    def has(self, knob: str) -> bool:
        """Whether the knob of this word is a choice, if it is one that not every template has."""
        return knob in self.knobs or (knob == "chunks" and self.cuts_shards)

    def write(self, problem: TemplateInput) -> tuple[tuple[Step, ...], tuple[tuple[Step, ...], ...]]:
        """``steps`` and ``by_rank`` of an OpPlan."""
        by_input = problem.order is PeerOrder.ABSOLUTE or bool(problem.loads)  # what ranks are told differs
        period = problem.num_ranks if by_input else self.period(problem)
        by_rank = tuple(self._steps(problem.of_rank(rank)) for rank in range(period))
        differ = len(set(by_rank)) > 1 if by_input else period > 1
        return by_rank[0], by_rank if differ else ()

    def _steps(self, problem: TemplateInput) -> tuple[Step, ...]:
        """Steps of one rank for the kernel, or for both, in streams that there are."""
        checkpoint()
        first = tuple(self.build(problem))
        return in_streams(first if problem.then is None else chained(first, tuple(self.build(problem.then))))


def in_streams(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The steps, those in a stream beyond the last one from the first on.

    That holds up nothing for ever: kernels are issued behind all that they wait for.
    """
    return tuple(
        step
        if isinstance(step, Transfer) or step.stream < MAX_STREAMS
        else replace(step, stream=step.stream % MAX_STREAMS)
        for step in steps
    )


OVERLAPPED_PATTERNS = tuple(pattern for pattern in Pattern if pattern.overlaps)


def reject_lists(message: str, hint: str) -> Rejection:
    """Why the lists of a choice, such as parts or trees, cannot be built."""
    return Rejection(Code.MGS514, message, hint)


def spread(
    problem: TemplateInput, stem: str, region: Region, after: str, lane: int | None = None
) -> Iterator[Transfer]:
    """For GEMM+AR, what ``after`` has summed of the own block to every peer; nothing for GEMM+RS."""
    if problem.pattern is Pattern.GEMM_AR:
        for peer in problem.served:
            yield put(f"{stem}_{peer}", region, peer, (after,), lane)


def summed(
    problem: TemplateInput, label: str, region: Region, after: tuple[str, ...], stream: int = 0, lane: int | None = None
) -> Iterator[Step]:
    """The sum of ``region`` of the own block where parts are summed, and what follows it; nothing for GEMM+A2A."""
    if problem.pattern.sums:
        yield Reduction(f"r{label}", region, problem.num_ranks, after, stream)
        yield from spread(problem, f"y{label}", region, f"r{label}", lane)


def dealt(steps: Iterable[Step], streams: int) -> Iterator[Step]:
    """The steps with their sums dealt to so many streams, from the one on that they are in."""
    turn = 0
    for step in steps:
        if isinstance(step, Reduction):
            step, turn = replace(step, stream=step.stream + turn % streams), turn + 1
        yield step


_SECOND = "then_"


def chained(first: Sequence[Step], second: Sequence[Step]) -> tuple[Step, ...]:
    """One plan of two kernels with a collective between them: ``first`` makes what moves, ``second`` takes it.

    What the first kernel makes moves as in the plan for it. The second kernel is cut as in the plan for it, and waits
    for the transfers that bring the same there: both plans cut what moves alike. What it takes of the own block it has
    from the first kernel. Its kernels run in streams of their own, behind all of the first where SMs are scarce
    (Syncopate, arXiv 2601.20595, has GEMM-A2A-GEMM as such a chain). Names of the second begin with ``then_``.
    """
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
    wanted = [replace(region, cols=step.k) for region in step.regions if region.owner == 0]
    for maker in makers:
        if any(one.meets(other) for one in maker.regions for other in wanted):
            yield maker.name
