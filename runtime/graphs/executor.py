"""What each step of a graph does with the memories of its part, and what frees them."""

from ...compiler.ir import Pattern, Region, TileGroup
from ..board import Board
from ..execute import Executor
from ..hold_policy import HoldPolicy, Moment
from ..memory import Array, Place
from ..tasks import Task
from .part import PartProblem


class PartExecutor(Executor):
    """Carries out the tasks of one part: operands come from other parts."""

    def __init__(self, problem: PartProblem, tasks: tuple[Task, ...], board: Board, policy: HoldPolicy) -> None:
        super().__init__(problem, tasks, board, policy)
        self.part = problem
        self._lone = problem.workload.pattern is Pattern.KERNEL

    def operand(self, task: Task, kernel: int, number: int, place: Place) -> Array:
        """Take an operand of a kernel where it is made."""
        return self.part.slots[kernel, number].take(task.rank, place, task)

    def _tile_place(self, rank: int, step: TileGroup, region: Region) -> Place:
        if not self._lone:
            return super()._tile_place(rank, step, region)
        axes = self._problem.layout.kernels[0]
        return 0, slice(0, axes.rows.size), slice(0, axes.cols.size)

    def _compute(self, task: Task, step: TileGroup) -> None:
        if not self._lone:
            super()._compute(task, step)
            return
        slots = self.part.slots.values()
        taken = [slot.take(task.rank, (0, slice(0, slot.rows.size), slice(0, slot.cols.size)), task) for slot in slots]
        values = self.part.mixed(task.rank, taken)
        self._pause(task, Moment.END)
        output = self._problem.memories[task.rank].outputs[0]
        assert output is not None, "a lone kernel has an output of its own"
        output.write(self._tile_place(task.rank, step, step.regions[0]), values, task)
