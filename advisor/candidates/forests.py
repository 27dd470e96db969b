"""Schedules of trees to be simulated, for a collective alone or beside a kernel where ranks see different networks."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

from ...compiler.collectives.tori import TORUS_TREE
from ...compiler.ir import (
    CopyProtocol,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
    Wait,
)
from ...compiler.planning.build import build_op_plan, reject_choice
from ...compiler.planning.staging import sides_of
from ...compiler.templates import forest
from ...compiler.templates.tree_copies import repeats_after
from ..bounds.link_loads import passes_ranks, relayed_load
from ..solver.forest import EARLY, FEW_RANKS, LARGE, SHALLOW, packings
from ..solver.forest import MOST_RANKS as MOST_PACKED
from ..solver.images import Trees, buckets, early_trees
from ..solver.trees import TreeFlow
from ..solver.whole_shards import whole_shards

PIECES = (1, 3, 8)
"""Chunks of a shard that are tried first, of many ranks those behind 1, from the most to fewer while that pays; then
twice as many."""
CLOSE, GAIN = 1.03, 0.005
"""Where that is tried, in times of the fastest, and which part of the time it is to gain: what waits for a chunk halves
with each doubling, so that all further ones together gain no more than the last."""
MOST_DOUBLED = 12_000
"""Steps up to which there are twice as many: each such simulation takes three seconds and more."""
FINE = 8
"""Chunks up to which one more or less is tried too: on rails 5 take 6 % less than 4 or 6."""
CARRIED = 2
"""Sets of trees, the fastest, that have twice as many from twice ``FINE`` on; below, times say little of what comes."""
LEFT = 0.002
"""What other chunks are to gain over the fastest run, if nothing but the busiest link counts; and what twice as many
have gained where still more are tried."""
Parts = Sequence[tuple[int, int]]
AROUND: Sequence[tuple[Parts, int]] = (((3, 4), (3, 2), (2, 1)), 3), (((2, 3), (4, 3)), 1)
"""Parts of the best number that are tried then, of so many sets of trees; and if one is better, around that.
Twice the number only below what is known: there may be a better one between 3 and 8. Less or more than many only where
it may gain: see ``_may_gain``."""
BESIDE = (4, 8, 16)
"""The same beside a kernel, where kernels of half a shard are tried first, then of half and twice as much."""
ONE_KERNEL = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
"""Of sums alone: a launch and an event for each chunk, twice on the longest way, are a tenth of 16 MiB on rails."""
SUMS = 16
"""Streams of sums beside a kernel: one that waits for what a link brings holds up all behind it. 64 are not faster on
six GPUs."""
SHARED = 1
"""Channels beyond half the engines, of ranks that send to several over one port: an engine is held until the last byte
is there, and only with engines to spare the next bytes leave before."""
LEAST_CHUNK_BYTES = 64 << 10
LEAST_BYTES, LARGE_BYTES, HUGE_BYTES = 1 << 20, 8 << 20, 64 << 20
"""By copy engines; from where on the packing of fewest levels is not tried, and those of ``LARGE`` are."""
SM_BYTES = range(1 << 15, 1 << 22)
"""By SMs with flags between the data. Below, a second copy takes longer than all bytes by straight routes, but for a
broadcast, and with 64 KiB on ten GPUs at links of 22 GB/s it does not; above, the flags cost more than setups."""
WHOLE_BYTES = 1 << 20
"""Below, trees of whole shards are sought too, which count what copies cost at their ends; above, packings win."""
SM_COUNTS, SM_PIECES = (16, 32), (1, 3)
"""SMs that are tried, and chunks of a shard: of a broadcast both, of the rest a tree is one chunk at first."""
MOST_STEPS = 25_000
"""Of all ranks together, which each simulation lowers; of more than 64 those after which the plan repeats."""
MOST_RANKS = 181
"""For an all_gather on a torus: a chunk of each to all others are then as many copies as a plan may have. Sums on 128
take minutes to be simulated. Beyond ``FEW_RANKS`` a plan is simulated for seconds, so that few are tried."""
MOST_ON_TORUS = 13_000
"""Steps after which the plan of ``torus_tree`` repeats, up to which it is simulated: sums on 512 take minutes."""
LEFT_OUT = "no schedules of trees were sought, which there are for up to {} GPUs here: they may be faster"
"""Said of a network where they may help."""


def forests(scenario: OpCase) -> Iterator[OpChoice]:
    """Yield the choices of ``forest`` to try: trees of the solver, chunks of several sizes, by copy engines or SMs.

    There are none where the file explores other schedules, nor where the network looks the same from every rank and
    named algorithms load it evenly: but for a broadcast, whose root is one rank. Nor are there for an all_to_all whose
    straight routes load no link more than any ways must.
    """
    shape, one_root = scenario.shape, scenario.shape.pattern is Pattern.BROADCAST
    if shape.moved is None or not _may_help(scenario):
        return
    kinds = _kinds(scenario)
    if EngineKind.DMA in kinds:
        if shape.moved.num_bytes >= LEAST_BYTES:
            yield from _by_engines(scenario)
        elif shape.is_collective and shape.pattern.sums and shape.moved.num_bytes >= SM_BYTES.start:
            direct = tuple((root, 1, *(root,) * scenario.num_ranks) for root in range(scenario.num_ranks))
            yield from _of(scenario, direct, 1, 1)  # what a small sum saves is the launches
    least = 0 if one_root else SM_BYTES.start
    if (
        EngineKind.SM in kinds
        and shape.is_collective
        and not shape.pattern.exchanges
        and least <= shape.moved.num_bytes < SM_BYTES.stop
    ):
        yield from _by_sms(scenario)


def _kinds(scenario: OpCase) -> set[EngineKind]:
    """What may copy along trees: the GPU has it, and the file leaves copies to it."""
    kinds = {each.kind for each in scenario.explore.values("engine")} or set(EngineKind)
    return kinds if scenario.gpu.dma.engines else kinds - {EngineKind.DMA}


def _may_help(scenario: OpCase) -> bool:
    """Whether trees may load links less than named algorithms, where rows move and the file leaves the choice."""
    pattern, few = scenario.shape.pattern, scenario.num_ranks <= FEW_RANKS
    if pattern not in forest.PATTERNS or scenario.explore.values("schedules"):
        return False
    if _is_even(scenario) and not (pattern is Pattern.BROADCAST and few):
        return False
    return not pattern.exchanges or relayed_load(scenario) is not None


def left_out(scenario: OpCase) -> str | None:
    """Say that no trees were sought because of how many ranks there are; None where they were, or would not help."""
    moved, most = scenario.shape.moved, _most_ranks(scenario)
    if scenario.num_ranks <= most or scenario.system.fabric.node_size or EngineKind.DMA not in _kinds(scenario):
        return None
    if moved is None or moved.num_bytes < LEAST_BYTES or not _may_help(scenario) or _of_many(scenario):
        return None
    return LEFT_OUT.format(most)


def _most_ranks(scenario: OpCase) -> int:
    """Ranks up to which trees are sought."""
    torus = min(sides_of(scenario), default=0) > 2
    return MOST_RANKS if torus and scenario.shape.pattern is Pattern.ALL_GATHER else MOST_PACKED


def _is_even(scenario: OpCase) -> bool:
    """Whether named algorithms load all links alike: copies pass no rank, or all links are one ring."""
    network = scenario.network
    return not passes_ranks(scenario) or (network.symmetric and sum(edge.source == 0 for edge in network.edges) <= 2)


@lru_cache(maxsize=8)
def _of_many(scenario: OpCase) -> OpChoice | None:
    """One tree, whose copies have rows of many ranks, on a torus with too many ranks for a tree of each; else None."""
    pattern, n, lanes = scenario.shape.pattern, scenario.num_ranks, 2 * len(sides_of(scenario))
    if pattern not in TORUS_TREE.kinds or n <= _most_ranks(scenario) or scenario.gpu.dma.engines < lanes:
        return None
    engine = EngineChoice(EngineKind.DMA, min(2 * lanes, scenario.gpu.dma.engines), EngineMode.CHANNELS)
    tactics = ONE_KERNEL if pattern.sums and _may_poll(scenario) else ExecutionOptions()
    choice = OpChoice(TORUS_TREE.name, n, engine, tactics=tactics, lanes=lanes)
    if reject_choice(scenario, choice) is not None:
        return None
    plan = build_op_plan(scenario, choice)
    return choice if len(plan.steps) * plan.period(n) <= MOST_ON_TORUS else None


def _by_engines(scenario: OpCase) -> Iterator[OpChoice]:
    if (of_many := _of_many(scenario)) is not None:
        yield of_many
    shape, torus, many = scenario.shape, bool(sides_of(scenario)), scenario.num_ranks > FEW_RANKS
    for trees in trees_of(scenario):
        least = len(trees) // scenario.num_ranks  # fewer chunks are the same plan
        alone = PIECES if not many else PIECES[:1] if torus else PIECES[1:]
        counts = BESIDE if shape.pattern.overlaps and not many else alone
        for pieces in dict.fromkeys(max(least, each) for each in counts):
            yield from _of(scenario, trees, pieces, max(1, pieces // 2) if shape.pattern.overlaps else 1)


def _by_sms(scenario: OpCase) -> Iterator[OpChoice]:
    """Copies with a flag every few bytes, by SMs that any copy takes, or dealt to links."""
    if scenario.num_ranks > FEW_RANKS:
        return
    pattern, explore = scenario.shape.pattern, scenario.explore
    known = explore.values("protocol") or tuple(CopyProtocol)
    protocols = [each for each in known if each in scenario.system.fabric.link.protocols]
    protocols = [each for each in protocols if each is not CopyProtocol.SIMPLE]
    counts = [each.count for each in explore.values("engine") if each.kind is EngineKind.SM] or SM_COUNTS
    modes = EngineMode.OWN, EngineMode.CHANNELS
    pieces_of = SM_PIECES if pattern is Pattern.BROADCAST else SM_PIECES[:1]
    small = scenario.shape.moved is not None and scenario.shape.moved.num_bytes < WHOLE_BYTES
    tried = list(product(trees_of(scenario)[: len(SHALLOW)], pieces_of, counts))
    for count in counts if small and protocols else ():
        tried += product(whole_shards(scenario, count), SM_PIECES[:1], (count,))
    for (trees, pieces, count), protocol, mode in product(tried, protocols, modes):
        engine, lanes = EngineChoice(EngineKind.SM, count, mode), _most_links(scenario, trees)
        tactics = ExecutionOptions(protocol=protocol)
        lanes = lanes if mode is EngineMode.CHANNELS else 0
        chunks = pieces * scenario.num_ranks
        choice = OpChoice(forest.TEMPLATE.name, chunks, engine, tactics=tactics, lanes=lanes, trees=trees)
        if _fits(scenario, choice):
            yield choice


def trees_of(scenario: OpCase) -> Sequence[Trees]:
    """The sets of trees to try: on a torus of equal sides, or of many ranks, its own, else those of the solver."""
    grid, few = sides_of(scenario), scenario.num_ranks <= FEW_RANKS
    pattern, most_peers = scenario.shape.pattern, scenario.gpu.dma.engines or scenario.num_ranks
    moved = scenario.shape.moved.num_bytes if scenario.shape.moved else 0
    alone = moved >= LEAST_BYTES and not pattern.overlaps
    few_levels = SHALLOW if moved < LARGE_BYTES or not alone else SHALLOW[:2]
    shapes = LARGE if alone and moved >= HUGE_BYTES else (*few_levels, *EARLY) if alone else few_levels
    if pattern.exchanges:
        return packings(scenario.system.fabric, scenario.num_ranks, TreeFlow.EACH)
    if pattern is Pattern.BROADCAST:
        return packings(scenario.system.fabric, scenario.num_ranks, TreeFlow.FIRST, most_peers, shapes)
    if grid and min(grid) > 2 and (len(set(grid)) == 1 or not few):
        if scenario.num_ranks > _most_ranks(scenario):
            return ()
        return buckets(grid) if few else (early_trees(grid), *buckets(grid))
    if not few and scenario.system.fabric.node_size:
        return ()  # there are algorithms for nodes that are all alike
    flow = TreeFlow.UP if pattern.reduces else TreeFlow.BOTH if pattern.sums else TreeFlow.DOWN
    return packings(scenario.system.fabric, scenario.num_ranks, flow, most_peers, shapes)


Timer = Callable[[Sequence[OpChoice]], Sequence[tuple[int, OpChoice]]]
"""Simulates choices; returns those that end, each behind its ticks."""
Floor = Callable[[OpChoice], float]
"""Ticks that a choice takes at the least, with whatever number of chunks."""


def try_forests(
    scenario: OpCase,
    choices: Sequence[OpChoice],
    timer: Timer,
    least: float = math.inf,
    bound: float = 0,
    floor: Floor = lambda _: 0,
) -> None:
    """Time ``choices``, and with more and fewer chunks what is then near the fastest; others take ``least`` ticks.

    Of a collective alone those with few chunks only where these are no slower than more.

    No schedule takes less than ``bound``: what is within ``GAIN`` of it is not tried with other chunks. Nor is what
    can gain no more than ``LEFT`` over the fastest run, since it takes its ``floor``.
    """
    beside, tried = scenario.shape.pattern.overlaps, list(choices)
    timed = list(timer(choices)) if beside else _from_many_chunks(choices, timer)
    while True:
        fastest = min((least, *(ticks for ticks, _ in timed)))
        if fastest <= (1 + GAIN) * bound:
            return
        doubled = _doubled(scenario, timed, CLOSE * fastest)
        more = [one for one in doubled if one not in tried and floor(one) < (1 - LEFT) * fastest]  # not all have a time
        if not more:
            break
        tried += more
        timed += timer(more)
    for parts, most in (((), 1),) if beside else AROUND:
        fastest = min((ticks for ticks, _ in timed), default=math.inf)
        limit = min(fastest, least)
        best = [choice for ticks, choice in _fastest_of_each(timed)[:most] if ticks <= CLOSE * limit]
        best = [choice for choice in best if floor(choice) < (1 - LEFT) * limit]
        most_chunks = max((one.chunks for one in tried), default=0)
        new = [
            one
            for each in best
            for one in neighbours_of(scenario, each, parts)
            if one not in tried and (beside or one.chunks < max(most_chunks, 2 * each.chunks))
            if _may_gain(scenario, one, each, timed)
        ]
        tried += new
        timed += timer(new) if new else ()
        if min((ticks for ticks, _ in timed), default=math.inf) == fastest:
            return


def _from_many_chunks(choices: Sequence[OpChoice], timer: Timer) -> list[tuple[int, OpChoice]]:
    """Time the choices with the most chunks, and of what differs in that alone fewer while that is no slower."""
    alike, timed = defaultdict[OpChoice, list[OpChoice]](list), list[tuple[int, OpChoice]]()
    for one in sorted(choices, key=lambda one: one.chunks):
        alike[replace(one, chunks=1)].append(one)
    known = dict.fromkeys(alike, math.inf)
    while alike:
        found = timer([some.pop() for some in alike.values()])
        timed += found
        now = {replace(choice, chunks=1): ticks for ticks, choice in found}
        for one in [one for one, some in alike.items() if not some or now.get(one, 0) > known[one]]:
            del alike[one]
        known |= now
    return timed


def _fastest_of_each(timed: Sequence[tuple[int, OpChoice]]) -> list[tuple[int, OpChoice]]:
    """The fastest choice of each set of trees, by time, of equally fast ones that with the fewest chunks."""
    fastest = dict[Trees, tuple[int, OpChoice]]()
    for ticks, choice in sorted(timed, key=lambda one: (one[0], one[1].chunks)):
        fastest.setdefault(choice.trees, (ticks, choice))
    return list(fastest.values())


def _may_gain(scenario: OpCase, one: OpChoice, best: OpChoice, timed: Sequence[tuple[int, OpChoice]]) -> bool:
    """Whether ``one``, with other chunks than ``best``, may be faster by what that gained over half of its chunks.

    Of many chunks fewer where it gained little, and more where it gained something; of few chunks any.
    """
    times = {choice: ticks for ticks, choice in timed}
    half = times.get(replace(best, chunks=best.chunks // 2))
    if half is None or best.chunks <= 2 * FINE * scenario.num_ranks:
        return True
    return half >= (1 + LEFT) * times[best] if one.chunks > best.chunks else half < (1 + GAIN) * times[best]


def _doubled(scenario: OpCase, timed: Sequence[tuple[int, OpChoice]], limit: float) -> Iterator[OpChoice]:
    """Yield twice as many chunks for each set of trees that takes up to ``limit`` with the most chunks it has.

    Of many chunks for the fastest ``CARRIED`` alone.
    """
    if scenario.shape.pattern.overlaps or scenario.num_ranks > FEW_RANKS:
        return
    for place, (ticks, best) in enumerate(_fastest_of_each(timed)):
        if place >= CARRIED and best.chunks >= 2 * FINE * scenario.num_ranks:
            continue
        like = {one.chunks: other for other, one in timed if replace(one, chunks=best.chunks) == best}
        before = min((other for chunks, other in like.items() if chunks < best.chunks), default=math.inf)
        twice = replace(best, chunks=2 * best.chunks)
        paid = max(like) == best.chunks and ticks <= min(limit, (1 - GAIN) * before)
        if paid and twice.chunks * (scenario.num_ranks - 1) <= MOST_DOUBLED and _fits(scenario, twice):
            yield twice


def neighbours_of(scenario: OpCase, best: OpChoice, parts: Parts = AROUND[0][0]) -> Iterator[OpChoice]:
    """Yield ``best`` with such ``parts`` of its chunks; beside a kernel half and twice as many, and as many rows."""
    pieces, waves = best.chunks // scenario.num_ranks, best.waves
    least = len(best.trees) // scenario.num_ranks  # fewer chunks are the same plan
    others = [(max(pieces * part // whole, pieces + 1 if part > whole else 0), 1) for part, whole in parts]
    others += [(pieces - 1, 1), (pieces + 1, 1)] if parts and pieces <= FINE else []
    if scenario.shape.pattern.overlaps:
        others = [(pieces // 2, waves // 2), (pieces * 2, waves * 2), (pieces, waves // 2), (pieces, waves * 2)]
    for other in dict.fromkeys(others):
        if min(other):
            choice = replace(best, chunks=other[0] * scenario.num_ranks, waves=other[1])
            is_new = max(other[0], least) != max(pieces, least) or other[1] != waves
            if is_new and _fits(scenario, choice):
                yield choice


def _of(scenario: OpCase, trees: Trees, pieces: int, waves: int) -> Iterator[OpChoice]:
    """The choice of so many chunks, with a channel for each peer, which two engines serve in turn if there are enough.

    On six machines lanes of engines of their own take up to 21 % longer, engines that are free first up to 43 %. Peers
    behind the same port share channels where these would take all engines: see ``SHARED``.
    """
    pattern, engines = scenario.shape.pattern, scenario.gpu.dma.engines
    lanes = min(_most_links(scenario, trees), engines)
    if lanes == engines and _share_links(scenario, trees):
        lanes = engines // 2 + SHARED
    engine = EngineChoice(EngineKind.DMA, min(2 * lanes, engines), EngineMode.CHANNELS)
    together = pattern.sums and not pattern.overlaps and _may_poll(scenario)
    sums, chunks = SUMS if pattern.sums and not together else 1, pieces * scenario.num_ranks
    tactics = ONE_KERNEL if together else ExecutionOptions()
    choice = OpChoice(
        forest.TEMPLATE.name, chunks, engine, tactics=tactics, waves=waves, sums=sums, lanes=lanes, trees=trees
    )
    if _fits(scenario, choice):
        yield choice


def _may_poll(scenario: OpCase) -> bool:
    """Whether the file leaves kernels free to look for data."""
    kernels, waits = scenario.explore.values("kernel"), scenario.explore.values("wait")
    return ONE_KERNEL.kernel in (kernels or Kernels) and ONE_KERNEL.wait in (waits or Wait)


def _fits(scenario: OpCase, choice: OpChoice) -> bool:
    """Whether a choice is legal, of few steps, and its chunks are large enough for copy engines if these copy."""
    n, moved = scenario.num_ranks, scenario.shape.moved
    assert moved is not None, "a collective moves a tensor"
    cut, steps = max(choice.chunks // n, len(choice.trees) // n), max(len(choice.trees), choice.chunks) * (n - 1)
    if n > MOST_PACKED and steps > MOST_STEPS:
        steps = steps * repeats_after(choice.trees, n, scenario.shape.pattern, scenario.network) // n
    least = LEAST_CHUNK_BYTES if choice.engine.kind is EngineKind.DMA else 1
    if (cut > 1 and moved.num_bytes // n < cut * least) or steps > MOST_STEPS:
        return False
    return reject_choice(scenario, choice) is None


def _peers(scenario: OpCase, trees: Trees) -> Mapping[int, set[int]]:
    """The ranks to which each sends: down the trees, up them, or both."""
    peers, pattern = defaultdict[int, set[int]](set), scenario.shape.pattern
    for _root, _weight, *parents in trees:
        for rank in range(scenario.num_ranks):
            down, up = parents[rank], parents[rank - scenario.num_ranks]
            if rank != down and not pattern.reduces:
                peers[down].add(rank)
            if rank != up and pattern.sums:
                peers[rank].add(up)
    return peers


def _most_links(scenario: OpCase, trees: Trees) -> int:
    """To how many ranks one sends at most."""
    return max(map(len, _peers(scenario, trees).values()))


def _share_links(scenario: OpCase, trees: Trees) -> bool:
    """Whether ways from a rank to several others begin with the same link."""
    first = scenario.network.first_nodes
    peers = _peers(scenario, trees).items()
    return any(len({first[rank][other] for other in others}) < len(others) for rank, others in peers)
