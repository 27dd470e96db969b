"""A whole step: its pipeline, the traffic among ranks that hold the same weights, and the optimizer, in ticks.

Three levels, each exact in itself: a layer with what runs beside it is simulated by the caller; a stage computes layers
one after the other; the pipeline is run in the order of its schedule. Ranks of a stage are alike, so that no skew
between them is lost.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from ...compiler.codes import Code
from ...compiler.ir import Rejection
from ...compiler.ir.step import Overlapped, PassKind, PipelineKind, StepSchedule
from .orders import chunks_at
from .pipeline import ChunkTicks, PipelineRun, SendMet, SlotInterval, run_pipeline


@dataclass(frozen=True, slots=True)
class LayerTicks:
    """Ticks of one layer.

    Attributes
    ----------
    forward, inputs, weights
        Its forward pass, and what of the backward pass makes gradients of its inputs and of its weights.
    gradients, gathered
        Traffic of its gradients, and of its weights, among the ranks that hold the same; 0 where there is one alone.
    forward_beside, backward_beside
        A pass while the traffic of another layer runs beside it.
    gained
        How much sooner both passes end where they run beside each other.
    meets
        How much longer a pass takes where what its stage sends, or gets, is under way as it begins, and that.
    sooner
        How much sooner gradients of inputs are there where those of weights come later, and share nothing with them.
    """

    forward: int
    inputs: int
    weights: int
    gradients: int = 0
    gathered: int = 0
    forward_beside: int = 0
    backward_beside: int = 0
    gained: int = 0
    meets: tuple[SendMet, ...] = field(default=(), kw_only=True)
    sooner: int = field(default=0, kw_only=True)

    @property
    def backward(self) -> int:
        """The whole backward pass."""
        return self.inputs + self.weights


@dataclass(frozen=True, slots=True)
class StepTicks:
    """What a step is made of: ``layers`` in their order, and beside them the ends of the model and the optimizer.

    ``optimizer`` is that of each stage, or of one for all; ``waited`` is how long a rank computes nothing for the sends
    of each pass of a chunk, and ``send_beside`` how much longer two sends to one stage take that leave at once.
    """

    layers: tuple[LayerTicks, ...]
    head: LayerTicks = field(default_factory=lambda: LayerTicks(0, 0, 0))
    send: int = 0
    optimizer: tuple[int, ...] = (0,)
    waited: int = 0
    send_beside: int = 0


@dataclass(frozen=True, slots=True)
class StepRun:
    """A step that was run.

    Attributes
    ----------
    pipeline
        The run of its passes.
    chunks
        How many layers each chunk has, along the model.
    gradients_ticks, weights_ticks
        Traffic among ranks that hold the same weights that nothing hides: behind the passes, and before them.
    optimizer_ticks
        The update of the weights.
    """

    pipeline: PipelineRun
    chunks: tuple[int, ...]
    gradients_ticks: int
    weights_ticks: int
    optimizer_ticks: int

    @property
    def makespan_ticks(self) -> int:
        """The whole step."""
        return self.pipeline.makespan_ticks + self.gradients_ticks + self.weights_ticks + self.optimizer_ticks

    @property
    def bubble_ticks(self) -> int:
        """How long a stage waits in the pipeline, on average."""
        busy = self.pipeline.busy
        return self.pipeline.makespan_ticks - sum(busy) // len(busy)

    @property
    def bubble(self) -> float:
        """The same as a share of the step."""
        return self.bubble_ticks / self.makespan_ticks

    @property
    def exposed(self) -> float:
        """The share of the step in which nothing but traffic of gradients and weights runs."""
        return (self.gradients_ticks + self.weights_ticks) / self.makespan_ticks


def layers_of_chunks(num_layers: int, stages: int, schedule: StepSchedule) -> tuple[int, ...] | Rejection:
    """Return how many layers each chunk has, in the order of the model, or why they are not cut so.

    Without ``stages`` of the schedule they are as even as can be, the last ones larger.
    """
    parts = stages * schedule.pipeline.chunks
    if schedule.stages:
        given = schedule.stages
        hint = f"{parts} numbers that add up to {num_layers}, or none for the most even ones"
        if len(given) != parts:
            return Rejection(Code.MGS570, f"layers of {len(given)} chunks are said, and there are {parts}", hint)
        if sum(given) != num_layers:
            return Rejection(Code.MGS570, f"the stages have {sum(given)} layers, the model {num_layers}", hint)
        return given
    if parts > num_layers:
        message = f"some of {parts} chunks have no layer: the model has {num_layers}"
        return Rejection(Code.MGS570, message, "fewer stages or chunks")
    return tuple(num_layers * (part + 1) // parts - num_layers * part // parts for part in range(parts))


def run_step(ticks: StepTicks, schedule: StepSchedule, stages: int, microbatches: int) -> StepRun:
    """Run a step that is not rejected by ``layers_of_chunks`` and ``orders.rejected``.

    Parameters
    ----------
    ticks
        Of its parts.
    schedule
        How it is carried out.
    stages, microbatches
        Of the pipeline.
    """
    counts = layers_of_chunks(len(ticks.layers), stages, schedule)
    assert not isinstance(counts, Rejection), "the caller has looked"
    ends = list(accumulate(counts))
    layers = [ticks.layers[end - count : end] for count, end in zip(counts, ends, strict=True)]
    layers[-1] = (*layers[-1], ticks.head)
    chunks = tuple(
        _sending(each, own, ticks.waited)
        for each, own in zip(_chunks(layers, schedule, stages, ticks.send), layers, strict=True)
    )
    run = run_pipeline(schedule.pipeline, chunks, microbatches, ticks.send, ticks.send_beside)
    owned = [chunks_at(schedule.pipeline, rank, stages) for rank in range(stages)]
    per_stage = [[layer for chunk in own for layer in layers[chunk]] for own in owned]
    tail = 0
    if schedule.zero < 3:  # else each pass scatters its own
        tail = max(_tails(run, layers, per_stage, schedule, stages)) - run.makespan_ticks
    gathered = 0
    if schedule.zero in (1, 2) and Overlapped.WEIGHTS not in schedule.overlapped:
        gathered = max(sum(layer.gathered for layer in own) for own in per_stage)
    return StepRun(run, counts, tail, gathered, max(ticks.optimizer))


def _chunks(
    layers: Sequence[Sequence[LayerTicks]], schedule: StepSchedule, stages: int, send: int
) -> Iterator[ChunkTicks]:
    """The ticks of each chunk, with what runs beside its first and last pass."""
    arrives, queued, needed = 0, [0] * stages, [0] * stages
    ahead = schedule.zero in (1, 2) and Overlapped.WEIGHTS in schedule.overlapped
    for number, own in enumerate(layers):
        needed[number % stages] += sum(each.gathered for each in own) if ahead else 0
    for number, own in enumerate(layers):
        forward, inputs = sum(each.forward for each in own), sum(each.inputs for each in own)
        weights = sum(each.weights for each in own)
        if schedule.zero == 3:
            yield _gathered_each_time(own, schedule, forward, inputs, weights)
            continue
        last, rank, end = None, number % stages, arrives
        for each in own:
            # Weights come in the order in which they are taken; later stages get them while they wait.
            queued[rank] += each.gathered if ahead else 0
            end = max(end, queued[rank])
            end += (each.forward_beside or each.forward) if end < needed[rank] else each.forward
        if Overlapped.GRADIENTS in schedule.overlapped:
            beside = [each.backward_beside or each.backward for each in own]
            first = max((at for at, each in enumerate(own) if each.gradients), default=None)
            if first is not None and number + stages >= len(layers):
                beside[first] = own[first].backward  # nothing is moved yet: its gradients are the first of the rank
            last = sum(beside)
        yield ChunkTicks(forward, inputs, weights, sum(each.gained for each in own), end - arrives, last)
        arrives = end + send


def _sending(chunk: ChunkTicks, layers: Sequence[LayerTicks], waited: int) -> ChunkTicks:
    """A chunk whose passes wait so long each for what they send and take, and of which the first layer meets sends.

    Products of the head meet them as those of the layer before it.
    """
    names = ("forward", "inputs", "first_forward", "last_backward")
    known = {name: getattr(chunk, name) for name in names}
    meets = first_met(layers[0].meets, next((each.meets for each in reversed(layers) if each.meets), ()))
    sooner = sum(each.sooner for each in layers)
    return replace(
        chunk, meets=meets, sooner=sooner, **{name: own + waited for name, own in known.items() if own is not None}
    )


def first_met(first: Iterable[SendMet], last: Iterable[SendMet]) -> tuple[SendMet, ...]:
    """What of layers meets a send as a pass begins: the ``first`` one forward, and the ``last`` one backward."""
    ahead = (each for each in first if each.work is PassKind.FORWARD)
    return *ahead, *(each for each in last if each.work is not PassKind.FORWARD)


def _gathered_each_time(
    own: Sequence[LayerTicks], schedule: StepSchedule, forward: int, inputs: int, weights: int
) -> ChunkTicks:
    """A chunk whose weights are gathered for each pass, and whose gradients are scattered after each (ZeRO-3).

    Beside a layer come the weights of the next one, and backward the gradients of the one before. Gradients of inputs
    take weights, and those of weights need none: where they are apart, only they are scattered.
    """
    gathered, scattered = [each.gathered for each in own], [each.gradients for each in own]
    if Overlapped.WEIGHTS not in schedule.overlapped:
        return ChunkTicks(forward + sum(gathered), inputs + sum(gathered), weights + sum(scattered))
    ahead = zip(own, (*gathered[1:], 0), strict=True)
    forward = gathered[0] + sum(max(each.forward_beside or each.forward, coming) for each, coming in ahead)
    if Overlapped.GRADIENTS in schedule.overlapped:
        leaving, last = (*scattered[1:], 0), scattered[0]
    else:
        leaving, last = (0,) * len(own), sum(scattered)
    if schedule.pipeline.kind is PipelineKind.ZERO_BUBBLE:
        coming = zip(own, (0, *gathered[:-1]), strict=True)
        # A run takes ``sooner`` off what gradients of inputs take, and traffic does not end sooner for that.
        inputs = gathered[-1] + sum(max(each.inputs, come + each.sooner) for each, come in coming)
        both = zip(own, leaving, strict=True)
        weights = last + sum(max(each.weights + _slowed(each), gone) for each, gone in both)
        return ChunkTicks(forward, inputs, weights)
    beside = zip(own, (0, *gathered[:-1]), leaving, strict=True)
    backward = gathered[-1] + last
    backward += sum(max(each.backward_beside or each.backward, coming + gone) for each, coming, gone in beside)
    return ChunkTicks(forward, backward - weights, weights)


def _slowed(layer: LayerTicks) -> int:
    """How much longer the gradients of a layer take beside those that are scattered."""
    return layer.backward_beside - layer.backward if layer.backward_beside else 0


def _tails(
    run: PipelineRun,
    layers: Sequence[Sequence[LayerTicks]],
    per_stage: Sequence[Sequence[LayerTicks]],
    schedule: StepSchedule,
    stages: int,
) -> Iterator[int]:
    """When the last gradients of each stage have been summed among the ranks that hold the same weights."""
    if Overlapped.GRADIENTS not in schedule.overlapped:
        for end, own in zip(run.ends, per_stage, strict=True):
            yield end + sum(layer.gradients for layer in own)
        return
    last = max(task.microbatch for each in run.intervals for task in each.slot)
    later = run.makespan_ticks - max(each.end_ticks for each in run.intervals)
    for rank in range(stages):
        done = 0
        for interval, chunk in _last_backward(run.intervals, rank, last):
            end = interval.end_ticks + later
            own = layers[chunk]
            for place, layer in enumerate(reversed(own), 1):
                behind = sum(each.backward_beside or each.backward for each in own[: len(own) - place])
                done = max(done, end - behind) + layer.gradients
        yield max(done, run.ends[rank])


def _last_backward(intervals: Sequence[SlotInterval], rank: int, last: int) -> Iterator[tuple[SlotInterval, int]]:
    """The last pass of each chunk of a rank that makes gradients of weights, in their order."""
    for interval in intervals:
        for task in interval.slot if interval.rank == rank else ():
            if task.microbatch == last and task.work in (PassKind.BACKWARD, PassKind.WEIGHTS):
                yield interval, task.chunk
