"""The outline that says what a template does: where one begins who wants to change a part of it."""

from dataclasses import replace
from itertools import accumulate

from magus.compiler.ir import OpChoice, Pattern
from magus.compiler.outline.outline import ANY_ORDER, By, Grouping, Ordering, Outline, Split, SplitAxis, Sums
from magus.compiler.templates import BY_NAME, Cut
from magus.compiler.templates.collective import DEFAULT_ALGORITHM, usual_algorithm

_TOGETHER = Grouping(own_alone=False)


def outline_of(choice: OpChoice, num_ranks: int, pattern: Pattern) -> Outline | None:
    """The outline of ``choice``, which is legal for ``pattern``; None where no outline says the same."""
    if choice.waves > 1 or choice.sums > 1:
        return None
    template = BY_NAME[choice.template]
    rows = Split(SplitAxis.ROWS, choice.chunks // num_ranks) if template.cut is not Cut.SHARD else Split()
    algorithm = choice.algorithm or usual_algorithm(pattern, template.default_algorithm or DEFAULT_ALGORITHM)
    said = Outline(
        choice.engine,
        rows if rows.parts > 1 else Split(),
        choice.tactics,
        "" if algorithm == DEFAULT_ALGORITHM else algorithm,
        depth=choice.depth,
        ordering=Ordering(order=choice.order),
    )
    if not pattern.overlaps:
        return said if pattern not in (Pattern.GEMM, Pattern.KERNEL) else None
    return _overlapped(choice, said, Sums.BEHIND if pattern.sums else Sums.PARALLEL)


def _overlapped(choice: OpChoice, said: Outline, behind: Sums) -> Outline | None:
    match choice.template:
        case "serial":
            return replace(said, grouping=Grouping(False, By.TOGETHER), sums=behind)
        case "shard_p2p":
            return replace(said, grouping=Grouping(True, By.PEER), one_at_a_time=True, sums=behind)
        case "uniform_fused_1d":
            return replace(said, grouping=_TOGETHER)
        case "hetero_fused_1d":
            return said
        case "hetero_unfused_1d":
            return replace(said, grouping=Grouping(True, By.BLOCK), streams=choice.streams)
        case "uniform_fused_2d":
            return replace(said, split=replace(said.split, axis=SplitAxis.COLS), grouping=_TOGETHER)
        case "pipelined":
            # Ranks of a tree have no place for their own block that would be the last.
            alone = said.algorithm not in ("double_tree", *ANY_ORDER[1:])
            return replace(said, grouping=Grouping(alone, By.HOP))
        case "bespoke":
            return _bespoke(choice, said)
        case _:
            return None


def _bespoke(choice: OpChoice, said: Outline) -> Outline | None:
    """Parts that are the same for all peers, of which each has something to move, and that are not cut further."""
    if not choice.parts or choice.slices or choice.columns:
        return None
    if any(len(part) != 2 or not part[1] for part in choice.parts):
        return None
    own, others = zip(*choice.parts, strict=True)
    *cuts, total = accumulate(others)
    split = Split(SplitAxis.ROWS, len(others), tuple(cuts), total)
    return replace(said, split=split, own=own, grouping=_TOGETHER, lanes=choice.lanes, streams=choice.streams)
