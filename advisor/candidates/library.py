"""The library's own time of a lone collective: a closed form fitted to measured times, beside what is simulated.

It is what users have today, and so what schedules of a lone collective are compared with, where the profile knows it;
elsewhere that is the direct exchange in one piece.
"""

from dataclasses import dataclass
from functools import lru_cache

from ...compiler.ir import TICKS_PER_US, Pattern, Scenario
from ...simcore.kernels.nccl import CollectiveTime, NcclCollective, collective_time

MIN_GAIN = 0.02
"""Below this gain over what users have the answer is what they have: a schedule must earn its complexity."""

_OPERATIONS = {
    Pattern.ALL_GATHER: NcclCollective.ALL_GATHER,
    Pattern.REDUCE_SCATTER: NcclCollective.REDUCE_SCATTER,
    Pattern.ALL_REDUCE: NcclCollective.ALL_REDUCE,
    Pattern.ALL_TO_ALL: NcclCollective.ALL_TO_ALL,
}


@dataclass(frozen=True, slots=True)
class LibraryTime:
    """How long a library like NCCL takes by the profile; nothing of it is simulated. ``error`` is that of the form."""

    time: CollectiveTime
    error: float

    @property
    def name(self) -> str:
        """What its row is called; the protocol is the one that the library picks."""
        return f"library (NCCL form, {self.time.protocol.value})"

    @property
    def us(self) -> float:
        """Its time in us."""
        return self.time.us

    @property
    def sentence(self) -> str:
        """What the time is made of and how sure it is."""
        start, steps, rest = (
            ticks / TICKS_PER_US
            for ticks in (self.time.start_ticks, self.time.step_ticks, self.time.transfer_ticks + self.time.own_ticks)
        )
        parts = f"{start:.1f} us start, {steps:.1f} us steps, {rest:.1f} us bytes"
        return (
            f"The library's time is a closed form fitted to measured times (+-{self.error:.0%}), not a simulation: "
            f"{parts}."
        )

    def is_as_fast_as(self, time_us: float) -> bool:
        """Whether what takes so long gains less over the library than its form can tell and than is worth it."""
        return self.us < time_us * (1 + max(MIN_GAIN, self.error))


def speedup_of(scenario: Scenario, serial_us: float, best_us: float) -> float:
    """What the answer gains over what users have: over the library, where it is known, else over ``serial_us``."""
    library = library_time(scenario)
    if library is None:
        return serial_us / best_us
    return 1.0 if library.is_as_fast_as(best_us) else library.us / best_us


@lru_cache(maxsize=64)
def library_time(scenario: Scenario) -> LibraryTime | None:
    """The library's time of the collective of ``scenario``; None if there is more, or the profile does not know it.

    The form is of one node behind a switch, of equal blocks and of ranks that begin together.
    """
    workload, system, model = scenario.workload, scenario.system, scenario.gpu.collectives
    operation, moved = _OPERATIONS.get(workload.pattern), workload.moved
    if model is None or operation is None or moved is None or not workload.is_collective:
        return None
    if system.fabric.one_switch is None or workload.split or system.num_ranks < 2:
        return None
    if system.variability is not None and system.variability.late:
        return None
    if operation is NcclCollective.ALL_TO_ALL and model.all_to_all is None:
        return None
    found = collective_time(scenario.gpu, operation, moved.num_bytes, system.num_ranks)
    return LibraryTime(found, float(model.error))
