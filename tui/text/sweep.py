"""A sweep as plain text, a line for each point and the rules that follow; and the list of a space."""

from collections.abc import Iterator

from ...advisor.bounds.lower_bound import Bound
from ...advisor.policy.sweep import Sweep, block_of
from ...advisor.policy.table import PolicyRule, PolicyTable, SweepPoint
from ...advisor.solver import Space
from ...compiler.ir import Scenario
from ...compiler.planning.build import expression_of
from ...compiler.text.units import ticks_text
from .door import VERDICTS, bullet, hanging, table_lines, wrapped
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
