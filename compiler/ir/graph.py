"""A graph of ops: a layer or a step, as pairs, kernels and collectives that take results of each other."""

from dataclasses import dataclass
from enum import Enum

from .pattern import Pattern
from .tensors import Tensor
from .workload import Workload


class Made(Enum):
    """What of an op another one reads."""

    OUTPUT = "what it computes, or what a lone collective leaves"
    MOVED = "what it gathers for its kernel"


@dataclass(frozen=True, slots=True)
class Read:
    """An operand: a tensor, and the op that makes it, empty where it is declared.

    ``by_rows``: whether rows of the tensor are rows of what the op moves or computes, so that those that are there can
    be taken before the others are. ``moves``: whether it is what the collective of the op takes; else its kernel does.
    """

    tensor: str
    made_by: str = ""
    what: Made = Made.OUTPUT
    by_rows: bool = False
    moves: bool = False


@dataclass(frozen=True, slots=True)
class GraphOp:
    """An op: its ``workload`` is a pair of compute and communication, a kernel or a collective.

    ``layer`` counts from 1 where layers that repeat are written out.
    """

    name: str
    workload: Workload
    reads: tuple[Read, ...] = ()
    layer: int = 1

    @property
    def label(self) -> str:
        """What it is, for people: a pattern with the names of its kernels, or the name of a lone kernel."""
        kernel = self.workload.kernel
        return (
            self.workload.label if self.workload.pattern is not Pattern.KERNEL or kernel is None else kernel.operation
        )

    @property
    def is_pair(self) -> bool:
        """Whether a kernel and a collective can hide each other."""
        return self.workload.pattern.overlaps


@dataclass(frozen=True, slots=True)
class Repeat:
    """``count`` layers of which each takes the ``result`` of the one before as its tensor ``as_input``."""

    count: int
    result: str
    as_input: str


@dataclass(frozen=True, slots=True)
class Graph:
    """``ops`` in the order of the file, in which each reads what ops before it make.

    ``tensors`` are those of the file by their full shapes, results included. ``results`` names for each tensor that is
    made its op, and what of it it is.
    """

    name: str
    about: str
    ops: tuple[GraphOp, ...]
    tensors: tuple[Tensor, ...] = ()
    results: tuple[tuple[str, str, Made], ...] = ()
    repeat: Repeat | None = None

    def op(self, name: str) -> GraphOp:
        """The op of that name.

        Raises
        ------
        KeyError
            If there is none.
        """
        return {op.name: op for op in self.ops}[name]
