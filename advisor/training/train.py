"""Training of the proposals: from the records of searches to the table, and from the table to the model."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from random import Random
from time import perf_counter

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Counted, EngineMode, OpCase
from ...compiler.planning.build import build_op_plan
from ...compiler.resolve.schedules.from_text import read_choice
from ...compiler.text.writing import check_writable
from ...simcore.memo.codec import encode
from ..candidates.candidate import may_deadlock
from ..estimate.makespan import estimate_ticks
from ..learned.boosted_trees import ModelError, boosted_trees, regressor
from ..learned.model_file import FILE, Card, save
from ..learned.pipeline import (
    PIPELINE,
    EstimateErrors,
    FeatureScale,
    Found,
    names_of_features,
    pair_features,
    pipeline_times,
)
from ..learned.proposal_model import Library, ProposalModel
from ..learned.situation import Situation
from ..learned.structure import Shapes, Structure, catalogue, fitted, structure_of
from . import record as keys
from .build import results_here
from .families import draw
from .record import Record
from .table import ANYWHERE, Labels, LabelTable, Winner

FloatArray = npt.NDArray[np.float64]

# Winners of one scenario: of the fastest plans those with different parts, within this ratio of the best.
NUM_WINNERS, MAX_RATIO = 2, 1.03
MAX_BATCHES = 10
# Structures that are labelled in one scenario: the best by the closed form, those from the nearest situations, others.
NUM_FAST, NUM_NEAR, NUM_OTHERS = 40, 60, 30


def winners_of(record: Record) -> Iterator[Winner]:
    """Yield the structures of the fastest plans of a record by their estimates, which make the labels."""
    scenario = draw(record.seed, record.idx).scenario
    plans = sorted(record.plans, key=lambda plan: plan.estimate_ticks)
    choices = ((read_choice(scenario, plan.expression), plan.estimate_ticks) for plan in plans)
    own = [(choice, ticks) for choice, ticks in choices if not choice.engine.by_library]
    seen = set[object]()
    for choice, ticks in own:
        if len(seen) == NUM_WINNERS or ticks > MAX_RATIO * own[0][1]:
            return
        structure = structure_of(scenario, choice)
        kind = (structure.batches, choice.template, choice.algorithm, structure.pieces)
        if kind not in seen and len(structure.batches) <= MAX_BATCHES:
            seen.add(kind)
            yield Winner(structure, record.idx, scenario.shape.pattern.consumes)


def with_catalogue(winners: Iterable[Winner]) -> tuple[Winner, ...]:
    """Return the winners of searches, each structure once, and the catalogue."""
    found: dict[tuple[Structure, bool], Winner] = {}
    for winner in winners:
        if winner.idx != ANYWHERE:
            found.setdefault((winner.structure, winner.consumes), winner)
    for consumes in (False, True):
        for structure in catalogue(consumes=consumes):
            found.setdefault((structure, consumes), Winner(structure, ANYWHERE, consumes))
    return tuple(found.values())


LIBRARY = EngineMode.LIBRARY.value


def found_by(record: Record) -> Found:
    """Return the times of a record."""
    serial = next(plan for plan in record.plans if plan.expression == record.baseline)
    best = min(plan.ticks for plan in record.plans)
    by_estimate = sorted(record.plans, key=lambda plan: plan.estimate_ticks)
    picked = next(plan for plan in by_estimate if LIBRARY not in plan.expression)
    return Found(picked.estimate_ticks, picked.ticks, best, serial.ticks, serial.estimate_ticks)


def labeller_of(records: Sequence[Record]) -> "Labeller":
    """Return the labeller with the winners of ``records``, which are of one seed."""
    winners = with_catalogue(chain.from_iterable(map(winners_of, records)))
    found = {record.idx: found_by(record) for record in records}
    return _labeller(records[0].seed, winners, found)


def labeller_like(table: LabelTable) -> "Labeller":
    """Return the labeller with the winners of searches that ``table`` has, and the catalogue as it is now."""
    found = {row.idx: row.found for row in table.labels if math.isfinite(row.found.best_ticks)}
    return _labeller(table.seed, with_catalogue(table.winners), found)


def _labeller(seed: int, winners: tuple[Winner, ...], found: Mapping[int, Found]) -> "Labeller":
    won_in = {idx: Situation.of(draw(seed, idx).scenario).values for idx in found}
    anywhere = np.mean(list(won_in.values()), axis=0)
    return Labeller(seed, winners, np.array([won_in.get(winner.idx, anywhere) for winner in winners]), found)


@dataclass(frozen=True, slots=True)
class Labeller:
    """Labels scenarios with some of ``winners``.

    ``origins`` [P, F] are the situations in which they won, ``found`` what searches found by scenario.
    """

    seed: int
    winners: tuple[Winner, ...]
    origins: FloatArray
    found: Mapping[int, Found]

    def labels(self, indices: Sequence[int]) -> list[Labels]:
        """Return the labels of scenarios."""
        kinds = {consumes: self._kind(consumes=consumes) for consumes in (False, True)}
        return [self._labels(idx, kinds) for idx in indices]

    def _kind(self, *, consumes: bool) -> "_Kind":
        numbers = [number for number, winner in enumerate(self.winners) if winner.consumes is consumes]
        winners = [self.winners[number] for number in numbers]
        library = Library(tuple(winner.structure for winner in winners), self.origins[numbers], consumes)
        return _Kind(np.array(numbers, np.int64), np.array([winner.idx for winner in winners]), library)

    def _labels(self, idx: int, kinds: Mapping[bool, "_Kind"]) -> Labels:
        drawn = draw(self.seed, idx)
        situation, consumes = Situation.of(drawn.scenario), drawn.scenario.shape.pattern.consumes
        chosen = kinds[consumes].numbers[self._chosen(idx, situation, kinds[consumes])]
        ticks = np.array(list(_ticks(drawn.scenario, [self.winners[number].structure for number in chosen])))
        return Labels(idx, drawn.family, situation, consumes, self.found.get(idx, Found()), chosen, ticks)

    def _chosen(self, idx: int, situation: Situation, kind: "_Kind") -> list[int]:
        """Return the places in ``kind`` of the winners to label; those of the scenario itself are not among them."""
        others = np.flatnonzero(kind.won_in != idx).tolist()
        times = pipeline_times(situation, kind.library.shapes(situation.num_ranks))
        apart = np.square(FeatureScale.of(self.origins).apart(situation.values, kind.library.origins)).sum(axis=1)
        found = kind.won_in != ANYWHERE
        fast = sorted(others, key=lambda place: times[place])[:NUM_FAST]
        near = sorted((place for place in others if found[place]), key=lambda place: apart[place])[:NUM_NEAR]
        drawn = Random(f"labels {self.seed} {idx}").sample(others, min(NUM_OTHERS, len(others)))
        return list(dict.fromkeys((*fast, *near, *drawn)))


@dataclass(frozen=True, slots=True)
class _Kind:
    """The winners before or after a collective, [P]: their numbers, the scenarios they won in, and their structures."""

    numbers: npt.NDArray[np.int64]
    won_in: npt.NDArray[np.int64]
    library: Library


def _ticks(scenario: OpCase, structures: Sequence[Structure]) -> Iterator[float]:
    """Yield the estimate of each structure, infinite where it does not fit."""
    known: dict[object, float] = {}
    for structure in structures:
        choice = fitted(structure, scenario)
        if choice is None or may_deadlock(choice):
            yield float("inf")
            continue
        if choice not in known:
            known[choice] = estimate_ticks(scenario, build_op_plan(scenario, choice))
        yield known[choice]


# Errors beyond this are outliers, whose size says nothing. Structures that are slower by this share count for 1 / e:
# how well their times are predicted does not matter.
MAX_ERROR, FAR = 0.4, 0.15


# Pairs are many, and the error of the closed form depends on several numbers together.
TREES = {"loss": "squared_error", "max_iter": 80, "learning_rate": 0.17, "max_leaf_nodes": 31, "min_samples_leaf": 30}


def fit_model(table: LabelTable, known: frozenset[int], seed: int = 0) -> ProposalModel:
    """Fit to the labels of the scenarios ``known``; the library has their winners and the catalogue alone.

    Raises
    ------
    ModelError
        If no label is left.
    """
    kept = np.array([winner.idx in known or winner.idx == ANYWHERE for winner in table.winners])
    rows = [labels.among(kept) for labels in table.labels if labels.idx in known]
    rows = [labels for labels in rows if len(labels.winners)]
    if not rows:
        raise ModelError("no structure of the table fits any of its scenarios: make it of more records")
    scale, origins = FeatureScale.of(np.array([labels.situation.values for labels in rows])), table.origins()
    features = np.concatenate([_features(labels, table, origins, scale) for labels in rows])
    times, losses = (np.concatenate([getattr(labels, each) for labels in rows]) for each in ("times", "losses"))
    errors = np.clip(times - features[:, names_of_features(table.names).index(PIPELINE)], -MAX_ERROR, MAX_ERROR)
    trees = boosted_trees(regressor(features, errors, seed, TREES, np.exp(-losses / FAR)))
    before, after = (_library(table, origins, kept, consumes=consumes) for consumes in (False, True))
    return ProposalModel(table.names, before, after, scale, trees, EstimateErrors.of([row.found for row in rows]))


def _features(labels: Labels, table: LabelTable, origins: FloatArray, scale: FeatureScale) -> FloatArray:
    structures = [table.winners[number].structure for number in labels.winners]
    shapes = Shapes.of(structures, labels.situation.num_ranks, consumes=labels.consumes)
    return pair_features(labels.situation, shapes, origins[labels.winners], scale)


def _library(table: LabelTable, origins: FloatArray, kept: npt.NDArray[np.bool_], *, consumes: bool) -> Library:
    some = [number for number, winner in enumerate(table.winners) if kept[number] and winner.consumes is consumes]
    structures = tuple(table.winners[number].structure for number in some)
    return Library(structures, origins[some], consumes)


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
