"""How the runs of a plan with real data ended, and which plans are refused."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from ..compiler.codes import Code
from ..compiler.ir import (
    AttentionShape,
    GemmShape,
    GroupedGemmShape,
    Part,
    Pattern,
    Plan,
    Reduction,
    RejectedError,
    Rejection,
    System,
    TileGroup,
    Transfer,
)

MAX_NAMED = 8
"""Most sentences about one run."""
CARRIED = (GemmShape, GroupedGemmShape, AttentionShape)
"""Kernels of whole numbers; one matrix stands for those of all experts, powers of two for softmax. None derived."""
MAX_STEPS = 1 << 16
"""Most steps of all ranks together: each remembers which of the others came before it."""


KINDS = (Transfer, TileGroup, Reduction)
"""Of steps: copies, kernels and sums."""


def num_steps(plan: Plan, num_ranks: int) -> int:
    """Return the number of steps of all ranks together."""
    return sum(len(part.schedule.steps_of(rank)) for part in plan.parts for rank in range(num_ranks))


def step_kinds(plan: Plan, num_ranks: int) -> Counter[type]:
    """Return how many steps of each kind all ranks have together."""
    ranks = range(num_ranks)
    return Counter(type(step) for part in plan.parts for rank in ranks for step in part.schedule.steps_of(rank))


class Outcome(Enum):
    """How a run ended. EXACT: every rank has what the serial computation gives. The others say what is wrong."""

    EXACT = "exact"
    WRONG = "wrong result"
    FAULT = "wrong step"
    DEADLOCK = "deadlock"


@dataclass(frozen=True, slots=True)
class SeedRun:
    """How the run with ``seed`` ended; ``sentences`` say what is wrong, at most ``MAX_NAMED`` of them."""

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
    """The result of carrying a plan out.

    Attributes
    ----------
    schedule
        The expression of the plan.
    num_ranks
        The number of ranks.
    copies, kernels, sums
        Numbers of steps of all ranks together, in each run.
    runs
        One for each seed, up to the first that was not exact.
    layers
        How many layers the plan has written out.
    """

    schedule: str
    num_ranks: int
    copies: int
    kernels: int
    sums: int
    runs: tuple[SeedRun, ...]
    layers: int = 1

    @classmethod
    def of(cls, system: System, plan: Plan, runs: Iterable[SeedRun]) -> "RunReport":
        """Take ``runs`` until one fails, and count the steps.

        Raises
        ------
        RunRefused
            If the plan cannot be carried out; then no run is begun.
        """
        RunRefused.require(reject_run(system, plan))
        done: list[SeedRun] = []
        for run in runs:
            done.append(run)
            if run.outcome is not Outcome.EXACT:
                break
        counts = step_kinds(plan, system.num_ranks)
        copies, kernels, sums = (counts[kind] for kind in KINDS)
        return cls(plan.expression, system.num_ranks, copies, kernels, sums, tuple(done), plan.num_layers)

    @property
    def exact(self) -> bool:
        """Whether every run was exact."""
        return all(run.outcome is Outcome.EXACT for run in self.runs)


class RunRefused(RejectedError):
    """A plan is not carried out with real data; ``rejection`` says why."""


def reject_run(system: System, plan: Plan) -> Rejection | None:
    """Return why ``plan`` is not carried out, None if it is.

    A lone kernel that is no GEMM is refused if it is the whole plan. Among other parts a stand-in makes its result.
    """
    alone = len(plan.parts) == 1
    for part in plan.parts:
        if not alone and part.shape.uneven_by_rank:
            message = f"{part.name} has loads that differ from rank to rank, which are carried out by themselves alone"
            return Rejection(Code.MGS540, message)
        if (unfit := _reject_kernels(part, alone)) is not None:
            return unfit
    steps = num_steps(plan, system.num_ranks)
    if steps > MAX_STEPS:
        message = f"the plan has {steps} steps over all ranks, {MAX_STEPS} at most are carried out"
        hint = "choose fewer chunks, or fewer ranks" if alone else "choose fewer chunks, fewer layers or fewer ranks"
        return Rejection(Code.MGS540, message, hint)
    return None


def _reject_kernels(part: Part, alone: bool) -> Rejection | None:
    workload = part.shape
    is_kernel = workload.pattern is Pattern.KERNEL
    if is_kernel and not alone:
        return None
    for stage in workload.stages:
        if is_kernel or type(stage.compute) not in CARRIED:
            kind = "kernel" if stage.compute is None else stage.compute.operation
            where = f"{kind} alone" if is_kernel else kind
            message = f"{workload.name} computes {where}, which is not carried out with real data"
            hint = "gemm is, alone too, and grouped_gemm and attention before and after a collective"
            return Rejection(Code.MGS540, message, hint)
    return None
