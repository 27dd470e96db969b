"""What the search for a bespoke schedule may spend, and what it found."""

from dataclasses import dataclass
from enum import Enum

from ...compiler.ir import Choice, Schedule


class Proposer(Enum):
    """Which part of the portfolio proposed a plan."""

    TEMPLATE = "template"
    WAYS = "other ways to carry out a template"
    SHAPE = "shapes"
    DP = "dynamic programming"
    LOCAL = "local search"
    SOLVER = "CP-SAT"
    REFINED = "local search by simulation"


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """What a search may spend: estimates of bespoke plans, simulations, and CP-SAT's deterministic seconds.

    These count work and not time, so that a run can be repeated on any machine. ``seconds`` is a limit by the clock
    beside them; a search that was cut short by it is not reproducible.
    """

    evaluations: int = 3000
    simulations: int = 100
    solver_s: float = 1.0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedPlan:
    """A plan with its simulated time at a granularity of ``unit_bytes``."""

    choice: Choice
    schedule: Schedule
    ticks: int
    unit_bytes: int
    stage: Proposer


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All plans that were simulated, the fastest first; of equal ones templates first, then the one with fewer steps.

    ``bound_ticks`` is what no schedule is faster than. ``reproducible`` says that the same seed and budget find the
    same again; ``stopped`` why the search ended before its budget did, empty if it did not; ``faults`` are what went
    wrong in stages that were left out.
    """

    found: tuple[SimulatedPlan, ...]
    bound_ticks: int
    seed: int
    evaluations: int
    simulations: int
    reproducible: bool
    stopped: str = ""
    faults: tuple[str, ...] = ()

    @property
    def best(self) -> SimulatedPlan | None:
        """The fastest, None if nothing was simulated."""
        return self.found[0] if self.found else None

    @property
    def best_template(self) -> SimulatedPlan | None:
        """The fastest of the templates as a sweep has them."""
        return next((each for each in self.found if each.stage is Proposer.TEMPLATE), None)

    @property
    def best_bespoke(self) -> SimulatedPlan | None:
        """The fastest that a stage of the search proposed."""
        return next((each for each in self.found if each.stage is not Proposer.TEMPLATE), None)
