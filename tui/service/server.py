"""The web server: says where it listens once it does, and ends with the best answers so far."""

from types import FrameType

import uvicorn

from ...advisor import Advisor
from ..exit_codes import Exit
from ..text.door import say
from .app import Limits, Service, application_of
from .openapi import PATH


class Server:
    """One service and its web server."""

    def __init__(self, advisor: Advisor, answer_s: float, at_once: int) -> None:
        self._service = Service(advisor, Limits(answer_s, at_once))
        self.app = application_of(self._service)

    def run_until_stopped(self, config: uvicorn.Config) -> Exit:
        """Serve until a signal says to end."""
        web = _Web(config, self._service)
        try:
            web.run()
        except SystemExit:  # uvicorn has said why it did not begin
            return Exit.INPUT
        except KeyboardInterrupt:  # raised again once the service has ended in good order
            return Exit.INTERRUPTED
        return Exit.DONE if web.started else Exit.INPUT


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
