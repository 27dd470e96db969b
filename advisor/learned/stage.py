"""Proposals as candidates of advice."""

import math
from collections.abc import Sequence

from ...compiler.ir import Scenario, ShouldStop
from ...compiler.ir.stopping import never
from ..bespoke import Proposer
from ..candidates.candidate import Candidate, ScheduleOrigin, SearchProvenance
from ..candidates.predicted import origin_of
from .errors import EstimateErrors
from .polish import DEFAULT_EVALUATIONS, polished
from .proposal_model import Proposal, ProposalModel
from .serials import serial_proposals


def proposed_candidates(
    scenario: Scenario, model: ProposalModel, changes: int = DEFAULT_EVALUATIONS, late: ShouldStop = never
) -> list[Candidate]:
    """Return the proposals of ``model`` with their estimates, the fastest first, and what small ``changes`` make of it.

    Those that need more memory for staging than the file allows are left out. Once it is ``late`` there are some, and
    they are what was found until then.
    """
    proposals = model.propose(scenario, late=late)
    evaluations = len(proposals)
    if proposals and not late():
        better = polished(scenario, proposals[0], changes, late=late)
        proposals = tuple({each.choice: each for each in (better, *proposals)}.values())
        evaluations += changes
    return _candidates(scenario, proposals, evaluations, model.errors)


def serial_candidates(scenario: Scenario, model: ProposalModel) -> list[Candidate]:
    """Return the fastest serial schedule by its estimate, and with the usual options: baselines without simulation."""
    proposals = serial_proposals(scenario)
    found = _candidates(scenario, proposals, len(proposals), model.errors)
    usual = [candidate for candidate in found if candidate.has_usual_options]
    return list(dict.fromkeys((*found[:1], *usual[:1])))


def _candidates(
    scenario: Scenario, proposals: Sequence[Proposal], evaluations: int, errors: EstimateErrors
) -> list[Candidate]:
    limit = scenario.explore.staging_limit_bytes
    return [
        _candidate(scenario, proposal, evaluations, errors)
        for proposal in proposals
        if limit is None or proposal.schedule.staging_bytes <= limit
    ]


def _candidate(scenario: Scenario, proposal: Proposal, evaluations: int, errors: EstimateErrors) -> Candidate:
    choice = proposal.choice
    provenance = SearchProvenance(
        found_by=Proposer.LEARNED.value, seed=0, evaluations=evaluations, simulations=0, reproducible=True, solver=""
    )
    low, high = (proposal.estimate_us * math.exp(each) for each in errors.time)
    return Candidate(
        proposal.schedule.expression,
        choice,
        proposal.schedule,
        origin_of(scenario, choice, ScheduleOrigin.BESPOKE if choice.parts else ScheduleOrigin.PROPOSED),
        proposal.estimate_us,
        provenance=provenance if choice.parts else None,
        interval_us=(low, high),
        gain_error=math.exp(max(map(abs, errors.gain))) - 1,
    )
