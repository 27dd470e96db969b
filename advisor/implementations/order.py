"""Orders of whole layers as data: what an implementation does with each op, and the schedule that follows."""

from dataclasses import dataclass

from ...compiler.ir import GraphChoice


@dataclass(frozen=True, slots=True)
class OpSetting:
    """What is switched on for one op: ``layer`` and ``method`` are the words of the implementation.

    ``copy_engine`` is whether copy engines move the data; else ``num_sm`` SMs do. ``num_splits`` is 0 where a method
    has none.
    """

    layer: str
    op: str
    method: str
    num_sm: int = 0
    num_splits: int = 0
    copy_engine: bool = False


@dataclass(frozen=True, slots=True)
class LayerTable:
    """The settings of an implementation for a graph, and the schedule that follows; ``flags`` are beside the file."""

    choice: GraphChoice
    settings: tuple[OpSetting, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """The best table of an implementation that carries out a whole layer in an order of its own.

    ``ticks`` are of all layers, by the best known simulation. ``extra_ticks`` are what it costs beside the schedule, in
    all layers: SMs that copies take from kernels. ``unknown`` says of which costs nothing is known, empty if of none.
    """

    implementation: str
    about: str
    table: LayerTable
    ticks: int
    extra_ticks: int = 0
    unknown: str = ""

    @property
    def all_ticks(self) -> int:
        """The time of all layers with what is not in the schedule."""
        return self.ticks + self.extra_ticks

    @property
    def schedule(self) -> str:
        """The name of its schedule among the candidates."""
        return self.table.choice.name
