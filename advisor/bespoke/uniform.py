"""Templates with equal chunks, at every chunk count that divides: the start of a search, and the plans it must beat."""

from collections.abc import Iterator

from ...compiler.ir import Choice, EngineChoice, Scenario
from ...compiler.planning.build import reject_choice
from ...compiler.planning.knobs.engine import ENGINE
from ...compiler.templates import BY_NAME, TEMPLATES, Template
from ...compiler.templates.bespoke import MAX_PARTS
from ..solver.domains import domains_of, streams_of
from .batches import Batches, batches_of, lengths_of, only_own, whole_batches
from .costs import shares, whole_rows

# Most pieces of a shard; with more, setups of copies and starts of kernels dominate.
MAX_PIECES = 64


def uniform_choices(scenario: Scenario, max_pieces: int = MAX_PIECES) -> tuple[Choice, ...]:
    """Return every legal choice of the explored templates and engines, with up to ``max_pieces`` chunks a rank.

    On a ring ``pipelined`` is included: its algorithms forward blocks instead of sending each over several links.
    """
    engines = domains_of(scenario)[ENGINE]
    return tuple(choice for engine in engines for choice in _with_engine(scenario, engine, max_pieces))


def _with_engine(scenario: Scenario, engine: EngineChoice, max_pieces: int) -> Iterator[Choice]:
    n, explored = scenario.num_ranks, scenario.explore.values("schedules")
    for template, algorithm in _templates_with_algorithms(scenario):
        if explored and template.name not in explored:
            continue
        for pieces in range(1, max_pieces + 1) if template.cuts_shards else (1,):
            for streams in streams_of(template):
                choice = Choice(template.name, n * pieces, engine, streams, algorithm=algorithm)
                if reject_choice(scenario, choice) is None:
                    yield choice


def _templates_with_algorithms(scenario: Scenario) -> Iterator[tuple[Template, str]]:
    """Yield (template, algorithm); the algorithm is empty for the usual one."""
    yield from ((template, "") for template in TEMPLATES)
    algorithms = scenario.system.fabric.topology.algorithms
    if algorithms:
        yield from ((BY_NAME["pipelined"], algorithm) for algorithm in ("", *algorithms))


def as_batches(scenario: Scenario, choice: Choice) -> Batches | None:
    """Return the batches of a plan, None if ``bespoke`` cannot express those of its template."""
    if choice.parts:
        return batches_of(choice)
    whole, lengths = whole_rows(scenario), lengths_of(scenario)
    n, pieces = len(whole), choice.chunks // len(whole)
    remote = list(zip(*(shares(rows, [1] * pieces) for rows in whole[1:]), strict=True))
    own = only_own(whole[0], n)
    match choice.template:
        case "uniform_fused_1d":
            parts = tuple(zip(shares(whole[0], [1] * pieces), *zip(*remote, strict=True), strict=True))
        case "uniform_fused_2d":
            return (lengths.batch(whole, tuple(shares(lengths.cut, [1] * pieces, lengths.step))),)
        case "hetero_fused_1d":
            parts = (own, *((0, *rows) for rows in remote))
        case "hetero_unfused_1d" | "shard_p2p":
            by_peer = [tuple(r * (k == peer) for k, r in enumerate(rows)) for rows in remote for peer in range(n - 1)]
            parts = (own, *((0, *rows) for rows in by_peer))
        case _:
            return None
    batches = whole_batches(parts)
    if len(batches) > MAX_PARTS:
        return None
    return (*batches[1:], batches[0]) if lengths.produces and batches[0].rows == own else batches
