"""What a group of ranks carries out in a step, such as a pass of a layer or a collective, with given numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...compiler.ir import IndexRange, Made, Plan, Read, Shard, System, TileGroup, Workload
from ...compiler.ir.step import ChunkPass, PassKind
from ..memory import Array, Fault
from ..operands import Given
from ..report import Outcome
from ..run import PlanRun
from ..tasks import Task
from ..wiring import maker_of

Values = dict[str, tuple[Array, ...]]
"""Tensors by name: [row, column] of what each rank has."""
_LAST = TileGroup("the end", (), IndexRange(0, 0))
_AFTER_ALL = -1
"""As what a task knows: that every other one is done."""


@dataclass(frozen=True, slots=True)
class GroupWork:
    """A workload on a group of ranks, and its plan; ``exchange`` is what ranks with other parts of a sequence give."""

    system: System
    workload: Workload
    plan: Plan
    exchange: "KeyExchange | None" = None

    @property
    def num_ranks(self) -> int:
        """Ranks of the group."""
        return self.system.num_ranks

    @property
    def num_steps(self) -> int:
        """Steps of the plan, of all ranks together."""
        own = sum(len(part.schedule.steps_of(rank)) for part in self.plan.parts for rank in range(self.num_ranks))
        return own + (0 if self.exchange is None else self.num_ranks * self.exchange.num_steps)

    def carried_out(self, given: Given, wanted: Iterable[str], seed: int) -> Values:
        """Carry the plan out, and return the results ``wanted``; of a lone collective "" is what it leaves.

        Raises
        ------
        Fault
            If the run is not exact.
        """
        run = PlanRun(self.system, self.workload, self.plan, seed, None, given)
        run.work()
        outcome, sentences = run.found(range(self.num_ranks))
        if outcome is not Outcome.EXACT:
            raise Fault(f"{outcome.value}: {sentences[0]}")
        makers = {name: Read(name, op, what) for name, op, what in self.workload.results}
        alone = Read("", self.plan.parts[-1].op)
        return {name: self._result(run, makers.get(name, alone)) for name in wanted}

    def _result(self, run: PlanRun, read: Read) -> tuple[Array, ...]:
        """What the ranks have of a result in the end."""
        maker = maker_of(self.plan, read)
        what = read.what if maker.shape.pattern.consumes else Made.OUTPUT
        sheet = dict(run.problems[maker.name].sheets())[what]
        found = []
        for rank in range(self.num_ranks):
            task = Task(len(run.tasks.all), rank, _LAST, (rank, ""), (), known=_AFTER_ALL)
            whole = slice(0, sheet.cols.size)
            places = ((block, slice(0, rows), whole) for block, rows in sheet.blocks(rank))
            values = [sheet.read(rank, place, task) for place in places]
            stacked = np.concatenate(values) if values else np.zeros((0, sheet.cols.size))
            found.append(stacked.T if maker.shape.by_columns else stacked)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class KeyExchange:
    """What attention takes of ranks with other parts of a sequence; a pass is in two there.

    Attributes
    ----------
    op, made
        Attention, and the tensor that it makes.
    operands, cols
        What has keys and values: the last ``cols`` columns of these side by side; so have their gradients.
    first, rest
        The pass up to attention, and what follows.
    gather
        all_gather of the keys and values of all parts, or of two neighbours in a ring.
    scatter
        reduce_scatter of their gradients; None in a ring, and forward.
    gradient
        The gradient of its result that attention takes backward; forward empty.
    is_ring
        Whether blocks go from neighbour to neighbour.
    """

    op: str
    made: str
    operands: tuple[str, ...]
    cols: int
    first: GroupWork
    rest: GroupWork
    gather: GroupWork
    scatter: GroupWork | None = None
    gradient: str = ""
    is_ring: bool = False

    @property
    def num_steps(self) -> int:
        """Steps of its plans for a rank of one part, at most."""
        return self.gather.num_steps * (2 if self.gradient else 1)


@dataclass(frozen=True, slots=True)
class WeightSet:
    """Weights of a layer that the same ranks hold, by name.

    ``whole``: each rank of a group has all of them, so that all ranks of a stage hold the same, and not a part that
    ranks of other pipelines have too. ``sums`` of gradients and ``gathers`` of weights are among these ranks; None
    where there is one alone. ``joins`` sums what is left at two stages that have the same layers, but gather weights
    each at its own time.
    """

    names: tuple[str, ...]
    whole: bool = False
    sums: GroupWork | None = None
    gathers: GroupWork | None = None
    joins: GroupWork | None = None

    def named(self, name: str) -> str:
        """A tensor of all its weights, one after the other, for people."""
        return f"whole {name}" if self.whole else name


@dataclass(frozen=True, slots=True)
class StepWork:
    """A step to be carried out, whose layers are alike.

    Attributes
    ----------
    name, expression
        The step and its schedule.
    forward
        The forward pass of a layer.
    backward
        The backward pass: the whole of it, or its gradients of inputs and those of weights.
    again
        Whether the backward pass computes a layer again, of which its input alone is kept.
    orders
        What each stage computes, one after the other, [stages][...].
    layers
        Those of each chunk, in the order of the model.
    pipelines, microbatches
        How many pipelines there are, and microbatches of each.
    parts
        So many pipelines after each other have a part each of the same sequences.
    strides
        How far apart in the numbers of ranks neighbours are: in a group, among pipelines, among stages.
    send
        What a rank of one stage sends to one of another; None without a pipeline.
    sets
        The weights of a layer, by the ranks that hold the same.
    zero
        What these ranks share (ZeRO), 0 to 3.
    sums_beside, gathers_beside
        Whether that traffic runs beside the passes.
    notes
        What is left out or smaller than in the step, in sentences.
    """

    name: str
    expression: str
    forward: GroupWork
    backward: tuple[GroupWork, ...]
    again: bool
    orders: tuple[tuple[ChunkPass, ...], ...]
    layers: tuple[range, ...]
    pipelines: int
    microbatches: int
    strides: tuple[int, int, int]
    send: GroupWork | None = None
    sets: tuple[WeightSet, ...] = ()
    zero: int = 0
    sums_beside: bool = False
    gathers_beside: bool = False
    notes: tuple[str, ...] = ()
    parts: int = 1

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline."""
        return len(self.orders)

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return self.layers[-1].stop

    @property
    def num_ranks(self) -> int:
        """All ranks."""
        return self.forward.num_ranks * self.pipelines * self.num_stages

    def sharing(self, pipeline: int) -> range:
        """The pipelines with parts of the same sequences."""
        first = pipeline - pipeline % self.parts
        return range(first, first + self.parts)

    @property
    def has_sums(self) -> bool:
        """Whether any gradients are summed among ranks."""
        return any(each.sums is not None for each in self.sets)

    @property
    def is_shared(self) -> bool:
        """Whether a rank has a part alone of the optimizer's states of any of its weights."""
        return any(map(self.shares, self.sets))

    def shares(self, each: WeightSet) -> bool:
        """Whether it has a part alone of those of these weights."""
        return self.zero > 0 and each.sums is not None

    def mates(self, stage: int) -> tuple[int, ...]:
        """The stages that have the same layers, itself among them: two where microbatches come from both ends."""
        own = {each.chunk for each in self.orders[stage]}
        return tuple(
            other for other, order in enumerate(self.orders) if not own.isdisjoint(each.chunk for each in order)
        )

    def holders(self, each: WeightSet, stage: int) -> tuple[tuple[int, ...], ...]:
        """The ranks of a stage, and its mates if they gather together, by what they hold: with the same together."""
        places, pipelines = range(self.forward.num_ranks), range(self.pipelines)
        mates = (stage,) if each.joins is not None else self.mates(stage)
        by_place = [
            tuple(self.rank(mate, pipeline, place) for mate in mates for pipeline in pipelines) for place in places
        ]
        return (tuple(rank for ranks in by_place for rank in ranks),) if each.whole else tuple(by_place)

    def own_row(self, each: WeightSet, stage: int, pipeline: int, place: int) -> slice:
        """The rows of these weights that a rank has, where they are shared."""
        ranks = next(group for group in self.holders(each, stage) if self.rank(stage, pipeline, place) in group)
        row = ranks.index(self.rank(stage, pipeline, place))
        return slice(row, row + 1) if self.shares(each) else slice(None)

    def stage_of(self, microbatch: int, chunk: int) -> int:
        """The stage that computes a chunk for a microbatch."""
        found = (
            stage
            for stage, order in enumerate(self.orders)
            if any((each.microbatch, each.chunk) == (microbatch, chunk) for each in order)
        )
        return next(found)

    @property
    def num_steps(self) -> int:
        """Steps of all plans that are carried out, of all ranks together."""
        backward = dict(zip((PassKind.INPUTS, PassKind.WEIGHTS), self.backward * 2, strict=False))
        work = {PassKind.FORWARD: self.forward, PassKind.BACKWARD: self.backward[0], **backward}
        each = [work[task.work].num_steps * len(self.layers[task.chunk]) for order in self.orders for task in order]
        again = self.forward.num_steps * self.num_layers * self.microbatches if self.again else 0
        shared = sum(
            other.num_steps * (1 if own.whole else self.forward.num_ranks)
            for own in self.sets
            for other in (own.sums, own.gathers, own.joins)
            if other is not None
        )
        times = 3 * self.microbatches if self.zero == 3 else 1
        return self.pipelines * (sum(each) + again) + shared * self.num_layers * times

    @property
    def weights(self) -> tuple[str, ...]:
        """The weights of a layer."""
        return tuple(name for each in self.sets for name in each.names)

    @property
    def taken(self) -> str:
        """What a layer takes of the one before."""
        return self._repeat(self.forward)[0]

    @property
    def handed_on(self) -> str:
        """What a layer hands on to the next."""
        return self._repeat(self.forward)[1]

    @property
    def gradient(self) -> tuple[str, str]:
        """Names of the gradients that a backward pass takes and makes: those of a layer's result and of its input."""
        taken, made = self._repeat(self.backward[0])
        return taken, made

    @staticmethod
    def _repeat(work: GroupWork) -> tuple[str, str]:
        repeat = work.workload.repeat
        assert repeat is not None, "layers of a step repeat"
        return repeat.as_input, repeat.result

    @property
    def kept(self) -> tuple[str, ...]:
        """The results of the forward pass that the backward pass takes."""
        made = {name for name, _, _ in self.forward.workload.results} - set(self.between)
        reads = dict.fromkeys(read.tensor for work in self.backward for read in declared(work.workload))
        return tuple(name for name in reads if name in made)

    @property
    def between(self) -> tuple[str, ...]:
        """What gradients of weights take of those of inputs, where they are apart."""
        if len(self.backward) == 1:
            return ()
        made = {name for name, _, _ in self.backward[0].workload.results}
        found = dict.fromkeys(read.tensor for read in declared(self.backward[1].workload))
        return tuple(name for name in found if name in made)

    def rank(self, stage: int, pipeline: int, place: int) -> int:
        """The number of a rank, by its ``place`` in its group."""
        return sum(stride * index for stride, index in zip(self.strides, (place, pipeline, stage), strict=True))


def declared(workload: Workload) -> Iterable[Read]:
    """What ops read that none of them makes."""
    return (read for op in workload.ops for read in op.reads if not read.made_by and not read.adds)


def split(values: Array, shard: Shard, ranks: int) -> tuple[Array, ...]:
    """What each of ``ranks`` has of a tensor."""
    match shard:
        case Shard.NONE:
            return (values,) * ranks
        case Shard.COLS:
            return tuple(np.split(values, ranks, axis=1))
        case _:
            return tuple(np.split(values, ranks))


def joined(parts: Sequence[Array], shard: Shard) -> Array:
    """The tensor of which ranks have ``parts``."""
    match shard:
        case Shard.NONE:
            return parts[0]
        case Shard.COLS:
            return np.concatenate(parts, axis=1)
        case _:
            return np.concatenate(parts)
