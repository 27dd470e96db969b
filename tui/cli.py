"""The command line, ``magus COMMAND``; ``magus --help`` lists the commands.

Results go to stdout, progress and diagnostics to stderr. ``--json`` prints one document and nothing else. Exit codes:
``exit_codes.py``. Each command imports what it needs when it runs, so that ``magus check`` starts fast.
"""

import gc
import os
import sys
from typing import Annotated

import typer

from .. import __version__
from .commands.interrupts import watch_interrupts
from .exit_codes import Exit
from .kept_classes import kept_classes, place
from .text.door import put, say
from .verbs.table import Verbs

app = typer.Typer(
    name="magus",
    cls=Verbs,
    help="Which compute/communication overlap schedule to use on a multi-GPU system, with the proof.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        put(f"magus {__version__}")
        raise typer.Exit(Exit.DONE)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the console script; users see a traceback only if MAGUS_DEBUG is set."""
    if os.environ.get("MAGUS_DEBUG"):
        import logging

        logging.basicConfig(level=logging.WARNING)
        logging.getLogger("magus").setLevel(logging.DEBUG)
    # Imports make many objects and no garbage: it is looked for rarely, not at every 700 new objects.
    gc.set_threshold(300_000)
    pressed = watch_interrupts()
    try:
        with kept_classes(place()):
            app()
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        if pressed():  # a library that was being imported turned the interrupt into an error of its own
            sys.exit(Exit.INTERRUPTED)
        if os.environ.get("MAGUS_DEBUG"):
            raise
        say(f"magus: internal error: {type(error).__name__}: {error}")
        say("This is a fault of Magus, not of your file; MAGUS_DEBUG=1 shows where.")
        sys.exit(Exit.INPUT)
    finally:
        gc.freeze()  # the process ends, and all memory with it: the interpreter need not look for garbage once more


if __name__ == "__main__":
    main()
