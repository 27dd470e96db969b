"""Programs of work-groups: ``program { for p in 1..ranks - 1 { copy output.shard(0) to p; signal p; wait p } }``.

What a program says is done by each work-group of each rank, one operation after the other. It becomes the operations
that execution plans of MSCCL++ have, and is run, checked and made a plan as these are (``planfile/mscclpp``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...codes import Code
from ...ir import CopyProtocol, Direction, GroupEngine, OpCase, Pattern, WrittenPlan
from ...planfile.mscclpp.document import BlockOp, Buffer, Channel, ChannelKind, Chunk, Execution, GpuDocument
from ...planfile.mscclpp.lone_collective import COLLECTIVE_NAMES
from ...planfile.mscclpp.parse import MAX_OPS
from ...planfile.mscclpp.read import plan_of_execution
from ...planning.knobs.engine import reject_groups, reject_loop
from ...text import syntax as ast
from ...text.diagnostics import Span, listing
from ...text.json_forms import Item, JsonPlace
from ...text.units import NUMBER
from ...text.vocabulary import PROGRAM_BUFFERS, PROGRAM_NUMBERS, PROGRAM_WORDS
from ..values.evaluate import Reading
from ..values.words import Words, known_head
from .group_kernel import check_buffer
from .plan_steps import shard_in

_BUFFERS = dict(zip(PROGRAM_BUFFERS, (Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH), strict=True))
_REGION = "output.shard(0)[0]"
_ANY_SIZE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class _Piece:
    """``count`` chunks from ``first`` on of the block of rank r + ``block``, in a buffer of rank r + ``peer``."""

    buffer: Buffer
    block: int
    first: int
    count: int
    peer: int = 0


@dataclass(frozen=True, slots=True)
class _Operation:
    """What a work-group of rank r does; ``number`` is that of the signals from one work-group to another."""

    name: str
    word: str
    span: Span
    sources: tuple[_Piece, ...] = ()
    targets: tuple[_Piece, ...] = ()
    peer: int = 0
    number: int = 0


@dataclass(slots=True)
class _Group:
    """A work-group: what it does, and what its registers hold, which may be a sum, and be stored."""

    number: int
    done: list[_Operation] = field(default_factory=list)
    loaded: list[_Piece] = field(default_factory=list)
    summed: bool = False
    stored: bool = False


def bound(node: Any, values: Mapping[str, int]) -> Any:
    """Return an expression with the names of ``values`` replaced by their numbers."""
    match node:
        case ast.Name(text=text) if text in values:
            return ast.NumberNode(str(values[text]), span=node.span)
        case tuple():
            return tuple([bound(each, values) for each in node])
        case ast.Node():
            parts = {each.name: getattr(node, each.name) for each in fields(node) if each.name != "span"}
            return replace(node, **{name: bound(part, values) for name, part in parts.items()})
        case _:
            return node


class ProgramReader:
    """Reads the program of a kernel for one collective, of which each rank's block has ``chunks`` chunks."""

    def __init__(self, case: OpCase, engine: GroupEngine, chunks: int, reading: Reading) -> None:
        self._case, self._engine, self._chunks = case, engine, chunks
        self._reading, self._report = reading, reading.report
        self._left = MAX_OPS
        self._known: dict[tuple[object, ...], int] = {}  # of expressions with the values of their names
        self._names: dict[int, frozenset[str]] = {}  # of expressions, which last as long as their block

    def read(self, name: ast.Name, block: ast.BlockNode) -> WrittenPlan:
        """Return the plan that the program in ``block`` is; ``name`` is that of its kernel in the schedule."""
        shape, pattern = self._case.shape, self._case.shape.pattern
        if pattern not in COLLECTIVE_NAMES or shape.uneven or shape.loads or shape.uneven_parts:
            message = f"a program is for a collective of equal blocks alone, and {shape.name} is {shape.label}"
            hint = f"a lone {listing(each.value for each in COLLECTIVE_NAMES)}"
            raise self._report.fail(Code.MGS411, message, name.span, hint)
        self._report.require(reject_groups(self._engine, CopyProtocol.SIMPLE, shape), name.span)
        groups = [_Group(number) for number in range(self._engine.count)]
        for group in groups:
            self._block(group, block, {"self": group.number})
            if group.loaded and not group.stored:
                message = f"work-group {group.number} stores nowhere what it has loaded"
                raise self._report.fail(Code.MGS501, message, block.span, f"store {_REGION}")
        count = sum([len(group.done) for group in groups]) * self._case.num_ranks
        if count > MAX_OPS:
            message = f"the work-groups of all ranks do {count} things, at most {MAX_OPS} are followed"
            raise self._report.fail(Code.MGS411, message, block.span, "fewer chunks, or fewer work-groups")
        gpus = tuple(self._gpu(rank, groups) for rank in range(self._case.num_ranks))
        in_place = pattern is not Pattern.ALL_TO_ALL
        execution = Execution(COLLECTIVE_NAMES[pattern], False, in_place, gpus, 0, _ANY_SIZE)
        whole = Item(None, "", JsonPlace("", name.span, self._report, Code.MGS411))
        return plan_of_execution(self._case, execution, self._chunks * self._case.num_ranks, whole, self._engine)

    def _block(self, group: _Group, block: ast.BlockNode, values: Mapping[str, int]) -> None:
        """Do the statements of a block in order."""
        for statement in block.statements:
            self._spend(statement.span)
            word = known_head(statement, PROGRAM_WORDS, "a program", self._report)
            assert isinstance(statement, ast.Say)
            if word in ("for", "groups"):
                self._repeat(group, statement, word, values)
            elif statement.block is not None:
                raise self._report.fail(Code.MGS116, f"{word} opens no block", statement.span)
            else:
                self._operation(group, word, Words(statement.phrase, self._report), statement.span, values)

    def _spend(self, span: Span) -> None:
        """Count a statement of one rank; operations, which are of all ranks, are as many as plans in files have."""
        self._left -= 1
        if self._left < 0:
            message = f"the work-groups of a rank go through more than {MAX_OPS} statements"
            raise self._report.fail(Code.MGS411, message, span, "shorter loops, or fewer work-groups")

    def _repeat(self, group: _Group, statement: ast.Say, word: str, values: Mapping[str, int]) -> None:
        """Do ``for c in 0..3 { ... }``, or ``groups 0..3 { ... }`` where the work-group is one of these."""
        match statement:
            case ast.Say(
                phrase=(ast.GroupNode(parts=(_, ast.Compare(left=ast.Name(text=name), operator="in", right=ends))),),
                block=ast.BlockNode() as inner,
            ) if word == "for" and isinstance(ends, ast.Range):
                pass
            case ast.Say(phrase=(ast.GroupNode(parts=(_, ast.Range() as ends)),), block=ast.BlockNode() as inner) if (
                word == "groups"
            ):
                name = ""
            case _:
                hint = "for c in 0..chunks - 1 { ... }" if word == "for" else "groups 0..3 { ... }"
                raise self._report.fail(Code.MGS116, f"{word} says numbers, and what is done", statement.span, hint)
        low, high = (self._whole(end, values) for end in (ends.low, ends.high))
        if not name:
            if low <= group.number <= high:
                self._block(group, inner, values)
            return
        if name in PROGRAM_NUMBERS or name in values:
            raise self._report.fail(Code.MGS206, f"'{name}' is a number of the program already", statement.span)
        for value in range(low, high + 1):
            self._spend(statement.span)
            self._block(group, inner, {**values, name: value})

    def _operation(self, group: _Group, word: str, words: Words, span: Span, values: Mapping[str, int]) -> None:
        words.take(word)
        if word == "load" and group.stored:
            group.loaded, group.summed, group.stored = [], False, False
        match word:
            case "load":
                group.loaded.append(self._piece(words, "from", values))
            case "store":
                self._store(group, self._piece(words, "to", values), span)
            case "copy":
                gets = any(isinstance(each, ast.Name) and each.text == "from" for each in words.rest)
                whole = self._piece(words, "from" if gets else "to", values)
                ends = whole, replace(whole, peer=0)
                self._add(group, word, span, ends[:1] if gets else ends[1:], ends[1] if gets else whole)
            case "reduce":
                group.summed = True
            case "signal" | "wait":
                for peer, other in self._whom(group, words, values):
                    one, two = (group.number, other) if word == "signal" else (other, group.number)
                    number = one * self._engine.count + two
                    group.done.append(_Operation(word, word, span, peer=peer, number=number))
            case _:
                group.done.append(_Operation(word, word, span))
        words.end()

    def _store(self, group: _Group, target: _Piece, span: Span) -> None:
        """Store what the registers hold; a sum may be stored in several places."""
        if not group.loaded or (len(group.loaded) == 1 and group.summed):
            what = "adds up one chunk" if group.loaded else "has nothing to store"
            raise self._report.fail(Code.MGS508, f"this {what}", span, f"load {_REGION} before")
        if len(group.loaded) > 1 and not group.summed:
            message = f"{len(group.loaded)} chunks are loaded, and one is stored"
            raise self._report.fail(Code.MGS116, message, span, "reduce adds them up")
        sources = tuple(group.loaded)
        if not group.summed:
            self._add(group, "store", span, sources, target)
        else:
            if group.stored and group.done[-1].word != "store":
                message = f"this stands behind {group.done[-1].word}, and a sum is stored in all its places at once"
                raise self._report.fail(Code.MGS526, message, span, "store it right behind the store before")
            targets = (*group.done.pop().targets, target) if group.stored else (target,)
            self._check(sources, targets, span)
            name = ("rre" if any(each.peer for each in sources) else "re") + "s" * any(each.peer for each in targets)
            group.done.append(_Operation(name, "store", span, sources, targets))
        group.stored = True

    def _add(self, group: _Group, word: str, span: Span, sources: tuple[_Piece, ...], target: _Piece) -> None:
        """Copy one chunk."""
        self._check(sources, (target,), span)
        gets, puts = bool(sources[0].peer), bool(target.peer)
        if gets and puts:
            message = f"this {word} passes on what comes from a peer"
            raise self._report.fail(Code.MGS526, message, span, "store it at this rank first")
        name = "get" if gets else "put" if puts else "copy"
        group.done.append(_Operation(name, word, span, sources, (target,)))

    def _check(self, sources: tuple[_Piece, ...], targets: tuple[_Piece, ...], span: Span) -> None:
        """Check that the ranks have such blocks, and that the kernel says how it gets and puts."""
        wrong = [each for each in (*sources, *targets) if each.buffer is self._own_buffer and each.block != each.peer]
        if wrong:
            buffer = next(word for word, buffer in _BUFFERS.items() if buffer is self._own_buffer)
            message = f"a rank has its own block alone in its {buffer}"
            raise self._report.fail(Code.MGS504, message, span, f"{buffer}.shard({wrong[0].peer})")
        for pieces, direction in ((sources, Direction.GET), (targets, Direction.PUT)):
            if any(each.peer for each in pieces):
                self._report.require(reject_loop(self._engine, direction), span)

    def _whole(self, expression: ast.Expression, values: Mapping[str, int]) -> int:
        """The number that an expression is; loops ask for most of them many times."""
        place = id(expression)
        if place not in self._names:
            self._names[place] = frozenset(each.text for each in ast.nodes_in(expression) if isinstance(each, ast.Name))
        key = place, *(values.get(name) for name in self._names[place])
        if key not in self._known:
            self._known[key] = self._evaluated(expression, values)
        return self._known[key]

    def _evaluated(self, expression: ast.Expression, values: Mapping[str, int]) -> int:
        numbers = self._case.num_ranks, self._engine.count, self._chunks
        known = {**dict(zip(PROGRAM_NUMBERS, numbers, strict=False)), **values}
        value = self._reading.value(bound(expression, known))
        if value.dimension != NUMBER or value.amount.denominator != 1:
            message = f"a whole number is expected here, got {expression.span.text[:40]}"
            raise self._report.fail(Code.MGS304, message, expression.span)
        return int(value.amount)

    def _rank(self, expression: ast.Expression, values: Mapping[str, int], what: str) -> int:
        """A rank relative to this one."""
        value, n = self._whole(expression, values), self._case.num_ranks
        if not -n < value < n:
            message = f"{what} is from 0 to {n - 1}, counted from this rank; got {value}"
            raise self._report.fail(Code.MGS504, message, expression.span)
        return value % n

    def _whom(self, group: _Group, words: Words, values: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """The ranks and the work-group of ``signal 1, 2 group 3``, which is that of the same number if not said."""
        span, listed = words.span, words.take_list("a rank")
        other = group.number
        if words.take_word("group"):
            other = self._whole(words.take("a work-group"), values)
        for each in listed:
            peer = self._rank(each, values, "a rank")
            if not 0 <= other < self._engine.count or (peer == 0 and other == group.number):
                wrong = "the work-group itself" if other == group.number else f"there is no work-group {other}"
                raise self._report.fail(Code.MGS504, f"{wrong}, of {self._engine.count}", span)
            yield peer, other

    def _piece(self, words: Words, clause: str, values: Mapping[str, int]) -> _Piece:
        """Read ``output.shard(1)[0:2] from 1``; without chunks it is the whole block."""
        written = words.take("a region")
        found = shard_in(written)
        if found is None or len(found[2]) > 1:
            raise self._report.fail(Code.MGS116, "chunks of a buffer are expected here", written.span, _REGION)
        buffer, block, cut = found
        check_buffer(buffer, self._report)
        first, stop = self._cut(cut[0], values) if cut else (0, self._chunks)
        piece = _Piece(_BUFFERS[buffer.text], self._rank(block, values, "a block"), first, stop - first)
        if words.take_word(clause):
            piece = replace(piece, peer=self._rank(words.take("a rank"), values, "a peer"))
        words.end((clause,))
        return piece

    @property
    def _own_buffer(self) -> Buffer | None:
        """The buffer that holds the block of its rank alone."""
        return {Pattern.ALL_GATHER: Buffer.INPUT, Pattern.REDUCE_SCATTER: Buffer.OUTPUT}.get(self._case.shape.pattern)

    def _cut(self, written: ast.Expression, values: Mapping[str, int]) -> tuple[int, int]:
        """The first chunk, and the one behind the last."""
        if isinstance(written, ast.Slice):
            first, stop = self._whole(written.start, values), self._whole(written.stop, values)
        else:
            first = self._whole(written, values)
            stop = first + 1
        if not 0 <= first < stop <= self._chunks:
            shown = first if stop == first + 1 else f"{first}:{stop}"
            message = f"chunks {shown} do not exist, a block has {self._chunks}"
            raise self._report.fail(Code.MGS504, message, written.span, "the kernel says chunks")
        return first, stop

    def _gpu(self, rank: int, groups: list[_Group]) -> GpuDocument:
        """What a rank does, with ranks and chunks counted from the first."""
        one, whole = self._chunks, self._chunks * self._case.num_ranks
        read, written = (one if self._own_buffer is buffer else whole for buffer in (Buffer.INPUT, Buffer.OUTPUT))
        blocks = tuple(tuple(self._absolutes(rank, group)) for group in groups)
        return GpuDocument(read, written, (), blocks)

    def _absolutes(self, rank: int, group: _Group) -> Iterator[BlockOp]:
        """Yield what a work-group of ``rank`` does; what stands at one place shares that."""
        n, path, places = self._case.num_ranks, f"work-group {group.number} of rank {rank}", dict[int, JsonPlace]()
        for done in group.done:
            place = places.setdefault(id(done.span), JsonPlace("", done.span, self._report))
            channels: tuple[Channel, ...] = ()
            if done.name in ("signal", "wait"):
                channels = (Channel(ChannelKind.MEMORY, (rank + done.peer) % n, done.number),)
            sources, targets = (
                tuple([self._chunk(rank, each) for each in ends]) for ends in (done.sources, done.targets)
            )
            numbers, count = ((0,), self._engine.count) if done.name == "barrier" else ((), 0)
            away = channels or any(each.peer for each in (*done.sources, *done.targets))
            kind = ChannelKind.MEMORY if away else None
            yield BlockOp(
                done.name, Item(None, path, place), sources, targets, kind, channels, numbers, count, written=done.word
            )

    def _chunk(self, rank: int, piece: _Piece) -> Chunk:
        n = self._case.num_ranks
        block = 0 if piece.buffer is self._own_buffer else (rank + piece.block) % n
        return Chunk((rank + piece.peer) % n, piece.buffer, block * self._chunks + piece.first, piece.count)
