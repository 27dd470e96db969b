"""The library's collective: the terms of its closed form, fitted to measured times, for people.

The library is what users have today. Where the profile has its constants, schedules are compared with its kernels and
its collective, one after the other, else with the direct exchange.
"""

from dataclasses import dataclass, replace

from ...compiler.codes import Code
from ...compiler.ir import TICKS_PER_US, Rejection, Scenario
from ...compiler.planning.graph_halves import collective_alone
from ...compiler.planning.knobs.library import library_rejection, library_scaling
from ...compiler.text.quantities import ticks_text, us_text
from ...simcore.kernels.nccl import CollectiveTime, NcclCollective
from ...simcore.lower.collective import library_collective_time, library_operation
from ..bounds.lower_bound import quick_bound_ticks


@dataclass(frozen=True, slots=True)
class LibraryTime:
    """The time of a collective of a library like NCCL, alone; ``error`` is the mean error of the form.

    ``scaled`` says from what to what it is scaled where it was fitted on other links or fewer GPUs, else it is empty.
    """

    operation: NcclCollective
    time: CollectiveTime
    error: float
    scaled: str = ""

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
        known = f"+-{self.error:.0%}" if not self.scaled else f"scaled {self.scaled}, where it was not measured"
        return (
            f"The library's {self.operation.value} is a closed form of measured times ({known}, "
            f"{self.time.protocol.value}): {parts}."
        )


def library_time(scenario: Scenario) -> LibraryTime | None:
    """Return the library's time of the collective of ``scenario``, None where it is not known."""
    model = scenario.gpu.collectives
    if model is None or library_unfit(scenario) is not None:
        return None
    time, scaled = library_collective_time(scenario), library_scaling(scenario.system)
    return LibraryTime(library_operation(scenario), time, float(model.error), scaled)


def library_unfit(scenario: Scenario) -> Rejection | None:
    """Why the time of the library is not told here, None if it is: it is not known, or below what links allow."""
    unfit = library_rejection(scenario)
    if unfit is not None:
        return unfit
    ticks = library_collective_time(scenario).ticks
    least = quick_bound_ticks(replace(scenario, workload=collective_alone(scenario.workload)))
    if ticks >= least:
        return None
    message = f"its closed form gives {ticks_text(ticks)}, below the bound of {ticks_text(least)}"
    return Rejection(Code.MGS407, message, "its constants were fitted on another machine")
