"""The session of the screen: what its stages raise, and what it is asked for too late, become problems to show."""

from pathlib import Path

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import Cancelled, EngineChoice, EngineKind, OpChoice, Rejection
from magus.compiler.planning.build import ScheduleError, build_op_plan
from magus.examples import path
from magus.tui.app.session.backend import default_backend
from magus.tui.app.session.job import Job, JobProblem, ProblemKind, StepJob
from magus.tui.app.session.session import Session
from tests.helpers.scenarios.scenarios import ag_gemm
from tests.helpers.steps import TEXT as STEP
from tests.helpers.tui import fakes


def started(stages: fakes.FakeStages) -> tuple[Session, Job]:
    """A session with its first workload on screen."""
    session = Session(Path("mlp.mgs"), (), None, stages.backend())
    session.show(session.read())
    assert session.job is not None
    return session, session.job


def nothing(*_: object) -> None:
    """Progress and answers that nobody watches."""


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (PermissionError(13, "Permission denied", "mlp.mgs"), ProblemKind.FILE, "mlp.mgs: Permission denied"),
        (ScheduleError(Rejection(Code.MGS514, "no such parts", "fewer")), ProblemKind.FILE, "MGS514 error: no such"),
        (ZeroDivisionError("by zero"), ProblemKind.FAULT, "ZeroDivisionError: by zero\nThis is a fault of Magus"),
    ],
)
def test_what_a_stage_raises_is_the_answer(error: Exception, kind: ProblemKind, text: str) -> None:
    session, job = started(fakes.FakeStages(fakes.two_workloads(), failure=lambda: error))

    session.advise(job, nothing, lambda: False, nothing)

    problem = job.answer
    assert isinstance(problem, JobProblem) and problem.kind is kind and problem.text.startswith(text)


@pytest.mark.parametrize("error", [Cancelled(), BrokenPipeError("its processes have ended")])
def test_what_is_raised_by_a_run_that_was_stopped_is_no_answer(error: Exception) -> None:
    session, job = started(fakes.FakeStages(fakes.two_workloads(), failure=lambda: error))

    session.advise(job, nothing, lambda: True, nothing)

    assert job.answer is None


def test_a_schedule_that_is_no_candidate_is_not_simulated() -> None:
    stages = fakes.FakeStages(fakes.two_workloads())
    session, job = started(stages)
    before = session.simulate(job, fakes.BEST, lambda: False, explain=False)
    session.advise(job, nothing, lambda: False, nothing)

    unknown = session.simulate(job, "bulk()", lambda: False, explain=False)

    for problem in (before, unknown):
        assert isinstance(problem, JobProblem) and problem.kind is ProblemKind.FAULT
    assert stages.simulated == []


def test_the_stages_of_magus_simulate_with_and_without_a_waterfall() -> None:
    scenario, backend = ag_gemm(256, 512, 512, ranks=2), default_backend(workers=1)
    schedule = build_op_plan(scenario, OpChoice("serial", 2, EngineChoice(EngineKind.DMA, 1)))

    plain, explained = (backend.simulate(scenario, schedule, bound, lambda: False) for bound in (None, 1))

    assert plain.waterfall is None and explained.waterfall is not None
    assert plain.makespan_ticks == explained.makespan_ticks


def test_a_file_of_whole_layers_has_a_job_for_each() -> None:
    session = Session(path("layers/llama70b_layer"), (), "layer", default_backend(1))
    session.show(session.read())

    assert session.problem is None and session.job is not None
    assert session.job.has_several_ops and session.job.name == "layer" and session.job.advice is None


def test_a_training_step_is_shown_before_its_layers(tmp_path: Path) -> None:
    file = tmp_path / "step.mgs"
    file.write_text(STEP.format(more=""))
    session = Session(file, (), None, default_backend(1))
    session.show(session.read())

    assert [each.name for each in session.jobs] == ["train", "layer"]
    assert isinstance(session.shown, StepJob) and session.job is None
    assert session.summary == str(file)
