"""The library's collective: the terms of its closed form, fitted to measured times, for people.

The library is what users have today. Where the profile has its constants, schedules are compared with its kernels and
its collective, one after the other, else with the direct exchange.
"""

from dataclasses import dataclass

from ...compiler.ir import TICKS_PER_US, Scenario
from ...compiler.planning.knobs.library import library_rejection
from ...compiler.text.quantities import us_text
from ...simcore.kernels.nccl import CollectiveTime, NcclCollective
from ...simcore.lower.collective import library_collective_time, library_operation


@dataclass(frozen=True, slots=True)
class LibraryTime:
    """The time of a collective of a library like NCCL, alone; ``error`` is the mean error of the form."""

    operation: NcclCollective
    time: CollectiveTime
    error: float

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
            f"The library's {self.operation.value} is a closed form of measured times (+-{self.error:.0%}, "
            f"{self.time.protocol.value}): {parts}."
        )


def library_time(scenario: Scenario) -> LibraryTime | None:
    """Return the library's time of the collective of ``scenario``, None where it is not known."""
    model = scenario.gpu.collectives
    if model is None or library_rejection(scenario) is not None:
        return None
    return LibraryTime(library_operation(scenario), library_collective_time(scenario), float(model.error))
