"""From a Schedule to the Plan that lowering takes: parts in issue order, with the waits between them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..codes import Code
from ..ir import (
    COLLECTIVES_STREAM,
    Awaited,
    Direction,
    EngineChoice,
    HandOff,
    Made,
    Op,
    OpCase,
    OpChoice,
    OpMode,
    OpPlan,
    OpShape,
    Part,
    PartWait,
    Plan,
    Read,
    Rejection,
    Schedule,
    StepWait,
    System,
    Transfer,
    Workload,
    WrittenPlan,
    tile_cols,
)
from ..templates import BASELINE
from .build import ScheduleError, build_op_plan
from .groups import cut_up
from .handoff import delivered_for, reject_chained, row_waits
from .knobs.engine import default_engine, usual_engine
from .parts import PlanError, collective_alone, collective_name, issue_order, kernel_alone


def written_out(workload: Workload, choice: Schedule, layers: int = 1) -> tuple[Workload, Schedule]:
    """``workload`` cut as ``choice`` says, in so many layers, and ``choice`` for all of them.

    Raises
    ------
    PlanError
        If the workload cannot be cut so.
    """
    workload, choice = cut_up(workload, choice.cut), replace(choice, batches=1, groups=())
    return (workload, choice) if layers == 1 else (layers_of(workload, layers), choice_of_layers(choice, layers))


def in_layer(name: str, layer: int) -> str:
    """The name of an op, or a tensor, in a layer, counted from 1; in the first it is its own.

    >>> in_layer("dh", 1), in_layer("dh", 3)
    ('dh', 'dh@3')
    """
    return name if layer == 1 else f"{name}@{layer}"


def part_in_layer(name: str, layer: int) -> str:
    """The name of a part, which may be the collective of an op, in a layer.

    >>> part_in_layer("dh.all_gather", 3)
    'dh@3.all_gather'
    """
    op, dot, collective = name.partition(".")
    return f"{in_layer(op, layer)}{dot}{collective}"


def own_name(name: str) -> str:
    """The name of an op in the first layer, from that in any.

    >>> own_name("dh@3")
    'dh'
    """
    return name.partition("@")[0]


def layers_of(workload: Workload, layers: int) -> Workload:
    """``workload`` with so many layers, each of which takes the result of the one before as its input."""
    made = {tensor: (op, what) for tensor, op, what in workload.results}
    ops = tuple(_op(workload, op, layer, made) for layer in range(1, layers + 1) for op in workload.ops)
    results = tuple(
        (in_layer(tensor, layer), in_layer(op, layer), what)
        for layer in range(1, layers + 1)
        for tensor, op, what in workload.results
    )
    return replace(workload, ops=ops, results=results, repeat=None)


def _op(workload: Workload, op: Op, layer: int, made: dict[str, tuple[str, Made]]) -> Op:
    reads = tuple(_read(workload, read, layer, made) for read in op.reads)
    return replace(op, name=in_layer(op.name, layer), reads=reads, layer=layer)


def _read(workload: Workload, read: Read, layer: int, made: dict[str, tuple[str, Made]]) -> Read:
    if read.made_by:
        return replace(read, tensor=in_layer(read.tensor, layer), made_by=in_layer(read.made_by, layer))
    carried = workload.repeat.carried if workload.repeat is not None and layer > 1 else {}
    if read.tensor not in carried:
        return read
    result = carried[read.tensor]
    op, what = made[result]
    return replace(read, tensor=in_layer(result, layer - 1), made_by=in_layer(op, layer - 1), what=what)


def choice_of_layers(choice: Schedule, layers: int) -> Schedule:
    """``choice`` for each of so many layers; the order is that of one after the other."""
    numbers = range(1, layers + 1)
    return replace(
        choice,
        modes=tuple(replace(mode, op=in_layer(mode.op, layer)) for layer in numbers for mode in choice.modes),
        order=tuple(part_in_layer(name, layer) for layer in numbers for name in choice.order),
        streams=tuple((in_layer(name, layer), stream) for layer in numbers for name, stream in choice.streams),
        starts_with=tuple(
            (in_layer(name, n), in_layer(kernel, n)) for n in numbers for name, kernel in choice.starts_with
        ),
        low=tuple(in_layer(name, layer) for layer in numbers for name in choice.low),
        chained=tuple(in_layer(name, layer) for layer in numbers for name in choice.chained),
        deferred=tuple(part_in_layer(name, layer) for layer in numbers for name in choice.deferred),
    )


LOW, FIRST = 1, -1
"""Priorities of kernels that are served last, and of sums that are served first."""


def build_plan(system: System, workload: Workload, choice: Schedule, layers: int = 1) -> Plan:
    """The plan for ``choice`` on ``system``, of so many layers of ``workload``, cut as the choice says.

    Raises
    ------
    ScheduleError
        If an op cannot be carried out as the choice says, the order of ops cannot be kept, or the workload cannot be
        cut so.
    """
    cut = choice.cut
    workload, choice = written_out(workload, choice, layers)
    builder = _Builder(system, workload, choice)
    for name in issue_order(workload, choice):
        builder.add(name)
    return Plan(choice.name, tuple(builder.parts.values()), FIRST if choice.sums_first else 0, cut)


@dataclass(frozen=True, slots=True)
class PartNeed:
    """What a part reads of the part ``maker``: it waits for ``whole``, or instead for ``rows`` if there are any."""

    tensor: str
    maker: str
    whole: tuple[PartWait, ...]
    rows: tuple[StepWait, ...]


def needs_of(system: System, workload: Workload, parts: Mapping[str, Part], part: Part) -> Iterator[PartNeed]:
    """What ``part`` reads of other ``parts`` of its plan, which are given by their names.

    Raises
    ------
    PlanError
        If it gets what a peer makes.
    """
    yield from _Builder(system, workload, Schedule(""), dict(parts)).needs(workload.op(part.op), part)


@dataclass(slots=True)
class _Builder:
    """The parts so far, by name."""

    system: System
    workload: Workload
    choice: Schedule
    parts: dict[str, Part] = field(default_factory=dict)
    built: dict[tuple[OpShape, object], OpPlan] = field(default_factory=dict)

    def add(self, name: str) -> None:
        """Add the part of that name: an op, or of one that is separated the kernel or the collective."""
        op_name, _, collective = name.partition(".")
        op = self.workload.op(op_name)
        mode = self._mode(op)
        if mode.separate is None:
            self._add(op, op.name, op.shape, self._schedule(op, mode.body))
            return
        if not op.is_pair or op.shape.then is not None:
            message = f"{op.name} is {op.shape.label}: it has no kernel and collective to separate"
            raise PlanError(
                Rejection(Code.MGS509, message, "separate is for an op with both, such as AG+GEMM"), op.name
            )
        if op.shape.uneven_by_rank:
            message = f"the kernel of {op.name} is as large as the rank's loads: it is not simulated as a part"
            raise PlanError(Rejection(Code.MGS515, message, "leave it to a template"), op.name)
        if not collective:
            kernel = kernel_alone(op.shape)
            self._add(op, op.name, kernel, self._usual(op, kernel, default_engine(self.system)))
            return
        alone, serial = collective_alone(op.shape), self._usual(op, op.shape, mode.separate.engine)
        schedule = replace(self._built(op, alone, mode.separate), staging_bytes=serial.staging_bytes)
        self._add(op, name, alone, schedule)

    def _add(self, op: Op, name: str, shape: OpShape, schedule: OpPlan) -> None:
        stream = COLLECTIVES_STREAM if shape.is_collective else dict(self.choice.streams).get(op.name, 0)
        priority = LOW if op.name in self.choice.low else 0
        free = not any(read.made_by for read in op.reads) and op.name not in dict(self.choice.starts_with)
        behind = op.shape.is_collective and free
        part = Part(name, op.name, shape, schedule, stream, priority, layer=op.layer, behind_kernels=behind)
        waits, step_waits = self._waits(op, part)
        self.parts[name] = replace(part, waits=waits, step_waits=step_waits)

    def _mode(self, op: Op) -> OpMode:
        return next((mode for mode in self.choice.modes if mode.op == op.name), OpMode(op.name))

    def _schedule(self, op: Op, body: OpChoice | WrittenPlan | None) -> OpPlan:
        if body is None:
            usual = self._usual(op, op.shape, usual_engine(self.system, op.shape))
            return self._chained(op, usual) if op.name in self.choice.chained else usual
        return self._built(op, op.shape, body)

    def _chained(self, op: Op, usual: OpPlan) -> OpPlan:
        """The kernel of an op cut as the all_to_all that brings what it takes."""
        found = delivered_for(self.workload, op, self.system.num_ranks)
        if found is None:
            message = f"{op.name} is {op.label}, which is not cut as another op"
            raise PlanError(Rejection(Code.MGS509, message, "chained is for a GEMM behind GEMM+A2A"), op.name)
        (pair, delivered), maker = found, self.parts[found[0]]
        steps = delivered.cut_as(maker.schedule, tile_cols(op.shape))
        unfit = reject_chained(op, self.workload.op(pair), maker, steps)
        if unfit is not None:
            raise PlanError(unfit, op.name)
        return replace(usual, expression=f"chained to {maker.schedule.expression}", steps=steps)

    def _usual(self, op: Op, shape: OpShape, engine: EngineChoice) -> OpPlan:
        return self._built(op, shape, OpChoice(BASELINE.name, self.system.num_ranks, engine))

    def _built(self, op: Op, shape: OpShape, body: OpChoice | WrittenPlan) -> OpPlan:
        key = (shape, body)
        try:
            if isinstance(body, WrittenPlan):
                return build_op_plan(self._scenario(shape), body, f"{self.choice.name}.{op.name}")
            if key not in self.built:  # layers are alike
                self.built[key] = build_op_plan(self._scenario(shape), body)
            return self.built[key]
        except ScheduleError as error:
            raise PlanError(error.rejection, op.name) from None

    def _scenario(self, shape: OpShape) -> OpCase:
        return OpCase(shape.name, self.system, shape)

    def _waits(self, op: Op, part: Part) -> tuple[tuple[PartWait, ...], tuple[StepWait, ...]]:
        """What a part waits for: results that it reads, the other part of its op, and what it starts with."""
        waits: list[PartWait] = []
        steps: list[StepWait] = []
        for need in self.needs(op, part):
            steps += need.rows
            waits += () if need.rows else need.whole
        kernel = dict(self.choice.starts_with).get(op.name)
        if kernel is not None and (part.shape.is_collective or not op.shape.pattern.overlaps):
            waits.append(PartWait(kernel, Awaited.BEGUN))
        return tuple(dict.fromkeys(waits)), tuple(dict.fromkeys(steps))

    def needs(self, op: Op, part: Part) -> Iterator["PartNeed"]:
        """What a part reads of parts before it, the other part of its op last."""
        for read in op.reads:
            if read.made_by and self._reads(op, part, read):
                self._check_direction(op, part, read)
                maker = self._maker(read)
                rows = row_waits(maker, part, self.system.num_ranks) if self._by_rows(op, read, maker) else ()
                yield PartNeed(read.tensor, maker.name, tuple(self._whole(op, part, read)), rows)
        other = self._other_half(op, part)
        if other is not None:
            yield PartNeed(f"one half of {op.name}", other, (PartWait(other),), ())

    def _reads(self, op: Op, part: Part, read: Read) -> bool:
        """Whether it is this part of an op that takes the operand."""
        return part.shape == op.shape or read.moves == part.shape.is_collective

    def _by_rows(self, op: Op, read: Read, maker: Part) -> bool:
        wanted = self.choice.handoff is HandOff.CHUNKS or op.name in self.choice.chained
        return wanted and read.by_rows and read.what is Made.OUTPUT and maker.op == maker.name

    def _maker(self, read: Read) -> Part:
        """The part after which what is read is there."""
        op = self.workload.op(read.made_by)
        names = [name for name in (op.name, collective_name(op)) if name in self.parts]
        separated = len(names) == 2
        collective_last = read.what is Made.MOVED or op.shape.pattern.produces
        return self.parts[names[1] if separated and collective_last else names[0]]

    def _whole(self, op: Op, part: Part, read: Read) -> Iterator[PartWait]:
        """Wait for all of what is read; what is gathered is there with what others send, and the own block of it."""
        maker = self._maker(read)
        kernels_only = part.shape.pattern.consumes and not read.moves
        if read.what is Made.MOVED and not maker.shape.is_collective:
            yield PartWait(maker.name, Awaited.ARRIVED, kernels_only)
            for gathered in self.workload.op(read.made_by).reads:
                if gathered.moves and gathered.made_by:
                    yield from self._whole(op, part, replace(gathered, moves=read.moves))
        else:
            yield PartWait(maker.name, Awaited.END, kernels_only)

    def _other_half(self, op: Op, part: Part) -> str | None:
        """The part of the same op that comes before this one."""
        if part.shape == op.shape:
            return None
        first = op.name if op.shape.pattern.produces else collective_name(op)
        return first if first != part.name else None

    def _check_direction(self, op: Op, part: Part, read: Read) -> None:
        """Refuse copies that get what a peer makes: nothing says when it is there, but in a lone collective."""
        gets = any(isinstance(s, Transfer) and s.direction is Direction.GET for s in part.schedule.steps)
        if gets and read.moves and not part.shape.is_collective:
            message = f"{op.name} gets {read.tensor} from peers, and no signal says when {read.made_by} has made it"
            raise PlanError(Rejection(Code.MGS517, message, "let the rank that makes it put it: transfer=put"), op.name)
