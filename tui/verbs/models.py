"""Commands on models and measurements: learn, judge, compare, fit."""

from pathlib import Path
from typing import Annotated

import typer

from .options import DEFAULT_WORKERS, MAX_SEED, Count, DataOption, JsonOption, Out, SchedulerOption, WorkersOption


def train(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The table to learn from, an .npz file.")],
    store: Annotated[
        Path | None, typer.Option("--store", metavar="STORE", help="Make the table of the records of this store first.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Estimate what the table has anew first, with the catalogue as it is now.")
    ] = False,
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
    from ..commands.models import TrainRequest, train_model

    if again and store is not None:
        raise typer.BadParameter("a table is made of a store or again, not both", param_hint="--again")
    raise typer.Exit(train_model(TrainRequest(table, store, again, out, seed, workers), as_json=json))


def corpus(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store, an SQLite file; made if there is none.")],
    scenarios: Annotated[int, Count("--scenarios", help="Number of drawn scenarios.")],
    seed: Annotated[int, typer.Option("--seed", min=0, max=MAX_SEED, metavar="N", help="Seed of the scenarios.")] = 0,
    workers: Annotated[int | None, Count("--workers", max=256, help="Processes of this machine.")] = None,
    scheduler: SchedulerOption = None,
    json: JsonOption = False,
) -> None:
    """Search drawn scenarios and keep every simulated plan.

    Asked again, go on from what STORE has.
    """
    from ..commands.models import CorpusRequest, build_store

    if scheduler is not None and workers is not None:
        raise typer.BadParameter("--workers is of this machine; a scheduler has workers of its own")
    request = CorpusRequest(store, scenarios, seed, workers or DEFAULT_WORKERS, scheduler)
    raise typer.Exit(build_store(request, as_json=json))


def evaluate(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The table that proposals are learned from.")],
    limit: Annotated[int, Count("--limit", help="Scenarios of each held-out family.")] = 40,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=MAX_SEED, metavar="N", help="Seed of the sample and of the models.")
    ] = 0,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
) -> None:
    """Judge learned proposals on families that are new to them."""
    from ..commands.models import evaluate_table

    raise typer.Exit(evaluate_table(table, limit=limit, seed=seed, workers=workers, as_json=json))


def validate(
    data: DataOption,
    sample: Annotated[
        int, typer.Option("--sample", min=0, metavar="N", help="Simulate N rows of each kind for each GPU.")
    ] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of the sample.")] = 0,
    write: Annotated[
        Path | None, Out("--write", metavar="FILE", help="Also write the report to this file, as Markdown.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare the models with measurements on real GPUs."""
    from ..commands.models import validate_folder

    raise typer.Exit(validate_folder(data, sample=sample, seed=seed, write=write, as_json=json))


def calibrate(
    data: Annotated[
        Path, typer.Option("--data", metavar="PATH", help="A folder of measured times; for an implementation one file.")
    ],
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="Fit the rows of this GPU.")] = "",
    implementation: Annotated[
        str, typer.Option("--implementation", metavar="NAME", help="Fit the rows of this implementation, as flux.")
    ] = "",
    start: Annotated[str, typer.Option("--from", metavar="GPU", help="Start from the constants of this GPU.")] = "",
    sample: Annotated[int | None, Count("--sample", help="Fit at most N rows of each kind; default: 300.")] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Seed of the sample and of the held-out rows; default: 0."),
    ] = None,
    fit_switch: Annotated[
        bool, typer.Option("--fit-switch", help="Also fit the sizes at which collectives switch to SIMPLE.")
    ] = False,
    write: Annotated[
        Path | None, Out("--write", metavar="FILE", help="Write what was fitted to this file, FILE.mgs.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Fit constants to measured times, and write them as .mgs."""
    from ...advisor.measured.calibrate.run import FitRequest
    from ..commands.models import calibrate_folder, calibrate_rows

    if bool(gpu) == bool(implementation):
        raise typer.BadParameter("name one: --gpu NAME or --implementation NAME")
    if gpu:
        request = FitRequest(gpu.upper(), start.upper(), 300 if sample is None else sample, seed or 0, fit_switch)
        raise typer.Exit(calibrate_folder(data, request, write=write, as_json=json))
    if start or fit_switch or (sample, seed) != (None, None):
        raise typer.BadParameter("--from, --sample, --seed and --fit-switch belong to --gpu")
    raise typer.Exit(calibrate_rows(data, implementation, write=write, as_json=json))
