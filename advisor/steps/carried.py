"""A step as a job that can be carried out with real data: small sizes, and the plans of all that it is made of."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise, product
from math import gcd

from ...compiler.ir import (
    UNCUT,
    AttentionBackShape,
    AttentionShape,
    ColumnPart,
    ElementwiseShape,
    GemmShape,
    GroupedGemmShape,
    OpShape,
    Pattern,
    Plan,
    RowWiseShape,
    Scenario,
    Schedule,
    Shard,
    System,
    Tensor,
    Workload,
)
from ...compiler.ir.operations.kernel_shape import KernelShape
from ...compiler.ir.step import (
    KEEP_LEAST,
    ChunkPass,
    LayerPart,
    Overlapped,
    PassKind,
    PipelineKind,
    StepScenario,
    StepSchedule,
)
from ...compiler.planning.build import ScheduleError
from ...runtime.report import MAX_STEPS
from ...runtime.steps.work import GroupWork, StepWork, WeightSet, declared
from ...simcore.steps.orders import Slot, orders_of, rejected
from ..layers.beside import SharedTraffic
from .layer_times import of_weights, schedule_of
from .outcome import chunks_of
from .plans import in_parts, pass_plan, refused, send_plan, shared_work, some_ops, some_parts
from .times import handed_on, weights_of

LAYERS = 2
"""Layers of each chunk that are carried out: each takes what the one before makes."""
LEAST = 4
"""The least rows and columns of a part of a tensor, so that their order shows."""
MOST_ELEMENTS = 1 << 20
"""The most elements of a tensor that are carried out: all of them are there."""


def job_of(scenario: StepScenario, schedule: StepSchedule) -> StepWork:
    """Return what is carried out of a step: if it is too large fewer microbatches, and pipelines, which it says.

    Raises
    ------
    RunRefused
        If it cannot be carried out.
    ScheduleError
        If the pipeline cannot take the layers or the microbatches, or a layer has no such plan.
    """
    part = _only_part(scenario, schedule)
    small = _Small(scenario, schedule, part)
    for copies, parts, microbatches, layers in _sizes(scenario, schedule, part):
        job = small.job(copies, parts, microbatches, layers)
        if job.num_steps <= MAX_STEPS:
            break
    return job


def _sizes(
    scenario: StepScenario, schedule: StepSchedule, part: LayerPart
) -> Iterator[tuple[System | None, int, int, int]]:
    """Yield the ranks with the same weights, parts of a sequence, microbatches, layers of a chunk, the most first."""
    microbatches, stages = scenario.step.microbatches, scenario.num_stages
    parts = 1 if part.context is None else part.context.num_ranks
    fewer, ranks = [microbatches, 2 * stages, stages], [(part.copies, parts)]
    if part.copies is not None:
        fewest = sorted({(max(2, parts), parts), (2, min(2, parts))}, reverse=True)
        ranks += [(replace(part.copies, num_ranks=copies), each) for copies, each in fewest]
    for (copies, each), layers in product(ranks, range(LAYERS, 0, -1)):
        for count in dict.fromkeys(each for each in fewer if each <= microbatches):
            if rejected(schedule.pipeline, stages, count) is None or count == microbatches:
                yield copies, each, count, layers


def _only_part(scenario: StepScenario, schedule: StepSchedule) -> LayerPart:
    """The workload of its layers.

    Raises
    ------
    RunRefused
        If there are several, or no serial step knows what they do.
    """
    blocks, name = scenario.step.blocks, scenario.name
    if len(blocks) > 1 or len(blocks[0].parts) > 1:
        raise refused(f"{name} has layers of several workloads; layers of one are carried out")
    (part,) = blocks[0].parts
    ranks = part.forward.num_ranks
    if scenario.num_stages > 1 and ranks > 1 and handed_on(part.forward).shard is Shard.NONE:
        hint = "shard it by rows: x = tensor bf16[...] shard rows"
        raise refused(f"ranks of {part.forward.name} have all of what they hand on, which is not sent in parts", hint)
    return part


class _Small:
    """A step whose sizes are divided by as much as its plans allow."""

    def __init__(self, scenario: StepScenario, schedule: StepSchedule, part: LayerPart) -> None:
        self._scenario, self._schedule, self._part = scenario, schedule, part
        self._chunks = chunks_of(scenario, schedule)
        back = part.back(schedule.keep)
        named = dict(schedule.parts)
        passes = [(each, schedule_of(each, named.get(each.name))) for each in (part.forward, back)]
        if any(each.cut != UNCUT for _, each in passes):
            raise refused("a layer in batches or groups is not carried out in a step", "of its layers it is")
        self.divisor, self._forward, self._backward = _divided(passes)
        self._check(back)

    def _check(self, back: Scenario) -> None:
        known = {each.name for each in (*self._part.forward.workload.tensors, *back.workload.tensors)}
        missing = [each.name for each in weights_of(self._part.forward) if f"d_{each.name}" not in known]
        if missing:
            hint = f"name it d_{missing[0]}, as derived passes do"
            raise refused(f"{back.name} makes no gradient of {missing[0]} by its name", hint)
        there = {each.name for each in self._part.forward.workload.tensors} | {handed_on(back).name}
        unknown = [read.tensor for read in declared(back.workload) if read.tensor not in there]
        if unknown:
            raise refused(f"{back.name} takes {unknown[0]}, which {self._part.forward.name} has not")

    def job(self, copies: System | None, parts: int, microbatches: int, layers: int) -> StepWork:
        """The job with so many copies of the weights, parts of a sequence, microbatches, and layers of a chunk."""
        scenario, schedule = self._scenario, self._schedule
        ends = list(accumulate((min(layers, count) for count in self._chunks), initial=0))
        layers_of = tuple(range(begin, end) for begin, end in pairwise(ends))
        pipelines = 1 if copies is None else copies.num_ranks
        slots = orders_of(schedule.pipeline, scenario.num_stages, microbatches).slots
        backward: tuple[GroupWork, ...] = (self._backward,)
        is_dual = schedule.pipeline.kind is PipelineKind.DUAL
        if is_dual or schedule.pipeline.kind is PipelineKind.ZERO_BUBBLE:
            apart = of_weights(self._backward.workload)
            work = self._backward
            backward = tuple(
                replace(work, workload=some_ops(work.workload, apart, of=of), plan=some_parts(work.plan, apart, of=of))
                for of in (False, True)
            )
        context = self._part.context
        passes = [in_parts(each, context, parts, schedule.context) for each in (self._forward, *backward)]
        return StepWork(
            scenario.name,
            f"{schedule.name}: {schedule.pipeline.expression} zero {schedule.zero}",
            passes[0],
            tuple(passes[1:]),
            schedule.keep == KEEP_LEAST,
            tuple(tuple(_in_turn(order, microbatches // 2 if is_dual else 0)) for order in slots),
            layers_of,
            pipelines,
            microbatches,
            self._strides(pipelines),
            self._send(),
            tuple(self._sets(pipelines, is_dual=is_dual)),
            schedule.zero,
            Overlapped.GRADIENTS in schedule.overlapped,
            Overlapped.WEIGHTS in schedule.overlapped,
            tuple(self._notes(pipelines, parts, microbatches, layers_of[-1].stop)),
            parts,
        )

    def _sets(self, pipelines: int, *, is_dual: bool) -> Iterator[WeightSet]:
        """The weights of a layer, by the ranks that hold the same: of so many pipelines, or all of their stages.

        Two stages that have the same layers take weights at different times, so that each gathers its own (ZeRO-3).
        """
        ranks, part, apart = self._forward.num_ranks, self._part, is_dual and self._schedule.zero == 3
        weights = weights_of(replace(part.forward, workload=self._forward.workload))
        for whole, system in ((False, part.copies), (True, part.stage or part.forward.system)):
            own = [each for each in weights if (each.shard is Shard.NONE and ranks > 1) is whole]
            copies = pipelines * (1 + (is_dual and not apart)) * (ranks if whole else 1)
            system = system or self._scenario.stages
            if own:
                names, elements = tuple(each.name for each in own), sum(_elements(each, ranks, whole) for each in own)
                among = None if copies == 1 or system is None else replace(system, num_ranks=copies)
                sums, gathers = (None, None) if among is None else self._traffic(among, elements)
                joins = self._joins(-(-elements // copies)) if apart else None
                yield WeightSet(names, whole, sums, gathers, joins)

    def _joins(self, elements: int) -> GroupWork:
        """The sum of so many elements of gradients of two stages."""
        assert self._scenario.stages is not None, "there are several stages"
        pair = replace(self._scenario.stages, num_ranks=2)
        return shared_work(pair, SharedTraffic(Pattern.ALL_REDUCE, self._scenario.step.optimizer.gradients, elements))

    def _traffic(self, copies: System, elements: int) -> tuple[GroupWork, GroupWork | None]:
        """The sums of gradients, and the gathers of weights, among ranks that hold the same."""
        zero = self._schedule.zero
        pattern = Pattern.REDUCE_SCATTER if zero else Pattern.ALL_REDUCE
        sums = SharedTraffic(pattern, self._scenario.step.optimizer.gradients, elements)
        gathers = SharedTraffic(Pattern.ALL_GATHER, handed_on(self._part.forward).dtype, elements)
        return shared_work(copies, sums), shared_work(copies, gathers) if zero else None

    def _send(self) -> GroupWork | None:
        stages = self._scenario.stages
        if stages is None or self._scenario.num_stages == 1:
            return None
        case, plan = send_plan(stages, replace(self._part.forward, workload=self._forward.workload))
        return GroupWork(case.system, Workload.of_one(case.shape, "send"), Plan.of_one("send", case.shape, plan))

    def _strides(self, pipelines: int) -> tuple[int, int, int]:
        """How far apart neighbours are in a group, among pipelines and stages: as the mesh says if all are there."""
        ranks = self._forward.num_ranks
        axes = {axis.name: axis.stride for axis in self._scenario.system.mesh}
        group = self._part.forward.system.name.split(".")[1:]
        others = [name for name in axes if name not in (*group, "pp")]
        if self._part.copies is None or pipelines < self._part.copies.num_ranks or len(others) != 1:
            return 1, ranks, ranks * pipelines
        return axes.get(group[0], 1) if group else 1, axes[others[0]], axes.get("pp", ranks * pipelines)

    def _notes(self, pipelines: int, parts: int, microbatches: int, layers: int) -> Iterator[str]:
        step, context = self._scenario.step, self._part.context
        if self.divisor > 1:
            yield f"all sizes of its layers are divided by {self.divisor}"
        if layers < step.num_layers:
            yield f"{layers} of {step.num_layers} layers"
        if microbatches < step.microbatches:
            yield f"{microbatches} of {step.microbatches} microbatches"
        if self._part.copies is not None and pipelines < self._part.copies.num_ranks:
            yield f"{pipelines} of {self._part.copies.num_ranks} pipelines"
        if context is not None and parts < context.num_ranks:
            yield f"{parts} of {context.num_ranks} parts of a sequence"
        if step.vocabulary:
            yield "without the embedding and the head"
        yield "the gradient of what the last layer makes is that itself; kernels that are no products are stood in for"


def _in_turn(order: Iterable[Slot], second: int) -> Iterator[ChunkPass]:
    """Yield the passes of a stage one after the other.

    Where two paths cross, microbatches of the second are counted from ``second`` on, and gradients of inputs and of
    weights are apart in all backward passes, as in some of them.
    """
    for task in (task for slot in order for task in slot):
        own = task._replace(microbatch=task.microbatch + second * task.path)
        if second and task.work is PassKind.BACKWARD:
            yield from (own._replace(work=work) for work in (PassKind.INPUTS, PassKind.WEIGHTS))
        else:
            yield own


def _divided(passes: list[tuple[Scenario, Schedule]]) -> tuple[int, GroupWork, GroupWork]:
    """The passes with sizes divided by as much as plans allow, and by how much."""
    ranks = passes[0][0].num_ranks
    common, failure = gcd(*(size for each, _ in passes for size in _extents(each.workload, ranks))), None
    for divisor in (each for each in range(common, 0, -1) if common % each == 0):
        small = [divided(each.workload, divisor, ranks) for each, _ in passes]
        if divisor > 1 and min(least for each in small for least in _parts(each, ranks)) < LEAST:
            continue
        try:
            plans = [pass_plan(each.system, one, how) for (each, how), one in zip(passes, small, strict=True)]
        except ScheduleError as error:
            failure = error
            continue
        largest = max(each.rows * each.cols for one in small for each in one.tensors)
        if largest > MOST_ELEMENTS:
            hint = "--set parameters to sizes that have a large common divisor"
            raise refused(f"the smallest sizes of {passes[0][0].name} have {largest:,} elements", hint)
        forward, backward = (
            GroupWork(each.system, one, plan) for (each, _), one, plan in zip(passes, small, plans, strict=True)
        )
        return divisor, forward, backward
    assert failure is not None, "the sizes as they are were tried"
    raise failure


def divided(workload: Workload, divisor: int, ranks: int) -> Workload:
    """Return a workload whose rows and columns are divided, with those of its kernels.

    Rows that are exchanged are as many as tokens have ranks of their experts: made blocks of whole rows for each rank.

    Raises
    ------
    RunRefused
        If it has a kernel of which that is not known.
    """

    exchanged = _exchanged(workload, ranks)

    def tensor(each: Tensor, blocks: int = 1) -> Tensor:
        blocks = ranks**2 if each.name in exchanged and each.shard is Shard.ROWS else blocks
        return replace(each, rows=each.rows // divisor // blocks * blocks, cols=each.cols // divisor)

    def shape(each: OpShape) -> OpShape:
        if each.then is not None or each.loads or each.split:
            raise refused(f"{workload.name} has {each.label}, which is not carried out in a step")
        return replace(
            each,
            tensors=tuple(map(tensor, each.tensors)),
            moved=None if each.moved is None else tensor(each.moved, ranks if each.pattern.exchanges else 1),
            gemm=None if each.gemm is None else _gemm(each.gemm, divisor),
            kernel=None if each.kernel is None else _kernel(each.kernel, divisor),
        )

    ops = []
    for op in workload.ops:
        parts = (None if read.part is None else _part(read.part, divisor) for read in op.reads)
        reads = tuple(replace(read, part=part) for read, part in zip(op.reads, parts, strict=True))
        ops.append(replace(op, shape=shape(op.shape), reads=reads))
    return replace(workload, ops=tuple(ops), tensors=tuple(map(tensor, workload.tensors)), batch=None)


def _part(part: ColumnPart, divisor: int) -> ColumnPart:
    return replace(part, first=part.first // divisor, cols=part.cols // divisor, of=part.of // divisor)


def _gemm(shape: GemmShape, divisor: int) -> GemmShape:
    return replace(shape, m=shape.m // divisor, n=shape.n // divisor, k=shape.k // divisor)


def _kernel(shape: KernelShape, divisor: int) -> KernelShape:
    if isinstance(shape, AttentionShape | AttentionBackShape):
        return replace(
            shape,
            q_len=shape.q_len // divisor,
            kv_len=shape.kv_len // divisor,
            head_dim=max(1, shape.head_dim // divisor),
            values=None if shape.values is None else max(1, shape.values // divisor),
        )
    if isinstance(shape, GroupedGemmShape):
        rows = tuple(count // divisor for count in shape.rows)
        return replace(shape, rows=rows, n=shape.n // divisor, k=shape.k // divisor)
    if isinstance(shape, RowWiseShape):
        elements, read = shape.num_elements // divisor**2, shape.read_bytes // divisor**2
        return replace(shape, num_elements=elements, read_bytes=read)
    if isinstance(shape, ElementwiseShape):
        return replace(shape, num_elements=shape.num_elements // divisor**2)
    raise refused(f"{shape.operation} is not carried out in a step")


def _exchanged(workload: Workload, ranks: int) -> frozenset[str]:
    """The tensors of rows that are exchanged, but for those with the rows of all tokens."""
    rows = {ranks * op.shape.moved.rows for op in workload.ops if op.shape.pattern.exchanges and op.shape.moved}
    tokens = {each.rows for each in workload.tensors if workload.repeat and each.name == workload.repeat.as_input}
    return frozenset(each.name for each in workload.tensors if each.rows in rows - tokens)


def _extents(workload: Workload, ranks: int) -> Iterator[int]:
    """Yield all sizes that are divided."""
    exchanged = _exchanged(workload, ranks)
    for tensor in workload.tensors:
        yield from (tensor.cols,) if tensor.name in exchanged else (tensor.rows, tensor.cols)
    for op in workload.ops:
        kernel = op.shape.kernel
        yield from kernel.rows if isinstance(kernel, GroupedGemmShape) else ()
        if isinstance(kernel, AttentionShape | AttentionBackShape):
            yield from (kernel.q_len,) if kernel.context > 1 else (kernel.q_len, kernel.kv_len)
        yield from (size for read in op.reads if read.part is not None for size in (read.part.first, read.part.cols))


def _parts(workload: Workload, ranks: int) -> Iterator[int]:
    """Yield rows and columns of what ranks have; 0 where they do not divide among them."""
    for tensor in workload.tensors:
        rows = ranks if tensor.shard in (Shard.ROWS, Shard.FLAT) else 1
        cols = ranks if tensor.shard is Shard.COLS else 1
        flat = LEAST if tensor.shard is Shard.FLAT else 1  # a row of it is enough: gathered they are many
        yield 0 if tensor.rows % rows else tensor.rows // rows * flat
        yield 0 if tensor.cols % cols else tensor.cols // cols
    heights = {tensor.name: tensor.rows for tensor in workload.tensors}
    for shape in (op.shape for op in workload.ops if op.shape.pattern.exchanges):
        moved = 0 if shape.moved is None else shape.moved.rows
        yield moved if moved % ranks == 0 and heights[shape.output] == ranks * moved else 0


def _elements(tensor: Tensor, ranks: int, whole: bool) -> int:
    return tensor.rows * tensor.cols // (1 if whole else ranks)
