"""The command line: ``magus check | fmt | test | simulate | plan | schedules | advise | train | validate | calibrate |
tui``.

Results go to stdout, progress and diagnostics to stderr. ``--json`` prints one document and nothing else. Exit codes:
0 done, 1 the input is wrong or an expectation failed, 2 usage, 3 no feasible schedule or, with ``--strict``, a profile
that is not validated. Each command imports what it needs when it runs, so that ``magus check`` starts at once.
"""

import logging
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from .commands.interrupts import remembered
from .commands.usage import Commands
from .exit_codes import Exit
from .text.door import has_screen, put, say

DEFAULT_WORKERS = min(4, os.cpu_count() or 1)

app = typer.Typer(
    name="magus",
    cls=Commands,
    help="Which compute/communication overlap schedule to use on a multi-GPU system, and the proof.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Format(StrEnum):
    """How diagnostics are shown."""

    TEXT = "text"
    JSON = "json"


class PlanFormat(StrEnum):
    """How a plan is written."""

    MGS = "mgs"
    JSON = "json"


class Granularity(StrEnum):
    """Size of the unit that is simulated: a cache line, or a packet of 1 KiB."""

    LINE = "line"
    PACKET = "packet"


FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A scenario, FILE.mgs; - reads it from stdin.")]
FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenarios; - is stdin.")]
WorkloadOption = Annotated[
    str | None, typer.Option("--workload", metavar="W", help="Which workload; the first if unsaid.")
]
ScheduleOption = Annotated[
    str | None,
    typer.Option("--schedule", metavar="S", help="A declared name, a template expression or a plan, PLAN.json."),
]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a param of the file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit 3 if the hardware profile is not validated here.")]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes to simulate in.")]


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


@app.command()
def check(
    files: FilesArgument,
    output: Annotated[Format, typer.Option("--format", help="How to show diagnostics.")] = Format.TEXT,
    settings: SetOption = None,
) -> None:
    """Show every error of the files."""
    from .commands.check import check_files

    raise typer.Exit(check_files(files, _bindings(settings), as_json_text=output is Format.JSON))


@app.command()
def fmt(
    files: FilesArgument,
    check_only: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if a file would change.")] = False,
) -> None:
    """Rewrite the files in the one canonical form."""
    from .commands.check import format_files

    raise typer.Exit(format_files(files, check_only=check_only))


@app.command()
def test(
    files: FilesArgument,
    settings: SetOption = None,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
) -> None:
    """Run every ``expect`` of the files."""
    from .commands.run_tests import test_files

    raise typer.Exit(test_files(files, _bindings(settings), workers, as_json_text=json))


@app.command()
def simulate(
    file: FileArgument,
    workload: WorkloadOption = None,
    schedule: ScheduleOption = None,
    granularity: Annotated[Granularity, typer.Option("--granularity", help="What one unit is.")] = Granularity.LINE,
    settings: SetOption = None,
    no_fold: Annotated[bool, typer.Option("--no-fold", help="Simulate every rank, for checking.")] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, metavar="N", help="Draw the variability of the system with N.")
    ] = None,
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=0, max=4096, metavar="N", help="Percentiles over N seeds, from --seed or 0 on."),
    ] = 0,
    record_writes: Annotated[
        Path | None, typer.Option("--record-writes", metavar="CSV", help="Write there what peers write to rank 0.")
    ] = None,
    strict: StrictOption = False,
    json: JsonOption = False,
) -> None:
    """Simulate one schedule: times, traffic and where the losses are."""
    from .commands.simulate import simulate_file

    raise typer.Exit(
        simulate_file(
            file,
            _bindings(settings),
            workload=workload,
            schedule=schedule,
            at_line=granularity is Granularity.LINE,
            fold=not no_fold,
            seed=seed,
            num_seeds=seeds,
            record=record_writes,
            strict=strict,
            as_json_text=json,
        )
    )


@app.command()
def plan(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A scenario, FILE.mgs; - reads it from stdin.")
    ] = None,
    workload: WorkloadOption = None,
    schedule: ScheduleOption = None,
    settings: SetOption = None,
    output: Annotated[PlanFormat, typer.Option("--format", help="The language, or JSON.")] = PlanFormat.MGS,
    out: Annotated[Path | None, typer.Option("-o", metavar="OUT", help="Write there instead of to stdout.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of plans instead.")] = False,
) -> None:
    """Write a schedule out as a plan: every transfer, every kernel, and what each waits for."""
    from .commands.plan import print_plan, print_schema

    if schema:
        raise typer.Exit(print_schema(out))
    if file is None:
        raise typer.BadParameter("which scenario?", param_hint="FILE")
    as_json = output is PlanFormat.JSON
    raise typer.Exit(
        print_plan(file, _bindings(settings), workload=workload, schedule=schedule, as_json_text=as_json, out=out)
    )


@app.command()
def schedules(
    file: FileArgument,
    workload: WorkloadOption = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Show at most N.")] = None,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """List the feasible schedules, with the lower bound on any of them."""
    from .commands.advise import list_schedules

    raise typer.Exit(list_schedules(file, _bindings(settings), workload=workload, limit=limit, as_json_text=json))


@app.command()
def advise(
    file: FileArgument,
    workload: WorkloadOption = None,
    top: Annotated[int, typer.Option("--top", min=1, max=512, metavar="N", help="Simulate the N likeliest.")] = 8,
    bespoke: Annotated[
        int, typer.Option("--bespoke", min=0, max=100_000, metavar="N", help="Try N plans of unequal chunks; 0: none.")
    ] = 400,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Predict only, simulate nothing.")] = False,
    settings: SetOption = None,
    strict: StrictOption = False,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
) -> None:
    """Say which schedule to use, what it gains, and how we know."""
    from .commands.advise import advise_file

    raise typer.Exit(
        advise_file(
            file,
            _bindings(settings),
            workload=workload,
            top=top,
            bespoke=bespoke,
            verify=not no_verify,
            strict=strict,
            as_json_text=json,
            workers=workers,
        )
    )


@app.command()
def train(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where to write; the shipped model if unsaid.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of scenarios and of the learner.")] = 0,
    scenarios: Annotated[int | None, typer.Option("--scenarios", min=10, help="How many random scenarios.")] = None,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
) -> None:
    """Simulate random scenarios, fit the ranker on them and report on unseen ones."""
    from .commands.advise import train_model

    raise typer.Exit(train_model(out, seed=seed, scenarios=scenarios, as_json_text=json, workers=workers))


@app.command()
def validate(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="A folder of measured times, as CSV.")],
    sample: Annotated[
        int, typer.Option("--sample", min=0, metavar="N", help="Simulate N of each kind for each GPU.")
    ] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the sample.")] = 0,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the report there too, as Markdown.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say how far the models are from measurements on real GPUs."""
    from .commands.validate import validate_folder

    raise typer.Exit(validate_folder(data, sample=sample, seed=seed, write=write, as_json_text=json))


@app.command()
def calibrate(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="A folder of measured times, as CSV.")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="The GPU whose rows to fit.")],
    start: Annotated[str, typer.Option("--from", metavar="GPU", help="Start from the constants of this sibling.")] = "",
    sample: Annotated[int, typer.Option("--sample", min=1, metavar="N", help="Fit at most N rows of a kind.")] = 300,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the sample and of what is held out.")] = 0,
    fit_switch: Annotated[
        bool, typer.Option("--fit-switch", help="Fit also where collectives switch to SIMPLE.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the profile there, FILE.mgs.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Refit the constants of a GPU to measured times and write them as a profile."""
    from ..advisor.measured.calibrate.run import Request
    from .commands.calibrate import calibrate_folder

    request = Request(gpu.upper(), start.upper(), sample, seed, fit_switch)
    raise typer.Exit(calibrate_folder(data, request, write=write, as_json_text=json))


@app.command()
def tui(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A scenario, FILE.mgs.")],
    workload: WorkloadOption = None,
    settings: SetOption = None,
) -> None:
    """Browse candidates, timelines and reasons in the terminal."""
    if str(file) == "-" or not has_screen():
        say("magus tui needs a terminal for its keys and its screen; magus advise FILE prints the answer")
        raise typer.Exit(Exit.USAGE)
    from .app.app import MagusApp

    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]  # empty it says nothing, but Textual hears it
    screen = MagusApp(file, tuple(_bindings(settings)), workload, workers=DEFAULT_WORKERS)
    screen.run()
    raise typer.Exit(screen.return_code or Exit.DONE)


def _bindings(settings: list[str] | None) -> list[tuple[str, str]]:
    """``NAME=VALUE`` texts as pairs; a text without ``=`` is a usage error."""
    pairs = []
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise typer.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--set")
        pairs.append((name.strip(), value.strip()))
    return pairs


def main() -> None:
    """Entry point of the console script; no traceback reaches a user unless MAGUS_DEBUG is set."""
    if os.environ.get("MAGUS_DEBUG"):
        logging.basicConfig(level=logging.WARNING)
        logging.getLogger("magus").setLevel(logging.DEBUG)
    pressed = remembered()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        if pressed():  # a library that was being loaded made a fault of its own of it
            sys.exit(Exit.INTERRUPTED)
        if os.environ.get("MAGUS_DEBUG"):
            raise
        say(f"magus: internal error: {type(error).__name__}: {error}")
        say("This is a fault of Magus, not of your file; MAGUS_DEBUG=1 shows where.")
        sys.exit(Exit.INPUT)


if __name__ == "__main__":
    main()
