"""``magus lsp``: the language server of editors, on stdin and stdout."""

import logging

from ....compiler.codes import Code
from ...exit_codes import Exit
from ...text.door import say


def serve_editor() -> Exit:
    """Serve an editor until it says goodbye or closes stdin."""
    try:
        from ...lsp.server import make_server
    except ImportError as error:
        say(f"{Code.MGS432.name} error: {error.name or error} is not installed\n  help: pip install 'magus-gpu[lsp]'")
        return Exit.USAGE
    if not logging.getLogger("magus").isEnabledFor(logging.DEBUG):
        logging.getLogger("pygls").setLevel(logging.CRITICAL)
    make_server().start_io()
    return Exit.DONE
