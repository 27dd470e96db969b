"""Why a bespoke plan wins: each of its freedoms is taken away in turn, and the estimate says what that costs."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...compiler.ir import Choice, CopyProtocol, Scenario
from ...compiler.planning.build import reject_choice
from ...compiler.templates.bespoke import Part
from .batches import Batch, Batches, batches_of, only_own, with_batches
from .costs import shares, whole_rows

WORTH_SAYING = 0.005
"""A freedom whose loss costs less than this share of the time is not a reason."""


def why_bespoke(
    scenario: Scenario, choice: Choice, template: Choice, ticks_of: Callable[[Choice], float]
) -> tuple[tuple[str, float], ...]:
    """(what is bespoke about ``choice``, by how much it would be slower without) as shares, the largest first.

    ``template`` is the best with equal chunks, ``ticks_of`` tells what a choice takes. Freedoms are left out that
    cannot be taken away alone.
    """
    now = ticks_of(choice)
    tried = _without(scenario, choice, template)
    legal = ((what, other) for what, other in tried if reject_choice(scenario, other) is None)
    losses = ((what, ticks_of(other) / now - 1) for what, other in legal)
    return tuple(sorted(((what, loss) for what, loss in losses if loss >= WORTH_SAYING), key=lambda one: -one[1]))


def _without(scenario: Scenario, choice: Choice, template: Choice) -> Iterator[tuple[str, Choice]]:
    """The choice without each of its freedoms, as far as it makes use of them."""
    if choice.parts:
        yield from _without_cuts(scenario, choice)
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
        simple = replace(tactics, protocol=CopyProtocol.SIMPLE)
        yield f"engine {choice.engine}", replace(choice, engine=template.engine, lanes=0, tactics=simple)


def _without_cuts(scenario: Scenario, choice: Choice) -> Iterator[tuple[str, Choice]]:
    """The choice without what is bespoke about its batches."""
    whole, batches = whole_rows(scenario), batches_of(choice)
    for what, other in (
        ("own shard as filler", _own_apart(batches, whole, last=scenario.workload.pattern.produces)),
        ("chunks of unequal size", _equal(batches, whole)),
        ("unequal amounts per link", _alike(batches, whole)),
        ("slices of the inner dimension", tuple(replace(batch, slices=()) for batch in batches)),
        ("bands of columns", tuple(replace(batch, columns=()) for batch in batches)),
    ):
        if other != batches:
            yield what, with_batches(choice, other)


def _own_apart(batches: Batches, whole: Part, *, last: bool) -> Batches:
    """The own block in a batch of its own, before or after all others."""
    own = Batch(only_own(whole[0], len(whole)))
    others = tuple(replace(batch, rows=(0, *batch.rows[1:])) for batch in batches if any(batch.rows[1:]))
    return tuple(batch for batch in ((*others, own) if last else (own, *others)) if any(batch.rows))


def _equal(batches: Batches, whole: Part) -> Batches:
    """Every block in equal parts, over the batches that have any of the others' rows; own rows as they are."""
    used = [int(any(batch.rows[1:])) for batch in batches]
    return _with_rows(batches, [shares(rows, used) for rows in whole[1:]])


def _alike(batches: Batches, whole: Part) -> Batches:
    """In each batch the same share of every block; own rows as they are."""
    totals = [sum(batch.rows[1:]) for batch in batches]
    return _with_rows(batches, [shares(rows, totals) for rows in whole[1:]])


def _with_rows(batches: Batches, columns: list[list[int]]) -> Batches:
    """The batches with other rows of the peers."""
    rows = zip(*columns, strict=True)
    return tuple(replace(batch, rows=(batch.rows[0], *each)) for batch, each in zip(batches, rows, strict=True))
