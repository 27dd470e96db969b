"""A training step: layers that repeat forward and backward in the stages of a pipeline, its batch and its optimizer."""

from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import NamedTuple

from .implementation import Implementation, Stack
from .scenario import Scenario, System
from .tensors import DType, Tensor


class PipelineKind(Enum):
    """In which order a stage computes its microbatches; the value is the word in the language.

    ONE_F_ONE_B: one forward, one backward (PipeDream-Flush, Narayanan et al. 2021). INTERLEAVED: the same with several
    chunks of layers on each stage (Megatron-LM). ZERO_BUBBLE: gradients of weights fill what is left (ZB-H1, Qi et al.
    2023). DUAL: microbatches from both ends, a forward chunk beside a backward one (DualPipe, DeepSeek-V3).
    """

    ONE_F_ONE_B = "one_f_one_b"
    INTERLEAVED = "interleaved"
    ZERO_BUBBLE = "zero_bubble"
    DUAL = "dual"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The order of a pipeline; ``chunks`` are those of layers on each stage, more than one where INTERLEAVED."""

    kind: PipelineKind = PipelineKind.ONE_F_ONE_B
    chunks: int = 1

    @property
    def expression(self) -> str:
        """As the language writes it."""
        return f"{self.kind.value}(chunks={self.chunks})" if self.chunks > 1 else self.kind.value


class PassKind(Enum):
    """What is computed of a chunk: all of the backward pass, or its gradients of inputs and of weights apart."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUTS = "I"
    WEIGHTS = "W"


class ChunkPass(NamedTuple):
    """One chunk of one microbatch."""

    work: PassKind
    path: int
    chunk: int
    microbatch: int


class Overlapped(Enum):
    """Traffic among ranks that hold the same weights, beside a pass; the value is the word in the language."""

    GRADIENTS = "gradients"
    WEIGHTS = "weights"


class ContextKind(Enum):
    """How ranks that each have a part of a sequence get the keys and values of the others; the word in the language.

    GATHERED: all of them before attention, and gradients are scattered behind its backward pass (Llama 3, arXiv
    2407.21783, section 3.3.2). RING: block by block from neighbour to neighbour, beside attention with the block that
    is there (Ring Attention, arXiv 2310.01889).
    """

    GATHERED = "gathered"
    RING = "ring"


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Adam: two moments and a ``master`` copy of each weight, and ``gradients`` that microbatches add up in."""

    gradients: DType = DType.FP32
    master: DType = DType.FP32
    moments: DType = DType.FP32

    @property
    def state_bytes(self) -> int:
        """Bytes of a weight beside it and its gradient."""
        return self.master.bytes_of(1) + 2 * self.moments.bytes_of(1)

    def moved_bytes(self, weight_bytes: int) -> int:
        """Bytes of memory that the update of a weight reads and writes; its gradient is read alone."""
        return self.gradients.bytes_of(1) + 2 * self.state_bytes + weight_bytes


KEEP_ALL, KEEP_LEAST, KEEP_WRITTEN = "all", "least", ""
"""What is kept of the forward pass of a layer: all that the backward pass takes; its input alone, so that the layer is
computed again, as checkpoints of frameworks do; or what the text of the backward pass says."""


def weights_of(forward: Scenario) -> tuple[Tensor, ...]:
    """The weights of a layer: tensors that are declared, but for the one that layers hand on."""
    workload = forward.workload
    made = {name for name, _, _ in workload.results}
    first = "" if workload.repeat is None else workload.repeat.as_input
    return tuple(each for each in workload.tensors if each.name not in made and each.name != first)


def handed_on(forward: Scenario) -> Tensor:
    """What one layer hands on to the next."""
    repeat = forward.workload.repeat
    assert repeat is not None, "layers of a step repeat"
    return forward.workload.tensor(repeat.as_input)


@dataclass(frozen=True, slots=True)
class LayerPart:
    """A workload that layers compute, on a group of the system, forward and backward.

    Attributes
    ----------
    backward
        By what it finds, as the language writes it: ``all`` or ``qkv, a``; empty where the text has it whole.
    copies
        The ranks that hold the same part of weights that its group shares, as a system; None where there is one alone.
    stage
        The ranks that hold all that no rank of its group has alone: all of a stage.
    context
        The ranks that its attention exchanges keys and values with; None where each has whole sequences.
    """

    forward: Scenario
    backward: tuple[tuple[str, Scenario], ...]
    copies: System | None = None
    stage: System | None = None
    context: System | None = None

    def back(self, keep: str) -> Scenario:
        """The backward pass where ``keep`` is kept; of a layer that is computed again it finds all.

        Raises
        ------
        KeyError
            If it was not derived so.
        """
        passes = dict(self.backward)
        return passes[KEEP_WRITTEN if KEEP_WRITTEN in passes else KEEP_ALL if keep == KEEP_LEAST else keep]


@dataclass(frozen=True, slots=True)
class LayerBlock:
    """``count`` layers that are alike: ``parts`` one after the other forward, and in reverse backward."""

    parts: tuple[LayerPart, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the training of a model.

    Attributes
    ----------
    blocks
        Its layers from the first to the last.
    sequences, length
        Those of the whole batch, and tokens of each.
    microbatches
        In so many parts one pipeline computes its sequences.
    vocabulary
        Columns of the last product, 0 without it.
    """

    about: str
    blocks: tuple[LayerBlock, ...]
    sequences: int
    length: int
    microbatches: int
    vocabulary: int = 0
    optimizer: Optimizer = field(default_factory=Optimizer)

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return sum(block.count for block in self.blocks)

    @property
    def tokens(self) -> int:
        """Tokens of the whole batch."""
        return self.sequences * self.length


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """How a step is carried out.

    Attributes
    ----------
    stages
        Layers of each stage, none where they are as even as can be.
    zero
        What the ranks that hold the same weights share of their states (ZeRO): 0 nothing, 1 the optimizer, 2 gradients
        too, 3 weights too.
    overlapped
        Traffic among these ranks that runs beside the passes; the other comes when they have ended.
    keep
        What the backward pass finds, where it is derived.
    parts
        The schedule of each workload by name; the others are by the library.
    context
        How keys and values are exchanged, where sequences lie on several ranks.
    stack
        The framework, whose costs each layer has; None without any.
    """

    name: str
    pipeline: Pipeline = field(default_factory=Pipeline)
    stages: tuple[int, ...] = ()
    zero: int = 1
    overlapped: tuple[Overlapped, ...] = ()
    keep: str = KEEP_ALL
    parts: tuple[tuple[str, str], ...] = ()
    context: ContextKind = ContextKind.GATHERED
    stack: Implementation | None = None

    @property
    def costs(self) -> Stack | None:
        """What the framework costs, None without one."""
        return None if self.stack is None else self.stack.stack


@dataclass(frozen=True, slots=True)
class StepExplore:
    """The layouts and schedules to compare; what is empty is as the file has it.

    ``settings`` are the values of parameters by name, as texts.
    """

    settings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    pipelines: tuple[Pipeline, ...] = ()
    zero: tuple[int, ...] = ()
    keep: tuple[str, ...] = ()
    context: tuple[ContextKind, ...] = ()
    memory_bytes: int | None = None

    @property
    def num_layouts(self) -> int:
        """How many settings there are."""
        return prod(len(values) for _, values in self.settings)


@dataclass(frozen=True, slots=True)
class StepScenario:
    """A question about a step.

    Attributes
    ----------
    system
        The whole one.
    stages
        The ranks of one pipeline, one of each stage, as a system; None without a pipeline.
    """

    name: str
    system: System
    step: Step
    stages: System | None = None
    schedules: tuple[StepSchedule, ...] = ()
    explore: StepExplore = field(default_factory=StepExplore)

    @property
    def in_context(self) -> bool:
        """Whether a sequence lies on several ranks."""
        return any(part.context is not None for block in self.step.blocks for part in block.parts)

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline, 1 without one."""
        return 1 if self.stages is None else self.stages.num_ranks
