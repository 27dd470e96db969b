"""A step as a job that can be carried out with real data: small sizes, and the plans of all that it is made of."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, chain, pairwise, product
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
    without_batch,
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
    handed_on,
    weights_of,
)
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.groups import cut_up
from ...compiler.planning.parts import in_batches
from ...runtime.report import MAX_STEPS
from ...runtime.steps.cut import CutWork
from ...runtime.steps.work import GroupWork, LayerWork, StepWork, WeightSet
from ...simcore.steps.orders import Slot, orders_of, rejected
from ..layers.beside import GroupLayer, SharedTraffic
from .layer_times import of_weights, schedule_of
from .outcome import chunks_of
from .plans import check_kept, in_parts, refused, send_plan, shared_work, some_work
from .ranks import StageRanks, check_handed_on, ranks_of_stage

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
    small = _Small(scenario, schedule)
    for ranks, microbatches, layers in _sizes(scenario, schedule, small.ranks):
        job = small.job(ranks, microbatches, layers)
        if job.num_steps <= MAX_STEPS:
            break
    return job


def _sizes(scenario: StepScenario, schedule: StepSchedule, ranks: StageRanks) -> Iterator[tuple[StageRanks, int, int]]:
    """Yield the ranks of a stage, microbatches, and layers of each kind in a chunk, the most first."""
    microbatches, stages = scenario.step.microbatches, scenario.num_stages
    fewer, parts = [microbatches, 2 * stages, stages], ranks.parts
    of_ranks = [ranks, ranks.fewer(max(2, parts), parts), ranks.fewer(2, min(2, parts))]
    for each, layers in product(dict.fromkeys(of_ranks), range(LAYERS, 0, -1)):
        for count in dict.fromkeys(each for each in fewer if each <= microbatches):
            if rejected(schedule.pipeline, stages, count) is None or count == microbatches:
                yield each, count, layers


class _Small:
    """A step whose sizes are divided by as much as its plans allow."""

    def __init__(self, scenario: StepScenario, schedule: StepSchedule) -> None:
        self._scenario, self._schedule = scenario, schedule
        self._chunks = chunks_of(scenario, schedule)
        blocks, named = scenario.step.blocks, dict(schedule.parts)
        self._parts = {part.forward.name: part for block in blocks for part in block.parts}
        self.ranks = ranks_of_stage(scenario, tuple(self._parts.values()))
        check_handed_on(self.ranks, [part.forward for part in self._parts.values()])
        passes = [each for part in self._parts.values() for each in (part.forward, part.back(schedule.keep))]
        scheduled = [(each, schedule_of(each, named.get(each.name))) for each in passes]
        self.divisor, works = _divided(scheduled)
        self._works = dict(zip(self._parts, zip(works[::2], works[1::2], strict=True), strict=True))
        for forward, back in self._works.values():
            check_kept(forward, back)

    def job(self, ranks: StageRanks, microbatches: int, layers: int) -> StepWork:
        """The job with these ranks of a stage, so many microbatches, and layers of each kind in a chunk."""
        scenario, schedule = self._scenario, self._schedule
        slots = orders_of(schedule.pipeline, scenario.num_stages, microbatches).slots
        is_dual = schedule.pipeline.kind is PipelineKind.DUAL
        chunks = self._layers(layers)
        parts = list(chain(*chunks))
        ends = list(accumulate(map(len, chunks), initial=0))
        numbers = {layer: number for number, layer in enumerate(dict.fromkeys(layer for _, layer in parts))}
        return StepWork(
            scenario.name,
            f"{schedule.name}: {schedule.pipeline.expression} zero {schedule.zero}",
            tuple(self._kind(name, of, ranks) for of, name in enumerate(self._parts)),
            tuple((kind, numbers[layer]) for kind, layer in parts),
            schedule.keep == KEEP_LEAST,
            tuple(tuple(_in_turn(order, microbatches // 2 if is_dual else 0)) for order in slots),
            tuple(range(begin, end) for begin, end in pairwise(ends)),
            ranks.pipelines,
            microbatches,
            (ranks.near, ranks.far),
            *self._send(),
            schedule.zero,
            Overlapped.GRADIENTS in schedule.overlapped,
            Overlapped.WEIGHTS in schedule.overlapped,
            tuple(self._notes(ranks, microbatches, len(numbers))),
        )

    def _layers(self, most: int) -> list[list[tuple[int, int]]]:
        """Of each chunk the kinds of its layers and their numbers, part by part: so many of each block at most."""
        blocks, kinds = self._scenario.step.blocks, list(self._parts)
        of = [number for number, block in enumerate(blocks) for _ in range(block.count)]
        found = list[list[tuple[int, int]]]()
        for begin, end in pairwise(accumulate(self._chunks, initial=0)):
            chosen = [layer for layer in range(begin, end) if of[begin:layer].count(of[layer]) < most]
            found.append(
                [(kinds.index(part.forward.name), layer) for layer in chosen for part in blocks[of[layer]].parts]
            )
        return found

    def _kind(self, name: str, of: int, ranks: StageRanks) -> LayerWork:
        """What one workload computes of layers."""
        schedule, part = self._schedule, self._parts[name]
        forward, back = self._works[name]
        backward: tuple[GroupWork, ...] = (back,)
        if schedule.pipeline.kind in (PipelineKind.DUAL, PipelineKind.ZERO_BUBBLE):
            backward = tuple(some_work(back, of_weights, of=own) for own in (False, True))
        context = None if part.context is None else replace(part.context, num_ranks=ranks.contexts[of][1])
        passes = [in_parts(each, context, schedule.context) for each in (forward, *backward)]
        of_several = any(len(block.parts) > 1 for block in self._scenario.step.blocks)
        return LayerWork(
            name if of_several else "",
            passes[0],
            tuple(passes[1:]),
            ranks.places(ranks.groups[of]),
            ranks.places(ranks.contexts[of]) if context is not None else (),
            tuple(self._sets(part, forward.workload, ranks.size)),
        )

    def _sets(self, part: LayerPart, small: Workload, stage: int) -> Iterator[WeightSet]:
        """The weights of a layer, by the ranks that hold the same: of pipelines, or all ``stage`` ranks of a stage.

        Two stages that have the same layers take weights at different times, so that each gathers its own (ZeRO-3).
        """
        ranks, is_dual = part.forward.num_ranks, self._schedule.pipeline.kind is PipelineKind.DUAL
        apart, weights = is_dual and self._schedule.zero == 3, weights_of(replace(part.forward, workload=small))
        for whole, system in ((False, part.copies), (True, part.stage or part.forward.system)):
            own = [each for each in weights if (each.shard is Shard.NONE and ranks > 1) is whole]
            copies = stage // (1 if whole else ranks) * (1 + (is_dual and not apart))
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
        return shared_work(SharedTraffic(pair, Pattern.ALL_REDUCE, self._scenario.step.optimizer.gradients, elements))

    def _traffic(self, copies: System, elements: int) -> tuple[GroupWork, GroupWork | None]:
        """The sums of gradients, and the gathers of weights, among ranks that hold the same."""
        zero, dtype = self._schedule.zero, handed_on(next(iter(self._parts.values())).forward).dtype
        pattern = Pattern.REDUCE_SCATTER if zero else Pattern.ALL_REDUCE
        sums = SharedTraffic(copies, pattern, self._scenario.step.optimizer.gradients, elements)
        gathers = SharedTraffic(copies, Pattern.ALL_GATHER, dtype, elements)
        return shared_work(sums), shared_work(gathers) if zero else None

    def _send(self) -> tuple[GroupWork | None, GroupWork | None]:
        """What a rank sends to the next stage, and what gathers that there where each rank of a group has all."""
        stages, (name, part) = self._scenario.stages, next(iter(self._parts.items()))
        if stages is None or self._scenario.num_stages == 1:
            return None, None
        small = replace(part.forward, workload=self._works[name][0].workload)
        case, plan = send_plan(stages, small)
        send = GroupWork(case.system, Workload.of_one(case.shape, "send"), Plan.of_one("send", case.shape, plan))
        moved, ranks = handed_on(small), small.num_ranks
        if moved.shard is not Shard.NONE or ranks == 1:
            return send, None
        if moved.rows % ranks:
            raise refused(f"{moved.rows} rows of {moved.name} of {name} are no {ranks} equal parts to be sent")
        gathered = SharedTraffic(small.system, Pattern.ALL_GATHER, moved.dtype, moved.rows * moved.cols)
        return send, shared_work(gathered)

    def _notes(self, ranks: StageRanks, microbatches: int, layers: int) -> Iterator[str]:
        step = self._scenario.step
        if self.divisor > 1:
            yield f"all sizes of its layers are divided by {self.divisor}"
        if layers < step.num_layers:
            yield f"{layers} of {step.num_layers} layers"
        if microbatches < step.microbatches:
            yield f"{microbatches} of {step.microbatches} microbatches"
        if ranks.pipelines < self.ranks.pipelines:
            yield f"{ranks.pipelines} of {self.ranks.pipelines} pipelines"
        if ranks.parts < self.ranks.parts:
            yield f"{ranks.parts} of {self.ranks.parts} parts of a sequence"
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


def _divided(passes: list[tuple[Scenario, Schedule]]) -> tuple[int, list[GroupWork]]:
    """By how much sizes are divided, which is as much as plans allow, and the passes."""
    pieces = [cut_up(each.workload, how.cut) for each, how in passes]
    both = [
        (one, each.num_ranks) for (each, _), cut in zip(passes, pieces, strict=True) for one in (each.workload, cut)
    ]
    common, failure = gcd(*(size for one, ranks in both for size in _extents(one, ranks))), None
    for divisor in (each for each in range(common, 0, -1) if common % each == 0):
        small = [divided(one, divisor, ranks) for one, ranks in both]
        sizes = (size for one, (_, ranks) in zip(small, both, strict=True) for size in _parts(one, ranks))
        if divisor > 1 and min(sizes) < LEAST:
            continue
        try:
            works = [_work(*each, *one) for each, *one in zip(passes, small[::2], small[1::2], strict=True)]
        except ScheduleError as error:
            failure = error
            continue
        largest = max(each.rows * each.cols for one in small for each in one.tensors)
        if largest > MOST_ELEMENTS:
            hint = "--set parameters to sizes that have a large common divisor"
            raise refused(f"the smallest sizes of {passes[0][0].name} have {largest:,} elements", hint)
        return divisor, works
    assert failure is not None, "the sizes as they are were tried"
    raise failure


def _work(scenario: Scenario, schedule: Schedule, whole: Workload, pieces: Workload) -> GroupWork:
    """A pass with small sizes, and its ``pieces`` where the schedule cuts it."""
    system, cut = scenario.system, schedule.cut
    work = GroupWork(system, pieces, GroupLayer(system, pieces, replace(schedule, batches=1, groups=())).plan)
    if cut == UNCUT:
        return work
    in_rows = in_batches(scenario.workload, cut.batches)
    batched = frozenset(without_batch(each.name) for each in in_rows.tensors if each.name != without_batch(each.name))
    return replace(work, workload=whole, cut=CutWork(cut, whole, batched, work))


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
        blocks = ranks**2 if without_batch(each.name) in exchanged and each.shard is Shard.ROWS else blocks
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
    tokens = {each.rows for each in workload.tensors if workload.repeat and each.name in workload.repeat.carried}
    return frozenset(without_batch(each.name) for each in workload.tensors if each.rows in rows - tokens)


def _extents(workload: Workload, ranks: int) -> Iterator[int]:
    """Yield all sizes that are divided."""
    exchanged = _exchanged(workload, ranks)
    for tensor in workload.tensors:
        yield from (tensor.cols,) if without_batch(tensor.name) in exchanged else (tensor.rows, tensor.cols)
    for op in workload.ops:
        kernel = op.shape.kernel
        yield from kernel.rows if isinstance(kernel, GroupedGemmShape) else ()
        if isinstance(kernel, AttentionShape | AttentionBackShape):
            yield from (kernel.q_len,) if kernel.context > 1 else (kernel.q_len, kernel.kv_len)
        yield from (size for read in op.reads if read.part is not None for size in (read.part.first, read.part.cols))


def _parts(workload: Workload, ranks: int) -> Iterator[int]:
    """Yield rows and columns of what ranks have; 0 where they do not divide among them, or what is sent does not."""
    for tensor in workload.tensors:
        if tensor.shard is Shard.NONE and workload.repeat is not None and tensor.name in workload.repeat.carried:
            yield 0 if tensor.rows % ranks else tensor.rows
        rows = ranks if tensor.shard in (Shard.ROWS, Shard.FLAT) else 1
        cols = ranks if tensor.shard is Shard.COLS else 1
        flat = LEAST if tensor.shard is Shard.FLAT else 1  # a row of it is enough: gathered they are many
        yield 0 if tensor.rows % rows else tensor.rows // rows * flat
        yield 0 if tensor.cols % cols else tensor.cols // cols
    for op in (op for op in workload.ops if op.shape.pattern.exchanges):
        moved = 0 if op.shape.moved is None else op.shape.moved.rows
        yield moved if moved % ranks == 0 and workload.output_of(op).rows == ranks * moved else 0


def _elements(tensor: Tensor, ranks: int, whole: bool) -> int:
    return tensor.rows * tensor.cols // (1 if whole else ranks)
