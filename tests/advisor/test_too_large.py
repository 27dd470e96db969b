"""A schedule that is too large to simulate is left out with a mark, in whichever stage; the answer stays."""

from collections.abc import Callable
from itertools import product

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.candidates.advice import Advice
from magus.advisor.work import workers
from magus.advisor.work.workers import SimulationJob, run_job
from magus.compiler.ir import EngineChoice, EngineKind, ExecutionOptions, Explore, OpChoice, Scenario, ShouldStop
from magus.simcore import Result, RunTooLarge
from tests.helpers.marks import thinned
from tests.helpers.scenarios.scenarios import ag_gemm, exploring

SCENARIO = exploring(
    ag_gemm(4096, 2048, 4096, ranks=4), Explore.of(chunks=(16,), engine=(EngineChoice(EngineKind.DMA, 3),))
)
OPTIONS = AdviceOptions(top=3, bespoke=20)
ERRORS = (RunTooLarge("1e12 line-hops"), MemoryError("cannot allocate"))


def of_shortlist(job: SimulationJob) -> bool:
    return "fused" in job.schedule.expression and job.schedule.tactics == ExecutionOptions()


def of_variants(job: SimulationJob) -> bool:
    return job.schedule.tactics != ExecutionOptions()


def of_search(job: SimulationJob) -> bool:
    return job.schedule.expression.startswith("bespoke")


def of_confirmation(job: SimulationJob) -> bool:
    return job.explain_bytes is not None or job.unit_bytes == SCENARIO.gpu.line_bytes


def of_baseline(job: SimulationJob) -> bool:
    return job.schedule.expression.startswith("serial")


def advised(
    too_large: Callable[[SimulationJob], bool], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> tuple[Advice, set[str]]:
    """Return the advice, and the schedules whose simulation was too large."""
    refused = set[str]()

    def run(job: SimulationJob, should_stop: ShouldStop | None = None) -> Result:
        if too_large(job):
            refused.add(job.schedule.expression)
            raise error
        return run_job(job, should_stop)

    monkeypatch.setattr(workers, "run_job", run)
    return Advisor.load().recommend(Scenario.of_one(SCENARIO), OPTIONS), refused


STAGES = (of_shortlist, of_variants, of_search, of_confirmation, of_baseline)


@pytest.mark.quick(2)
@pytest.mark.parametrize("case", thinned(product(STAGES, ERRORS), 3))
def test_it_is_left_out_with_a_mark(
    case: tuple[Callable[[SimulationJob], bool], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, error = case
    advice, refused = advised(stage, error, monkeypatch)

    assert refused, "the stage simulates"
    (mark,) = [note for note in advice.notes if note.startswith("too large to simulate: ")]
    assert str(error) in mark and mark in advice.marks
    assert not any("fault of Magus" in note for note in advice.notes)
    timed = {one.expression for one in advice.candidates if one.simulated_ticks is not None}
    assert timed, "others are simulated"
    if stage is not of_confirmation:  # there finalists keep their times in packets
        assert not timed & refused


@pytest.mark.slow
def test_a_choice_that_is_refused_is_not_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    advice, refused = advised(of_search, ERRORS[0], monkeypatch)

    assert isinstance(advice.recommended.choice, OpChoice)
    assert advice.recommended.expression not in refused and advice.recommended.simulated_ticks is not None
