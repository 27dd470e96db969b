"""The tasks of a step: passes of layers in the order of each stage, sends, traffic of weights, updates."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ...compiler.ir import IndexRange, TileGroup
from ...compiler.ir.step import ChunkPass, PassKind
from ..tasks import Mark, Queue, Task
from .work import StepWork

if TYPE_CHECKING:
    from .run import CarriedStep

# What each stage of each pipeline does in a step, as tasks: who waits for whom, and in which queue.

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

    stage: int = 0
    pipeline: int = 0
    act: Callable[["StageTask"], None] | None = None

    @property
    def moves(self) -> bool:
        """Whether it moves data."""
        return self.queue[1] != PASSES

    def __str__(self) -> str:
        return f"stage {self.stage} of pipeline {self.pipeline}: {self.step.name}"


@dataclass(frozen=True, slots=True)
class LayerTask:
    """A pass of one layer."""

    work: PassKind
    chunk: int
    layer: int
    called: str
    microbatch: int
    path: int = 0

    @property
    def name(self) -> str:
        """For people."""
        return f"{WORDS[self.work]} of {self.called}, microbatch {self.microbatch}"

    def names(self, tensor: str) -> str:
        """A tensor of its layer and microbatch."""
        return named(tensor, self.called, self.microbatch)


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
    ) -> Mark:
        """Add a task behind the last one of its queue, and return its mark."""
        rank = self.job.rank(stage, pipeline, 0)
        behind = self.last.get((rank, queue), "")
        marks = tuple(dict.fromkeys((*waits, *([(rank, behind)] if behind else []))))
        step = TileGroup(name, (), IndexRange(0, 0))
        task = StageTask(len(self.all), rank, step, (rank, queue), marks, behind, 0, stage, pipeline, act)
        self.all.append(task)
        self.last[rank, queue] = name
        return rank, name


MAKES_GRADIENTS = (PassKind.BACKWARD, PassKind.WEIGHTS)


def pieces_of(called: str) -> str:
    """The part of the weights of a layer that a rank has before the step, or all of them."""
    return f"weights of {called}"


def after_step(called: str, *, gathered: bool = False) -> str:
    """What a rank has updated of them, or what is ``gathered`` of that."""
    return f"weights of {called} after the step" + (", gathered" if gathered else "")


def gradients_of(called: str, microbatch: int | None = None) -> str:
    """Gradients of the weights of a layer, of one microbatch or of all."""
    return f"gradients of {called}" + ("" if microbatch is None else f", microbatch {microbatch}")


class StageBuilder:
    """Adds the tasks of one stage of all pipelines, which have the same order; ``actions`` are what tasks do."""

    def __init__(self, job: StepWork, tasks: TaskList, channels: AllSends, stage: int, actions: "CarriedStep") -> None:
        self._job, self._tasks, self._channels, self._stage, self._actions = job, tasks, channels, stage, actions
        self._gathers = job.is_shared and (job.zero == 3 or job.gathers_beside)
        self._gathered: dict[int, Mark] = {}
        self._made: dict[int, list[Mark]] = {}  # by layer, its last gradients, in the order in which they come
        self._ended: list[Mark] = []
        self._begun: list[Mark] = []  # what the pass before waits for, with its own pass where nothing runs beside
        self._summed: list[Mark] = []

    @property
    def layers(self) -> tuple[int, ...]:
        """Those of the stage."""
        chunks = sorted({each.chunk for each in self._job.orders[self._stage]})
        return tuple(layer for chunk in chunks for layer in self._job.layers[chunk])

    def passes(self, first: "StageBuilder") -> None:
        """Add passes and what runs beside them, in the order in which they are issued.

        Of stages that hold the same layers the ``first`` gathers their weights for all.
        """
        job = self._job
        if self is not first:
            self._gathered = first._gathered
        elif self._gathers and job.zero < 3:
            for layer in self.layers:
                called = job.called(layer)
                self._gathered[layer] = self._gather(layer, pieces_of(called), self._whole(called), ())
        for each in job.orders[self._stage]:
            self._chunk(each)
        self._ended = [mark for marks in self._made.values() for mark in marks]

    def sums(self, mates: Sequence["StageBuilder"]) -> None:
        """Add the sums of gradients of all stages ``mates`` that hold the same layers, behind passes or beside them."""
        job = self._job
        if job.has_sums and job.zero < 3:
            for layer in self._made:
                made = (mate._made[layer] if job.sums_beside else mate._ended for mate in mates)
                self._sum(layer, gradients_of(job.called(layer)), [mark for marks in made for mark in marks])
        elif job.zero == 3 and len(mates) > 1:
            before = [mark for mate in mates for mark in (*mate._ended, *mate._summed)]
            for layer in self._made:
                act = partial(self._actions.run_join, layer)
                name = f"{gradients_of(job.called(layer))} of stages {' and '.join(str(mate._stage) for mate in mates)}"
                self._summed.append(self._tasks.add(self._stage, 0, TRAFFIC, name, before, act))
        for mate in mates:
            mate._summed = self._summed

    def update(self) -> list[Mark]:
        """Add the update of the weights."""
        act, waits = partial(self._actions.run_update, self.layers), (*self._ended, *self._summed)
        return [self._tasks.add(self._stage, pipeline, PASSES, "update", waits, act) for pipeline in self._pipelines]

    def gather_after(self, updates: Iterable[Mark]) -> None:
        """Add the gathers of weights that follow the updates of all stages that hold the same layers."""
        if self._job.is_shared and self._job.zero < 3 and not self._job.gathers_beside:
            for layer in self.layers:
                called = self._job.called(layer)
                self._gather(layer, after_step(called), after_step(called, gathered=True), updates)

    def _chunk(self, each: ChunkPass) -> None:
        layers = self._job.layers[each.chunk]
        last: LayerTask | None = None
        for place, layer in enumerate(layers if each.work is PassKind.FORWARD else reversed(layers)):
            pass_of = LayerTask(each.work, each.chunk, layer, self._job.called(layer), each.microbatch, each.path)
            waits = [self._arrivals(each, pipeline) if place == 0 else [] for pipeline in self._pipelines]
            marks = self._pass(pass_of, waits, last)
            if each.work in MAKES_GRADIENTS:
                self._made.pop(layer, None)
                self._made[layer] = marks
            last = pass_of
        if last is not None and self._scatters(last):
            self._scatter(last)

    @property
    def _pipelines(self) -> range:
        return range(self._job.pipelines)

    def _arrivals(self, each: ChunkPass, pipeline: int) -> list[Mark]:
        found = self._channels.taken(self._stage, each)
        return [] if found is None else [(self._job.rank(found[0], pipeline, 0), found[1])]

    def _pass(self, each: LayerTask, waits: list[list[Mark]], last: LayerTask | None) -> list[Mark]:
        """A pass of one layer in all pipelines, with the traffic of ZeRO-3 before it."""
        weights, gathered = self._whole(each.called), list[Mark]()
        if self._job.zero == 3 and self._gathers:
            weights = f"weights of {each.called} for {each.name}"
            ahead = self._begun if self._job.gathers_beside else self._before(waits)
            gathered = [self._gather(each.layer, pieces_of(each.called), weights, ahead)]
        elif each.work is PassKind.FORWARD and each.layer in self._gathered:
            gathered = [self._gathered[each.layer]]
        if last is not None and self._scatters(last):
            self._scatter(last)
        self._begun = self._before(waits)
        act = partial(self._actions.run_pass, each, self._taken(each), weights)
        return [
            self._tasks.add(self._stage, pipeline, PASSES, each.name, (*taken, *gathered), act)
            for pipeline, taken in zip(self._pipelines, waits, strict=True)
        ]

    def _before(self, waits: list[list[Mark]]) -> list[Mark]:
        """What passes wait for that come next."""
        ranks = (self._job.rank(self._stage, pipeline, 0) for pipeline in self._pipelines)
        before = [(rank, self._tasks.last[rank, PASSES]) for rank in ranks if (rank, PASSES) in self._tasks.last]
        return [*before, *(mark for each in waits for mark in each)]

    def _taken(self, each: LayerTask) -> str:
        """The tensor that a pass takes of another layer."""
        job, layers = self._job, self._job.layers[each.chunk]
        forward, own = each.work is PassKind.FORWARD, job.of(each.layer)
        if not forward and each.layer == len(job.parts) - 1:
            return each.names(own.handed_on)  # the gradient of the loss is the last result
        is_first = each.layer == (layers[0] if forward else layers[-1])
        arrives = self._channels.taken(self._stage, self._chunk_pass(each)) is not None
        if is_first and (arrives or (forward and each.layer == 0)):
            return each.names(own.taken if forward else own.gradient[0])
        before = each.layer + (-1 if forward else 1)
        made = job.of(before).handed_on if forward else job.of(before).gradient[1]
        return named(made, job.called(before), each.microbatch)

    @staticmethod
    def _chunk_pass(each: LayerTask) -> ChunkPass:
        work = PassKind.INPUTS if each.work is PassKind.WEIGHTS else each.work
        return ChunkPass(work, each.path, each.chunk, each.microbatch)

    # Traffic.

    def _whole(self, called: str) -> str:
        """The weights that passes of a layer take, where they are not gathered for each."""
        return f"all {pieces_of(called)}" if self._gathers else pieces_of(called)

    def _scatters(self, each: LayerTask) -> bool:
        return self._job.zero == 3 and self._job.has_sums and each.work in MAKES_GRADIENTS

    def _scatter(self, each: LayerTask) -> None:
        self._sum(each.layer, gradients_of(each.called, each.microbatch), self._made[each.layer])

    def _gather(self, layer: int, pieces: str, into: str, waits: Iterable[Mark]) -> Mark:
        act = partial(self._actions.run_gather, layer, pieces, into)
        return self._tasks.add(self._stage, 0, TRAFFIC, f"gather of {into}", waits, act)

    def _sum(self, layer: int, gradients: str, waits: Iterable[Mark]) -> None:
        act = partial(self._actions.run_sum, layer, gradients)
        self._summed.append(self._tasks.add(self._stage, 0, TRAFFIC, f"sum of {gradients}", waits, act))


def named(tensor: str, called: str, microbatch: int) -> str:
    """A tensor of a layer for people."""
    return f"{tensor} of {called}, microbatch {microbatch}"


def tasks_of_step(job: StepWork, actions: "CarriedStep") -> tuple[StageTask, ...]:
    """Return all tasks of a step, which do what its ``actions`` say."""
    tasks, channels = TaskList(job), AllSends(job)
    builders = [StageBuilder(job, tasks, channels, stage, actions) for stage in range(job.num_stages)]
    mates = [[builders[stage] for stage in job.mates(number)] for number in range(job.num_stages)]
    for each, alike in zip(builders, mates, strict=True):
        each.passes(alike[0])
    firsts = [(each, alike) for each, alike in zip(builders, mates, strict=True) if each is alike[0]]
    for each, alike in firsts:
        each.sums(alike)
    for each, alike in firsts:
        each.gather_after([mark for mate in alike for mark in mate.update()])
    for pipeline in range(job.pipelines):
        for (forward, stage, to), channel in channels.all.items():
            for number, sent in enumerate(channel.sent):
                taken = channel.taken[number] if number < len(channel.taken) else None
                act = partial(actions.run_send, sent, taken, to)
                waits = [(job.rank(stage, pipeline, 0), _makes(job, sent).name)]
                queue = f"sends of {'activations' if forward else 'gradients'} to stage {to}"
                tasks.add(stage, pipeline, queue, send_name(forward, number, to), waits, act)
    return tuple(tasks.all)


def _makes(job: StepWork, sent: ChunkPass) -> LayerTask:
    """The pass of a layer that makes what a chunk hands on."""
    layers = job.layers[sent.chunk]
    layer = layers[-1 if sent.work is PassKind.FORWARD else 0]
    return LayerTask(sent.work, sent.chunk, layer, job.called(layer), sent.microbatch, sent.path)


def room_of(job: StepWork, stage: int) -> Iterator[LayerTask]:
    """Yield the passes of a stage, layer by layer."""
    for each in job.orders[stage]:
        for layer in job.layers[each.chunk]:
            yield LayerTask(each.work, each.chunk, layer, job.called(layer), each.microbatch)
