"""The templates with equal chunks, at every chunk count that divides: where a search begins, and what it must beat."""

from collections.abc import Iterator

from ...compiler.ir import Choice, EngineChoice, Scenario
from ...compiler.planning.build import reject_choice
from ...compiler.planning.knobs.engine import ENGINE
from ...compiler.templates import BY_NAME, TEMPLATES, Template
from ...compiler.templates.bespoke import MAX_PARTS
from ..solver.domains import domains_of, streams_of
from .batches import Batches, lengths_of, only_own, whole_batches
from .costs import shares, whole_rows

# A shard in more pieces than this spends its time on the setups of copies and the starts of kernels.
MOST_PIECES = 64


def uniform_choices(scenario: Scenario, most_pieces: int = MOST_PIECES) -> tuple[Choice, ...]:
    """Every legal choice of the explored templates, by the engines to explore, with up to so many chunks a rank.

    On a ring also ``pipelined``, whose algorithms pass blocks on instead of sending each over the links between.
    """
    return tuple(choice for engine in domains_of(scenario)[ENGINE] for choice in _by(scenario, engine, most_pieces))


def _by(scenario: Scenario, engine: EngineChoice, most_pieces: int) -> Iterator[Choice]:
    n, asked = scenario.num_ranks, scenario.explore.values("schedules")
    for template, algorithm in _ways(scenario):
        if asked and template.name not in asked:
            continue
        for pieces in range(1, most_pieces + 1) if template.cuts_shards else (1,):
            for streams in streams_of(template):
                choice = Choice(template.name, n * pieces, engine, streams, algorithm=algorithm)
                if reject_choice(scenario, choice) is None:
                    yield choice


def _ways(scenario: Scenario) -> Iterator[tuple[Template, str]]:
    """Templates with the algorithm of each, empty for the usual one."""
    yield from ((template, "") for template in TEMPLATES)
    algorithms = scenario.system.fabric.topology.algorithms
    if algorithms:
        yield from ((BY_NAME["pipelined"], algorithm) for algorithm in ("", *algorithms))


def as_batches(scenario: Scenario, choice: Choice) -> Batches | None:
    """What a template cuts, None where ``bespoke`` cannot say it."""
    whole, lengths = whole_rows(scenario), lengths_of(scenario)
    n, pieces = len(whole), choice.chunks // len(whole)
    alike = list(zip(*(shares(rows, [1] * pieces) for rows in whole[1:]), strict=True))
    own = only_own(whole[0], n)
    match choice.template:
        case "uniform_fused_1d":
            parts = tuple(zip(shares(whole[0], [1] * pieces), *zip(*alike, strict=True), strict=True))
        case "uniform_fused_2d":
            return (lengths.batch(whole, tuple(shares(lengths.cut, [1] * pieces, lengths.step))),)
        case "hetero_fused_1d":
            parts = (own, *((0, *rows) for rows in alike))
        case "hetero_unfused_1d" | "shard_p2p":
            each = [tuple(r * (k == peer) for k, r in enumerate(rows)) for rows in alike for peer in range(n - 1)]
            parts = (own, *((0, *rows) for rows in each))
        case _:
            return None
    found = whole_batches(parts)
    if len(found) > MAX_PARTS:
        return None
    return (*found[1:], found[0]) if lengths.produces and found[0].rows == own else found
