"""The service: the answers of the API, limits that hold, clear errors, and nothing lost by bad clients."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from magus.advisor import AdviceOptions, Advisor, NoFeasibleSchedule, Request
from magus.advisor.answer.export import advice_document
from magus.compiler.codes import Code
from magus.compiler.ir import Cancelled, Rejection
from magus.compiler.planning.build import ScheduleError
from magus.tui.service import app as service
from magus.tui.service.app import MAX_BODY, Limits, application
from magus.tui.service.openapi import PATH, openapi_document
from magus.tui.service.questions import FIELDS, SPENDING
from tests.helpers.commands import magus
from tests.helpers.paths import ROOT
from tests.helpers.plans.json_schema import is_valid
from tests.helpers.service import call

SIZES = {"m": 1024, "n": 512, "k": 2048, "gpu": "MI300X", "ranks": 4}
QUESTION = {"pattern": "AG+GEMM", **SIZES, "simulate": False}


@pytest.fixture(scope="module")
def advisor() -> Advisor:
    return Advisor.load()


def ask(advisor: Advisor, question: object, limits: Limits | None = None) -> tuple[int, dict[str, Any]]:
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    status, document, _ = asyncio.run(call(application(advisor, limits), body))
    return status, document


@pytest.mark.quick(1)
@pytest.mark.parametrize("simulate", [False, True])
def test_its_answers_are_those_of_the_api(advisor: Advisor, simulate: bool) -> None:
    advisor = Advisor(advisor.proposals)  # has answered nothing yet
    status, answer = ask(advisor, {**QUESTION, "simulate": simulate, "bespoke": 20, "plan": True, "advice": True})
    options = AdviceOptions(verify=simulate, bespoke=20)
    advice = advisor.recommend(Request("AG+GEMM", **SIZES), options)  # type: ignore[arg-type]

    assert status == 200
    assert answer["schedule"] == advice.recommended.expression and answer["gain"] == advice.gain
    assert answer["plan"] == json.loads(json.dumps(advice.plan()))
    assert answer["advice"] == json.loads(json.dumps(advice_document(advice)))
    assert answer["source"] == ("simulation" if simulate else "model")
    assert ask(advisor, {**QUESTION, "simulate": simulate, "bespoke": 20})[1]["source"] == "cache"


def test_answers_errors_and_questions_are_as_described(advisor: Advisor) -> None:
    document = openapi_document()
    schemas = document["components"]["schemas"]

    answer = ask(advisor, {**QUESTION, "advice": True})[1]
    assert is_valid(answer.pop("advice"), without_texts(schemas["Advice"]))
    assert is_valid(answer, without_texts(schemas["Answer"]))
    assert is_valid(ask(advisor, {})[1], without_texts(schemas["Error"]))
    assert set(schemas["Question"]["properties"]) == {*FIELDS, *SPENDING}
    assert is_valid(QUESTION, without_texts(schemas["Question"]))
    described = asyncio.run(call(application(advisor), b"", "GET", "/openapi.json"))
    assert described[:2] == (200, json.loads(json.dumps(document)))


def without_texts(schema: Any) -> Any:
    """The schema without descriptions."""
    if isinstance(schema, dict):
        return {key: without_texts(value) for key, value in schema.items() if key != "description"}
    return [without_texts(each) for each in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(
    ("question", "code", "field"),
    [
        (b"", "MGS107", "body"),
        (b"\xff\xfe", "MGS107", "body"),
        (b"[" * 60_000, "MGS107", "body"),
        ([1], "MGS107", "body"),
        ({}, "MGS209", "pattern"),
        ({**QUESTION, "patern": 1}, "MGS201", "patern"),
        ({**QUESTION, "pattern": "AG"}, "MGS203", "pattern"),
        ({**QUESTION, "m": "8"}, "MGS309", "m"),
        ({**QUESTION, "m": 1025}, "MGS304", "request"),
        ({**QUESTION, "gpu": "MI300"}, "MGS203", "gpu"),
        ({**QUESTION, "gpu": 1}, "MGS310", "gpu"),
        ({**QUESTION, "simulate": 1}, "MGS310", "simulate"),
        ({**QUESTION, "within_s": -1}, "MGS307", "within_s"),
        ({**QUESTION, "bespoke": "many"}, "MGS307", "bespoke"),
        ({**QUESTION, "system_file": "/etc/passwd"}, "MGS201", "system_file"),
        (b'{"pattern": "AG+GEMM", "m": NaN}', "MGS309", "m"),
        (b'{"pattern": ' + b"9" * 5000 + b"}", "MGS107", "body"),
        ({**QUESTION, "gpu": "\ud800"}, "MGS203", "gpu"),
        ({**QUESTION, "ranks": 65536}, "MGS307", "ranks"),
        ({**QUESTION, "bespoke": 10**9}, "MGS307", "bespoke"),
    ],
)
def test_a_bad_question_is_explained(advisor: Advisor, question: Any, code: str, field: str) -> None:
    status, document = ask(advisor, question)

    assert status == 400
    assert (document["error"]["code"], document["error"]["field"]) == (code, field)
    assert document["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"m": ' + b"9" * 5000 + b"}", "no JSON: a number has 5000 digits, at most 128 are read"),
        (b"[" * 60_000, "no JSON: brackets are nested too deeply"),
        (b'{"m": \xff}', "no JSON: byte 6 is no UTF-8"),
    ],
)
def test_a_body_that_is_no_json_is_explained_in_plain_words(advisor: Advisor, body: bytes, message: str) -> None:
    assert ask(advisor, body)[1]["error"]["message"] == message


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (NoFeasibleSchedule(("staging is 0", "all need some")), "MGS510", "staging is 0; all need some"),
        (ScheduleError(Rejection(Code.MGS523, "it replays a profile", "drop it")), "MGS523", "replays a profile"),
        (Cancelled(), "MGS510", "the time was over"),
    ],
)
def test_what_has_no_answer_is_said(
    advisor: Advisor, monkeypatch: Any, error: Exception, code: str, message: str
) -> None:
    async def refusing(self: Advisor, *_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(Advisor, "recommend_async", refusing)
    status, document = ask(Advisor(advisor.proposals), QUESTION)
    assert status == 422
    assert document["error"]["code"] == code and message in document["error"]["message"]


def test_when_time_is_short_the_best_so_far_is_the_answer(advisor: Advisor) -> None:
    fresh = Advisor(advisor.proposals)
    status, answer = ask(fresh, {**QUESTION, "simulate": True}, Limits(answer_s=0.05))
    assert status == 200 and answer["interrupted"] and answer["schedule"]
    assert ask(fresh, {**QUESTION, "simulate": True, "bespoke": 0})[1]["interrupted"] is False


def test_a_body_that_is_too_large_is_not_read(advisor: Advisor) -> None:
    parts = [b" " * MAX_BODY, b" ", b"never read"]
    status, document, _ = asyncio.run(call(application(advisor), parts))
    assert status == 413 and "larger than 65536 bytes" in document["error"]["message"]


def test_a_client_that_stops_in_the_middle_is_not_waited_for(advisor: Advisor, monkeypatch: Any) -> None:
    monkeypatch.setattr(service, "BODY_S", 0.05)
    status, document, _ = asyncio.run(call(application(advisor), [b'{"pattern"']))
    assert status == 408 and document["error"]["code"] == "408"


def test_when_too_many_wait_others_are_reported_to_come_later(advisor: Advisor, monkeypatch: Any) -> None:
    running = 0
    most = 0

    async def slow(self: Advisor, *_: object, **__: object) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return advisor.recommend(Request("AG+GEMM", **SIZES), AdviceOptions(verify=False))  # type: ignore[arg-type]

    monkeypatch.setattr(Advisor, "recommend_async", slow)
    fresh = Advisor(advisor.proposals)

    async def ask_many() -> list[tuple[int, dict[str, Any], dict[str, str]]]:
        app = application(fresh, Limits(answer_s=8, at_once=2, waiting=4))
        bodies = [json.dumps({**QUESTION, "m": 64 * number}).encode() for number in range(1, 9)]
        return await asyncio.gather(*(call(app, body) for body in bodies))

    answers = asyncio.run(ask_many())
    assert sorted(status for status, _, _ in answers) == [200] * 4 + [503] * 4
    assert {headers.get("retry-after") for status, _, headers in answers if status == 503} == {"2"}
    assert most == 2


def test_an_error_of_magus_is_no_traceback_for_the_client(advisor: Advisor, monkeypatch: Any) -> None:
    async def broken(self: Advisor, *_: object, **__: object) -> Any:
        raise AssertionError("secret")

    monkeypatch.setattr(Advisor, "recommend_async", broken)
    status, document = ask(Advisor(advisor.proposals), QUESTION)
    assert status == 500 and "secret" not in str(document)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", PATH, 405), ("GET", "/x", 404), ("GET", "/health", 200)]
)
def test_other_paths_and_methods(advisor: Advisor, method: str, path: str, status: int) -> None:
    found, document, _ = asyncio.run(call(application(advisor), b"", method, path))
    assert found == status and ("magus" in document or document["error"]["code"] == str(status))


def test_a_wrong_method_is_told_the_right_one(advisor: Advisor) -> None:
    _, document, headers = asyncio.run(call(application(advisor), b"", "GET", PATH))
    assert headers["allow"] == "POST" and document["error"]["hint"] == "POST is"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A service in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "from magus.tui.cli import main; main()"
    words = [sys.executable, "-c", code, "serve", "--port", str(port), "--no-cache"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = re.search(r"http://[\d.:]+", process.stderr.readline())
        assert url is not None
        yield url[0], process
        if process.poll() is None:
            process.kill()


def client(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a client until the service listens."""
    for _ in range(100):
        done = subprocess.run([*words, url], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    return done


@pytest.mark.slow
def test_the_clients_of_the_examples_get_an_answer(running: tuple[str, subprocess.Popen[str]], tmp_path: Path) -> None:
    url, process = running
    by_python = client(url, sys.executable, str(ROOT / "examples" / "clients" / "advise.py"))
    assert by_python.returncode == 0, by_python.stderr
    assert by_python.stdout.split()[0] == "overlap"

    compiler = shutil.which("c++")
    if compiler is not None and Path("/usr/include/x86_64-linux-gnu/curl/curl.h").is_file():
        source = ROOT / "examples" / "clients" / "advise.cpp"
        subprocess.run([compiler, "-std=c++17", str(source), "-lcurl", "-o", str(tmp_path / "advise")], check=True)
        by_cpp = client(url, str(tmp_path / "advise"))
        assert json.loads(by_cpp.stdout)["schedule"] in by_python.stdout
    process.send_signal(signal.SIGINT if os.name != "nt" else signal.SIGTERM)
    assert process.wait(timeout=30) in (0, 130)


def test_without_the_extra_it_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "magus.tui.service.server", raising=False)
    done = magus("serve")
    assert done.exit_code == 2
    assert "MGS432 error: uvicorn is not installed\n  help: pip install 'magus-gpu[serve]'" in done.stderr


@pytest.mark.slow
def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["serve", "--port", str(taken.getsockname()[1]), "--no-cache"]
        code = "from magus.tui.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "address already in use" in done.stderr and "Traceback" not in done.stderr
