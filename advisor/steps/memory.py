"""Memory of a step: weights, gradients, states of the optimizer and what microbatches in flight keep, by stage."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ...compiler.ir import Scenario, Shard
from ...compiler.ir.step import KEEP_LEAST, Block, LayerPart, StepScenario, StepSchedule
from ...simcore.steps.orders import Orders, Work, orders_of
from .times import elements_of_rank, ends_sharing, handed_on, head_shape, parameters_of_rank, weights_of

MARGIN = Fraction(8, 100)
"""Share by which memory is larger than what is counted: fragments of the allocator."""

RESERVED_BYTES = 3 << 30
"""Memory that no tensor has: the context of the GPU, buffers of the collective library, workspaces of products."""

LOGITS_BYTES = 10
"""Bytes of each element of the logits: in 16 bits, and twice in 32 for the loss and its gradient."""

MOST_MICROBATCHES = 4
"""Rounds of microbatches in which a pipeline holds as many as it ever does."""


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes of one rank of a stage."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    transient: int

    @property
    def counted(self) -> int:
        """All that is counted."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.transient

    @property
    def total(self) -> int:
        """With the margin and what is reserved."""
        return int(self.counted * (1 + MARGIN)) + RESERVED_BYTES


@dataclass(frozen=True, slots=True)
class _Layer:
    """Bytes of a layer on one rank: kept for the backward pass, made anew in it, and gathered weights."""

    parameters: int
    kept: int
    remade: int
    gathered: int
    copies: int


def memory_of(scenario: StepScenario, schedule: StepSchedule, counts: Sequence[int]) -> tuple[StageMemory, ...]:
    """Return the memory of each stage; ``counts`` are the layers of each chunk along the model."""
    layers = [_layer(block, schedule.keep) for block in scenario.step.blocks for _ in range(block.count)]
    chunks: list[list[_Layer]] = []
    for count in counts:
        chunks.append(layers[:count])
        layers = layers[count:]
    stages = scenario.num_stages
    few = min(scenario.step.microbatches, MOST_MICROBATCHES * stages * schedule.pipeline.chunks)
    orders = orders_of(schedule.pipeline, stages, few - few % stages if few > stages else few)
    most = most_held([sum(each.kept for each in chunk) for chunk in chunks], orders)
    return tuple(
        _stage(
            scenario,
            schedule,
            rank,
            [each for number in _own(rank, stages, len(chunks), orders) for each in chunks[number]],
            most[rank],
        )
        for rank in range(stages)
    )


def _own(rank: int, stages: int, chunks: int, orders: Orders) -> Iterator[int]:
    """The chunks whose weights a rank has; from both ends it has those of two stages."""
    yield from range(rank, chunks, stages)
    if orders.paths > 1:
        yield stages - 1 - rank


def updated_of(scenario: StepScenario, schedule: StepSchedule, counts: Sequence[int]) -> tuple[int, ...]:
    """Weights whose states one rank of each stage updates."""
    blocks = [block for block in scenario.step.blocks for _ in range(block.count)]
    stages, found, place = scenario.num_stages, [0] * scenario.num_stages, 0
    for number, count in enumerate(counts):
        for block in blocks[place : place + count]:
            found[number % stages] += sum(_shared(parameters_of_rank(p), p, schedule.zero >= 1) for p in block.parts)
        place += count
    ends = _ends_of(scenario)
    for stage, weights in ends.items():
        found[stage] += _shared(weights, scenario.step.blocks[-1].parts[-1], schedule.zero >= 1)
    return tuple(found)


def _shared(parameters: int, part: LayerPart, is_shared: bool) -> int:
    copies = 1 if part.copies is None else part.copies.num_ranks
    return -(-parameters // copies) if is_shared else parameters


def _ends_of(scenario: StepScenario) -> dict[int, int]:
    """Weights of the embedding and of the last product on one rank, by stage."""
    shape = head_shape(scenario.step)
    if shape is None:
        return {}
    group, last = ends_sharing(scenario.step), scenario.num_stages - 1
    weights = -(-shape.n * shape.k // (1 if group is None else group.num_ranks))
    return {0: 2 * weights} if last == 0 else {0: weights, last: weights}


def most_held(kept: Sequence[int], orders: Orders) -> tuple[int, ...]:
    """Return the most that each rank keeps at once, of ``kept`` for each chunk and microbatch, [ranks]."""
    most = []
    for slots in orders.slots:
        held = peak = 0
        for slot in slots:
            for task in slot:
                if task.work is Work.FORWARD:
                    held += kept[task.chunk]
                    peak = max(peak, held)
                elif task.work in (Work.BACKWARD, Work.WEIGHTS):
                    held -= kept[task.chunk]
        most.append(peak)
    return tuple(most)


def _layer(block: Block, keep: str) -> _Layer:
    parameters = kept = remade = gathered = copies = 0
    for part in block.parts:
        parameters += parameters_of_rank(part)
        kept += kept_bytes(part, keep)
        remade += _made_bytes(part.forward)
        gathered += sum(each.num_bytes for each in weights_of(part.forward) if each.shard is Shard.FLAT)
        copies = max(copies, 1 if part.copies is None else part.copies.num_ranks)
    return _Layer(parameters, kept, max(0, remade - kept), gathered, copies)


def kept_bytes(part: LayerPart, keep: str) -> int:
    """Return the bytes of a microbatch that a layer keeps on one rank from its forward to its backward pass.

    They are the tensors of the forward pass that the backward one takes, without weights; or its input alone.
    """
    forward, back = part.forward, part.back(keep)
    if keep == KEEP_LEAST:
        moved = handed_on(forward)
        return moved.dtype.bytes_of(elements_of_rank(moved, forward.num_ranks))
    taken = {read.tensor for op in back.workload.ops for read in op.reads if not read.made_by}
    weights = {each.name for each in weights_of(forward)}
    return sum(
        each.dtype.bytes_of(elements_of_rank(each, forward.num_ranks))
        for each in forward.workload.tensors
        if each.name in taken and each.name not in weights
    )


def _made_bytes(forward: Scenario) -> int:
    """Bytes of all that a layer makes on one rank."""
    weights = {each.name for each in weights_of(forward)}
    own = (each for each in forward.workload.tensors if each.name not in weights)
    return sum(each.dtype.bytes_of(elements_of_rank(each, forward.num_ranks)) for each in own)


def _stage(
    scenario: StepScenario, schedule: StepSchedule, rank: int, layers: Sequence[_Layer], held: int
) -> StageMemory:
    optimizer, step = scenario.step.optimizer, scenario.step
    weight = handed_on(step.blocks[0].parts[0].forward).dtype
    ends = _ends_of(scenario).get(rank, 0)
    end_copies = layers[-1].copies if layers else 1
    sizes = [*((each.parameters, each.copies) for each in layers), (ends, end_copies)]

    def bytes_of(per_weight: int, least_zero: int) -> int:
        shared = schedule.zero >= least_zero
        return sum(-(-count // copies) * per_weight if shared else count * per_weight for count, copies in sizes)

    shape, last = head_shape(step), rank == scenario.num_stages - 1
    logits = shape.m * shape.n * LOGITS_BYTES if shape is not None and last else 0
    remade = max((each.remade for each in layers), default=0)
    gathered = 2 * max((each.gathered for each in layers), default=0)
    if schedule.zero == 3:
        gathered += 2 * weight.bytes_of(max((each.parameters for each in layers), default=0))
    # The loss is computed while nothing of another layer is made anew.
    transient = gathered + max(logits, remade)
    return StageMemory(
        bytes_of(weight.bytes_of(1), 3),
        bytes_of(optimizer.gradients.bytes_of(1), 2),
        bytes_of(optimizer.state_bytes, 1),
        held,
        transient,
    )
