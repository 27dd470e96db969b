"""Who copies in a joint schedule: one kind of engine for all ops. Estimates take SMs that copy from every kernel."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...compiler.ir import Choice, EngineChoice, EngineKind, EngineMode, Explore, Graph, System
from ...compiler.planning.knobs.engine import default_engine, max_copy_sms
from ...compiler.resolve.schedules.explore import BATCHES
from ...compiler.templates import BASELINE

USUAL_SMS = (16, 32)
"""SMs that copy where the file does not say: fewer slow down collectives, more slow down the kernels beside them."""


@dataclass(frozen=True, slots=True)
class Copier:
    """DMA engines, or so many SMs, for the collectives of all ops."""

    engine: EngineChoice

    @property
    def taken_sms(self) -> int:
        """SMs that estimates take from the kernels of all ops."""
        return 0 if self.engine.leaves_all_sms else self.engine.count

    def takes(self, engine: EngineChoice) -> bool:
        """Whether an op that copies by ``engine`` fits beside others: DMA engines alone, or as many SMs."""
        if engine.mode is not EngineMode.OWN:
            return False
        same = engine.kind is self.engine.kind
        return same and (engine.kind is EngineKind.DMA or engine.count == self.engine.count)

    def serial(self, num_ranks: int) -> Choice:
        """A whole collective by this copier."""
        return Choice(BASELINE.name, num_ranks, self.engine)

    def __str__(self) -> str:
        return str(self.engine)


def copiers_of(system: System, graph: Graph, explore: Explore, *, few: bool = False) -> Iterator[Copier]:
    """Yield who may copy: what the file explores, else copy engines, then SMs unless they shall be ``few``.

    Copy engines are left out where no host knows how much some op moves.
    """
    asked = explore.values("engine")
    if asked:
        yield from (Copier(engine) for engine in asked if isinstance(engine, EngineChoice))
        return
    by_sms = leaves_out_copy_engines(graph, explore)
    if not by_sms:
        yield Copier(default_engine(system))
    for sms in USUAL_SMS[: int(by_sms) if few else len(USUAL_SMS)]:
        if sms <= max_copy_sms(system.gpu):
            yield Copier(EngineChoice(EngineKind.SM, sms))


def leaves_out_copy_engines(graph: Graph, explore: Explore) -> bool:
    """Whether copy engines are not tried, since no host knows how much some op moves."""
    return not explore.values("engine") and any(op.workload.counts_on_device for op in graph.ops)


def of_one_op(explore: Explore, copier: Copier) -> Explore:
    """What the file explores, for one op by itself: batches and memory are those of the graph."""
    asked = tuple((word, values) for word, values in explore.asked if word != BATCHES)
    return replace(explore, asked=asked, staging_limit_bytes=None).asking("engine", (copier.engine,))
