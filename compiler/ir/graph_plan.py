"""A GraphPlan: how each op of a graph is carried out, what it waits for in others, and who is served first."""

from dataclasses import dataclass
from enum import Enum

from .schedule import Schedule
from .workload import Workload


class Awaited(Enum):
    """What of a part another one waits for."""

    END = "all of it"
    LANDED = "what it gathers"
    BEGUN = "the begin of its first kernel"


@dataclass(frozen=True, slots=True)
class PartWait:
    """A part waits for another one as a whole; its copies do not where ``kernels_only``."""

    on: str
    what: Awaited = Awaited.END
    kernels_only: bool = False


@dataclass(frozen=True, slots=True)
class StepWait:
    """The step ``step`` of a part waits for the step ``of`` of the part ``on``: for rows that it takes."""

    step: str
    on: str
    of: str


@dataclass(frozen=True, slots=True)
class Part:
    """One op of a graph under its schedule, or the kernel or the collective of one whose schedule keeps them apart.

    ``stream`` is where its kernels run, in the order of parts; a lone collective follows all of the part before it in
    its stream. Streams of ``schedule`` beyond the first are streams beside it. ``priority`` is that of its kernels for
    free SMs, the least first. ``layer`` is that of its op. A lone collective that reads nothing of other ops is
    ``behind_kernels`` of the main stream that are issued before it, so that it does not run ahead of them.
    """

    name: str
    op: str
    workload: Workload
    schedule: Schedule
    stream: int = 0
    priority: int = 0
    waits: tuple[PartWait, ...] = ()
    step_waits: tuple[StepWait, ...] = ()
    layer: int = 1
    behind_kernels: bool = False


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """``parts`` in the order in which they are issued, each after those that it waits for.

    ``expression`` is the identity of the plan. ``sums_priority`` is that of all reductions.
    """

    expression: str
    parts: tuple[Part, ...]
    sums_priority: int = 0

    def part(self, name: str) -> Part:
        """The part of that name.

        Raises
        ------
        KeyError
            If there is none.
        """
        return {part.name: part for part in self.parts}[name]
