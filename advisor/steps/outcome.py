"""One schedule of a step: its run, its memory, and what a user compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ...compiler.ir import TICKS_PER_SECOND, JsonObject, Rejection, Scenario, Settings, Shard
from ...compiler.ir.step import (
    KEEP_ALL,
    KEEP_LEAST,
    ContextKind,
    LayerBlock,
    LayerPart,
    PassKind,
    StepScenario,
    StepSchedule,
    handed_on,
    weights_of,
)
from ...compiler.planning.build import ScheduleError
from ...simcore.steps.orders import Orders, chunks_at, orders_of, rejected
from ...simcore.steps.step import StepRun, layers_of_chunks, run_step
from .layer_times import Held, LayerTimes
from .times import (
    buffer_bytes,
    elements_of_rank,
    ends_ranks,
    ends_sharing,
    have_copies,
    head_shape,
    held_by,
    ticks_of,
)

# Memory of a step: weights, gradients, states of the optimizer and what microbatches in flight keep, by stage.

MARGIN = Fraction(8, 100)
"""Share by which memory is larger than what is counted: fragments of the allocator."""

RESERVED_BYTES = 3 << 30
"""Memory that no tensor has: the context of the GPU, buffers of the collective library, workspaces of products."""

LOGITS_BYTES, CUT_LOGITS_BYTES = 14, 18
"""Bytes of each element of the logits that PyTorch's allocator has reserved when the loss has gone back.

The product is in 16 bits, whose memory its gradient takes later. Of 32 bits ``cross_entropy`` has three tensors: the
softmax, which is kept, the gradient of its result and that of its input. Where ranks cut the vocabulary there are four:
``(grad_input + exp(x)) * grad_output`` (torch/distributed/tensor/parallel/loss.py). A fused loss needs less."""

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
    """Bytes of a layer on one rank: kept for the backward pass, made anew in it, and gathered, but for ZeRO-3."""

    held: tuple[Held, ...]
    kept: int
    remade: int
    gathered: int


def memory_of(scenario: StepScenario, schedule: StepSchedule, counts: Sequence[int]) -> tuple[StageMemory, ...]:
    """Return the memory of each stage; ``counts`` are the layers of each chunk along the model."""
    layers = [_layer(block, schedule) for block in scenario.step.blocks for _ in range(block.count)]
    chunks: list[list[_Layer]] = []
    for count in counts:
        chunks.append(layers[:count])
        layers = layers[count:]
    stages = scenario.num_stages
    few = min(scenario.step.microbatches, MOST_MICROBATCHES * stages * schedule.pipeline.chunks)
    orders = orders_of(schedule.pipeline, stages, few - few % stages if few > stages else few)
    most = most_held([sum(each.kept for each in chunk) for chunk in chunks], orders)
    owned = [chunks_at(schedule.pipeline, rank, stages) for rank in range(stages)]
    stage_layers = [[each for number in own for each in chunks[number]] for own in owned]
    return tuple(_stage(scenario, schedule, rank, stage_layers[rank], most[rank]) for rank in range(stages))


def updated_of(scenario: StepScenario, schedule: StepSchedule, counts: Sequence[int]) -> tuple[int, ...]:
    """Weights whose states one rank of each stage updates."""
    blocks = [block for block in scenario.step.blocks for _ in range(block.count)]
    stages, found, place = scenario.num_stages, [0] * scenario.num_stages, 0
    for number, count in enumerate(counts):
        for block in blocks[place : place + count]:
            found[number % stages] += sum(_of_one(held_by(part), schedule.zero >= 1) for part in block.parts)
        place += count
    for stage, held in _ends_of(scenario).items():
        found[stage] += _of_one((held,), schedule.zero >= 1)
    return tuple(found)


def _of_one(held: Sequence[Held], is_shared: bool) -> int:
    """Weights that one rank has, or has a part of that all share that have them."""
    return sum(-(-each.parameters // each.copies) if is_shared else each.parameters for each in held)


def _ends_of(scenario: StepScenario) -> dict[int, Held]:
    """Weights of the embedding and of the last product on one rank, by stage."""
    shape = head_shape(scenario.step)
    if shape is None:
        return {}
    group, last = ends_sharing(scenario.step), scenario.num_stages - 1
    weights = -(-shape.n * shape.k // (1 if group is None else group.num_ranks))
    ranks = ends_ranks(scenario.step)
    return {0: Held(2 * weights, ranks)} if last == 0 else {0: Held(weights, ranks), last: Held(weights, ranks)}


def most_held(kept: Sequence[int], orders: Orders) -> tuple[int, ...]:
    """Return the most that each rank keeps at once, of ``kept`` for each chunk and microbatch, [ranks]."""
    most = []
    for slots in orders.slots:
        held = peak = 0
        for slot in slots:
            for task in slot:
                if task.work is PassKind.FORWARD:
                    held += kept[task.chunk]
                    peak = max(peak, held)
                elif task.work in (PassKind.BACKWARD, PassKind.WEIGHTS):
                    held -= kept[task.chunk]
        most.append(peak)
    return tuple(most)


def _layer(block: LayerBlock, schedule: StepSchedule) -> _Layer:
    kept = remade = gathered = 0
    held: list[Held] = []
    for number, part in enumerate(block.parts):
        held += held_by(part)
        if number == 0 or schedule.keep != KEEP_LEAST:  # the others take what is made again
            kept += kept_bytes(part, schedule.keep)
        remade += made_bytes(part.forward)
        gathered += sum(each.num_bytes for each in weights_of(part.forward) if each.shard is Shard.FLAT)
        gathered += buffer_bytes(part.forward, schedule.context)
    return _Layer(tuple(held), kept, max(0, remade - kept), gathered)


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


def made_bytes(forward: Scenario) -> int:
    """Return the bytes of all that a layer makes on one rank."""
    weights = {each.name for each in weights_of(forward)}
    own = (each for each in forward.workload.tensors if each.name not in weights)
    return sum(each.dtype.bytes_of(elements_of_rank(each, forward.num_ranks)) for each in own)


def _stage(
    scenario: StepScenario, schedule: StepSchedule, rank: int, layers: Sequence[_Layer], kept: int
) -> StageMemory:
    optimizer, step = scenario.step.optimizer, scenario.step
    weight = handed_on(step.blocks[0].parts[0].forward).dtype
    ends = _ends_of(scenario).get(rank)
    held = [*(each for layer in layers for each in layer.held), *(() if ends is None else (ends,))]
    # Shards that are gathered for each pass are the master copies: 16 bits are there of what is gathered alone.
    is_gathered = schedule.zero == 3 or (ends_sharing(step) is not None and all(each.copies == 1 for each in held))
    weight_bytes = optimizer.master.bytes_of(1) if is_gathered else weight.bytes_of(1)
    state_bytes = optimizer.state_bytes - (optimizer.master.bytes_of(1) if is_gathered else 0)

    def bytes_of(per_weight: int, least_zero: int) -> int:
        return _of_one(held, schedule.zero >= least_zero) * per_weight

    shape, last = head_shape(step), rank == scenario.num_stages - 1
    logits = 0
    if shape is not None and last:  # what the product takes is kept for the gradient of its weights
        per_element = CUT_LOGITS_BYTES if shape.n < step.vocabulary else LOGITS_BYTES
        logits = shape.m * shape.n * per_element + shape.dtype.bytes_of(shape.m * shape.k)
    remade = max((each.remade for each in layers), default=0)
    gathered = 2 * max((each.gathered for each in layers), default=0)
    if schedule.zero == 3:
        gathered += 2 * weight.bytes_of(max((_of_one(each.held, False) for each in layers), default=0))
    if is_gathered and shape is not None and ends is not None:  # from the first layer until they have gradients
        gathered += weight.bytes_of(shape.n * shape.k) * (1 + (scenario.num_stages == 1))
    # The loss is computed while nothing of another layer is made anew.
    transient = gathered + max(logits, remade)
    return StageMemory(
        bytes_of(weight_bytes, 3),
        bytes_of(optimizer.gradients.bytes_of(1), 2),
        bytes_of(state_bytes, 1),
        kept,
        transient,
    )


@dataclass(frozen=True)
class StepLayout:
    """A step under one schedule, with the parameters of its file set so."""

    scenario: StepScenario
    schedule: StepSchedule
    settings: Settings


@dataclass(frozen=True)
class StepOutcome(StepLayout):
    """A layout with its figures.

    Attributes
    ----------
    run
        Its simulation.
    memory
        Of one rank of each stage.
    """

    run: StepRun
    memory: tuple[StageMemory, ...]

    @property
    def seconds(self) -> float:
        """The time of the step."""
        return self.run.makespan_ticks / TICKS_PER_SECOND

    @property
    def tokens_per_gpu_s(self) -> float:
        """Tokens of the batch for each GPU and second."""
        return self.scenario.step.tokens / self.seconds / self.scenario.system.num_ranks

    @cached_property
    def memory_bytes(self) -> int:
        """Memory of the stage that needs most."""
        return max(stage.total for stage in self.memory)

    @property
    def fits(self) -> bool:
        """Whether every stage fits into a GPU, and into what the file allows."""
        return self.memory_bytes <= memory_limit(self.scenario)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the axes of the system, by name."""
        return {axis.name: axis.size for axis in self.scenario.system.mesh}

    @property
    def shares_weights(self) -> bool:
        """Whether a rank has a shard alone of its weights, which are gathered for each pass (FSDP)."""
        return self.schedule.zero == 3 or ends_sharing(self.scenario.step) is not None

    @property
    def microbatch(self) -> Fraction:
        """Sequences that one rank, or one group that shares a layer, takes at once."""
        forward = self.scenario.step.blocks[0].parts[0].forward
        # Ranks without columns of their own have sequences of their own, as with FSDP and with experts.
        own = 1 if any(each.shard is Shard.COLS for each in weights_of(forward)) else forward.num_ranks
        return Fraction(handed_on(forward).rows * self.sizes.get("cp", 1), self.scenario.step.length * own)

    @property
    def layout(self) -> str:
        """The sizes of the axes of the system, and of a microbatch but for one sequence: ``tp4 dp8 pp4 mb2``."""
        axes = [f"{name}{size}" for name, size in self.sizes.items()]
        sequences = "" if self.microbatch == 1 else f"mb{float(self.microbatch):g}"
        return " ".join(filter(None, (*axes, sequences)))

    @property
    def words(self) -> str:
        """How it is carried out beside its layout, in short: ``interleaved(5) zero 1``."""
        schedule, blocks = self.schedule, self.scenario.step.blocks
        derived = any(keep for block in blocks for part in block.parts for keep, _ in part.backward)
        shares = have_copies(self.scenario)
        pipeline = schedule.pipeline.expression.replace("chunks=", "") if self.scenario.num_stages > 1 else ""
        keeps = KEEP_LEAST if schedule.keep == KEEP_LEAST else "some"
        kept = f"keep {keeps}" if derived and schedule.keep != KEEP_ALL else ""
        ring = self.scenario.in_context and schedule.context is ContextKind.RING
        return " ".join(
            filter(None, (pipeline, "ring" if ring else "", f"zero {schedule.zero}" if shares else "", kept))
        )

    def document(self) -> JsonObject:
        """Return the figures as JSON: seconds, bytes, shares."""
        return {
            "schedule": self.schedule.name,
            "settings": dict(self.settings),
            "mesh": self.sizes,
            "pipeline": self.schedule.pipeline.expression,
            "zero": self.schedule.zero,
            "keep": self.schedule.keep,
            "context": self.schedule.context.value if self.scenario.in_context else None,
            "stack": None if self.schedule.stack is None else self.schedule.stack.name,
            "overlap": [each.value for each in self.schedule.overlapped],
            "microbatch": float(self.microbatch),
            "microbatches": self.scenario.step.microbatches,
            "stages": list(self.run.chunks),
            "step_s": self.seconds,
            "tokens_per_gpu_s": self.tokens_per_gpu_s,
            "bubble": self.run.bubble,
            "exposed": self.run.exposed,
            "optimizer_s": self.run.optimizer_ticks / TICKS_PER_SECOND,
            "memory_bytes": [stage.total for stage in self.memory],
            "fits": self.fits,
        }


def memory_limit(scenario: StepScenario) -> int:
    """Return the bytes that a rank may use: what the file allows, and no more than the GPU has."""
    capacity = scenario.system.gpu.hbm.capacity_bytes
    return min(capacity, scenario.explore.memory_bytes or capacity)


def chunks_of(scenario: StepScenario, schedule: StepSchedule) -> tuple[int, ...]:
    """Return the layers of each chunk.

    Raises
    ------
    ScheduleError
        If the pipeline cannot take the layers or the microbatches.
    """
    rejection = rejected(schedule.pipeline, scenario.num_stages, scenario.step.microbatches)
    found = rejection or layers_of_chunks(scenario.step.num_layers, scenario.num_stages, schedule)
    if isinstance(found, Rejection):
        raise ScheduleError(found)
    return found


def outcome_of(
    scenario: StepScenario, schedule: StepSchedule, times: LayerTimes, settings: Settings = ()
) -> StepOutcome:
    """Simulate a step under a schedule.

    Raises
    ------
    ScheduleError
        If the pipeline cannot take the layers or the microbatches, or a layer cannot be simulated so.
    """
    memory = memory_of(scenario, schedule, chunks_of(scenario, schedule))
    return StepOutcome(scenario, schedule, settings, run_of(scenario, schedule, times), memory)


def run_of(scenario: StepScenario, schedule: StepSchedule, times: LayerTimes) -> StepRun:
    """Simulate a step without its memory. Raises as ``outcome_of``."""
    updated = updated_of(scenario, schedule, chunks_of(scenario, schedule))
    ticks = ticks_of(scenario, schedule, times, updated)
    return run_step(ticks, schedule, scenario.num_stages, scenario.step.microbatches)
