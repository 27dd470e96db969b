"""What every page has: its head, style, script and data inline, and timelines that answer the pointer.

It loads nothing: a policy in its head forbids that to whatever stands in it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files

from ... import __version__
from ...advisor.drawing.timeline_svg import timeline_svg
from ...compiler.ir import JsonObject, Settings
from ...simcore import Result, ShownRun
from .markup import Markup, joined, tag

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
