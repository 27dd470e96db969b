"""Calls of a graph -> its ops: a collective and the kernel beside it become a pair, an end of a gemm a part of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir import GraphOp, Made, Read, Shard
from ...ir.operations import CollectiveOperation, KernelOperation
from .combinations import pattern_in_turn
from .graph_calls import GATHER, GEMM, GraphCall
from .parts import WorkloadParts


def ops_of(calls: Sequence[GraphCall]) -> tuple[tuple[GraphOp, ...], tuple[tuple[str, str, Made], ...]]:
    """The ops, in the order of their last calls, and for each tensor that is made its op and what of it it is."""
    places = {call.name: place for place, call in enumerate(calls)}
    groups = sorted(_grouped(calls), key=lambda group: places[group.calls[-1].name])
    _name(groups)
    made = {
        name: (group.name, Made.MOVED if group.gathers_first and call is group.calls[0] else Made.OUTPUT)
        for group in groups
        for call in group.calls
        for name in (call.name, *(end.name for end in group.ends.get(call.name, ())))
    }
    ops = tuple(group.op(made) for group in groups)
    return ops, tuple((name, op, what) for name, (op, what) in made.items())


@dataclass(slots=True)
class _Group:
    """The calls of one op in turn; ``ends`` are row-wise calls at the end of a kernel, by its name: no own kernels."""

    calls: list[GraphCall]
    ends: dict[str, list[GraphCall]] = field(default_factory=dict)
    name: str = ""

    @property
    def moves(self) -> bool:
        """Whether a collective is among its calls."""
        return any(isinstance(call.operation, CollectiveOperation) for call in self.calls)

    @property
    def gathers_first(self) -> bool:
        """Whether a collective brings what a kernel of the same op takes."""
        return len(self.calls) == 2 and isinstance(self.calls[0].operation, CollectiveOperation)

    def op(self, made: Mapping[str, tuple[str, Made]]) -> GraphOp:
        """The op with its workload."""
        parts = WorkloadParts()
        for call in self.calls:
            parts.calls.append(call.operation)
            parts.add(call.made)
        pattern = pattern_in_turn(parts.calls)
        assert pattern is not None, "calls were put together because they form a pattern"
        inner = {call.name for call in self.calls[:-1]}
        tensors = {
            each.seen.name: each.seen for call in self.calls for each in call.operands if each.seen.name not in inner
        }
        results = [call.result for call in self.calls]
        workload = parts.workload(self.name, "", pattern, [*tensors.values(), *results], results)
        return GraphOp(self.name, workload, tuple(self._reads(made, inner)))

    def _reads(self, made: Mapping[str, tuple[str, Made]], inner: set[str]) -> Iterable[Read]:
        for place, call in enumerate(self.calls):
            for position, operand in enumerate(call.operands):
                name = operand.tensor.name
                if name in inner:
                    continue
                maker, what = made.get(name, ("", Made.OUTPUT))
                moves = isinstance(call.operation, CollectiveOperation) and place == 0
                by_rows = position == 0 and not operand.transposed and self._takes_rows(place)
                yield Read(name, maker, what, by_rows, moves, operand.transposed, part=operand.part)

    def _takes_rows(self, place: int) -> bool:
        """Whether rows of the first operand of a call are rows of what its op moves."""
        call, parts = self.calls[place], self.calls[-1].made.in_parts
        by_columns = parts is not None and parts.by_columns
        return place == 0 and call.operation.name in (GATHER, GEMM) and not by_columns


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


def _grouped(calls: Sequence[GraphCall]) -> list[_Group]:
    """Put calls together: each collective with the first kernel that it forms a pattern with."""
    readers: dict[str, list[GraphCall]] = {}
    for call in calls:
        for operand in call.operands:
            readers.setdefault(operand.tensor.name, []).append(call)
    group_of: dict[str, _Group] = {}
    groups: list[_Group] = []
    behind: dict[str, set[str]] = {}  # tensors from which each is made
    for call in calls:
        names = {operand.tensor.name for operand in call.operands}
        behind[call.name] = names.union(*(behind.get(name, set()) for name in names))
        before = group_of.get(call.operands[0].tensor.name)
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


def _needs(group: _Group, call: GraphCall, behind: Mapping[str, set[str]]) -> bool:
    """Whether another operand of a call is made from what the group makes: they would wait for each other."""
    others = (operand.tensor.name for operand in call.operands[1:])
    return any(group.calls[0].name in {other, *behind.get(other, ())} for other in others)


def _ends(group: _Group, call: GraphCall, readers: Mapping[str, Sequence[GraphCall]]) -> bool:
    """Whether a row-wise call is the end of the kernel of a group, which nobody else reads."""
    maker, operand = group.calls[-1], call.operands[0]
    if not isinstance(call.operation, KernelOperation) or len(call.operands) > 1 or not operand.is_plain:
        return False
    return maker.operation.name in call.operation.ends and len(readers[operand.tensor.name]) == 1


def _joins(group: _Group, call: GraphCall, readers: Mapping[str, Sequence[GraphCall]]) -> bool:
    """Whether a call makes a pair of a group of one."""
    (first, *more), operand = group.calls, call.operands[0]
    if more or group.ends or not operand.is_plain or operand.tensor.name != first.name:
        return False
    pattern = pattern_in_turn([first.operation, call.operation])
    flat = first.operands[0].tensor.shard is Shard.FLAT  # of which rows are no part
    if pattern is None or pattern.beside or flat:
        return False
    alone = len(readers[operand.tensor.name]) == 1
    return pattern.consumes or alone
