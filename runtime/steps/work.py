"""What a group of ranks carries out in a step, such as a pass of a layer or a collective, with given numbers."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ...compiler.ir import IndexRange, Made, Plan, Read, System, TileGroup, Workload
from ...compiler.ir.step import ChunkPass, PassKind
from ..memory import Array, Fault
from ..operands import Given
from ..report import Outcome, num_steps
from ..run import PlanRun
from ..tasks import Task
from ..wiring import maker_of

if TYPE_CHECKING:
    from .cut import CutWork

Values = dict[str, tuple[Array, ...]]
"""Tensors by name: [row, column] of what each rank has."""
_LAST = TileGroup("the end", (), IndexRange(0, 0))
_AFTER_ALL = -1
"""As what a task knows: that every other one is done."""


@dataclass(frozen=True, slots=True)
class GroupWork:
    """A workload on a group of ranks, and its plan, or that of its pieces where it is ``cut`` in batches or groups.

    ``exchange`` is what ranks with other parts of a sequence give.
    """

    system: System
    workload: Workload
    plan: Plan
    exchange: "KeyExchange | None" = None
    cut: "CutWork | None" = None

    @property
    def num_ranks(self) -> int:
        """Ranks of the group."""
        return self.system.num_ranks

    @property
    def num_steps(self) -> int:
        """Steps of the plan, of all ranks together."""
        of = self if self.cut is None else self.cut.work
        own = num_steps(of.plan, self.num_ranks)
        return own + (0 if of.exchange is None else self.num_ranks * of.exchange.num_steps)

    def shape_of(self, name: str) -> tuple[int, int]:
        """Rows and columns that a rank has of a tensor."""
        if self.cut is not None:
            return self.cut.shape_of(name)
        return self.workload.tensor(name).shape_at(self.num_ranks)

    def carried_out(self, given: Given, wanted: Iterable[str], seed: int) -> Values:
        """Carry the plan out, and return the results ``wanted``; of a lone collective "" is what it leaves.

        Raises
        ------
        Fault
            If the run is not exact.
        """
        if not self.workload.ops:
            return {}
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
        """Steps of its plans for a rank of one part, at most, with those of what follows."""
        later = 0 if self.rest.exchange is None else self.rest.exchange.num_steps
        return self.gather.num_steps * (2 if self.gradient else 1) + later


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
class LayerWork:
    """Layers that are alike, or the part of such that one workload computes.

    Attributes
    ----------
    name
        That of the workload, for people, where a layer has several; else empty.
    forward
        The forward pass.
    backward
        The backward pass: the whole of it, or its gradients of inputs and those of weights.
    groups
        The ranks of a pipeline by group, each by its place: together they compute a pass.
    contexts
        The places that have parts of the same sequences, in the order of these parts; none where each has whole ones.
    sets
        The weights, by the ranks that hold the same.
    """

    name: str
    forward: GroupWork
    backward: tuple[GroupWork, ...]
    groups: tuple[tuple[int, ...], ...]
    contexts: tuple[tuple[int, ...], ...] = ()
    sets: tuple[WeightSet, ...] = ()

    @property
    def num_places(self) -> int:
        """Ranks of a pipeline on a stage."""
        return sum(map(len, self.groups))

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of the weights."""
        return tuple(name for each in self.sets for name in each.names)

    def alike(self, each: WeightSet) -> tuple[tuple[int, ...], ...]:
        """The places of a pipeline by what they hold of some weights, those with the same together."""
        return (tuple(range(self.num_places)),) if each.whole else tuple(zip(*self.groups, strict=True))

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
        reads = dict.fromkeys(read.tensor for work in self.backward for read in work.workload.declared_reads)
        return tuple(name for name in reads if name in made)

    @property
    def between(self) -> tuple[str, ...]:
        """What gradients of weights take of those of inputs, where they are apart; and those that come with these."""
        if len(self.backward) == 1:
            return ()
        made = {name for name, _, _ in self.backward[0].workload.results}
        reads = (read.tensor for read in self.backward[1].workload.declared_reads)
        found = dict.fromkeys((*reads, *map(gradient_of, self.weights)))
        return tuple(name for name in found if name in made)

    def num_steps(self, work: PassKind, again: bool) -> int:
        """Steps of the plans of a pass of all groups of a pipeline, which computes the layer ``again`` if it is."""
        of = self.forward if work is PassKind.FORWARD else self.backward[-1 if work is PassKind.WEIGHTS else 0]
        before = self.forward.num_steps if again and work in (PassKind.BACKWARD, PassKind.INPUTS) else 0
        return len(self.groups) * (of.num_steps + before)


@dataclass(frozen=True, slots=True)
class StepWork:
    """A step to be carried out.

    Attributes
    ----------
    name, expression
        The step and its schedule.
    kinds
        Its layers, each kind once.
    parts
        What is computed one after the other forward: a kind by its index, and the number of the layer. All of it that
        has an index of its own is a layer in what follows, be it a part of one.
    again
        Whether the backward pass computes a layer again, of which its input alone is kept.
    orders
        What each stage computes, one after the other, [stages][...].
    layers
        Those of each chunk, in the order of the model.
    pipelines, microbatches
        How many pipelines there are, and microbatches of each. A pipeline has all ranks that compute a pass together.
    strides
        How far apart in the numbers of ranks neighbours are: in a pipeline, and among stages.
    send
        What a rank of one stage sends to one of another; None without a pipeline.
    rejoin
        Gathers what was sent in parts, where each rank of a group has all; else None.
    zero
        What ranks that hold the same weights share (ZeRO), 0 to 3.
    sums_beside, gathers_beside
        Whether that traffic runs beside the passes.
    notes
        What is left out or smaller than in the step, in sentences.
    """

    name: str
    expression: str
    kinds: tuple[LayerWork, ...]
    parts: tuple[tuple[int, int], ...]
    again: bool
    orders: tuple[tuple[ChunkPass, ...], ...]
    layers: tuple[range, ...]
    pipelines: int
    microbatches: int
    strides: tuple[int, int]
    send: GroupWork | None = None
    rejoin: GroupWork | None = None
    zero: int = 0
    sums_beside: bool = False
    gathers_beside: bool = False
    notes: tuple[str, ...] = ()

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline."""
        return len(self.orders)

    @property
    def num_layers(self) -> int:
        """Layers of the model, where those of several parts count once."""
        return self.parts[-1][1] + 1

    @property
    def num_places(self) -> int:
        """Ranks of a pipeline on a stage."""
        return self.kinds[0].num_places

    @property
    def num_ranks(self) -> int:
        """All ranks."""
        return self.num_places * self.pipelines * self.num_stages

    def of(self, layer: int) -> LayerWork:
        """What a layer is."""
        return self.kinds[self.parts[layer][0]]

    def called(self, layer: int) -> str:
        """A layer for people, its own name: parts of one layer may be of one workload."""
        name, number = self.of(layer).name, self.parts[layer][1]
        before = self.parts[:layer].count(self.parts[layer])
        nth = f" {before + 1}" if before else ""
        return f"{name}{nth} of layer {number}" if name else f"layer {number}"

    @property
    def has_sums(self) -> bool:
        """Whether any gradients are summed among ranks."""
        return any(each.sums is not None for kind in self.kinds for each in kind.sets)

    @property
    def is_shared(self) -> bool:
        """Whether a rank has a part alone of the optimizer's states of any of its weights."""
        return any(self.shares(each) for kind in self.kinds for each in kind.sets)

    def shares(self, each: WeightSet) -> bool:
        """Whether it has a part alone of those of these weights."""
        return self.zero > 0 and each.sums is not None

    def mates(self, stage: int) -> tuple[int, ...]:
        """The stages that have the same layers, itself among them: two where microbatches come from both ends."""
        own = {each.chunk for each in self.orders[stage]}
        return tuple(
            other for other, order in enumerate(self.orders) if not own.isdisjoint(each.chunk for each in order)
        )

    def holders(self, of: LayerWork, each: WeightSet, stage: int) -> tuple[tuple[int, ...], ...]:
        """The ranks of a stage, and its mates if they gather together, by what they hold: with the same together."""
        mates = (stage,) if each.joins is not None else self.mates(stage)
        return tuple(
            tuple(self.rank(*ids) for ids in product(mates, range(self.pipelines), places)) for places in of.alike(each)
        )

    def own_row(self, of: LayerWork, each: WeightSet, stage: int, rank: int) -> slice:
        """The rows of these weights that a rank has, where they are shared."""
        ranks = next(group for group in self.holders(of, each, stage) if rank in group)
        row = ranks.index(rank)
        return slice(row, row + 1) if self.shares(each) else slice(None)

    def stage_of(self, microbatch: int, chunk: int) -> int:
        """The stage that computes a chunk for a microbatch."""
        own = ({(each.microbatch, each.chunk) for each in order} for order in self.orders)
        return next(stage for stage, computed in enumerate(own) if (microbatch, chunk) in computed)

    @property
    def num_steps(self) -> int:
        """Steps of the plans of all passes, of all ranks together; sends and traffic of weights are few beside them."""
        each = [
            self.of(layer).num_steps(task.work, self.again)
            for order in self.orders
            for task in order
            for layer in self.layers[task.chunk]
        ]
        shared = sum(
            other.num_steps * (1 if own.whole else kind.forward.num_ranks)
            for kind in (self.of(layer) for layer in range(len(self.parts)))
            for own in kind.sets
            for other in (own.sums, own.gathers, own.joins)
            if other is not None
        )
        return self.pipelines * sum(each) + shared * (3 * self.microbatches if self.zero == 3 else 1)

    def rank(self, stage: int, pipeline: int, place: int) -> int:
        """The number of a rank, by its ``place`` in its pipeline."""
        near, far = self.strides
        local = pipeline // near * near * self.num_places + place * near + pipeline % near
        return local % far + stage * far + local // far * far * self.num_stages


def gradient_of(weight: str) -> str:
    """The name of the gradient of a weight, as backward passes are derived."""
    return f"d_{weight}"
