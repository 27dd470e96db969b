"""What a run reports, and how it ends where something goes wrong in a thread."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import IndexRange, OpCase, OpPlan, Pattern
from magus.compiler.planfile.write import op_plan_document
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.text.diagnostics import CompileError
from magus.runtime import Outcome, carry_out
from magus.runtime.axes import CutAxis
from magus.runtime.execute import Executor
from magus.runtime.problem import Problem
from magus.runtime.run import PlanRun, job_of_op, read_job
from magus.runtime.tasks import Task
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of


def scheduled(expression: str = "hetero_fused_1d(chunks=4, engine=dma(1))") -> tuple[OpCase, OpPlan]:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 2, 8192, 28672, 8192)
    return scenario, resolve_schedule(scenario, expression)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: said["ops"][0]["gemm"].pop("n"), "n: none is given"),
        (lambda said: said["ops"][0].update(gemm={}), "m: none is given"),
        (lambda said: said["ops"][0].update(pattern="GEMM"), "GEMM moves nothing"),
        (lambda said: said["ops"][0].update(pattern="GEMM+A2A+GEMM"), "pattern: unknown"),
        (lambda said: said.update(ranks=9), "needs 9 ports"),
        (lambda said: said.update(layers=2), "several ops need their scenario"),
        (lambda said: said["ops"].append(said["ops"][0]), "several ops need their scenario"),
        (lambda said: said["ops"][0].pop("moved"), "need their scenario"),
        (lambda said: said.update(ops=[]), "scenario.ops"),
    ],
)
def test_a_plan_file_that_does_not_say_what_it_is_for(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    document, file = op_plan_document(*scheduled()), tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    read_job(file, None)
    change(document["scenario"])
    file.write_text(json.dumps(document))

    with pytest.raises(CompileError, match=message) as refused:
        read_job(file, None)
    assert "plan.json: scenario" in refused.value.first.message


@contextmanager
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_steps_of_all_ranks_are_counted_and_each_seed_runs() -> None:
    with no_thread_left():
        report = carry_out(*job_of_op(*scheduled()), seeds=(5, 0, 9))

    assert (report.num_ranks, report.copies, report.kernels, report.sums) == (2, 4, 6, 0)
    assert [(run.seed, run.outcome) for run in report.runs] == [(seed, Outcome.EXACT) for seed in (5, 0, 9)]


def test_an_error_in_a_thread_is_raised_once_and_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Executor, task: Task) -> None:
        raise MemoryError(task.step.name)

    monkeypatch.setattr(Executor, "carry_out", fail)
    with no_thread_left(), pytest.raises(MemoryError):
        carry_out(*job_of_op(*scheduled()))


def test_ctrl_c_ends_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()

    def wait(self: Executor, task: Task) -> None:
        if task.step.name.startswith("g"):
            stuck.wait(60)

    def interrupt(self: threading.Condition, timeout: float | None = None) -> bool:
        stuck.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(Executor, "carry_out", wait)
    original = threading.Condition.wait
    main = threading.main_thread()
    monkeypatch.setattr(
        threading.Condition,
        "wait",
        lambda self, timeout=None: (interrupt if threading.current_thread() is main else original)(self, timeout),
    )
    with pytest.raises(KeyboardInterrupt):
        carry_out(*job_of_op(*scheduled()))


def problem_of(seed: int) -> Problem:
    (problem,) = PlanRun(*job_of_op(*scheduled()), seed, detail=2).problems.values()
    return problem


def test_huge_tensors_are_carried_out_on_the_cuts_of_the_plan() -> None:
    layout = problem_of(0).layout

    assert (layout.rows.cuts, layout.cols.cuts) == ((0, 2048, 4096), (0, 8192))
    assert layout.kernels[0].cols.size == 2


def test_numbers_depend_on_the_seed_alone() -> None:
    one, again, other = (problem_of(seed).memories[0].data.values for seed in (1, 1, 2))

    assert np.array_equal(one, again, equal_nan=True)
    assert not np.array_equal(one, other, equal_nan=True)
    assert np.nanmax(np.abs(one)) <= 4
    assert np.isnan(one[1]).all(), "what a rank does not have is poisoned"


@given(st.sets(st.integers(0, 1000), min_size=2, max_size=8), st.integers(1, 3))
def test_intervals_of_an_axis_stay_apart_and_keep_their_order(cuts: set[int], detail: int) -> None:
    axis, edges = CutAxis.of(cuts, detail), sorted(cuts)
    for low, high in pairwise(edges):
        kept = axis.at(IndexRange(low, high))
        assert 1 <= kept.stop - kept.start <= min(detail, high - low)
        assert all(axis.around(index) == IndexRange(low, high) for index in range(kept.start, kept.stop))
    assert axis.at(IndexRange(edges[0], edges[-1])) == slice(0, axis.size)
