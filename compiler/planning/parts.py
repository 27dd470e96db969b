"""The order in which parts of a workload are issued, each after what it reads; and its batches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..codes import Code
from ..ir import GemmShape, Made, Op, OpShape, Pattern, Read, Rejection, Schedule, Workload, in_batch
from ..templates.collective import collective_in
from .build import ScheduleError

_DOT = "."


class PlanError(ScheduleError):
    """A schedule of a workload that cannot be, and why; ``at`` is the word or the op that says it."""

    def __init__(self, rejection: Rejection, at: str) -> None:
        super().__init__(rejection)
        self.at = at


def collective_name(op: Op) -> str:
    """The name of the part that is the collective of an op, where it is separated.

    >>> from ..ir import DType, Shard, Tensor
    >>> x = Tensor("x", DType.BF16, 8, 8, Shard.ROWS)
    >>> collective_name(Op("y", OpShape("y", "", Pattern.AG_GEMM, (), x, None, "y")))
    'y.all_gather'
    """
    collective = collective_in(op.shape.pattern)
    return f"{op.name}{_DOT}{collective.value if collective is not None else 'collective'}"


def issue_order(workload: Workload, choice: Schedule) -> tuple[str, ...]:
    """Names of parts in issue order: of a separated op ``op`` is the kernel, and ``op.all_gather`` its collective.

    What the schedule does not list comes right before what first needs it, and at last in the order of the file, layer
    by layer. What starts with the kernel of an op comes right behind it. A collective of its own comes right
    before or behind its kernel, unless it is listed by itself.

    Raises
    ------
    PlanError
        If an op is listed before one that it needs, or a collective by itself whose op is not separated.
    """
    return _Order(workload, choice).names()


class _Order:
    def __init__(self, workload: Workload, choice: Schedule) -> None:
        self._choice = choice
        self._ops = {op.name: op for op in workload.ops}
        self._separate = {mode.op for mode in choice.modes if mode.separate is not None}
        self._collectives = {collective_name(self._ops[name]): name for name in self._separate}
        self._deferred = frozenset(choice.deferred)
        self._of_a_layer = max(1, len(choice.order) // max((op.layer for op in workload.ops), default=1))
        self._places = {name: place for place, name in enumerate(choice.order)}  # each layer has as many
        self._starts_with = dict(choice.starts_with)
        self._started: dict[str, list[str]] = {}  # what starts with the kernel of each op
        for name, kernel in choice.starts_with:
            self._started.setdefault(kernel, []).append(name)
        self._issued: dict[str, None] = {}  # parts
        self._requested: list[str] = []  # parts that wait for each other, from the first on

    def names(self) -> tuple[str, ...]:
        """Issue everything."""
        for name in (*self._choice.order, *self._choice.deferred):
            self._check_known(name)
        self._check_deferred()
        layers = {name: self._layer(name) for name in (*self._choice.order, *self._ops)}
        names = sorted(self._choice.order, key=lambda name: (layers[name], self._places[name] % self._of_a_layer))
        self._places = {name: place for place, name in enumerate(names)}
        for name in sorted(dict.fromkeys((*names, *self._ops)), key=layers.__getitem__):  # stable: else as listed
            self._issue(name)
        return tuple(self._issued)

    def _layer(self, name: str) -> tuple[int, int]:
        """The layer in which a part is issued, and whether it comes there before others: what is prefetched does."""
        op, prefetch = self._op(name), self._choice.prefetch
        brings = prefetch > 0 and op.shape.is_collective and not any(read.made_by for read in op.reads)
        return (op.layer - prefetch, 0) if brings else (op.layer + (name in self._deferred), 1)

    def _check_known(self, name: str) -> None:
        if name not in self._ops and name not in self._collectives:
            op, _, _ = name.partition(_DOT)
            message = f"{name} is no part of its own: {op} is not separated"
            raise PlanError(Rejection(Code.MGS509, message, f"separate {op} by dma"), "order")

    def _check_deferred(self) -> None:
        """Refuse what is deferred and has no place in the order."""
        for name in self._choice.deferred:
            if name not in self._places:
                message = f"{name} is deferred, and has no place in the order of the next layer"
                raise PlanError(Rejection(Code.MGS503, message, f"order ..., {name}"), "deferred")

    def _op(self, part: str) -> Op:
        return self._ops[self._collectives.get(part, part)]

    def _parts(self, name: str) -> tuple[str, ...]:
        """The parts of an op in the order of its data."""
        op = self._ops[name]
        if name not in self._separate:
            return (name,)
        collective = collective_name(op)
        return (name, collective) if op.shape.pattern.produces else (collective, name)

    def _collective(self, name: str) -> str:
        """The part of an op that is or holds its collective."""
        return collective_name(self._ops[name]) if name in self._separate else name

    def _needs(self, part: str) -> tuple[str, ...]:
        """The parts that come before: what it reads, whose kernel it starts with, the other half of its op.

        What an op gathers is there behind its collective, whose kernel may come later.
        """
        op, is_collective = self._op(part), part in self._collectives
        separate = op.name in self._separate
        made = [
            each
            for read in op.reads
            if read.made_by and (not separate or read.moves == is_collective)
            for each in ((self._collective(read.made_by),) if read.what is Made.MOVED else self._parts(read.made_by))
        ]
        kernel = self._starts_with.get(op.name)
        if kernel is not None and (not separate or is_collective):
            made.append(kernel)
        halves = self._parts(op.name)
        return tuple(dict.fromkeys((*made, *halves[: halves.index(part)])))

    def _issue(self, part: str) -> None:
        """Issue a part behind what it needs, then what starts with its kernel."""
        if part in self._issued:
            return
        if part in self._requested:
            circle = " needs ".join((*self._requested[self._requested.index(part) :], part))
            raise PlanError(Rejection(Code.MGS503, f"ops wait for each other: {circle}"), "start")
        self._requested.append(part)
        for other in self._needs(part):
            self._check_order(other)
            self._issue(other)
        self._requested.pop()
        if part in self._issued:  # it came with what it stands beside
            return
        self._issued[part] = None
        if part in self._ops:
            for other in map(self._collective, self._started.get(part, ())):
                # What has asked for this part comes as soon as it has all that it asks for.
                if other not in self._requested and self._issued.keys() >= set(self._needs(other)):
                    self._issue(other)
            behind = (each for each in self._parts(part)[1:] if each not in self._places and each != part)
            for collective in behind:
                self._issue(collective)

    def _check_order(self, needed: str) -> None:
        """Refuse what is listed behind the listed op that needs it."""
        first = self._requested[0]
        if needed not in self._issued and self._places.get(first, len(self._places)) < self._places.get(needed, -1):
            message = f"{first} is in the order before {needed}, which it needs"
            raise PlanError(Rejection(Code.MGS503, message, f"say {needed} before {first}"), "order")


def kernel_alone(shape: OpShape) -> OpShape:
    """The kernel of a pair without its collective."""
    pattern = Pattern.GEMM if shape.gemm is not None else Pattern.KERNEL
    return replace(shape, pattern=pattern, moved=None, split=(), loads=(), experts=(), by_columns=False)


def collective_alone(shape: OpShape) -> OpShape:
    """The collective of a pair without its kernel."""
    pattern = collective_in(shape.pattern)
    assert pattern is not None, "a pair has a collective"
    return replace(shape, pattern=pattern, gemm=None, kernel=None)


def batch_counts(workload: Workload) -> tuple[int, ...]:
    """The numbers of batches in which ``workload`` can be computed, 1 among them."""
    return (1, *(count for count, _ in workload.batch.cuts)) if workload.batch is not None else (1,)


def in_batches(workload: Workload, count: int) -> Workload:
    """``workload`` in ``count`` batches: ops of each on its share of the rows, of one batch behind the other op by op.

    Weights are shared, and so is what is made of them alone. One batch is the workload itself.

    Raises
    ------
    PlanError
        If the workload cannot be computed in so many.
    """
    if count == 1:
        return workload
    cuts = dict(workload.batch.cuts) if workload.batch is not None else {}
    if workload.batch is None or count not in cuts:
        raise PlanError(_rejection(workload, count), "batches")
    cut = cuts[count]
    names = op_names(workload, count)
    own = {*workload.batch.inputs, *(tensor for tensor, op, _ in cut.results if len(names[op]) > 1)}

    def named(name: str, number: int) -> str:
        return in_batch(name, number) if name in own or len(names.get(name, ())) > 1 else name

    whole = {op.name: op.shape for op in workload.ops}

    def numbers(name: str) -> range:
        return range(count if name in own else 1)

    return replace(
        cut,
        ops=tuple(
            _op(replace(op, reads=tuple(_read(each, number, own, names) for each in op.reads)), names[op.name], number)
            for op in (replace(one, shape=_part_of(one.shape, whole[one.name])) for one in cut.ops)
            for number in range(len(names[op.name]))
        ),
        tensors=tuple(replace(one, name=named(one.name, k)) for one in cut.tensors for k in numbers(one.name)),
        results=tuple((named(name, k), named(op, k), what) for name, op, what in cut.results for k in numbers(name)),
        repeat=None if cut.repeat is None else replace(cut.repeat, batches=count),
    )


def op_names(workload: Workload, count: int) -> dict[str, tuple[str, ...]]:
    """For each op of ``workload`` its names in ``count`` batches: one where it takes nothing that is cut."""
    cut = set(workload.batch.inputs) if workload.batch is not None else set[str]()
    made: set[str] = set()  # ops of which each batch has its own
    for op in workload.ops:
        if any(read.tensor in cut or read.made_by in made for read in op.reads):
            made.add(op.name)
    numbers = range(count)
    return {
        op.name: tuple(in_batch(op.name, k) for k in numbers) if count > 1 and op.name in made else (op.name,)
        for op in workload.ops
    }


def is_summed_last(op: Op) -> bool:
    """Whether ranks add up what an op makes of rows that are cut: behind the last batch, once."""
    return op.shape.pattern in (Pattern.GEMM_RS, Pattern.GEMM_AR) and op.reads[0].transposed


def _op(op: Op, names: Sequence[str], number: int) -> Op:
    """An op in one of its batches."""
    made = replace(op, name=names[number], batch=number)
    if len(names) == 1 or not is_summed_last(op):
        return made
    if number < len(names) - 1:
        return replace(made, shape=kernel_alone(op.shape))
    before = tuple(Read(in_batch(op.shape.output, k), name, adds=True) for k, name in enumerate(names[:-1]))
    return replace(made, reads=(*op.reads, *before))


def _part_of(shape: OpShape, whole: OpShape) -> OpShape:
    """The shape of a batch, whose GEMMs are parts of those of the ``whole`` op: batches leave the clock as it is."""
    gemm, then = shape.gemm, shape.then
    if gemm is not None and whole.gemm is not None:
        gemm = replace(gemm, whole_flops=whole.gemm.flops)
    if then is not None and whole.then is not None and isinstance(then.kernel, GemmShape):
        then = replace(then, kernel=replace(then.kernel, whole_flops=whole.then.kernel.flops))
    return replace(shape, gemm=gemm, then=then)


def _read(read: Read, number: int, own: set[str], names: Mapping[str, tuple[str, ...]]) -> Read:
    """The operand in a batch: a tensor, or what an op makes, of its own or of all."""
    if len(names.get(read.made_by, ())) > 1:
        return replace(read, tensor=in_batch(read.tensor, number), made_by=in_batch(read.made_by, number))
    return replace(read, tensor=in_batch(read.tensor, number)) if read.tensor in own else read


def _rejection(workload: Workload, count: int) -> Rejection:
    if workload.batch is None:
        message = f"{workload.name} does not say which rows may be computed apart"
        return Rejection(Code.MGS209, message, "say it in the workload: batch x by 4096")
    inputs, rows = ", ".join(workload.batch.inputs), workload.batch.rows
    possible = ", ".join(map(str, batch_counts(workload)))
    message = f"{inputs} by {rows} rows cannot be cut into {count} batches"
    return Rejection(Code.MGS304, message, f"numbers of batches that are possible: {possible}")
