"""An Advisor in processes: the answers, errors and stops of one that computes them here."""

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest

from magus.advisor import Advice, AdviceOptions, Advisor, NoFeasibleSchedule, Request, RequestError, model_of
from magus.advisor.answer.export import advice_document
from magus.advisor.candidates.advice import AnswerSource
from magus.compiler.from_model.request import LayerRequest
from magus.compiler.ir import Cancelled, Scenario
from magus.compiler.request.scenario import scenario_of
from magus.simcore.memo.memo import Store, memoizing

REQUEST = Request("AG+GEMM", m=1024, n=512, k=1024, gpu="H100", ranks=8, engines=("dma(7)",))
AT_ONCE, SIMULATED = AdviceOptions(verify=False), AdviceOptions(top=2, bespoke=20)
FEW = AdviceOptions(top=1, bespoke=0)
LONG = replace(REQUEST, m=8192, n=3584, k=8192), AdviceOptions(top=64, bespoke=2000)
"""A question that takes longer than a stop takes to be heard."""
CONFIG = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 8, "num_hidden_layers": 4}
LAYER = LayerRequest(model_of(CONFIG, "mine"), gpu="H100", tp=4, tokens=1024, engines=("dma(3)",))


@pytest.fixture(scope="module")
def several() -> Iterator[Advisor]:
    with Advisor.load(processes=2) as advisor:
        yield advisor


@pytest.fixture(scope="module")
def here() -> Advisor:
    return Advisor.load()


def text_of(advice: Advice) -> str:
    return json.dumps(advice_document(advice) | {"timing": None})


@pytest.mark.slow
@pytest.mark.parametrize("options", [AT_ONCE, SIMULATED], ids=["at once", "simulated"])
def test_answers_are_those_of_this_process(several: Advisor, here: Advisor, options: AdviceOptions) -> None:
    requests = [replace(REQUEST, m=m) for m in (512, 1024, 512, 2048)]

    there = several.recommend_many(requests, options)

    assert [text_of(each) for each in there] == [text_of(here.recommend(each, options)) for each in requests]
    assert [each.candidates for each in there] == [here.recommend(each, options).candidates for each in requests]
    assert several.recommend(requests[0], options).source is AnswerSource.CACHE


@pytest.mark.slow
def test_layers_are_answered_too(several: Advisor, here: Advisor) -> None:
    there, alone = (advice_document(each.recommend(LAYER, AT_ONCE)) for each in (several, here))
    assert there | {"timing": None} == alone | {"timing": None}


def test_errors_are_those_of_this_process(several: Advisor, here: Advisor) -> None:
    impossible = replace(REQUEST, staging_bytes=0, schedules=("bespoke",))
    with pytest.raises(NoFeasibleSchedule) as alone:
        here.recommend(impossible)
    with pytest.raises(NoFeasibleSchedule) as there:
        several.recommend(impossible)
    assert there.value.reasons == alone.value.reasons and str(there.value) == str(alone.value)
    with pytest.raises(RequestError, match="did you mean"):
        several.recommend(replace(REQUEST, gpu="H10"))


def test_progress_and_answers_on_the_way_are_reported(several: Advisor) -> None:
    stages: list[str] = []
    answers: list[Advice] = []
    several.recommend(
        replace(REQUEST, m=1536), SIMULATED, progress=lambda stage, *_: stages.append(stage), answered=answers.append
    )
    assert stages[0] == "propose" and "confirm" in stages
    assert answers and all(each.interrupted for each in answers)


def test_a_stop_leaves_the_best_until_then(several: Advisor) -> None:
    stages: list[str] = []
    question, options = LONG
    advice = several.recommend(
        question, options, progress=lambda stage, *_: stages.append(stage), should_stop=lambda: "simulate" in stages
    )
    assert advice.interrupted and advice.notes[0].startswith("stopped early")
    with pytest.raises(Cancelled):
        several.recommend(question, options, should_stop=lambda: True)


def test_a_limit_of_time_holds(several: Advisor) -> None:
    question, options = LONG
    advice = several.recommend(question, replace(options, within_s=0.2))
    assert advice.interrupted and advice.notes == (
        "stopped after 0.2 s: this is the best of what was found until then",
    )


def test_what_a_process_that_dies_was_requested_is_answered_here(
    caplog: pytest.LogCaptureFixture, here: Advisor
) -> None:
    before = set(active_children())
    with Advisor.load(processes=1) as advisor, caplog.at_level(logging.WARNING):
        advisor.recommend(replace(REQUEST, m=256), AT_ONCE)  # it has begun
        (child,) = set(active_children()) - before

        def kill(stage: str, done: int, total: int) -> None:
            if child.is_alive():
                os.kill(child.pid or 0, signal.SIGKILL)

        advice = advisor.recommend(replace(REQUEST, m=768), FEW, progress=kill)

        assert text_of(advice) == text_of(here.recommend(replace(REQUEST, m=768), FEW))
        assert "a process ended before it answered" in caplog.text
        assert advisor.recommend(replace(REQUEST, m=1280), AT_ONCE).notes == ()
    assert not child.is_alive()


def test_answers_are_kept_on_disk_and_found_without_a_process(several: Advisor, tmp_path: Path) -> None:
    scenario = scenario_of(replace(REQUEST, m=640)).case
    with memoizing(Store(tmp_path)):
        assert several.num_unknown([Scenario.of_one(scenario)], AT_ONCE) == 1
        first = several.recommend(Scenario.of_one(scenario), AT_ONCE)
        assert several.num_unknown([Scenario.of_one(scenario)], AT_ONCE) == 0
        again = Advisor.load(processes=1).recommend(Scenario.of_one(scenario), AT_ONCE)
    assert (first.source, again.source) == (AnswerSource.MODEL, AnswerSource.CACHE)
    assert first.candidates == again.candidates


@pytest.mark.slow
def test_a_policy_table_is_the_same(several: Advisor, here: Advisor) -> None:
    reported: list[tuple[int, int]] = []
    sizes, options = [512, 1024, 4096], AdviceOptions(verify=False, bespoke=0)
    there = several.policy_table(REQUEST, sizes, options, progress=lambda done, total: reported.append((done, total)))
    assert there == here.policy_table(REQUEST, sizes, options)
    assert [done for done, _ in reported] == list(range(1, len(reported) + 1)) and reported[0] == (1, 3)


@pytest.mark.slow
async def test_a_cancelled_task_stops_its_process(several: Advisor) -> None:
    import asyncio

    question, options = LONG
    task = asyncio.create_task(several.recommend_async(replace(question, m=4096), options))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    since = time.monotonic()
    several.recommend_many([replace(REQUEST, m=m) for m in (1152, 1408)], AT_ONCE)  # both processes are free again
    assert time.monotonic() - since < 30 and threading.active_count() < 50
