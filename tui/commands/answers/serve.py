"""``magus serve``: advice over HTTP, on this machine unless told otherwise."""

from collections.abc import Sequence

from ....advisor import Advisor
from ....compiler.codes import Code
from ...text.door import Exit, say

PATIENCE_S = 5
"""How long a connection without a request stays open, and answers may take once the service ends."""


def serve(host: str, port: int, answer_s: float, at_once: int, allowed: Sequence[str] = ()) -> Exit:
    """Serve until Ctrl-C or SIGTERM; what is being answered then is answered with the best found so far."""
    try:
        import uvicorn

        from ...service.app import Limits, OwnHosts
        from ...service.server import PatientProtocol, Server
    except ImportError as error:
        say(f"{Code.MGS432.name} error: {error.name or error} is not installed\n  help: pip install 'magus-gpu[serve]'")
        return Exit.USAGE
    advisor = Advisor.load(processes=at_once)  # questions do not hold up each other, nor answers that are known
    server = Server(advisor, Limits(answer_s, at_once), OwnHosts(host, frozenset(allowed)))
    config = uvicorn.Config(
        server.app,
        host=host,
        port=port,
        log_level="warning",
        timeout_keep_alive=PATIENCE_S,
        timeout_graceful_shutdown=PATIENCE_S,
        http=PatientProtocol,
        server_header=False,
    )
    with advisor:
        return server.run_until_stopped(config)
