"""pipelined: kernels beside any collective algorithm, chunk by chunk: ring attention, double ring, hierarchical plans.

What is gathered: the own block is one kernel, at once. Chunks of one piece that arrive after as many hops (``waves``)
are one kernel, which waits for what the algorithm names. What is summed or exchanged afterwards: the same backwards.
Chunks of one piece with as many hops to go are one kernel, those that travel furthest first, and each chunk leaves when
its kernel is done; the own block is one kernel at the end where it has the shortest way. Kernels are dealt to the
streams in turn, one if not said. Sums run beside them, those that travel furthest first too, so that no queue holds up
what is needed earlier, dealt to ``sums`` streams in turn.

With ``waves`` w a kernel takes the chunks of w waves that follow each other, so that fine transfers need not be small
kernels. Where w does not divide, the kernel next to communication that nothing hides is the smaller one: the last of
what arrives, the first of what leaves.

Per rank and w = 1 p (n - 1) + 1 kernels with ``ring``, p floor(n / 2) + 1 with ``double_ring``, p + 1 with ``direct``,
which is hetero_fused_1d, and p log2 n + 1 with ``halving_doubling``. Transfers are those of the algorithm in p pieces:
the table in docs/schedules.md.

Wang et al. (ASPLOS 2023) decompose a collective beside a matrix multiplication so, Ring Attention (arXiv 2310.01889) is
this with ``ring``, and Syncopate (arXiv 2601.20595) lets tiles wait for the waves of such plans.

An all_to_all knows the direct exchange alone. The switch cannot sum what kernels compute, so that ``nvls`` gathers
only, and partial sums are put. ``one_shot`` and ``double_tree`` do GEMM+AR alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from graphlib import TopologicalSorter
from itertools import chain, product

from ..collectives.direct import DIRECT
from ..ir import Direction, Reach, Region, Step, TileGroup, Transfer
from . import hetero
from .base import OVERLAPPED_PATTERNS, Cut, Template, TemplateInput, dealt, on_either_side
from .collective import emit, period

# Which chunks of a collective come together: how many hops lie before and behind each step, over all ranks.
#
# A hop is a transfer that another one, a sum or a kernel waits for. Where ranks are grouped in nodes and have different
# parts, a hop to another node counts as many as a node has ranks, since links across nodes are the slower ones. Chunks
# with as many hops before them arrive in the same step of the algorithm, those with as many behind them leave in the
# same: Syncopate calls them a wave (arXiv 2601.20595).

Event = tuple[int, str]
"""(rank, name) of a step, of a signal where it arrives, or of something outside that a step waits for."""


class Hops:
    """The most hops there are on a way to or from an event.

    ``steps`` are those of each absolute rank, or of one if all are alike; ``node`` is the number of ranks in a node.
    """

    def __init__(self, steps: Sequence[Sequence[Step]], num_ranks: int, node: int) -> None:
        self._num_ranks, self._period, self._node = num_ranks, len(steps), node
        self._costs: dict[Event, int] = {}
        waits = self._waits(steps)
        order = list(TopologicalSorter(waits).static_order())
        followers: dict[Event, list[Event]] = {}
        for event, others in waits.items():
            for other in others:
                followers.setdefault(other, []).append(event)
        self._before = self._longest(order, waits)
        self._behind = self._longest(reversed(order), followers)

    def before(self, rank: int, name: str) -> int:
        """Hops until a step of ``rank``, or a signal that arrives there, is over."""
        return self._before[rank % self._period, name]

    def behind(self, rank: int, name: str) -> int:
        """Hops from the beginning of a step of ``rank``, or from what it waits for, to the end; 0 if nothing does."""
        return self._behind.get((rank % self._period, name), 0)

    def _waits(self, steps: Sequence[Sequence[Step]]) -> dict[Event, list[Event]]:
        waits: dict[Event, list[Event]] = {}
        for rank, mine in enumerate(steps):
            for step in mine:
                waits[rank, step.name] = [(rank, name) for name in step.after]
                if isinstance(step, Transfer):
                    self._costs[rank, step.name] = self._cost(rank, step)
                    for at in self._landing(rank, step):
                        waits.setdefault((at % self._period, step.signal), []).append((rank, step.name))
        return waits

    def _landing(self, rank: int, step: Transfer) -> Iterable[int]:
        if step.direction is Direction.GET:
            return (rank,)
        return range(self._period) if step.reach is Reach.ALL else ((rank + step.peer) % self._num_ranks,)

    def _cost(self, rank: int, step: Transfer) -> int:
        if self._period == 1 or self._node < 2:
            return 1
        peer = (rank + step.peer) % self._num_ranks
        return self._node if rank // self._node != peer // self._node else 1

    def _longest(self, order: Iterable[Event], others: Mapping[Event, Sequence[Event]]) -> dict[Event, int]:
        found: dict[Event, int] = {}
        for event in order:
            found[event] = self._costs.get(event, 0) + max((found[other] for other in others.get(event, ())), default=0)
        return found


DEFAULT_ALGORITHM = "ring"
Chunk = tuple[int, int]
"""(block, piece), the block relative to the rank."""
Wave = tuple[Chunk, ...]


def _consume(problem: TemplateInput) -> Iterator[Step]:
    own, moved = problem.gathered(0), emit(problem, default=DEFAULT_ALGORITHM)
    if own.rows.size:
        yield TileGroup("own", (own,), problem.all_inner)
    yield from moved.steps
    arriving = _arriving(problem, moved.done)
    for index, chunks in enumerate(_joined(arriving, range(0, len(arriving), problem.waves))):
        tiles, arrived = _tiles(problem, chunks), dict.fromkeys(name for chunk in chunks for name in moved.done[chunk])
        stream, adds = (index + 1) % problem.streams, problem.cutting.adds_ranks
        yield TileGroup(f"g{index}", tiles, problem.all_inner, (*arrived,), stream, adds)


def _arriving(problem: TemplateInput, done: Mapping[Chunk, tuple[str, ...]]) -> list[Wave]:
    """Chunks of others that arrive together, in the order in which they do."""
    hops, waves = _hops(replace(problem, rank=0)), dict[tuple[int, int], list[Chunk]]()
    for (block, piece), names in done.items():
        if block and problem.gathered(block, piece).rows.size:
            before = max(hops.before(problem.rank, name) for name in names)
            waves.setdefault((before, piece), []).append((block, piece))
    return [tuple(waves[key]) for key in sorted(waves)]


def _produce(problem: TemplateInput) -> Iterator[Step]:
    kernels: dict[Chunk, str] = {}
    for index, (name, chunks) in enumerate(_leaving(problem)):
        # Cut, the own block would only cost more starts.
        tiles = (problem.gathered(0),) if name == "own" else _tiles(problem, chunks)
        if any(region.rows.size for region in tiles):
            kernels |= dict.fromkeys(chunks, name)
            yield TileGroup(name, tiles, problem.all_inner, (), index % problem.streams)

    def ready(block: int, piece: int) -> tuple[str, ...]:
        return (kernels[block, piece],) if (block, piece) in kernels else ()

    hops, moved = _hops(replace(problem, rank=0)), emit(problem, ready, DEFAULT_ALGORITHM, problem.streams)
    yield from dealt(sorted(moved.steps, key=lambda step: -hops.behind(problem.rank, step.name)), problem.sums)


def _leaving(problem: TemplateInput) -> list[tuple[str, Wave]]:
    """Chunks that are needed together and the name of their kernel, in the order in which they are needed."""
    hops, waves = _hops(replace(problem, rank=0)), dict[tuple[int, int], list[Chunk]]()
    pieces = range(problem.pieces)
    for piece, block in product(pieces, range(problem.num_ranks)):
        waves.setdefault((-hops.behind(problem.rank, _made(block, piece)), piece), []).append((block, piece))
    own, ordered = tuple((0, piece) for piece in pieces), [tuple(waves[key]) for key in sorted(waves)]
    own_is_last = ordered[-len(own) :] == [(chunk,) for chunk in own]
    others = ordered[: -len(own)] if own_is_last else ordered
    edges = range(-(-len(others) % problem.waves), len(others), problem.waves)
    named = [(f"g{index}", chunks) for index, chunks in enumerate(_joined(others, edges))]
    return [*named, ("own", own)] if own_is_last else named


def _joined(waves: Sequence[Wave], edges: range) -> Iterator[Wave]:
    """The chunks between each two ``edges``, which may begin before the first wave and end before the last."""
    for edge in edges:
        yield tuple(chain.from_iterable(waves[max(0, edge) : edge + edges.step]))


def _tiles(problem: TemplateInput, chunks: tuple[Chunk, ...]) -> tuple[Region, ...]:
    blocks = (problem.gathered(*chunk) for chunk in chunks)
    return tuple(block for block in blocks if block.rows.size)


def _made(block: int, piece: int) -> str:
    """Stands for whatever makes a chunk."""
    return f"made{block}_{piece}"


@lru_cache(maxsize=4)
def _hops(problem: TemplateInput) -> Hops:
    inputs = (replace(problem, rank=rank) for rank in range(period(problem, DEFAULT_ALGORITHM)))
    made = [emit(each, lambda block, piece: (_made(block, piece),), DEFAULT_ALGORITHM) for each in inputs]
    return Hops([fragment.steps for fragment in made], problem.num_ranks, problem.node)


TEMPLATE = Template(
    "pipelined",
    Cut.ROWS,
    overlaps=True,
    min_pieces=1,
    patterns=OVERLAPPED_PATTERNS,
    build=on_either_side(_consume, _produce),
    period=lambda problem: period(problem, DEFAULT_ALGORITHM),
    knobs=("streams", "algorithm", "waves", "sums"),
    default_algorithm=DEFAULT_ALGORITHM,
    default_pieces=1,
    explored=False,
    twins=((DIRECT.name, hetero.FUSED.name),),
    words=("chunks as the {algorithm} algorithm brings them", "chunks as the {algorithm} algorithm takes them"),
)
