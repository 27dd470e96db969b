"""Ways to choose a schedule at once: the model, the model without one of its parts, and what is simpler."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...compiler.ir import TICKS_PER_US, Choice, Scenario, Schedule
from ...compiler.planning.build import build_schedule
from ..candidates.predicted import usual_serials
from ..candidates.ranking import library_us
from ..estimate.makespan import estimate_ticks
from .fitting import fit_model
from .polish import polished
from .proposal_model import Library, Proposal, ProposalModel
from .structure import Structure, fitted
from .table import ANYWHERE, LabelTable

FEW = 3
# Least number of labels by which a structure may be the best static one.
MIN_LABELS = 20


@dataclass(frozen=True, slots=True)
class Models:
    """A model fitted without a family, the same without one of its parts, and the best structures for all scenarios."""

    whole: ProposalModel
    without_trees: ProposalModel
    without_winners: ProposalModel
    static: dict[bool, Structure]


Way = Callable[[Models, Scenario], Sequence[Choice]]


def _best(scenario: Scenario, proposals: Sequence[Proposal], count: int = 1) -> list[Choice]:
    """Return the ``count`` fastest by their estimates, the serial schedules among them as in advice."""
    times = {proposal.choice: proposal.estimate_us for proposal in proposals}
    for choice in usual_serials(scenario):
        schedule = build_schedule(scenario, choice)
        by_library = choice.engine.by_library
        times[choice] = library_us(scenario) if by_library else _estimate_us(scenario, schedule)
    return sorted(times, key=lambda choice: times[choice])[:count]


def _estimate_us(scenario: Scenario, schedule: Schedule) -> float:
    return estimate_ticks(scenario, schedule).makespan_ticks / TICKS_PER_US


def _improved(models: Models, scenario: Scenario) -> list[Proposal]:
    proposals = models.whole.propose(scenario)
    return [polished(scenario, proposals[0]), *proposals]


def _static(models: Models, scenario: Scenario) -> list[Choice]:
    choice = fitted(models.static[scenario.workload.pattern.consumes], scenario)
    return list(usual_serials(scenario)[:1]) if choice is None else [choice]


WAYS: tuple[tuple[str, Way], ...] = (
    ("model", lambda models, scenario: _best(scenario, _improved(models, scenario))),
    ("model, 2 simulations", lambda models, scenario: _best(scenario, _improved(models, scenario), 2)),
    ("without small changes", lambda models, scenario: _best(scenario, models.whole.propose(scenario))),
    (f"{FEW} estimates", lambda models, scenario: _best(scenario, models.whole.propose(scenario, FEW))),
    ("without trees", lambda models, scenario: _best(scenario, models.without_trees.propose(scenario))),
    ("without winners", lambda models, scenario: _best(scenario, models.without_winners.propose(scenario))),
    ("best static schedule", _static),
    ("serial", lambda models, scenario: list(usual_serials(scenario)[-1:])),
)


def models_without(table: LabelTable, held_out: frozenset[int], seed: int) -> Models:
    """Return the models that are fitted to all scenarios of ``table`` but those ``held_out``."""
    known = frozenset(labels.idx for labels in table.labels) - held_out
    whole = fit_model(table, known, seed)
    found = {winner.structure for winner in table.winners if winner.idx != ANYWHERE}
    before, after = (
        _without(library, found, consumes=kind) for kind, library in ((False, whole.before), (True, whole.after))
    )
    return Models(
        whole, replace(whole, trees=None), replace(whole, before=before, after=after), _best_static(table, known)
    )


def _without(library: Library, found: set[Structure], *, consumes: bool) -> Library:
    kept = [place for place, structure in enumerate(library.structures) if structure not in found]
    return Library.of(tuple(library.structures[place] for place in kept), library.origins[kept], consumes=consumes)


def _best_static(table: LabelTable, known: frozenset[int]) -> dict[bool, Structure]:
    """Return the structures with the least mean loss over the scenarios that are ``known``, of each direction."""
    losses: dict[int, list[float]] = {}
    everything = np.ones(len(table.winners), np.bool_)
    for labels in table.labels:
        if labels.idx in known:
            fits = labels.among(everything)
            for number, loss in zip(fits.winners.tolist(), fits.losses.tolist(), strict=True):
                losses.setdefault(number, []).append(loss)

    def rank(number: int) -> tuple[bool, float]:
        return len(losses[number]) < MIN_LABELS, float(np.mean(losses[number]))

    best: dict[bool, Structure] = {}
    for number in sorted(losses, key=rank):
        best.setdefault(table.winners[number].consumes, table.winners[number].structure)
    return best
