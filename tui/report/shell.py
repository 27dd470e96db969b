"""What every page has: its head, style, script and data inline, and timelines that answer the pointer.

It loads nothing: a policy in its head forbids that to whatever stands in it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from ... import __version__
from ...advisor.bounds.lower_bound import Bound
from ...compiler.ir import JsonObject, Settings, System
from ...compiler.resolve.values.device_numbers import StatedNumber
from ...compiler.text.diagnostics import printable
from ...compiler.text.units import read_text
from ...simcore import Result, ShownRun
from ..drawing.timeline_svg import timeline_svg


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY = Markup("")


def text(said: str) -> Markup:
    """Return ``said`` as it is shown: escaped, with control characters as escapes."""
    return said if isinstance(said, Markup) else Markup(escape(printable(said, block=True)))


def tag(name: str, *parts: str, kind: str = "", **attributes: str) -> Markup:
    """Return an element; ``kind`` is its class. Parts that are no Markup are text."""
    given = {"class": kind, **attributes}
    said = "".join(f' {key.replace("_", "-")}="{escape(printable(value))}"' for key, value in given.items() if value)
    return Markup(f"<{name}{said}>{''.join(map(text, parts))}</{name}>")


def joined(parts: Iterable[Markup]) -> Markup:
    """Return ``parts``, one on each line."""
    return Markup("\n".join(parts))


def bullets(items: Iterable[str]) -> Markup:
    """Return a list; nothing without items."""
    found = [tag("li", item) for item in items]
    return tag("ul", *found) if found else EMPTY


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1, marked: Iterable[int] = ()) -> Markup:
    """Return a table whose first ``words`` columns are words and the others numbers; rows ``marked`` stand out."""
    stand_out = set(marked)
    kinds = ["" if place < words else "number" for place in range(len(head))]
    top = tag("tr", *(tag("th", cell, kind=kind, scope="col") for cell, kind in zip(head, kinds, strict=True)))
    body = [
        tag(
            "tr",
            *(tag("td", cell, kind=kind) for cell, kind in zip(row, kinds, strict=True)),
            kind="marked" if place in stand_out else "",
        )
        for place, row in enumerate(rows)
    ]
    return tag("div", tag("table", tag("thead", top), tag("tbody", joined(body))), kind="wide")


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
MAX_LANES = 20
"""Lanes of a timeline: a page has two."""
IDLE = "Point at a step: its times, and what it waited for and who waited for it, light up."


def page_html(name: str, sections: Iterable[Markup], data: JsonObject) -> str:
    """Return the whole page about the workload ``name``, which carries ``data``."""
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", f"Magus: {name}"),
        Markup(f"<style>\n{_asset('report.css')}</style>"),
    )
    text = json.dumps(data).replace("<", "\\u003c")
    body = tag(
        "body",
        joined(sections),
        Markup(f'<script type="application/json" id="advice">{text}</script>'),
        Markup(f"<script>\n{_asset('report.js')}</script>"),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def header(title: str, about: str, file: str, settings: Settings) -> Markup:
    """Return what the page is about, and the file that it comes from."""
    said = ", ".join(f"{name} = {value}" for name, value in settings)
    parts = [tag("h1", title), *([tag("p", about)] if about else [])]
    return tag("header", *parts, tag("p", f"{file}{f' with {said}' if said else ''}", kind="faint"))


def section(title: str, *parts: Markup) -> Markup:
    """Return parts under their title."""
    return tag("section", tag("h2", title), *parts)


def timelines(runs: Sequence[ShownRun], baseline: str) -> Iterator[Markup]:
    """Yield the drawing of a run, and below it that of the ``baseline`` to the same scale, if there are two."""
    span = max(end - start for start, end in (run.shown_span for run in runs))
    for place, run in enumerate(runs):
        if place:
            yield tag("p", f"To the same scale, the baseline: {baseline}.")
        drawing = Markup(timeline_svg(run, span_ticks=span, max_lanes=MAX_LANES))
        yield tag("div", tag("div", drawing, kind="timeline"), tag("output", kind="hover", data_idle=IDLE))


def footer(result: Result) -> Markup:
    """Return how the run was simulated."""
    ranks = f"{result.ranks_simulated} of {result.num_ranks} ranks"
    run = f"the run was simulated in units of {result.unit_bytes} B, {ranks}, by the core {result.core}"
    return tag("footer", tag("p", f"Magus {__version__}; {run}", kind="faint"))


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
