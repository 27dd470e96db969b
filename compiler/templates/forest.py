"""forest: each shard goes down trees of its own, which together load all links alike. ``trees`` says which.

A tree is ``[root, weight, p0, p1, ...]``: the rank whose rows it carries, its share of them, and the parent of each
rank, at the root the root itself. Rows of a shard are dealt to its trees by weight and cut into chunks that follow each
other. An all_gather puts chunks down the trees; a reduce_scatter sums them on the way up, in the reverse order; an
all_reduce does one and then the other, with rows of any shard: all rows are dealt to all trees, and a rank may be the
root of none. Where links go one way its trees may have the parents on the way up behind those on the way down. A
broadcast deals all rows to all trees too, each from rank 0. In an all_to_all a block goes down the ways to its target
in the trees of the rank that has it. Without trees each shard has one, of the fewest levels, and a broadcast one for
all.

Beside a kernel the order of its rows follows that of the trees. What is gathered: the own block is one kernel, at once;
of the rest a kernel takes the rows of about ``waves`` chunks, whoever owns them, in the order in which they arrive.
Trees complete all shards near the end, so that a kernel for each shard would wait. What is summed afterwards: the same
backwards, what has the longest way first and the own block last; in an all_reduce the rows whose root a rank is come
when the rest of their sum is due. Sums are dealt to ``sums`` streams in turn.

Packings of trees reach the bound of the narrowest cut (Edmonds; ForestColl, arXiv 2402.06787).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..codes import Code
from ..collectives import signal_of
from ..ir import IndexRange, Pattern, PeerOrder, Reduction, Region, Rejection, Step, TileGroup
from .base import Cut, Template, TemplateInput, dealt, put, reject_lists
from .bespoke import TILE
from .collective import collective_in
from .tree_copies import ONE_POOL, Tree, TreeChunk, TreeCopy, copies_by_rank, repeats_after

ALONE = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE, Pattern.BROADCAST, Pattern.ALL_TO_ALL)
PATTERNS = (*ALONE, Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR)
MAX_TREES = 1024
MAX_COPIES = 1 << 15
"""Copies to ranks, one way: as many steps as a file of a plan may have. Lists of more take minutes to be ordered."""
TILES = (TILE, 64, 32)
"""Rows of tiles of usual GEMM kernels: chunks beside a kernel are multiples of the first that a piece holds."""


def reject_trees(problem: TemplateInput) -> Rejection | None:
    """Why the trees of ``problem`` are none, None if those of each root span all ranks."""
    n, example = problem.num_ranks, "trees=[[root, weight, parent of rank 0, parent of rank 1, ...], ...]"
    kind, roots = collective_in(problem.pattern), {tree[0] for tree in problem.trees}
    lengths = (n + 2, 2 * n + 2) if kind is Pattern.ALL_REDUCE else (n + 2,)
    if problem.uneven:
        return reject_lists("forest cuts blocks of an all_to_all that are all of one size", "a schedule such as serial")
    if len(problem.trees) > MAX_TREES:
        return reject_lists(f"there are {len(problem.trees)} trees", f"at most {MAX_TREES}")
    for tree in problem.trees:
        shown = f"tree {list(tree)}"
        if len(tree) not in lengths:
            needed = " or ".join(map(str, lengths))
            return reject_lists(f"{shown} has {len(tree)} numbers, for {n} ranks it needs {needed}", example)
        root, weight, *parents = tree
        if max(root, *parents) >= n:
            return reject_lists(f"{shown} names rank {max(root, *parents)}, of {n}", example)
        if weight < 1:
            return reject_lists(f"{shown} has no weight", example)
        ways = parents[:n], parents[-n:]
        if over := [way[root] for way in ways if way[root] != root]:
            return reject_lists(f"{shown}: its root has a parent, rank {over[0]}", "the root is its own parent")
        if any(not _reaches(way, rank, root) for way in ways for rank in range(n)):
            return reject_lists(f"{shown} does not lead from rank {root} to all ranks", example)
    if kind is Pattern.BROADCAST and roots - {0}:
        return reject_lists("a broadcast comes from rank 0, and a tree has another root", example)
    if problem.trees and kind not in ONE_POOL and (without := sorted(set(range(n)) - roots)):
        return reject_lists(f"no tree has root {without[0]}: each rank needs a tree for its rows", example)
    return None


def reject_copies(problem: TemplateInput) -> Rejection | None:
    """Why the copies of ``problem`` are too many to be put in order, None if they are not."""
    n = problem.num_ranks
    chunks = max(problem.pieces * n, len(problem.trees))
    if problem.pattern.exchanges:  # each copy goes on by as many hops as there are
        chunks *= max((_hops(tree) for tree in problem.trees), default=1)
    if chunks * (n - 1) <= MAX_COPIES:
        return None
    message = f"{chunks} chunks to {n - 1} ranks each are {chunks * (n - 1)} copies, more than {MAX_COPIES}"
    most = MAX_COPIES // (n - 1) // n * n
    return Rejection(Code.MGS512, message, f"at most chunks={most}" if most else "forest is for fewer ranks")


def _reaches(parents: Sequence[int], rank: int, root: int) -> bool:
    for _ in parents:
        rank = parents[rank]
    return rank == root


def _hops(tree: Tree) -> int:
    """How far the farthest rank of a tree is from its root."""
    root, _, *parents = tree
    ranks, hops = set(range(len(parents))) - {root}, 0
    while ranks:
        ranks, hops = {parents[rank] for rank in ranks} - {root}, hops + 1
    return hops


def _direct(num_ranks: int, kind: Pattern) -> tuple[Tree, ...]:
    roots = range(1 if kind is Pattern.BROADCAST else num_ranks)
    return tuple((root, 1, *(root,) * num_ranks) for root in roots)


def _period(problem: TemplateInput) -> int:
    """Ranks after which the plan of a collective alone repeats."""
    kind, n = collective_in(problem.pattern), problem.num_ranks
    assert kind is not None, "the patterns of this template move something"
    if problem.pattern.overlaps or problem.loads or not problem.trees or problem.order is PeerOrder.ABSOLUTE:
        return n
    return repeats_after(problem.trees, n, kind, problem.network)


def build(problem: TemplateInput) -> Iterator[Step]:
    """The steps of one rank."""
    n, rank, kind = problem.num_ranks, problem.rank, collective_in(problem.pattern)
    produces = problem.pattern.produces
    assert kind is not None, "the patterns of this template move something"
    shards = tuple(problem.loads[each][each] if problem.loads else problem.shard_rows for each in range(n))
    step = _step(shards, problem.pieces) if problem.pattern.overlaps else 1
    trees = problem.trees or _direct(n, kind)
    timed = copies_by_rank(trees, shards, problem.pieces, step, kind, problem.network, _period(problem))[rank]
    copies, made = [copy for copy, _ in timed], dict[TreeChunk, str]()
    if problem.pattern.overlaps:
        mine = {copy.chunk: at for copy, at in timed if (copy.rank, copy.up) == (rank, produces)}
        own = {copy.chunk: at for copy, at in timed if copy.up and copy.chunk.root == copy.link[1] == rank}
        if kind is Pattern.ALL_REDUCE:  # what a root has made goes down as soon as the last comes up
            mine, own = mine | own, {}
        groups = _groups(problem, sorted(mine, key=mine.__getitem__)) + ([("own", list(own))] if own else [])
        made = {chunk: name for name, chunks in groups for chunk in chunks} if produces else {}
        yield from _kernels(problem, rank, groups)
    yield from dealt(_moves(problem, rank, copies, made), problem.sums)


def _step(shards: Sequence[int], pieces: int) -> int:
    """Rows of which chunks beside a kernel are multiples: those of tiles, best if equal pieces are multiples too."""
    fit = [step for step in TILES if step * pieces <= min(shards)]
    return next((step for step in fit if all(rows % (step * pieces) == 0 for rows in shards)), (*fit, 1)[0])


Groups = list[tuple[str, list[TreeChunk]]]
"""Names of kernels, and the chunks whose rows each takes or makes."""


def _groups(problem: TemplateInput, chunks: Sequence[TreeChunk]) -> Groups:
    """Kernels in their order, each of chunks that follow each other, of as many rows as ``waves`` equal chunks have.

    A smaller kernel is next to communication that nothing hides: the last of what arrives, the first of what leaves.
    """
    enough, groups = problem.waves * problem.shard_rows // problem.pieces, list[list[TreeChunk]]()
    rows, way = enough, -1 if problem.pattern.produces else 1
    for chunk in chunks[::way]:
        if rows >= enough:
            groups.append([])
            rows = 0
        groups[-1].append(chunk)
        rows += chunk.rows.size
    return [(f"g{number}", chunks) for number, chunks in enumerate(groups[::way])]


def _kernels(problem: TemplateInput, rank: int, groups: Groups) -> Iterator[TileGroup]:
    """Kernels in their order: of what arrives behind the own block; of what leaves those of ``groups`` are all."""
    if not problem.pattern.produces:
        yield TileGroup("own", (problem.gathered(0),), problem.all_inner)
    for name, chunks in groups:
        blocks = [problem.tiles(_peer(problem, rank, chunk.owner), chunk.rows) for chunk in chunks]
        after = () if problem.pattern.produces else (signal_of(chunk.name("d", rank)) for chunk in chunks)
        yield TileGroup(name, _merged(blocks), problem.all_inner, (*after,))


def _merged(blocks: Sequence[Region]) -> tuple[Region, ...]:
    """The blocks in their order, those of one owner as few as they can be."""
    found = list[Region]()
    for block in sorted(blocks, key=lambda each: (each.owner, each.rows.start)):
        if found and found[-1].owner == block.owner and found[-1].rows.stop == block.rows.start:
            block = replace(block, rows=IndexRange(found.pop().rows.start, block.rows.stop))
        found.append(block)
    return tuple(found)


def _moves(
    problem: TemplateInput, rank: int, copies: Sequence[TreeCopy], made: Mapping[TreeChunk, str]
) -> Iterator[Step]:
    """What a rank puts down and up, and on the way up its sums of what comes from below with its own.

    ``copies`` are those from it and to it, ``made`` has the kernel that makes the rank's own part of each chunk.
    """
    lanes = _Lanes(problem, rank, (copy.link[1] for copy in copies if copy.link[0] == rank))
    seen = Counter[TreeChunk]()
    for chunk, at, up in copies:
        above = (chunk.above if up else chunk.parents)[at]
        below = chunk.children(rank, up=True) if up else ()
        here = (made[chunk],) if made and rank in (at, chunk.root) else ()
        if not up and above == rank:
            brought = signal_of(chunk.name("d", rank)) if rank != chunk.root else chunk.name("r", rank)
            after = (brought,) if rank != chunk.root or problem.pattern.sums else ()
            down = put(
                chunk.name("d", at), _region(problem, chunk, rank), _peer(problem, rank, at), after, lanes.next(at)
            )
            yield replace(down, origin=_peer(problem, rank, chunk.root)) if problem.pattern.exchanges else down
        elif up and above == rank == chunk.root:
            seen[chunk] += 1
            if seen[chunk] == len(below):
                yield _sum(problem, chunk, rank, here)
        elif up and at == rank:
            if below:
                yield _sum(problem, chunk, rank, here)
            after, peer = (chunk.name("r", rank),) if below else here, _peer(problem, rank, above)
            yield put(chunk.name("u", rank), _region(problem, chunk, rank), peer, after, lanes.next(above))


def _sum(problem: TemplateInput, chunk: TreeChunk, rank: int, here: tuple[str, ...]) -> Reduction:
    below = chunk.children(rank, up=True)
    signals = tuple(signal_of(chunk.name("u", child)) for child in below)
    stream = problem.streams if here else 0
    return Reduction(chunk.name("r", rank), _region(problem, chunk, rank), 1 + len(below), (*here, *signals), stream)


def _region(problem: TemplateInput, chunk: TreeChunk, rank: int) -> Region:
    return problem.block(_peer(problem, rank, chunk.owner), chunk.rows)


def _peer(problem: TemplateInput, rank: int, other: int) -> int:
    return (other - rank) % problem.num_ranks


class _Lanes:
    """Engines for the copies of a rank, of which each target has as many of its own, which take turns.

    ``targets`` are the ranks of all copies. Lanes that are over go to the targets with the most copies. If there are
    fewer, targets share them whose ways begin with the same link, so that a slow link holds up no copy over another.
    """

    def __init__(self, problem: TemplateInput, rank: int, targets: Iterable[int]) -> None:
        copies = Counter(targets)
        self.lanes, self.sent, first = problem.lanes, Counter[int](), 0
        self.of = _shared_lanes(problem, rank, copies) if problem.lanes < len(copies) else dict[int, range]()
        each, over = divmod(problem.lanes, max(1, len(copies)))
        busiest = sorted(copies, key=lambda target: (-copies[target], target))[:over]
        for target in () if self.of else sorted(copies):
            count = each + (target in busiest)
            self.of[target], first = range(first, first + count), first + count

    def next(self, target: int) -> int | None:
        """The engine of the next copy to a rank, None for the first that is free."""
        if not self.lanes:
            return None
        lane = self.of[target][self.sent[target] % len(self.of[target])] % self.lanes
        self.sent[target] += 1
        return lane


def _shared_lanes(problem: TemplateInput, rank: int, targets: Iterable[int]) -> dict[int, range]:
    """The lane of each target, of fewer: one for each link at first, then for the link with the most targets a lane."""
    by_link = defaultdict[int, list[int]](list)
    for target in sorted(targets, key=lambda each: (each - rank) % problem.num_ranks):
        by_link[problem.network.first_nodes[rank][target] if problem.network else 0].append(target)
    counts = dict.fromkeys(by_link, 1)
    for _ in range(problem.lanes - len(by_link)):
        counts[max(by_link, key=lambda link: len(by_link[link]) / counts[link])] += 1
    found, first = dict[int, range](), 0
    for link, sharing in by_link.items():
        for place, target in enumerate(sharing):
            found[target] = range(first + place % counts[link], first + place % counts[link] + 1)
        first += counts[link]
    return found


TEMPLATE = Template(
    "forest",
    Cut.ROWS,
    overlaps=True,
    min_pieces=1,
    patterns=PATTERNS,
    build=build,
    period=_period,
    explored=False,
    knobs=("waves", "sums", "lanes", "trees"),
    words=("shares of the rows along trees of links",) * 2,
)
