"""What became of a schedule that was carried out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ..compiler.ir import GraphPlan, Reduction, Rejection, Scenario, Schedule, System, TileGroup, Transfer

MAX_NAMED = 8
"""Most sentences about one run."""


class Outcome(Enum):
    """EXACT: every rank has what the serial computation gives. The others name what is wrong."""

    EXACT = "exact"
    WRONG = "wrong result"
    FAULT = "wrong step"
    DEADLOCK = "deadlock"


@dataclass(frozen=True, slots=True)
class SeedRun:
    """What became of the run with ``seed``, with a sentence for each thing that is wrong."""

    seed: int
    outcome: Outcome
    sentences: tuple[str, ...] = ()

    @classmethod
    def of(cls, seed: int, outcome: Outcome, sentences: Sequence[str]) -> "SeedRun":
        """Keep the first of ``sentences`` and say that there are more."""
        left = len(sentences) - MAX_NAMED
        if left <= 0:
            return cls(seed, outcome, tuple(sentences))
        more = f"{left} more steps wait" if outcome is Outcome.DEADLOCK else "and more"
        return cls(seed, outcome, (*sentences[:MAX_NAMED], more))


@dataclass(frozen=True, slots=True)
class RunReport:
    """A schedule carried out: steps of all ranks together, and a run for each seed up to the first that fails.

    ``layers`` is how many of a graph were.
    """

    schedule: str
    num_ranks: int
    copies: int
    kernels: int
    sums: int
    runs: tuple[SeedRun, ...]
    layers: int = 1

    @classmethod
    def of(cls, scenario: Scenario, schedule: Schedule, runs: Iterable[SeedRun]) -> "RunReport":
        """Take ``runs`` until one fails, and count the steps."""
        return cls._of(schedule.expression, scenario.num_ranks, (schedule,), runs)

    @classmethod
    def of_graph(cls, system: System, plan: GraphPlan, runs: Iterable[SeedRun]) -> "RunReport":
        """The same of all parts of a plan."""
        schedules = [part.schedule for part in plan.parts]
        return replace(cls._of(plan.expression, system.num_ranks, schedules, runs), layers=plan.num_layers)

    @classmethod
    def _of(cls, name: str, ranks: int, schedules: Sequence[Schedule], runs: Iterable[SeedRun]) -> "RunReport":
        done: list[SeedRun] = []
        for run in runs:
            done.append(run)
            if run.outcome is not Outcome.EXACT:
                break
        steps = [step for schedule in schedules for rank in range(ranks) for step in schedule.steps_of(rank)]
        kinds = (Transfer, TileGroup, Reduction)
        copies, kernels, sums = (sum(isinstance(step, kind) for step in steps) for kind in kinds)
        return cls(name, ranks, copies, kernels, sums, tuple(done))

    @property
    def exact(self) -> bool:
        """Whether every run was exact."""
        return all(run.outcome is Outcome.EXACT for run in self.runs)


class RunRefused(ValueError):
    """A schedule that is not carried out here, and why."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection)
        self.rejection = rejection
