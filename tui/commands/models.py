"""``magus validate`` and ``calibrate``: models compared with measured times, and constants fitted to them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...advisor.learned.boosted_trees import ModelError
from ...advisor.measured.calibrate.implementation_run import ImplementationCalibration, calibrate_implementation
from ...advisor.measured.calibrate.run import Calibration, FitRequest, calibrate
from ...advisor.measured.calibrate.text import calibrated_text, calibration_document, calibration_text
from ...advisor.measured.tables.csv_rows import MeasuredError
from ...advisor.measured.validate.report import validate, validation_document
from ...advisor.measured.validate.text import validation_page, validation_text
from ...advisor.training.build import Backend, BuildReport, build_corpus, on_dask, on_this_machine, records_of
from ...advisor.training.evaluate import evaluate, evaluation_document, evaluation_text
from ...advisor.training.record import Record, engine_version
from ...advisor.training.store import open_store
from ...advisor.training.table import LabelTable, load_table, save_table
from ...advisor.training.train import (
    SHIPPED,
    check_folder,
    make_again,
    make_table,
    proposal_document,
    proposal_text,
    train_on,
)
from ...advisor.work.workers import failure_sentences
from ...compiler.ir import Progress
from ...compiler.text.writing import check_writable
from ..text.door import Exit, bullet, hanging, put, put_answer, say
from ..text.progress import duration_text, progress_line
from .inputs import save
from .running import command

Fit = Callable[[Progress], Calibration | ImplementationCalibration]


def calibrate_folder(data: Path, request: FitRequest, *, write: Path | None, as_json: bool) -> Exit:
    """Print the constants of a GPU with their errors on held-out rows, and the profile; write it to ``write``."""
    return _fit_and_write(lambda progress: calibrate(data, request, progress), write, as_json)


def calibrate_rows(data: Path, implementation: str, *, write: Path | None, as_json: bool) -> Exit:
    """Print the constants of an implementation with their errors, and the text that has them; write it to ``write``."""
    return _fit_and_write(lambda progress: calibrate_implementation(data, implementation, progress), write, as_json)


@command
def _fit_and_write(fit: Fit, write: Path | None, as_json: bool) -> Exit:
    try:
        with progress_line() as progress:
            calibration = fit(progress)
    except MeasuredError as error:
        say(f"magus calibrate: {error}")
        return Exit.INPUT
    text = calibrated_text(calibration)
    written = Exit.DONE if write is None else save(write, text, "what was fitted")
    put_answer(calibration_text(calibration), calibration_document(calibration), as_json=as_json)
    if write is None and not as_json:
        put("\n" + text.removesuffix("\n"))
    return written


@command
def validate_folder(data: Path, *, sample: int, seed: int, write: Path | None, as_json: bool) -> Exit:
    """Print errors beside targets, noise and baselines; a missed target is a finding, not a failure."""
    try:
        with progress_line() as progress:
            validation = validate(data, sample=sample, seed=seed, progress=progress)
    except MeasuredError as error:
        say(f"magus validate: {error}")
        return Exit.INPUT
    written = Exit.DONE if write is None else save(write, validation_page(validation), "the report")
    put_answer(validation_text(validation), validation_document(validation), as_json=as_json)
    return written


# ``magus corpus``, ``train`` and ``evaluate``: searches in a store, the model made of them, its scores.


@dataclass(frozen=True, slots=True)
class CorpusRequest:
    """The store to build: the first ``scenarios`` of ``seed``, searched here by ``workers``, or by a dask scheduler."""

    path: Path
    scenarios: int
    seed: int
    workers: int
    scheduler: str | None = None

    def backend(self) -> Backend:
        """Return what searches."""
        return on_this_machine(self.workers) if self.scheduler is None else on_dask(self.scheduler)


@command
def build_store(request: CorpusRequest, *, as_json: bool) -> Exit:
    """Search what the store lacks and print what it then has; also after Ctrl-C."""
    with progress_line() as progress, open_store(request.path, engine_version()) as store:
        report = build_corpus(store, request.seed, request.scenarios, request.backend(), progress)
    put_answer("\n".join(_lines(request, report)), _document(request, report), as_json=as_json)
    if report.interrupted:
        say("magus corpus: stopped; the same command goes on from here")
        return Exit.INTERRUPTED
    return Exit.INPUT if report.failures else Exit.DONE


def _document(request: CorpusRequest, report: BuildReport) -> dict[str, object]:
    return {
        "schema": "magus-corpus/1",
        "store": str(request.path),
        "seed": report.seed,
        "scenarios": report.scenarios,
        "stored": report.stored,
        "new": report.new,
        "failed": len(report.failures),
        "failures": list(failure_sentences(report.failures)),
        "runs": report.runs,
        "patterns": dict(report.patterns),
        "of_other_versions": report.others,
        "seconds": round(report.seconds, 1),
        "per_minute": round(report.per_minute, 2),
        "interrupted": report.interrupted,
    }


def _lines(request: CorpusRequest, report: BuildReport) -> Iterator[str]:
    stored = f"{report.stored} of {report.scenarios} scenarios of seed {report.seed} are stored"
    pace = f", {report.per_minute:.3g} a minute" if report.new else ""
    new = f"{report.new} new in {duration_text(report.seconds)}{pace}"
    failed = f"; {len(report.failures)} failed" if report.failures else ""
    yield from hanging(f"{request.path}: {stored}, {new}{failed}", 2)
    patterns = ", ".join(f"{pattern} {count}" for pattern, count in report.patterns)
    if patterns:
        yield from hanging(f"{report.runs:,} simulated plans; {patterns}", 4, "  ")
    if report.others:
        yield from bullet("!", f"{report.others} more are of other versions of Magus: they stay and are not used")
    for sentence in failure_sentences(report.failures):
        yield from bullet("!", sentence)


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """What to learn from: ``table``, made first of the records of ``store`` if there is one, or labelled ``again``."""

    table: Path
    store: Path | None
    again: bool
    out: Path | None
    seed: int
    workers: int


@command
def train_model(request: TrainRequest, *, as_json: bool) -> Exit:
    """Fit the proposals and write their model, by default over the shipped one."""
    with progress_line() as progress:
        table = _table(request, progress)
        progress("fit", 0, 1)
        report = train_on(table, request.out, request.seed)
    put_answer(proposal_text(report), proposal_document(report), as_json=as_json)
    return Exit.DONE


def _table(request: TrainRequest, progress: Progress) -> LabelTable:
    """Return the table of the file, or make it first and write it."""
    if request.store is None and not request.again:
        return load_table(request.table)
    check_writable(request.table)
    check_folder(request.out or SHIPPED)
    report = partial(progress, "label")
    if request.store is None:
        table = make_again(load_table(request.table), request.workers, report)
    else:
        table = make_table(_records(request.store, request.seed), request.workers, report)
    save_table(table, request.table)
    return table


def _records(path: Path, seed: int) -> list[Record]:
    if not path.exists():  # to open it would make it
        raise ModelError(f"there is no store {path}; make it by `magus corpus`")
    with open_store(path, engine_version()) as store:
        return [record for _, record in records_of(store, seed)]


@command
def evaluate_table(table: Path, *, limit: int, seed: int, workers: int, as_json: bool) -> Exit:
    """Fit a model without each family, simulate what it proposes there, and print the scores."""
    found = load_table(table)
    with progress_line() as progress:
        evaluation = evaluate(found, limit, seed, workers, partial(progress, "evaluate"))
    document = {**evaluation_document(evaluation), "table": str(table), "limit": limit, "seed": seed}
    put_answer(evaluation_text(evaluation), document, as_json=as_json)
    return Exit.DONE
