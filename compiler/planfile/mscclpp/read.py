"""Turn execution plans of MSCCL++ into chunk plans, as far as plans can express them.

Puts and gets become transfers, sums become reductions, and sums that read from peers become gets that add. A
threadblock that copies is an SM; puts through port channels are commands of copy engines, or of a network card where
they lead out of a node inside which threadblocks copy. Copies inside a GPU and waits that bring no data have no
counterpart in a plan and take no time.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from .document import BlockOp, BufferSpace, Channel, ChannelKind, Event, Execution, RunningOp, chunks_of, space_of
from .parse import read_execution, unrolled

# Run an execution plan of MSCCL++ symbolically: its threadblocks in any order that their waits allow.
#
# A threadblock knows the events that happened in it, and those that came with the signals it waited for. A signal
# carries all events that its sender knew or had put.

PUTS = ("put", "pws", "pwsf", "ppkt", "rppkt", "gstore", "gstorepkt")
COPIES = ("copy", "cpkt", "upkt")
SUMS = ("re", "res", "repkt", "recpkt", "respkt", "recspkt")
READ_SUMS = ("rre", "rres", "glre", "glres")
WITH_SIGNAL = ("pws", "pwsf")
READ_PACKETS = ("upkt", "rppkt", "repkt", "recpkt", "respkt", "recspkt")
"""Packets carry flags: operations that read them wait for their arrival."""


@dataclass(slots=True, eq=False)
class _Block:
    """A running threadblock. ``known`` are the bits of events that happened before, ``sent`` those of its own puts."""

    rank: int
    number: int
    ops: tuple[BlockOp, ...]
    next_op: int = 0
    known: int = 0
    sent: int = 0
    released: bool = False


@dataclass(slots=True)
class MscclppRun:
    """One run; ``idle`` counts operations that a plan cannot express and that take no time."""

    execution: Execution
    state: BufferState
    document: Item
    idle: Counter[str] = field(default_factory=Counter)
    _mail: dict[tuple[int, Channel], deque[int]] = field(default_factory=dict)
    _semaphores: dict[tuple[int, int], deque[int]] = field(default_factory=dict)
    _barriers: dict[tuple[int, int], list[_Block]] = field(default_factory=dict)
    _changed: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Run all threadblocks, and check what the output buffers hold at the end."""
        for rank, gpu in enumerate(self.execution.gpus):
            self._semaphores |= {(rank, at): deque([0] * first) for at, first in enumerate(gpu.semaphores)}
        gpus = enumerate(self.execution.gpus)
        blocks = [_Block(rank, at, ops) for rank, gpu in gpus for at, ops in enumerate(gpu.threadblocks)]
        self._run_all(blocks)
        stuck = next((block for block in blocks if block.next_op < len(block.ops)), None)
        if stuck is not None:
            op = stuck.ops[stuck.next_op]
            raise op.item.fail(f"{op.name} waits for what never comes", code=Code.MGS502)
        self._check_end(self.state.space)

    def _run_all(self, blocks: list[_Block]) -> None:
        """Run threadblocks until none can go on; one that waits is tried again after a change at its GPU."""
        ready, parked = deque(blocks), defaultdict[int, list[_Block]](list)
        while ready:
            block = ready.popleft()
            while block.next_op < len(block.ops) and self._do(block, block.ops[block.next_op]):
                block.next_op += 1
            if block.next_op < len(block.ops):
                parked[block.rank].append(block)
            for rank in self._changed:
                ready.extend(parked.pop(rank, ()))
            self._changed.clear()

    def _check_end(self, space: BufferSpace) -> None:
        for rank in range(space.num_ranks):
            for slot, piece, parts in space.ends(rank):
                value = self.state.held.get(slot)
                if value is None or (value.piece, value.parts) != (piece, parts):
                    message = f"output chunk {slot[2] // space.scale} of GPU {rank} does not end as it should"
                    raise self.document.fail(message, code=Code.MGS501)

    def _do(self, block: _Block, op: BlockOp) -> bool:
        """Do one operation, or return False if it has to wait."""
        if op.name in _SYNCS:
            return _SYNCS[op.name](self, block, op)
        if op.name in READ_PACKETS:
            made = self.state.written(op)
            if made is None:
                return False
            block.known |= made
        self._move(block, op, RunningOp(block.rank, block.number, block.next_op, op, block.known))
        if op.name in WITH_SIGNAL:
            self._signal(block, op)
        return True

    def _move(self, block: _Block, op: BlockOp, at: RunningOp) -> None:
        done, sent = 0, 0
        if op.name in COPIES:
            self.state.copy(at)
            self.idle["copies inside a GPU"] += 1
        elif op.name in PUTS:
            sent = self.state.put(at)
        elif op.name == "get":
            done = self.state.get(at)
        elif op.name in SUMS:
            done, sent = self.state.sum(at)
        elif op.name in READ_SUMS:
            done, sent = self.state.read_and_sum(at)
        else:
            raise op.beyond("it is no operation that Magus knows")
        block.known |= done
        block.sent |= sent
        everyone = any(target.everywhere for target in op.targets)
        self._changed.update(range(self.state.space.num_ranks) if everyone else (target.rank for target in op.targets))

    def _nothing(self, block: _Block, op: BlockOp) -> bool:
        return True

    def _signal(self, block: _Block, op: BlockOp) -> bool:
        for channel in op.channels:
            back = Channel(channel.kind, block.rank, channel.number)
            self._mail.setdefault((channel.peer, back), deque()).append(block.known | block.sent)
            self._changed.add(channel.peer)
        return True

    def _wait(self, block: _Block, op: BlockOp) -> bool:
        boxes = [self._mail.get((block.rank, channel)) for channel in op.channels]
        return self._take(block, boxes, heard="waits that bring no data")

    def _acquire(self, block: _Block, op: BlockOp) -> bool:
        return self._take(block, [self._semaphores.get((block.rank, number)) for number in op.numbers])

    def _release(self, block: _Block, op: BlockOp) -> bool:
        for number in op.numbers:
            if (block.rank, number) not in self._semaphores:
                raise op.item.fail(f"there is no semaphore {number}")
            self._semaphores[block.rank, number].append(block.known | block.sent)
        self._changed.add(block.rank)
        return True

    def _take(self, block: _Block, boxes: list[deque[int] | None], heard: str = "") -> bool:
        """Take one message per entry of ``boxes`` if all are there; a box that is listed twice gives two."""
        wanted = Counter(map(id, boxes))
        ready = [box for box in boxes if box is not None and len(box) >= wanted[id(box)]]
        if len(ready) < len(boxes):
            return False
        before = block.known
        for box in ready:
            block.known |= box.popleft()
        if heard and not block.known & ~before & self.state.seen[block.rank]:
            self.idle[heard] += 1
        return True

    def _barrier(self, block: _Block, op: BlockOp) -> bool:
        """The last threadblock to arrive releases all; each then knows what any of them knew."""
        if block.released:
            block.released = False
            return True
        waiting = self._barriers.setdefault((block.rank, op.numbers[0] if op.numbers else 0), [])
        if block not in waiting:
            waiting.append(block)
        if len(waiting) < op.count:
            return False
        known = 0
        for other in waiting:
            known |= other.known | other.sent
        for other in waiting:
            other.known |= known
            other.released = other is not block
        waiting.clear()
        self._changed.add(block.rank)
        return True


_SYNCS: Mapping[str, Callable[[MscclppRun, _Block, BlockOp], bool]] = {
    "nop": MscclppRun._nothing,
    "flush": MscclppRun._nothing,
    "signal": MscclppRun._signal,
    "rlxsignal": MscclppRun._signal,
    "wait": MscclppRun._wait,
    "rlxwait": MscclppRun._wait,
    "sem_acquire": MscclppRun._acquire,
    "sem_release": MscclppRun._release,
    "barrier": MscclppRun._barrier,
}


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
    for number, event in enumerate(events):
        known[first[number]] |= {first[other] for other in _numbers(event.known)}
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
        made.append(replace(events[number], known=bits, count=counts.get(number, events[number].count)))
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
    pairs = pairwise(group)
    one_behind = all(one.piece + one.count == other.piece for one, other in pairs)
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
    assert scenario.shape.moved is not None, "a collective moves a tensor"
    execution = unrolled(execution, scenario.shape.moved.num_bytes // chunks, document)
    space = space_of(scenario, execution, chunks, document)
    run = MscclppRun(execution, BufferState(space), document)
    run.run()
    engine = _engine(scenario, run.state)
    _warn(run, document)
    tactics = ExecutionOptions(protocol=CopyProtocol.LL if execution.packets else CopyProtocol.SIMPLE)
    state = run.state
    state.events, state.seen = joined(state.events, state.seen, space)
    alike = _steps(state, lambda event: f"s_{event.name}")
    if all(steps == alike[0] for steps in alike):
        return WrittenPlan(engine, alike[0], (), tactics)
    # Ranks differ, so signals of several ranks may arrive at one: the rank is part of the name.
    by_rank = _steps(state, lambda event: f"s{event.rank}_{event.name}")
    return WrittenPlan(engine, by_rank[0], (), tactics, by_rank)


def _warn(run: MscclppRun, document: Item) -> None:
    if run.idle:
        parts = " and ".join(f"{count} {name}" for name, count in sorted(run.idle.items()))
        origin = document.origin
        origin.report.warn(Code.MGS527, f"{origin.file}: {parts} take no time here", origin.span)


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


def _steps(state: BufferState, signal: Callable[[Event], str]) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each rank; ``signal`` names the signal of a transfer.

    Their order depends on no run, so that ranks that do the same have the same steps: first those before which fewer
    steps follow each other, then by their place in the threadblock, then by threadblock.
    """
    steps_by_rank: list[list[tuple[tuple[int, int, int], Step]]] = [[] for _ in state.seen]
    before, depths = list[int](), list[int]()
    for event in state.events:
        numbers, covered = _waits(state, event, before)
        waits = [state.events[number] for number in numbers]
        arrives = (each.rank != event.rank or _by_signal(event, each) for each in waits)
        after = sorted(signal(each) if arrived else each.name for each, arrived in zip(waits, arrives, strict=True))
        before.append(covered)
        depths.append(1 + max((depths[number] for number in numbers), default=0))
        step = _step(state.space, event, tuple(after), signal(event))
        steps_by_rank[event.rank].append(((depths[-1], event.number, event.block), step))
    return tuple(tuple(step for _, step in sorted(steps, key=itemgetter(0))) for steps in steps_by_rank)


def _by_signal(event: Event, before: Event) -> bool:
    """Whether ``before`` is a get that a step knows by its signal; a sum takes signals for those of its parts."""
    return before.action.direction is Direction.GET and not (event.action.direction is None and before.action.reduce)


def _waits(state: BufferState, event: Event, before: list[int]) -> tuple[list[int], int]:
    """Return the numbers of the events that a step waits for at its rank, without implied ones, and the bits of all."""
    left, covered, waits = event.known & state.seen[event.rank], 0, list[int]()
    while left:
        number = left.bit_length() - 1
        waits.append(number)
        covered |= before[number] | 1 << number
        left &= ~covered
    return waits, covered


def _step(space: BufferSpace, event: Event, after: tuple[str, ...], signal: str) -> Step:
    region, action = space.region(event.op, event.piece, event.count, event.rank), event.action
    if action.direction is None:
        return Reduction(event.name, region, action.num_parts, after)
    everyone = action.peer is None
    peer = 0 if action.peer is None else (action.peer - event.rank) % space.num_ranks
    reach = Reach.ALL if everyone else Reach.PEER
    return Transfer(event.name, action.direction, region, peer, signal, after, reduce=action.reduce, reach=reach)
