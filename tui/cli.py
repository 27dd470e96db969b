"""The command line, ``magus COMMAND``; ``magus --help`` lists the commands.

Results go to stdout, progress and diagnostics to stderr. ``--json`` prints one document and nothing else. Exit codes:
``text/door.py``. Each command is a function in ``verbs``, imported and built when it is asked for, so that none waits
for the options of others, and imports what it needs when it runs, so that ``magus check`` starts fast. A new one has a
line in ``VERBS``, with the first line of its help.

Python writes the methods of a dataclass as text, and compiles that in each process, which takes half of a short
command. The commands keep what comes of it beside the bytecode of this module, by its text; where Python keeps no
bytecode, nothing is kept either.
"""

import dataclasses
import gc
import io
import marshal
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import CodeType
from typing import Annotated, Any
from zlib import crc32

import click
import typer
import typer.core
from typer.utils import get_params_from_function

from .. import __version__
from ..compiler.text.diagnostics import did_you_mean
from .text.door import Exit, put, say, turn_off, watch_interrupts


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: the ``module`` of ``verbs`` that defines it, the first line of its ``help``, and its function.

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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that ``args`` name, and the rest; of one that is not there, say which it is like."""
        named = args[0]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = "" if named.startswith("-") else did_you_mean(named, VERBS)
            if not meant:
                raise
            raise click.UsageError(f"{error.message.removesuffix('.')}; {meant}", ctx) from None

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

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: typer lists arguments with the options, and click does from 8.5 on too."""

    def invoke(self, ctx: click.Context) -> Any:
        """Carry the command out; one with ``--no-cache`` finds results on disk, and keeps new ones, without it."""
        if ctx.params.get("no_cache", True):
            return super().invoke(ctx)
        from ..simcore.memo.memo import memoizing, user_store

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
        from .verbs.options import OutFile  # which the list of commands does without

        rest = super().parse_args(ctx, args)
        written = {each.name for each in self.params if isinstance(each.type, OutFile)}
        read = [value for name, value in ctx.params.items() if name not in written]
        files = [each for value in read for each in (value if isinstance(value, list | tuple) else [value])]
        for path in (ctx.params[name] for name in written if name and ctx.params[name] is not None):
            from ..compiler.text.writing import check_writable
            from .drawing import of_rank

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
    module = import_module(f".verbs.{VERBS[name].module}", __package__)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    function = getattr(module, VERBS[name].function or name.replace("-", "_"))
    alone.command(name, cls=OneCommand)(function)
    command, known = typer.main.get_command(alone), get_params_from_function(function)
    for each in command.params:
        if isinstance(each, typer.core.TyperArgument):  # whose help click empties from 8.5 on
            each.help = known[each.name or ""].default.help
    return command


MAX_TEXTS = 20_000
"""Methods that are kept; where there are more, all are compiled again, and those of classes that are no more go."""


@contextmanager
def kept_classes(path: Path) -> Iterator[None]:
    """Take the code of dataclasses that are made in the block from ``path``, and keep there what is new."""
    known = _kept(path)
    num_known = len(known)

    def run(text: str, module: dict[str, object], names: dict[str, object]) -> None:
        code = known.get(text)
        if code is None:
            code = known[text] = compile(text, "<string>", "exec", dont_inherit=True)
        exec(code, module, names)

    of_module = vars(dataclasses)
    of_module["exec"] = run  # which is looked for there before the function of Python
    try:
        yield
    finally:
        del of_module["exec"]
        if len(known) > num_known and not sys.dont_write_bytecode:
            _keep(path, known)


def _kept(path: Path) -> dict[str, CodeType]:
    """Return what is kept; nothing if it is of another Python, or not as it was written."""
    size = len(MAGIC_NUMBER)
    try:
        kept = path.read_bytes()
        magic, check, data = kept[:size], kept[size : size + 4], kept[size + 4 :]
        known: dict[str, CodeType] = marshal.loads(data) if (magic, check) == (MAGIC_NUMBER, _checksum(data)) else {}
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    return known if len(known) <= MAX_TEXTS else {}


def _keep(path: Path, known: dict[str, CodeType]) -> None:
    """Keep ``known``, unless it cannot be written."""
    from ..compiler.text.writing import replace_whole  # which makes no dataclass before its code is looked for

    data = marshal.dumps(known)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(path, MAGIC_NUMBER + _checksum(data) + data)


def _checksum(data: bytes) -> bytes:
    return crc32(data).to_bytes(4, "big")


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
        with kept_classes(Path(cache_from_source(__file__)).with_suffix(".classes")):
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
