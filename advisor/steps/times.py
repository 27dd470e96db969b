"""Times of what a step is made of: layers as they are simulated, traffic, the ends of the model, the optimizer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import (
    AttentionShape,
    DType,
    GemmShape,
    Made,
    Pattern,
    Scenario,
    Shard,
    Stack,
    System,
    Tensor,
)
from ...compiler.ir.step import (
    KEEP_LEAST,
    ContextKind,
    LayerPart,
    Overlapped,
    PassKind,
    PipelineKind,
    Step,
    StepScenario,
    StepSchedule,
    handed_on,
    weights_of,
)
from ...compiler.planning.knobs.library import library_rejection
from ...compiler.resolve.schedules.from_text import SERIAL
from ...simcore.kernels.gemm import gemm_work
from ...simcore.steps.pipeline import SendMet
from ...simcore.steps.step import LayerTicks, StepTicks, first_met
from ..layers.beside import LayerBeside, SharedTraffic, crosses_nodes
from .layer_times import (
    SEND_PACKET,
    TRAFFIC_PACKET,
    Held,
    LayerPass,
    LayerTimes,
    PassOf,
    PassTicks,
    expert_bytes_of,
    for_seconds,
    memory_ticks,
    stack_ticks,
)

# Sequences that lie on several ranks: what the exchange of keys and values adds to a layer (context parallelism).
#
# Attention of a layer has its share of the pairs of a sequence (``compiler/ir/operations/attention.py``). The keys and
# values of the other ranks come from them in every forward pass and again in every backward pass, whose gradients of
# keys and values go back to their ranks.


@dataclass(frozen=True, slots=True)
class _Ring:
    """The ranks of a ring, times of what they do, and whether gradients go along."""

    context: System
    times: LayerTimes
    backward: bool


def exchanged_bytes(scenario: Scenario) -> int:
    """Bytes of keys and values of whole sequences that attention of a layer sees on one rank, 0 without an exchange."""
    return sum(each.dtype.bytes_of(each.exchanged) for each in scenario.workload.in_context)


def buffer_bytes(scenario: Scenario, kind: ContextKind) -> int:
    """Bytes of keys and values of others that a rank has at once: of all ranks, or two blocks of a ring.

    Backward it has as many for their gradients.
    """
    whole = exchanged_bytes(scenario)
    context = max((each.context for each in scenario.workload.in_context), default=1)
    return whole if kind is ContextKind.GATHERED else -(-min(2, context) * whole // context)


def exchange_ticks(of: PassOf, context: System, kind: ContextKind, times: LayerTimes, *, backward: bool) -> int:
    """How much longer a pass of a layer takes than with keys and values of all ranks there.

    Parameters
    ----------
    of
        The pass.
    context
        The ranks that each have a part of a sequence.
    kind
        GATHERED: nothing is computed meanwhile. RING: attention with one block runs beside the exchange of the next.
    backward
        Whether gradients of keys and values go back.
    """
    if kind is ContextKind.RING:
        ring = _Ring(context, times, backward)
        return sum(_beyond(*each, ring) for each in _attentions(of.for_seconds()))
    moved = exchanged_bytes(of.scenario)
    patterns = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER)[: 1 + backward]
    return sum(times.traffic(SharedTraffic(context, pattern, DType.FP8, moved)) for pattern in patterns)


def _beyond(blocks: Scenario, whole: Scenario, shape: AttentionShape, ring: _Ring) -> int:
    """By how much attention in blocks is longer than attention to all keys at once.

    While a rank attends to one block the next one comes; with the last one nothing is moved. Backward, gradients of a
    block go with it (Ring Attention, section 3).
    """
    blocks_bytes = shape.dtype.bytes_of(shape.exchanged) * (1 + ring.backward)
    ranks, elements = _neighbours(ring.context, -(-blocks_bytes // shape.context))
    traffic = SharedTraffic(ranks, Pattern.ALL_GATHER, DType.FP8, elements, sends=True)
    block, times = LayerPass.of(blocks, SERIAL), ring.times
    alone, at_once = (times.by_itself(each).ticks for each in (block, LayerPass.of(whole, SERIAL)))
    both = times.both(LayerBeside(block.layer, traffic, TRAFFIC_PACKET, alike=True)) or (alone, times.traffic(traffic))
    return max(0, (shape.context - 1) * max(both) + alone - at_once)


def _neighbours(context: System, block: int) -> tuple[System, int]:
    """Ranks that gather so many elements that each of them sends a ``block`` and gets one, as in a step of a ring.

    Two of them exchange theirs, if they are as far from each other as any: in one node, or in several. Else all
    gather as much in parts, which has the latency of more steps.
    """
    pair = replace(context, num_ranks=2)
    everywhere = [crosses_nodes(each) for each in (pair, context)]
    return (
        (pair, 2 * block)
        if len(set(everywhere)) == 1
        else (context, -(-block * context.num_ranks // (context.num_ranks - 1)))
    )


def _attentions(scenario: Scenario) -> Iterator[tuple[Scenario, Scenario, AttentionShape]]:
    """Each attention of a layer that takes what others have: to one block of keys, to all of them, and its shape."""
    workload = scenario.workload
    for op in workload.ops:
        shape = op.shape.kernel
        if isinstance(shape, AttentionShape) and shape.context > 1:
            block = replace(op.shape, kernel=replace(shape, kv_len=-(-shape.kv_len // shape.context)))
            reads = tuple(replace(each, made_by="", what=Made.OUTPUT) for each in op.reads)
            results = tuple(each for each in workload.results if each[1] == op.name)
            own = (
                replace(workload, ops=(replace(op, shape=of, reads=reads),), results=results, repeat=None, batch=None)
                for of in (block, op.shape)
            )
            one, whole = (replace(scenario, workload=each) for each in own)
            yield one, whole, shape


LOSS_BYTES = 10
"""Bytes of memory for each element of the logits in the loss, forward and backward each: written in 16 bits by the
product, read and written as 32-bit numbers by the softmax, and read once more."""

CLEARED_BYTES = 8
"""Bytes of memory for each gradient beside the update: it is cleared, and read for the norm of all (4 bytes each)."""


def elements_of_rank(tensor: Tensor, ranks: int) -> int:
    """How many elements of a tensor one of the ranks of its group has."""
    elements = tensor.rows * tensor.cols
    return elements if tensor.shard is Shard.NONE else -(-elements // ranks)


def held_by(part: LayerPart) -> tuple[Held, ...]:
    """Weights of a layer that one rank has: those that its group shares, and those that each rank of it has whole."""
    ranks, shared, whole = part.forward.num_ranks, 0, 0
    for each in weights_of(part.forward):
        if each.shard is Shard.NONE and ranks > 1:
            whole += elements_of_rank(each, ranks)
        else:
            shared += elements_of_rank(each, ranks)
    found = Held(shared, part.copies), Held(whole, part.stage or part.forward.system)
    return tuple(each for each in found if each.parameters)


def have_copies(scenario: StepScenario) -> bool:
    """Whether any weights of a step lie on several ranks, which can share their states."""
    parts = (part for block in scenario.step.blocks for part in block.parts)
    return any(held.copies > 1 for part in parts for held in held_by(part))


def traffic_ticks(times: LayerTimes, system: System | None, num_bytes: int, pattern: Pattern) -> int:
    """The time of a collective of ``num_bytes``, the whole tensor, among the ranks of ``system`` alone; 0 without any.

    By the library where its time is known, which is in one node. Among nodes rings reach the bound of bandwidth, and
    each of their steps takes the latency of a link more (NCCL).
    """
    if system is None or system.num_ranks == 1 or num_bytes == 0:
        return 0
    traffic = SharedTraffic(system, pattern, DType.FP8, num_bytes)
    if library_rejection(traffic.case) is None:
        return times.traffic(traffic)
    steps = (system.num_ranks - 1) * (2 if pattern is Pattern.ALL_REDUCE else 1)
    return times.bound(traffic.case) + steps * max(link.latency_ticks for link in system.fabric.links)


def send_ticks(scenario: StepScenario, times: LayerTimes, at_once: int = 1) -> int:
    """How long a rank takes to send what a stage hands on to the next one, and to send so many of these ``at_once``.

    Of what all ranks of a group have each sends a part, and those of the next stage gather it (Narayanan et al. 2021,
    section 4.1).
    """
    if scenario.stages is None or scenario.num_stages == 1:
        return 0
    forward, gathered = scenario.step.blocks[0].parts[0].forward, 0
    moved, sent = handed_on(forward), sent_on(scenario, at_once)
    if moved.shard is Shard.NONE and forward.num_ranks > 1:
        whole = at_once * moved.dtype.bytes_of(elements_of_rank(moved, forward.num_ranks))
        gathered = traffic_ticks(times, forward.system, whole, Pattern.ALL_GATHER)
    if not times.least:
        return gathered + times.traffic(sent, SEND_PACKET)
    return gathered + times.bound(sent.case) + max(link.latency_ticks for link in sent.ranks.fabric.links)


def sent_on(scenario: StepScenario, at_once: int = 1) -> SharedTraffic:
    """What a rank sends of that, to a rank of the next stage."""
    assert scenario.stages is not None, "there are several stages"
    forward, pair = scenario.step.blocks[0].parts[0].forward, replace(scenario.stages, num_ranks=2)
    moved = handed_on(forward)
    num_bytes = at_once * moved.dtype.bytes_of(elements_of_rank(moved, forward.num_ranks))
    if moved.shard is Shard.NONE:
        num_bytes = -(-num_bytes // forward.num_ranks)
    return SharedTraffic(pair, Pattern.SEND_RECV, DType.FP8, num_bytes)


def head_shape(step: Step) -> GemmShape | None:
    """The last product on one rank, None without one: by columns where a layer has weights by columns."""
    if not step.vocabulary:
        return None
    forward = step.blocks[-1].parts[-1].forward
    tokens, ranks = handed_on(forward), forward.num_ranks
    by_columns = any(each.shard is Shard.COLS for each in weights_of(forward))
    rows, cols = (1, ranks) if by_columns else (ranks, 1)
    return GemmShape(-(-tokens.rows // rows), -(-step.vocabulary // cols), tokens.cols, tokens.dtype)


def ticks_of(scenario: StepScenario, schedule: StepSchedule, times: LayerTimes, updated: Sequence[int]) -> StepTicks:
    """Return the ticks of the parts of a step.

    Parameters
    ----------
    scenario, schedule
        The step, and how it is carried out.
    times
        Of layers.
    updated
        Weights whose states a rank of each stage updates, [stages].
    """
    layers: list[LayerTicks] = []
    named = dict(schedule.parts)
    for block in scenario.step.blocks:
        each = [_part_ticks(scenario, part, schedule, times, named) for part in block.parts]
        layers += [_sum(each)] * block.count
    gpu, optimizer = scenario.system.gpu, scenario.step.optimizer
    weight = handed_on(scenario.step.blocks[0].parts[0].forward).dtype
    moved = optimizer.moved_bytes(weight.bytes_of(1))
    update = tuple(memory_ticks(gpu, each * (moved + CLEARED_BYTES)) for each in updated)
    costs, is_dual = schedule.costs, schedule.pipeline.kind is PipelineKind.DUAL
    send, both = (send_ticks(scenario, times, at_once) for at_once in (1, 1 + is_dual))
    waited = 0 if costs is None else int(costs.sends * send)
    return StepTicks(tuple(layers), _head(scenario, costs, times), send, update, waited, both - send)


def _part_ticks(
    scenario: StepScenario, part: LayerPart, schedule: StepSchedule, times: LayerTimes, named: dict[str, str]
) -> LayerTicks:
    forward, back = part.forward, part.back(schedule.keep)
    passes = [PassOf(each, named.get(each.name), schedule.costs) for each in (forward, back)]
    ahead, behind = map(times.of, passes)
    if schedule.costs is not None:
        ahead, behind = _on_stack(ahead, behind, part, back, schedule.costs)
    if part.context is not None and not times.least:
        ahead, behind = (
            replace(ticks, ticks=ticks.ticks + exchange_ticks(of, part.context, schedule.context, times, backward=late))
            for ticks, of, late in zip((ahead, behind), passes, (False, True), strict=True)
        )
    again = ahead.ticks if schedule.keep == KEEP_LEAST else 0
    layer = LayerTicks(ahead.ticks, again + behind.ticks - behind.weights, behind.weights)
    if schedule.pipeline.kind is PipelineKind.ZERO_BUBBLE:
        layer = replace(layer, sooner=times.sooner(passes[1]))
    if schedule.pipeline.kind is PipelineKind.DUAL:
        layer = replace(layer, gained=times.gained(*passes))
    if scenario.num_stages > 1 and not (schedule.costs is not None and schedule.costs.sends):  # which it waits for
        layer = replace(layer, meets=tuple(_meets(scenario, schedule, times, passes)))
    weight, gradient = handed_on(forward).dtype, scenario.step.optimizer.gradients
    scattered = Pattern.ALL_REDUCE if schedule.zero == 0 else Pattern.REDUCE_SCATTER
    # Traffic that comes behind the passes has the machine to itself.
    sums, gathers = (
        times if each in schedule.overlapped else replace(times, contended=False)
        for each in (Overlapped.GRADIENTS, Overlapped.WEIGHTS)
    )
    for held in held_by(part):
        layer = _with_traffic(layer, passes[1], held, scattered, gradient, sums, backward=True)
        if schedule.zero:
            layer = _with_traffic(layer, passes[0], held, Pattern.ALL_GATHER, weight, gathers, backward=False)
    return layer


def _meets(
    scenario: StepScenario, schedule: StepSchedule, times: LayerTimes, passes: Sequence[PassOf]
) -> Iterator[SendMet]:
    """What passes and sends take longer where a layer begins with a send; made again it begins forward."""
    ahead, behind = passes
    again, sent = schedule.keep == KEEP_LEAST, sent_on(scenario)
    begins = {PassKind.FORWARD: ahead, PassKind.BACKWARD: ahead if again else behind}
    if schedule.pipeline.kind in (PipelineKind.ZERO_BUBBLE, PipelineKind.DUAL):
        begins |= {PassKind.INPUTS: ahead if again else replace(behind, weights=False)}
        begins |= {PassKind.WEIGHTS: replace(behind, weights=True)}
    for work, of in begins.items():
        yield SendMet(work, *times.longer(of, sent))


def _with_traffic(
    layer: LayerTicks,
    of: PassOf,
    held: Held,
    pattern: Pattern,
    dtype: DType,
    times: LayerTimes,
    *,
    backward: bool,
) -> LayerTicks:
    """A layer with the traffic of some of its weights, and how much longer the pass ``of`` a layer takes beside it."""
    alone = traffic_ticks(times, held.ranks, dtype.bytes_of(held.parameters), pattern)
    longer, slower = 0, 0
    if alone and held.ranks is not None:
        longer, slower = times.longer(of, SharedTraffic(held.ranks, pattern, dtype, held.parameters))
    ticks = alone + slower
    if backward:
        usual = layer.backward_beside or layer.backward
        return replace(layer, gradients=layer.gradients + ticks, backward_beside=usual + longer)
    usual = layer.forward_beside or layer.forward
    return replace(layer, gathered=layer.gathered + ticks, forward_beside=usual + longer)


def _on_stack(
    ahead: PassTicks, behind: PassTicks, part: LayerPart, back: Scenario, stack: Stack
) -> tuple[PassTicks, PassTicks]:
    """The passes with what a stack adds to them."""
    forward, moved = part.forward, handed_on(part.forward)
    moved_bytes = moved.dtype.bytes_of(elements_of_rank(moved, forward.num_ranks)), expert_bytes_of(forward)
    ahead_of, behind_of = (stack_ticks(of, stack, *moved_bytes, backward=of is back) for of in (forward, back))
    return replace(ahead, ticks=ahead.ticks + ahead_of), replace(behind, ticks=behind.ticks + behind_of)


def _sum(parts: Sequence[LayerTicks]) -> LayerTicks:
    fields = ("forward", "inputs", "weights", "gradients", "gathered", "forward_beside", "backward_beside", "gained")
    meets, sooner = first_met(parts[0].meets, parts[-1].meets), sum(part.sooner for part in parts)
    return LayerTicks(*(sum(getattr(part, name) for part in parts) for name in fields), meets=meets, sooner=sooner)


def ends_sharing(step: Step) -> System | None:
    """The group whose ranks each have a part of the embedding and of the last product, and gather them (FSDP)."""
    forward = step.blocks[-1].parts[-1].forward
    return forward.system if any(each.shard is Shard.FLAT for each in weights_of(forward)) else None


def ends_ranks(step: Step) -> System | None:
    """The ranks that hold the same of the embedding and of the last product; None where none does."""
    part = step.blocks[-1].parts[-1]
    shares = any(each.shard in (Shard.COLS, Shard.FLAT) for each in weights_of(part.forward))
    return part.copies if shares or part.forward.num_ranks == 1 else part.stage or part.forward.system


def _head(scenario: StepScenario, stack: Stack | None, times: LayerTimes) -> LayerTicks:
    """The last product and the loss; its gradient is two products as large. Embeddings are looked up in no time."""
    shape, gpu = head_shape(scenario.step), scenario.system.gpu
    if shape is None:
        return LayerTicks(0, 0, 0)
    product = gemm_work(for_seconds(scenario.system, stack).gpu, shape, gpu.sms).alone_ticks
    loss = memory_ticks(gpu, shape.m * shape.n * LOSS_BYTES)
    weights, group = shape.n * shape.k, ends_sharing(scenario.step)
    sizes = scenario.step.optimizer.gradients.bytes_of(weights), shape.dtype.bytes_of(weights)
    if group is not None:  # gathered forward and backward, and scattered, each time
        gathered, scattered = (
            traffic_ticks(times, group, size, pattern)
            for size, pattern in zip(sizes[::-1], (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER), strict=True)
        )
        return LayerTicks(product + loss + gathered, product + loss + gathered + scattered, product)
    copies = ends_ranks(scenario.step)
    gradients = traffic_ticks(times, copies, sizes[0], Pattern.REDUCE_SCATTER)
    return LayerTicks(
        product + loss, product + loss, product, gradients, traffic_ticks(times, copies, sizes[1], Pattern.ALL_GATHER)
    )
