"""What an answer rests on: hardware numbers with their origins, and what the bound takes for granted."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ...advisor.bounds.lower_bound import Bound
from ...compiler.ir import System
from ...compiler.resolve.values.device_numbers import StatedNumber
from ...compiler.text.quantities import read_text
from .markup import Markup, bullets, table, tag


def assumptions(system: System, bound: Bound | None, numbers: Sequence[StatedNumber]) -> Iterator[Markup]:
    """Yield those of ``numbers`` that ``system`` uses, with their origins, and the assumptions of the bound."""
    used = numbers_of(system, numbers)
    if used:
        origins = Counter(number.origin.value for number in used).most_common()
        counted = ", ".join(f"{count} {origin}" for origin, count in origins)
        yield tag("p", f"{len(used)} hardware numbers: {counted}.")
        rows = [(number.path, read_text(number.value), number.origin.value, _source(number)) for number in used]
        yield tag(
            "details",
            tag("summary", "Each number with its origin and source"),
            table(("number", "value", "origin", "source"), rows, words=4),
            open="open",
        )
    if bound is not None:
        yield tag("p", "The lower bound holds as far as:")
        yield bullets(bound.assumptions)


def numbers_of(system: System, numbers: Sequence[StatedNumber]) -> list[StatedNumber]:
    """Return the numbers of the GPU, the links and the switch of ``system``."""
    switches = [] if system.fabric.switch is None else [system.fabric.switch.name]
    names = dict.fromkeys([system.gpu.name, *(link.name for link in system.fabric.links), *switches])
    return [number for name in names for number in numbers if number.device == name]


def _source(number: StatedNumber) -> str:
    return f"{number.source} (as {number.inherited})" if number.inherited else number.source
