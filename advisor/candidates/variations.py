"""Other ways to carry out the schedules that won: what the ranker does not know, and a few simulations show."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

from ...compiler.ir import Choice, CopyProtocol, Direction, EngineKind, Kernels, LaunchMode, PeerOrder, Scenario, Wait
from ...compiler.planning.build import reject_choice
from ...compiler.planning.expression import expression_of
from .advice import Candidate

# Of how many schedules that overlap other ways are tried, and how many ways in all.
VARIED, MOST_WAYS = 2, 4

Word = TypeVar("Word")


def other_ways(scenario: Scenario, candidates: Sequence[Candidate]) -> list[Choice]:
    """The fastest schedules with one knob changed each, what promises most first; at most ``MOST_WAYS``.

    ``candidates`` are in the order of their times. Of a knob that the file names in its ``explore`` block only those
    values are tried. The baseline stays what a user has today, but for graphs, where the file asks for them: they make
    every schedule quicker, and would look like overlap.
    """
    known, found = {candidate.expression for candidate in candidates}, dict[str, Choice]()
    for way in _ways(scenario, candidates):
        expression = expression_of(way)
        if expression not in known and reject_choice(scenario, way) is None:
            found.setdefault(expression, way)
    return list(islice(found.values(), MOST_WAYS))


def _ways(scenario: Scenario, candidates: Sequence[Candidate]) -> Iterator[Choice]:
    """Each change of all schedules before the next change."""
    simulated = [each for each in candidates if each.simulated_ticks is not None]
    overlapping = [each.choice for each in simulated if not each.is_serial and each.choice is not None][:VARIED]
    serial = [each.choice for each in simulated if each.is_serial and each.choice is not None][:1]
    for change in CHANGES:
        changed = (change(scenario, base) for base in (*overlapping, *(serial if change is _graph else ())))
        yield from (way for way in changed if way is not None)


def _graph(scenario: Scenario, base: Choice) -> Choice | None:
    if LaunchMode.GRAPH not in scenario.explore.values("launch") or scenario.gpu.sync.graph_launch_ticks is None:
        return None
    return replace(base, tactics=replace(base.tactics, launch=LaunchMode.GRAPH))


def _persistent(scenario: Scenario, base: Choice) -> Choice | None:
    explore = scenario.explore
    wait = next((wait for wait in (Wait.POLL, Wait.MONITOR) if wait in (explore.values("wait") or (Wait.POLL,))), None)
    if wait is None or not scenario.workload.may_persist or not _may(explore.values("kernel"), Kernels.PERSISTENT):
        return None
    return replace(base, tactics=replace(base.tactics, kernel=Kernels.PERSISTENT, wait=wait))


def _protocol(protocol: CopyProtocol, scenario: Scenario, base: Choice) -> Choice | None:
    if base.engine.kind is not EngineKind.SM or not _may(scenario.explore.values("protocol"), protocol):
        return None
    return replace(base, tactics=replace(base.tactics, protocol=protocol))


def _get(scenario: Scenario, base: Choice) -> Choice | None:
    """By SMs: that a get by a copy engine gains nothing is a dominance rule."""
    worth = base.engine.kind is EngineKind.SM or not scenario.explore.dominance
    if not worth or not _may(scenario.explore.values("transfer"), Direction.GET):
        return None
    return replace(base, tactics=replace(base.tactics, direction=Direction.GET))


def _order(order: PeerOrder, scenario: Scenario, base: Choice) -> Choice | None:
    return replace(base, order=order) if _may(scenario.explore.values("order"), order) else None


def _may(asked: tuple[Word, ...], value: Word) -> bool:
    """Whether a file that asks for these values of a knob, or for none, leaves this one to be tried."""
    return not asked or value in asked


CHANGES: tuple[Callable[[Scenario, Choice], Choice | None], ...] = (
    _graph,
    _persistent,
    partial(_order, PeerOrder.LARGE_FIRST),
    partial(_order, PeerOrder.SMALL_FIRST),
    partial(_protocol, CopyProtocol.LL128),
    _get,
    partial(_protocol, CopyProtocol.LL),
)
