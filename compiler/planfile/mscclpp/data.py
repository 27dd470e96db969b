"""Effects of the operations of an execution plan of MSCCL++ on buffers.

Each piece of a buffer has a symbolic value. A transfer or a sum becomes an ``Event``, numbered in the order of the run,
so that a set of events is an integer with a bit for each. A get may read what its peer has received or summed: it then
waits for the peer's event. A switch sums only what all ranks have from the start.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...codes import Code
from ...ir import Direction, Pattern
from .document import (
    Action,
    BlockOp,
    Buffer,
    BufferSpace,
    Chunk,
    Event,
    RunningOp,
    Slot,
    SymbolicValue,
    all_made,
    made_by,
    runs,
    where,
)

MAX_EVENTS = 1 << 15


@dataclass(slots=True)
class BufferState:
    """Values of all buffers, and the events so far.

    ``seen[rank]`` are the bits of events that begin or end at a rank. ``named`` counts the events of each operation:
    the second one of operation 4 of threadblock 0 is the step ``t0_4_1``. ``sums_sent`` are the bits of the transfers
    that read a sum of a piece at a rank: a plan has one place for it, so that they come before the next sum there.
    ``fetched`` has for each rank the bits of the events that made what its gets read at peers.
    """

    space: BufferSpace
    events: list[Event] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    held: dict[Slot, SymbolicValue] = field(default_factory=dict)
    named: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    sums_sent: Counter[tuple[int, int]] = field(default_factory=Counter)
    fetched: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.seen = [0] * self.space.num_ranks
        for rank in range(self.space.num_ranks):
            own = frozenset([rank])
            self.held |= {slot: SymbolicValue(piece, own) for slot, piece in self.space.begins(rank)}

    def written(self, op: BlockOp) -> int | None:
        """Return the bits of the events that wrote the scratch data ``op`` reads, None if some of it is missing."""
        made, slots = 0, [slot for chunk in op.sources for slot in self.space.slots(op, chunk)]
        for slot in slots:
            if slot[1] is Buffer.SCRATCH:
                if slot not in self.held:
                    return None
                made |= self.held[slot].made
        return made

    def copy(self, at: RunningOp) -> None:
        """Copy inside a GPU; a plan has no such step."""
        for source, target in self._pairs(at.op):
            self._store(at.op, target, self._read(at, source))

    def put(self, at: RunningOp) -> int:
        """Put to peers; return the bits of the transfers."""
        sent = 0
        for source, target in self._pairs(at.op):
            sent |= self._send(at, self._read(at, source), target)
        return sent

    def get(self, at: RunningOp) -> int:
        """Get from peers; return the bits of the transfers."""
        done = 0
        for source, target in self._pairs(at.op):
            values, bits = self._note(at, self._fetched(at, source), Action(Direction.GET, source.rank))
            done |= bits
            self._store(at.op, target, values)
        return done

    def sum(self, at: RunningOp) -> tuple[int, int]:
        """Sum data of this GPU and send the result on; return the bits of the sums and of the transfers."""
        parts = [self._read(at, source) for source in at.op.sources]
        values, done = self._note(at, self._added(at, parts), Action(num_parts=len(parts)))
        return done, self._deliver(at, values, done)

    def read_and_sum(self, at: RunningOp) -> tuple[int, int]:
        """Sum data of peers into data of this GPU and send the result on; return the bits of both."""
        here = [source for source in at.op.sources if source.rank == at.rank and not source.everywhere]
        there = [source for source in at.op.sources if source not in here]
        switched = [source for source in there if source.everywhere]
        if (len(here), len(there)) != (0, 1) if switched else len(here) != 1:
            raise at.op.beyond("it reads one chunk here and those of peers, or all of them through a switch")
        values = [self._read(at, source) for source in here]
        fetched = [self._everywhere(at, source) if source.everywhere else self._fetched(at, source) for source in there]
        total, done = self._added(at, [*values, *fetched]), 0
        for source in there:
            peer = None if source.everywhere else source.rank
            done |= self._note(at, total, Action(Direction.GET, peer, reduce=True))[1]
        total = made_by(total, done)
        return done, self._deliver(at, total, done)

    def _pairs(self, op: BlockOp) -> Iterator[tuple[Chunk, Chunk]]:
        """Pair sources with targets; a single source goes to all targets."""
        sources = op.sources * len(op.targets) if len(op.sources) == 1 else op.sources
        if not op.targets or len(sources) != len(op.targets):
            raise op.item.fail(f"{op.word} has {len(op.sources)} sources for {len(op.targets)} targets")
        return zip(sources, op.targets, strict=True)

    def _read(self, at: RunningOp, chunk: Chunk) -> list[SymbolicValue]:
        if chunk.rank != at.rank or chunk.everywhere:
            raise at.op.beyond("it reads what a peer holds")
        return self._there(at, chunk)

    def _there(self, at: RunningOp, chunk: Chunk) -> list[SymbolicValue]:
        """Return the values of a chunk, which must be there by what the threadblock knows."""
        values = []
        for slot in self.space.slots(at.op, chunk):
            value = self.held.get(slot)
            if value is None or value.made & ~at.known:
                reason = "nobody has written" if value is None else "may not be there yet: nothing waited for it"
                raise at.op.item.fail(f"{at.op.word} reads {where(chunk)}, which {reason}", code=Code.MGS508)
            values.append(value)
        return values

    def _fetched(self, at: RunningOp, chunk: Chunk) -> list[SymbolicValue]:
        """Return the values that a peer has; of those not there from the start this threadblock must have heard."""
        if chunk.rank == at.rank:
            raise at.op.beyond("it reads what this GPU holds")
        if self.space.pattern is Pattern.ALL_TO_ALL:
            return self._raw(at, chunk, chunk.rank)
        values = self._there(at, chunk)
        self.fetched[at.rank] |= all_made(values)
        return values

    def _everywhere(self, at: RunningOp, chunk: Chunk) -> list[SymbolicValue]:
        """Return the sum of what all GPUs have from the start."""
        ranks = range(self.space.num_ranks)
        return self._added(at, [self._raw(at, Chunk(q, chunk.buffer, chunk.index, chunk.size), q) for q in ranks])

    def _raw(self, at: RunningOp, chunk: Chunk, rank: int) -> list[SymbolicValue]:
        who = "a switch" if self.space.pattern is not Pattern.ALL_TO_ALL else "a get in an all_to_all"
        values = [self.held.get(slot) for slot in self.space.slots(at.op, chunk)]
        if any(value is None or value.made or value.parts != {rank} for value in values):
            raise at.op.beyond(f"{where(chunk)} is not there from the start, and {who} cannot know when it is")
        return [value for value in values if value is not None]

    def _added(self, at: RunningOp, parts: Sequence[Sequence[SymbolicValue]]) -> list[SymbolicValue]:
        """Return the sums of values at the same index: of one piece, each part once, that of this GPU included."""
        sums = []
        for values in zip(*parts, strict=True) if len({len(each) for each in parts}) == 1 else ():
            union = frozenset[int]().union(*(value.parts for value in values))
            if len({value.piece for value in values}) > 1:
                raise at.op.beyond("it sums different parts of the tensor")
            if len(union) < sum(len(value.parts) for value in values):
                raise at.op.item.fail(f"{at.op.word} adds a part twice", code=Code.MGS507)
            sums.append(SymbolicValue(values[0].piece, union, all_made(values)))
        if not sums or any(at.rank not in value.parts for value in sums):
            raise at.op.beyond("it sums chunks of different sizes, or leaves out the part of this GPU")
        return sums

    def _deliver(self, at: RunningOp, values: list[SymbolicValue], done: int) -> int:
        """Store a result here and send it on."""
        sent = 0
        for target in at.op.targets:
            if target.rank == at.rank and not target.everywhere:
                self._store(at.op, target, values)
            else:
                sent |= self._send(replace(at, known=at.known | done), values, target)
        return sent

    def _send(self, at: RunningOp, values: list[SymbolicValue], target: Chunk) -> int:
        if target.rank == at.rank and not target.everywhere:
            raise at.op.beyond("it puts to its own GPU")
        arrived, sent = self._note(at, values, Action(Direction.PUT, None if target.everywhere else target.rank))
        for rank in range(self.space.num_ranks) if target.everywhere else (target.rank,):
            chunk = Chunk(rank, target.buffer, target.index, target.size)
            self._store(at.op, chunk, values if rank == at.rank else arrived)
        return sent

    def _store(self, op: BlockOp, target: Chunk, values: Sequence[SymbolicValue]) -> None:
        slots = self.space.slots(op, target)
        if len(slots) != len(values):
            raise op.item.fail(f"{op.word} moves {len(values)} pieces to where {len(slots)} are")
        self.held.update(zip(slots, values, strict=True))

    def _note(self, at: RunningOp, values: list[SymbolicValue], action: Action) -> tuple[list[SymbolicValue], int]:
        """Record an event for each run of ``values``; return the values as the events leave them, and their bits."""
        made, bits = list[SymbolicValue](), 0
        for first, count in runs(values, self.space.per_block):
            bit = self._event(at, values[first : first + count], action)
            made += made_by(values[first : first + count], bit)
            bits |= bit
        return made, bits

    def _event(self, at: RunningOp, values: Sequence[SymbolicValue], action: Action) -> int:
        """Record one event on values of one run, and return its bit."""
        first, count = values[0], len(values)
        if len(self.events) == MAX_EVENTS:
            raise at.op.beyond(f"it is more than {MAX_EVENTS} steps")
        place = at.rank, at.block, at.number
        bit, name = 1 << len(self.events), f"t{at.block}_{at.number}"
        name += f"_{self.named[place]}" if self.named[place] else ""
        self.named[place] += 1
        known, pieces = at.known | first.made, range(first.piece, first.piece + count)
        for piece in pieces if action.direction is None else ():
            known |= self.sums_sent.pop((at.rank, piece), 0)
        for piece in pieces if action.direction is Direction.PUT and len(first.parts) > 1 else ():
            self.sums_sent[at.rank, piece] |= bit
        read = all_made(values) if action.direction is Direction.GET and action.peer is not None else 0
        self.events.append(Event(at.rank, at.block, at.number, at.op, name, first.piece, count, known, action, read))
        self.seen[at.rank] |= bit
        if action.direction is Direction.PUT:
            for rank in range(self.space.num_ranks) if action.peer is None else (action.peer,):
                self.seen[rank] |= bit
        return bit
