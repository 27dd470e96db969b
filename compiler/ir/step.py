"""A training step: layers that repeat forward and backward in the stages of a pipeline, its batch and its optimizer."""

from dataclasses import dataclass, field
from enum import Enum
from math import prod

from .scenario import Scenario, System
from .tensors import DType


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


class Overlapped(Enum):
    """Traffic among ranks that hold the same weights, beside a pass; the value is the word in the language."""

    GRADIENTS = "gradients"
    WEIGHTS = "weights"


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
        """Bytes of memory that an update of a weight reads and writes: all of them, and the gradient, which is read."""
        return self.gradients.bytes_of(1) + 2 * self.state_bytes + weight_bytes


@dataclass(frozen=True, slots=True)
class Block:
    """Layers that are alike: ``count`` of them, what is computed ``forward`` and ``backward`` one after the other.

    ``forward`` and ``backward`` are workloads on groups of the system.
    """

    forward: tuple[Scenario, ...]
    backward: tuple[Scenario, ...]
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
    vocabulary
        Columns of the last product, 0 without it; each stage has those of all its ranks that share a layer.
    """

    name: str
    about: str
    blocks: tuple[Block, ...]
    sequences: int
    length: int
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
        Layers of each stage, none where they are even.
    zero
        What the ranks that hold the same weights share of their states (ZeRO): 0 nothing, 1 the optimizer, 2 gradients
        too, 3 weights too.
    overlapped
        Traffic that runs beside the passes; the other comes when they have ended.
    parts
        The schedule of each workload by name: those of the file, others are by the library.
    """

    name: str
    pipeline: Pipeline = field(default_factory=Pipeline)
    stages: tuple[int, ...] = ()
    zero: int = 1
    overlapped: tuple[Overlapped, ...] = ()
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StepExplore:
    """The layouts and schedules to compare; what is empty is as the file has it.

    ``settings`` are values of parameters, each by name, as texts.
    """

    settings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    pipelines: tuple[Pipeline, ...] = ()
    zero: tuple[int, ...] = ()
    memory_bytes: int | None = None

    @property
    def num_layouts(self) -> int:
        """How many settings there are."""
        return prod(len(values) for _, values in self.settings)


@dataclass(frozen=True, slots=True)
class StepScenario:
    """A question about a step: on which system, with the schedules of its file and the space to compare."""

    name: str
    system: System
    step: Step
    schedules: tuple[StepSchedule, ...] = ()
    explore: StepExplore = field(default_factory=StepExplore)
