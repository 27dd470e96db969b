"""Tensors of a step at each rank, and how weights of a layer lie in one row, as they are shared among pipelines."""

from collections.abc import Mapping, Sequence
from threading import Lock

import numpy as np

from ...compiler.ir import Shard
from ..axes import CutAxis
from ..memory import Array, CheckedArray, Fault
from ..tasks import Task
from .serial import SerialStep
from .work import GroupWork, StepWork, Values, WeightSet, split


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
