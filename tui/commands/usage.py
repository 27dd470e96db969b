"""Usage errors: printed on stderr as printable text, like all other errors."""

import io
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import typer
from typer.core import TyperGroup

from ..exit_codes import Exit
from ..text.door import say, turn_off


class Commands(TyperGroup):
    """The commands of Magus; usage errors are escaped before printing, since they repeat what was typed."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that ``args`` name and, unless ``standalone_mode`` is False, end the program."""
        run = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        try:
            sys.exit(run() or Exit.DONE)
        except typer.Abort:
            sys.exit(Exit.INTERRUPTED)
        except OSError as error:  # commands report their own: here the output could not be printed
            turn_off(sys.stdout)
            say(f"magus: {error.filename or 'stdout'}: {error.strerror or error}")
            sys.exit(Exit.INPUT)
        except Exception as error:
            if not hasattr(error, "show") or not hasattr(error, "exit_code"):
                raise
            text = io.StringIO()
            error.show(text)
            say(text.getvalue().removesuffix("\n"))
            sys.exit(error.exit_code)
