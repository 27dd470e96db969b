"""Ways to choose a schedule at once: the model, the model without one of its parts, and what is simpler."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ....compiler.ir import Choice, Scenario
from ...candidates.predicted import usual_serials
from ..fitting import fit_model
from ..polish import DEFAULT_EVALUATIONS, MANY_EVALUATIONS, polished
from ..proposal_model import LEAST, Library, Proposal, ProposalModel
from ..serials import serial_proposals
from ..structure import Structure
from ..table import ANYWHERE, LabelTable
from .baselines import (
    best_static,
    closed_form,
    drawn,
    first_legal,
    nearest,
    or_serial,
    predicted_ticks,
    roofline,
)


@dataclass(frozen=True, slots=True)
class Models:
    """A model and what it is compared with.

    ``without_trees`` and ``without_winners`` lack one of its parts, ``winners_alone`` the catalogue. ``static`` are the
    best structures for all scenarios, of each direction; ``seed`` is that of the random choice.
    """

    whole: ProposalModel
    without_trees: ProposalModel
    without_winners: ProposalModel
    winners_alone: ProposalModel
    static: dict[bool, Structure]
    seed: int


Way = Callable[[Models, Scenario], Sequence[Choice]]


def _best(scenario: Scenario, proposals: Sequence[Proposal], count: int = 1) -> list[Choice]:
    """Return the ``count`` fastest by their estimates, the usual serial schedules among them as in advice."""
    times = {choice: predicted_ticks(scenario, choice) for choice in usual_serials(scenario)}
    times |= {proposal.choice: proposal.estimate_ticks for proposal in proposals}
    return sorted(times, key=lambda choice: times[choice])[:count]


def _improved(
    model: ProposalModel, scenario: Scenario, count: int = 1, evaluations: int = DEFAULT_EVALUATIONS
) -> list[Choice]:
    """Return the ``count`` fastest of the proposals, of small changes of the first, and of serial schedules.

    As in advice: without small changes where there are no ``evaluations`` of them.
    """
    proposals = model.propose(scenario)
    changed = [polished(scenario, proposal, evaluations) for proposal in proposals[:1]]
    return _best(scenario, [*changed, *proposals, *serial_proposals(scenario)], count)


def _static(models: Models, scenario: Scenario) -> Choice | None:
    return first_legal([models.static[scenario.workload.pattern.consumes]], scenario)


def _simple(pick: Callable[[Models, Scenario], Choice | None]) -> Way:
    return lambda models, scenario: [or_serial(scenario, pick(models, scenario))]


MODEL = "model"
# A way without a part has all other parts of the model.
WAYS: dict[str, Way] = {
    MODEL: lambda models, scenario: _improved(models.whole, scenario),
    "model, 2 simulations": lambda models, scenario: _improved(models.whole, scenario, 2, MANY_EVALUATIONS),
    "without small changes": lambda models, scenario: _improved(models.whole, scenario, evaluations=0),
    "without trees": lambda models, scenario: _improved(models.without_trees, scenario),
    "without winners": lambda models, scenario: _improved(models.without_winners, scenario),
    f"{LEAST} estimates": lambda models, scenario: _best(scenario, models.whole.propose(scenario, LEAST)),
    "nearest neighbour": _simple(lambda models, scenario: nearest(models.winners_alone, scenario)),
    "closed form": _simple(lambda models, scenario: closed_form(models.without_trees, scenario)),
    "roofline": _simple(lambda models, scenario: roofline(scenario)),
    "best static schedule": _simple(_static),
    "random": _simple(lambda models, scenario: drawn(models.whole, scenario, models.seed)),
    "serial": lambda models, scenario: list(usual_serials(scenario)[-1:]),
}


def models_without(table: LabelTable, held_out: frozenset[int], seed: int) -> Models:
    """Return the models that are fitted to all scenarios of ``table`` but those ``held_out``."""
    known = frozenset(labels.idx for labels in table.labels) - held_out
    return models_of(fit_model(table, known, seed), table, best_static(table, known, seed), seed)


def models_of(whole: ProposalModel, table: LabelTable, static: dict[bool, Structure], seed: int) -> Models:
    """Return a model that was fitted to scenarios of ``table``, and what it is compared with."""
    found = {(winner.structure, winner.consumes) for winner in table.winners if winner.idx != ANYWHERE}
    without_winners, winners_alone = (
        replace(
            whole,
            before=_part(whole.before, found, won=won, consumes=False),
            after=_part(whole.after, found, won=won, consumes=True),
        )
        for won in (False, True)
    )
    return Models(whole, replace(whole, trees=None), without_winners, winners_alone, static, seed)


def _part(library: Library, found: set[tuple[Structure, bool]], *, won: bool, consumes: bool) -> Library:
    """Return the structures of ``library`` that searches found, or all others."""
    structures = library.structures
    kept = [place for place, structure in enumerate(structures) if ((structure, consumes) in found) is won]
    return Library(tuple(structures[place] for place in kept), library.origins[kept], consumes=consumes)
