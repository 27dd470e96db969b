"""Turn a CommPlan of Syncopate into a chunk plan: its pushes and pulls, and the kernels beside them.

Syncopate's GEMM goes wave by wave, a wave being the transfers that begin at the same time if every one took one unit:
first its own rows and then what each wave has brought, for which it waits once, or what each wave sends and then its
own rows. Terms that come into a buffer of their own are summed by a kernel. A stream carries out one copy at a time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...codes import Code
from ...ir import (
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    IndexRange,
    JsonObject,
    Kernels,
    OpCase,
    Pattern,
    Reduction,
    Region,
    Step,
    Tensor,
    TileGroup,
    Transfer,
    Wait,
    WrittenPlan,
)
from ...text.diagnostics import listing
from ...text.json_forms import TEXT, Form, Item, record
from ...text.units import bytes_text
from ..forms import ENGINE, TACTICS
from .data import BufferPart, CommKind, CommOp, CommPlan, Key

PATTERNS = (
    *(Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE, Pattern.ALL_TO_ALL),
    *(Pattern.AG_GEMM, Pattern.GEMM_RS),
)
"""What is read and written."""
_Placed = tuple[tuple[int, ...], Step]
"""A step and its place among those of its rank."""
_LAST = 1 << 31
_TIME: Form[object] = Form(lambda item: item.value, {})
OWN: Form[JsonObject] = record(
    dict,
    {},
    {"version": TEXT, "schedule": TEXT, "engine": ENGINE, "tactics": TACTICS, "us": _TIME, "read_back_us": _TIME},
)
"""What a file of Magus says of itself: a CommPlan names no engine."""


def reason_against(scenario: OpCase) -> tuple[str, str]:
    """Why no CommPlan does what the scenario asks for, and what does; two empty texts if one does."""
    shape = scenario.shape
    if shape.pattern not in PATTERNS or (shape.pattern.overlaps and shape.gemm is None):
        return f"no CommPlan is read or written for {shape.label}", f"patterns are {listing(map(str, _NAMES))}"
    if shape.uneven or shape.loads or shape.by_columns or shape.moved is None or shape.moved.dtype.block > 1:
        hint = "as many rows for each rank, of a type without scales"
        return "a CommPlan has blocks of equal rows, without scales beside them", hint
    return "", ""


_NAMES = [each.value for each in PATTERNS]


def read_syncopate(scenario: OpCase, document: Item) -> WrittenPlan:
    """Return the plan for ``scenario``; report operations that plans cannot express."""
    why, hint = reason_against(scenario)
    if why:
        raise document.fail(why, hint, Code.MGS526)
    moved = scenario.shape.moved_tensor
    own = OWN.read(document.members()["magus"])
    comm = CommPlan.read(document, scenario.num_ranks, moved.cols, moved.dtype.bytes_of(1))
    other = _of_another(scenario.shape.pattern, moved, scenario.num_ranks, comm)
    if other:
        hint = f"a plan for {scenario.shape.label} of {moved.rows} x {moved.cols}"
        raise document.fail(f"this is the plan of another workload: {other}", hint, Code.MGS524)
    reader = _Reader(scenario, moved, comm, _slots(comm, document))
    engine = own.get("engine") or reader.engine(document)
    reader.check_own_blocks(document)
    if local := sum(op.kind is CommKind.LOCAL_COPY for op in comm.ops.values()):
        origin = document.origin
        origin.report.warn(Code.MGS527, f"{origin.file}: {local} copies inside a GPU take no time here", origin.span)
    usual = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL) if scenario.shape.gemm else ExecutionOptions()
    tactics = own.get("tactics", usual)
    alike = reader.steps(engine, lambda key: f"s_{_name(key)}")
    if all(steps == alike[0] for steps in alike):
        return WrittenPlan(engine, alike[0], (), tactics)
    by_rank = reader.steps(engine, lambda key: f"s{key[0]}_{_name(key)}")
    return WrittenPlan(engine, by_rank[0], (), tactics, by_rank)


def _of_another(pattern: Pattern, moved: Tensor, ranks: int, comm: CommPlan) -> str:
    """Why a plan is of another workload: what it moves, or what becomes of it, differs; empty if it may be of this.

    Rows of one that is damaged do not divide among the ranks, as those of a workload do.
    """
    transfers = [op for op in comm.ops.values() if op.kind is not CommKind.LOCAL_COPY]
    rows = max((part.rows.stop for op in transfers for part in (op.source, op.target)), default=moved.rows)
    if rows != moved.rows and rows % ranks == 0:
        sizes = (bytes_text(moved.dtype.bytes_of(count * moved.cols)) for count in (rows, moved.rows))
        return "it moves a tensor of {}, and here one of {} is moved".format(*sizes)
    if pattern.sums and not (comm.adds or comm.apart):
        return "what arrives is gathered, and nothing is summed"
    if pattern.exchanges and not comm.apart:
        return "blocks arrive at the place that they had at the sender, and all_to_all brings them elsewhere"
    if not (pattern.sums or pattern.exchanges) and all(
        op.adds or op.source.buffer != op.target.buffer for op in transfers
    ):
        return "what arrives is summed or has a buffer of its own, and nothing is gathered"
    if pattern.produces and not any(op.computed for op in transfers):
        return "no transfer waits for a kernel, as for a collective alone"
    return ""


def _slots(comm: CommPlan, document: Item) -> Mapping[Key, int]:
    for op in comm.ops.values():
        missing = [key for key in op.after if key not in comm.ops]
        if missing:
            message = "operation {2} of stream {1} of rank {0}, which it waits for, is not there".format(*missing[0])
            raise op.item.fail(message, code=Code.MGS502)
    try:
        return comm.slots()
    except ValueError as error:
        raise document.fail(str(error), code=Code.MGS503) from None


def _name(key: Key) -> str:
    return f"t{key[1]}_{key[2]}"


@dataclass(frozen=True, slots=True)
class _Reader:
    """A CommPlan for a scenario; ``slots`` are the waves of its operations."""

    scenario: OpCase
    moved: Tensor
    comm: CommPlan
    slots: Mapping[Key, int]

    @property
    def n(self) -> int:
        return self.scenario.num_ranks

    @property
    def per_rank(self) -> int:
        """Rows of a block."""
        return self.moved.rows // self.n

    def engine(self, document: Item) -> EngineChoice:
        """A copy engine for each stream, as far as there are any, where the file names none."""
        if self.comm.adds:
            hint = 'MAGUS = {"engine": {"kind": "sm", "count": 16}} beside the plan'
            raise document.fail("copy engines cannot add, and the file does not say how many SMs copy", hint)
        return EngineChoice(EngineKind.DMA, min(self._streams, self.scenario.gpu.dma.engines))

    @property
    def _streams(self) -> int:
        return 1 + max((stream for _, stream, _ in self.comm.ops), default=0)

    def check_own_blocks(self, document: Item) -> None:
        """Refuse buffers of their own for what arrives, to which a rank does not copy its own block."""
        for rank in range(self.n) if self.comm.apart else ():
            local = [op for key, op in self.comm.ops.items() if key[0] == rank and op.kind is CommKind.LOCAL_COPY]
            if sum(self._region(rank, op.source, op).rows.size for op in local) != self.per_rank:
                message = f"rank {rank} does not copy its own block to where the others come"
                raise document.fail(message, "a LOCAL_COPY of it", Code.MGS501)

    def steps(self, engine: EngineChoice, signal: Callable[[Key], str]) -> tuple[tuple[Step, ...], ...]:
        """Return the steps of each rank in the order of their waves; ``signal`` names the signal of an operation."""
        found: list[list[tuple[tuple[int, ...], Step]]] = [[] for _ in range(self.n)]
        brought: list[list[Key]] = [[] for _ in range(self.n)]
        for key, op in sorted(self.comm.ops.items(), key=lambda pair: (pair[0][1:], pair[0])):
            region = self._transfer_region(key, op)
            if op.kind is not CommKind.LOCAL_COPY:
                brought[self._lands(key)].append(key)
                here, there = self._waits(key, op, signal)
                step = replace(self._transfer(key, region, engine, here), signal=signal(key), peer_after=there)
                found[key[0]].append(((self.slots[key], 1, key[1]), step))
        pattern = self.scenario.shape.pattern
        for rank, keys in enumerate(brought):
            if pattern.consumes:
                found[rank] += self._consumed(rank, keys, signal)
            elif pattern.produces:
                found[rank] += self._produced(rank)
            if pattern.reduces and not self.comm.adds:
                found[rank] += self._summed(rank, keys, signal)
        return tuple(tuple(step for _, step in sorted(each, key=lambda pair: pair[0])) for each in found)

    def _consumed(self, rank: int, keys: list[Key], signal: Callable[[Key], str]) -> Iterator[_Placed]:
        """The kernels of what each wave has brought, behind its transfers."""
        yield (-1,), self._tiles("own", [self._own])
        for slot, wave in self._waves(keys):
            regions = [self._region(rank, self.comm.ops[key].target, self.comm.ops[key]) for key in wave]
            yield (slot, 2), self._tiles(f"g{slot}", regions, tuple(sorted(map(signal, wave))))

    def _produced(self, rank: int) -> Iterator[_Placed]:
        """The kernels of what each wave sends, before its transfers."""
        sent = [key for key, op in self.comm.ops.items() if key[0] == rank and op.kind is not CommKind.LOCAL_COPY]
        for slot, wave in self._waves(sent):
            regions = [self._region(rank, self.comm.ops[key].source, self.comm.ops[key]) for key in wave]
            yield (slot, 0), self._tiles(f"g{slot}", regions)
        yield (_LAST, 0), self._tiles("own", [self._own])

    def _summed(self, rank: int, keys: list[Key], signal: Callable[[Key], str]) -> Iterator[_Placed]:
        """The sums of terms that have come for the same rows."""
        own = ("own",) if self.scenario.shape.pattern.produces else ()
        terms: dict[IndexRange, list[str]] = defaultdict(list)
        for key in keys:
            start = self.comm.ops[key].target.rows.start % self.per_rank
            terms[IndexRange(start, start + self.comm.ops[key].target.rows.size)].append(signal(key))
        cols = IndexRange(0, self.moved.cols)
        for number, (rows, signals) in enumerate(terms.items()):
            after, name = (*own, *sorted(signals)), f"r{number}"
            yield (_LAST, 1, number), Reduction(name, Region(0, rows, cols), 1 + len(signals), after, len(own))

    def _waves(self, keys: list[Key]) -> Iterator[tuple[int, list[Key]]]:
        for slot in sorted({self.slots[key] for key in keys}):
            yield slot, [key for key in keys if self.slots[key] == slot]

    @property
    def _own(self) -> Region:
        return Region(0, IndexRange(0, self.per_rank), IndexRange(0, self.moved.cols))

    def _tiles(self, name: str, brought: list[Region], after: tuple[str, ...] = ()) -> TileGroup:
        """The kernel of the rows of ``brought``; farther ranks first, from whom data comes first."""
        gemm, whole = self.scenario.shape.gemm, self.moved.cols
        assert gemm is not None, "tiles are those of a GEMM"
        if any(each.cols.size != whole for each in brought):
            message = "some columns of rows are moved, and the kernel beside it has whole rows"
            raise self.comm.document.fail(message, "split rows", Code.MGS526)
        rows = sorted(brought, key=lambda each: (-each.owner, each.rows.start))
        regions = tuple(Region(each.owner, each.rows, IndexRange(0, gemm.n)) for each in rows)
        return TileGroup(name, regions, IndexRange(0, gemm.k), after)

    def _lands(self, key: Key) -> int:
        """The rank at which an operation brings something."""
        op = self.comm.ops[key]
        return op.peer if op.kind is CommKind.PUSH and op.peer is not None else key[0]

    def _transfer(self, key: Key, region: Region, engine: EngineChoice, after: tuple[str, ...]) -> Transfer:
        """The step of an operation, without its signal."""
        op, by_dma = self.comm.ops[key], engine.kind is EngineKind.DMA
        assert op.peer is not None, "a local copy is no step"
        if by_dma and key[1] >= engine.count:
            raise op.beyond(f"stream {key[1]} has no engine, {engine} are {engine.count}", "fewer streams")
        lane = key[1] if by_dma or self._streams == 1 else None
        before = (*key[:2], key[2] - 1)
        if lane is None and key[2] and self.comm.ops[before].kind is not CommKind.LOCAL_COPY:
            after = (_name(before), *after)
        direction = Direction.PUT if op.kind is CommKind.PUSH else Direction.GET
        if op.computed and self.scenario.shape.pattern.produces:
            after = (f"g{self.slots[key]}", *after)
        return Transfer(_name(key), direction, region, (op.peer - key[0]) % self.n, "", after, lane, op.adds)

    def _waits(self, key: Key, op: CommOp, signal: Callable[[Key], str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The signals that an operation waits for at its rank and, where it pulls, at its peer."""
        here, there = list[str](), list[str]()
        for other in op.after:
            at = self._lands(other)
            if at != key[0] and (op.kind is not CommKind.PULL or at != op.peer):
                raise op.beyond(f"it waits for what arrives at rank {at}, and rank {key[0]} hears nothing")
            if self.comm.ops[other].kind is not CommKind.LOCAL_COPY:  # what is copied is there from the start
                (here if at == key[0] else there).append(signal(other))
        return tuple(sorted(here)), tuple(sorted(there))

    def _transfer_region(self, key: Key, op: CommOp) -> Region:
        """The rows that an operation moves, which must go where the collective wants them."""
        rank, source, target = key[0], self._region(key[0], op.source, op), op.target
        sender, receiver = (op.peer, rank) if op.kind is CommKind.PULL else (rank, self._lands(key))
        assert sender is not None, "a pull has a peer"
        place = op.source.rows.start
        if op.source.buffer != target.buffer:
            # Terms that are added lie in the block of the receiver, others behind each other by their senders.
            place = source.rows.start if op.adds else sender * self.per_rank + source.rows.start
        pattern, ours = self.scenario.shape.pattern, (rank + source.owner) % self.n == receiver
        fits = ours and (op.adds or pattern.exchanges or pattern.reduces) if self.comm.apart else not pattern.exchanges
        if not fits or target.rows.start != place or target.rows.size != source.rows.size or target.cols != source.cols:
            raise op.beyond(f"{target.buffer}[{target.rows}] is not where these rows of {op.source.buffer} belong")
        return source

    def _region(self, rank: int, part: BufferPart, op: CommOp) -> Region:
        """Rows of the whole tensor, as rows of the block of a rank relative to ``rank``."""
        owner, start = divmod(part.rows.start, self.per_rank)
        if owner >= self.n or start + part.rows.size > self.per_rank:
            message = f"{part.buffer}[{part.rows}] are rows of several ranks, each has {self.per_rank}"
            raise op.beyond(message, "a transfer for each rank")
        return Region((owner - rank) % self.n, IndexRange(start, start + part.rows.size), part.cols)
