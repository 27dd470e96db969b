"""Advice by the workers of a dask scheduler: two processes on loopback, killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster import Loopback, killed_and_resumed, wait_for
from magus.advisor import AdviceOptions, Advisor, Request, advise_step, ask, keep_results, model_question
from magus.advisor.questions import elsewhere
from magus.advisor.questions.computing import computed_advice
from magus.advisor.questions.elsewhere import answer_at_worker, digests_here
from magus.advisor.questions.many import ask_many
from magus.advisor.work.on_dask import RESUME, BackendError, Cluster, on_cluster
from magus.compiler.ir import Cancelled, Scenario
from magus.compiler.request.scenario import scenario_of
from magus.simcore.memo.memo import UNDER_WAY, current_store, use
from magus.tui.text.door import Exit
from tests.helpers.steps import TEXT as STEP

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

MODEL = AdviceOptions(verify=False)
REQUESTS = [Request("AG+GEMM", m=m, n=512, k=1024, gpu="H100", ranks=4) for m in range(256, 256 * 6, 256)]
SCENARIO = """use "nvidia/h100"
param M = 256 in 256..4096 step 256
system node { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload up on node {
  x = tensor bf16[M, 1024] shard rows
  w = tensor bf16[1024, 2048] shard cols
  y = gemm(all_gather(x), w)
}
"""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """A folder that keeps results."""
    before = current_store()
    keep_results(tmp_path / "kept")
    yield tmp_path / "kept"
    use(before)


def test_answers_are_those_of_one_process(cluster: Any) -> None:
    advisor = Advisor.load()
    with closing(advisor.on_cluster(cluster.scheduler_address)) as there:
        answers = there.recommend_many(REQUESTS, MODEL)
        table = there.policy_table(REQUESTS[0], [256], replace(MODEL, bespoke=0))

    assert there.at_once >= 4
    assert [each.candidates for each in answers] == [advisor.recommend(each, MODEL).candidates for each in REQUESTS]
    assert table.rules == advisor.policy_table(REQUESTS[0], [256], replace(MODEL, bespoke=0)).rules


def test_layouts_of_a_step_are_those_of_one_process(cluster: Any) -> None:
    text = STEP.format(more="explore train { TP 1, 2; pipeline one_f_one_b, zero_bubble }")
    with on_cluster(cluster.scheduler_address) as submit:
        there = advise_step(text, submit=submit)
    assert there == advise_step(text) and there.recommended is not None


def test_what_was_answered_before_a_stop_is_not_asked_again(cluster: Any, kept: Path) -> None:
    asked: list[object] = []

    class Counting(Cluster[Any, Any]):
        def ask(self, question: Any, *rest: Any) -> Any:
            answer = super().ask(question, *rest)
            asked.append(question.subject)
            return answer

    def advisor() -> Advisor:
        there = Counting(cluster.scheduler_address, lambda question: answer_at_worker(digests_here(), True, question))
        return replace(Advisor.load(), _processes=there)

    with closing(advisor()) as first, pytest.raises(Cancelled):
        first.recommend_many(REQUESTS, MODEL, should_stop=lambda: len(asked) >= 3)
    before = len(asked)
    with closing(advisor()) as second:
        answers = second.recommend_many(REQUESTS, MODEL)

    assert before >= 3 and len(asked) == len(REQUESTS) == len(set(asked)) == len(answers)


def test_a_killed_sweep_goes_on_from_there(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "up.mgs"
    file.write_text(SCENARIO)
    words = ["sweep", str(file), "--set", "M=256..2048 step 256", "--bespoke", "400", "--no-verify", "--json"]
    command = [sys.executable, "-c", "from magus.tui.cli import main; main()", *words]
    environment = {**os.environ, "MAGUS_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("MAGUS_NO_CACHE", None)
    with_cluster = [*command, "--scheduler", cluster.scheduler_address]
    killed = subprocess.Popen(with_cluster, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while _kept(tmp_path) < 3 and killed.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = {
        path: path.stat().st_ino for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.stat().st_size
    }
    resumed = subprocess.run(with_cluster, env=environment, capture_output=True, text=True, check=False)
    alone = subprocess.run([*command, "--no-cache"], env=environment, capture_output=True, text=True, check=False)

    assert len(before) >= 3 and resumed.returncode == 0, resumed.stderr
    assert all(path.stat().st_ino == file_id for path, file_id in before.items()), "written anew"
    assert json.loads(resumed.stdout) == json.loads(alone.stdout)


def test_whatever_is_killed_no_question_is_lost_or_computed_twice(tmp_path: Path) -> None:
    found = killed_and_resumed(60, tmp_path)

    assert (found.asked, found.answered, found.repeated, found.lost) == (60, 60, 0, 0)
    assert found.asked - 2 <= found.computed <= found.asked, "a kill may come between an answer and its line in the log"


def test_a_sweep_that_loses_its_scheduler_prints_what_it_has_and_goes_on(tmp_path: Path) -> None:
    there = Loopback(tmp_path)
    with there.scheduler() as scheduler, there.worker():
        asking = there.asking(240)
        wait_for(lambda: there.num_computed() >= 20, asking)
        scheduler.kill()
        _, said = asking.communicate(timeout=600)
    text = there.answers.read_text(encoding="utf-8")
    with there.scheduler(), there.worker():
        there.asking(240).communicate(timeout=600)
    whole = there.answers.read_text(encoding="utf-8")
    lines = there.log.read_text().splitlines()

    assert asking.returncode == Exit.INPUT and "MGS432 error: the scheduler at" in said and RESUME in said
    assert 1 < len(text.splitlines()) < 241 and whole.startswith(text) and len(whole.splitlines()) == 241
    assert len(lines) == len(set(lines))


def test_workers_answer_about_models_as_one_process_does(cluster: Any, kept: Path) -> None:
    questions = [model_question(name, "h100", "vllm", tp=4, prefill=512) for name in ("llama-3.2-1b", "llama-3.2-3b")]
    there = ask_many(questions, scheduler=cluster.scheduler_address)

    assert there.lost is None and not there.interrupted
    assert there.answers == {each: json.loads(json.dumps(ask(each).document())) for each in questions}
    assert ask_many(questions).answers == there.answers


def test_a_worker_computes_no_answer_twice(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Scenario] = []

    def counting(proposals: Any, scenario: Scenario, *rest: Any) -> Any:
        computed.append(scenario)
        return computed_advice(proposals, scenario, *rest)

    monkeypatch.setattr(elsewhere, "computed_advice", counting)
    monkeypatch.setattr(elsewhere, "user_store", current_store)
    options = replace(MODEL, workers=4)
    requested = elsewhere.Requested(scenario_of(REQUESTS[0]), options)
    answers = [answer_at_worker(digests_here(), True, requested) for _ in range(2)]

    assert len(computed) == 1 and answers[0].candidates == answers[1].candidates
    alone = Advisor.load()
    assert alone.num_unknown([requested.subject], options) == 0, "whoever shares the folder need not ask"
    assert alone.recommend(REQUESTS[0], options).candidates == answers[0].candidates
    assert alone.num_unknown([scenario_of(REQUESTS[1])], options) == 1


def _kept(folder: Path) -> int:
    return sum(path.is_file() for path in (folder / "cache").rglob("*") if path.parent.name != UNDER_WAY)


def test_a_worker_of_another_version_is_reported(cluster: Any) -> None:
    there: Cluster[Any, Any] = Cluster(
        cluster.scheduler_address, lambda question: answer_at_worker(("other", "other"), False, question)
    )
    with closing(replace(Advisor.load(), _processes=there)) as advisor, pytest.raises(BackendError, match="version"):
        advisor.recommend(REQUESTS[0], MODEL)
