"""Advice: the answer as data. The command line, the terminal UI and the API all show this one object."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ...compiler.ir import TICKS_PER_US, Choice, ExecutionOptions, JsonObject, Scenario, Schedule
from ...compiler.planfile.to_json import plan_document
from ...compiler.resolve.expect.expectation import Verdict
from ...simcore.figures.result import Result
from ..bounds.lower_bound import Bound
from ..implementations.offers import Offers
from ..implementations.promise import Promise
from .sensitivity import Sensitivity
from .short_names import short_names

SERIAL = "serial"
"""What the baseline is called where it is not the library's."""

# Share of time by which a more complex schedule must be faster, however fine the profile resolves.
MIN_LEAD = 0.01


def is_algorithm_choice(scenario: Scenario) -> bool:
    """Whether the workload is a collective alone: the question is which algorithm, not whether to overlap."""
    return scenario.workload.is_collective


def resolution_of(scenario: Scenario) -> float:
    """Return the least relative difference of two times that the hardware profile resolves.

    All kernels that multiply matrices have the resolution of the GEMM: experts and attention are known no better. Times
    of a collective alone are compared as simulated: 0.
    """
    compute = scenario.workload.compute
    return float(scenario.gpu.gemm.resolution) if compute is not None and compute.tiled else 0.0


class Confidence(Enum):
    """How far to trust the answer."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Source(Enum):
    """Where an answer comes from: kept from before, estimated schedules that a model proposed, or simulations."""

    CACHE = "cache"
    MODEL = "model"
    SIMULATION = "simulation"


@dataclass(frozen=True, slots=True)
class SearchProvenance:
    """The search that found a bespoke schedule, so that it can be repeated.

    ``why`` holds (bespoke feature, share of time lost without it). ``solver`` is the version of OR-tools;
    ``reproducible`` holds for this version.
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
    """One schedule in the ranking. In one that ``is_serial`` nothing overlaps.

    ``choice`` and ``predicted_us`` are None for a plan written out in the file. ``simulated_ticks`` is the simulated
    makespan, ``unit_bytes`` the granularity of the simulation; None without a simulation. ``provenance`` is None
    unless the schedule is bespoke. ``interval_us`` is that of the prediction, and ``gain_error`` the relative
    error of its gain over an estimated baseline; None where they are not known.
    """

    expression: str
    choice: Choice | None
    schedule: Schedule
    is_serial: bool
    predicted_us: float | None = None
    simulated_ticks: int | None = None
    unit_bytes: int | None = None
    provenance: SearchProvenance | None = None
    interval_us: tuple[float, float] | None = None
    gain_error: float | None = None

    @property
    def is_library(self) -> bool:
        """Whether the library's kernels and its collective run one after the other."""
        return self.schedule.engine.by_library

    @property
    def has_usual_options(self) -> bool:
        """Whether it is carried out in the usual way, or a plan says how."""
        return self.choice is None or self.choice.tactics == ExecutionOptions()

    @property
    def simulated_us(self) -> float | None:
        """Simulated makespan in us, None without a simulation."""
        return None if self.simulated_ticks is None else self.simulated_ticks / TICKS_PER_US

    @property
    def best_us(self) -> float:
        """Best known time: simulated, else predicted, else infinite."""
        if self.simulated_us is not None:
            return self.simulated_us
        return self.predicted_us if self.predicted_us is not None else float("inf")

    @property
    def is_estimate(self) -> bool:
        """Whether that is not simulated."""
        return self.simulated_ticks is None


def baseline_of(candidates: Sequence[Candidate]) -> Candidate:
    """Return the schedule with which others are compared: the library's if there is one, else the fastest serial one.

    One with other than the usual options must lead by ``MIN_LEAD``. ``candidates`` are in the order of their times.
    """
    serial = [candidate for candidate in candidates if candidate.is_serial]
    usual = next((candidate for candidate in serial if candidate.has_usual_options), serial[0])
    leads = serial[0].best_us * (1 + MIN_LEAD) < usual.best_us
    return next((candidate for candidate in serial if candidate.is_library), serial[0] if leads else usual)


def given_up(candidates: Sequence[Candidate], recommended: Candidate) -> tuple[Candidate, float] | None:
    """Return the fastest candidate, and by how much it is faster than the simpler one that is recommended.

    Simulated times compete where ``recommended`` has one. None up to ``MIN_LEAD``.
    """
    known = [each for each in candidates if each.is_estimate is recommended.is_estimate] or candidates
    fastest = min(known, key=lambda each: each.best_us)
    faster = recommended.best_us / fastest.best_us - 1
    return (fastest, faster) if faster > MIN_LEAD else None


def baseline_name(scenario: Scenario, baseline: Candidate) -> str:
    """Return what ``baseline`` is called."""
    if baseline.is_library:
        return "the library"
    return "the direct exchange" if is_algorithm_choice(scenario) else SERIAL


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall times of the stages in seconds."""

    enumerate_s: float
    predict_s: float
    shortlist_s: float
    confirm_s: float


@dataclass(frozen=True, slots=True)
class Threshold:
    """The rows of the GEMM at which the answer flips, the rest of the scenario staying as it is.

    Overlap pays from ``rows`` on if it ``pays_above``, else below; with ``rows`` None it pays at all rows that were
    tried, or at none. ``tried`` are the rows next to the flip on both sides, at which it was ``simulated`` or else
    predicted; without a flip the fewest and the most rows.
    """

    rows: int | None
    pays_above: bool
    simulated: bool
    tried: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Advice:
    """Which schedule to use, its gain, and the evidence.

    ``serial`` is the baseline, see ``baseline_of``, and ``speedup`` the gain of ``recommended`` over it. For a lone
    collective the verdict is LIBRARY if ``recommended`` is the library's own choice, else USE: it is then the best
    algorithm, or a direct exchange where nothing gains over that and the library's time is not known.
    ``candidates`` are ranked, best first: simulated ones by simulated time, then the rest by predicted time.
    ``result`` and ``serial_result`` are the confirming simulations (None without verification). ``ties`` are schedules
    that the profile cannot tell from the recommended one. ``marks`` are warnings for the reader: ``notes`` (failures,
    and whether the advice was ``interrupted``), ``outside_calibration`` (sizes outside those that the profile was
    fitted to), and what is not validated. ``bound`` is None if it could not be computed.
    ``num_feasible`` is None if the space was not enumerated.
    ``implementations`` are what can be switched on today, None if nothing is known of them here. ``promise`` is the
    interval of ``speedup``, None for the baseline and for a lone collective. ``threshold`` is None where it
    was not asked for, rows cannot be changed, or nothing overlaps. ``sensitivity`` is None where it was not asked for,
    or there is one schedule alone. ``source`` is no part of what advice is: the same advice may come from either.
    """

    scenario: Scenario
    verdict: Verdict
    recommended: Candidate
    serial: Candidate
    speedup: float
    candidates: tuple[Candidate, ...]
    num_feasible: int | None
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
    implementations: Offers | None = None
    promise: Promise | None = None
    threshold: Threshold | None = None
    sensitivity: Sensitivity | None = None
    source: Source = field(default=Source.SIMULATION, compare=False)

    def plan(self) -> JsonObject | None:
        """Return the recommended schedule as ``magus-plan/1``; None where it is a call of the library."""
        return None if self.recommended.is_library else plan_document(self.scenario, self.recommended.schedule)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The speedups that the error of predictions leaves possible, as (low, high); None for the baseline."""
        return None if self.promise is None else self.promise.interval

    @property
    def given_up(self) -> tuple[Candidate, float] | None:
        """What simplicity costs: the fastest candidate, and by how much it is faster; None up to 1 %."""
        return given_up(self.candidates, self.recommended)

    @property
    def why_serial(self) -> str:
        """The reason of a serial verdict in a few words: overlap loses, or there was none to try."""
        if self.scenario.workload.moved is None:
            return "there is one kernel and nothing to move"
        if all(candidate.is_serial for candidate in self.candidates):
            return "no overlap schedule was " + ("ranked in time" if self.interrupted else "in the space")
        overlapping = (candidate for candidate in self.candidates if not candidate.is_serial)
        times_us = (one.best_us for one in overlapping if one.simulated_ticks is not None)
        gain = self.recommended.best_us / min(times_us, default=float("inf"))
        resolution = resolution_of(self.scenario)
        if 1 < gain < 1 + resolution:
            return f"{gain:.2f}x by overlap is less than the profile can tell apart ({resolution:.0%})"
        return "overlap does not pay here"

    def name_of(self, expression: str) -> str:
        """The name of a schedule where it is not copied: its short name if it has one, else its expression."""
        return self.short_names.get(expression, expression)

    @property
    def short_names(self) -> Mapping[str, str]:
        """The short names of its candidates, by their expressions; most have none."""
        return short_names((candidate.expression, candidate.choice) for candidate in self.candidates)

    @property
    def baseline(self) -> str:
        """The baseline in words."""
        return baseline_name(self.scenario, self.serial)

    @property
    def against(self) -> str:
        """The baseline behind its time: ``serial``, ``by the library``."""
        return self.baseline if self.baseline == SERIAL else f"by {self.baseline}"

    @property
    def gap_to_bound(self) -> float | None:
        """Time of the recommended schedule over the lower bound, minus one; None without a bound."""
        return None if self.bound is None else self.recommended.best_us * TICKS_PER_US / self.bound.ticks - 1
