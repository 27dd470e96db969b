"""Turn execution plans of MSCCL++ into chunk plans, as far as plans can express them.

Puts and gets become transfers, sums become reductions, and sums that read from peers become gets that add. A
threadblock that copies is an SM; puts through port channels are commands of copy engines, or of a network card where
they lead out of a node inside which threadblocks copy. Copies inside a GPU and waits that bring no data have no
counterpart in a plan and take no time.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from operator import itemgetter

from ...codes import Code
from ...ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    OpCase,
    Reach,
    Reduction,
    Step,
    Transfer,
    WrittenPlan,
)
from ...text.json_forms import Item
from .data import BufferState
from .document import BufferSpace, ChannelKind, Event, Execution, chunks_of, space_of
from .parse import read_execution, unrolled
from .run import MscclppRun


def joined(events: Sequence[Event], seen: Sequence[int], space: BufferSpace) -> tuple[list[Event], list[int]]:
    """Return the events with groups joined, each behind those that it knows, and which of them are seen at each rank.

    Groups whose parts wait for each other stay apart.
    """
    groups = list(_groups(events, space))
    if not groups:
        return list(events), list(seen)
    first = list(range(len(events)))  # the event that stands for each
    for group in groups:
        for number in group:
            first[number] = group[0]
    known: dict[int, set[int]] = defaultdict(set)
    read: dict[int, set[int]] = defaultdict(set)
    for number, event in enumerate(events):
        known[first[number]] |= {first[other] for other in _numbers(event.known)}
        read[first[number]] |= {first[other] for other in _numbers(event.read)}
    try:
        order = list(TopologicalSorter({number: sorted(before) for number, before in known.items()}).static_order())
    except CycleError:
        return list(events), list(seen)
    places = {number: place for place, number in enumerate(order)}
    counts = {group[0]: sum(events[number].count for number in group) for group in groups}
    made, closed = list[Event](), list[int]()
    for number in order:
        bits = 0
        for other in known[number]:
            bits |= 1 << places[other] | closed[places[other]]
        closed.append(bits)
        there = sum(1 << places[other] for other in read[number])
        made.append(replace(events[number], known=bits, count=counts.get(number, events[number].count), read=there))
    shown = [sum({1 << places[first[number]] for number in _numbers(each)}) for each in seen]
    return made, shown


def _groups(events: Sequence[Event], space: BufferSpace) -> Iterator[list[int]]:
    """Yield the numbers of the events of each group, in the order of their parts, which lie one behind the other."""
    parts: dict[object, list[list[int]]] = {}
    for number, event in enumerate(events):
        op = event.op
        if op.group > 1:
            key = event.rank, op.name, op.sources, op.targets, op.group, op.window, event.action
            parts.setdefault(key, [[] for _ in range(op.group)])[op.part].append(number)
    for found in parts.values():
        if len({len(each) for each in found}) == 1:
            for group in map(list, zip(*found, strict=True)):
                if _is_whole([events[number] for number in group], space):
                    yield group


def _is_whole(group: Sequence[Event], space: BufferSpace) -> bool:
    one_behind = all(one.piece + one.count == other.piece for one, other in pairwise(group))
    return one_behind and len({event.piece // space.per_block for event in group}) == 1


def _numbers(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def read_mscclpp(scenario: OpCase, document: Item) -> WrittenPlan:
    """Return the plan for ``scenario``, a collective alone; report operations that plans cannot express."""
    execution = read_execution(document)
    chunks = chunks_of(scenario, execution, document)
    execution = unrolled(execution, scenario.shape.moved_tensor.num_bytes // chunks, document)
    return plan_of_execution(scenario, execution, chunks, document)


def plan_of_execution(
    scenario: OpCase, execution: Execution, chunks: int, document: Item, kernel: EngineChoice | None = None
) -> WrittenPlan:
    """Return the plan of an execution without loops, whose moved tensor is cut into ``chunks``.

    ``kernel`` are the work-groups of a program in the language: each step then says which of them it is of.
    """
    space = space_of(scenario, execution, chunks, document)
    run = MscclppRun(execution, BufferState(space), document)
    run.run()
    engine = kernel or _engine(scenario, run.state)
    _warn(run, document)
    tactics = ExecutionOptions(protocol=CopyProtocol.LL if execution.packets else CopyProtocol.SIMPLE)
    state = run.state
    state.events, state.seen = joined(state.events, state.seen, space)
    alike = _steps(state, lambda event: f"s_{event.name}", by_groups=kernel is not None)
    if all(steps == alike[0] for steps in alike):
        return WrittenPlan(engine, alike[0], (), tactics)
    # Ranks differ, so signals of several ranks may arrive at one: the rank is part of the name.
    by_rank = _steps(state, lambda event: f"s{event.rank}_{event.name}", by_groups=kernel is not None)
    return WrittenPlan(engine, by_rank[0], (), tactics, by_rank)


def _warn(run: MscclppRun, document: Item) -> None:
    if run.idle:
        parts = " and ".join(f"{count} {name}" for name, count in sorted(run.idle.items()))
        origin = document.origin
        owner = f"{origin.file}: " if origin.file else ""
        origin.report.warn(Code.MGS527, f"{owner}{parts} take no time here", origin.span)


def _engine(scenario: OpCase, state: BufferState) -> EngineChoice:
    """One SM per threadblock that copies or sums, or one copy engine per port channel in use.

    Both where threads copy inside nodes and ports lead out of them.
    """
    moves = [event for event in state.events if event.action.direction is not None]
    by_port = [event for event in moves if _by_port(event)]
    if by_port and len(by_port) == len(moves):
        ports = {(event.rank, channel) for event in by_port for channel in event.op.channels}
        return EngineChoice(EngineKind.DMA, max(1, min(_most(ports), scenario.gpu.dma.engines)))
    node = scenario.system.fabric.node_size or scenario.num_ranks
    for event in moves if by_port else ():
        peer, port = event.action.peer, _by_port(event)
        if port is (peer is None or peer // node == event.rank // node):
            where, others = ("inside a node", "threads") if port else ("out of a node", "ports")
            raise event.op.beyond(f"it goes {where}, where {others} copy too, and a plan has one pool for that")
    used = {(event.rank, event.block) for event in state.events if not _by_port(event)}
    return EngineChoice(EngineKind.SM, max(1, _most(used)), EngineMode.PORTS if by_port else EngineMode.OWN)


def _by_port(event: Event) -> bool:
    """Whether a copy engine moves what the event moves."""
    return event.action.direction is not None and event.op.kind is ChannelKind.PORT


def _most(used: Iterable[tuple[int, object]]) -> int:
    """The most that one GPU has of what is ``used``, each with its GPU."""
    return max(Counter(rank for rank, _ in used).values(), default=0)


def _steps(state: BufferState, signal: Callable[[Event], str], *, by_groups: bool) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each rank; ``signal`` names the signal of a transfer.

    Their order depends on no run, so that ranks that do the same have the same steps: first those before which fewer
    steps follow each other, then by their place in the threadblock, then by threadblock.
    """
    steps_by_rank: list[list[tuple[tuple[int, int, int], Step]]] = [[] for _ in state.seen]
    before, depths = list[int](), list[int]()
    for event in state.events:
        numbers, covered = _waits(event.known & state.seen[event.rank], before)
        peer = event.rank if event.action.peer is None else event.action.peer
        # What this rank has seen itself it waits for itself.
        there, covered_there = _waits(event.read & state.seen[peer] & ~covered, before)
        after, peer_after = (
            sorted(_awaited(event, state.events[number], rank, signal) for number in found)
            for rank, found in ((event.rank, numbers), (peer, there))
        )
        before.append(covered | covered_there)
        depths.append(1 + max((depths[number] for number in (*numbers, *there)), default=0))
        step = _step(state.space, event, (after, peer_after), signal(event), event.block if by_groups else None)
        steps_by_rank[event.rank].append(((depths[-1], event.number, event.block), step))
    return tuple(tuple(step for _, step in sorted(steps, key=itemgetter(0))) for steps in steps_by_rank)


def _awaited(event: Event, before: Event, rank: int, signal: Callable[[Event], str]) -> str:
    """What a step waits for at ``rank``: a sum takes signals for those of its parts, and gets that add by name."""
    adds = event.action.direction is None and before.action.reduce
    by_signal = before.rank != rank or (before.action.direction is Direction.GET and not adds)
    return signal(before) if by_signal else before.name


def _waits(left: int, before: list[int]) -> tuple[list[int], int]:
    """Return the numbers of those of the events of the bits ``left`` that no other implies, and the bits of all."""
    covered, waits = 0, list[int]()
    while left:
        number = left.bit_length() - 1
        waits.append(number)
        covered |= before[number] | 1 << number
        left &= ~covered
    return waits, covered


def _step(
    space: BufferSpace, event: Event, waits: tuple[Sequence[str], Sequence[str]], signal: str, group: int | None
) -> Step:
    """The step of an event, with its ``waits``: at its own rank, and at its peer."""
    after, peer_after = map(tuple, waits)
    region, action = space.region(event.op, event.piece, event.count, event.rank), event.action
    if action.direction is None:
        return Reduction(event.name, region, action.num_parts, after, group or 0)
    everyone = action.peer is None
    peer = 0 if action.peer is None else (action.peer - event.rank) % space.num_ranks
    reach = Reach.ALL if everyone else Reach.PEER
    said = action.direction, region, peer, signal, after, group, action.reduce, reach
    return Transfer(event.name, *said, peer_after=peer_after)
