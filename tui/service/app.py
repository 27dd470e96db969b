"""The service as an ASGI application: bodies, waits and the queue are bounded; nothing of a client is executed."""

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from time import monotonic
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ... import __version__
from ...advisor import AdviceOptions, Advisor, NoFeasibleSchedule, RequestError
from ...advisor.answer.export import advice_document
from ...advisor.questions.ask import ask
from ...advisor.work.pools import in_thread
from ...compiler.ir import Cancelled, JsonObject
from ...compiler.ir.step import StepScenario
from ...compiler.planning.build import ScheduleError
from ...simcore import RunTooLarge
from .openapi import ASK_PATH, LAYER_PATH, PATH, openapi_document
from .questions import layer_question_of, model_question_of, question_of

ANY = "*"


@dataclass(frozen=True, slots=True)
class OwnHosts:
    """Under which names a service is asked: those of this machine, the address where it listens, and ``allowed``."""

    bound: str = "127.0.0.1"
    allowed: frozenset[str] = frozenset()

    def refusal(self, host: str | None, origin: str | None) -> str:
        """Why a request with these headers is not for this service; empty if it is, as without headers."""
        if ANY in self.allowed:
            return ""
        requested = None if host is None else _name_in(f"//{host}")
        if requested is not None and not (
            self._is_own(requested) or (_is_address(requested) and _is_everywhere(self.bound))
        ):
            return f"Host {host!r:.64} is no name of this service"
        sender = None if origin is None else _name_in(origin)
        if sender is not None and not (self._is_own(sender) or sender == requested):
            return f"Origin {origin!r:.64} is a page of another site"
        return ""

    def _is_own(self, name: str) -> bool:
        own = {"localhost", self.bound.lower(), *(each.lower() for each in self.allowed)}
        return name in own or (_is_address(name) and ip_address(name).is_loopback)


def _name_in(url: str) -> str:
    """The name in a URL, or in a header with a port, in small letters; empty if there is none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_everywhere(bound: str) -> bool:
    """Whether a service listens at all addresses of its machine."""
    return _is_address(bound) and ip_address(bound).is_unspecified


def error_document(code: str, message: str, field: str = "", hint: str = "") -> JsonObject:
    """Return what is wrong: a permanent code, the field of the request, what to do instead."""
    return {"error": {"code": code, "field": field, "message": message, "hint": hint}}


def request_error_document(error: RequestError) -> JsonObject:
    """Return a ``RequestError`` as JSON."""
    return error_document(error.code.name, error.message, error.field, error.hint)


MAX_BODY = 1 << 16
BODY_S = 10.0
GRACE_S = 5.0
"""Seconds beyond the longest time of an answer after which there is none, whatever is being computed."""
MODEL_TIMES = 4
"""A question about a model looks at several layers: it has so many times the time of another."""
FIRST_GUESS_S = 1.0
"""Seconds that a question takes, before the first is answered."""
USUAL_OF = 8
"""About so many of the last questions say how long one takes."""
Advised = Callable[[float], Awaitable[JsonObject]]
"""Computes an answer in so many seconds."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost: seconds of one answer with its wait, answers at a time, and questions in the queue.

    Answers about models have ``MODEL_TIMES`` as long.
    """

    answer_s: float = 30.0
    at_once: int = 2
    waiting: int = 64


class _Json(JSONResponse):
    """JSON in ASCII: a question may name what no encoding has."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class Service:
    """Answers questions with one advisor, ``limits.at_once`` at a time."""

    def __init__(self, advisor: Advisor, limits: Limits) -> None:
        self._advisor, self._limits = advisor, limits
        self._turn = asyncio.Semaphore(limits.at_once)
        self._waiting, self._usual_s = 0, FIRST_GUESS_S
        self._stopped = False

    async def answer(self, http: HttpRequest, to: Callable[[bytes], Awaitable[Response]]) -> Response:
        """Read the body within limits, and give the answer ``to`` it."""
        try:
            async with asyncio.timeout(BODY_S):
                body = await _body(http)
        except TimeoutError:
            return _failed(408, error_document("408", f"the body did not come within {BODY_S:g} s"))
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            return _failed(413, error_document("413", f"the body is larger than {MAX_BODY} bytes"))
        try:
            return await to(body)
        except RequestError as error:
            return _failed(400, request_error_document(error))

    async def to_pair(self, body: bytes) -> Response:
        """Answer a question about a pair."""
        question = question_of(body, self._limits.answer_s)
        known = self._advisor.recall(question.request, question.options)
        if known is not None:
            return _Json(question.answer(known))

        async def advised(left_s: float) -> JsonObject:
            options = _within(question.options, left_s)
            advice = await self._advisor.recommend_async(question.request, options, should_stop=lambda: self._stopped)
            return await in_thread(lambda _: question.answer(advice))

        return await self._in_turn(advised)

    async def to_layer(self, body: bytes) -> Response:
        """Answer a question about a whole layer, or about a training step as well as found in time."""
        question = layer_question_of(body, self._limits.answer_s)
        known = None if question.request is None else self._advisor.recall(question.request, question.options)
        if known is not None:
            return _Json(advice_document(known))

        async def advised(left_s: float) -> JsonObject:
            subject = await in_thread(lambda _: question.subject())
            options = _within(question.options, left_s)
            if isinstance(subject, StepScenario):
                within_s = left_s if options.within_s is None else min(left_s, options.within_s)
                end_s = monotonic() + within_s
                return await in_thread(
                    lambda _: question.about_step(subject, lambda: self._stopped or monotonic() > end_s)
                )
            advice = await self._advisor.recommend_async(subject, options, should_stop=lambda: self._stopped)
            return await in_thread(lambda _: advice_document(advice))

        return await self._in_turn(advised)

    async def to_ask(self, body: bytes) -> Response:
        """Answer what to switch on for a model."""
        question = model_question_of(body)

        async def advised(left_s: float) -> JsonObject:
            end = monotonic() + left_s
            return await in_thread(
                lambda _: ask(
                    question, self._advisor, should_stop=lambda: self._stopped or monotonic() > end
                ).document()
            )

        return await self._in_turn(advised, MODEL_TIMES * self._limits.answer_s)

    def stop(self) -> None:
        """Let what is being computed be answered with the best found so far, and compute nothing more."""
        self._stopped = True

    async def _in_turn(self, advised: Advised, most_s: float | None = None) -> Response:
        """Wait for a turn, and answer in the time that is left; too many that wait, or for too long, are sent away.

        Wait and answer take ``most_s``, by default those of an answer.
        """
        most_s = self._limits.answer_s if most_s is None else most_s
        if self._waiting >= self._limits.waiting:
            return self._later(f"{self._waiting} questions wait already")
        end = asyncio.get_running_loop().time() + most_s
        self._waiting += 1
        try:
            async with asyncio.timeout_at(end):
                await self._turn.acquire()
            try:
                return await self._reported(advised, end, most_s)
            finally:
                self._turn.release()
        except TimeoutError:
            return self._later(f"no turn came within {most_s:g} s")
        finally:
            self._waiting -= 1

    def _later(self, why: str) -> Response:
        """Say when all that wait now will have had their turn."""
        wait_s = self._usual_s * self._waiting / self._limits.at_once
        return _failed(503, error_document("503", why), {"Retry-After": str(max(1, math.ceil(wait_s)))})

    async def _reported(self, advised: Advised, end: float, most_s: float) -> Response:
        """The answer, or what is wrong; soon after ``end``, in the time of the event loop, that there is none.

        That is the end of ``most_s``.
        """
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout_at(end + GRACE_S):
                return _Json(await advised(max(0.0, end - begun)))
        except TimeoutError:
            return self._later(f"no answer came within {most_s + GRACE_S:g} s")
        except RequestError as error:
            return _failed(400, request_error_document(error))
        except NoFeasibleSchedule as error:
            return _failed(422, error_document("MGS510", f"no schedule is feasible: {'; '.join(error.reasons)}"))
        except ScheduleError as error:
            rejection = error.rejection
            return _failed(422, error_document(rejection.code.name, rejection.message, hint=rejection.hint))
        except RunTooLarge as error:
            return _failed(422, error_document("MGS406", str(error)))
        except Cancelled:
            if self._stopped:
                return _failed(503, error_document("503", "the service ends"))
            return _failed(422, error_document("MGS510", "the time was over before anything was found"))
        finally:
            self._usual_s += (clock() - begun - self._usual_s) / USUAL_OF


def _within(options: AdviceOptions, left_s: float) -> AdviceOptions:
    return replace(options, within_s=min(left_s, math.inf if options.within_s is None else options.within_s))


async def _body(http: HttpRequest) -> bytes | None:
    """Return the body, None if it is too large: the rest is not read."""
    parts, size = [], 0
    async for part in http.stream():
        size += len(part)
        if size > MAX_BODY:
            return None
        parts.append(part)
    return b"".join(parts)


def _failed(status: int, document: JsonObject, headers: Mapping[str, str] | None = None) -> Response:
    return _Json(document, status_code=status, headers=dict(headers or {}))


async def _health(_: HttpRequest) -> Response:
    return _Json({"magus": __version__})


async def _openapi(_: HttpRequest) -> Response:
    return _Json(openapi_document())


async def _not_found(http: HttpRequest, _: Exception) -> Response:
    return _failed(
        404, error_document("404", f"there is no {http.url.path[:64]}", hint=f"POST {PATH}, {LAYER_PATH} or {ASK_PATH}")
    )


async def _not_allowed(http: HttpRequest, error: Exception) -> Response:
    headers: Mapping[str, str] = getattr(error, "headers", None) or {}
    message = f"{http.method[:16]} is not for {http.url.path[:64]}"
    return _failed(405, error_document("405", message, hint=f"{headers.get('Allow', '')} is"), headers)


async def _internal(_: HttpRequest, error: Exception) -> Response:
    log.debug("a question failed", exc_info=error)
    return _failed(500, error_document("500", "an internal error of Magus; the log of the service has more"))


class _Guarded:
    """An application that answers requests for its own hosts alone."""

    def __init__(self, app: ASGIApp, hosts: OwnHosts) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            why = self._hosts.refusal(headers.get("host"), headers.get("origin"))
            if why:
                app = _failed(403, error_document("403", why, hint="magus serve --allow-host NAME allows it"))
        await app(scope, receive, send)


def application(advisor: Advisor, limits: Limits | None = None) -> Starlette:
    """Return the application; one advisor answers all clients."""
    return application_of(Service(advisor, limits or Limits()))


def application_of(service: Service, hosts: OwnHosts | None = None) -> Starlette:
    """Return the application of a service that the caller may stop; it is asked under the names of ``hosts``."""
    posted = {PATH: service.to_pair, LAYER_PATH: service.to_layer, ASK_PATH: service.to_ask}
    routes = [
        *(Route(path, partial(service.answer, to=to), methods=["POST"]) for path, to in posted.items()),
        Route("/health", _health),
        Route("/openapi.json", _openapi),
    ]
    handlers = {404: _not_found, 405: _not_allowed, 500: _internal}
    guard = Middleware(_Guarded, hosts=hosts or OwnHosts())
    return Starlette(routes=routes, exception_handlers=handlers, middleware=[guard])
