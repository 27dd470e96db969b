"""Who copies in a joint schedule: one kind of engine for all ops, since SMs that copy are taken from every kernel."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...compiler.ir import Choice, EngineChoice, EngineKind, EngineMode, Explore, System
from ...compiler.planning.knobs.engine import default_engine, max_copy_sms
from ...compiler.templates import BASELINE

USUAL_SMS = (16, 32)
"""SMs that copy where the file does not say: fewer slow down every collective, more slow down every kernel."""


@dataclass(frozen=True, slots=True)
class Copier:
    """DMA engines, or so many SMs, for the collectives of all ops."""

    engine: EngineChoice

    @property
    def taken_sms(self) -> int:
        """SMs that are taken from the kernels of all ops."""
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


def copiers_of(system: System, explore: Explore, *, few: bool = False) -> Iterator[Copier]:
    """Yield who may copy: what the file explores, else copy engines, then SMs unless they shall be ``few``."""
    asked = explore.values("engine")
    if asked:
        yield from (Copier(engine) for engine in asked if isinstance(engine, EngineChoice))
        return
    yield Copier(default_engine(system))
    for sms in () if few else USUAL_SMS:
        if sms <= max_copy_sms(system.gpu):
            yield Copier(EngineChoice(EngineKind.SM, sms))
