"""The input and the outcome of a search for a bespoke schedule: budget, options, simulated plans."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ...compiler.ir import Choice, Schedule
from ..failures import Failure


class Proposer(Enum):
    """The part of the portfolio that proposed a plan."""

    TEMPLATE = "template"
    LEARNED = "a learned proposal"
    OPTIONS = "other ways to carry out a template"
    SHAPE = "shapes"
    DP = "dynamic programming"
    LOCAL = "local search"
    SOLVER = "CP-SAT"
    REFINED = "local search by simulation"


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """The budget of a search: estimates of bespoke plans, simulations, and CP-SAT's deterministic seconds.

    These count work and not time, so that a run can be repeated on any machine. ``seconds`` is an additional limit of
    wall time; a search that it cuts short is not reproducible. After ``max_vain`` simulated neighbours of the best plan
    in a row of which none is faster, the search ends; None for never.
    """

    evaluations: int = 3000
    simulations: int = 100
    solver_s: float = 1.0
    seconds: float | None = None
    max_vain: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedPlan:
    """A plan with its simulated time at a granularity of ``unit_bytes``."""

    choice: Choice
    schedule: Schedule
    ticks: int
    unit_bytes: int
    proposer: Proposer


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search, beside its budget.

    Parameters
    ----------
    unit_of
        The granularity in bytes at which a schedule is simulated.
    bound_ticks
        A lower bound on any schedule; a plan close to it ends the search.
    seed
        Seed of the local search and of the solver.
    known
        Simulated templates to begin with; if there are none, all templates are tried, at every chunk count.
    prelaunched
        Whether to try copy engines with prelaunched commands though ``explore`` does not name them. They make every
        schedule quicker, serial ones too; beside a baseline without them that would look like overlap.
    """

    unit_of: Callable[[Schedule], int]
    bound_ticks: int = 1
    seed: int = 0
    known: tuple[SimulatedPlan, ...] = ()
    prelaunched: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All simulated plans, the fastest first; of equally fast ones templates first, then the one with fewer steps.

    ``reproducible`` says that the same seed and budget find the same plans again. ``stopped`` says why the search
    ended before its budget was spent, empty if it did not; ``failures`` are the parts of the search that failed.
    """

    plans: tuple[SimulatedPlan, ...]
    seed: int
    evaluations: int
    simulations: int
    reproducible: bool
    stopped: str = ""
    failures: tuple[Failure, ...] = ()

    @property
    def best(self) -> SimulatedPlan | None:
        """The fastest plan, None if nothing was simulated."""
        return self.plans[0] if self.plans else None

    @property
    def best_template(self) -> SimulatedPlan | None:
        """The fastest of the templates with their usual options."""
        return next((plan for plan in self.plans if plan.proposer is Proposer.TEMPLATE), None)

    @property
    def best_bespoke(self) -> SimulatedPlan | None:
        """The fastest plan that is no template with its usual options."""
        return next((plan for plan in self.plans if plan.proposer is not Proposer.TEMPLATE), None)
