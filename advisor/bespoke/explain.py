"""Reasons why a bespoke plan wins: the estimated loss without each of its bespoke features."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...compiler.ir import Choice, CopyProtocol, Scenario
from ...compiler.planning.build import reject_choice
from ...compiler.templates.bespoke import Part
from .batches import Batches, RowBatch, batches_of, only_own, with_batches
from .costs import shares, whole_rows

MIN_REPORTED_LOSS = 0.005
"""Least share of the time that a feature must save to be reported."""


def why_bespoke(
    scenario: Scenario, choice: Choice, template: Choice, ticks_of: Callable[[Choice], float]
) -> tuple[tuple[str, float], ...]:
    """Return (bespoke feature of ``choice``, loss without it as a share of the time), the largest loss first.

    ``template`` is the best choice with equal chunks, ``ticks_of`` returns the time of a choice. Features that cannot
    be removed alone are left out.
    """
    ticks = ticks_of(choice)
    removed = _without_features(scenario, choice, template)
    legal = ((feature, other) for feature, other in removed if reject_choice(scenario, other) is None)
    losses = ((feature, ticks_of(other) / ticks - 1) for feature, other in legal)
    reported = ((feature, loss) for feature, loss in losses if loss >= MIN_REPORTED_LOSS)
    return tuple(sorted(reported, key=lambda feature_loss: -feature_loss[1]))


def _without_features(scenario: Scenario, choice: Choice, template: Choice) -> Iterator[tuple[str, Choice]]:
    """Yield (feature, ``choice`` without it) for each feature that ``choice`` uses."""
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
        # Only copies by SMs have a protocol.
        simple = replace(tactics, protocol=CopyProtocol.SIMPLE)
        yield f"engine {choice.engine}", replace(choice, engine=template.engine, lanes=0, tactics=simple)


def _without_cuts(scenario: Scenario, choice: Choice) -> Iterator[tuple[str, Choice]]:
    """Yield (feature, ``choice`` without it) for the features of its batches."""
    whole, batches = whole_rows(scenario), batches_of(choice)
    for feature, other in (
        ("own shard as filler", _with_own_batch(batches, whole, last=scenario.workload.pattern.produces)),
        ("chunks of unequal size", _with_equal_chunks(batches, whole)),
        ("unequal amounts per link", _with_equal_shares(batches, whole)),
        ("slices of the inner dimension", tuple(replace(batch, slices=()) for batch in batches)),
        ("bands of columns", tuple(replace(batch, columns=()) for batch in batches)),
    ):
        if other != batches:
            yield feature, with_batches(choice, other)


def _with_own_batch(batches: Batches, whole: Part, *, last: bool) -> Batches:
    """Put the own block into a batch of its own, before or after all others."""
    own = RowBatch(only_own(whole[0], len(whole)))
    others = tuple(replace(batch, rows=(0, *batch.rows[1:])) for batch in batches if any(batch.rows[1:]))
    return tuple(batch for batch in ((*others, own) if last else (own, *others)) if any(batch.rows))


def _with_equal_chunks(batches: Batches, whole: Part) -> Batches:
    """Divide every remote block equally among the batches with remote rows; keep the own rows."""
    used = [int(any(batch.rows[1:])) for batch in batches]
    return _with_rows(batches, [shares(rows, used) for rows in whole[1:]])


def _with_equal_shares(batches: Batches, whole: Part) -> Batches:
    """Give each batch the same share of every remote block; keep the own rows."""
    totals = [sum(batch.rows[1:]) for batch in batches]
    return _with_rows(batches, [shares(rows, totals) for rows in whole[1:]])


def _with_rows(batches: Batches, columns: list[list[int]]) -> Batches:
    """Replace the rows of the peers."""
    remote = zip(*columns, strict=True)
    return tuple(replace(batch, rows=(batch.rows[0], *rows)) for batch, rows in zip(batches, remote, strict=True))
