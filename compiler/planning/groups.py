"""Experts in groups: the ops from a dispatch to its combine for some experts of each rank, one group behind the other.

A group is a range of the experts of each rank. Its dispatch moves the rows that any of its experts takes, and its
products read the weights of these alone: in all groups together each weight is read once, as without them, and rows
move more often, since one that goes to experts of two groups at a rank goes there twice. What the groups bring back is
added at once, behind the last.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import product

from ..codes import Code
from ..ir import (
    ElementwiseShape,
    GroupedGemmShape,
    Made,
    Op,
    OpShape,
    Read,
    Rejection,
    RowWiseShape,
    Tensor,
    Workload,
    WorkloadCut,
)
from ..ir import in_batch as in_group
from ..ir.operations.base import Routing
from ..ir.operations.routing import for_experts
from .parts import PlanError, in_batches, op_names


def cut_up(workload: Workload, cut: WorkloadCut) -> Workload:
    """``workload`` in batches, and its experts in groups in each of them.

    Raises
    ------
    PlanError
        If it cannot be cut so.
    """
    workload = in_batches(workload, cut.batches)
    return _Groups(workload, cut.groups).workload() if cut.groups else workload


def axes_in(workload: Workload, cut: WorkloadCut) -> dict[str, tuple[int, ...]]:
    """For each op of ``workload`` in how many batches it is and in how many groups, where it is in several."""
    groups, routed = len(cut.groups), routings(workload)
    return {
        op: (*((len(names),) if len(names) > 1 else ()), *((groups,) if groups and op in routed else ()))
        for op, names in op_names(workload, cut.batches).items()
    }


def names_in(workload: Workload, cut: WorkloadCut) -> dict[str, tuple[str, ...]]:
    """For each op of ``workload`` its names where it is cut up, the groups of a batch behind each other."""
    return {
        op: tuple(reduce(in_group, numbers, op) for numbers in product(*map(range, axes)))
        for op, axes in axes_in(workload, cut).items()
    }


def labels_of(workload: Workload, cut: WorkloadCut) -> dict[str, str]:
    """What each op of ``workload`` is where it is cut up, for people."""
    return {op.name: op.label for op in cut_up(workload, cut).ops}


def experts_of_a_rank(workload: Workload) -> int:
    """How many experts each rank has behind the first dispatch, 0 without one."""
    return next((routing.taken for routing in routings(workload).values()), 0)


def routings(workload: Workload) -> dict[str, Routing]:
    """The ops of which each group has its own, with the routing of their rows: from dispatches to combines.

    So has what is made for these ops alone, such as weights of another type. What adds the rows that combines bring
    takes those of all groups.
    """
    found: dict[str, Routing] = {}
    readers: dict[str, list[Op]] = {}
    back = {op.name for op in workload.ops if op.shape.back}
    for op in workload.ops:
        made = [found[read.made_by] for read in op.reads if read.made_by in found and read.made_by not in back]
        if op.shape.routing is not None or made:
            found[op.name] = op.shape.routing or made[0]
        for read in op.reads:
            readers.setdefault(read.made_by, []).append(op)
    for op in reversed(workload.ops):
        taken = [
            found.get(reader.name) if reader.shape.routing is None else None for reader in readers.get(op.name, ())
        ]
        if op.name not in found and taken and taken[0] is not None and None not in taken:
            found[op.name] = taken[0]
    return found


class _Groups:
    """``whole`` with the experts of each rank in groups of ``sizes``."""

    def __init__(self, whole: Workload, sizes: tuple[int, ...]) -> None:
        self._whole, self._sizes = whole, sizes
        self._ops = {op.name: op for op in whole.ops}
        self._routings = routings(whole)
        moving = {name for name in self._routings if self._ops[name].shape.routing is not None}
        self._back = {name for name in moving if self._ops[name].shape.back}
        self._sent = moving - self._back
        self._dealing = {op.name for op in whole.ops if any(read.made_by in self._sent for read in op.reads)}
        self._leaving = {read.made_by for name in self._back for read in self._ops[name].reads}
        self._of_rows: set[str] = set()  # the others of a group make weights
        for op in whole.ops:
            made = {read.made_by for read in op.reads} & self._of_rows - self._back
            if op.name in moving or (op.name in self._routings and made):
                self._of_rows.add(op.name)
        behind = self._of_rows - self._sent
        reads = (read for name in behind for read in self._ops[name].reads if read.made_by not in self._of_rows)
        self._weights = {read.tensor for read in reads}
        self._carried = set(whole.repeat.carried.values()) if whole.repeat is not None else set[str]()
        for unfit in self._unfit():
            raise PlanError(unfit, "groups")

    def _unfit(self) -> Iterator[Rejection]:
        """Why the workload cannot be computed in these groups."""
        if not self._routings:
            message = f"{self._whole.name} has no dispatch, whose experts could be in groups"
            yield Rejection(Code.MGS209, message, "t = dispatch(x, experts=256, top=8), in the workload")
        made = {op: name for name, op, _ in self._whole.results if name in self._carried}
        for name, routing in self._routings.items():
            op, experts, sizes = self._ops[name], routing.taken, self._sizes
            if sum(sizes) != experts or min(sizes) < 1:
                said = f"groups of {', '.join(map(str, sizes))}" if min(sizes) else f"{len(sizes)} groups"
                message = f"each rank has {experts} experts behind {name}, which do not make up {said}"
                yield Rejection(Code.MGS304, message, f"groups 1 to {experts}, or of experts with that sum")
            yield from self._uneven(name)
            if name in made:
                message = f"{made[name]} has the rows of experts, and all of them are what the next layer takes"
                yield Rejection(Code.MGS520, message, "repeat what comes behind a combine")
            made_by = {read.made_by for read in op.reads if read.made_by}
            if name in self._sent and made_by & self._routings.keys():
                yield Rejection(Code.MGS520, f"{name} dispatches rows of experts, which groups do not have together")
            if name not in self._sent and made_by - self._routings.keys():
                message = f"{name} takes of {', '.join(sorted(made_by - self._routings.keys()))} what others take too"
                yield Rejection(Code.MGS520, message, "groups have each their own: make it once more")
            if op.shape.routing is None and not isinstance(op.shape.kernel, ElementwiseShape | GroupedGemmShape):
                message = f"{name} is {op.label} of rows of experts, which is not computed by groups"
                yield Rejection(Code.MGS520, message, "grouped_gemm, add and row-wise kernels are")

    def _uneven(self, name: str) -> Iterator[Rejection]:
        """Why experts with different rows cannot be in these groups."""
        routing, op = self._routings[name], self._ops[name]
        if len(set(routing.dealt)) == 1:
            return
        empty = next((k for k in range(len(self._sizes)) if not sum(routing.dealt[self._experts(k)])), None)
        if empty is not None:
            message = f"group {empty} of the experts behind {name} has no rows at the hottest rank"
            yield Rejection(Code.MGS304, message, "fewer groups, or groups of other sizes")
        kept = name not in self._sent and any(not read.made_by for read in op.reads)
        if kept and not isinstance(op.shape.kernel, GroupedGemmShape):
            message = f"{name} takes rows of experts that were kept, and experts behind it have different numbers"
            yield Rejection(Code.MGS520, message, "route uniformly, as many rows to each expert")

    def _experts(self, number: int) -> slice:
        """The experts of a rank that are in a group."""
        first = sum(self._sizes[:number])
        return slice(first, first + self._sizes[number])

    def workload(self) -> Workload:
        """The workload with ops of each group."""
        routed, whole = self._routings, self._whole
        made = {name: op for name, op, _ in whole.results if op in routed}
        held = {read.tensor: name for name in routed for read in self._ops[name].reads if self._is_held(name, read)}
        others = {read.tensor for op in whole.ops if op.name not in routed for read in op.reads if not read.made_by}
        tensors, results = list[Tensor](), list[tuple[str, str, Made]]()
        for tensor in whole.tensors:
            op, name = made.get(tensor.name) or held.get(tensor.name), tensor.name
            tensors += [tensor] if op is None or name in others else []
            tensors += [] if op is None else self._tensors(tensor, op, name, made=name in made)
        for name, op, what in whole.results:
            own = [(in_group(name, k), in_group(op, k), what) for k in range(len(self._sizes))]
            results += own if op in routed else [(name, op, what)]
        ops = (
            self._of_all(self._ops[op]) if k is None else self._of_one(self._ops[op], k) for op, k in self._in_turn()
        )
        return replace(whole, ops=tuple(ops), tensors=tuple(tensors), results=tuple(results))

    def _in_turn(self) -> Iterator[tuple[str, int | None]]:
        """The order of issue, as (op, group); None means all groups.

        Each dispatch precedes the kernels of the last group. So those run beside it, and beside
        the combine of the group before theirs.
        """
        waiting, sent = list[str](), list[str]()
        for op in self._whole.ops:
            if op.name in self._sent:
                sent.append(op.name)
                yield op.name, 0
            elif op.name in self._routings:
                waiting.append(op.name)
            else:
                if any(read.made_by in self._routings for read in op.reads):
                    yield from self._group_by_group(waiting, sent)
                    waiting, sent = [], []
                yield op.name, None
        yield from self._group_by_group(waiting, sent)

    def _group_by_group(self, waiting: list[str], sent: list[str]) -> Iterator[tuple[str, int]]:
        """What is ``waiting`` of each group, behind what was ``sent`` of the next one."""
        for number in range(len(self._sizes)):
            yield from ((name, number + 1) for name in sent if number + 1 < len(self._sizes))
            yield from ((name, number) for name in waiting)

    def _is_held(self, op: str, read: Read) -> bool:
        """Whether an op takes by experts what nobody makes: weights, and rows that were kept."""
        return not read.made_by and op not in self._sent

    def _of_one(self, op: Op, number: int) -> Op:
        """An op of one group."""
        reads = (
            _in_group(read, number) if read.made_by in self._routings or self._is_held(op.name, read) else read
            for read in op.reads
        )
        return replace(op, name=in_group(op.name, number), shape=self._shape(op, number), reads=tuple(reads))

    def _of_all(self, op: Op) -> Op:
        """An op that is in no groups; what adds the rows that a combine brings takes those of each."""
        back = next((read for read in op.reads if read.made_by in self._back), None)
        if back is None:
            return op
        shape, kernel = op.shape, op.shape.kernel
        assert isinstance(kernel, RowWiseShape), "a combine ends with such a kernel"
        (whole,) = (each for each in shape.tensors if each.name not in shape.made)
        taken = self._tensors(whole, back.made_by, back.tensor, made=True)
        kernel = replace(kernel, read_bytes=kernel.read_bytes * sum(each.rows for each in taken) // whole.rows)
        tensors = (*taken, *(each for each in shape.tensors if each.name in shape.made))
        reads = tuple(_in_group(back, number) for number in range(len(taken)))
        return replace(op, shape=replace(shape, kernel=kernel, tensors=tensors), reads=reads)

    def _shape(self, op: Op, number: int) -> OpShape:
        """The shape of an op for the experts of one group."""
        name, shape, kernel = op.name, op.shape, op.shape.kernel
        shape = replace(
            shape, tensors=tuple(self._tensor(one, name, number, made=one.name in shape.made) for one in shape.tensors)
        )
        if shape.moved is not None:
            routing = self._routing(name, number)
            return replace(shape, moved=replace(shape.moved, rows=routing.sent), routing=routing)
        if isinstance(kernel, GroupedGemmShape):
            return replace(shape, kernel=replace(kernel, rows=kernel.rows[self._experts(number)]))
        assert isinstance(kernel, ElementwiseShape), "refused at first"
        (made, of_made), (taken, of_taken) = (self._share(name, number, made=made) for made in (True, False))
        if isinstance(kernel, RowWiseShape):
            chosen = kernel.chosen[0] * made // of_made, kernel.chosen[1]
            kernel = replace(kernel, read_bytes=kernel.read_bytes * taken // of_taken, chosen=chosen)
        return replace(shape, kernel=replace(kernel, num_elements=kernel.num_elements * made // of_made))

    def _routing(self, op: str, number: int) -> Routing:
        return for_experts(self._routings[op], sum(self._sizes[:number]), self._sizes[number])

    def _share(self, op: str, number: int, *, made: bool) -> tuple[int, int]:
        """The rows that an op takes or has ``made`` in a group, and in all, in the same unit; of weights the experts.

        Between ranks a row goes once to each, and experts have one each. A dispatch takes all in each group.
        """
        whole = self._routings[op]
        if op not in self._of_rows:
            return self._sizes[number], whole.taken
        if op in self._sent and not made:
            return 1, 1
        if op in self._sent | self._back or op in (self._leaving if made else self._dealing):
            return self._routing(op, number).sent, whole.sent
        return sum(whole.dealt[self._experts(number)]), sum(whole.dealt)

    def _tensor(self, tensor: Tensor, op: str, number: int, *, made: bool) -> Tensor:
        """A tensor that an op takes or has ``made``, in a group; of what is transposed experts lie side by side."""
        part, of = self._share(op, number, made=made)
        if not made and tensor.name in self._weights:
            part, of = self._sizes[number], self._routings[op].taken
        if tensor.name.endswith(".t"):
            return replace(tensor, cols=tensor.cols * part // of)
        return replace(tensor, rows=tensor.rows * part // of)

    def _tensors(self, tensor: Tensor, op: str, name: str, *, made: bool) -> list[Tensor]:
        """The same in each group, called ``name``."""
        numbers = range(len(self._sizes))
        return [replace(self._tensor(tensor, op, k, made=made), name=in_group(name, k)) for k in numbers]


def _in_group(read: Read, number: int) -> Read:
    """An operand in a group."""
    return replace(read, tensor=in_group(read.tensor, number), made_by=read.made_by and in_group(read.made_by, number))
