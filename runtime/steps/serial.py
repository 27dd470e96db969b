"""The serial step: all microbatches one after the other on one rank, with whole tensors and no collective.

It shares with the step that is carried out what numbers there are at first, what stands for kernels that are no
products, and the update of a weight; nothing of plans, orders and groups.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...compiler.codes import Code
from ...compiler.ir import ElementwiseShape, GroupedGemmShape, Made, Op, Pattern, Read, Rejection, Shard, Workload
from ..memory import Array
from ..operands import MODULUS, drawn
from ..problem import mixture, of_experts
from ..report import RunRefused
from .work import StepWork, joined, split

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
    """A pass of a layer with whole tensors, that ``ranks`` share in the step; their kernels are alike."""

    workload: Workload
    ranks: int
    seed: int

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
        output = tensors[op.shape.output]
        operands = []
        for read in reads:
            own = split(self._taken(replace(read, transposed=False), known), tensors[read.tensor].shard, self.ranks)
            operands.append([part.T for part in own] if read.transposed else own)
        rows = output.rows // (self.ranks if output.shard is Shard.ROWS else 1)
        cols = output.cols // (self.ranks if output.shard is Shard.COLS else 1)
        by_rows = isinstance(op.shape.kernel, ElementwiseShape) and all(len(each[0]) == rows for each in operands)
        where, shape = (np.arange(rows), np.arange(cols)), op.shape.kernel
        parts = [
            of_experts(shape, *taken)
            if isinstance(shape, GroupedGemmShape)
            else mixture(self.seed, op.name, taken, *where, by_rows=by_rows)
            for taken in zip(*operands, strict=True)
        ]
        return np.asarray(joined(parts, output.shard) % MODULUS)

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

    The loss is half the sum of the squares of what the last layer hands on, whose gradient is that itself.
    """

    def __init__(self, job: StepWork, seed: int) -> None:
        self._job, self._seed = job, seed
        ranks = job.forward.num_ranks
        self._forward = SerialLayer(job.forward.workload, ranks, seed)
        self._backward = [SerialLayer(work.workload, ranks, seed) for work in job.backward]
        self.gradients: dict[tuple[int, int, int], Tensors] = {}
        sums = [{name: np.zeros_like(self.first(layer, name)) for name in job.weights} for layer in self._layers]
        for pipeline in range(job.pipelines):
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
        return self._drawn(f"microbatch {microbatch} of pipeline {pipeline}", self._job.taken) % MODULUS

    def _drawn(self, name: str, tensor: str) -> Array:
        shape = next(each for each in self._job.forward.workload.tensors if each.name == tensor)
        return drawn(self._seed, name, np.arange(shape.rows), np.arange(shape.cols))

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
