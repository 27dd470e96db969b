"""What each stage of each pipeline does in a step, as tasks: who waits for whom, and in which queue."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...compiler.ir import IndexRange, TileGroup
from ...compiler.ir.step import ChunkPass, PassKind
from ..tasks import Mark, Queue, Task
from .work import StepWork

PASSES, TRAFFIC = "passes", "traffic"
"""The queues of a stage: its passes, and what its ranks exchange with those that have the same weights."""
WORDS = {
    PassKind.FORWARD: "forward",
    PassKind.BACKWARD: "backward",
    PassKind.INPUTS: "backward, inputs,",
    PassKind.WEIGHTS: "backward, weights,",
}


@dataclass(slots=True, eq=False)
class StageTask(Task):
    """What the group of a stage and a pipeline does at once; ``rank`` is its first. ``moves``: it is no pass."""

    is_traffic: bool = False
    stage: int = 0
    pipeline: int = 0
    act: Callable[["StageTask"], None] | None = None

    @property
    def moves(self) -> bool:
        """Whether it moves data."""
        return self.is_traffic

    def __str__(self) -> str:
        return f"stage {self.stage} of pipeline {self.pipeline}: {self.step.name}"


@dataclass(frozen=True, slots=True)
class LayerTask:
    """A pass of one layer."""

    work: PassKind
    chunk: int
    layer: int
    microbatch: int
    path: int = 0

    @property
    def name(self) -> str:
        """For people."""
        return f"{WORDS[self.work]} of layer {self.layer}, microbatch {self.microbatch}"


def send_name(forward: bool, number: int, stage: int) -> str:
    """The name of what a stage sends to ``stage`` as the one of that ``number``."""
    return f"send {number} of {'activations' if forward else 'gradients'} to stage {stage}"


@dataclass(frozen=True, slots=True)
class Sends:
    """From stage to stage: what is sent and what is taken, in their orders, each as (chunk, microbatch)."""

    sent: list[ChunkPass] = field(default_factory=list)
    taken: list[ChunkPass] = field(default_factory=list)


class AllSends:
    """All channels of a pipeline, by direction and stages: a send meets the one that is taken with its number."""

    def __init__(self, job: StepWork) -> None:
        self._job, self.all = job, dict[tuple[bool, int, int], Sends]()
        self._stage_of = {(each.path, each.chunk): stage for stage, order in enumerate(job.orders) for each in order}
        for stage, order in enumerate(job.orders):
            for each in order:
                for channel, sends in self._of(stage, each):
                    (channel.sent if sends else channel.taken).append(each)

    def _of(self, stage: int, each: ChunkPass) -> Iterable[tuple[Sends, bool]]:
        if each.work is PassKind.WEIGHTS:
            return
        forward = each.work is PassKind.FORWARD
        step = 1 if forward else -1
        to, of = (self._stage_of.get((each.path, each.chunk + by), stage) for by in (step, -step))
        if to != stage:
            yield self.all.setdefault((forward, stage, to), Sends()), True
        if of != stage:
            yield self.all.setdefault((forward, of, stage), Sends()), False

    def taken(self, stage: int, each: ChunkPass) -> tuple[int, str] | None:
        """The stage and the send that bring what a pass of a chunk takes; None if it is there."""
        forward = each.work is PassKind.FORWARD
        for (is_forward, of, to), channel in self.all.items():
            if (is_forward, to) == (forward, stage) and each in channel.taken:
                return of, send_name(forward, channel.taken.index(each), stage)
        return None


@dataclass(slots=True)
class TaskList:
    """Tasks so far; those of one queue follow each other."""

    job: StepWork
    all: list[StageTask] = field(default_factory=list)
    last: dict[Queue, str] = field(default_factory=dict)

    def add(
        self,
        stage: int,
        pipeline: int,
        queue: str,
        name: str,
        waits: Iterable[Mark],
        act: Callable[[StageTask], None],
        moves: bool = False,
    ) -> Mark:
        """Add a task behind the last one of its queue, and return its mark."""
        rank = self.job.rank(stage, pipeline, 0)
        behind = self.last.get((rank, queue), "")
        marks = tuple(dict.fromkeys((*waits, *([(rank, behind)] if behind else []))))
        step = TileGroup(name, (), IndexRange(0, 0))
        task = StageTask(len(self.all), rank, step, (rank, queue), marks, behind, 0, moves, stage, pipeline, act)
        self.all.append(task)
        self.last[rank, queue] = name
        return rank, name
