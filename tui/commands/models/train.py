"""``magus train``: make the table of a store of searches, learn proposals from it, write their model."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ....advisor.corpus.build import records_of
from ....advisor.corpus.errors import CorpusError
from ....advisor.corpus.keys import engine_version
from ....advisor.corpus.store import open_store
from ....advisor.learned.boosted_trees import ModelError
from ....advisor.learned.table import LabelTable, load_table, save_table
from ....advisor.learned.train import SHIPPED, check_folder, make_table, proposal_document, proposal_text, train_on
from ....compiler.ir import Progress
from ....compiler.text.writing import check_writable
from ...exit_codes import Exit
from ...text.door import print_json, put
from ...text.progress import progress_line
from ..console import say_rejection
from ..running import run_command


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """What to learn from: ``table``, which is made of the records of ``store`` first if there is one."""

    table: Path
    store: Path | None
    out: Path | None
    seed: int
    workers: int


def train_model(request: TrainRequest, *, as_json: bool) -> Exit:
    """Fit the proposals and write their model, by default over the shipped one."""

    def action() -> Exit:
        try:
            with progress_line() as progress:
                table = load_table(request.table) if request.store is None else _labelled(request, progress)
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


def _labelled(request: TrainRequest, progress: Progress) -> LabelTable:
    """Return the table of the store, and write it."""
    check_writable(request.table)
    check_folder(request.out or SHIPPED)
    assert request.store is not None, "asked for"
    if not request.store.exists():  # to open it would make it
        raise ModelError(f"there is no store {request.store}; make it by `magus corpus`")
    with open_store(request.store, engine_version()) as store:
        records = [record for _, record in records_of(store, request.seed)]
    table = make_table(records, request.workers, partial(progress, "label"))
    save_table(table, request.table)
    return table
