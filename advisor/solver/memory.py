"""Staging memory of a choice without building its plan."""

from dataclasses import replace

from ...compiler.ir import Choice, Scenario
from ...compiler.planning.build import build_schedule, pieces_of, reject_choice
from ...compiler.planning.staging import slices_inner, staging_bytes
from ...compiler.templates import BY_NAME, Template
from ...compiler.templates.serving import GATHERS


def staging_needed(scenario: Scenario, choice: Choice) -> int:
    """Staging memory of a rank in bytes.

    Algorithms differ in what they put down to be summed, which does not depend on the cut; what is gathered needs less
    where not all pieces are held.
    """
    template = BY_NAME[choice.template]
    whole = staging_bytes(scenario, slices_inner=slices_inner(scenario, template))
    if scenario.workload.pattern.sums and template.default_algorithm:
        uncut = replace(choice, chunks=least_chunks(scenario, template))
        return build_schedule(scenario, uncut).staging_bytes if reject_choice(scenario, uncut) is None else whole
    pieces = pieces_of(choice.chunks, scenario.num_ranks, template)
    if scenario.workload.pattern not in GATHERS or not 0 < choice.depth < pieces:
        return whole
    gathered = staging_bytes(scenario, slices_inner=False)
    return whole - gathered * (pieces - choice.depth) // pieces


def least_chunks(scenario: Scenario, template: Template) -> int:
    """The fewest chunks that a template may cut the tensor into."""
    return scenario.num_ranks * (template.min_pieces if template.cuts_shards else 1)
