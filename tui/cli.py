"""The command line: ``magus check | fmt | test | simulate | run | plan | schedules | advise | train | validate |
calibrate | tui``.

Results go to stdout, progress and diagnostics to stderr. ``--json`` prints one document and nothing else. Exit codes:
``exit_codes.py``. Each command imports what it needs when it runs, so that ``magus check`` starts fast.
"""

import logging
import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from .commands.interrupts import watch_interrupts
from .commands.results import keep_results
from .commands.usage import Commands
from .exit_codes import Exit
from .text.door import has_screen, put, say

DEFAULT_WORKERS = min(4, os.cpu_count() or 1)
MAX_SEED = (1 << 31) - 1
"""Largest seed of a corpus: a store has no numbers of any length."""

app = typer.Typer(
    name="magus",
    cls=Commands,
    help="Which compute/communication overlap schedule to use on a multi-GPU system, with the proof.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Format(StrEnum):
    """Format of diagnostics."""

    TEXT = "text"
    JSON = "json"


class PlanFormat(StrEnum):
    """Format of a plan."""

    MGS = "mgs"
    JSON = "json"


class Granularity(StrEnum):
    """Size of a simulated unit: a cache line, or a packet of 1 KiB."""

    LINE = "line"
    PACKET = "packet"


class Processes(StrEnum):
    """Where searches run: in processes of this machine, or by the workers of a dask scheduler."""

    LOCAL = "local"
    DASK = "dask"


FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A scenario, FILE.mgs; - reads it from stdin.")]
FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenarios; - is stdin.")]
WorkloadOption = Annotated[
    str | None, typer.Option("--workload", metavar="W", help="The workload; default: the first.")
]
ScheduleOption = Annotated[
    str | None,
    typer.Option("--schedule", metavar="S", help="A declared name, a template expression or a plan file, PLAN.json."),
]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a param of the file.")]
DataOption = Annotated[Path, typer.Option("--data", metavar="DIR", help="A folder of measured times, as CSV.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit 3 if the profile is not validated for the question.")
]
NoCacheOption = Annotated[
    bool, typer.Option("--no-cache", envvar="MAGUS_NO_CACHE", callback=keep_results, help="Use no results on disk.")
]
WorkersOption = Annotated[
    int, typer.Option("--workers", metavar="N", min=1, max=64, help="Number of threads or processes that simulate.")
]


def _seconds_of(text: str) -> float:
    """Seconds in a time such as ``10s``, ``500 ms``, ``2min``; a number alone is one of seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(ms|s|min|)", text.strip())
    if found is None or not float(found[1]):
        raise typer.BadParameter(
            f"{text!r} is no time above zero; write for instance 10s or 2min", param_hint="--within"
        )
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "min": 60.0, "": 1.0}[found[2]]


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
    output: Annotated[Format, typer.Option("--format", help="Format of diagnostics.")] = Format.TEXT,
    settings: SetOption = None,
) -> None:
    """Show every error and warning of the files."""
    from .commands.check import check_files

    raise typer.Exit(check_files(files, _settings_of(settings), as_json=output is Format.JSON))


@app.command()
def fmt(
    files: FilesArgument,
    check_only: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if a file would change.")] = False,
) -> None:
    """Rewrite the files in the canonical form."""
    from .commands.fmt import format_files

    raise typer.Exit(format_files(files, check_only=check_only))


@app.command()
def test(
    files: FilesArgument,
    settings: SetOption = None,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
    no_cache: NoCacheOption = False,
) -> None:
    """Check every expect block of the files."""
    from .commands.run_tests import test_files

    raise typer.Exit(test_files(files, _settings_of(settings), workers, as_json=json))


@app.command()
def simulate(
    file: FileArgument,
    workload: WorkloadOption = None,
    schedule: ScheduleOption = None,
    granularity: Annotated[
        Granularity, typer.Option("--granularity", help="What is simulated as one unit.")
    ] = Granularity.LINE,
    settings: SetOption = None,
    no_fold: Annotated[
        bool, typer.Option("--no-fold", help="Simulate every rank, not one for all that are alike.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, metavar="N", help="Draw the variability of the system with seed N.")
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", min=0, max=4096, metavar="N", help="Add percentiles over N seeds, from --seed or 0 on."
        ),
    ] = 0,
    record_writes: Annotated[
        Path | None,
        typer.Option("--record-writes", metavar="CSV", help="Write the writes of peers to rank 0 to this file."),
    ] = None,
    strict: StrictOption = False,
    json: JsonOption = False,
    no_cache: NoCacheOption = False,
) -> None:
    """Simulate one schedule: times, traffic and losses."""
    from .commands.inputs import ScenarioInput
    from .commands.simulate import SimulateOptions, simulate_file

    options = SimulateOptions(
        schedule=schedule,
        at_line=granularity is Granularity.LINE,
        fold=not no_fold,
        seed=seed,
        num_seeds=seeds,
        record=record_writes,
        strict=strict,
        as_json=json,
    )
    raise typer.Exit(simulate_file(ScenarioInput(file, _settings_of(settings), workload), options))


@app.command()
def run(
    file: FileArgument,
    workload: WorkloadOption = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            metavar="S",
            help="A declared name, a template expression or a plan file; default: all that the file declares.",
        ),
    ] = None,
    settings: SetOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="The first seed.")] = 0,
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=1, max=4096, metavar="N", help="Carry each schedule out N times, in other orders."),
    ] = 3,
    json: JsonOption = False,
) -> None:
    """Carry schedules out with real data, and compare with the serial result."""
    from .commands.inputs import ScenarioInput
    from .commands.run import run_file

    source = ScenarioInput(file, _settings_of(settings), workload)
    raise typer.Exit(run_file(source, schedule=schedule, seeds=range(seed, seed + seeds), as_json=json))


@app.command()
def plan(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A scenario, FILE.mgs; - reads it from stdin.")
    ] = None,
    workload: WorkloadOption = None,
    schedule: ScheduleOption = None,
    settings: SetOption = None,
    output: Annotated[PlanFormat, typer.Option("--format", help="The language of Magus, or JSON.")] = PlanFormat.MGS,
    out: Annotated[Path | None, typer.Option("-o", metavar="OUT", help="Write to this file, not to stdout.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of plans; needs no FILE.")] = False,
) -> None:
    """Write a schedule as a plan: transfers, kernels, what each waits for."""
    from .commands.inputs import ScenarioInput
    from .commands.plan import print_plan, print_schema

    if schema:
        raise typer.Exit(print_schema(out))
    if file is None:
        raise typer.BadParameter("name a scenario", param_hint="FILE")
    source = ScenarioInput(file, _settings_of(settings), workload)
    raise typer.Exit(print_plan(source, schedule=schedule, as_json=output is PlanFormat.JSON, out=out))


@app.command()
def schedules(
    file: FileArgument,
    workload: WorkloadOption = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="List at most N.")] = None,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """List the feasible schedules and the lower bound on all of them."""
    from .commands.inputs import ScenarioInput
    from .commands.schedules import list_schedules

    source = ScenarioInput(file, _settings_of(settings), workload)
    raise typer.Exit(list_schedules(source, limit=limit, as_json=json))


@app.command()
def advise(
    file: FileArgument,
    workload: WorkloadOption = None,
    top: Annotated[
        int, typer.Option("--top", min=1, max=512, metavar="N", help="Simulate the N schedules ranked best.")
    ] = 8,
    bespoke: Annotated[
        int,
        typer.Option("--bespoke", min=0, max=100_000, metavar="N", help="Search N plans of unequal chunks; 0: none."),
    ] = 400,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Predict times, simulate nothing.")] = False,
    within: Annotated[
        str | None,
        typer.Option("--within", metavar="TIME", help="Answer after this time, such as 10s, as well as found."),
    ] = None,
    threshold: Annotated[
        bool, typer.Option("--threshold", help="Find the rows (M) from which overlap pays; simulates more.")
    ] = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Find hardware numbers that change the answer if they are 10 % off.")
    ] = False,
    settings: SetOption = None,
    strict: StrictOption = False,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
    no_cache: NoCacheOption = False,
) -> None:
    """Recommend a schedule, with its gain and the proof."""
    from ..advisor import AdviceOptions
    from .commands.advise import AdviseOptions, advise_file
    from .commands.inputs import ScenarioInput

    limit_s = None if within is None else _seconds_of(within)
    verify = not no_verify
    advice = AdviceOptions(
        top, verify, bespoke, workers=workers, within_s=limit_s, threshold=threshold, sensitivity=sensitivity
    )
    options = AdviseOptions(advice, strict=strict, as_json=json)
    raise typer.Exit(advise_file(ScenarioInput(file, _settings_of(settings), workload), options))


@app.command()
def train(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The table to learn from, an .npz file.")],
    store: Annotated[
        Path | None, typer.Option("--store", metavar="STORE", help="Make the table of the records of this store first.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for the model; default: the shipped model.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=MAX_SEED, metavar="N", help="Seed of the scenarios and of the training.")
    ] = 0,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
) -> None:
    """Learn from searched scenarios which schedules to propose."""
    from .commands.train import TrainRequest, train_model

    raise typer.Exit(train_model(TrainRequest(table, store, out, seed, workers), as_json=json))


@app.command()
def corpus(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store, an SQLite file; made if there is none.")],
    scenarios: Annotated[int, typer.Option("--scenarios", min=1, metavar="N", help="Number of drawn scenarios.")],
    seed: Annotated[int, typer.Option("--seed", min=0, max=MAX_SEED, metavar="N", help="Seed of the scenarios.")] = 0,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, max=256, help="Processes of this machine.")
    ] = None,
    backend: Annotated[
        Processes, typer.Option("--backend", help="Search on this machine, or by the workers of a dask scheduler.")
    ] = Processes.LOCAL,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="ADDRESS", help="The scheduler, such as tcp://host:8786.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Search drawn scenarios and keep every simulated plan in STORE; asked again, go on from what it has."""
    from .commands.corpus import CorpusRequest, build_store

    if (backend is Processes.DASK) != (scheduler is not None):
        raise typer.BadParameter("--backend dask and --scheduler ADDRESS belong together")
    if scheduler is not None and workers is not None:
        raise typer.BadParameter("--workers is of this machine; a scheduler has workers of its own")
    request = CorpusRequest(store, scenarios, seed, workers or DEFAULT_WORKERS, scheduler)
    raise typer.Exit(build_store(request, as_json=json))


@app.command()
def evaluate(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The table that proposals are learned from.")],
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Scenarios of each held-out family.")] = 40,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=MAX_SEED, metavar="N", help="Seed of the sample and of the models.")
    ] = 0,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
) -> None:
    """Judge learned proposals by simulation, on families of scenarios that they were not fitted to."""
    from .commands.evaluate import evaluate_table

    raise typer.Exit(evaluate_table(table, limit=limit, seed=seed, workers=workers, as_json=json))


@app.command()
def validate(
    data: DataOption,
    sample: Annotated[
        int, typer.Option("--sample", min=0, metavar="N", help="Simulate N rows of each kind for each GPU.")
    ] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of the sample.")] = 0,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Also write the report to this file, as Markdown.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare the models with measurements on real GPUs."""
    from .commands.validate import validate_folder

    raise typer.Exit(validate_folder(data, sample=sample, seed=seed, write=write, as_json=json))


@app.command()
def calibrate(
    data: Annotated[
        Path, typer.Option("--data", metavar="PATH", help="A folder of measured times; for an implementation one file.")
    ],
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="Fit the rows of this GPU.")] = "",
    implementation: Annotated[
        str, typer.Option("--implementation", metavar="NAME", help="Fit the rows of this implementation, as flux.")
    ] = "",
    start: Annotated[str, typer.Option("--from", metavar="GPU", help="Start from the constants of this GPU.")] = "",
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, metavar="N", help="Fit at most N rows of each kind; default: 300.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Seed of the sample and of the held-out rows; default: 0."),
    ] = None,
    fit_switch: Annotated[
        bool, typer.Option("--fit-switch", help="Also fit the sizes at which collectives switch to SIMPLE.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write what was fitted to this file, FILE.mgs.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Fit the constants of a GPU or of an implementation to measured times; write them as .mgs."""
    from ..advisor.measured.calibrate.run import Request
    from .commands.calibrate import calibrate_folder, calibrate_rows

    if bool(gpu) == bool(implementation):
        raise typer.BadParameter("name one: --gpu NAME or --implementation NAME")
    if gpu:
        request = Request(gpu.upper(), start.upper(), 300 if sample is None else sample, seed or 0, fit_switch)
        raise typer.Exit(calibrate_folder(data, request, write=write, as_json=json))
    if start or fit_switch or (sample, seed) != (None, None):
        raise typer.BadParameter("--from, --sample, --seed and --fit-switch belong to --gpu")
    raise typer.Exit(calibrate_rows(data, implementation, write=write, as_json=json))


@app.command()
def tui(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A scenario, FILE.mgs.")],
    workload: WorkloadOption = None,
    settings: SetOption = None,
    no_cache: NoCacheOption = False,
) -> None:
    """Browse candidates, timelines and reasons in the terminal."""
    if str(file) == "-" or not has_screen():
        say("magus tui needs a terminal; use magus advise FILE to print the answer")
        raise typer.Exit(Exit.USAGE)
    from .app.app import MagusApp
    from .app.background import wait_for_threads

    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]  # empty means unset (no-color.org), but Textual obeys it
    screen = MagusApp(file, _settings_of(settings), workload, workers=DEFAULT_WORKERS)
    try:
        screen.run()
    finally:
        wait_for_threads()
    raise typer.Exit(screen.return_code or Exit.DONE)


def _settings_of(texts: list[str] | None) -> tuple[tuple[str, str], ...]:
    """Pairs of name and value from texts ``NAME=VALUE``; a text without ``=`` is a usage error."""
    pairs = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise typer.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--set")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


def main() -> None:
    """Entry point of the console script; users see a traceback only if MAGUS_DEBUG is set."""
    if os.environ.get("MAGUS_DEBUG"):
        logging.basicConfig(level=logging.WARNING)
        logging.getLogger("magus").setLevel(logging.DEBUG)
    pressed = watch_interrupts()
    try:
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


if __name__ == "__main__":
    main()
