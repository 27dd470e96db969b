"""A plan carried out on the tensors of a job: a linear layer with its collective."""

import numpy as np
import torch

from ...compiler.codes import Code
from ...compiler.ir import Pattern, Rejection, Scenario, Schedule
from ..axes import Layout
from ..problem import Problem
from ..report import Outcome, RunRefused
from .rank_run import RankRun

LAYERS = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR)


class PlanFailed(RuntimeError):
    """A plan did not end as it should on the tensors of a job."""


def linear(scenario: Scenario, schedule: Schedule, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of the product of ``x`` and ``w`` with its collective, carried out as ``schedule`` says.

    Every rank of the default process group calls this. AG+GEMM takes the rows of ``x`` of this rank [m / ranks, k] and
    its columns of the weight [k, n], and returns [m, n]. GEMM+RS and GEMM+AR take [m, k] and [k, n] with this rank's
    part of the inner dimension, and return this rank's rows [m / ranks, n], or all of them. Sums are made in float64.

    Raises
    ------
    RunRefused
        If the pattern is another one.
    PlanFailed
        If a step is wrong, or waits for ever.
    """
    pattern = scenario.workload.pattern
    if pattern not in LAYERS:
        names = ", ".join(each.value for each in LAYERS)
        raise RunRefused(Rejection(Code.MGS540, f"{pattern.value} is no linear layer", f"these are: {names}"))
    layout = Layout.of(scenario, [schedule.steps_of(rank) for rank in range(scenario.num_ranks)], detail=None)
    run = RankRun(scenario, schedule, layout, seed=0)
    _fill(run.problem, run.rank, x.detach().double().numpy(), w.detach().double().numpy())
    run.work()
    outcome, sentences = run.ended()
    if outcome is not Outcome.EXACT:
        raise PlanFailed("; ".join(sentences))
    return torch.from_numpy(_result(run.problem, run.rank)).to(x.dtype)


def _fill(problem: Problem, rank: int, x: np.ndarray, w: np.ndarray) -> None:
    operands, memory = problem.operands[rank][0], problem.memories[rank]
    operands.w[0] = w
    if operands.x is None:
        memory.data.values[rank] = x
    else:
        operands.x[:] = x.reshape(operands.x.shape)


def _result(problem: Problem, rank: int) -> np.ndarray:
    memory, pattern = problem.memories[rank], problem.workload.pattern
    output = memory.outputs[0]
    if output is not None:
        return np.concatenate(output.values)
    blocks = [rank] if pattern.reduces else range(problem.num_ranks)
    return np.concatenate([memory.final(block) for block in blocks])
