"""Execution plans of MSCCL++ as data: GPUs, their threadblocks and what each does.

The form is that of the executor's loader (github.com/microsoft/mscclpp, src/core/executor/execution_plan.cc): an
operation names channels and remote buffers by their numbers in its threadblock, which names those of its GPU.
"""

from dataclasses import dataclass
from enum import Enum

from ...codes import Code
from ...text.diagnostics import Stopped
from ...text.json_items import Item


class Buffer(Enum):
    """The buffers of a GPU; the value is the letter in the file."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"


class ChannelKind(Enum):
    """The means to reach a peer: threads, copy engines, or a switch that copies and sums."""

    MEMORY = "memory"
    PORT = "port"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Channel:
    """The ``number``-th channel of its kind between a GPU and ``peer``."""

    kind: ChannelKind
    peer: int
    number: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """``size`` chunks from ``index`` on in a buffer of GPU ``rank``; ``everywhere`` means that of all GPUs."""

    rank: int
    buffer: Buffer
    index: int
    size: int
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a threadblock, which does part ``part`` of ``group`` equal ones.

    ``numbers`` identify a barrier or semaphores; a barrier waits for ``count`` threadblocks.
    """

    name: str
    item: Item
    sources: tuple[Chunk, ...] = ()
    targets: tuple[Chunk, ...] = ()
    kind: ChannelKind | None = None
    channels: tuple[Channel, ...] = ()
    numbers: tuple[int, ...] = ()
    count: int = 0
    part: int = 0
    group: int = 1

    def beyond(self, reason: str) -> Stopped:
        """Report an operation that a plan cannot express."""
        return self.item.fail(f"{self.name} is not in the reach of plans: {reason}", code=Code.MGS526)


@dataclass(frozen=True, slots=True)
class GpuDocument:
    """One GPU: the chunks of its buffers, the first values of its semaphores, its threadblocks."""

    input_chunks: int
    output_chunks: int
    semaphores: tuple[int, ...]
    threadblocks: tuple[tuple[Op, ...], ...]


@dataclass(frozen=True, slots=True)
class Execution:
    """A whole plan. Sizes of messages are in bytes, both ends included."""

    collective: str
    packets: bool
    in_place: bool
    gpus: tuple[GpuDocument, ...]
    min_bytes: int
    max_bytes: int
