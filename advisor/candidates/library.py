"""The time of a lone collective by the library: a closed form fitted to measured times, not a simulation.

The library is what users have today. Schedules of a lone collective are compared with it if the profile has its
constants, else with the direct exchange in one piece.
"""

from dataclasses import dataclass
from functools import lru_cache

from ...compiler.ir import TICKS_PER_US, Pattern, Scenario
from ...compiler.text.quantities import us_text
from ...simcore.kernels.nccl import CollectiveTime, NcclCollective, collective_time

MIN_GAIN = 0.02
"""Least gain over the baseline that is worth the complexity of a schedule."""

_OPERATIONS = {
    Pattern.ALL_GATHER: NcclCollective.ALL_GATHER,
    Pattern.REDUCE_SCATTER: NcclCollective.REDUCE_SCATTER,
    Pattern.ALL_REDUCE: NcclCollective.ALL_REDUCE,
    Pattern.ALL_TO_ALL: NcclCollective.ALL_TO_ALL,
}


@dataclass(frozen=True, slots=True)
class LibraryTime:
    """The time of a library like NCCL by the closed form of the profile; ``error`` is the mean error of the form."""

    time: CollectiveTime
    error: float

    @property
    def name(self) -> str:
        """The name of its row, with the protocol that the library picks."""
        return f"library (NCCL form, {self.time.protocol.value})"

    @property
    def us(self) -> float:
        """The time in us."""
        return self.time.us

    @property
    def sentence(self) -> str:
        """The parts of the time and its error."""
        start, steps, rest = (
            ticks / TICKS_PER_US
            for ticks in (self.time.start_ticks, self.time.step_ticks, self.time.transfer_ticks + self.time.own_ticks)
        )
        parts = f"{us_text(start)} start, {us_text(steps)} steps, {us_text(rest)} bytes"
        return (
            f"The library's time is a closed form fitted to measured times (+-{self.error:.0%}), not a simulation: "
            f"{parts}."
        )

    def is_as_fast_as(self, time_us: float) -> bool:
        """Whether a schedule of ``time_us`` gains less than the error of the form, or less than ``MIN_GAIN``."""
        return self.us < time_us * (1 + max(MIN_GAIN, self.error))


def speedup_of(scenario: Scenario, serial_us: float, best_us: float) -> float:
    """Return the gain of the answer over the library, if its time is known, else over ``serial_us``."""
    library = library_time(scenario)
    if library is None:
        return serial_us / best_us
    return 1.0 if library.is_as_fast_as(best_us) else library.us / best_us


@lru_cache(maxsize=64)
def library_time(scenario: Scenario) -> LibraryTime | None:
    """Return the library's time of the lone collective of ``scenario``; None for others, or without constants.

    The form holds for one node behind a switch, equal blocks, and ranks that begin together.
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
    time = collective_time(scenario.gpu, operation, moved.num_bytes, system.num_ranks)
    return LibraryTime(time, float(model.error))
