"""Which tasks a run holds up, so that steps that may come in any order do."""

from dataclasses import dataclass
from enum import Enum
from random import Random

from ..compiler.ir import Transfer
from .tasks import Task


class Moment(Enum):
    """When a task may be held up: before it reads, or before it writes."""

    BEGIN = "begin"
    END = "end"


@dataclass(frozen=True, slots=True)
class HoldPolicy:
    """Who is held up in the run with that seed.

    With seed 0 copies land as late as waits allow, with seed 1 kernels begin as late, and from seed 2 on each task is
    held up or not by chance.
    """

    seed: int

    def holds(self, task: Task, moment: Moment) -> bool:
        """Whether to hold ``task`` up at ``moment``: the same in every run with this seed."""
        moves = isinstance(task.step, Transfer)
        match self.seed:
            case 0:
                return moves and moment is Moment.END
            case 1:
                return not moves and moment is Moment.BEGIN
            case seed:
                return Random(f"{seed} {task} {moment.value}").random() < 0.5
