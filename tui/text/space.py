"""The space of a scenario as plain text: its schedules, or a sample of them, and the rules that shaped it."""

from collections.abc import Iterator

from ...advisor.bounds.lower_bound import Bound
from ...advisor.solver import Space
from ...compiler.ir import GraphScenario
from ...compiler.planning.expression import expression_of
from ...compiler.text.quantities import ticks_text
from .ops import ops_lines
from .question import question_line
from .wrap import bullet, hanging, wrapped


def space_text(scenario: GraphScenario, space: Space | None, bound: Bound) -> str:
    """Return the feasible schedules, one per line, their number, and the lower bound with its terms.

    Without a ``space`` a search finds schedules: then the ops are told, and the schedules that the file declares.
    """
    return "\n".join(_lines(scenario, space, bound))


def _lines(scenario: GraphScenario, space: Space | None, bound: Bound) -> Iterator[str]:
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
