"""Why a bespoke plan wins: each of its freedoms is taken away in turn, and the estimate says what that costs."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...compiler.scenario import Scenario
from ...compiler.schedule import Choice, Protocol
from ...compiler.templates.bespoke import Part, Parts, shortened, spelled
from .costs import shares, whole_rows

WORTH_SAYING = 0.005
"""A freedom whose loss costs less than this share of the time is not a reason."""


def why_bespoke(
    scenario: Scenario, choice: Choice, template: Choice, ticks_of: Callable[[Choice], float]
) -> tuple[tuple[str, float], ...]:
    """(what is bespoke about ``choice``, by how much it would be slower without) as shares, the largest first.

    ``template`` is the best with equal chunks, ``ticks_of`` tells what a choice takes.
    """
    now = ticks_of(choice)
    losses = ((what, ticks_of(other) / now - 1) for what, other in _without(scenario, choice, template))
    return tuple(sorted(((what, loss) for what, loss in losses if loss >= WORTH_SAYING), key=lambda one: -one[1]))


def _without(scenario: Scenario, choice: Choice, template: Choice) -> Iterator[tuple[str, Choice]]:
    """The choice without each of its freedoms, as far as it makes use of them."""
    if choice.parts:
        yield from _without_sizes(scenario, choice)
    if choice.streams > 1:
        yield "kernels side by side", replace(choice, streams=1)
    if choice.lanes:
        yield "an engine for each link", replace(choice, lanes=0)
    if choice.waves > 1:
        yield "several waves in a kernel", replace(choice, waves=1)
    if choice.sums > 1:
        yield "sums side by side", replace(choice, sums=1)
    tactics = choice.tactics
    if tactics.kernel is not template.tactics.kernel:
        usual = replace(tactics, kernel=template.tactics.kernel, wait=template.tactics.wait, per=template.tactics.per)
        yield f"kernel {tactics.kernel.value}", replace(choice, tactics=usual)
    if choice.engine != template.engine:
        # A protocol is for copies by SMs.
        simple = replace(tactics, protocol=Protocol.SIMPLE)
        yield f"engine {choice.engine}", replace(choice, engine=template.engine, lanes=0, tactics=simple)


def _without_sizes(scenario: Scenario, choice: Choice) -> Iterator[tuple[str, Choice]]:
    """The choice without what is bespoke about the sizes of its parts."""
    whole = whole_rows(scenario)
    parts = spelled(choice.parts, scenario.num_ranks)
    for what, other in (
        ("own shard as filler", _own_apart(parts, whole, last=scenario.workload.pattern.sums)),
        ("chunks of unequal size", _equal(parts, whole)),
        ("unequal amounts per link", _alike(parts, whole)),
    ):
        if other != parts:
            yield what, replace(choice, parts=shortened(other))


def _own_apart(parts: Parts, whole: Part, *, last: bool) -> Parts:
    """The own block in a batch of its own, before or after all others."""
    own = (whole[0], *(0,) * (len(whole) - 1))
    others = tuple((0, *part[1:]) for part in parts if any(part[1:]))
    return tuple(part for part in ((*others, own) if last else (own, *others)) if any(part))


def _equal(parts: Parts, whole: Part) -> Parts:
    """Every block in equal parts, over the batches that have any of the others' rows; own rows as they are."""
    used = [int(any(part[1:])) for part in parts]
    columns = [shares(rows, used) for rows in whole[1:]]
    return _joined([part[0] for part in parts], columns)


def _alike(parts: Parts, whole: Part) -> Parts:
    """In each batch the same share of every block; own rows as they are."""
    totals = [sum(part[1:]) for part in parts]
    return _joined([part[0] for part in parts], [shares(rows, totals) for rows in whole[1:]])


def _joined(own: list[int], columns: list[list[int]]) -> Parts:
    return tuple(part for part in zip(own, *columns, strict=True) if any(part))
