"""The resolved scenario: a system, a workload, schedules, what to explore.

Nothing here refers to source text. Times are ticks of 10 fs, sizes are bytes, rates are bytes or operations per second.
Fractions are exact. Later stages take a Scenario, or an OpCase where they look at one op.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Any

from ..codes import Code
from .costs import GemmModel
from .hardware import Gpu
from .implementation import Implementation
from .op_shape import OpShape
from .operations.routing_laws import DRAWN_LAWS, RoutingLaw
from .plan import OpMode, Plan, Schedule
from .schedule import EngineChoice, EngineKind, EngineMode, NamedSchedule, OpPlan, Reach, Transfer
from .stopping import Rejection
from .topologies import Fabric, Network, network_of, part_of
from .variability import BackgroundTraffic, Replay, Variability
from .workload import Workload


@dataclass(frozen=True, slots=True)
class Explore:
    """The schedules to search.

    Attributes
    ----------
    requested
        (word of a knob, its values) for each knob that the file names, sorted by word. For the other knobs the search
        chooses: several templates, chunks, engines and streams, and the default value of all else. ``depth`` is tried
        with the requested values and with everything held.
    staging_limit_bytes
        The most memory of a rank for what is neither input nor output; None for no limit.
    dominance
        Whether to leave out schedules that are assumed to be no faster than others of the space.
    implementations
        The implementations that the file names.
    """

    requested: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    staging_limit_bytes: int | None = None
    dominance: bool = True
    implementations: tuple[Implementation, ...] = ()

    @classmethod
    def of(
        cls, *, staging_limit_bytes: int | None = None, dominance: bool = True, **requested: tuple[Any, ...]
    ) -> "Explore":
        """An Explore from the values of knobs, each by its word."""
        given = tuple(sorted((word, values) for word, values in requested.items() if values))
        return cls(given, staging_limit_bytes, dominance)

    def values(self, word: str) -> tuple[Any, ...]:
        """The values that the knob of this word may have, none where the file leaves them to the search."""
        return dict(self.requested).get(word, ())

    def asking(self, word: str, values: tuple[Any, ...]) -> "Explore":
        """The same with these values of one knob."""
        return replace(self, requested=tuple(sorted({**dict(self.requested), word: values}.items())))

    def covering(self, schedules: Iterable[OpPlan]) -> "Explore":
        """The same, with the parts along k of ``schedules``: so a bound holds for these too."""
        splits = {each.tactics.split_k for each in schedules} - {1}
        return self.asking("split_k", tuple(sorted({*self.values("split_k"), *splits}))) if splits else self


TICKS_PER_SECOND = 10**14
TICKS_PER_US = 10**8


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a mesh: a group along it has ``size`` ranks, whose numbers differ by ``stride``."""

    name: str
    size: int
    stride: int


def adjacent(axes: Iterable[Axis]) -> tuple[Axis, ...] | Rejection:
    """Return axes that lie next to each other, the innermost first; a Rejection (MGS440) if they do not."""
    found = tuple(sorted(axes, key=lambda axis: (axis.stride, axis.size)))
    for inner, outer in pairwise(found):
        if outer == inner:
            return Rejection(Code.MGS440, f"{outer.name} is there twice")
        if outer.stride != inner.stride * inner.size:
            message = f"{outer.name} does not lie next to {inner.name} in the mesh"
            return Rejection(Code.MGS440, message, "a group is of axes that follow each other")
    return found


@dataclass(frozen=True, slots=True)
class System:
    """Equal GPUs that are joined by one fabric.

    Attributes
    ----------
    name
        The name of the system, or of a group of one: ``pod.tp``.
    num_ranks
        The number of GPUs.
    gpu, fabric
        What each GPU is, and how they are joined.
    variability
        How times of ranks differ; None if they do not.
    replay
        A profile of writes into the memory of rank 0. With it only rank 0 is simulated, and the writes of the other
        ranks are those of the profile.
    mesh
        The axes of the ranks, the innermost first; then those of a second mesh over the same ranks, if there is one.
    of
        For a group of ranks, the number of ranks of the whole system; else 0.
    traffic
        Traffic of other programs that runs during every plan.
    """

    name: str
    num_ranks: int
    gpu: Gpu
    fabric: Fabric
    variability: Variability | None = None
    replay: Replay | None = None
    mesh: tuple[Axis, ...] = field(default=(), hash=False)
    of: int = 0
    traffic: BackgroundTraffic | None = None

    @property
    def title(self) -> str:
        """How many GPUs of which kind: ``8 x H100``, or of a group ``pod.tp, 8 of 128 x H100``; and whether alone."""
        group = f"{self.name}, {self.num_ranks} of {self.of}" if self.of else f"{self.num_ranks}"
        return f"{group} x {self.gpu.name}{' with other traffic' if self.traffic is not None else ''}"

    @property
    def random(self) -> bool:
        """Whether anything differs from seed to seed."""
        return any(each is not None and each.random for each in (self.variability, self.traffic))

    def axes(self, names: tuple[str, ...]) -> tuple[Axis, ...] | Rejection:
        """Return the axes of these names, the innermost first, or why they are no group."""
        known = {axis.name: axis for axis in self.mesh}
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            hint = f"axes are: {', '.join(known)}" if known else "a mesh names them: mesh tp 8, dp 4"
            return Rejection(Code.MGS203, f"system {self.name} has no axis '{unknown[:64]}'", hint)
        return adjacent(known[name] for name in names)

    def group(self, names: tuple[str, ...]) -> "System | Rejection":
        """Return the system of one group along some axes, as its ranks see it while all such groups move data.

        Parameters
        ----------
        names
            Axes that lie next to each other.
        """
        axes = self.axes(names)
        if isinstance(axes, Rejection):
            return axes
        late = self.variability is not None and self.variability.late
        if late or self.replay is not None or self.traffic is not None:
            message = f"{self.name} says of single ranks what they do, and a group stands for all groups of its axis"
            hint = "leave late, replay and traffic out, or describe the group as a system"
            return Rejection(Code.MGS440, message, hint)
        size = prod(axis.size for axis in axes)
        fabric = part_of(self.fabric, self.num_ranks, axes[0].stride, size)
        if isinstance(fabric, Rejection):
            return fabric
        name = ".".join((self.name, *(axis.name for axis in axes)))
        return System(name, size, self.gpu, fabric, self.variability, of=self.num_ranks)


@dataclass(frozen=True, slots=True)
class OpCase:
    """The place of one op: its workload on a system, with the schedules its file declares and the space to explore."""

    name: str
    system: System
    shape: OpShape
    schedules: tuple[NamedSchedule, ...] = field(default=(), hash=False)
    explore: Explore = field(default_factory=Explore, hash=False)

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return self.system.num_ranks

    @property
    def gpu(self) -> Gpu:
        """The GPU, the same on every rank."""
        return self.system.gpu

    def covering(self, schedule: OpPlan) -> "OpCase":
        """The same question, so that its bound holds for ``schedule`` too, which the file may not have."""
        return replace(self, explore=self.explore.covering((schedule,)))

    @property
    def splits_k(self) -> bool:
        """Whether schedules may compute tiles in parts along k: if the file declares or explores that."""
        declared = any(each.body.tactics.split_k > 1 for each in self.schedules)
        return declared or bool(self.explore.values("split_k"))

    @property
    def gemm_model(self) -> GemmModel:
        """The constants of its GEMM; those of any type if it has none."""
        gemm = self.shape.gemm
        return self.gpu.gemm if gemm is None else self.gpu.gemm.of(gemm.dtype)

    @property
    def is_algorithm_choice(self) -> bool:
        """Whether it is a collective alone: the question is which algorithm, not whether to overlap."""
        return self.shape.is_collective

    @property
    def resolution(self) -> float:
        """The least relative difference of two times that the hardware profile resolves.

        All kernels that multiply matrices have the resolution of the GEMM: experts and attention are known no better.
        Times of collectives alone are compared as simulated: 0.
        """
        compute = self.shape.compute
        return float(self.gemm_model.resolution) if compute is not None and compute.tiled else 0.0

    def mover(self, engine: EngineChoice, step: Transfer, rank: int) -> EngineKind:
        """Who moves ``step`` of ``rank``: of an engine with ports what leaves a node is sent as by copy engines."""
        if engine.mode is not EngineMode.PORTS or step.reach is Reach.ALL:
            return engine.kind
        node, peer = self.system.fabric.node_size or self.num_ranks, (rank + step.peer) % self.num_ranks
        return engine.kind if rank % self.num_ranks // node == peer // node else EngineKind.DMA

    @property
    def network(self) -> Network:
        """The graph of the fabric."""
        return network_of(self.system.fabric, self.num_ranks)

    @property
    def stages(self) -> tuple["OpCase", ...]:
        """The scenario of each kernel; none for a lone collective."""
        return tuple(map(self.stage, range(self.shape.num_kernels)))

    def at(self, rank: int) -> "OpCase":
        """Return the scenario of the absolute ``rank``; see ``OpShape.at``."""
        rank %= self.num_ranks
        return self if self.shape.at(rank) is self.shape else replace(self, shape=self.shape.at(rank))

    def stage(self, kernel: int) -> "OpCase":
        """Return the scenario of the kernel with that number; see ``OpShape.stage``."""
        return self if self.shape.then is None else replace(self, shape=self.shape.stage(kernel))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question about a workload.

    Attributes
    ----------
    name
        The name of the scenario.
    system, workload
        What is computed, and on which GPUs.
    schedules
        The schedules that the file declares.
    explore
        The schedules to search.
    """

    name: str
    system: System
    workload: Workload
    schedules: tuple[Schedule, ...] = field(default=(), hash=False)
    explore: Explore = field(default_factory=Explore, hash=False)

    @classmethod
    def of_one(cls, case: OpCase) -> "Scenario":
        """The question about one op alone."""
        workload = Workload.of_one(case.shape)
        (op,) = workload.ops
        schedules = tuple(Schedule(each.name, (OpMode(op.name, each.body),)) for each in case.schedules)
        return cls(case.name, case.system, workload, schedules, case.explore)

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return self.system.num_ranks

    @property
    def case(self) -> OpCase:
        """Its only op; see ``only_case``.

        Raises
        ------
        ValueError
            If ``only_case`` is None.
        """
        case = self.only_case
        if case is None:
            raise ValueError(f"{self.name} is no op by itself")
        return case

    @property
    def only_case(self) -> OpCase | None:
        """Its only op, with the schedules as choices of that op; None if there are several ops, layers or batches."""
        shape, bodies = self.workload.only_shape, tuple(choice.body for choice in self.schedules)
        if shape is None or None in bodies:
            return None
        named = zip(self.schedules, bodies, strict=True)
        schedules = tuple(NamedSchedule(choice.name, body) for choice, body in named if body is not None)
        return OpCase(self.name, self.system, shape, schedules, self.explore)

    @property
    def gpu(self) -> Gpu:
        """The GPU, the same on every rank."""
        return self.system.gpu

    def covering(self, plan: Plan) -> "Scenario":
        """The same question, so that its bound holds for ``plan`` too, which the file may not have."""
        return replace(self, explore=self.explore.covering(part.schedule for part in plan.parts))

    @property
    def splits_k(self) -> bool:
        """Whether schedules may compute tiles in parts along k: if the file declares or explores that."""
        bodies = (mode.body for schedule in self.schedules for mode in schedule.modes if mode.body is not None)
        return bool(self.explore.values("split_k")) or any(body.tactics.split_k > 1 for body in bodies)

    @property
    def title(self) -> str:
        """The name of the workload."""
        return self.workload.name

    @property
    def cases(self) -> tuple[OpCase, ...]:
        """Each op on this system, by itself."""
        case = self.only_case
        if case is not None:
            return (case,)
        return tuple(OpCase(op.name, self.system, op.shape) for op in self.workload.ops)

    @property
    def sole(self) -> OpCase | None:
        """The only op that a schedule can carry out in several ways; None if there are more of these.

        The other ops are then row-wise kernels that cannot run at the same time: they read what the op makes, or make
        what it reads.
        """
        workload, case = self.workload, self.only_case
        if case is not None:
            return case
        moving = [op for op in workload.ops if op.shape.moved is not None]
        if len(moving) != 1 or (workload.batch is not None and workload.batch.cuts):
            return None
        others = [op for op in workload.ops if op is not moving[0]]
        if any(op.shape.compute is None or op.shape.compute.tiled for op in others):
            return None
        before = workload.made_from(moving[0].name)
        behind = {op.name for op in others if moving[0].name in workload.made_from(op.name)}
        if any(op.name not in before | behind for op in others):
            return None
        return OpCase(moving[0].name, self.system, moving[0].shape, explore=self.explore)

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return self.workload.num_layers

    @property
    def is_algorithm_choice(self) -> bool:
        """Whether a collective is all that has a choice: the question is which algorithm, not whether to overlap."""
        return self.sole is not None and self.sole.is_algorithm_choice

    @property
    def resolution(self) -> float:
        """The least relative difference of two times that the hardware profile resolves."""
        return max((case.resolution for case in self.cases), default=0.0)

    @property
    def exchange(self) -> str:
        """The implementation whose kernels send rows to experts and back; empty if the library does, or nobody."""
        library = self.gpu.collectives
        return library.routed[0].name if library is not None and library.routed else ""

    @property
    def drawn(self) -> RoutingLaw | None:
        """The law that the experts of rows are drawn by, None if they are not drawn."""
        routings = (case.shape.routing for case in self.moving)
        return next((each.law for each in routings if each is not None and each.law.name in DRAWN_LAWS), None)

    @property
    def moving(self) -> list[OpCase]:
        """The ops that have a collective or are one."""
        return [case for case in self.cases if case.shape.moved is not None]

    @property
    def profile_error(self) -> float:
        """The relative error of GEMM times where the profile is not validated, 0 where it is: then others have it."""
        models = [case.gemm_model for case in self.cases if case.resolution and not case.gemm_model.validated]
        return max((float(model.error) for model in models), default=0.0)
