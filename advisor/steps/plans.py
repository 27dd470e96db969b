"""Plans of what a step is made of: passes of a layer, some parts of them, and what stages send."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from ...compiler.codes import Code
from ...compiler.ir import (
    UNCUT,
    AttentionBackShape,
    AttentionShape,
    ElementwiseShape,
    EngineMode,
    GroupedGemmShape,
    Made,
    OpCase,
    OpChoice,
    OpPlan,
    OpShape,
    Pattern,
    Plan,
    Read,
    Rejection,
    Scenario,
    Shard,
    System,
    Tensor,
    Workload,
)
from ...compiler.ir.step import KEEP_ALL, KEEP_LEAST, ContextKind, Overlapped, PipelineKind, handed_on
from ...compiler.planning.build import build_op_plan
from ...compiler.planning.groups import routings
from ...compiler.planning.knobs.library import library_engine
from ...compiler.templates import BASELINE
from ...runtime.report import RunRefused
from ...runtime.steps.work import GroupWork, KeyExchange
from ..layers.beside import SharedTraffic, some_parts, traffic_plan
from .outcome import StepOutcome


def some_ops(workload: Workload, apart: frozenset[str], *, of: bool) -> Workload:
    """Return a workload of some ops, as ``some_parts``; what they read of the others is there from the start."""
    names = {op.name for op in workload.ops if (op.name in apart) is of}

    def read(each: Read) -> Read:
        return each if each.made_by in names else replace(each, made_by="", what=Made.OUTPUT)

    ops = tuple(replace(op, reads=tuple(map(read, op.reads))) for op in workload.ops if op.name in names)
    return replace(workload, ops=ops, results=tuple(each for each in workload.results if each[1] in names))


def some_work(work: GroupWork, apart: Callable[[Workload], frozenset[str]], *, of: bool) -> GroupWork:
    """Return a pass of the ops ``apart``, or of the others, in its pieces too."""
    names = apart(work.workload)
    whole, cut = some_ops(work.workload, names, of=of), work.cut
    if cut is not None:
        cut = replace(cut, whole=whole, work=some_work(cut.work, apart, of=of))
    return replace(work, workload=whole, plan=some_parts(work.plan, names, of=of), cut=cut)


def send_plan(stages: System, forward: Scenario) -> tuple[OpCase, OpPlan]:
    """Return what a rank of one stage sends to one of the next, by the SMs of the library: the rows that it has.

    Of rows that all ranks of a group have it is a part.

    Raises
    ------
    ScheduleError
        If no algorithm does it.
    """
    moved, pair = handed_on(forward), replace(stages, num_ranks=2)
    rows = moved.rows // (1 if moved.shard is Shard.COLS else forward.num_ranks)
    cols = moved.cols // (forward.num_ranks if moved.shard is Shard.COLS else 1)
    tensor = Tensor("x", moved.dtype, rows, cols, Shard.NONE)
    case = OpCase("send", pair, OpShape("send", "", Pattern.SEND_RECV, (tensor,), tensor, None, "y"))
    choice = OpChoice(BASELINE.name, pair.num_ranks, replace(library_engine(pair.gpu), mode=EngineMode.SHARED))
    return case, build_op_plan(case, choice)


def shared_work(traffic: SharedTraffic) -> GroupWork:
    """Return a collective among ranks, to be carried out."""
    case, plan = traffic_plan(traffic)
    name = traffic.pattern.value
    return GroupWork(traffic.ranks, Workload.of_one(case.shape, name), Plan.of_one(name, case.shape, plan))


def refused(message: str, hint: str = "magus simulate answers about it") -> RunRefused:
    """Return why a step is not carried out."""
    return RunRefused(Rejection(Code.MGS540, message, hint))


def check_kept(forward: GroupWork, back: GroupWork) -> None:
    """Check that the backward pass can take what the forward pass leaves, where they are not cut alike.

    Rows of tokens are put together; rows go to other experts in each batch, and twice to some ranks in groups.

    Raises
    ------
    RunRefused
        If it cannot.
    """
    cuts = [UNCUT if work.cut is None else work.cut.cut for work in (forward, back)]
    at_experts = routings(forward.workload)
    taken = {read.tensor for read in back.workload.declared_reads} if cuts[0] != cuts[1] else set[str]()
    in_batches = any(cut.batches > 1 for cut in cuts)
    for name, op, _ in forward.workload.results:
        if name in taken and op in at_experts and (in_batches or forward.shape_of(name) != back.shape_of(name)):
            names = forward.workload.name, back.workload.name
            message = (
                f"{name} has rows at experts, which are others in the batches or groups of {' and of '.join(names)}"
            )
            hint = "keep results before and behind experts, or write the backward pass out and cut both alike"
            raise refused(message, hint)


def in_parts(work: GroupWork, context: System | None, kind: ContextKind) -> GroupWork:
    """Return a pass that is cut behind attention that takes keys and values of all ranks of ``context``."""
    if work.cut is not None:
        return replace(work, cut=replace(work.cut, work=in_parts(work.cut.work, context, kind)))
    ops = {op.name: op for op in work.workload.ops}
    found = [name for name, op in ops.items() if isinstance(op.shape.kernel, AttentionShape) and op.shape.kernel.over]
    if context is None or not found:
        return work
    op, shape = ops[found[0]], ops[found[0]].shape.kernel
    assert isinstance(shape, AttentionShape), "it was found by that"
    is_back, is_ring = isinstance(shape, AttentionBackShape), kind is ContextKind.RING
    operands = tuple(read.tensor for read in op.reads[: len(op.reads) - 2 * is_back])
    sizes, keys = [work.shape_of(each) for each in operands], shape.kv_heads * shape.key_cols
    cols = max(1, sum(width for _, width in sizes) * keys // (shape.heads * shape.head_dim + keys))
    through = frozenset(list(ops)[: list(ops).index(op.name) + 1])
    first, rest = (some_work(work, lambda _: through, of=of) for of in (True, False))
    ranks = replace(context, num_ranks=2) if is_ring else context
    gather, scatter = (
        shared_work(
            SharedTraffic(ranks, pattern, op.shape.tensors[0].dtype, ranks.num_ranks * sizes[0][0] * cols, is_ring)
        )
        for pattern in (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER)
    )
    back, gradient = (None if is_ring else scatter, op.reads[-1].tensor) if is_back else (None, "")
    later = in_parts(rest, context, kind)
    exchange = KeyExchange(
        op.name, work.workload.output_of(op).name, operands, cols, first, later, gather, back, gradient, is_ring
    )
    return replace(work, exchange=exchange)


# A layout in the words of frameworks: what to switch on.
#
# Megatron-LM ``arguments.py``; torchtitan ``job_config.py`` and ``pipeline_parallel.py``; DeepSpeed ``config-json``;
# MaxText ``base.yml``. Other schedules do not stand in: zero-bubble and dual pipelines of torchtitan have two chunks on
# each stage, along a V; pipelines of MaxText compute all microbatches forward before any backward.

FRAMEWORKS = ("Megatron-LM", "torchtitan", "DeepSpeed", "MaxText")

_MEGATRON = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
}
_TITAN = {"tp": "tensor_parallel_degree", "pp": "pipeline_parallel_degree", "cp": "context_parallel_degree"}
_TITAN |= {"ep": "expert_parallel_degree"}
_TITAN_SCHEDULES = {
    PipelineKind.ONE_F_ONE_B: "1F1B",
    PipelineKind.INTERLEAVED: "Interleaved1F1B",
}
_MAXTEXT = {"tp": "ici_tensor_parallelism", "cp": "context_parallel_size", "ep": "ici_expert_parallelism"}


def flags_of(outcome: StepOutcome) -> tuple[tuple[str, str], ...]:
    """Return each framework that has the schedule, with its settings in one line."""
    writers = zip(FRAMEWORKS, (_megatron, _titan, _deepspeed, _maxtext), strict=True)
    found = ((name, " ".join(write(outcome))) for name, write in writers)
    return tuple((name, text) for name, text in found if text)


def can_run(outcome: StepOutcome, framework: str) -> bool:
    """Whether a framework of ``FRAMEWORKS`` has a layout with its schedule; without a name any will do."""
    return not framework or framework in dict(flags_of(outcome))


def made_again(outcome: StepOutcome) -> frozenset[str]:
    """Return what the backward pass computes again where a schedule keeps some results and drops others.

    In the words of Megatron-LM for modules; ``sum`` is what follows a product, ``qkv`` one before attention.
    """
    found = set[str]()
    parts = (part for block in outcome.scenario.step.blocks for part in block.parts)
    for part in parts if outcome.schedule.keep != KEEP_LEAST else ():
        both = (part.back(keep).workload for keep in (KEEP_ALL, outcome.schedule.keep))
        every, kept = ({read.tensor for read in each.declared_reads} for each in both)
        ops = {op.name: op for op in part.forward.workload.ops}
        attention = [place for place, op in enumerate(ops.values()) if isinstance(op.shape.kernel, AttentionShape)]
        for name, maker, _ in part.forward.workload.results:
            if name in every - kept:
                before = list(ops).index(maker) < max(attention, default=-1)
                found.add(_module(ops[maker].shape, before=before))
    return frozenset(found)


def _module(shape: OpShape, *, before: bool) -> str:
    """Of what makes a result, ``before`` attention or behind it."""
    match shape.kernel:
        case AttentionShape():
            return "core_attn"
        case GroupedGemmShape():
            return "moe"
        case ElementwiseShape():
            return "sum"
    return "moe" if shape.pattern.exchanges else "qkv" if before else "mlp"


def _megatron(outcome: StepOutcome) -> Iterator[str]:
    schedule, sizes, again = outcome.schedule, outcome.sizes, sorted(made_again(outcome))
    if schedule.pipeline.kind in (PipelineKind.ZERO_BUBBLE, PipelineKind.DUAL) and outcome.scenario.num_stages > 1:
        return
    if not set(again) <= {"core_attn", "mlp", "moe"}:
        return
    for axis, flag in _MEGATRON.items():
        if sizes.get(axis, 1) > 1:
            yield f"{flag} {sizes[axis]}"
    first = outcome.scenario.step.blocks[0].parts[0].forward
    if sizes.get("tp", 1) > 1 and handed_on(first).shard is not Shard.NONE:
        yield "--sequence-parallel"
    if outcome.scenario.in_context:
        yield f"--cp-comm-type {'p2p' if schedule.context is ContextKind.RING else 'all_gather'}"
    if len(set(outcome.run.chunks)) > 1:
        layers = "|".join(f"t*{count}" for count in outcome.run.chunks)
        yield f"--pipeline-model-parallel-layout 'E{layers}L'"
    elif schedule.pipeline.chunks > 1:
        yield f"--num-layers-per-virtual-pipeline-stage {max(outcome.run.chunks)}"
    yield f"--micro-batch-size {_plain(outcome.microbatch)} --global-batch-size {outcome.scenario.step.sequences}"
    if outcome.shares_weights:
        yield "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"
    elif schedule.zero == 2:
        yield "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"
    elif schedule.zero:
        yield "--use-distributed-optimizer"
    for each, flag in ((Overlapped.GRADIENTS, "grad-reduce"), (Overlapped.WEIGHTS, "param-gather")):
        if each in schedule.overlapped and (schedule.zero or each is Overlapped.GRADIENTS):
            yield f"--overlap-{flag}"
    if schedule.keep == KEEP_LEAST:
        yield "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    elif again:
        yield f"--recompute-granularity selective --recompute-modules {' '.join(again)}"


def _titan(outcome: StepOutcome) -> Iterator[str]:
    schedule, sizes = outcome.schedule, outcome.sizes
    pipelined = outcome.scenario.num_stages > 1
    again = made_again(outcome)
    if not outcome.shares_weights or (pipelined and schedule.pipeline.kind not in _TITAN_SCHEDULES):
        return
    if not again <= {"sum"}:
        return
    for axis, key in _TITAN.items():
        if sizes.get(axis, 1) > 1:
            yield f"--parallelism.{key}={sizes[axis]}"
    if outcome.scenario.in_context:
        rotated = "alltoall" if schedule.context is ContextKind.RING else "allgather"
        yield f"--parallelism.context_parallel_rotate_method={rotated}"
    if pipelined:
        yield f"--parallelism.pipeline_parallel_schedule={_TITAN_SCHEDULES[schedule.pipeline.kind]}"
        yield f"--parallelism.pipeline_parallel_layers_per_stage={max(outcome.run.chunks)}"
        yield from (f"--parallelism.pipeline_parallel_{end}_stage_less_layers=0" for end in ("first", "last"))
        yield f"--parallelism.pipeline_parallel_microbatch_size={_plain(outcome.microbatch)}"
    yield f"--training.local_batch_size={_plain(outcome.microbatch * outcome.scenario.step.microbatches)}"
    mode = "full" if schedule.keep == KEEP_LEAST else "selective" if again else "none"
    yield f"--activation_checkpoint.mode={mode}"
    if again:  # every second product, of which those that sums follow
        yield "--activation_checkpoint.selective_ac_option=op"


def _deepspeed(outcome: StepOutcome) -> Iterator[str]:
    scenario, schedule = outcome.scenario, outcome.schedule
    if scenario.num_stages > 1 or scenario.in_context or any(outcome.sizes.get(axis, 1) > 1 for axis in ("tp", "ep")):
        return
    stage, beside = 3 if outcome.shares_weights else schedule.zero, "true" if schedule.overlapped else "false"
    batch = f'"train_micro_batch_size_per_gpu": {_plain(outcome.microbatch)}'
    yield f'{{"zero_optimization": {{"stage": {stage}, "overlap_comm": {beside}}}, {batch}}}'


def _maxtext(outcome: StepOutcome) -> Iterator[str]:
    if outcome.scenario.num_stages > 1 or not outcome.shares_weights or made_again(outcome):
        return
    sizes = outcome.sizes
    for axis, key in _MAXTEXT.items():
        if sizes.get(axis, 1) > 1:
            yield f"{key}={sizes[axis]}"
    data = outcome.scenario.system.num_ranks
    for axis in _MAXTEXT:
        data //= sizes.get(axis, 1)
    yield f"ici_fsdp_parallelism={data}"
    yield f"per_device_batch_size={_plain(outcome.microbatch * outcome.scenario.step.microbatches)}"
    yield f"remat_policy={'full' if outcome.schedule.keep == KEEP_LEAST else 'minimal'}"


def _plain(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else f"{float(number):g}"
