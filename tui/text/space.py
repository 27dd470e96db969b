"""The space of a scenario as plain text: its schedules, or a sample of very many, and what shaped it."""

from collections.abc import Iterator

from ...advisor.bounds.lower_bound import Bound
from ...advisor.solver import Space
from ...compiler.ir import TICKS_PER_US, Scenario
from ...compiler.planning.expression import expression_of
from .render import scenario_line
from .wrap import bullet, hanging, wrapped


def space_text(scenario: Scenario, space: Space, bound: Bound) -> str:
    """The feasible schedules, one a line, what there is of them, and the lower bound with its terms."""
    return "\n".join(_lines(scenario, space, bound))


def _lines(scenario: Scenario, space: Space, bound: Bound) -> Iterator[str]:
    shown = space.shown()
    yield from wrapped(scenario_line(scenario))
    yield ""
    for choice in shown:
        yield from hanging(f"  {expression_of(choice)}", 6)
    yield ""
    yield from wrapped(_count(space, len(shown)))
    for word, values in space.knobs.items():
        yield from bullet("-", f"{word} {', '.join(map(str, values))}")
    yield from _shaped(space)
    yield from wrapped(f"Lower bound {bound.ticks / TICKS_PER_US:.1f} us, bound by {bound.binding}:")
    for name, ticks, text in bound.terms:
        yield from bullet("*" if name == bound.binding else "-", f"{name} {ticks / TICKS_PER_US:.1f} us: {text}")
    yield "Assumed by the bound:"
    for text in bound.assumptions:
        yield from bullet("-", text)


def _count(space: Space, num_shown: int) -> str:
    """How many there are, and how many of them are shown."""
    found = len(space.choices)
    if space.size is None and num_shown == found:
        return f"{found:,} feasible schedules (there are more)"
    total = f"more than {found:,}" if space.size is None else f"{space.size:,}"
    shown = "" if num_shown == space.size else f", of which these {num_shown:,} differ most"
    return f"{total} feasible schedules{shown}"


def _shaped(space: Space) -> Iterator[str]:
    """What dominance rules left out, and why templates that were asked for are not there."""
    if space.assumed:
        yield from wrapped("Left out, by assumptions that 'dominance off' in explore takes back:")
    for each in space.assumed:
        yield from bullet("-", f"{each.removed:,} by {each.name}: {each.sentence}")
    if space.absent:
        yield "Asked for, and not feasible:"
    for absence in space.absent:
        yield from bullet("-", f"{absence.template}: {'; '.join(absence.reasons)}")
