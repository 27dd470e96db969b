"""Parts that collective algorithms share: the problem, the emitted steps, and the declaration of an algorithm.

An algorithm emits the steps of one rank in the words of ``schedule``: owners and peers are relative to it. The moved
tensor has one row block per rank; a block is cut into ``pieces`` chunks that follow each other through the algorithm.

A rank's data and the result are two tensors. A transfer reads the result where a step that it waits for has made it,
and the data otherwise. A reduction sums this rank's own with the parts whose signals it names, into the result.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ..codes import Code
from ..ir import Direction, EngineKind, IndexRange, Pattern, Region, Rejection, Step, Transfer, checkpoint

Names = tuple[str, ...]
Ready = Callable[[int, int], Names]
"""From (block, piece), the block relative to the rank, to what must be there before the rank may use them."""


def at_once(block: int, piece: int) -> Names:
    """Nothing to wait for: what moves is there from the start."""
    return ()


def signal_of(transfer: str) -> str:
    """Signal of the transfer of that name."""
    return f"s_{transfer}"


@dataclass(frozen=True, slots=True)
class CollectiveProblem:
    """One collective: blocks of ``rows`` x ``cols`` elements, one per rank, each cut into ``pieces``.

    ``kind`` is the pattern of the lone collective. ``adds`` says that transfers can add at their destination, ``node``
    is the number of ranks in a node, 0 where ranks are not grouped. ``split`` holds the rows that an all_to_all sends
    from r to r + k, for k = 0, 1, ..., empty where all are equal; ``loads`` holds those [from][to] of absolute ranks
    where these differ, also in uneven parts of what ranks hold in full. ``rank`` is the absolute rank r. Names begin
    with ``prefix``. ``ready`` gives the names that a block waits for at the rank that has it. Where blocks are
    ``computed`` a kernel of each rank makes them, and no rank knows when another's are there. Reductions run in
    ``stream``. ``with_kernel``: the op also has a kernel. ``engine`` says who copies;
    ``by_tiles``: tiles set a flag where what they have computed is wanted. A switch may copy to all (``multicast``) and
    sum (``reduces``). ``grid`` has the sides of the torus, none of other networks; copies
    each way there are in one of so many ``lanes``, or in none.
    """

    kind: Pattern
    num_ranks: int
    rows: int
    cols: int
    pieces: int = 1
    direction: Direction = Direction.PUT
    adds: bool = False
    node: int = 0
    split: tuple[int, ...] = ()
    prefix: str = ""
    ready: Ready = at_once
    computed: bool = False
    stream: int = 0
    loads: tuple[tuple[int, ...], ...] = ()
    rank: int = 0
    with_kernel: bool = False
    engine: EngineKind = EngineKind.DMA
    by_tiles: bool = False
    multicast: bool = False
    reduces: bool = False
    grid: tuple[int, ...] = ()
    lanes: int = 0

    @property
    def has_nodes(self) -> bool:
        """Whether there are several whole nodes of two or more ranks."""
        return self.node > 1 and self.num_ranks % self.node == 0 and self.num_ranks > self.node

    def label(self, stem: str, *indices: int | None) -> str:
        """A name: the stem and the indices, those left out that are None. Plans of many ranks may be stopped here."""
        checkpoint()
        return f"{self.prefix}{stem}{'_'.join(str(index) for index in indices if index is not None)}"

    def index_of(self, piece: int) -> int | None:
        """Index of a piece in a name, None where a block is whole."""
        return piece if self.pieces > 1 else None

    def region(self, owner: int, piece: int, rows: int | None = None) -> Region:
        """Chunk ``piece`` of the block of rank r + ``owner``, of which ``rows`` count if not all."""
        size = self._rows_of(owner) if rows is None else rows
        span = IndexRange(piece * size // self.pieces, (piece + 1) * size // self.pieces)
        return Region(owner % self.num_ranks, span, IndexRange(0, self.cols))

    def _rows_of(self, owner: int) -> int:
        return self.loads[0][(self.rank + owner) % self.num_ranks] if self.loads else self.rows

    def put(self, name: str, region: Region, peer: int, after: Names, *, reduce: bool = False) -> Transfer:
        """A put to rank r + ``peer``."""
        return self._transfer(Direction.PUT, name, region, peer, after, reduce)

    def move(self, name: str, region: Region, peer: int, after: Names, *, reduce: bool = False) -> Transfer:
        """A put to rank r + ``peer`` or a get from it, as ``direction`` says."""
        return self._transfer(self.direction, name, region, peer, after, reduce)

    def _transfer(
        self, direction: Direction, name: str, region: Region, peer: int, after: Names, reduce: bool
    ) -> Transfer:
        return Transfer(name, direction, region, peer % self.num_ranks, signal_of(name), once(after), reduce=reduce)


@dataclass(frozen=True, slots=True)
class Fragment:
    """Steps of one rank, and what it waits for before it uses a block: names by (block, piece), blocks relative.

    Where an all_to_all ends, blocks are those of the senders.
    """

    steps: tuple[Step, ...]
    done: Mapping[tuple[int, int], Names]

    def ready(self, block: int, piece: int) -> Names:
        """Return the names to wait for before this rank may use the chunk."""
        return self.done[block, piece]

    @property
    def all_done(self) -> Names:
        """Names to wait for before this rank may use everything."""
        return once(name for names in self.done.values() for name in names)


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that exchange among themselves, seen from one of them.

    ``offsets[k]`` leads to the k-th next, ``offsets[0]`` is 0. The member at ``offset`` owns the blocks ``offset`` +
    ``shift`` for each of ``shifts``.
    """

    offsets: tuple[int, ...]
    shifts: tuple[int, ...] = (0,)

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.offsets)

    @property
    def others(self) -> range:
        """Distances to the other members, nearest first."""
        return range(1, self.size)

    def before(self, distance: int) -> int:
        """Return the offset of the member ``distance`` places before this one."""
        return self.offsets[-distance % self.size]

    def index_of(self, position: int) -> int | None:
        """Index of a shift in a name, None where there is one shift alone."""
        return position if len(self.shifts) > 1 else None


def all_ranks(problem: CollectiveProblem) -> RankGroup:
    """All ranks, each the owner of its block."""
    return RankGroup(tuple(range(problem.num_ranks)))


TWO_PHASES = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE)
Phase = Callable[[CollectiveProblem], Fragment]
"""A reduce_scatter or an all_gather."""


def in_two_phases(problem: CollectiveProblem, scatter: Phase, gather: Phase) -> Fragment:
    """The phase that the kind asks for; an all_reduce is the first and then, of what that leaves, the second."""
    if problem.kind is Pattern.ALL_GATHER:
        return gather(problem)
    first = scatter(problem)
    if problem.kind is Pattern.REDUCE_SCATTER:
        return first
    second = gather(replace(problem, ready=first.ready))
    return Fragment((*first.steps, *second.steps), second.done)


def rejection(message: str) -> Rejection:
    """A rejection by an algorithm; what would do instead is known to those who know all algorithms."""
    return Rejection(Code.MGS511, message)


def _no_more_rules(problem: CollectiveProblem) -> Rejection | None:
    return None


MOST_WITH_OWN_STEPS = 512
"""Ranks of a plan that is written rank by rank, with n (n - 1) transfers or more: of 1024 that takes a minute."""
_OF_ONE_RANK = (Pattern.BROADCAST, Pattern.SEND_RECV)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A collective algorithm for ``kinds``, the patterns of lone collectives.

    ``build`` emits the steps of the rank of a problem. They are the same for every rank, except for the kinds
    ``per_rank`` and, in nodes, the kinds ``per_node``: those are the same at the same place in each node. The kinds
    ``per_layer`` are the same at the same place in each layer of the first side of a torus.
    ``gets`` are the kinds whose sources have the data from the start, so that destinations can get it. ``by_sms`` are
    the kinds that only SMs can do. ``own_rule`` rejects problems for reasons of its own. An algorithm that
    ``passes_on`` has ranks hand on what came from others, so that long ways are not taken once for each pair: a
    search tries it with kernels by default.
    """

    name: str
    kinds: tuple[Pattern, ...]
    build: Callable[[CollectiveProblem], Fragment]
    per_rank: tuple[Pattern, ...] = ()
    gets: tuple[Pattern, ...] = ()
    by_sms: tuple[Pattern, ...] = ()
    own_rule: Callable[[CollectiveProblem], Rejection | None] = _no_more_rules
    least_ranks: int = 2
    per_node: tuple[Pattern, ...] = ()
    passes_on: bool = False
    per_layer: tuple[Pattern, ...] = ()

    def period(self, problem: CollectiveProblem) -> int:
        """Ranks after which the parts of ranks in ``problem`` repeat: 1 where all have the same."""
        if problem.loads or problem.kind in self.per_rank:
            return problem.num_ranks
        if problem.grid and problem.kind in self.per_layer:
            return problem.num_ranks // problem.grid[0]
        return problem.node if problem.has_nodes and problem.kind in self.per_node else 1

    def reject(self, problem: CollectiveProblem) -> Rejection | None:
        """Why this algorithm cannot do ``problem``, None if it can."""
        kind, gets = problem.kind, problem.direction is Direction.GET
        if kind not in self.kinds:
            return rejection(f"{self.name} does no {kind.value}")
        if problem.num_ranks < self.least_ranks:
            return rejection(f"{self.name} needs {self.least_ranks} ranks or more")
        if problem.num_ranks > MOST_WITH_OWN_STEPS and kind in self.per_rank and kind not in _OF_ONE_RANK:
            most = f"at most {MOST_WITH_OWN_STEPS} of them, not {problem.num_ranks}"
            return rejection(f"{self.name} has steps of its own for each rank: {most}")
        if gets and problem.computed:
            return rejection("a get cannot know when its peer has computed what it asks for")
        if gets and kind not in self.gets:
            return rejection(f"{self.name} passes on what came from others, and a get cannot know when its peer has it")
        if kind in self.by_sms and problem.engine is not EngineKind.SM:
            return rejection(f"{self.name} needs SMs for {kind.value}: a copy engine cannot add")
        return self.own_rule(problem)


def once(names: Iterable[str]) -> Names:
    """Each of the names once, in their order."""
    return tuple(dict.fromkeys(names))
