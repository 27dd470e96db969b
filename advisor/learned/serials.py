"""The fastest serial schedules by the estimate, of any algorithm and with all execution options.

Proposals have all of these: over a baseline without them a gain by a protocol, or by a ring on a ring, would look like
overlap.
"""

from itertools import islice, product

from ...compiler.ir import Choice, Scenario
from ...compiler.planning.build import reject_choice
from ...compiler.templates import BASELINE
from ..bespoke.explore_limits import is_explored
from ..candidates.variations import forms_of
from .polish import usual_engines
from .proposal_model import Proposal, estimated
from .screen import Screen

# The empty one is the direct exchange.
ALGORITHMS = ("", "ring", "double_ring")
# Execution options that are estimated: with these, none of 24 drawn scenarios had a faster serial schedule.
NUM_FORMS = 6


def serial_proposals(scenario: Scenario) -> tuple[Proposal, ...]:
    """Return serial schedules with their estimates, the fastest first; at once, as proposals are made."""
    engines = usual_engines(scenario)
    knobs = product(ALGORITHMS, engines)
    bases = (Choice(BASELINE.name, scenario.num_ranks, engine, algorithm=name) for name, engine in knobs)
    legal = (one for one in bases if is_explored(scenario.explore, one) and reject_choice(scenario, one) is None)
    found = {each.choice: each for each in estimated(scenario, legal)}
    fastest: dict[object, Choice] = {}
    for choice in sorted(found, key=lambda choice: found[choice].estimate_ticks):
        fastest.setdefault(choice.engine.kind, choice)
    forms = (form for base in fastest.values() for form in forms_of(scenario, base))
    chosen = islice(Screen.of(scenario).fastest(forms), NUM_FORMS)
    found |= {each.choice: each for each in estimated(scenario, chosen)}
    return tuple(sorted(found.values(), key=lambda each: (each.estimate_ticks, each.schedule.expression)))
