"""A layout in the words of frameworks: what to switch on.

Megatron-LM ``arguments.py``; torchtitan ``job_config.py``; DeepSpeed ``config-json``; MaxText ``base.yml``.
"""

from collections.abc import Iterator
from fractions import Fraction

from ...compiler.ir.step import KEEP_LEAST, ContextKind, Overlapped, PipelineKind
from .outcome import StepOutcome

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
    PipelineKind.ZERO_BUBBLE: "ZBVZeroBubble",
    PipelineKind.DUAL: "DualPipeV",
}
_MAXTEXT = {"tp": "ici_tensor_parallelism", "pp": "dcn_pipeline_parallelism", "cp": "context_parallel_size"}
_MAXTEXT |= {"ep": "ici_expert_parallelism"}


def flags_of(outcome: StepOutcome) -> tuple[tuple[str, str], ...]:
    """Return each framework that has the schedule, with its settings in one line."""
    writers = zip(FRAMEWORKS, (_megatron, _titan, _deepspeed, _maxtext), strict=True)
    found = ((name, " ".join(write(outcome))) for name, write in writers)
    return tuple((name, text) for name, text in found if text)


def _megatron(outcome: StepOutcome) -> Iterator[str]:
    schedule, sizes = outcome.schedule, outcome.sizes
    if schedule.pipeline.kind in (PipelineKind.ZERO_BUBBLE, PipelineKind.DUAL) and outcome.scenario.num_stages > 1:
        return
    for axis, flag in _MEGATRON.items():
        if sizes.get(axis, 1) > 1:
            yield f"{flag} {sizes[axis]}"
    if sizes.get("tp", 1) > 1:
        yield "--sequence-parallel"
    if outcome.scenario.in_context:
        yield f"--cp-comm-type {'p2p' if schedule.context is ContextKind.RING else 'all_gather'}"
    if schedule.pipeline.chunks > 1:
        yield f"--num-layers-per-virtual-pipeline-stage {max(outcome.run.chunks)}"
    yield f"--micro-batch-size {_plain(outcome.microbatch)} --global-batch-size {outcome.scenario.step.sequences}"
    if outcome.shares_weights:
        yield "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"
    elif schedule.zero:
        yield "--use-distributed-optimizer"
    for each, flag in ((Overlapped.GRADIENTS, "grad-reduce"), (Overlapped.WEIGHTS, "param-gather")):
        if each in schedule.overlapped and (schedule.zero or each is Overlapped.GRADIENTS):
            yield f"--overlap-{flag}"
    if schedule.keep == KEEP_LEAST:
        yield "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"


def _titan(outcome: StepOutcome) -> Iterator[str]:
    schedule, sizes = outcome.schedule, outcome.sizes
    if not outcome.shares_weights:
        return
    for axis, key in _TITAN.items():
        if sizes.get(axis, 1) > 1:
            yield f"--parallelism.{key}={sizes[axis]}"
    if outcome.scenario.in_context:
        rotated = "alltoall" if schedule.context is ContextKind.RING else "allgather"
        yield f"--parallelism.context_parallel_rotate_method={rotated}"
    if outcome.scenario.num_stages > 1:
        yield f"--parallelism.pipeline_parallel_schedule={_TITAN_SCHEDULES[schedule.pipeline.kind]}"
    yield f"--training.local_batch_size={_plain(outcome.microbatch * outcome.scenario.step.microbatches)}"
    yield f"--activation_checkpoint.mode={'full' if schedule.keep == KEEP_LEAST else 'none'}"


def _deepspeed(outcome: StepOutcome) -> Iterator[str]:
    scenario = outcome.scenario
    if scenario.num_stages > 1 or scenario.in_context or not outcome.shares_weights:
        return
    batch = f'"train_micro_batch_size_per_gpu": {_plain(outcome.microbatch)}'
    yield f'{{"zero_optimization": {{"stage": 3, "overlap_comm": true}}, {batch}}}'


def _maxtext(outcome: StepOutcome) -> Iterator[str]:
    if not outcome.shares_weights:
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
