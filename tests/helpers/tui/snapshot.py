"""A screen with its colours in both themes, as a golden file that one can read.

The text stands first. Under ``styles`` each letter has its colours in the dark theme and, where their names differ, in
the light one: a name of the theme, else the colour itself. Then each row has its runs of styles, ``a12 b3``; rows alike
stand together.
"""

import os
import string
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.style import Style
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from magus.tui.app.lifecycle import DARK, LIGHT
from tests.helpers.paths import TESTS
from tests.helpers.tui.driving import settled

UPDATE = "MAGUS_UPDATE_GOLDEN"
GOLDEN = TESTS / "tui" / "golden"
SIZES = ((80, 24), (120, 40), (200, 60))
THEMES = (DARK.name, LIGHT.name)
COLOURS = (
    *("foreground", "background", "surface", "panel", "primary", "secondary", "accent", "warning", "error", "success"),
    *("text-primary", "text-secondary", "text-accent", "text-warning", "text-error", "text-success"),
    *("surface-lighten-2", "primary-darken-2", "warning-darken-2", "secondary-lighten-2"),
)
MARKS = ("bold", "dim", "italic", "underline", "reverse")
LETTERS = string.ascii_letters + string.digits

Cells = list[list[str]]
"""The name of the style of each cell, row by row."""
Shot = tuple[list[str], Cells]
"""Text and styles of a screen."""
STILL = 2
"""Looks in a row that see nothing new: what is laid out may ask for another round."""


async def check_snapshot(pilot: Pilot[None], name: str, sizes: Sequence[tuple[int, int]] = SIZES) -> None:
    """Compare the screen in all sizes and both themes with ``golden/NAME_SIZE.txt``.

    With MAGUS_UPDATE_GOLDEN=1 the files are written instead.
    """
    differing = []
    themes = list(THEMES)
    for size in sizes:
        if tuple(pilot.app.size) != size:
            await pilot.resize_terminal(*size)
        shots = {}
        for theme in themes:
            pilot.app.theme = theme
            shots[theme] = await _still(pilot)
        themes.reverse()  # the next size begins with the theme that is there
        path, found = GOLDEN / f"{name}_{size[0]}x{size[1]}.txt", _golden(shots)
        if os.environ.get(UPDATE):
            path.write_text(found, encoding="utf-8")
        if not path.exists() or found != path.read_text(encoding="utf-8"):
            differing.append(f"{path.name} is now:\n{found}")
    assert not differing, f"if they should, set {UPDATE}=1. " + "\n".join(differing)


async def _still(pilot: Pilot[None]) -> Shot:
    """The screen once it stands still: what is laid out anew may need another round, and cursors blink."""
    for each in (*pilot.app.screen.query(Input), *pilot.app.screen.query(TextArea)):
        each.cursor_blink = False
    found, still = _shot(pilot.app), 0
    while still < STILL:
        await settled(pilot)
        before, found = found, _shot(pilot.app)
        still = still + 1 if found == before else 0
    return found


def _shot(app: App[None]) -> Shot:
    """The text and the styles, without the last line: versions of Textual space the keys differently."""
    named = _named(app.get_css_variables())
    strips = app.screen._compositor.render_strips()[:-1]
    names = {style: _name(style, named) for style in {segment.style for strip in strips for segment in strip}}
    cells = [
        [name for segment in strip for name in [names[segment.style]] * cell_len(segment.text)] for strip in strips
    ]
    return [strip.text.rstrip() for strip in strips], cells


def _named(variables: Mapping[str, str]) -> dict[str, str]:
    """The first name of each colour of the theme."""
    return {variables[name].lower(): name for name in reversed(COLOURS) if name in variables}


def _name(style: Style | None, named: Mapping[str, str]) -> str:
    if style is None:
        return "none"
    marks = [mark for mark in MARKS if getattr(style, mark)]
    front, back = (
        "default" if colour is None else named.get(_hex(colour), _hex(colour))
        for colour in (style.color, style.bgcolor)
    )
    return " ".join((front, "on", back, *marks))


def _hex(colour: object) -> str:
    if colour is None:
        return "default"
    triplet = getattr(colour, "triplet", None)
    return triplet.hex if triplet is not None else str(getattr(colour, "name", colour))


def _golden(shots: Mapping[str, Shot]) -> str:
    (dark_text, dark), (light_text, light) = (shots[theme] for theme in THEMES)
    assert dark_text == light_text, "colours change no text"
    rows = [list(zip(one, other, strict=True)) for one, other in zip(dark, light, strict=True)]
    letters: dict[tuple[str, str], str] = {}
    for pair in (pair for row in rows for pair in row):
        letters.setdefault(pair, LETTERS[len(letters)] if len(letters) < len(LETTERS) else f"<{len(letters)}>")
    legend = [f"{letter} {one}{'' if one == other else f' / {other}'}" for (one, other), letter in letters.items()]
    runs = [
        " ".join(f"{letter}{len(list(run))}" for letter, run in groupby(letters[pair] for pair in row)) for row in rows
    ]
    text = [f"{number:2} {line}".rstrip() for number, line in enumerate(dark_text, 1)]
    return "\n".join([*text, "", "styles", *legend, "", "rows", *_folded(runs)]) + "\n"


def _runs(row: Sequence[str]) -> str:
    return " ".join(f"{letter}{len(list(run))}" for letter, run in groupby(row))


def _folded(runs: Sequence[str]) -> Iterator[str]:
    """Rows with the same runs in one line, under the number of the first and the last."""
    begin = 1
    for run, group in groupby(runs):
        count = len(list(group))
        yield f"{begin if count == 1 else f'{begin}-{begin + count - 1}'}: {run}"
        begin += count
