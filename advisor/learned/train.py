"""Training of the proposals: from the records of searches to the table, and from the table to the model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from time import perf_counter

from ...compiler.ir import Counted
from ...compiler.text.writing import check_writable
from ...simcore.memo.codec import encode
from ..corpus import keys
from ..corpus.families import draw
from ..corpus.record import Record
from ..corpus.searches import results_here
from .boosted_trees import ModelError
from .fitting import fit_model
from .labelling import Labeller, labeller_like, labeller_of
from .model_file import FILE, Card, save
from .pairs import names_of_features
from .situation import Situation
from .table import Labels, LabelTable

SHIPPED = Path(__file__).parent / "model"
# Scenarios that are labelled for each one that was searched.
LABELLED_PER_RECORD = 2
# Scenarios that a process labels at a time: to send it all winners takes longer than to label one.
BATCH = 24


@dataclass(frozen=True, slots=True)
class ProposalReport:
    """Summary of a training of the proposals."""

    card: Card
    seconds: float
    file: Path


def make_table(records: Sequence[Record], workers: int = 1, progress: Counted | None = None) -> LabelTable:
    """Label the scenarios of ``records``, and as many others of their seed as ``LABELLED_PER_RECORD`` says.

    Raises
    ------
    ModelError
        If there is no record, or they are not all of one seed.
    """
    if len({record.seed for record in records}) != 1:
        raise ModelError("a table is made of the records of one seed, and there are none: build them by `magus corpus`")
    labeller = labeller_of(records)
    searched = [record.idx for record in records]
    others = (idx for idx in range(LABELLED_PER_RECORD * len(searched)) if idx not in labeller.found)
    wanted = [*searched, *others][: LABELLED_PER_RECORD * len(searched)]
    return _labelled(labeller, wanted, workers, progress)


def make_again(table: LabelTable, workers: int = 1, progress: Counted | None = None) -> LabelTable:
    """Label the scenarios of ``table`` anew, with the winners it has and the catalogue as it is now.

    Raises
    ------
    ModelError
        If the table is of another simulator or estimate: what its searches found holds no longer.
    """
    check_engine(table)
    return _labelled(labeller_like(table), [labels.idx for labels in table.labels], workers, progress)


def _labelled(labeller: Labeller, wanted: Sequence[int], workers: int, progress: Counted | None) -> LabelTable:
    report = progress or (lambda done, total: None)
    labels: list[Labels] = []
    batches = [wanted[first : first + BATCH] for first in range(0, len(wanted), BATCH)]
    for batch in results_here(workers, labeller.labels, batches):
        labels += batch
        report(len(labels), len(wanted))
    labels.sort(key=lambda each: each.idx)
    return LabelTable(keys.fingerprint(), labeller.seed, labeller.winners, tuple(labels))


def check_engine(table: LabelTable) -> None:
    """Raise ``ModelError`` if ``table`` is of another simulator or estimate."""
    if table.fingerprint != keys.fingerprint():
        raise ModelError("the table is of another simulator or estimate: make it anew of a store, by --store")


def check_current(table: LabelTable) -> None:
    """Raise ``ModelError`` if ``table`` is of another simulator, of another estimate or of other situations."""
    check_engine(table)
    if Situation.of(draw(table.seed, table.labels[0].idx).scenario).names != table.names:
        raise ModelError("the table describes situations by other numbers: label it anew, by --again")


def train_on(table: LabelTable, out: Path | None = None, seed: int = 0) -> ProposalReport:
    """Fit the model to the whole table and write it to ``out``, the shipped one if None.

    Raises
    ------
    ModelError
        If the table is of another version of Magus, or has too few labels.
    OSError
        If the model cannot be written; before it is fitted.
    """
    started = perf_counter()
    check_current(table)
    folder = SHIPPED if out is None else out
    check_folder(folder)
    known = frozenset(labels.idx for labels in table.labels)
    model = fit_model(table, known, seed)
    pairs = sum(len(labels.winners) for labels in table.labels)
    searched = sum(labels.found.best_ticks < float("inf") for labels in table.labels)
    card = Card(fingerprint(table.names), seed, searched, len(table.labels), len(table.winners), pairs)
    save(model, card, folder)
    return ProposalReport(card, perf_counter() - started, folder / FILE)


def check_folder(folder: Path) -> None:
    """Raise the error of writing a model into ``folder`` early, before minutes of work."""
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / FILE)


def proposal_document(report: ProposalReport) -> dict[str, object]:
    """Return the report for ``--json``."""
    return {
        "schema": "magus-train/1",
        **asdict(report.card),
        "seconds": round(report.seconds, 1),
        "file": str(report.file),
    }


def proposal_text(report: ProposalReport) -> str:
    """Return the report for a terminal."""
    card = report.card
    return (
        f"{card.structures} structures of {card.searched} searched scenarios and of the catalogue, {card.pairs} labels "
        f"of {card.labelled} scenarios, {report.seconds:.0f} s\nwritten to {report.file}"
    )


def fingerprint(names: tuple[str, ...]) -> str:
    """Return the hash of what a model depends on: simulator, estimate and the names of situations and features."""
    return sha256(encode((keys.fingerprint(), names, names_of_features(names)))).hexdigest()
