"""Exchanges of every rank with every other at once: direct, one_shot, and nvls by the switch between them.

direct: every rank exchanges with every other at once. Few steps and short ones; every pair needs its own way.

Per rank, n ranks, p pieces: all_gather and reduce_scatter make p (n - 1) transfers of 1 / (p n) of the tensor, so that
(n - 1) / n of it leaves each rank; all_reduce, which is both in turn, twice as many. all_to_all makes p (n - 1).
A broadcast makes n p (n - 1) in all, all of them by the root, send_recv n p.

one_shot: every rank sends all it has to every other, and each sums everything itself. One step, for small tensors.

Per rank: n p (n - 1) transfers that carry n - 1 times the tensor, and n p reductions. Parts never add as they land: a
block may still be on its way to others then. The reductions of the blocks run side by side: where they are kernels,
each in a stream of its own. SMs carry out all blocks of a piece at once (``simcore/lower/one_kernel.py``).

nvls: the switch sums and copies (NVLink SHARP): a rank reads the sum of all copies, or writes to all at once.

Per rank: reduce_scatter gets its block once, already summed; all_gather puts it once, and the switch makes n - 1
copies; all_reduce is both. So each makes p transfers per rank, all_reduce 2 p, and a broadcast n p by the root.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..ir import Direction, Pattern, Reach, Reduction, Rejection, Step, Transfer
from ..text.vocabulary import MAX_STREAMS
from .base import TWO_PHASES, Algorithm, CollectiveProblem, Fragment, Names, RankGroup, all_ranks, rejection, signal_of


def gather(problem: CollectiveProblem, group: RankGroup, stem: str = "x") -> Fragment:
    """Each member's blocks to all others of ``group``."""
    puts, steps = problem.direction is Direction.PUT, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for piece, (position, shift) in _chunks(problem, group):
        for distance in group.others:
            name = problem.label(stem, problem.index_of(piece), group.index_of(position), distance)
            peer = group.offsets[distance]
            region = problem.region(shift if puts else peer + shift, piece)
            steps.append(problem.move(name, region, peer, problem.ready(shift, piece)))
            origin = group.before(distance) if puts else peer
            done[(origin + shift) % problem.num_ranks, piece] = (signal_of(name),)
        done[shift, piece] = problem.ready(shift, piece)
    return Fragment(tuple(steps), done)


def scatter(problem: CollectiveProblem, group: RankGroup) -> Fragment:
    """Parts of each member's blocks to that member, which sums them; parts that are got may add as they land."""
    puts, steps = problem.direction is Direction.PUT, list[Step]()
    adds = problem.adds and not puts
    done: dict[tuple[int, int], Names] = {}
    for piece, (position, shift) in _chunks(problem, group):
        indices = problem.index_of(piece), group.index_of(position)
        names = [problem.label("x", *indices, distance) for distance in group.others]
        for name, distance in zip(names, group.others, strict=True):
            peer = group.offsets[distance]
            block = (peer + shift if puts else shift) % problem.num_ranks
            ready, region = problem.ready(block, piece), problem.region(block, piece)
            steps.append(problem.move(name, region, peer, ready, reduce=adds))
        parts = (*problem.ready(shift, piece), *(signal_of(name) for name in names))
        done[shift, piece] = parts
        if not adds:
            name = problem.label("r", piece, group.index_of(position))
            region = problem.region(shift, piece)
            steps.append(Reduction(name, region, group.size, parts, problem.stream))
            done[shift, piece] = (name,)
    return Fragment(tuple(steps), done)


def _chunks(problem: CollectiveProblem, group: RankGroup) -> Iterator[tuple[int, tuple[int, int]]]:
    """(piece, (position of the shift, shift)), pieces outermost."""
    return ((piece, shifted) for piece in range(problem.pieces) for shifted in enumerate(group.shifts))


def _all_to_all(problem: CollectiveProblem) -> Fragment:
    n, rank, puts, steps = problem.num_ranks, problem.rank, problem.direction is Direction.PUT, list[Step]()
    done: dict[tuple[int, int], Names] = {(0, piece): problem.ready(0, piece) for piece in range(problem.pieces)}
    for piece in range(problem.pieces):
        for peer in range(1, n):
            # Rank r + peer sends its block n - peer to r.
            distance, block = (peer, peer) if puts else (n - peer, 0)
            region = problem.region(block, piece, _sent(problem, rank if puts else rank + peer, distance))
            name = problem.label("x", problem.index_of(piece), peer)
            source = -distance % n
            # A put of that name that arrives here was issued by another rank.
            arrives = problem.region(block, piece, _sent(problem, rank + source, distance))
            done[source, piece] = (signal_of(name),) if arrives.rows.size else ()
            if region.rows.size:
                steps.append(problem.move(name, region, peer, problem.ready(block, piece)))
    return Fragment(tuple(steps), done)


def _sent(problem: CollectiveProblem, rank: int, distance: int) -> int:
    """Rows that an absolute rank sends to the one ``distance`` further."""
    n = problem.num_ranks
    if problem.loads:
        return problem.loads[rank % n][(rank + distance) % n]
    return problem.split[distance] if problem.split else problem.rows


def _from_root(problem: CollectiveProblem, targets: range) -> Fragment:
    """Everything that rank 0 has to each of ``targets``."""
    n, rank, puts, steps = problem.num_ranks, problem.rank, problem.direction is Direction.PUT, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for block in range(n):
        owner = (block - rank) % n
        for piece in range(problem.pieces):
            names = {target: problem.label("b", block, problem.index_of(piece), target) for target in targets}
            region, ready = problem.region(owner, piece), problem.ready(owner, piece)
            if rank == 0:
                done[owner, piece] = ready
                if puts:
                    steps.extend(problem.put(names[target], region, target, ready) for target in targets)
            elif rank in targets:
                done[owner, piece] = (signal_of(names[rank]),)
                if not puts:
                    steps.append(problem.move(names[rank], region, -rank, ready))
    return Fragment(tuple(steps), done)


def _build(problem: CollectiveProblem) -> Fragment:
    match problem.kind:
        case Pattern.ALL_GATHER:
            return gather(problem, all_ranks(problem))
        case Pattern.REDUCE_SCATTER:
            return scatter(problem, all_ranks(problem))
        case Pattern.ALL_TO_ALL:
            return _all_to_all(problem)
        case Pattern.BROADCAST:
            return _from_root(problem, range(1, problem.num_ranks))
        case Pattern.SEND_RECV:
            return _from_root(problem, range(1, min(2, problem.num_ranks)))
    first = scatter(problem, all_ranks(problem))
    # New sums are put: only the rank that makes them knows when they are there.
    then = replace(problem, ready=first.ready, direction=Direction.PUT)
    second = gather(then, all_ranks(problem), "y")
    return Fragment((*first.steps, *second.steps), second.done)


_KINDS = (*TWO_PHASES, Pattern.ALL_TO_ALL, Pattern.BROADCAST, Pattern.SEND_RECV)
DIRECT = Algorithm(
    "direct", _KINDS, _build, per_rank=(Pattern.BROADCAST, Pattern.SEND_RECV), gets=_KINDS, least_ranks=1
)


MOST_RANKS = 256
"""Each rank has n (n - 1) transfers: 65,280 of these. With more it is no algorithm for small tensors any more."""


def _build_one_shot(problem: CollectiveProblem) -> Fragment:
    n, steps = problem.num_ranks, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for piece in range(problem.pieces):
        for block in range(n):
            steps.extend(_moves_of(problem, block, piece))
        for block in range(n):
            parts = (*problem.ready(block, piece), *_parts_of(problem, block, piece))
            name = problem.label("r", block, problem.index_of(piece))
            stream = (problem.stream + block) % MAX_STREAMS
            steps.append(Reduction(name, problem.region(block, piece), n, parts, stream))
            done[block, piece] = (name,)
    return Fragment(tuple(steps), done)


def _name(problem: CollectiveProblem, block: int, piece: int, peer: int) -> str:
    return problem.label("x", problem.index_of(piece), block % problem.num_ranks, peer)


def _moves_of(problem: CollectiveProblem, block: int, piece: int) -> list[Step]:
    region, ready, peers = problem.region(block, piece), problem.ready(block, piece), range(1, problem.num_ranks)
    return [problem.move(_name(problem, block, piece, peer), region, peer, ready) for peer in peers]


def _parts_of(problem: CollectiveProblem, block: int, piece: int) -> Names:
    """Signals of the parts of this rank's ``block``: for the sender ``peer`` places before, it is ``peer`` further."""
    puts, peers = problem.direction is Direction.PUT, range(1, problem.num_ranks)
    return tuple(signal_of(_name(problem, block + (peer if puts else 0), piece, peer)) for peer in peers)


def _one_shot_rule(problem: CollectiveProblem) -> Rejection | None:
    if problem.num_ranks > MOST_RANKS:
        return rejection(f"one_shot sends all to all: at most {MOST_RANKS} ranks, not {problem.num_ranks}")
    return None


ONE_SHOT = Algorithm(
    "one_shot", (Pattern.ALL_REDUCE,), _build_one_shot, gets=(Pattern.ALL_REDUCE,), own_rule=_one_shot_rule
)


def _build_nvls(problem: CollectiveProblem) -> Fragment:
    if problem.kind is Pattern.BROADCAST:
        return _multicast(problem)
    steps, done = list[Step](), dict[tuple[int, int], Names]()
    for piece in range(problem.pieces):
        after = problem.ready(0, piece)
        if problem.kind is not Pattern.ALL_GATHER:
            name = problem.label("x", piece)
            region = problem.region(0, piece)
            signal = signal_of(name)
            steps.append(Transfer(name, Direction.GET, region, 0, signal, after, reduce=True, reach=Reach.ALL))
            after = (signal,)
        done[0, piece] = after
        if problem.kind is not Pattern.REDUCE_SCATTER:
            steps.append(_to_all(problem, problem.label("y", piece), 0, piece, after))
            # Every other rank sets this signal; it is there when the last of them has.
            signal = signal_of(problem.label("y", piece))
            done |= {(block, piece): (signal,) for block in range(1, problem.num_ranks)}
    return Fragment(tuple(steps), done)


def _multicast(problem: CollectiveProblem) -> Fragment:
    n, rank, steps, done = problem.num_ranks, problem.rank, list[Step](), dict[tuple[int, int], Names]()
    for block in range(n):
        owner = (block - rank) % n
        for piece in range(problem.pieces):
            name = problem.label("b", block, problem.index_of(piece))
            done[owner, piece] = (signal_of(name),) if rank else problem.ready(owner, piece)
            if rank == 0:
                steps.append(_to_all(problem, name, owner, piece, done[owner, piece]))
    return Fragment(tuple(steps), done)


def _to_all(problem: CollectiveProblem, name: str, owner: int, piece: int, after: Names) -> Transfer:
    return Transfer(name, Direction.PUT, problem.region(owner, piece), 0, signal_of(name), after, reach=Reach.ALL)


def _nvls_rule(problem: CollectiveProblem) -> Rejection | None:
    sums = problem.kind in (Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE)
    if sums and problem.computed and not problem.by_tiles:
        return rejection(
            "the sum in the switch reads all copies, and no rank knows when the others have computed theirs"
        )
    if sums and not problem.reduces:
        return rejection("nvls needs a switch that sums (reduces yes)")
    if problem.kind is not Pattern.REDUCE_SCATTER and not problem.multicast:
        return rejection("nvls needs a switch that copies to all (multicast yes)")
    return None


_NVLS_KINDS = (*TWO_PHASES, Pattern.BROADCAST)
_SUMS = (Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE)
# Whatever sums reads by itself; a direction that is asked for changes nothing there.
NVLS = Algorithm(
    "nvls", _NVLS_KINDS, _build_nvls, per_rank=(Pattern.BROADCAST,), gets=_SUMS, by_sms=_SUMS, own_rule=_nvls_rule
)
