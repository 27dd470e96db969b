"""Variants of the fastest schedules with knobs that the ranker does not model; a few simulations rate them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

from ...compiler.ir import Choice, CopyProtocol, Direction, EngineKind, Kernels, LaunchMode, PeerOrder, Scenario, Wait
from ...compiler.planning.build import reject_choice
from ...compiler.planning.expression import expression_of
from .advice import Candidate

# Overlapping schedules that are varied, and variants that are tried in all.
NUM_VARIED, MAX_VARIANTS = 2, 4

Word = TypeVar("Word")


def single_change_variants(scenario: Scenario, candidates: Sequence[Candidate]) -> list[Choice]:
    """Return the fastest schedules with one knob changed, the most promising first; at most ``MAX_VARIANTS``.

    ``candidates`` are in the order of their times. Of a knob that the ``explore`` block names, only the named values
    are tried. The baseline is not varied, except by graphs if the file explores them: they make every schedule
    quicker, and beside a baseline without them that would look like overlap.
    """
    known, new = {candidate.expression for candidate in candidates}, dict[str, Choice]()
    for choice in _changed(scenario, candidates):
        expression = expression_of(choice)
        if expression not in known and reject_choice(scenario, choice) is None:
            new.setdefault(expression, choice)
    return list(islice(new.values(), MAX_VARIANTS))


def _changed(scenario: Scenario, candidates: Sequence[Candidate]) -> Iterator[Choice]:
    """Yield each change for all schedules before the next change."""
    simulated = [candidate for candidate in candidates if candidate.simulated_ticks is not None]
    overlapping = [one.choice for one in simulated if not one.is_serial and one.choice is not None][:NUM_VARIED]
    serial = [one.choice for one in simulated if one.is_serial and one.choice is not None]
    serial = [*serial[:1], *(choice for choice in serial[1:] if choice.engine.by_library)]
    for change in CHANGES:
        changed = (change(scenario, base) for base in (*overlapping, *(serial if change is _graph else ())))
        yield from (choice for choice in changed if choice is not None)


def _graph(scenario: Scenario, base: Choice) -> Choice | None:
    if LaunchMode.GRAPH not in scenario.explore.values("launch") or scenario.gpu.sync.graph_launch_ticks is None:
        return None
    return replace(base, tactics=replace(base.tactics, launch=LaunchMode.GRAPH))


def _persistent(scenario: Scenario, base: Choice) -> Choice | None:
    explore = scenario.explore
    wait = next((wait for wait in (Wait.POLL, Wait.MONITOR) if wait in (explore.values("wait") or (Wait.POLL,))), None)
    if wait is None or not scenario.workload.may_persist or not _explores(explore.values("kernel"), Kernels.PERSISTENT):
        return None
    return replace(base, tactics=replace(base.tactics, kernel=Kernels.PERSISTENT, wait=wait))


def _protocol(protocol: CopyProtocol, scenario: Scenario, base: Choice) -> Choice | None:
    if base.engine.kind is not EngineKind.SM or not _explores(scenario.explore.values("protocol"), protocol):
        return None
    return replace(base, tactics=replace(base.tactics, protocol=protocol))


def _get(scenario: Scenario, base: Choice) -> Choice | None:
    """Get instead of put, by SMs alone: that a get by a copy engine gains nothing is a dominance rule."""
    may_gain = base.engine.kind is EngineKind.SM or not scenario.explore.dominance
    if not may_gain or not _explores(scenario.explore.values("transfer"), Direction.GET):
        return None
    return replace(base, tactics=replace(base.tactics, direction=Direction.GET))


def _order(order: PeerOrder, scenario: Scenario, base: Choice) -> Choice | None:
    return replace(base, order=order) if _explores(scenario.explore.values("order"), order) else None


def _explores(explored: tuple[Word, ...], value: Word) -> bool:
    """Whether ``value`` may be tried: the file names it, or no value of the knob."""
    return not explored or value in explored


# In the order of what they promise; each returns None if it does not apply.
CHANGES: tuple[Callable[[Scenario, Choice], Choice | None], ...] = (
    _graph,
    _persistent,
    partial(_order, PeerOrder.LARGE_FIRST),
    partial(_order, PeerOrder.SMALL_FIRST),
    partial(_protocol, CopyProtocol.LL128),
    _get,
    partial(_protocol, CopyProtocol.LL),
)
