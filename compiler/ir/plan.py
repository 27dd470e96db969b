"""A Schedule says what each op of a workload does; a Plan is a schedule as parts, with the waits between them."""

from dataclasses import dataclass, replace
from enum import Enum

from .op_shape import OpShape
from .schedule import OpChoice, OpPlan, WrittenPlan
from .workload import UNCUT, WorkloadCut

COLLECTIVES_STREAM = -1
"""The stream of collectives without a kernel in the same part: these run one after the other."""


class Awaited(Enum):
    """What has to happen in a part before another part goes on."""

    END = "all of it"
    ARRIVED = "what it gathers"
    BEGUN = "the begin of its first kernel"


@dataclass(frozen=True, slots=True)
class PartWait:
    """A wait of a whole part for another one.

    Attributes
    ----------
    on
        The name of the part that is waited for.
    what
        What has to happen there.
    kernels_only
        Whether only the kernels of the waiting part wait, and not its copies.
    """

    on: str
    what: Awaited = Awaited.END
    kernels_only: bool = False


@dataclass(frozen=True, slots=True)
class StepWait:
    """A wait of a single step: for rows that it takes from another part.

    Attributes
    ----------
    step
        The step that waits.
    on, of
        It waits for the step ``of`` of the part ``on``: a kernel, a sum, or the signal of a transfer.
    """

    step: str
    on: str
    of: str


@dataclass(frozen=True, slots=True)
class Part:
    """One op in a plan; or its kernel or its collective alone, if the schedule separates these.

    Attributes
    ----------
    name
        The name of the part: that of the op, ``op.collective`` for a separated collective, ``op@2`` in layer 2.
    op
        The op that the part belongs to.
    shape
        Sizes, types and pattern of the part.
    schedule
        The steps of the part.
    stream
        The stream of its kernels, 0 for the main one. Parts of a stream run in the order of the plan; a lone collective
        begins when all of the part before it in its stream has ended. Further streams of ``schedule`` run side by side
        with this one.
    priority
        Which kernels get free SMs first: those of the least number.
    waits, step_waits
        What the part, or one of its steps, waits for in other parts.
    layer
        The layer of its op, from 1.
    behind_kernels
        Whether a lone collective waits for the kernels that are issued before it in the main stream. One that reads
        nothing of other ops would otherwise run ahead of them.
    """

    name: str
    op: str
    shape: OpShape
    schedule: OpPlan
    stream: int = 0
    priority: int = 0
    waits: tuple[PartWait, ...] = ()
    step_waits: tuple[StepWait, ...] = ()
    layer: int = 1
    behind_kernels: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule worked out: what runs, on what, and after what.

    Attributes
    ----------
    expression
        The name and identity of the plan.
    parts
        In the order in which they are issued: each after those that it waits for.
    sums_priority
        The priority of all kernels that sum, as ``Part.priority``.
    cut
        How the workload was cut into batches and groups before the parts were made.
    """

    expression: str
    parts: tuple[Part, ...]
    sums_priority: int = 0
    cut: WorkloadCut = UNCUT

    @classmethod
    def of_one(cls, name: str, shape: OpShape, schedule: OpPlan) -> "Plan":
        """Return the plan of one op: ``schedule`` carries out ``shape``, as the part ``name``."""
        alone = shape.is_collective
        stream = COLLECTIVES_STREAM if alone else 0
        return cls(schedule.expression, (Part(name, name, shape, schedule, stream, behind_kernels=alone),))

    def part(self, name: str) -> Part:
        """The part of that name.

        Raises
        ------
        KeyError
            If there is none.
        """
        return {part.name: part for part in self.parts}[name]

    @property
    def num_layers(self) -> int:
        """How many layers are written out."""
        return max(part.layer for part in self.parts)

    def first_layer(self) -> "Plan":
        """The plan of the first layer alone."""
        return replace(self, parts=tuple(part for part in self.parts if part.layer == 1))

    def holders(self) -> dict[str, tuple[str, ...]]:
        """For each op that receives data: the other ops that must end before its receive buffer can be used again.

        A lone collective leaves the own block of a rank in its input: an op that reads the result also reads the input.
        """
        parts = {part.name: part for part in self.parts}
        found: dict[str, dict[str, None]] = {part.op: {} for part in self.parts}
        readers: dict[str, dict[str, None]] = {part.op: {} for part in self.parts}
        for part in self.parts:
            for wait in part.waits:
                if wait.what is not Awaited.BEGUN:
                    readers[parts[wait.on].op][part.op] = None
        for part in self.parts:
            for wait in part.waits:
                maker = parts[wait.on]
                pattern = maker.shape.pattern
                lone = maker.shape.is_collective and (pattern.gathers or pattern.exchanges)
                brings = wait.what is Awaited.ARRIVED or (lone and wait.what is Awaited.END)
                if brings and maker.op != part.op:
                    found[maker.op][part.op] = None
                    found[maker.op] |= readers[part.op] if part.shape.is_collective else {}
        return {op: tuple(holders) for op, holders in found.items()}


class HandOff(Enum):
    """When an op may take what another op makes: chunk by chunk, or once all is there. The value is the word."""

    CHUNKS = "chunks"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class OpMode:
    """How one op is carried out.

    Attributes
    ----------
    op
        The name of the op.
    body
        A template with its knobs, or a plan written out; None for the usual serial way.
    separate
        How the collective is carried out, if kernel and collective are parts of their own; else None.
    """

    op: str
    body: OpChoice | WrittenPlan | None = None
    separate: OpChoice | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """What each op of a workload does, and in which order.

    Attributes
    ----------
    name
        The name of the schedule.
    modes
        How some ops are carried out; the other pairs are serial, the other kernels and collectives as usual.
    order
        Ops in the order in which their kernels are issued. Ops that it leaves out are issued when they are needed.
    streams
        (op, stream) of ops whose kernels run side by side with the main stream, which is 0.
    starts_with
        (collective, op): the collective begins with the kernel of that other op.
    low
        Ops whose kernels get free SMs last.
    sums_first
        Whether kernels that sum get free SMs first.
    handoff
        When an op may take what another one makes; by CHUNKS it begins with the first rows.
    batches
        In how many batches the rows are computed. From two on, each batch has ops of its own: ``qkv[0]``, ``qkv[1]``.
    prefetch
        By how many layers earlier a collective of declared tensors, such as weights, is issued.
    deferred
        Parts of ``order``, an op or its collective, that are issued one layer later, at their place in that layer.
    chained
        GEMMs that are cut like the all_to_all before them, and begin with what has arrived.
    groups
        Groups of experts, see ``WorkloadCut``. Ops from a dispatch to its combine exist once for each group: ``h[0]``.
    """

    name: str
    modes: tuple[OpMode, ...] = ()
    order: tuple[str, ...] = ()
    streams: tuple[tuple[str, int], ...] = ()
    starts_with: tuple[tuple[str, str], ...] = ()
    low: tuple[str, ...] = ()
    sums_first: bool = False
    handoff: HandOff = HandOff.CHUNKS
    batches: int = 1
    prefetch: int = 0
    deferred: tuple[str, ...] = ()
    chained: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()

    @property
    def cut(self) -> WorkloadCut:
        """How the workload is cut into batches and groups, which names the ops of this schedule."""
        return WorkloadCut(self.batches, self.groups)

    @property
    def body(self) -> OpChoice | WrittenPlan | None:
        """How its only op is carried out, if the schedule says nothing else; else None."""
        if len(self.modes) != 1 or self != Schedule(self.name, self.modes):
            return None
        return self.modes[0].body

    @property
    def layers_shifted(self) -> int:
        """The largest number of layers by which a part is prefetched or deferred."""
        return max(self.prefetch, 1 if self.deferred else 0)

    @property
    def side_by_side(self) -> bool:
        """Whether kernels of some ops run beside those of the main stream, other than the two of a chain."""
        return any(stream for name, stream in self.streams if name not in self.chained)
