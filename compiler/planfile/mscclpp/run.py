"""Run an execution plan of MSCCL++ symbolically: its threadblocks in any order that their waits allow.

A threadblock knows the events that happened in it, and those that came with the signals it waited for. A signal
carries all events that its sender knew or had put.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...codes import Code
from ...text.diagnostics import Stopped
from ...text.json_forms import Item
from .data import BufferState
from .document import BlockOp, Buffer, BufferSpace, Channel, Execution, RunningOp

PUTS = ("put", "pws", "pwsf", "ppkt", "rppkt", "gstore", "gstorepkt")
COPIES = ("copy", "cpkt", "upkt")
SUMS = ("re", "res", "repkt", "recpkt", "respkt", "recspkt")
READ_SUMS = ("rre", "rres", "glre", "glres")
WITH_SIGNAL = ("pws", "pwsf")
READ_PACKETS = ("upkt", "rppkt", "repkt", "recpkt", "respkt", "recspkt")
"""Packets carry flags: operations that read them wait for their arrival."""


_SIGNALS, _WAITS = ("signal", "rlxsignal"), ("wait", "rlxwait")
_Awaited = tuple[str, int, Channel | int]
"""What a threadblock may wait for: of which kind, at which rank, and the channel or number."""


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
    _unheard: list[tuple[str, int, int]] = field(default_factory=list)

    def run(self) -> None:
        """Run all threadblocks, and check what the output buffers hold at the end."""
        for rank, gpu in enumerate(self.execution.gpus):
            self._semaphores |= {(rank, at): deque([0] * first) for at, first in enumerate(gpu.semaphores)}
        gpus = enumerate(self.execution.gpus)
        blocks = [_Block(rank, at, ops) for rank, gpu in gpus for at, ops in enumerate(gpu.threadblocks)]
        self._run_all(blocks)
        stuck = [block for block in blocks if block.next_op < len(block.ops)]
        if stuck:
            raise self._deadlock(stuck)
        self._check_end(self.state.space)
        self.idle.update(what for what, rank, news in self._unheard if not news & self.state.fetched[rank])

    def _deadlock(self, stuck: Sequence[_Block]) -> Stopped:
        """Report why a run stands still: a wait for what nobody does any more, else a circle of waits."""
        makers: dict[_Awaited, list[_Block]] = {}
        for block in stuck:
            for number, op in enumerate(block.ops[block.next_op :]):
                for made in _made_by(block, op) if number or op.name != "barrier" else ():
                    makers.setdefault(made, []).append(block)
        for block in stuck:
            op = block.ops[block.next_op]
            lonely = next((each for each in self._missing(block, op) if each not in makers), None)
            if lonely is not None:
                whom = f": no signal of rank {lonely[2].peer} is left" if isinstance(lonely[2], Channel) else ""
                return op.item.fail(f"{op.word} waits for what never comes{whom}", code=Code.MGS502)
        chain = [stuck[0]]
        while len(set(chain)) == len(chain):
            chain.append(makers[next(self._missing(chain[-1], chain[-1].ops[chain[-1].next_op]))][0])
        circle = [block.ops[block.next_op].item for block in chain[chain.index(chain[-1]) :]]
        names = " -> ".join([item.path for item in circle[:8]] + ["..."] * (len(circle) > 8))
        return circle[0].fail(f"these wait for each other: {names}", code=Code.MGS503)

    def _missing(self, block: _Block, op: BlockOp) -> Iterator[_Awaited]:
        """Yield what a threadblock that cannot go on waits for."""
        awaited: list[tuple[_Awaited, int]] = []
        if op.name in _WAITS:
            awaited = [
                (("signal", block.rank, each), len(self._mail.get((block.rank, each), ()))) for each in op.channels
            ]
        elif op.name == "sem_acquire":
            found = self._semaphores
            awaited = [(("semaphore", block.rank, each), len(found.get((block.rank, each), ()))) for each in op.numbers]
        for wanted, there in awaited:
            if there < sum(other == wanted for other, _ in awaited):
                yield wanted
        if op.name == "barrier":
            yield "barrier", block.rank, op.numbers[0] if op.numbers else 0
        elif not awaited:
            yield "packets", block.rank, 0

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
        match op.name:
            case "nop" | "flush":
                pass
            case "signal" | "rlxsignal":
                self._signal(block, op)
            case "wait" | "rlxwait":
                boxes = [self._mail.get((block.rank, channel)) for channel in op.channels]
                return self._take(block, boxes, heard="waits that bring no data")
            case "sem_acquire":
                return self._take(block, [self._semaphores.get((block.rank, number)) for number in op.numbers])
            case "sem_release":
                self._release(block, op)
            case "barrier":
                return self._barrier(block, op)
            case _:
                return self._do_on_data(block, op)
        return True

    def _do_on_data(self, block: _Block, op: BlockOp) -> bool:
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

    def _signal(self, block: _Block, op: BlockOp) -> None:
        for channel in op.channels:
            back = Channel(channel.kind, block.rank, channel.number)
            self._mail.setdefault((channel.peer, back), deque()).append(block.known | block.sent)
            self._changed.add(channel.peer)

    def _release(self, block: _Block, op: BlockOp) -> None:
        for number in op.numbers:
            if (block.rank, number) not in self._semaphores:
                raise op.item.fail(f"there is no semaphore {number}")
            self._semaphores[block.rank, number].append(block.known | block.sent)
        self._changed.add(block.rank)

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
            self._unheard.append((heard, block.rank, block.known & ~before))
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


def _made_by(block: _Block, op: BlockOp) -> Iterator[_Awaited]:
    """Yield what others may wait for that an operation makes."""
    if op.name in (*WITH_SIGNAL, *_SIGNALS):
        yield from (("signal", each.peer, Channel(each.kind, block.rank, each.number)) for each in op.channels)
    elif op.name == "sem_release":
        yield from (("semaphore", block.rank, each) for each in op.numbers)
    elif op.name == "barrier":
        yield "barrier", block.rank, op.numbers[0] if op.numbers else 0
    yield from (("packets", each.rank, 0) for each in op.targets if each.buffer is Buffer.SCRATCH)
