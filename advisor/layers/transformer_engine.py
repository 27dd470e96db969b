"""The layers of Transformer Engine in a workload, and the search for the best table of its overlap.

A column-parallel layer (``qkv``, ``fc1``) gathers before its product, a row-parallel one (``proj``, ``fc2``) scatters
behind it; backward it is the other way round. The two with an attention between them are ``qkv`` and ``proj``. Names
are those of ``initialize_ub`` in transformer_engine/pytorch/module/base.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ...compiler.ir import (
    TICKS_PER_US,
    EngineChoice,
    EngineKind,
    HandOff,
    Made,
    Op,
    OpCase,
    OpChoice,
    OpMode,
    OpShape,
    Pattern,
    Read,
    Schedule,
    System,
    Workload,
)
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.planning.parts import collective_alone, kernel_alone
from ...compiler.templates import BASELINE
from ...simcore import RunTooLarge
from ..implementations.offers import LayerTable, OpSetting
from ..implementations.predict import simulated_us
from .placement import is_free

GATHERS, SCATTERS = Pattern.AG_GEMM, Pattern.GEMM_RS


@dataclass(frozen=True, slots=True)
class TeLayer:
    """A product of the workload with a collective.

    ``op`` is the pair, ``wgrad`` the product of its weight's gradient, ``gather`` what brings an operand of that;
    both empty where the workload has none.
    """

    name: str
    op: str
    gathers: bool
    backward: bool
    wgrad: str = ""
    gather: str = ""

    @property
    def wgrad_name(self) -> str:
        """What the layer is called while its weight's gradient is computed."""
        return self.name.replace("_dgrad", "_wgrad")


def te_layers(workload: Workload) -> tuple[TeLayer, ...]:
    """Return the layers of ``workload``, in its order; several ops may have one name."""
    return tuple(layer for op in workload.ops if (layer := _layer(workload, op)) is not None)


def _layer(workload: Workload, op: Op) -> TeLayer | None:
    weight = _weight(op)
    if weight is None:
        return None
    gathers = op.shape.pattern is GATHERS
    beside_attention = _meets_attention(workload, op, "attention_back" if weight.transposed else "attention")
    if gathers is not weight.transposed:
        block = "qkv" if beside_attention else "fc1"
    else:
        block = "proj" if beside_attention else "fc2"
    if not weight.transposed:
        return TeLayer(f"{block}_fprop", op.name, gathers, backward=False)
    wgrad = _wgrad(workload, op)
    gather = "" if wgrad is None or gathers else _gather(workload, wgrad)
    return TeLayer(f"{block}_dgrad", op.name, gathers, True, "" if wgrad is None else wgrad.name, gather)


def _weight(op: Op) -> Read | None:
    """The declared operand of the product of a pair; None where the op is no pair of a product."""
    if op.shape.pattern not in (GATHERS, SCATTERS) or op.shape.kernel is not None or len(op.reads) != 2:
        return None
    declared = [read for read in op.reads if not read.made_by and not read.moves]
    return declared[-1] if declared else None


def _meets_attention(workload: Workload, op: Op, kernel: str) -> bool:
    """Whether that kernel lies behind a pair that gathers, or before one that scatters, with no collective between."""
    seen, ahead = {op.name}, [op]
    while ahead:
        at = ahead.pop()
        near = _readers(workload, at) if op.shape.pattern is GATHERS else _makers(workload, at)
        for each in near:
            if each.shape.kernel is not None and each.shape.kernel.operation == kernel:
                return True
            if each.shape.moved is None and each.name not in seen:
                seen.add(each.name)
                ahead.append(each)
    return False


def _readers(workload: Workload, op: Op) -> Iterator[Op]:
    return (each for each in workload.ops if any(read.made_by == op.name for read in each.reads))


def _makers(workload: Workload, op: Op) -> Iterator[Op]:
    return (workload.op(read.made_by) for read in op.reads if read.made_by)


def _wgrad(workload: Workload, op: Op) -> Op | None:
    """The product of the gradient of a pair's weight: it takes the pair's gradient, and its activation transposed."""
    taken = next((read for read in op.reads if read.moves or read.made_by), None)
    for each in workload.ops:
        if each.shape.pattern is not Pattern.GEMM or not any(read.transposed for read in each.reads):
            continue
        gathered = any(read.made_by == op.name and read.what is Made.MOVED for read in each.reads)
        same = taken is not None and any(read.name == taken.name for read in each.reads)
        if gathered or (same and op.shape.pattern is SCATTERS):
            return each
    return None


def _gather(workload: Workload, wgrad: Op) -> str:
    """The collective of its own that brings an operand of ``wgrad``, empty without one."""
    makers = (each for each in _makers(workload, wgrad) if each.shape.pattern is Pattern.ALL_GATHER)
    return next((each.name for each in makers), "")


ON, RS_DGRAD = "--tp-comm-overlap", "--tp-comm-overlap-rs-dgrad"
AG_OFF, RS_OFF = "--disable-tp-comm-overlap-ag", "--disable-tp-comm-overlap-rs"
BULK_DGRAD_OFF, BULK_WGRAD_OFF = "--disable-tp-comm-bulk-dgrad", "--disable-tp-comm-bulk-wgrad"
"""Flags of Megatron."""
NAME = "transformer_engine"
RING, PIPELINE, BULK = "ring_exchange", "pipeline", "bulk"
USUAL_SPLITS, SPLITS = 4, (2, 4, 8)
SLACK = 0.005
"""A table is not simulated whose products, each alone, lose more than this share of their time."""

NUM_SM = (2, 4, 8, 16, 24, 32)
"""SMs that may copy for ``pipeline`` and ``bulk``: those of the tables that Megatron-Bridge ships, 16 by default."""

_RING_COPIER = EngineChoice(EngineKind.DMA, 1)


@dataclass(frozen=True, slots=True)
class TeMethods:
    """One configuration: flags for all layers, and the methods of those with a reduce_scatter.

    ``gathers`` is whether products behind an all_gather overlap. ``scatters`` and ``scatters_back`` hold (layer,
    method, splits) of those with a reduce_scatter, forward and backward; without any, these do not overlap in
    themselves.
    ``bulk_dgrad`` and ``bulk_wgrad`` are for layers whose gradient does not.
    """

    gathers: bool = True
    scatters: tuple[tuple[str, str, int], ...] = ()
    scatters_back: tuple[tuple[str, str, int], ...] = ()
    bulk_dgrad: bool = True
    bulk_wgrad: bool = True

    def scatter(self, layer: TeLayer) -> tuple[str, int] | None:
        """Method and splits of a layer with a reduce_scatter, None where it does not overlap in itself."""
        among = self.scatters_back if layer.backward else self.scatters
        return next(((method, splits) for name, method, splits in among if name == layer.name), None)


Ticks = Callable[[Schedule], int | None]


@dataclass(slots=True)
class TeSearch:
    """The tables of Transformer Engine for one workload; ``layers`` are empty where it has nothing to overlap.

    Collectives that a table does not overlap are the ``library``'s.
    """

    system: System
    workload: Workload
    name: str = NAME
    library: tuple[OpMode, ...] = ()
    layers: tuple[TeLayer, ...] = field(init=False)
    _num_sm: dict[tuple[str, str], int] = field(default_factory=dict)
    _alone: dict[OpMode, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layers = te_layers(self.workload)

    def found(self, ticks: Ticks) -> Iterator[tuple[LayerTable, int]]:
        """Yield ever faster tables with their times, from the defaults on: one decision after the other is changed.

        ``ticks`` simulates a schedule, and gives None where it cannot be.
        """
        best = self.defaults()
        least = ticks(self.table(best).choice)
        if least is not None:
            yield self.table(best), least
        for stage in (self._flags, self._methods):
            for other in dict.fromkeys(stage(best)):
                as_best = (best, replace(other, gathers=best.gathers))  # in all, and in what stands for itself
                if least is not None and any(self._loses(each, other) for each in as_best):
                    continue
                took = ticks(self.table(other).choice)
                if took is not None and (least is None or took < least):
                    best, least = other, took
                    yield self.table(best), least

    def _loses(self, best: TeMethods, other: TeMethods) -> bool:
        """Whether the products that ``other`` carries out otherwise take longer so, each alone; False if not known.

        They follow one another: where what runs beside what is the same, the times of those that change decide. Of the
        launches, which in a layer come while something else runs, each may be a part of such a time or not.
        """
        mine, theirs = self.table(best).choice, self.table(other).choice
        if replace(mine, modes=()) != replace(theirs, modes=()):
            return False
        before, after = ({mode.op: mode for mode in choice.modes} for choice in (mine, theirs))
        changed = [op for op in before.keys() | after.keys() if before.get(op) != after.get(op)]
        times = [[self._alone_us(modes.get(op)) for op in changed] for modes in (before, after)]
        now, then = ([us for us in of if us is not None] for of in times)
        launch = self.system.gpu.launch
        launches_us = (launch.kernel_ticks + launch.event_ticks) * len(changed) / TICKS_PER_US
        known = len(now) == len(then) == len(changed)
        return known and sum(then) > sum(now) * (1 + SLACK) + launches_us

    def _alone_us(self, mode: OpMode | None) -> float | None:
        """The time of a product with its collective alone; None where these run apart, or where it is not known."""
        if mode is None or mode.separate is not None or not isinstance(mode.body, OpChoice):
            return None
        if mode not in self._alone:
            case = OpCase(mode.op, self.system, self.workload.op(mode.op).shape)
            try:
                self._alone[mode] = simulated_us(case, mode.body)
            except (ScheduleError, RunTooLarge):
                self._alone[mode] = None
        return self._alone[mode]

    def defaults(self) -> TeMethods:
        """What Transformer Engine does unless a file says otherwise."""
        return TeMethods(scatters=self._all(False, PIPELINE))

    def _all(self, backward: bool, method: str) -> tuple[tuple[str, str, int], ...]:
        names = dict.fromkeys(each.name for each in self.layers if not each.gathers and each.backward is backward)
        return tuple((name, method, USUAL_SPLITS if method == PIPELINE else 0) for name in names)

    def _flags(self, start: TeMethods) -> Iterator[TeMethods]:
        """What one flag changes, for all layers."""
        both = (False, True)
        back = [replace(start, bulk_dgrad=one, bulk_wgrad=other) for one in both for other in both]
        back += [replace(start, scatters_back=self._all(True, method)) for method in (RING, PIPELINE)]
        forward = [replace(start, scatters=self._all(False, method)) for method in (RING, PIPELINE)]
        forward.append(replace(start, scatters=()))
        for of_scatters in forward if self._all(False, RING) else [start]:
            for of_back in back if self._all(True, RING) else [start]:
                one = replace(of_back, scatters=of_scatters.scatters)
                yield from (replace(one, gathers=True), replace(one, gathers=False))

    def _methods(self, start: TeMethods) -> Iterator[TeMethods]:
        """Another method, or other splits, of one layer."""
        for which in ("scatters", "scatters_back"):
            chosen: tuple[tuple[str, str, int], ...] = getattr(start, which)
            for place, (name, *_) in enumerate(chosen):
                for method, splits in ((RING, 0), *((PIPELINE, number) for number in SPLITS)):
                    changed = (*chosen[:place], (name, method, splits), *chosen[place + 1 :])
                    yield replace(start, **{which: changed})  # type: ignore[arg-type]

    def table(self, methods: TeMethods) -> LayerTable:
        """Return the settings of each layer, and the schedule of the workload."""
        return _Table(self, methods).made()

    def num_sm(self, mover: str, product: str) -> int:
        """Return the SMs that move the data of op ``mover`` beside the kernel of op ``product`` in the least time.

        Copies take as long as alone by so many SMs; the kernel has the other SMs of the GPU.
        """
        if (mover, product) not in self._num_sm:
            sms, kernel = self.system.gpu.sms, kernel_alone(self.workload.op(product).shape)
            whole = OpChoice(BASELINE.name, self.system.num_ranks, default_engine(self.system))
            us = simulated_us(OpCase(product, self.system, kernel), whole)
            shape = self.workload.op(mover).shape
            least = min(NUM_SM, key=lambda num: max(_moved_us(self.system, shape, num), us * sms / (sms - num)))
            self._num_sm[mover, product] = least
        return self._num_sm[mover, product]


@dataclass(slots=True)
class _Table:
    """A schedule of a search in the making."""

    search: TeSearch
    methods: TeMethods
    settings: list[OpSetting] = field(default_factory=list)
    modes: list[OpMode] = field(default_factory=list)
    beside: list[tuple[str, str]] = field(default_factory=list)

    def made(self) -> LayerTable:
        """Return it with its settings."""
        for layer in self.search.layers:
            if layer.gathers:
                if self.methods.gathers:
                    self._ring(layer)
            elif (chosen := self.methods.scatter(layer)) is not None:
                method, splits = chosen
                self._ring(layer) if method == RING else self._pipeline(layer, splits)
            elif layer.backward:
                self._bulk(layer)
        overlapped = {mode.op for mode in self.modes}
        self.modes.extend(mode for mode in self.search.library if mode.op not in overlapped)
        behind = {each.op: each.wgrad for each in self.search.layers if each.wgrad}
        order = tuple(_order(self.search.workload, self._before(), behind))
        choice = Schedule(self.search.name, tuple(self.modes), order, (), tuple(self.beside), handoff=HandOff.WHOLE)
        return LayerTable(choice, tuple(self.settings), tuple(self._flags()))

    def _ring(self, layer: TeLayer) -> None:
        self.settings.append(OpSetting(layer.name, layer.op, RING, copy_engine=True))
        self.modes.append(OpMode(layer.op, OpChoice("shard_p2p", self.search.system.num_ranks, _RING_COPIER)))

    def _pipeline(self, layer: TeLayer, splits: int) -> None:
        self.settings.append(OpSetting(layer.name, layer.op, PIPELINE, self.search.num_sm(layer.op, layer.op), splits))
        chunks = splits * self.search.system.num_ranks
        self.modes.append(OpMode(layer.op, OpChoice("uniform_fused_1d", chunks, default_engine(self.search.system))))

    def _bulk(self, layer: TeLayer) -> None:
        """The all_gather beside the pair's product, and its reduce_scatter beside the weight gradient."""
        whole = OpChoice(BASELINE.name, self.search.system.num_ranks, default_engine(self.search.system))
        if self.methods.bulk_dgrad and layer.gather:
            self.settings.append(OpSetting(layer.name, layer.gather, BULK, self.search.num_sm(layer.gather, layer.op)))
            self.modes.append(OpMode(layer.gather, whole))
            if is_free(self.search.workload.op(layer.gather)):
                self.beside.append((layer.gather, layer.op))
        if self.methods.bulk_wgrad and layer.wgrad:
            self.settings.append(OpSetting(layer.wgrad_name, layer.op, BULK, self.search.num_sm(layer.op, layer.wgrad)))
            self.modes.append(OpMode(layer.op, separate=whole))

    def _before(self) -> Mapping[str, str]:
        """What is gathered right before a product, by the name of its op: beside it the copies run."""
        free = dict(self.beside)
        gathered = {setting.op for setting in self.settings if setting.method == BULK}
        return {each.op: each.gather for each in self.search.layers if each.gather in gathered - free.keys()}

    def _flags(self) -> Iterator[str]:
        """The flags of Megatron beside the file."""
        methods, has = self.methods, self.search.layers
        yield ON
        if any(each.gathers for each in has) and not methods.gathers:
            yield AG_OFF
        if any(not each.gathers and not each.backward for each in has) and not methods.scatters:
            yield RS_OFF
        if methods.scatters_back:
            yield RS_DGRAD
        elif any(not each.gathers and each.backward for each in has):
            yield from () if methods.bulk_dgrad else (BULK_DGRAD_OFF,)
            yield from () if methods.bulk_wgrad else (BULK_WGRAD_OFF,)


def _order(workload: Workload, before: Mapping[str, str], behind: Mapping[str, str]) -> Iterator[str]:
    """The ops of the file in their order, but what ``before`` and ``behind`` name next to the op of theirs."""
    issued: dict[str, None] = {}

    def issue(names: Iterable[str]) -> None:
        for name in names:
            if name and name not in issued:
                issue(read.made_by for read in workload.op(name).reads)
                issue((before.get(name, ""),))
                issued[name] = None
                issue((behind.get(name, ""),))

    issue(op.name for op in workload.ops)
    return iter(issued)


def taken_ticks(system: System, workload: Workload, settings: Iterable[OpSetting]) -> int:
    """Return the time of a layer that SMs which copy take from its kernels: their share, while they copy.

    A collective takes as long as it does alone by so many SMs; beside kernels it takes longer.
    """
    us = sum(
        _moved_us(system, workload.op(setting.op).shape, setting.num_sm) * setting.num_sm / system.gpu.sms
        for setting in settings
        if setting.num_sm
    )
    return round(us * TICKS_PER_US)


def _moved_us(system: System, shape: OpShape, num_sm: int) -> float:
    """The time of the collective of an op alone, by so many SMs."""
    return _collective_us(system, shape if shape.is_collective else collective_alone(shape), num_sm)


@lru_cache(maxsize=64)  # the passes of a layer move the same tensors
def _collective_us(system: System, moved: OpShape, num_sm: int) -> float:
    whole = OpChoice(BASELINE.name, system.num_ranks, EngineChoice(EngineKind.SM, num_sm))
    return simulated_us(OpCase("moved", system, moved), whole)
