"""A GraphChoice: a schedule of a graph as a file declares it, before plans of its ops are written."""

from dataclasses import dataclass
from enum import Enum

from .schedule import Choice, Plan


class Seams(Enum):
    """What an op waits for in those that it reads; the value is the word in the language."""

    ROWS = "rows"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class OpMode:
    """How one op is carried out: as ``body`` says, or its collective apart from its kernel as ``apart`` says."""

    op: str
    body: Choice | Plan | None = None
    apart: Choice | None = None


@dataclass(frozen=True, slots=True)
class GraphChoice:
    """A schedule of a graph.

    ``modes`` are of some ops; the others are serial pairs, kernels and collectives as usual. ``order`` lists ops in the
    order in which their kernels are issued; those it leaves out come as soon as they are needed. ``streams`` are of ops
    whose kernels run beside the main stream, 0. Each of ``beside`` begins with the kernel of another op. Kernels of
    ``low`` are served last where SMs are free, and reductions first with ``sums_first``.

    In ``batches``, two or more, ops are those of one batch each, ``qkv[0]``. What collectives bring of tensors that are
    declared, such as weights, is issued ``ahead`` layers before the one that takes it. Parts of ``order`` that are
    ``late``, an op or the collective of one, are issued there a layer later, among those of the next. GEMMs ``along``
    are cut as the all_to_all that brings what they take, and begin with what has landed.
    """

    name: str
    modes: tuple[OpMode, ...] = ()
    order: tuple[str, ...] = ()
    streams: tuple[tuple[str, int], ...] = ()
    beside: tuple[tuple[str, str], ...] = ()
    low: tuple[str, ...] = ()
    sums_first: bool = False
    seams: Seams = Seams.ROWS
    batches: int = 1
    ahead: int = 0
    late: tuple[str, ...] = ()
    along: tuple[str, ...] = ()

    @property
    def body(self) -> Choice | Plan | None:
        """How the one op is carried out of which a schedule says that and no more; else None."""
        if len(self.modes) != 1 or self != GraphChoice(self.name, self.modes):
            return None
        return self.modes[0].body

    @property
    def layers_apart(self) -> int:
        """Layers that the parts of a layer are issued ahead of their place or behind it, at most."""
        return max(self.ahead, 1 if self.late else 0)

    @property
    def side_by_side(self) -> bool:
        """Whether kernels of some ops run beside those of the main stream."""
        return any(stream for _, stream in self.streams)
