"""Requests to an advisor: the advice of their scenarios, remembered, from many threads and from event loops."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from magus.advisor import Advice, AdviceOptions, Advisor, AnswerSource, Request, RequestError, keep_results
from magus.advisor.answer.stages import Watcher
from magus.advisor.learned.proposal_model import ProposalModel
from magus.advisor.questions.kept import MAX_ANSWERS, RecentAnswers
from magus.advisor.work.pools import answer_many
from magus.compiler.ir import Cancelled, EngineChoice, EngineKind, EngineMode, OpCase, OpChoice
from magus.compiler.planfile.forms import plan_schema
from magus.compiler.request.scenario import scenario_of
from magus.simcore.memo.memo import memoizing
from tests.helpers.plans.json_schema import is_valid

LIBRARY = EngineChoice(EngineKind.SM, 8, EngineMode.LIBRARY)
REQUEST = Request("AG+GEMM", m=1024, n=512, k=2048, gpu="MI300X", ranks=4)
MODEL = AdviceOptions(verify=False)
SMALL = AdviceOptions(top=2, bespoke=10)


@pytest.fixture(scope="module")
def shipped() -> Advisor:
    return Advisor.load()


@pytest.fixture
def advisor(shipped: Advisor) -> Advisor:
    """An advisor that has answered nothing yet."""
    return Advisor(shipped.proposals)


def test_the_gain_has_an_interval(advisor: Advisor) -> None:
    large = replace(REQUEST, m=8192, n=3584)
    low, high = advisor.recommend(replace(large, gpu="H100"), MODEL).interval or (0, 0)
    least, most = advisor.recommend(large, MODEL).interval or (0, 0)

    assert 1 < low < high < 3
    assert least < 1 < most, "GEMMs of MI300X are not validated"


@pytest.mark.quick(1)
@pytest.mark.parametrize(("options", "source"), [(MODEL, AnswerSource.MODEL), (SMALL, AnswerSource.SIMULATION)])
def test_a_request_has_the_advice_of_its_scenario(
    advisor: Advisor, options: AdviceOptions, source: AnswerSource
) -> None:
    advice = advisor.recommend(REQUEST, options)
    of_scenario = advisor.recommend(scenario_of(REQUEST), options)

    assert replace(advice, timing=of_scenario.timing) == of_scenario
    assert advice.source is of_scenario.source is source


def test_the_second_time_it_is_remembered(advisor: Advisor) -> None:
    first = advisor.recommend(REQUEST, MODEL)
    again = advisor.recommend(replace(REQUEST), MODEL)

    assert again == first
    assert (first.source, again.source) == (AnswerSource.MODEL, AnswerSource.CACHE)
    assert advisor.recommend(REQUEST, replace(MODEL, bespoke=0)).source is AnswerSource.MODEL  # another question


def test_an_answer_that_was_cut_short_is_not_remembered(advisor: Advisor) -> None:
    assert advisor.recommend(REQUEST, replace(SMALL, within_s=1e-6)).interrupted
    assert advisor.recommend(REQUEST, SMALL).source is AnswerSource.SIMULATION


def test_an_answer_on_disk_is_one_of_the_cache(shipped: Advisor, tmp_path: Path) -> None:
    with memoizing(None):
        keep_results(tmp_path)
        first = Advisor(shipped.proposals).recommend(REQUEST, SMALL)
        again = Advisor(shipped.proposals).recommend(REQUEST, SMALL)

    assert (first.source, again.source) == (AnswerSource.SIMULATION, AnswerSource.CACHE)
    assert again == first


def test_the_plan_can_be_written(advisor: Advisor) -> None:
    advice = advisor.recommend(REQUEST, MODEL)
    plan = advice.plan()

    assert plan is not None and is_valid(json.loads(json.dumps(plan)), plan_schema())
    by_library = replace(advice.recommended, plan=replace(advice.recommended.schedule, engine=LIBRARY))
    assert replace(advice, recommended=by_library).plan() is None


@pytest.mark.slow
def test_many_are_answered_in_order_and_each_once(advisor: Advisor, monkeypatch: Any) -> None:
    requests = [replace(REQUEST, m=m) for m in (1024, 512, 1024, 2048)]
    alone = [advisor.recommend(request, MODEL) for request in requests]
    requested: list[Request] = []

    def count(self: Advisor, request: Request, *_: object, **__: object) -> Any:
        requested.append(request)
        return request.m

    monkeypatch.setattr(Advisor, "recommend", count)
    answers: list[Any] = list(advisor.recommend_many(requests, MODEL, threads=2))
    assert answers == [1024, 512, 1024, 2048]
    assert len(requested) == 3
    monkeypatch.undo()
    fresh = Advisor(advisor.proposals).recommend_many(requests, MODEL, threads=2)
    assert [each.candidates for each in fresh] == [each.candidates for each in alone]


def test_many_alike_share_what_is_proposed(advisor: Advisor, monkeypatch: Any) -> None:
    requests = [replace(REQUEST, m=64 * size) for size in range(4, 36)]
    searched: list[int] = []

    def counted(self: ProposalModel, scenario: OpCase) -> Iterator[OpChoice]:
        searched.append(1)
        return choices(self, scenario)

    choices = ProposalModel.choices
    monkeypatch.setattr(ProposalModel, "choices", counted)
    shared = advisor.recommend_many(requests, MODEL, share=True)
    assert len(searched) == 8
    alone = [Advisor(advisor.proposals).recommend(each, MODEL) for each in requests[::10]]

    assert [each.serial.best_us for each in shared[::10]] == [each.serial.best_us for each in alone]
    slower = [
        each.recommended.best_us / best.recommended.best_us for each, best in zip(shared[::10], alone, strict=True)
    ]
    assert median(slower) <= 1.01 and max(slower) <= 1.05
    assert sum(advisor.recall(each, MODEL) is not None for each in requests) == 8, "what others decide is not kept"


def test_a_bad_request_stops_many_before_any_is_answered(advisor: Advisor, monkeypatch: Any) -> None:
    def nothing(*_: object) -> Advice:
        raise AssertionError("something was computed")

    monkeypatch.setattr(Advisor, "_advice", nothing)
    with pytest.raises(RequestError, match="4104"):
        advisor.recommend_many([REQUEST, replace(REQUEST, m=4103, ranks=8)], MODEL)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_error_leaves_out_what_has_not_begun(threads: int) -> None:
    begun: list[int] = []

    def answer(number: int, _: object) -> int:
        begun.append(number)
        if number == 0:
            raise ValueError("zero")
        time.sleep(0.01)
        return number

    with pytest.raises(ValueError, match="zero"):
        answer_many(answer, range(1000), threads)
    assert len(begun) < 1000


@pytest.mark.parametrize("own", [False, True])
def test_garbage_collections_leave_out_what_there_was_while_many_are_answered(own: bool) -> None:
    if own:
        gc.freeze()
    try:
        before = gc.get_freeze_count()
        frozen = answer_many(lambda number, _: gc.get_freeze_count(), range(2), 1)
        assert gc.get_freeze_count() == before  # what a program has set aside stays so
    finally:
        gc.unfreeze()
    assert min(frozen) > 0


@pytest.mark.slow
def test_threads_that_share_an_advisor_get_what_one_gets(advisor: Advisor) -> None:
    requests = [replace(REQUEST, pattern=name, m=m) for name in ("AG+GEMM", "GEMM+RS") for m in (256, 512)]
    options = AdviceOptions(top=1, bespoke=10)
    alone = [advisor.recommend(request, options).candidates for request in requests]
    fresh = Advisor(advisor.proposals)

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda request: fresh.recommend(request, options).candidates, requests * 2))

    assert together == alone * 2


def test_event_loops_are_not_held_up(advisor: Advisor) -> None:
    async def ask() -> tuple[Advice, list[Advice], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        one = await advisor.recommend_async(REQUEST, MODEL)
        many = await advisor.recommend_many_async([REQUEST, replace(REQUEST, m=512)], MODEL, threads=2)
        ticking.cancel()
        return one, many, ticks

    one, many, ticks = asyncio.run(ask())
    assert many[0] == one and many[1] != one
    assert ticks > 3


def test_a_cancelled_task_stops_its_thread(advisor: Advisor, monkeypatch: Any) -> None:
    stopped: list[bool] = []

    def until_stopped(self: Advisor, scenario: Any, options: Any, watcher: Watcher) -> Advice:
        assert watcher.should_stop is not None
        for _ in range(1000):
            time.sleep(0.005)
            if watcher.should_stop():
                stopped.append(True)
                raise Cancelled
        raise AssertionError("nobody said to stop")

    monkeypatch.setattr(Advisor, "_advice", until_stopped)

    async def ask() -> None:
        task = asyncio.create_task(advisor.recommend_async(REQUEST, MODEL))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())  # ends once its threads have ended
    assert stopped == [True]


def test_only_so_many_answers_stay(advisor: Advisor) -> None:
    advice = advisor.recommend(REQUEST, MODEL)
    answers: RecentAnswers[Advice] = RecentAnswers()
    for number in range(MAX_ANSWERS + 10):
        answers.keep(number, advice)

    assert answers.recall(9) is None
    assert answers.recall(10) == answers.recall(MAX_ANSWERS + 9) == advice


WITHOUT = """
import sys
for name in ("ortools", "textual", "typer", "sklearn", "scipy", "joblib"):
    sys.modules[name] = None
from magus.advisor import Advisor, AdviceOptions, Request
request = Request("AG+GEMM", m=1024, n=512, k=2048, gpu="MI300X", ranks=4)
print(Advisor.load().recommend(request, AdviceOptions(verify=False)).recommended.expression)
"""


@pytest.mark.slow
def test_the_model_answers_without_solver_learner_and_screen(advisor: Advisor) -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)

    assert found.stderr == ""
    assert found.stdout.strip() == advisor.recommend(REQUEST, MODEL).recommended.expression


FORKING = """
import os
from dataclasses import replace
from magus.advisor import Advisor, AdviceOptions, Request
request = Request("AG+GEMM", m=1024, n=512, k=2048, gpu="MI300X", ranks=4)
advisor, options = Advisor.load(), AdviceOptions(top=2, bespoke=20, workers=2)
advisor.recommend(replace(request, m=512), options)
child = os.fork()
answer = advisor.recommend(request, options).recommended.expression
if child == 0:
    os.write(1, answer.encode())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("|" + answer, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_answers_like_its_parent() -> None:
    found = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=False, timeout=120)

    child, parent = found.stdout.rstrip("\n").split("|")
    assert found.stderr == "" and child == parent and "(" in child
