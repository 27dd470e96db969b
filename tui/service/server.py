"""The web server of ``magus serve``: says where it listens once it does, and ends with the best answers so far."""

import asyncio
from collections.abc import Sequence
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...advisor import Advisor
from ..text.door import Exit, say
from .app import Limits, OwnHosts, Service, application_of
from .openapi import PATH

HEADER_S = 10.0
"""How long a request may take to come, from when its connection is open or its first byte is there."""
MAX_CONNECTIONS = 512


PATIENCE_S = 5
"""How long a connection without a request stays open, and answers may take once the service ends."""


def serve(host: str, port: int, answer_s: float, at_once: int, allowed: Sequence[str] = ()) -> Exit:
    """Serve until Ctrl-C or SIGTERM; what is being answered then is answered with the best found so far."""
    advisor = Advisor.load(processes=at_once)  # questions do not hold up each other, nor answers that are known
    service = Service(advisor, Limits(answer_s, at_once))
    config = uvicorn.Config(
        application_of(service, OwnHosts(host, frozenset(allowed))),
        host=host,
        port=port,
        log_level="warning",
        timeout_keep_alive=PATIENCE_S,
        timeout_graceful_shutdown=PATIENCE_S,
        http=PatientProtocol,
        server_header=False,
    )
    web = _Web(config, service)
    with advisor:
        try:
            web.run()
        except SystemExit:  # uvicorn has said why it did not begin
            return Exit.INPUT
        except KeyboardInterrupt:  # raised again once the service has ended in good order
            return Exit.INTERRUPTED
    return Exit.DONE if web.started else Exit.INPUT


class PatientProtocol(H11Protocol):
    """A connection that is closed where a request, or the rest of one that is answered, does not come within HEADER_S.

    Of more than ``MAX_CONNECTIONS`` the one that has waited longest for a request is closed.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._patience: asyncio.TimerHandle | None = None
        self._watch()
        if len(self.connections) > MAX_CONNECTIONS:
            idle = [each for each in self.connections if isinstance(each, PatientProtocol) and each.is_idle]
            min(idle, key=lambda each: each._since).close()  # there is one: this

    def data_received(self, data: bytes) -> None:
        """Take in what has come of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        self._forget()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def close(self) -> None:
        """End the connection, unless a request is being answered."""
        self._patience = None
        if self.is_idle:
            self.transport.close()

    def _watch(self) -> None:
        if not self.is_idle:
            self._forget()
        elif self._patience is None:
            self._since = self.loop.time()
            self._patience = self.loop.call_later(HEADER_S, self.close)

    def _forget(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class _Web(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        for server in self.servers:
            for each in server.sockets:
                host, port = each.getsockname()[:2]
                place = f"[{host}]" if ":" in host else host
                say(f"magus: http://{place}:{port}{PATH}, described by /openapi.json; Ctrl-C ends")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.stop()
        super().handle_exit(sig, frame)
