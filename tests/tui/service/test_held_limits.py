"""Whatever a request does, its turn is given back and it is answered in time; connections without one cost nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

import uvicorn

from magus.advisor import AdviceOptions, Advisor, Request
from magus.tui.service import app as service
from magus.tui.service import server
from magus.tui.service.app import Limits, OwnHosts, application
from magus.tui.service.openapi import LAYER_PATH
from magus.tui.service.questions import LayerQuestion
from tests.helpers.service import call

SIZES: dict[str, Any] = {"n": 512, "k": 2048, "gpu": "MI300X", "ranks": 4}
ONE_AT_A_TIME = Limits(answer_s=0.4, at_once=1)
_SYSTEM = 'use "nvidia/h100"\nsystem s { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }\n'


@pytest.fixture(scope="module")
def advisor() -> Advisor:
    return Advisor.load()


def question(m: int = 1024) -> bytes:
    return json.dumps({"pattern": "AG+GEMM", "m": m, **SIZES, "simulate": False}).encode()


def answering(monkeypatch: pytest.MonkeyPatch, answers: Callable[[int], Any]) -> None:
    """Let ``answers`` say what becomes of a question about so many rows, beside its answer."""
    known = Advisor.load().recommend(Request("AG+GEMM", m=1024, **SIZES), AdviceOptions(verify=False))

    async def recommend(self: Advisor, requested: Request, *_: object, **__: object) -> Any:
        await answers(requested.m)
        return known

    monkeypatch.setattr(Advisor, "recommend_async", recommend)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "error", [StopIteration, AssertionError, RecursionError, MemoryError, TimeoutError, asyncio.CancelledError]
)
def test_whatever_is_raised_the_next_question_is_answered(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def broken(self: LayerQuestion) -> None:
        raise error

    monkeypatch.setattr(LayerQuestion, "subject", broken)

    async def ask() -> list[int]:
        app = application(Advisor(advisor.proposals), ONE_AT_A_TIME)
        bad = [call(app, json.dumps({"text": "workload"}).encode(), path=LAYER_PATH) for _ in range(3)]
        found = [(await asyncio.gather(each, return_exceptions=True))[0] for each in bad]
        statuses = [each[0] for each in found if not isinstance(each, BaseException)]
        return [*statuses, (await call(app, question()))[0]]

    *failed, last = asyncio.run(asyncio.wait_for(ask(), 20))
    assert last == 200 and set(failed) <= {500, 503}


def test_a_text_with_too_many_operations_is_refused_and_costs_no_turn(advisor: Advisor) -> None:
    ops = "; ".join(f"a{idx + 1} = norm(a{idx})" for idx in range(600))
    text = f"{_SYSTEM}workload w on s {{ a0 = tensor bf16[1024, 8192] shard rows; {ops} }}"

    async def ask() -> tuple[int, dict[str, Any], int]:
        app = application(Advisor(advisor.proposals), Limits(at_once=1))
        status, document, _ = await call(app, json.dumps({"text": text}).encode(), path=LAYER_PATH)
        return status, document, (await call(app, question()))[0]

    status, document, last = asyncio.run(ask())
    assert (status, document["error"]["code"], last) == (400, "MGS305", 200)


def test_the_time_of_an_answer_covers_the_wait_for_it(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "GRACE_S", 0.1)

    async def for_ever(m: int) -> None:
        if m != 64:
            await asyncio.sleep(3600)

    answering(monkeypatch, for_ever)

    async def ask() -> list[tuple[int, dict[str, Any], dict[str, str]]]:
        app = application(advisor, ONE_AT_A_TIME)
        found = await asyncio.gather(*(call(app, question(m)) for m in (128, 256, 320)))
        return [*found, await call(app, question(64))]

    *late, last = asyncio.run(asyncio.wait_for(ask(), 20))
    assert [status for status, _, _ in late] == [503] * 3 and last[0] == 200
    assert late[0][1]["error"]["message"] == "no answer came within 0.5 s"
    assert {each[1]["error"]["message"] for each in late[1:]} == {"no turn came within 0.4 s"}


def test_who_has_waited_has_less_time_left(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    known, given = advisor.recommend(Request("AG+GEMM", m=1024, **SIZES), AdviceOptions(verify=False)), list[float]()

    async def recommend(self: Advisor, requested: Request, options: AdviceOptions, **_: object) -> Any:
        assert options.within_s is not None
        given.append(options.within_s)
        await asyncio.sleep(0.2)
        return known

    monkeypatch.setattr(Advisor, "recommend_async", recommend)

    async def ask() -> None:
        app = application(Advisor(advisor.proposals), ONE_AT_A_TIME)
        await asyncio.gather(*(call(app, question(m)) for m in (128, 256)))

    asyncio.run(ask())
    assert given[0] == pytest.approx(0.4, abs=0.1) and given[1] <= 0.25


def test_when_to_come_again_follows_the_queue(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_GUESS_S", 3.0)

    async def soon(m: int) -> None:
        await asyncio.sleep(0.05)

    answering(monkeypatch, soon)

    async def refused(waiting: int) -> set[str]:
        app = application(Advisor(advisor.proposals), Limits(answer_s=30, at_once=2, waiting=waiting))
        answers = await asyncio.gather(*(call(app, question(64 * number)) for number in range(1, 12)))
        return {headers["retry-after"] for status, _, headers in answers if status == 503}

    assert [asyncio.run(refused(waiting)) for waiting in (2, 6, 10)] == [{"3"}, {"9"}, {"15"}]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8377", None, 200),
        ("127.0.0.1", "http://localhost:3000", 200),
        ("[::1]:8377", "http://[::1]:8377", 200),
        ("LOCALHOST.", None, 200),
        ("evil.example", None, 403),
        ("evil.example:8377", "http://evil.example:8377", 403),
        ("localhost", "https://evil.example", 403),
        ("localhost", "null", 403),
        ("localhost@evil.example", None, 403),
        ("192.0.2.7", None, 403),
        ("[::1", None, 403),
        ("", None, 403),
    ],
)
def test_other_sites_are_refused(advisor: Advisor, host: str, origin: str | None, status: int) -> None:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    found, document, _ = asyncio.run(call(application(advisor), b"", "GET", "/health", headers))

    assert found == status
    assert status == 200 or document["error"]["hint"] == "magus serve --allow-host NAME allows it"


def test_the_user_says_which_names_are_its_own() -> None:
    everywhere, named = OwnHosts("0.0.0.0"), OwnHosts("gpu7", frozenset({"Magus.Example"}))

    assert not everywhere.refusal("192.0.2.7:8377", "http://192.0.2.7:8377")
    assert everywhere.refusal("192.0.2.7:8377", "http://198.51.100.1") and everywhere.refusal("gpu7", None)
    assert not named.refusal("gpu7:8377", "https://magus.example") and named.refusal("gpu8", None)
    assert not OwnHosts(allowed=frozenset({"*"})).refusal("anyone", "https://any.example")
    assert not OwnHosts().refusal(None, None)


@asynccontextmanager
async def serving(advisor: Advisor) -> AsyncIterator[int]:
    """The service on a port of this machine."""
    app, ready = application(advisor), asyncio.Event()
    config = uvicorn.Config(app, port=0, log_level="error", http=server.PatientProtocol)
    web = uvicorn.Server(config)
    begin = web.startup

    async def startup(sockets: Any = None) -> None:
        await begin(sockets)
        ready.set()

    web.startup = startup  # type: ignore[method-assign]
    running = asyncio.create_task(web.serve())
    await ready.wait()
    yield web.servers[0].sockets[0].getsockname()[1]
    web.should_exit = web.force_exit = True
    await running


async def opened(port: int, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        HEALTH + b"GET /health HTTP",
        HEALTH.replace(b"\r\n\r\n", b"\r\nContent-Length: 99999\r\n\r\n") + b"a body that nobody reads",
    ],
)
def test_a_request_that_never_comes_ends_its_connection(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(server, "HEADER_S", 0.3)

    async def drip() -> bytes:
        async with serving(advisor) as port:
            reader, writer = await opened(port, begun)

            async def slowly() -> None:
                while begun and not writer.is_closing():
                    writer.write(b"a")
                    await asyncio.sleep(0.05)

            dripping = asyncio.create_task(slowly())
            heard = await asyncio.wait_for(reader.read(), 10)
            dripping.cancel()
            writer.close()
            return heard

    heard = asyncio.run(drip())
    assert heard.count(b"200 OK") == begun.count(b"GET /health HTTP/1.1")


def test_connections_without_a_request_keep_nobody_out(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 8)

    async def ask() -> bytes:
        async with serving(advisor) as port:
            idle = [await opened(port, b"") for _ in range(20)]
            reader, writer = await opened(port, HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            heard = await asyncio.wait_for(reader.read(), 10)
            closed = [each for each, _ in idle if each.at_eof()]
            assert len(closed) >= 12
            for _, each in (*idle, (reader, writer)):
                each.close()
            return heard

    assert b"200 OK" in asyncio.run(ask())
