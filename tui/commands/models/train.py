"""``magus train``: make the table of a store of searches, learn proposals from it, write their model."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ....advisor.corpus.build import records_of
from ....advisor.corpus.keys import engine_version
from ....advisor.corpus.record import Record
from ....advisor.corpus.store import CorpusError, open_store
from ....advisor.learned.boosted_trees import ModelError
from ....advisor.learned.table import LabelTable, load_table, save_table
from ....advisor.learned.train import (
    SHIPPED,
    check_folder,
    make_again,
    make_table,
    proposal_document,
    proposal_text,
    train_on,
)
from ....compiler.ir import Progress
from ....compiler.text.writing import check_writable
from ...exit_codes import Exit
from ...text.door import print_json, put
from ...text.progress import progress_line
from ..console import say_rejection
from ..running import run_command


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """What to learn from: ``table``, made first of the records of ``store`` if there is one, or labelled ``again``."""

    table: Path
    store: Path | None
    again: bool
    out: Path | None
    seed: int
    workers: int


def train_model(request: TrainRequest, *, as_json: bool) -> Exit:
    """Fit the proposals and write their model, by default over the shipped one."""

    def action() -> Exit:
        try:
            with progress_line() as progress:
                table = _table(request, progress)
                progress("fit", 0, 1)
                report = train_on(table, request.out, request.seed)
        except CorpusError as error:
            say_rejection(error.rejection)
            return Exit.INPUT
        if as_json:
            print_json(proposal_document(report))
        else:
            put(proposal_text(report))
        return Exit.DONE

    return run_command(action)


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
