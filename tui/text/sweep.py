"""A sweep as plain text, a line for each point and the rules that follow; and the list of a space."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...advisor.bounds.lower_bound import Bound
from ...advisor.candidates.sensitivity import (
    MAX_LOSS,
    ChangedNumber,
    RobustChoice,
    RoutingDraws,
    Sensitivity,
    spread_of,
)
from ...advisor.policy.sweep import Sweep, block_of
from ...advisor.policy.table import PolicyRule, PolicyTable, SweepPoint
from ...advisor.solver import Space
from ...compiler.ir import TICKS_PER_US, Scenario
from ...compiler.planning.build import expression_of
from ...compiler.text.units import ticks_text
from ...simcore import Result
from .door import VERDICTS, bullet, columns, hanging, table_lines, wrapped
from .ops import ops_lines, question_line, scenario_line


def sweep_text(sweep: Sweep, varied: tuple[str, ...]) -> str:
    """Return the points with the parameters that were ``varied``, the rules, and blocks of schedules of several ops."""
    return "\n".join(_lines(sweep, varied))


def _lines(sweep: Sweep, varied: tuple[str, ...]) -> Iterator[str]:
    first = sweep.points[0].advice.scenario
    yield from wrapped(f"Sizes of the first: {scenario_line(first.case)}" if first.only_case else question_line(first))
    yield ""
    head = (*varied, "verdict", "us", "gain")
    rows = [_row(point, varied) for point in sweep.points]
    yield from table_lines([(head, "schedule"), *rows], words=(len(varied),))
    if sweep.policy is not None and sweep.rules:
        yield ""
        yield from _policy(sweep.policy)
    used = {rule.schedule for rule in sweep.rules} or {point.schedule for point in sweep.points}
    for choice in sweep.schedules:
        block = block_of(choice, first.name) if choice.name in used else None
        if block is not None:
            yield from ("", *block.rstrip().split("\n"))


def _row(point: SweepPoint, varied: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    advice, settings = point.advice, dict(point.settings)
    schedule = advice.name_of(point.schedule)
    if point.offer is not None:
        schedule += f"  + {point.offer.name} {point.offer.promise.speedup:.2f}x"
    values = tuple(settings[name] for name in varied)
    times = (f"{advice.recommended.best_us:.1f}", f"{advice.speedup:.2f}x")
    return (*values, VERDICTS[advice.verdict.value], *times), schedule


def _policy(policy: PolicyTable) -> Iterator[str]:
    how = "simulated" if policy.simulated else "predicted"
    yield from wrapped(f"Rules, the first that matches wins (flips {how}; magus export --to policy writes them):")
    for rule in policy.rules:
        yield from bullet("-", _rule(rule))
    for mark in policy.marks:
        yield from bullet("!", mark)


def _rule(rule: PolicyRule) -> str:
    padded = "padded to " if rule.pad == rule.multiple_of - 1 else ""
    multiples = f", {padded}multiples of {rule.multiple_of:,}" if rule.multiple_of > 1 else ""
    low, high = rule.gain
    gain = f"{low:.2f}x" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}x to {high:.2f}x"
    loss = (
        f", up to {rule.loss:.1%} behind the fastest at {len(rule.sizes)} size{'s' * (len(rule.sizes) > 1)}"
        if rule.loss >= 0.0005
        else ""
    )
    use = f"; {rule.implementation} pays too" if rule.implementation else ""
    sizes = f"{rule.axis} {rule.least:,}..{rule.most:,}{multiples}"
    return f"{sizes}: {rule.schedule}, {VERDICTS[rule.verdict]}, {gain}{loss}{use}"


def space_text(scenario: Scenario, space: Space | None, bound: Bound) -> str:
    """Return the feasible schedules, one per line, their number, and the lower bound with its terms.

    Without a ``space`` a search finds schedules: then the ops are told, and the schedules that the file declares.
    """
    return "\n".join(_space_lines(scenario, space, bound))


def _space_lines(scenario: Scenario, space: Space | None, bound: Bound) -> Iterator[str]:
    yield from wrapped(question_line(scenario))
    yield ""
    yield from ops_lines(scenario) if space is None else _schedules(space)
    yield from wrapped(f"Lower bound {ticks_text(bound.ticks)}, bound by {bound.binding}:")
    for name, ticks, text in bound.terms:
        yield from bullet("*" if name == bound.binding else "-", f"{name} {ticks_text(ticks)}: {text}")
    yield "Assumptions of the bound:"
    for text in bound.assumptions:
        yield from bullet("-", text)


def _schedules(space: Space) -> Iterator[str]:
    shown = space.shown()
    for choice in shown:
        yield from hanging(f"  {expression_of(choice)}", 6)
    yield ""
    yield from wrapped(_count(space, len(shown)))
    for word, values in space.knobs.items():
        yield from bullet("-", f"{word} {', '.join(map(str, values))}")
    yield from _shaped(space)


def _count(space: Space, num_shown: int) -> str:
    """Return the number of schedules, and how many of them are shown."""
    found = len(space.choices)
    if space.size is None and num_shown == found:
        return f"{found:,} feasible schedules (there are more)"
    total = f"more than {found:,}" if space.size is None else f"{space.size:,}"
    shown = "" if num_shown == space.size else f", of which these {num_shown:,} differ most"
    return f"{total} feasible schedules{shown}"


def _shaped(space: Space) -> Iterator[str]:
    """Yield what dominance rules left out, and why requested templates are not feasible."""
    if space.assumed:
        yield from wrapped("Left out by dominance rules; 'dominance off' in explore keeps them:")
    for each in space.assumed:
        yield from bullet("-", f"{each.removed:,} by {each.name}: {each.sentence}")
    if space.absent:
        yield "Requested, but not feasible:"
    for absence in space.absent:
        yield from bullet("-", f"{absence.template}: {'; '.join(absence.reasons)}")


# The sensitivity of an answer to hardware numbers in a few sentences, and times under many seeds.

MAX_SHOWN = 3
"""Schedules that are told one by one, and changes of each; the greatest losses come first."""

_ORDINALS = ("first", "second", "third")


def sensitivity_lines(found: Sensitivity, names: Mapping[str, str]) -> Iterator[str]:
    """Yield whether the answer holds with each hardware number changed, what it loses where not, and what is robust.

    ``names`` are the short ones of some schedules, by their expressions.
    """
    how = "simulated in coarse packets" if found.of_most_felt else "simulated where it is close"
    checked = how if found.simulated else "predicted"
    faster = _by_fastest(found)
    others = len(found.schedules) - 1
    which = (
        f"one of the {len(found.changes)} hardware numbers that its ops feel most is 10% off"
        if found.of_most_felt
        else "any one hardware number is 10% off"
    )
    yield from wrapped(
        f"The answer holds, to {MAX_LOSS:.0%}, against {others} other schedule{'s' * (others != 1)} if {which} "
        f"or a command costs twice as much ({checked}){', except:' if faster else '.'}"
    )
    shown = list(faster)[:MAX_SHOWN]
    for schedule in shown:
        yield from bullet("-", _faster_text(found, schedule, faster[schedule], names))
    if len(faster) > MAX_SHOWN:
        yield from bullet("-", f"{len(faster) - MAX_SHOWN} more schedules are, by less")
    if found.flips:
        pays = "does not pay" if found.overlap_pays else "pays"
        yield from wrapped(f"Overlap {pays} with {_listed(list(map(change_text, found.flips)))}.")
    if found.most_felt is not None:
        ratio = found.most_felt.us[0] / found.us[0] - 1
        yield from wrapped(f"Its time changes most with {change_text(found.most_felt)}: by {ratio:+.1%}.")
    if found.robust is not None:
        yield from wrapped(_robust_text(found, found.robust, shown, names))


def change_text(change: ChangedNumber) -> str:
    """Return a changed number, such as ``dma.setup +10%`` or ``launch x2``."""
    if change.factor >= 1.5:
        return f"{change.name} x{change.factor:g}"
    return f"{change.name} {change.factor - 1:+.0%}"


def _by_fastest(found: Sensitivity) -> dict[int, list[ChangedNumber]]:
    """Return the changes with which the answer does not hold by the schedule that is fastest then, the worst first."""
    faster: dict[int, list[ChangedNumber]] = {}
    for change in found.exceptions:
        faster.setdefault(change.fastest, []).append(change)
    return faster


def _faster_text(found: Sensitivity, schedule: int, changes: Sequence[ChangedNumber], names: Mapping[str, str]) -> str:
    """Return by how much a schedule is faster with changes, and whether that was not simulated for want of runs."""

    def text(change: ChangedNumber) -> str:
        simulated = change.simulated[0] and change.simulated[schedule]
        unsure = " (predicted)" if found.simulated and not simulated else ""
        return f"{change.loss():.1%} with {change_text(change)}{unsure}"

    already = found.us[0] / found.us[schedule] - 1
    given = f"; by {already:.1%} with the numbers as given" if already > 0 else ""
    expression = found.schedules[schedule]
    return f"{names.get(expression, expression)} is faster by {_listed(list(map(text, changes)))}{given}"


def _robust_text(found: Sensitivity, robust: RobustChoice, shown: Sequence[int], names: Mapping[str, str]) -> str:
    """Return which schedule loses least in the worst case, and what it costs; by its place if it is ``shown``."""
    expression = found.schedules[robust.schedule]
    name = names.get(expression, expression)
    if robust.schedule in shown:
        name = "that one" if len(shown) == 1 else f"the {_ORDINALS[shown.index(robust.schedule)]} of these"
    price = f"{abs(robust.price):.1%} {'longer' if robust.price >= 0 else 'less'}"
    return (
        f"More robust is {name}: it loses at most {robust.max_loss:.1%}, the answer up to {robust.answer_max_loss:.1%} "
        f"({change_text(robust.answer_worst)}); with the numbers as given it takes {price}."
    )


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_SHOWN
    return ", ".join(texts[:MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")


_FIGURES: Mapping[str, Callable[[Result], int]] = {
    "makespan": lambda result: result.makespan_ticks,
    "compute": lambda result: result.compute_ticks,
    "exposed": lambda result: result.exposed_ticks,
}
_WIDTH = 10


def seeds_document(seeds: range, results: Sequence[Result], layers: int = 1) -> dict[str, Any]:
    """Return the part of ``magus simulate --json`` that ``--seeds`` adds, times in us; of so many ``layers``."""
    return {
        **({"layers": layers} if layers > 1 else {}),
        "first": seeds.start,
        "count": len(seeds),
        "unit_bytes": results[0].unit_bytes,
        **{f"{name}_us": spread for name, spread in _spreads(results).items()},
    }


def seeds_text(seeds: range, results: Sequence[Result], layers: int = 1, what: str = "") -> str:
    """Return the percentiles as a table, and ``what`` was drawn; of several ``layers`` they are of all together."""
    spreads, of = _spreads(results), f", of {layers} layers" if layers > 1 else ""
    lines = [
        "",
        *wrapped(f"Seeds {seeds.start} to {seeds[-1]}{what}, us{of} (simulated at {results[0].unit_bytes} B):"),
    ]
    return "\n".join([*lines, *_spread_lines(spreads)])


def draws_lines(found: RoutingDraws, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the times of schedules over draws of the routing, and in how many the answer stays."""
    first, many = found.schedules[0], len(found.seeds)
    answer = names.get(first, first)
    if len(found.schedules) > 1:
        stays = "all" if found.stays == many else f"{found.stays} of {many}"
        yield from wrapped(f"Over {many} draws of the routing {answer} stays the answer in {stays}; us:")
    else:
        yield from wrapped(f"Over {many} draws of the routing, us:")
    yield from _spread_lines(
        {names.get(name, name): spread_of(us) for name, us in zip(found.schedules, found.us, strict=True)}
    )


def _spread_lines(spreads: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield a table of the figures of each name."""
    if columns() < 11 + _WIDTH * len(next(iter(spreads.values()))):  # too wide: swap rows and columns
        spreads = {of: {name: each[of] for name, each in spreads.items()} for of in next(iter(spreads.values()))}
    name_width = max(map(len, spreads)) + 1
    yield f"  {'':<{name_width}}" + "".join(f"{name:>{_WIDTH}}" for name in next(iter(spreads.values())))
    for name, spread in spreads.items():
        yield f"  {name:<{name_width}}" + "".join(f"{value:>{_WIDTH}.1f}" for value in spread.values())


def _spreads(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Return the least and largest value and the percentiles of each figure, in us."""
    found = {}
    for name, figure in _FIGURES.items():
        found[name] = spread_of([figure(result) / TICKS_PER_US for result in results])
    return found
