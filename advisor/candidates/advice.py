"""Advice: the answer, as data. The command line, the terminal UI and the API all show this one object."""

from dataclasses import dataclass
from enum import Enum

from ...compiler.ir import TICKS_PER_US, Choice, Scenario, Schedule
from ...compiler.resolve.expect.expectation import Verdict
from ...simcore.figures.result import Result
from ..bounds.lower_bound import Bound
from .library import LibraryTime, library_time


def is_algorithm_choice(scenario: Scenario) -> bool:
    """Whether there is a collective alone: then the question is by which algorithm, not whether to overlap."""
    return scenario.workload.is_collective


def resolution_of(scenario: Scenario) -> float:
    """The relative difference of two times that the hardware profile can tell apart.

    It is that of the GEMM for all kernels that multiply matrices: experts and attention are known no better. Of a
    collective alone the simulated times are compared as they are.
    """
    compute = scenario.workload.compute
    return float(scenario.gpu.gemm.resolution) if compute is not None and compute.tiled else 0.0


class Confidence(Enum):
    """How far to trust the answer; the reason is given beside it."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class SearchProvenance:
    """Where a bespoke schedule comes from: what found it and what that took, so that it can be found again.

    ``why`` holds what is bespoke about it and by how much it would be slower without, as shares. ``solver`` is the
    version of OR-tools, which had its part where ``reproducible`` is to mean something.
    """

    found_by: str
    seed: int
    evaluations: int
    simulations: int
    reproducible: bool
    solver: str
    why: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One schedule in the ranking. ``is_serial`` marks those that others are compared with.

    ``choice`` is None for a plan written out in the file. ``predicted_us`` is the model's, None for such plans.
    ``simulated_ticks`` is None if it was not simulated, ``unit_bytes`` the granularity it was simulated at.
    ``provenance`` is that of a bespoke schedule.
    """

    expression: str
    choice: Choice | None
    schedule: Schedule
    is_serial: bool
    predicted_us: float | None
    simulated_ticks: int | None
    unit_bytes: int | None
    provenance: SearchProvenance | None = None

    @property
    def simulated_us(self) -> float | None:
        """Simulated makespan in us."""
        return None if self.simulated_ticks is None else self.simulated_ticks / TICKS_PER_US

    @property
    def best_us(self) -> float:
        """What is known best about its time: simulated, else predicted, else infinite."""
        if self.simulated_us is not None:
            return self.simulated_us
        return self.predicted_us if self.predicted_us is not None else float("inf")


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall time of the stages in seconds."""

    enumerate_s: float
    predict_s: float
    shortlist_s: float
    confirm_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    """Which schedule to use, what it gains and how we know.

    Of a lone collective the verdict is serial, and ``recommended`` by the best algorithm: ``speedup`` is then what that
    gains over the library, or where its time is not known over ``serial``, the direct exchange in one piece. Where the
    library is as fast, ``uses_library`` says to use that, and ``recommended`` is the best that was simulated.
    ``candidates`` are ranked, best first: simulated ones by simulated time, then the rest by predicted time.
    ``result`` and ``serial_result`` are the confirming simulations (None if verification was off). ``ties`` are
    schedules the profile cannot tell from the recommended one. ``marks`` name what is not validated,
    ``outside_calibration`` among them that sizes lie outside what the profile was fitted to, and ``notes`` what failed
    and was left out, and that the advice was ``interrupted``. ``bound`` is None if it could not be computed.
    """

    scenario: Scenario
    verdict: Verdict
    recommended: Candidate
    serial: Candidate
    speedup: float
    candidates: tuple[Candidate, ...]
    num_feasible: int
    bound: Bound | None
    result: Result | None
    serial_result: Result | None
    ties: tuple[str, ...]
    confidence: Confidence
    confidence_reason: str
    reasons: tuple[str, ...]
    marks: tuple[str, ...]
    timing: Timing
    outside_calibration: tuple[str, ...] = ()
    interrupted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def why_serial(self) -> str:
        """What a serial verdict means, in a few words: overlap loses, or there was none to try."""
        if self.scenario.workload.moved is None:
            return "there is one kernel and nothing to move"
        if is_algorithm_choice(self.scenario):
            return "there is nothing to overlap"
        if all(candidate.is_serial for candidate in self.candidates):
            return "no overlap schedule was in the space"
        known = [one for one in self.candidates if not one.is_serial and one.simulated_ticks is not None]
        gain = self.serial.best_us / min((one.best_us for one in known), default=float("inf"))
        resolution = resolution_of(self.scenario)
        if 1 < gain < 1 + resolution:
            return f"{gain:.2f}x by overlap is less than the profile can tell apart ({resolution:.0%})"
        return "overlap does not pay here"

    @property
    def library(self) -> LibraryTime | None:
        """The library's own time of a lone collective, where the profile knows it."""
        return library_time(self.scenario)

    @property
    def baseline_us(self) -> float:
        """The time of what others are compared with: the library, or the serial schedule."""
        return self.serial.best_us if self.library is None else self.library.us

    @property
    def baseline(self) -> str:
        """What others are compared with, in words."""
        if self.library is not None:
            return "the library"
        return "the direct exchange" if is_algorithm_choice(self.scenario) else "serial"

    @property
    def uses_library(self) -> bool:
        """Whether nothing is faster than the library by as much as its form can tell and as is worth it."""
        return self.library is not None and self.library.is_as_fast_as(self.recommended.best_us)

    @property
    def answer(self) -> str:
        """What to use, by name."""
        return self.library.name if self.library is not None and self.uses_library else self.recommended.expression

    @property
    def gap_to_bound(self) -> float | None:
        """Time of the recommended schedule over the lower bound, minus one; None without a bound."""
        return None if self.bound is None else self.recommended.best_us * TICKS_PER_US / self.bound.ticks - 1
