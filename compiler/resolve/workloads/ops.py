"""Calls become ops: a collective and the kernel that takes or makes what it moves are one, with ends of the kernel.

A workload of a kernel and a collective that need nothing of each other is one op too, and so is one of two kernels
with an all_to_all between them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ir import AttentionShape, ElementwiseShape, GemmShape, Made, Op, OpShape, Pattern, Read, Shard, Tensor, Then
from ...ir.operations import CollectiveOperation, Exchange, KernelOperation, Operation
from ...ir.operations.routing import SEND_BACK
from .calls import GATHER, GEMM, WorkloadCall


def ops_of(
    calls: Sequence[WorkloadCall], tensors: Iterable[str], *, alone: bool
) -> tuple[tuple[Op, ...], tuple[tuple[str, str, Made], ...]]:
    """Return the ops, in the order of their last calls, and for each result its op and whether that gathers it.

    ``tensors`` are the names of all tensors, in order. ``alone``: whether ``calls`` are all there is, once.
    """
    places = {call.name: place for place, call in enumerate(calls)}
    one = alone and _is_one(calls)
    groups = [_Group(list(calls))] if one else sorted(_grouped(calls), key=lambda each: places[each.calls[-1].name])
    _name(groups)
    made = {
        name: (group.name, Made.MOVED if group.gathers_first and call is group.calls[0] else Made.OUTPUT)
        for group in groups
        for call in group.calls
        for name in (call.name, *(end.name for end in group.ends.get(call.name, ())))
    }
    unnamed = {call.name for call in calls if call.name != call.definition}
    order = {name: place for place, name in enumerate(sorted(tensors, key=unnamed.__contains__))}
    ops = tuple(_with_loads(group.op(made, order) for group in groups))
    return ops, tuple((name, op, what) for name, (op, what) in made.items())


@dataclass(slots=True)
class _Group:
    """The calls of one op in turn; ``ends`` are row-wise calls at the end of a kernel, by its name: no own kernels."""

    calls: list[WorkloadCall]
    ends: dict[str, list[WorkloadCall]] = field(default_factory=dict)
    name: str = ""

    @property
    def moves(self) -> bool:
        """Whether a collective is among its calls."""
        return any(isinstance(call.operation, CollectiveOperation) for call in self.calls)

    @property
    def gathers_first(self) -> bool:
        """Whether a collective brings what a kernel of the same op takes."""
        return len(self.calls) == 2 and isinstance(self.calls[0].operation, CollectiveOperation)

    @property
    def pattern(self) -> Pattern:
        """The pattern of the calls."""
        operations = [call.operation for call in self.calls]
        pattern = independent_pattern(operations) if self._is_independent else pattern_in_turn(operations)
        assert pattern is not None, "calls were put together because they form a pattern"
        return pattern

    @property
    def _is_independent(self) -> bool:
        return len(self.calls) == 2 and not _takes(self.calls[1], self.calls[0])

    def op(self, made: Mapping[str, tuple[str, Made]], order: Mapping[str, int]) -> Op:
        """The op with its workload, whose tensors are in the order of ``order``, by their names."""
        inner = {call.name for call in self.calls[:-1]}
        operands = {
            each.seen.name: each for call in self.calls for each in call.operands if each.seen.name not in inner
        }
        found = [(order[each.tensor.name], each.seen) for each in operands.values()]
        results = sorted((order[call.name], _result(call)) for call in self.calls)
        tensors = [tensor for _, tensor in sorted([*found, *results], key=lambda each: each[0])]
        names = tuple(tensor.name for _, tensor in results)
        return Op(self.name, self._shape(tuple(tensors), names), tuple(self._reads(made, inner)))

    def _shape(self, tensors: tuple[Tensor, ...], made: tuple[str, ...]) -> OpShape:
        """What the calls are together: of two kernels the first computes the output."""
        exchange = next((call.made.exchange for call in reversed(self.calls) if call.made.exchange), Exchange())
        moving = next((call for call in self.calls if call.made.moved is not None), None)
        parts = moving.made.in_parts if moving is not None else None
        first, then = (*(call for call in self.calls if call.made.kernel is not None), None, None)[:2]
        kernel = first.made.kernel if first is not None else None
        return OpShape(
            name=self.name,
            about="",
            pattern=self.pattern,
            tensors=tensors,
            moved=moving.made.moved if moving is not None else None,
            gemm=kernel if isinstance(kernel, GemmShape) else None,
            output=first.name if first is not None else self.calls[0].name,
            kernel=None if isinstance(kernel, GemmShape) else kernel,
            split=exchange.split,
            made=made,
            then=Then(then.made.kernel, then.name) if then is not None and then.made.kernel is not None else None,
            loads=exchange.loads if parts is None else parts.loads,
            by_columns=parts is not None and parts.by_columns,
            experts=exchange.experts,
            rank=exchange.busiest,
            routing=exchange.routing if moving is not None else None,
            back=moving is not None and moving.operation is SEND_BACK,
        )

    def _reads(self, made: Mapping[str, tuple[str, Made]], inner: set[str]) -> Iterable[Read]:
        for place, call in enumerate(self.calls):
            for position, operand in enumerate(call.operands):
                name = operand.tensor.name
                if name in inner:
                    continue
                maker, what = made.get(name, ("", Made.OUTPUT))
                moves = isinstance(call.operation, CollectiveOperation)
                by_rows = position == 0 and not operand.transposed and self._takes_rows(place)
                yield Read(name, maker, what, by_rows, moves, operand.transposed, part=operand.part)

    def _takes_rows(self, place: int) -> bool:
        """Whether the op may begin with some rows of the first operand of a call, before the others are there."""
        call, parts = self.calls[place], self.calls[-1].made.in_parts
        by_columns = parts is not None and parts.by_columns
        return place == 0 and call.operation.name in (GATHER, GEMM) and not by_columns


def _with_loads(ops: Iterable[Op]) -> Iterator[Op]:
    """The ops, row-wise kernels of rows that differ from rank to rank with as many rows at each rank as come there."""
    made: dict[str, OpShape] = {}
    for op in ops:
        shape, before = op.shape, [made.get(read.made_by) for read in op.reads]
        first = before[0] if before else None
        alike = first is not None and all(each is not None and each.loads == first.loads for each in before)
        if first is not None and alike and isinstance(shape.kernel, ElementwiseShape) and shape.moved is None:
            shape = replace(shape, loads=first.loads, rank=first.rank)
        if shape.uneven_by_rank or (shape.moved is None and shape.loads):
            made[op.name] = shape
        yield replace(op, shape=shape)


def _result(call: WorkloadCall) -> Tensor:
    """What a call makes, as the op has it: what is gathered lies in the rows that the ranks had."""
    return call.made.tensor if call.operation.name == GATHER else call.result


def _name(groups: Sequence[_Group]) -> None:
    """Name each op: of those that one definition makes the last collective has its name, or else the last of all.

    The others are named after the definition and what they do.
    """
    by_definition: dict[str, list[_Group]] = {}
    for group in groups:
        by_definition.setdefault(group.calls[-1].definition, []).append(group)
    taken = set(by_definition)
    for definition, of_it in by_definition.items():
        main = next((group for group in reversed(of_it) if group.moves), of_it[-1])
        for group in of_it:
            word = f"{definition}_{group.calls[-1].operation.name}"
            numbers = (f"{word}{number}" for number in range(2, len(groups) + 3))
            group.name = definition if group is main else next(n for n in (word, *numbers) if n not in taken)
            taken.add(group.name)


def _is_one(calls: Sequence[WorkloadCall]) -> bool:
    """Whether all calls of a workload are one op that calls among others would not be."""
    if not all(operand.is_plain for call in calls for operand in call.operands):
        return False
    match calls:
        case (first, second):
            return not _takes(second, first) and independent_pattern([first.operation, second.operation]) is not None
        case (first, second, third):
            in_turn = _takes(second, first) and _takes(third, second) and not _takes(third, first)
            in_turn = in_turn and not _is_apart(first)
            return in_turn and pattern_in_turn([call.operation for call in calls]) is not None
        case _:
            return False


def _takes(call: WorkloadCall, other: WorkloadCall) -> bool:
    """Whether a call takes what another makes."""
    return other.name in {operand.tensor.name for operand in call.operands}


def _grouped(calls: Sequence[WorkloadCall]) -> list[_Group]:
    """Put calls together: each collective with the first kernel that it forms a pattern with."""
    readers: dict[str, list[WorkloadCall]] = {}
    for call in calls:
        for operand in call.operands:
            readers.setdefault(operand.tensor.name, []).append(call)
    group_of: dict[str, _Group] = {}
    groups: list[_Group] = []
    behind: dict[str, set[str]] = {}  # tensors from which each is made
    for call in calls:
        names = {operand.tensor.name for operand in call.operands}
        behind[call.name] = names.union(*(behind.get(name, set()) for name in names))
        before = group_of.get(call.operands[call.takes].tensor.name)
        if before is not None and _ends(before, call, readers):
            before.ends.setdefault(before.calls[-1].name, []).append(call)
            group_of[call.name] = before
        elif before is not None and _joins(before, call, readers) and not _needs(before, call, behind):
            before.calls.append(call)
            group_of[call.name] = before
        else:
            groups.append(_Group([call]))
            group_of[call.name] = groups[-1]
    return groups


def _needs(group: _Group, call: WorkloadCall, behind: Mapping[str, set[str]]) -> bool:
    """Whether another operand of a call is made from what the group makes: they would wait for each other."""
    others = (operand.tensor.name for place, operand in enumerate(call.operands) if place != call.takes)
    return any(group.calls[0].name in {other, *behind.get(other, ())} for other in others)


def _ends(group: _Group, call: WorkloadCall, readers: Mapping[str, Sequence[WorkloadCall]]) -> bool:
    """Whether a row-wise call is the end of the kernel of a group, which nobody else reads."""
    maker, operand = group.calls[-1], call.operands[0]
    if not isinstance(call.operation, KernelOperation) or len(call.operands) > 1 or not operand.is_plain:
        return False
    return maker.operation.name in call.operation.ends and len(readers[operand.tensor.name]) == 1


def _joins(group: _Group, call: WorkloadCall, readers: Mapping[str, Sequence[WorkloadCall]]) -> bool:
    """Whether a call makes a pair of a group of one."""
    (first, *more), operand = group.calls, call.operands[call.takes]
    if more or group.ends or not operand.is_plain or operand.tensor.name != first.name:
        return False
    pattern = pattern_in_turn([first.operation, call.operation])
    if pattern is None or pattern.independent or _is_apart(first):
        return False
    return pattern.consumes or len(readers[operand.tensor.name]) == 1


def _is_apart(call: WorkloadCall) -> bool:
    """Whether nothing overlaps a call: rows are no part of flat shards, nor heads alike with values of other sizes."""
    kernel = call.made.kernel
    values = isinstance(kernel, AttentionShape) and kernel.values is not None
    return values or call.operands[0].tensor.shard is Shard.FLAT


def pattern_in_turn(calls: Sequence[Operation]) -> Pattern | None:
    """The pattern of calls of which each takes what the one before it makes; None where that is not simulated."""
    match tuple(calls):
        case (KernelOperation() | CollectiveOperation() as alone,):
            return alone.alone
        case (CollectiveOperation() as collective, KernelOperation() as kernel) if collective.name in kernel.after:
            return collective.before_kernel
        case (KernelOperation() as kernel, CollectiveOperation() as collective) if collective.name in kernel.before:
            return collective.after_kernel
        case (KernelOperation() as first, CollectiveOperation() as collective, KernelOperation() as second):
            joined = collective.name in first.before and collective.name in second.after
            return collective.between_kernels if joined and first.name in second.follows else None
        case _:
            return None


def independent_pattern(calls: Sequence[Operation]) -> Pattern | None:
    """The pattern of two calls, in any order, that need nothing of each other; None where that is not simulated."""
    match sorted(calls, key=lambda call: isinstance(call, CollectiveOperation)):
        case [KernelOperation() as kernel, CollectiveOperation() as collective] if collective.name in kernel.beside:
            return collective.independent_kernel
        case _:
            return None
