"""The serial step: all microbatches one after the other on one rank, with whole tensors and no collective.

It shares with the step that is carried out what numbers there are at first, what stands for kernels that are no
products, and the update of a weight; nothing of plans, orders and groups.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from threading import Lock

import numpy as np

from ...compiler.codes import Code
from ...compiler.ir import (
    ElementwiseShape,
    GroupedGemmShape,
    Made,
    Op,
    Pattern,
    Read,
    Rejection,
    Workload,
    without_batch,
)
from ..axes import CutAxis
from ..memory import Array, CheckedArray, Fault
from ..operands import MODULUS, drawn
from ..problem import mixture, of_experts
from ..report import RunRefused
from ..tasks import Task
from .context import attended, gradient_of_block, keys_of, with_gradient
from .cut import CutWork, joined, split
from .work import GroupWork, KeyExchange, LayerWork, StepWork, WeightSet, gradient_of

PRODUCTS = (Pattern.GEMM, Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR)
KERNELS = (Pattern.KERNEL, Pattern.ALL_TO_ALL)
"""Patterns of which each rank's part is made by itself, or of parts of others."""
MOVES = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE)
"""Patterns that leave a whole tensor as it is."""
RATE, EPSILON, DECAYS = 1e-3, 1e-8, (0.9, 0.999)
"""Adam's learning rate, what keeps its denominator from 0, and the decays of its moments (Kingma and Ba 2015)."""
_MOVED = Made.MOVED
Tensors = dict[str, Array]
"""Whole tensors by name, [row, column]."""


def updated(weights: Array, gradients: Array, moments: tuple[Array, Array]) -> Array:
    """Return weights after a step of Adam, element by element: the same whoever has which of them.

    Moments are those of steps before, so that the size of a gradient shows and not its sign alone.
    """
    first, second = (
        decay * moment + (1 - decay) * power
        for decay, moment, power in zip(DECAYS, moments, (gradients, gradients**2), strict=True)
    )
    return np.asarray(weights - RATE * first / (np.sqrt(second) + EPSILON))


def check_ops(workload: Workload) -> None:
    """Check that a serial step knows all ops.

    Raises
    ------
    RunRefused
        If it does not.
    """
    for op in workload.ops:
        pattern, shape = op.shape.pattern, op.shape
        known = pattern in (*MOVES, *KERNELS) or (pattern in PRODUCTS and shape.gemm is not None)
        if not known or shape.uneven or shape.uneven_parts:
            message = f"{op.name} of {workload.name} is {op.label}, which is not carried out in a step"
            raise RunRefused(Rejection(Code.MGS540, message, f"of its layers it may be: --workload {workload.name}"))


@dataclass(frozen=True, slots=True)
class SerialLayer:
    """A pass of a layer with whole tensors of each group of a pipeline, whose ranks share them in the step.

    The kernels of ranks are alike. A pass in batches or groups is computed without them, but where kernels take rows
    of one batch or group together: there one follows the other.
    """

    kind: LayerWork
    whole: GroupWork
    seed: int

    @property
    def cut(self) -> CutWork | None:
        """The pieces in which it is computed."""
        return self.whole.cut if self.whole.cut is not None and self.whole.cut.mixes_rows else None

    @property
    def work(self) -> GroupWork:
        """What is computed."""
        return self.whole if self.cut is None else self.cut.work

    @property
    def ranks(self) -> int:
        """Those of a group."""
        return self.kind.forward.num_ranks

    def results(self, given: Iterable[Mapping[str, Array]]) -> list[Tensors]:
        """Return all results of the pass, by group."""
        known = [dict(each) for each in given]
        return self._results(known) if self.cut is None else self.cut.computed(known, self._results)

    def _results(self, known: list[Tensors]) -> list[Tensors]:
        """The same of the ops that are computed."""
        for op in self.work.workload.ops:
            for own, made in zip(known, self._made(op, known), strict=True):
                own |= {name: made for name, maker, _ in self.work.workload.results if maker == op.name}
                if op.shape.pattern is Pattern.AG_GEMM:  # what it gathers, whole
                    moved = next(read for read in op.reads if read.moves)
                    names = [
                        name for name, maker, what in self.work.workload.results if (maker, what) == (op.name, _MOVED)
                    ]
                    own |= dict.fromkeys(names, self._taken(moved, own))
        return known

    def _made(self, op: Op, known: Sequence[Tensors]) -> list[Array]:
        """What groups make, each by itself but for attention of parts of sequences."""
        of = self.work.exchange
        while of is not None and of.op != op.name:
            of = of.rest.exchange
        if of is not None:
            return self._with_others(of, op, known)
        return [self._alone(op, own) for own in known]

    def _alone(self, op: Op, known: Tensors) -> Array:
        reads = [read for read in op.reads if not read.adds]
        if op.shape.pattern in MOVES:
            return self._taken(reads[0], known)
        if op.shape.pattern in PRODUCTS:
            first, second = (self._taken(read, known) for read in reads)
            before = [known[read.tensor] for read in op.added]
            return np.asarray(sum(before, first @ second) % MODULUS)
        if op.shape.pattern is Pattern.ALL_TO_ALL:
            return self._exchanged(op, self._taken(reads[0], known))
        return self._joined(op, self._kernels(op, self._operands(op, known)))

    def _exchanged(self, op: Op, values: Array) -> Array:
        """What ranks have of the rows of all: of each as many, from its own on; rows that end begin again."""
        assert op.shape.moved is not None, "an exchange moves rows"
        count, ranks = op.shape.moved.rows // self.ranks, range(self.ranks)
        held = [part[np.arange(op.shape.moved.rows) % len(part)] for part in np.split(values, self.ranks)]
        return np.concatenate(
            [held[(to + by) % self.ranks][to * count : (to + 1) * count] for to in ranks for by in ranks]
        )

    def _kernels(self, op: Op, operands: Sequence[Sequence[Array]]) -> list[Array]:
        """Each rank's part by itself, as kernels have it, of the ``operands`` of each."""
        (rows, cols), shape = self.work.workload.output_of(op).shape_at(self.ranks), op.shape.kernel
        by_rows = isinstance(shape, ElementwiseShape) and all(len(each) == rows for each in operands[0])
        where = np.arange(rows), np.arange(cols)
        return [
            of_experts(shape, *taken)
            if isinstance(shape, GroupedGemmShape)
            else mixture(self.seed, without_batch(op.name), list(taken), *where, by_rows=by_rows)
            for taken in operands
        ]

    def _operands(self, op: Op, known: Tensors) -> list[tuple[Array, ...]]:
        """What each rank of a group has of what a kernel takes: its part, or all of a weight."""
        found = list[tuple[Array, ...]]()
        for read in (read for read in op.reads if not read.adds):
            whole, shard = (
                self._taken(replace(read, transposed=False), known),
                self.work.workload.tensor(read.tensor).shard,
            )
            own = split(whole, shard, self.ranks)
            found.append(tuple(each.T for each in own) if read.transposed else own)
        return list(zip(*found, strict=True))

    def _joined(self, op: Op, parts: Sequence[Array]) -> Array:
        return np.asarray(joined(parts, self.work.workload.output_of(op).shard) % MODULUS)

    def _with_others(self, of: KeyExchange, op: Op, known: Sequence[Tensors]) -> list[Array]:
        """What attention makes of each group, with what ranks with parts of one sequence add to each other."""
        made, taken = dict[int, Array](), dict[int, tuple[Array, ...]]()
        for group, own in zip(self.kind.groups, known, strict=True):
            operands = self._operands(op, own)
            taken |= zip(group, operands, strict=True)
            made |= zip(group, self._kernels(op, operands), strict=True)
        for places in self.kind.contexts:
            keys = [keys_of(of, taken[place][: len(of.operands)]) for place in places]
            done = [attended(self.seed, of, made[place], keys, own) for own, place in enumerate(places)]
            for to, by in product(range(len(places)), repeat=2) if of.gradient else ():
                if to != by:
                    back = gradient_of_block(self.seed, of, taken[places[by]][-1], by, to)
                    done[to] = with_gradient(of, done[to], back)
            made |= zip(places, done, strict=True)
        return [self._joined(op, [made[place] for place in group]) for group in self.kind.groups]

    def _taken(self, read: Read, known: Mapping[str, Array]) -> Array:
        """What an op reads: all of a tensor, or some columns, of which each rank has its share."""
        values = known[read.tensor]
        if read.part is not None:
            shard = self.work.workload.tensor(read.tensor).shard
            parts, count = split(values, shard, self.ranks), read.part.cols
            first, share = read.part.first_of(parts[0].shape[1]), count * parts[0].shape[1] // read.part.of
            values = joined([part[:, first : first + share] for part in parts], shard)
        return values.T if read.transposed else values


class SerialStep:
    """The whole step: ``gradients`` of the weights of each layer, pipeline and microbatch, and ``weights`` after it.

    The loss is half the sum of the squares of what the last layer hands on, whose gradient is that itself.
    """

    def __init__(self, job: StepWork, seed: int) -> None:
        self._job, self._seed = job, seed
        self._passes = [
            [SerialLayer(kind, work, seed) for work in (kind.forward, *kind.backward)] for kind in job.kinds
        ]
        self.gradients: dict[tuple[int, int, int], Tensors] = {}
        sums = [{name: np.zeros_like(self.first(n, name)) for name in job.of(n).weights} for n in self._layers]
        for pipeline, microbatch in product(range(job.pipelines), range(job.microbatches)):
            self._pass(pipeline, microbatch)
            for layer in self._layers:
                for name, made in self.gradients[layer, pipeline, microbatch].items():
                    sums[layer][name] = (sums[layer][name] + made) % MODULUS
        self.weights = [
            {name: updated(self.first(layer, name), made, self.moments(layer, name)) for name, made in each.items()}
            for layer, each in enumerate(sums)
        ]

    @property
    def _layers(self) -> range:
        return range(len(self._job.parts))

    def first(self, layer: int, name: str) -> Array:
        """A weight before the step."""
        return self._drawn(layer, name) % MODULUS

    def moments(self, layer: int, name: str) -> tuple[Array, Array]:
        """Both moments of a weight before the step; the second is positive."""
        first, second = (self._drawn(layer, name, f"moment {each} of ") for each in (1, 2))
        return first, np.asarray(1 + second**2)

    def _drawn(self, layer: int, name: str, what: str = "") -> Array:
        tensor = self._job.of(layer).forward.workload.tensor(name)
        called = f"{what}{name} of {self._job.called(layer)}"
        return drawn(self._seed, called, np.arange(tensor.rows), np.arange(tensor.cols))

    def input(self, pipeline: int, microbatch: int) -> list[Array]:
        """What the first layer takes, by group."""
        kind = self._job.of(0)
        tensor, count = kind.forward.workload.tensor(kind.taken), len(kind.groups)
        rows, name = np.arange(count * tensor.rows), f"microbatch {microbatch} of pipeline {pipeline}"
        return np.split(drawn(self._seed, name, rows, np.arange(tensor.cols)) % MODULUS, count)

    def _pass(self, pipeline: int, microbatch: int) -> None:
        """One microbatch through all layers and back."""
        job, known = self._job, list[list[Tensors]]()
        values, before = self.input(pipeline, microbatch), job.of(0)
        for layer in self._layers:
            kind, weights = job.of(layer), {name: self.first(layer, name) for name in job.of(layer).weights}
            values = regrouped(values, before, kind)
            known.append(self._passes[job.parts[layer][0]][0].results({kind.taken: own, **weights} for own in values))
            values, before = [own[kind.handed_on] for own in known[-1]], kind
        for layer in reversed(self._layers):
            kind, (taken, made) = job.of(layer), job.of(layer).gradient
            values = regrouped(values, before, kind)
            names = (*kind.kept, *kind.weights, kind.taken)
            results = [
                {name: own[name] for name in names} | {taken: back}
                for own, back in zip(known[layer], values, strict=True)
            ]
            for each in self._passes[job.parts[layer][0]][1:]:
                results = each.results(results)
            self.gradients[layer, pipeline, microbatch] = {
                name: np.asarray(sum(own[gradient_of(name)] for own in results) % MODULUS) for name in kind.weights
            }
            values, before = [own[made] for own in results], kind


def by_place(of: LayerWork, values: Iterable[Array]) -> dict[int, Array]:
    """Return the rows that each rank of a pipeline has of what a layer takes or hands on, which is whole by group."""
    found = dict[int, Array]()
    for group, whole in zip(of.groups, values, strict=True):
        found |= zip(group, split(whole, of.forward.workload.tensor(of.taken).shard, len(group)), strict=True)
    return found


def regrouped(values: list[Array], of: LayerWork, to: LayerWork) -> list[Array]:
    """Return what groups of one layer hand to the next, whole, as the groups of that have it: ranks keep their rows."""
    if of.groups == to.groups:
        return values
    own, shard = by_place(of, values), to.forward.workload.tensor(to.taken).shard
    return [joined([own[place] for place in group], shard) for group in to.groups]


# Tensors of a step at each rank, and how weights of a layer lie in one row, as they are shared among pipelines.


class StepMemory:
    """Tensors by rank and name, each checked for who has written it before; ``tasks`` are those of the step."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks, self._arrays, self._lock = tasks, dict[tuple[int, str], CheckedArray](), Lock()

    def make(self, rank: int, name: str, shape: tuple[int, ...], values: Array | None = None) -> None:
        """Make room for a tensor, whose ``values`` are there from the start if there are any."""
        axes = CutAxis.of((0, shape[0]), None), CutAxis.of((0, shape[1]), None)
        array = CheckedArray(f"{name} at rank {rank}", 1, axes, self._tasks)
        if values is not None:
            array.values[0] = values
        with self._lock:
            self._arrays[rank, name] = array

    def read(self, rank: int, name: str, task: Task) -> Array:
        """Return what a rank has.

        Raises
        ------
        Fault
            If it is not there yet, or not for certain.
        """
        array = self._array(rank, name, task)
        return array.read((0, *self._whole(array)), task)

    def write(self, rank: int, name: str, values: Array, task: Task) -> None:
        """Store what a rank has made or got.

        Raises
        ------
        Fault
            If another one writes it in no order.
        """
        array = self._array(rank, name, task)
        array.write((0, *self._whole(array)), values, task)

    def look(self, rank: int, name: str) -> Array:
        """Return what is there, NaN where nothing is: for a look at the end."""
        return np.asarray(self._arrays[rank, name].values[0])

    def _array(self, rank: int, name: str, task: Task) -> CheckedArray:
        with self._lock:
            found = self._arrays.get((rank, name))
        if found is None:
            raise Fault(f"{task} takes {name} at rank {rank}, which nothing makes")
        return found

    @staticmethod
    def _whole(array: CheckedArray) -> tuple[slice, slice]:
        _, rows, cols = array.values.shape
        return slice(0, rows), slice(0, cols)


class Flat:
    """Some weights of a layer at a rank, one after the other, in as many rows as there are ranks that hold the same."""

    def __init__(self, job: StepWork, kind: LayerWork, of: WeightSet) -> None:
        self._forward, self._groups = kind.forward, kind.groups
        self._shapes = {name: kind.forward.shape_of(name) for name in of.names}
        elements = sum(rows * cols for rows, cols in self._shapes.values())
        copies = len(job.holders(kind, of, 0)[0])
        self.shape = copies, -(-elements // copies)

    def of(self, parts: Mapping[str, Array]) -> Array:
        """Return the rows of the ``parts`` of all weights."""
        values = np.concatenate([parts[name].ravel() for name in self._shapes])
        return np.concatenate([values, np.zeros(self.shape[0] * self.shape[1] - len(values))]).reshape(self.shape)

    def parts(self, values: Array) -> dict[str, Array]:
        """Return the weights in these rows, by name."""
        found, begin, row = dict[str, Array](), 0, values.ravel()
        for name, (rows, cols) in self._shapes.items():
            found[name] = row[begin : begin + rows * cols].reshape(rows, cols)
            begin += rows * cols
        return found

    def whole(self, tensors: Mapping[str, Array]) -> tuple[Array, ...]:
        """Return the rows of each rank of a pipeline, of whole ``tensors`` of a layer."""
        ranks, tensor, found = self._forward.num_ranks, self._forward.workload.tensor, dict[int, Array]()
        cut = {name: split(tensors[name], tensor(name).shard, ranks) for name in self._shapes}
        rows = [self.of({name: parts[rank] for name, parts in cut.items()}) for rank in range(ranks)]
        for group in self._groups:
            found |= zip(group, rows, strict=True)
        return tuple(found[place] for place in sorted(found))

    def place(self, row: int, col: int) -> tuple[str, int, int]:
        """Return the weight that is there, with its row and column; the last one behind all."""
        where = row * self.shape[1] + col
        for name, (rows, cols) in self._shapes.items():
            if where < rows * cols:
                return name, where // cols, where % cols
            where -= rows * cols
        return name, rows - 1, cols - 1
