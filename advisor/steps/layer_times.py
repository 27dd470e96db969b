"""Times of layers: each is simulated once, by itself and beside traffic, however many layouts ask for it."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import overload

from ...compiler.codes import Code
from ...compiler.ir import (
    TICKS_PER_SECOND,
    AttentionBackShape,
    AttentionShape,
    Gpu,
    GroupedGemmShape,
    HandOff,
    Op,
    OpCase,
    OpMode,
    Rejection,
    Scenario,
    Schedule,
    ShouldStop,
    Stack,
    Sustained,
    System,
    Workload,
)
from ...compiler.ir.stopping import never
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.groups import cut_up
from ...compiler.planning.parts import collective_alone
from ...compiler.planning.plan import in_layer
from ...compiler.resolve.schedules.from_text import SERIAL
from ...simcore.memo.memo import ADVISOR, memo_of, memoized
from ..answer.switches import weights_gathered
from ..bounds.lower_bound import quick_bound_ticks
from ..layers.beside import Alone, GroupLayer, LayerBeside, SharedTraffic, between_nodes
from ..layers.joint import QUICK_LAYERS, SEARCH_LAYERS, JointRuns
from ..layers.op_runs import kernel_works
from ..layers.orders import apart, by_library

# What the stack of a framework costs beside the graph of a layer: attention that keeps its scores, unfused kernels.


def for_seconds(system: System, stack: Stack | None) -> System:
    """The system at the clock that its GPUs hold, with products as a stack has them.

    A step lasts seconds, however short its GEMMs are: each of them runs at the clock of long ones. Plain products of
    experts have the constants of GEMMs; in several streams the tiles of one fill the SMs that another leaves.
    """
    held, used = system.gpu.sustained, stack or Stack()
    clock = used.products * (1 if held is None else held.clock)
    grouped = None if used.plain_experts else system.gpu.grouped
    return replace(system, gpu=replace(system.gpu, sustained=Sustained(0, clock), grouped=grouped))


def memory_ticks(gpu: Gpu, num_bytes: Fraction | int) -> int:
    """How long memory takes for so many bytes at its achieved rate."""
    return int(Fraction(num_bytes * TICKS_PER_SECOND, gpu.hbm.achieved_bytes_per_s))


def stack_ticks(scenario: Scenario, stack: Stack, row_bytes: int, expert_bytes: int, *, backward: bool) -> int:
    """Return what a pass of one layer takes longer under a stack.

    Parameters
    ----------
    scenario
        The pass.
    row_bytes
        Bytes of the tokens of a rank, each as wide as the model.
    expert_bytes
        Bytes of what experts of a rank make between their products.
    """
    rows = stack.backward_rows if backward else stack.forward_rows
    experts = stack.backward_experts if backward else stack.forward_experts
    gpu, kernels = scenario.system.gpu, (op.shape.kernel for op in scenario.workload.ops)
    attention = sum(_attention_ticks(gpu, stack, each) for each in kernels if isinstance(each, AttentionShape))
    return memory_ticks(gpu, rows * row_bytes + experts * expert_bytes) + attention


def expert_bytes_of(forward: Scenario) -> int:
    """The bytes of what experts of a rank make between their products: what products take that others led to."""
    ops = {op.name: op for op in forward.workload.ops}

    def makers(op: Op) -> list[Op]:
        return [ops[read.made_by] for read in op.reads if read.made_by]

    return sum(
        op.shape.kernel.dtype.bytes_of(sum(op.shape.kernel.rows) * op.shape.kernel.k)
        for op in ops.values()
        if isinstance(op.shape.kernel, GroupedGemmShape)
        and any(isinstance(each.shape.kernel, GroupedGemmShape) for one in makers(op) for each in (one, *makers(one)))
    )


def _attention_ticks(gpu: Gpu, stack: Stack, shape: AttentionShape) -> int:
    """What attention takes longer where scores are kept: passes over them, and products of what a mask hides.

    The products run at the rate of the main loop of a GEMM.
    """
    passes = stack.backward_scores if isinstance(shape, AttentionBackShape) else stack.forward_scores
    if not passes:
        return 0
    scores = shape.dtype.bytes_of(shape.batch * shape.heads * shape.q_len * shape.kv_len)
    hidden = replace(shape, causal=False, window=None).flops - shape.flops
    clock = stack.products * (1 if gpu.sustained is None else gpu.sustained.clock)
    rate = gpu.peak(shape.dtype) * gpu.gemm.of(shape.dtype).mma_fraction * clock
    return memory_ticks(gpu, passes * scores) + int(hidden * TICKS_PER_SECOND / rate)


TRAFFIC_PACKET = 1 << 17
"""Bytes of a packet of traffic beside a layer, which is some hundred megabytes."""

SEND_PACKET = 1 << 14
"""Bytes of a packet of what a stage sends, which is some megabytes."""


@dataclass(frozen=True, slots=True)
class Held:
    """``parameters`` that one rank has, and the ranks that have the same, as a system; None where none has."""

    parameters: int
    ranks: System | None

    @property
    def copies(self) -> int:
        """How many ranks have them."""
        return 1 if self.ranks is None else self.ranks.num_ranks


@dataclass(frozen=True, slots=True)
class PassTicks:
    """Ticks of one layer of a workload, and what of them makes gradients of weights, which nothing else waits for."""

    ticks: int
    weights: int


@dataclass(frozen=True, slots=True)
class LayerPass:
    """The question how long a layer takes, at the rates that its system has for seconds.

    ``name`` is that of the layer, and ``by`` that of its schedule, in words.
    """

    layer: GroupLayer
    name: str = field(compare=False)
    by: str = field(compare=False)

    @classmethod
    def of(cls, scenario: Scenario, schedule: Schedule) -> "LayerPass":
        """Return the question about the layer of a scenario under a schedule."""
        return cls(GroupLayer.of(scenario, schedule), scenario.name, schedule.name or "the library")

    @property
    def least(self) -> PassTicks:
        """No more than it takes: its kernels one after the other, which share SMs, without launches and copies."""
        system, apart = self.layer.system, of_weights(self.layer.workload)
        bodies = {
            op.name: sum(work.body_ticks for work in kernel_works(system, op, system.gpu.sms))
            for op in self.layer.workload.ops
        }
        return PassTicks(sum(bodies.values()), sum(bodies[name] for name in apart))

    def ticks(self, should_stop: ShouldStop = never) -> PassTicks:
        """Simulate it, or look it up.

        Raises
        ------
        ScheduleError
            If it cannot be simulated so.
        """
        compute = partial(_simulated, self, should_stop)
        return memoized(memo_of(("layer of a step", self.layer), ADVISOR), PassTicks, compute)


LayerQuestion = LayerPass | LayerBeside | Alone
LayerAnswer = PassTicks | tuple[int, int] | int | None


@dataclass(frozen=True, slots=True)
class PassOf:
    """A pass of a layer, by the ``schedule`` of that name or the library, with kernels at the rates of a ``stack``.

    ``weights`` is whether what makes gradients of weights is computed, or all but that; None: the whole pass.
    """

    scenario: Scenario
    schedule: str | None = None
    stack: Stack | None = None
    weights: bool | None = None

    def for_seconds(self) -> Scenario:
        """Return the layer with kernels at the rates that its system has for seconds."""
        return replace(self.scenario, system=for_seconds(self.scenario.system, self.stack))

    def question(self) -> LayerPass:
        """Return the question how long it takes."""
        scenario = self.for_seconds()
        whole = LayerPass.of(scenario, schedule_of(scenario, self.schedule))
        if self.weights is None:
            return whole
        pieces = cut_up(scenario.workload, whole.layer.schedule.cut)
        apart = of_weights(pieces)
        kept = frozenset(op.name for op in pieces.ops if (op.name in apart) is self.weights)
        return replace(whole, layer=replace(whole.layer, kept=kept))


@dataclass(slots=True)
class LayerTimes:
    """Times of layers, each workload under each schedule simulated once, however many layouts ask for it.

    ``contended`` is whether traffic beside layers is simulated together with them; without that both take as long as
    alone, which is enough to tell which layouts are worth it. With ``noted`` nothing is simulated: what is not known is
    noted there, for others to answer it. With ``least`` nothing is simulated either, and nothing takes longer than it
    would: of layers their kernels count, and what else they wait for does not.
    """

    should_stop: ShouldStop = never
    contended: bool = True
    noted: dict[LayerQuestion, None] | None = None
    least: bool = False
    _known: dict[LayerQuestion, LayerAnswer] = field(default_factory=dict)
    _least: dict[LayerPass, PassTicks] = field(default_factory=dict)
    _bounds: dict[OpCase, int] = field(default_factory=dict)

    @property
    def num_simulated(self) -> int:
        """How many layers were simulated, forward and backward each."""
        return sum(isinstance(each, LayerPass) for each in self._known)

    def of(self, each: PassOf) -> PassTicks:
        """Return the ticks of a pass; what its stack adds beside kernels is not in them."""
        return self.by_itself(each.question())

    def by_itself(self, question: LayerPass) -> PassTicks:
        """Return the ticks of a layer."""
        if not self.least:
            return self._answer(question, PassTicks(0, 0))
        if question not in self._least:
            self._least[question] = question.least
        return self._least[question]

    def longer(self, of: PassOf, traffic: SharedTraffic) -> tuple[int, int]:
        """Return how much longer a layer takes beside traffic than alone, and the traffic; 0 each where not known.

        It is not without ``contended``, nor where it is not known what the groups share.
        """
        ranks = for_seconds(traffic.ranks, of.stack)
        question = LayerBeside(of.question().layer, replace(traffic, ranks=ranks), TRAFFIC_PACKET, alike=True)
        both = self.both(question)
        if both is None:
            return 0, 0
        layer, moved = (self._alone(each) for each in question.alone)
        return max(0, both[0] - layer), max(0, both[1] - moved)

    def sooner(self, backward: PassOf) -> int:
        """Return how much sooner gradients of inputs are made alone than they and those of weights, less the latter.

        Kernels of one wait for the others, or share SMs and memory with them; 0 where nothing is simulated.
        """
        if self.least:
            return 0
        whole, inputs, weights = (
            self._alone(Alone(replace(backward, weights=of).question().layer, TRAFFIC_PACKET, alike=True))
            for of in (None, False, True)
        )
        return max(0, whole - weights - inputs)

    def gained(self, forward: PassOf, backward: PassOf) -> int:
        """Return how much sooner a pass forward and one backward end beside each other than one behind the other."""
        question = LayerBeside(forward.question().layer, backward.question().layer, alike=True)
        both = self.both(question)
        return 0 if both is None else max(0, sum(self._alone(each) for each in question.alone) - max(both))

    def both(self, question: LayerBeside) -> tuple[int, int] | None:
        """Return the ticks of a layer and of what is beside it; None where they are not simulated together."""
        if self.least or (not self.contended and isinstance(question.second, SharedTraffic)):
            return None
        return self._answer(question, None)

    def traffic(self, traffic: SharedTraffic, packet: int = TRAFFIC_PACKET) -> int:
        """Return the ticks of traffic with the machine to itself, in packets of so many bytes.

        Raises
        ------
        ScheduleError
            If no algorithm does it.
        """
        return 0 if self.least else self._alone(Alone(traffic, packet, alike=True))

    def _alone(self, question: Alone) -> int:
        return self._answer(question, 1)  # it takes time, so that what runs beside it is asked too

    def bound(self, case: OpCase) -> int:
        """Return the least ticks of a collective alone, which many layouts ask for."""
        if case not in self._bounds:
            self._bounds[case] = quick_bound_ticks(case)
        return self._bounds[case]

    @overload
    def _answer(self, question: LayerPass, unknown: PassTicks) -> PassTicks: ...

    @overload
    def _answer(self, question: Alone, unknown: int) -> int: ...

    @overload
    def _answer(self, question: LayerBeside, unknown: None) -> tuple[int, int] | None: ...

    def _answer(self, question: LayerQuestion, unknown: LayerAnswer) -> LayerAnswer:
        """The answer to a question; what is ``unknown`` where it is noted instead."""
        if question not in self._known:
            if self.noted is not None:
                self.noted[question] = None
                return unknown
            self._known[question] = question.ticks(self.should_stop)  # nothing is kept of one that is stopped
        return self._known[question]

    def take(self, question: LayerQuestion, ticks: LayerAnswer) -> None:
        """Know the answer to a question."""
        self._known[question] = ticks


def schedule_of(scenario: Scenario, name: str | None) -> Schedule:
    """The schedule of that name; else what frameworks run: the library, with weights gathered a layer ahead."""
    if name is not None:
        return next(each for each in scenario.schedules if each.name == name)
    known, _ = by_library(scenario)
    modes = {} if known is None else {mode.op: mode for mode in known.choice.modes}
    for case in scenario.moving:
        if case.name not in modes and (case.shape.pattern.overlaps or case.shape.is_collective):
            alone = OpCase("", case.system, collective_alone(case.shape))
            rings = between_nodes(alone)
            if rings is not None:
                modes[case.name] = OpMode(case.name, rings)
    if not modes:
        return SERIAL
    gathers = weights_gathered(scenario)
    if not gathers or scenario.num_layers < 2:
        return Schedule("library", tuple(modes.values()), handoff=HandOff.WHOLE)
    return Schedule("library", apart(scenario.workload, modes.values()), handoff=HandOff.WHOLE, prefetch=1)


def _simulated(question: LayerPass, should_stop: ShouldStop) -> PassTicks:
    workload, schedule = question.layer.workload, question.layer.schedule
    in_turn = schedule == replace(SERIAL, name="") or schedule.handoff is HandOff.WHOLE  # no layer runs beside another
    runs = JointRuns(question.layer.system, workload, should_stop=should_stop)
    result = runs.estimated(schedule, should_stop, QUICK_LAYERS if in_turn else SEARCH_LAYERS)
    if result is None:
        message = f"{question.name} is not simulated by {question.by}"
        raise ScheduleError(Rejection(Code.MGS570, message, "magus simulate --workload says why"))
    shown, apart = min(2, result.num_simulated), of_weights(cut_up(workload, schedule.cut))
    weights = sum(result.op(in_layer(name, shown)).compute_ticks for name in apart)
    per_layer = result.total_ticks // workload.num_layers
    return PassTicks(per_layer, min(weights, per_layer))


def of_weights(workload: Workload) -> frozenset[str]:
    """The ops whose results no other op takes, and that are not what the layer before goes on with."""
    taken = {read.made_by for op in workload.ops for read in op.reads}
    if workload.repeat is not None:
        makers = {tensor: op for tensor, op, _ in workload.results}
        taken |= {makers.get(result, "") for result in workload.repeat.carried.values()}
    return frozenset(op.name for op in workload.ops if op.name not in taken and op.shape.moved is None)
