"""The table of commands: each is imported and built when it is asked for, so that none waits for the options of others.

A new command is a function in a module of this package and a line here, with the first line of its help.
"""

import io
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import typer
import typer.core

from ..exit_codes import Exit
from ..text.door import say, turn_off


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: the ``module`` of this package that defines it, the first line of its ``help``, and its function.

    ``function`` is empty where it is called as the command is, with ``_`` for ``-``.
    """

    module: str
    help: str
    function: str = ""


VERBS: Mapping[str, Verb] = {
    "check": Verb("scenarios", "Show every error and warning of the files."),
    "fmt": Verb("scenarios", "Rewrite the files in the canonical form."),
    "lsp": Verb("scenarios", "Serve an editor: mistakes, completion and names of .mgs files."),
    "test": Verb("scenarios", "Check every expect block of the files."),
    "simulate": Verb("scenarios", "Simulate one schedule: times, traffic and losses."),
    "run": Verb("scenarios", "Carry schedules out with real data: is the result right?"),
    "plan": Verb("scenarios", "Write a schedule as a plan, in steps, or for another program."),
    "import": Verb("scenarios", "Read in a machine, a log of nccl-tests or a trace of PyTorch.", "import_file"),
    "replay": Verb("scenarios", "Show a step of a trace: measured, simulated, as it could be."),
    "from-model": Verb("scenarios", "Write the workloads of a layer of a model as a scenario."),
    "ask": Verb("answers", "Say what to switch on for a model, with a framework."),
    "schedules": Verb("answers", "List the feasible schedules, and the lower bound on all."),
    "advise": Verb("answers", "Recommend a schedule, with its gain and the proof."),
    "sweep": Verb("answers", "Advise on a grid of sizes, and say where schedules change."),
    "report": Verb("answers", "Write the answer as a page to send: one HTML file."),
    "export": Verb("answers", "Write the rules of a sweep as a file that a runtime reads."),
    "distill": Verb("answers", "Write a small rule, schedule(m, n, k), for one system."),
    "serve": Verb("answers", "Answer requests of runtimes over HTTP, in JSON."),
    "tui": Verb("answers", "Browse, change and compare in the terminal."),
    "train": Verb("models", "Learn from searched scenarios which schedules to propose."),
    "corpus": Verb("models", "Search drawn scenarios and keep every simulated plan."),
    "evaluate": Verb("models", "Judge learned proposals on families that are new to them."),
    "validate": Verb("models", "Compare the models with measurements on real GPUs."),
    "calibrate": Verb("models", "Fit constants to measured times, and write them as .mgs."),
}
"""In the order of ``magus --help``."""


class Verbs(typer.core.TyperGroup):
    """The commands of the table; usage errors are escaped before printing, since they repeat what was typed."""

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
        except OSError as error:  # commands report their own: here something cannot be written
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

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, None if there is none."""
        return built(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of ``--help`` from the table: nothing is imported for it."""
        room = formatter.width - max(map(len, VERBS)) - 6  # as click leaves it: an indent, and a gap between columns
        lines = [(name, click.Command(name, help=verb.help).get_short_help_str(room)) for name, verb in VERBS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(lines)


class OneCommand(typer.core.TyperCommand):
    """A command of which an option with one value is given once: of two, one would be passed over in silence.

    It writes to none of the files that it reads, and begins no work whose result cannot be written.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Carry the command out; one with ``--no-cache`` finds results on disk, and keeps new ones, without it."""
        if ctx.params.get("no_cache", True):
            return super().invoke(ctx)
        from ...simcore.memo.memo import memoizing, user_store

        with memoizing(user_store()):
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option that is given twice, and a file to be written that is read.

        Raises
        ------
        OSError
            If a file cannot be written as things are now.
        """
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for option, count in Counter(each for each in given if isinstance(each, click.Option)).items():
                if count > 1 and not option.multiple and not option.is_flag and not option.count:
                    raise click.UsageError(f"{option.opts[-1]} is given {count} times", ctx)
        from .options import OutFile  # which the list of commands does without

        rest = super().parse_args(ctx, args)
        written = {each.name for each in self.params if isinstance(each.type, OutFile)}
        read = [value for name, value in ctx.params.items() if name not in written]
        files = [each for value in read for each in (value if isinstance(value, list | tuple) else [value])]
        for path in (ctx.params[name] for name in written if name and ctx.params[name] is not None):
            from ...compiler.text.writing import check_writable
            from ..drawing import of_rank

            if any(_is_same(path, each) for each in files):
                raise click.UsageError(f"{path} is read, and would be lost: write to another file", ctx)
            check_writable(of_rank(path, 0))
        return rest


def _is_same(path: Path, other: object) -> bool:
    """Whether an argument is the file at ``path``, or names something in it, ``FILE::NAME``; a device loses nothing."""
    if not isinstance(other, str | Path) or not path.is_file():
        return False
    with suppress(OSError):  # it is not there
        return os.path.samefile(path, str(other).partition("::")[0])
    return False


@cache
def built(name: str) -> click.Command:
    """Import the module of a command and build it, with its options."""
    module = import_module(f".{VERBS[name].module}", __package__)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name, cls=OneCommand)(getattr(module, VERBS[name].function or name.replace("-", "_")))
    return typer.main.get_command(alone)
