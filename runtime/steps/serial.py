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
    Shard,
    Tensor,
    Workload,
)
from ..axes import CutAxis
from ..memory import Array, CheckedArray, Fault
from ..operands import MODULUS, drawn
from ..problem import mixture, of_experts
from ..report import RunRefused
from ..tasks import Task
from .context import attended, gradient_of_block, keys_of, with_gradient
from .work import GroupWork, KeyExchange, StepWork, Values, WeightSet, joined, split

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
    """A pass of a layer with whole tensors, that ``ranks`` share in the step; their kernels are alike.

    Rows are those of all ``parts`` of a sequence, between which ``exchange`` is what attention takes.
    """

    workload: Workload
    ranks: int
    seed: int
    parts: int = 1
    exchange: KeyExchange | None = None

    def results(self, given: Mapping[str, Array]) -> Tensors:
        """Return all results of the pass."""
        known = dict(given)
        for op in self.workload.ops:
            made = self._made(op, known)
            known |= {name: made for name, maker, _ in self.workload.results if maker == op.name}
            if op.shape.pattern is Pattern.AG_GEMM:  # what it gathers, whole
                moved = next(read for read in op.reads if read.moves)
                gathered = [name for name, maker, what in self.workload.results if (maker, what) == (op.name, _MOVED)]
                known |= dict.fromkeys(gathered, self._taken(moved, known))
        return known

    def _made(self, op: Op, known: Mapping[str, Array]) -> Array:
        reads = [read for read in op.reads if not read.adds]
        if op.shape.pattern in MOVES:
            return self._taken(reads[0], known)
        if op.shape.pattern in PRODUCTS:
            first, second = (self._taken(read, known) for read in reads)
            return np.asarray(first @ second % MODULUS)
        if op.shape.pattern is Pattern.ALL_TO_ALL:
            return self._exchanged(op, self._taken(reads[0], known))
        return self._kernel(op, reads, known)

    def _exchanged(self, op: Op, values: Array) -> Array:
        """What ranks have of the rows of all: of each as many, from its own on; rows that end begin again."""
        assert op.shape.moved is not None, "an exchange moves rows"
        count, ranks = op.shape.moved.rows // self.ranks, range(self.ranks)
        held = [part[np.arange(op.shape.moved.rows) % len(part)] for part in np.split(values, self.ranks)]
        return np.concatenate(
            [held[(to + by) % self.ranks][to * count : (to + 1) * count] for to in ranks for by in ranks]
        )

    def _kernel(self, op: Op, reads: Iterable[Read], known: Mapping[str, Array]) -> Array:
        """Each rank's part by itself, as kernels have it."""
        tensors = {tensor.name: tensor for tensor in self.workload.tensors}
        output, operands = tensors[op.shape.output], [self._of_ranks(read, tensors, known) for read in reads]
        rows = output.rows // (self.ranks if output.shard is Shard.ROWS else 1)
        cols = output.cols // (self.ranks if output.shard is Shard.COLS else 1)
        by_rows = isinstance(op.shape.kernel, ElementwiseShape) and all(len(each[0][0]) == rows for each in operands)
        where, shape = (np.arange(rows), np.arange(cols)), op.shape.kernel
        made = [
            tuple(
                of_experts(shape, *taken)
                if isinstance(shape, GroupedGemmShape)
                else mixture(self.seed, op.name, taken, *where, by_rows=by_rows)
                for taken in zip(*part, strict=True)
            )
            for part in zip(*operands, strict=True)
        ]
        if self.exchange is not None and self.exchange.op == op.name:
            made = self._with_others(self.exchange, made, operands)
        return np.concatenate([np.asarray(joined(each, output.shard) % MODULUS) for each in made])

    def _of_ranks(
        self, read: Read, tensors: Mapping[str, Tensor], known: Mapping[str, Array]
    ) -> list[tuple[Array, ...]]:
        """What ranks have of an operand of a kernel, by part of the sequence: its rows, or all of a weight."""
        whole, tensor = self._taken(replace(read, transposed=False), known), tensors[read.tensor]
        pieces = np.split(whole, self.parts) if len(whole) > tensor.rows else [whole] * self.parts
        own = [split(piece, tensor.shard, self.ranks) for piece in pieces]
        return [tuple(each.T for each in piece) for piece in own] if read.transposed else own

    def _with_others(
        self, of: KeyExchange, made: Sequence[Sequence[Array]], operands: Sequence[Sequence[Sequence[Array]]]
    ) -> list[tuple[Array, ...]]:
        """What attention makes, by part and rank, with what parts add to each other."""
        parts, count, found = range(self.parts), len(of.operands), list[list[Array]]()
        for rank in range(self.ranks):
            keys = [keys_of(of, (each[part][rank] for each in operands[:count])) for part in parts]
            done = [attended(self.seed, of, made[part][rank], keys, part) for part in parts]
            for to, of_part in product(parts, parts) if of.gradient else ():
                if to != of_part:
                    back = gradient_of_block(self.seed, of, operands[-1][of_part][rank], of_part, to)
                    done[to] = with_gradient(of, done[to], back)
            found.append(done)
        return list(zip(*found, strict=True))

    def _taken(self, read: Read, known: Mapping[str, Array]) -> Array:
        """What an op reads: all of a tensor, or some columns, of which each rank has its share."""
        values = known[read.tensor]
        if read.part is not None:
            shard = next(tensor.shard for tensor in self.workload.tensors if tensor.name == read.tensor)
            parts, count = split(values, shard, self.ranks), read.part.cols
            first, share = read.part.first_of(parts[0].shape[1]), count * parts[0].shape[1] // read.part.of
            values = joined([part[:, first : first + share] for part in parts], shard)
        return values.T if read.transposed else values


class SerialStep:
    """The whole step: ``gradients`` of the weights of each layer, pipeline and microbatch, and ``weights`` after it.

    Of pipelines with parts of the same sequences it is the first that has them whole.

    The loss is half the sum of the squares of what the last layer hands on, whose gradient is that itself.
    """

    def __init__(self, job: StepWork, seed: int) -> None:
        self._job, self._seed = job, seed
        ranks = job.forward.num_ranks
        self._forward, *self._backward = (
            SerialLayer(work.workload, ranks, seed, job.parts, work.exchange) for work in (job.forward, *job.backward)
        )
        self.gradients: dict[tuple[int, int, int], Tensors] = {}
        sums = [{name: np.zeros_like(self.first(layer, name)) for name in job.weights} for layer in self._layers]
        for pipeline in range(0, job.pipelines, job.parts):
            for microbatch in range(job.microbatches):
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
        return range(self._job.num_layers)

    def first(self, layer: int, name: str) -> Array:
        """A weight before the step."""
        return self._drawn(f"{name} of layer {layer}", name) % MODULUS

    def moments(self, layer: int, name: str) -> tuple[Array, Array]:
        """Both moments of a weight before the step; the second is positive."""
        first, second = (self._drawn(f"moment {each} of {name} of layer {layer}", name) for each in (1, 2))
        return first, np.asarray(1 + second**2)

    def input(self, pipeline: int, microbatch: int) -> Array:
        """What the first layer takes."""
        return (
            self._drawn(f"microbatch {microbatch} of pipeline {pipeline}", self._job.taken, self._job.parts) % MODULUS
        )

    def _drawn(self, name: str, tensor: str, parts: int = 1) -> Array:
        shape = next(each for each in self._job.forward.workload.tensors if each.name == tensor)
        return drawn(self._seed, name, np.arange(parts * shape.rows), np.arange(shape.cols))

    def _pass(self, pipeline: int, microbatch: int) -> None:
        """One microbatch through all layers and back."""
        job, known = self._job, list[Tensors]()
        values = self.input(pipeline, microbatch)
        for layer in self._layers:
            weights = {name: self.first(layer, name) for name in job.weights}
            known.append(self._forward.results({job.taken: values, **weights}))
            values = known[-1][job.handed_on]
        taken, made = job.gradient
        for layer in reversed(self._layers):
            results = {name: known[layer][name] for name in (*job.kept, *job.weights, job.taken)} | {taken: values}
            for each in self._backward:
                results = each.results(results)
            self.gradients[layer, pipeline, microbatch] = {name: results[gradient_of(name)] for name in job.weights}
            values = results[made]


def gradient_of(weight: str) -> str:
    """The name of the gradient of a weight, as backward passes are derived."""
    return f"d_{weight}"


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
        return array.read((0, *self._whole(array)), task)[:, :]

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


def part_shape(work: GroupWork, name: str) -> tuple[int, int]:
    """Rows and columns that a rank has of a tensor of ``work``."""
    tensor, ranks = next(each for each in work.workload.tensors if each.name == name), work.num_ranks
    rows = tensor.rows // ranks if tensor.shard in (Shard.ROWS, Shard.FLAT) else tensor.rows
    return rows, tensor.cols // ranks if tensor.shard is Shard.COLS else tensor.cols


class Flat:
    """Some weights of a layer at a rank, one after the other, in as many rows as there are ranks that hold the same."""

    def __init__(self, job: StepWork, of: WeightSet) -> None:
        self._job, self._shapes = job, {name: part_shape(job.forward, name) for name in of.names}
        elements = sum(rows * cols for rows, cols in self._shapes.values())
        copies = len(job.holders(of, 0)[0])
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
        """Return the rows of each rank of a group, of whole ``tensors`` of a layer."""
        ranks = self._job.forward.num_ranks
        shards = {tensor.name: tensor.shard for tensor in self._job.forward.workload.tensors}
        cut = {name: split(tensors[name], shards[name], ranks) for name in self._shapes}
        return tuple(self.of({name: parts[rank] for name, parts in cut.items()}) for rank in range(ranks))

    def place(self, row: int, col: int) -> tuple[str, int, int]:
        """Return the weight that is there, with its row and column; the last one behind all."""
        where = row * self.shape[1] + col
        for name, (rows, cols) in self._shapes.items():
            if where < rows * cols:
                return name, where // cols, where % cols
            where -= rows * cols
        return name, rows - 1, cols - 1


def first_weights(job: StepWork, serial: SerialStep, layer: int) -> dict[str, Array]:
    """The whole weights of a layer before the step."""
    return {name: serial.first(layer, name) for name in job.weights}


def by_rank(values: Values, place: int) -> dict[str, Array]:
    """What one rank of a group has."""
    return {name: parts[place] for name, parts in values.items()}
