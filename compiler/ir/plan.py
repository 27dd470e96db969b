"""A Schedule says how each op is carried out; a Plan is that as parts, with what each waits for in others."""

from dataclasses import dataclass, replace
from enum import Enum

from .op_shape import OpShape
from .schedule import OpChoice, OpPlan, WrittenPlan
from .workload import UNCUT, WorkloadCut

COLLECTIVES_STREAM = -1
"""The stream of collectives that stand alone, or apart from their kernel: they run one after the other."""


class Awaited(Enum):
    """What of a part another one waits for."""

    END = "all of it"
    ARRIVED = "what it gathers"
    BEGUN = "the begin of its first kernel"


@dataclass(frozen=True, slots=True)
class PartWait:
    """A part waits for another one as a whole; its copies do not where ``kernels_only``."""

    on: str
    what: Awaited = Awaited.END
    kernels_only: bool = False


@dataclass(frozen=True, slots=True)
class StepWait:
    """The step ``step`` of a part waits for the step ``of`` of the part ``on``: for rows that it takes."""

    step: str
    on: str
    of: str


@dataclass(frozen=True, slots=True)
class Part:
    """One op of a workload under its schedule, or the kernel or the collective of one whose schedule keeps them apart.

    ``stream`` is where its kernels run, in the order of parts; a lone collective follows all of the part before it in
    its stream. Streams of ``schedule`` beyond the first are streams beside it. ``priority`` is that of its kernels for
    free SMs, the least first. ``layer`` is that of its op. A lone collective that reads nothing of other ops is
    ``behind_kernels`` of the main stream that are issued before it, so that it does not run ahead of them.
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
    """``parts`` in the order in which they are issued, each after those that it waits for.

    ``expression`` is the identity of the plan. ``sums_priority`` is that of all reductions. ``cut`` says of which ops
    of the workload these are parts.
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
    def splits_k(self) -> bool:
        """Whether kernels of any part compute tiles in parts along k."""
        return any(part.schedule.tactics.split_k > 1 for part in self.parts)

    @property
    def num_layers(self) -> int:
        """How many layers are written out."""
        return max(part.layer for part in self.parts)

    def first_layer(self) -> "Plan":
        """The plan of the first layer alone."""
        return replace(self, parts=tuple(part for part in self.parts if part.layer == 1))

    def holders(self) -> dict[str, tuple[str, ...]]:
        """For each op that brings data: the other ops that must end before its receive buffer can be used again.

        A lone collective leaves its own block where it is: who reads its result also reads that.
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
    """What an op waits for in those that it reads; the value is the word in the language."""

    CHUNKS = "chunks"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class OpMode:
    """How one op is carried out: as ``body`` says; or in two parts, the collective as ``separate`` says."""

    op: str
    body: OpChoice | WrittenPlan | None = None
    separate: OpChoice | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule of a workload.

    ``modes`` are of some ops; the others are serial pairs, kernels and collectives as usual. ``order`` lists ops in the
    order in which their kernels are issued; those it leaves out come as soon as they are needed. ``streams`` are of ops
    whose kernels run side by side with the main stream, 0. ``starts_with`` are pairs of a collective and the op with
    whose kernel it begins. Kernels of ``low`` are served last where SMs are free, and reductions first with
    ``sums_first``. With ``handoff`` by chunks an op begins with the first rows of what it reads.

    In ``batches``, two or more, ops are those of one batch each, ``qkv[0]``; with ``groups``, see ``WorkloadCut``,
    those from a dispatch to its combine are of one group each, ``h[0]``. What collectives bring of tensors that are
    declared, such as weights, is issued ``prefetch`` layers before the one that takes it. ``deferred`` parts of
    ``order``, an op or the collective of one, are issued there a layer later, among those of the next. ``chained``
    GEMMs are cut as the all_to_all that brings what they take, and begin with what has arrived.
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
        """How the workload is cut of whose ops it speaks."""
        return WorkloadCut(self.batches, self.groups)

    @property
    def body(self) -> OpChoice | WrittenPlan | None:
        """How the one op is carried out of which a schedule says that and no more; else None."""
        if len(self.modes) != 1 or self != Schedule(self.name, self.modes):
            return None
        return self.modes[0].body

    @property
    def layers_shifted(self) -> int:
        """Layers by which parts of a layer are prefetched or deferred, at most."""
        return max(self.prefetch, 1 if self.deferred else 0)

    @property
    def side_by_side(self) -> bool:
        """Whether kernels of some ops run beside those of the main stream, other than the two of a chain."""
        return any(stream for name, stream in self.streams if name not in self.chained)
