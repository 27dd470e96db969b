"""A plan carried out on the tensors of a job: a linear layer with its collective."""

import numpy as np
import torch

from ...compiler.codes import Code
from ...compiler.ir import Pattern, Plan, Rejection, System, Workload
from ..operands import MOVED_IN
from ..problem import Problem
from ..report import Outcome, RunRefused
from .rank import RankRun

LAYERS = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR)


class PlanFailed(RuntimeError):
    """A plan did not end as it should on the tensors of a job."""


def linear(system: System, plan: Plan, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of the product of ``x`` and ``w`` with its collective, carried out as ``plan`` says.

    Every rank of the default process group calls this. AG+GEMM takes the rows of ``x`` of this rank [m / ranks, k] and
    its columns of the weight [k, n], and returns [m, n]. GEMM+RS and GEMM+AR take [m, k] and [k, n] with this rank's
    part of the inner dimension, and return this rank's rows [m / ranks, n], or all of them. Sums are made in float64.

    Raises
    ------
    RunRefused
        If the plan has another op, or several.
    PlanFailed
        If a step is wrong, or waits for ever.
    """
    part, *others = plan.parts
    pattern = part.shape.pattern
    if others or pattern not in LAYERS:
        what = f"a plan of {len(plan.parts)} parts" if others else pattern.value
        names = ", ".join(each.value for each in LAYERS)
        raise RunRefused(Rejection(Code.MGS540, f"{what} is no linear layer", f"these are: {names}"))
    run = RankRun(system, Workload.of_one(part.shape, part.op), plan, seed=0, detail=None)
    problem = run.problems[part.name]
    _fill(problem, run.rank, x.detach().double().numpy(), w.detach().double().numpy())
    run.work()
    outcome, sentences = run.ended()
    if outcome is not Outcome.EXACT:
        raise PlanFailed("; ".join(sentences))
    return torch.from_numpy(_result(problem, run.rank)).to(x.dtype)


def _fill(problem: Problem, rank: int, x: np.ndarray, w: np.ndarray) -> None:
    problem.give(rank, (0, 1), w[np.newaxis])
    if MOVED_IN in problem.slots:
        own = np.full_like(problem.memories[rank].data.values, np.nan)
        own[rank] = x
        problem.give(rank, MOVED_IN, own)
    else:
        problem.give(rank, (0, 0), x.reshape(problem.num_ranks, -1, x.shape[-1]))


def _result(problem: Problem, rank: int) -> np.ndarray:
    memory, pattern = problem.memories[rank], problem.shape.pattern
    output = memory.outputs[0]
    if output is not None:
        return np.concatenate(output.values)
    blocks = [rank] if pattern.reduces else range(problem.num_ranks)
    return np.concatenate([memory.final(block) for block in blocks])
