"""Check that an outline fits a workload; each rejection names the statement at fault and has a hint."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..codes import Code
from ..collectives import ALGORITHM_BY_NAME
from ..ir import Adds, EngineKind, Kernels, Rejection
from ..templates.base import TemplateInput
from ..templates.collective import DEFAULT_ALGORITHM, collective_in, fitting_algorithms, reject_algorithm
from .outline import ANY_ORDER, Grouping, Outline, SplitAxis, Sums
from .steps import kernels, num_different, row_per_piece

MAX_TRANSFERS = 1 << 20
_ONE_AFTER_ANOTHER = "persistent kernels of several streams run one after the other"


@dataclass(frozen=True, slots=True)
class OutlineRejection(Rejection):
    """Why an outline is no plan; ``statement`` is the word of the statement at fault, empty for the whole outline."""

    statement: str = ""


def outline_rejections(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    """Return every reason why ``outline`` is no plan for ``problem``."""
    if collective_in(problem.pattern) is None:
        yield OutlineRejection(Code.MGS511, "nothing moves here that could be split", "serial schedules this")
        return
    if problem.loads:
        message = "an outline is the same for every rank, and here blocks differ"
        yield OutlineRejection(
            Code.MGS515, message, "hetero_fused_1d and pipelined cut what each rank has, so may rank 0 { }"
        )
        return
    if problem.then is not None:
        # A rejection that both kernels share is reported once.
        first, then = (
            outline_rejections(outline, replace(problem, then=None)),
            outline_rejections(outline, problem.then),
        )
        yield from dict.fromkeys((*first, *then))
        return
    rejected = False
    for check in _CHECKS:
        for rejection in check(outline, problem):
            rejected = True
            yield rejection
        # The other checks need valid pieces.
        if rejected and check in (_reject_split, _reject_own):
            return


def _reject_split(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    split = outline.split
    if split.axis is SplitAxis.ROWS:
        yield from _reject_rows(outline, problem)
    elif split.axis is SplitAxis.COLS:
        if problem.pattern.consumes and problem.inner != problem.cols:
            message = f"the {problem.cols} columns that move are not the inner dimension of what computes with them"
            yield OutlineRejection(Code.MGS512, message, "split rows", "split")
            return
        yield from _reject_sizes(outline, problem.cols, problem.cutting.column_step)


def _reject_own(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    """Reject rows of the own shard that do not match the pieces of other shards."""
    own, rows = outline.own, problem.gathered(0).rows.size if problem.pattern.overlaps else 0
    if not own:
        return
    if not problem.pattern.overlaps:
        yield OutlineRejection(Code.MGS511, "nothing is computed with the own shard here", "leave it out", "split own")
    elif problem.cutting.adds is Adds.BLOCKS:
        message = "a kernel takes the same rows of all blocks side by side"
        yield OutlineRejection(Code.MGS513, message, "leave it out", "split own")
    elif outline.split.axis is not SplitAxis.ROWS or outline.grouping.own_alone:
        message = "own rows go with pieces of rows of the others, in their kernels"
        yield OutlineRejection(Code.MGS513, message, "split rows too, and group own together", "split own")
    elif len(own) != outline.split.parts:
        message = f"own rows are listed for {len(own)} pieces, and there are {outline.split.parts}"
        yield OutlineRejection(Code.MGS512, message, "one number for each piece, 0 for none", "split own")
    elif sum(own) != rows:
        message = f"{sum(own)} own rows are listed, and there are {rows}"
        yield OutlineRejection(Code.MGS512, message, "together they are all rows", "split own")


def _reject_rows(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    split = outline.split
    if not problem.split:
        yield from _reject_sizes(outline, problem.shard_rows, 1)
    elif split.cuts:
        message = "blocks of this all_to_all differ in size, and one cut does not suit all of them"
        yield OutlineRejection(Code.MGS512, message, f"split rows into {split.parts}", "split")
    elif split.parts > (least := min(rows for rows in problem.split if rows)):
        message = f"a block of {least} rows does not divide into {split.parts} pieces"
        yield OutlineRejection(Code.MGS512, message, f"split rows into {least} or fewer", "split")


def _reject_sizes(outline: Outline, size: int, step: int) -> Iterator[OutlineRejection]:
    """Reject pieces that do not add up to ``size`` rows or columns, or are no multiples of ``step``."""
    split = outline.split
    unit = "rows of a shard" if split.axis is SplitAxis.ROWS else "columns"
    if split.total and split.total != size:
        message = f"the pieces have {split.total} {unit}, and there are {size}"
        last = size - split.cuts[-1] if split.cuts else size
        hint = f"{', '.join(map(str, (*split.sizes[:-1], last)))} would do" if last > 0 else "sizes add up to all"
        yield OutlineRejection(Code.MGS512, message, hint, "split")
    elif split.cuts and split.cuts[-1] >= size:
        yield OutlineRejection(
            Code.MGS512, f"a cut at {split.cuts[-1]} lies outside the {size} {unit}", f"below {size}", "split"
        )
    elif not split.cuts and size % (split.parts * step):
        grain = f" of a multiple of {step}" if step > 1 else ""
        message = f"{size} {unit} do not divide into {split.parts} equal pieces{grain}"
        yield OutlineRejection(Code.MGS512, message, _near_equal(split.axis, size, split.parts, step), "split")
    elif off := [piece for piece in range(split.parts) if split.span(piece, size).size % step]:
        message = f"piece {off[0]} has {split.span(off[0], size).size} {unit}, no multiple of {step}"
        yield OutlineRejection(Code.MGS512, message, f"columns are cut at multiples of {step}", "split")


def _near_equal(axis: SplitAxis, size: int, parts: int, step: int) -> str:
    """Suggest sizes that add up, as equal as possible."""
    grains, rest = size // step, size % step
    if rest:
        return "split rows"
    if grains < parts:
        return f"split {axis.value} into {grains} or fewer"
    edges = [piece * grains // parts * step for piece in range(parts + 1)]
    if parts > 8:
        return f"unequal ones would do: split {axis.value} at {edges[1]}, {edges[2]}, ..."
    return f"unequal ones would do: split {axis.value} at {', '.join(map(str, edges[1:-1]))}"


def _reject_move(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    per_piece = row_per_piece(outline, problem)
    unfit = reject_algorithm(per_piece)
    if unfit is not None:
        algorithm = ALGORITHM_BY_NAME[outline.algorithm or DEFAULT_ALGORITHM]
        adds = collective_in(problem.pattern) in algorithm.by_sms and problem.engine is EngineKind.DMA
        fits = fitting_algorithms(per_piece)
        hint = "move by sm(16)" if adds else f"{', '.join(fits)} would do" if fits else "move put"
        yield OutlineRejection(Code.MGS403 if adds else Code.MGS511, unfit.message, hint, "move")
    transfers = outline.split.parts * (problem.num_ranks - 1) * num_different(outline, problem)
    if unfit is None and transfers > MAX_TRANSFERS:
        message = f"{outline.split.parts} pieces on {problem.num_ranks} ranks are {transfers:,} transfers to write out"
        yield OutlineRejection(Code.MGS406, message, f"fewer pieces: at most {MAX_TRANSFERS:,} transfers", "split")
    yield from _reject_lanes(outline)
    if outline.depth:
        yield from _reject_depth(outline, problem)


def _reject_lanes(outline: Outline) -> Iterator[OutlineRejection]:
    if (outline.one_at_a_time or outline.lanes) and outline.algorithm not in ANY_ORDER:
        message = f"{outline.algorithm} passes on what comes from others, whose transfers have an order of their own"
        yield OutlineRejection(Code.MGS513, message, "move direct, or leave the order to the engines", "move")
    if outline.one_at_a_time and outline.lanes:
        message = "one at a time is one lane"
        yield OutlineRejection(Code.MGS513, message, f"lanes {outline.lanes}, or one at a time", "move")
    if outline.lanes > outline.engine.count:
        message = f"{outline.lanes} lanes are more than the engines: {outline.engine}"
        yield OutlineRejection(Code.MGS401, message, f"lanes {outline.engine.count}, a lane is an engine", "move")


def _reject_depth(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    if not problem.pattern.consumes:
        yield OutlineRejection(
            Code.MGS513, "nothing is held here that is gathered for a kernel", "leave depth out", "move"
        )
    elif not problem.gets:
        message = "a put cannot wait until the buffer at its destination is free"
        yield OutlineRejection(Code.MGS513, message, "move get", "move")
    elif _one_after_another(outline):
        yield OutlineRejection(Code.MGS513, f"{_ONE_AFTER_ANOTHER}, and the first waits for all", "streams 1", "move")
    elif (most := _most_at_once(outline, problem)) > outline.depth:
        message = f"a kernel takes {most} pieces at once, more than the depth of {outline.depth}"
        yield OutlineRejection(Code.MGS513, message, "group by piece, or by block", "move")
    elif (outline.one_at_a_time or outline.lanes) and outline.ordering.peers_outermost:
        message = "a piece that waits for a kernel would hold up those that the kernel waits for"
        yield OutlineRejection(Code.MGS513, message, "order by piece, or leave depth out", "move")


def _most_at_once(outline: Outline, problem: TemplateInput) -> int:
    """Return the longest run of moved pieces, from the first to the last that one kernel takes."""
    place = {piece: index for index, piece in enumerate(outline.piece_order)}
    taken = [
        [place.get(piece, 0) for piece in range(kernel.first, kernel.last + 1)]
        for kernel in kernels(outline, problem)
        if kernel.owners != (0,)
    ]
    return max((max(places) - min(places) + 1 for places in taken), default=0)


def _reject_kernels(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    """Reject statements about kernels where kernels and transfers do not depend on each other."""
    behind = outline.sums is Sums.BEHIND
    if not problem.pattern.overlaps:
        unusual_by_word = {"group": outline.grouping != Grouping(), "streams": outline.streams > 1, "sums": behind}
        for statement in (word for word, unusual in unusual_by_word.items() if unusual):
            message = "no kernel waits for a transfer here, or the other way round"
            yield OutlineRejection(Code.MGS511, message, "split, move and order are all that this needs", statement)
    elif behind and not problem.pattern.sums:
        yield OutlineRejection(Code.MGS511, "nothing is summed here", "leave sums out", "sums")


def _reject_streams(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    """Reject streams for slices of one sum, which run one after the other."""
    if not _one_after_another(outline) or outline.split.axis is not SplitAxis.COLS or not problem.pattern.consumes:
        return
    if any(kernel.last - kernel.first + 1 < outline.split.parts for kernel in kernels(outline, problem)):
        message = f"{_ONE_AFTER_ANOTHER}, and slices of one sum wait for each other"
        yield OutlineRejection(Code.MGS511, message, "streams 1, or kernel launched", "streams")


def _one_after_another(outline: Outline) -> bool:
    return outline.streams > 1 and outline.tactics.kernel is Kernels.PERSISTENT


def _reject_groups(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    parts, batches = outline.split.parts, outline.grouping.batches
    for batch in batches:
        if batch.last >= parts:
            yield OutlineRejection(Code.MGS504, _no_piece(batch.last, parts), _pieces_are(parts), "group")
            return
    counted = Counter(piece for batch in batches for piece in range(batch.first, batch.last + 1))
    if batches:
        yield from _reject_unless_once(counted, range(parts), Code.MGS507, "group", "piece", "computed")


def _reject_cut_kernels(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    """Reject cuts along rows for a kernel whose rows all need each other."""
    if problem.cutting.by_rows or not problem.pattern.overlaps:
        return
    pieces = range(outline.split.parts)
    for kernel in kernels(outline, problem):
        whole = outline.split.axis is not SplitAxis.ROWS or (kernel.first, kernel.last) == (pieces[0], pieces[-1])
        if len(kernel.owners) < problem.num_ranks or not whole:
            message = "a query that comes by all_to_all needs the keys of all rows"
            yield OutlineRejection(Code.MGS511, message, "group own together, and split cols", "group")
            return


def _reject_pieces(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    parts, listed = outline.split.parts, outline.ordering.pieces
    beyond = [piece for piece in listed if piece >= parts]
    if beyond:
        yield OutlineRejection(Code.MGS504, _no_piece(beyond[0], parts), _pieces_are(parts), "order")
    elif listed:
        yield from _reject_unless_once(Counter(listed), range(parts), Code.MGS501, "order", "piece", "moved")
    if outline.ordering.own is not None and not (problem.pattern.overlaps and outline.grouping.own_alone):
        message = "the own shard is no kernel of its own that could come first or last"
        yield OutlineRejection(Code.MGS513, message, "group own alone, or leave own out of the order", "order")


def _reject_peers(outline: Outline, problem: TemplateInput) -> Iterator[OutlineRejection]:
    ordering, n = outline.ordering, problem.num_ranks
    if ordering.of_peers and outline.algorithm not in ANY_ORDER:
        message = f"{outline.algorithm} has its own order of peers"
        yield OutlineRejection(Code.MGS513, message, "move direct, or leave peers out of the order", "order")
    if ordering.order.by_size and not problem.split:
        message = f"{ordering.order.value} goes by sizes, and all transfers are alike"
        yield OutlineRejection(Code.MGS513, message, "it is for an all_to_all with rows=[...]", "order")
    if ordering.peers:
        yield from _reject_unless_once(Counter(ordering.peers), range(1, n), Code.MGS501, "order", "peer", "served")


def _reject_unless_once(
    counted: Counter[int], wanted: range, code: Code, statement: str, kind: str, done: str
) -> Iterator[OutlineRejection]:
    """Reject the first of ``wanted`` that is missing, and the first that is listed twice."""
    missing = next((item for item in wanted if not counted[item]), None)
    if missing is not None:
        yield OutlineRejection(code, f"{kind} {missing} is never {done}", f"name every {kind} once", statement)
    twice = next((item for item in wanted if counted[item] > 1), None)
    if twice is not None:
        yield OutlineRejection(code, f"{kind} {twice} is {done} twice", f"name every {kind} once", statement)


def _no_piece(piece: int, parts: int) -> str:
    return f"there is no piece {piece}, a shard has {parts}"


def _pieces_are(parts: int) -> str:
    return f"pieces are 0 to {parts - 1}" if parts > 1 else "say into what it is split: split rows into 4"


_CHECKS = (
    *(_reject_split, _reject_own, _reject_move, _reject_kernels, _reject_streams),
    *(_reject_groups, _reject_cut_kernels, _reject_pieces, _reject_peers),
)
