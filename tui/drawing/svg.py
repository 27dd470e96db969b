"""What all drawings share, such as text and an axis of time; and drawings of losses, of sweeps and of systems."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import groupby

from ...advisor.candidates.advice import Advice
from ...advisor.policy.table import SweepPoint
from ...compiler.ir import TICKS_PER_US, JsonObject
from ...compiler.text.diagnostics import columns_of, printable
from ...compiler.text.units import round_step, ticks_text
from ...simcore.figures.result import Waterfall

INK, FAINT, PAPER, BAND = "#1b1f24", "#5c6570", "#ffffff", "#f3f5f8"
_SHAPES: Mapping[str, Mapping[str, str]] = {
    "paper": {"fill": PAPER},
    "band": {"fill": BAND},
    "wait": {"fill": "#e4e8ee"},
    "grid": {"fill": "none", "stroke": "#c9ced6"},
    "compute": {"fill": "#4477aa"},
    "comm": {"fill": "#ddaa33"},
    "reduce": {"fill": "#2a8c82"},
    "gradients": {"fill": "#8a5fa8"},
    "exposed": {"fill": "#bb3344"},
    "bound": {"fill": FAINT},
    "bar": {"stroke": BAND},
    "critical": {"stroke": INK, "stroke-width": "2"},
    "curve": {"fill": "none", "stroke": "#4477aa", "stroke-width": "1.5"},
    "other": {"stroke": FAINT, "stroke-dasharray": "4 3"},
}
"""How each kind of shape is painted: blue, yellow and teal, which the colour-blind tell apart too.

Colours are attributes, not style: few viewers beside browsers know variables. A page may style the kinds, its classes.
"""
_LETTERS: Mapping[str, Mapping[str, str]] = {
    "faint": {"fill": FAINT},
    "title": {"font-weight": "600"},
    "on": {"fill": PAPER, "font-size": "10", "pointer-events": "none"},
    "comm": {"fill": INK},
}
"""The same of text; what stands ``on`` a transfer is dark."""

LETTER_WIDTH = 6.2
"""Pixels of a letter at 10 to 12 px, on average."""


def text_at(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    """Return a text element; ``text`` is shown as it is, control characters as escapes."""
    place = f'x="{number(x)}" y="{number(y)}"' + (f' text-anchor="{anchor}"' if anchor else "")
    return f"<text {place} {_letters(kind)}>{escape(printable(text))}</text>"


def rect_at(x: float, y: float, width: float, height: float, kind: str, about: str = "", more: str = "") -> str:
    """Return a rectangle; ``about`` is what a browser shows at the pointer, ``more`` are further attributes."""
    size = f'width="{number(width)}" height="{number(height)}"'
    head = f'<rect {painted(kind)} x="{number(x)}" y="{number(y)}" {size}{more}'
    return f"{head}><title>{escape(printable(about))}</title></rect>" if about else f"{head}/>"


@cache
def painted(kind: str) -> str:
    """Return the class and the colours of a shape; of the words of ``kind`` later ones go first."""
    return _attributes(kind, _SHAPES, {})


@cache
def _letters(kind: str) -> str:
    return _attributes(kind, _LETTERS, {"fill": INK})


def _attributes(kind: str, paints: Mapping[str, Mapping[str, str]], usual: Mapping[str, str]) -> str:
    found = {"class": kind, **usual} if kind else dict(usual)
    for word in kind.split():
        found |= paints.get(word, {})
    return " ".join(f'{name}="{value}"' for name, value in found.items())


def number(value: float) -> str:
    """Return a coordinate to a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def fitting(text: str, width: float) -> str:
    """Return ``text``, or as much of it as fits ``width`` pixels with an ellipsis; empty where nothing does."""
    text = printable(text)
    room = int(width / LETTER_WIDTH)
    if columns_of(text) <= room:
        return text
    return f"{text[: room - 1]}…" if room > 3 else ""


def line_down(x: float, top: float, bottom: float, kind: str = "grid") -> str:
    """Return a vertical line."""
    return f'<path {painted(kind)} d="M{number(x)} {number(top)}V{number(bottom)}"/>'


def heading(title: str, said: str, width: float) -> list[str]:
    """Return the title at the top of a drawing, and the line of text below it; sizes in pixels."""
    return [text_at(12, 22, fitting(title, width - 24), "title"), text_at(12, 40, said, "faint")]


def legend(entries: Iterable[tuple[str, str]], y: float, apart: float = 40, letter: float = 6.4) -> Iterator[str]:
    """Yield a sample of each kind with what is ``said`` beside it, in a row whose top is at ``y``.

    An entry is as wide as its letters, each ``letter`` pixels, and ``apart`` pixels.
    """
    x = 12.0
    for kind, said in entries:
        yield rect_at(x, y, 18, 10, kind)
        yield text_at(x + 24, y + 9, said)
        x += apart + letter * len(said)


def trace_text(head: JsonObject, events: Iterable[JsonObject]) -> str:
    """Return a trace: the members of ``head``, then an event a line."""
    document = json.dumps(head, indent=1).removesuffix("\n}")
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return f'{document},\n "traceEvents": [\n{lines}\n ]\n}}\n'


GENERIC_FONTS = "system-ui, sans-serif"


def document(width: float, height: float, title: str, body: Iterator[str] | list[str]) -> str:
    """Return the whole drawing on paper of its own, which needs nothing else."""
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    name, font = escape(printable(title)), f'font-family="{GENERIC_FONTS}" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="magus" role="img" aria-label="{name}" {font} {size}>'
    return "\n".join((head, rect_at(0, 0, width, height, "paper"), *body, "</svg>\n"))


@dataclass(frozen=True, slots=True)
class TimeScale:
    """``total_ticks`` of time from ``start_ticks`` on over the pixels from ``left`` on."""

    total_ticks: int
    left: float
    width: float
    start_ticks: int = 0

    @property
    def end_ticks(self) -> int:
        """The last time that is shown."""
        return self.start_ticks + self.total_ticks

    def x(self, ticks: float) -> float:
        """Return the pixel of a time; of what lies outside that of the nearer end."""
        inside = min(max(ticks - self.start_ticks, 0), max(1, self.total_ticks))
        return self.left + self.width * inside / max(1, self.total_ticks)

    def shows(self, start: int, end: int) -> bool:
        """Whether any of a span lies inside."""
        return start < self.end_ticks and (end > self.start_ticks or start == end == self.start_ticks)

    def marks(self) -> Iterator[tuple[float, str]]:
        """Yield pixel and label of round times, 1, 2 or 5 times a power of ten apart and 90 pixels at least."""
        step = round_step(self.total_ticks * 90 / self.width)
        decimals = next(places for places in range(4) if step * 10**places % TICKS_PER_US == 0)
        for at in range(-(-self.start_ticks // step) * step, self.end_ticks + 1, step):
            yield self.x(at), f"{at / TICKS_PER_US:.{decimals}f}"


_WATERFALL_WIDTH, _WATERFALL_LEFT, _WATERFALL_RIGHT, ROW, _WATERFALL_TOP = 900.0, 210.0, 90.0, 26.0, 12.0


def waterfall_svg(waterfall: Waterfall) -> str:
    """Return the drawing: a bar for each row of the waterfall, where the one before it ends; gains go back."""
    rows = waterfall.rows
    reached = [0]
    for _, ticks in rows[:-1]:
        reached.append(reached[-1] + ticks)
    scale = TimeScale(
        max(1, *reached, waterfall.makespan_ticks),
        _WATERFALL_LEFT,
        _WATERFALL_WIDTH - _WATERFALL_LEFT - _WATERFALL_RIGHT,
    )
    return document(
        _WATERFALL_WIDTH, 2 * _WATERFALL_TOP + ROW * len(rows), "Loss waterfall", list(_bars(waterfall, reached, scale))
    )


def _bars(waterfall: Waterfall, reached: list[int], scale: TimeScale) -> Iterator[str]:
    last = len(waterfall.rows) - 1
    for place, (name, ticks) in enumerate(waterfall.rows):
        begin = 0 if place in (0, last) else reached[place]
        low, high = sorted((begin, begin + ticks))
        y = _WATERFALL_TOP + ROW * place
        kind = "bound" if place == 0 else "compute" if place == last else "reduce" if ticks < 0 else "exposed"
        yield text_at(_WATERFALL_LEFT - 10, y + 15, name, anchor="end")
        yield rect_at(scale.x(low), y + 3, max(1, scale.x(high) - scale.x(low)), ROW - 8, kind, ticks_text(ticks))
        yield text_at(scale.x(high) + 6, y + 15, ticks_text(ticks), "faint")
        if place < last:
            yield line_down(scale.x(reached[place + 1]), y + 3, y + ROW + 6)


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900.0, 300.0, 60.0, 20.0, 44.0, 42.0


def sweep_svg(points: Sequence[SweepPoint], name: str) -> str:
    """Return the drawing of ``points`` at the values of the parameter ``name``, in their order; one at least."""
    bounds = [_bound_gain(point.advice) for point in points]
    gains = [point.advice.speedup for point in points]
    most = 1.05 * max(1.05, *gains, *(bound for bound in bounds if bound is not None))
    least = min(0.9, *gains)
    step = (WIDTH - LEFT - RIGHT) / len(points)

    def x(place: int) -> float:
        return LEFT + step * (place + 0.5)

    def y(gain: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (gain - least) / (most - least)

    body = [
        *_winners(points, step),
        *_levels(least, most, y),
        _curve([(x(place), y(bound)) for place, bound in enumerate(bounds) if bound is not None], "curve other"),
        _curve([(x(place), y(gain)) for place, gain in enumerate(gains)], "curve"),
    ]
    for place, point in enumerate(points):
        advice, value = point.advice, dict(point.settings)[name]
        about = f"{name} = {value}: {advice.name_of(advice.recommended.expression)}, {advice.speedup:.2f}x"
        body.append(rect_at(x(place) - 4, y(advice.speedup) - 4, 8, 8, "compute", about))
        body.append(text_at(x(place), HEIGHT - BOTTOM + 16, fitting(value, step), anchor="middle"))
    body.append(text_at(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, name, "faint", "middle"))
    body.append(text_at(12, 18, "gain over the baseline; dashed: what no schedule can beat", "faint"))
    return document(WIDTH, HEIGHT, f"Gain by {name}", body)


def _bound_gain(advice: Advice) -> float | None:
    return None if advice.bound is None else advice.serial.best_us * TICKS_PER_US / advice.bound.ticks


def _winners(points: Sequence[SweepPoint], step: float) -> Iterator[str]:
    """A band for each run of values with the same template and engine, with its name."""
    runs = groupby(enumerate(points), key=lambda one: _family(one[1].advice))
    for number_of_run, (family, run) in enumerate(runs):
        places = [place for place, _ in run]
        left, width = LEFT + step * places[0], step * len(places)
        kind = "band" if number_of_run % 2 == 0 else "paper"
        yield rect_at(left, TOP - 18, width, HEIGHT - TOP - BOTTOM + 18, kind)
        yield text_at(left + 4, TOP - 5, fitting(family, width - 6), "faint")


def _family(advice: Advice) -> str:
    choice = advice.recommended.choice
    name = advice.name_of(advice.recommended.expression)
    return name if choice is None else f"{choice.template}, {choice.engine}"


def _levels(least: float, most: float, y: Callable[[float], float]) -> Iterator[str]:
    steps = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100)
    step = next((each for each in steps if (most - least) / each <= 6), most - least)
    for place in range(round(least / step), int(most / step) + 1):
        gain = place * step
        if gain >= least:
            line = f"M{number(LEFT)} {number(y(gain))}H{number(WIDTH - RIGHT)}"
            yield f'<path {painted("grid")} d="{line}"/>'
            yield text_at(LEFT - 6, y(gain) + 4, f"{gain:.2f}x", "faint", "end")


def _curve(points: Sequence[tuple[float, float]], kind: str) -> str:
    line = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f'<path {painted(kind)} d="M{line}"/>' if points else ""


def swept_svg(points: Sequence[SweepPoint], names: Sequence[str]) -> str:
    """Return the drawing of ``points``: a curve over the one parameter of ``names``, or a map over the two."""
    return sweep_svg(points, names[0]) if len(names) == 1 else map_svg(points, names[0], names[1])


MAP_CELL, MAP_LEFT, MAP_TOP = 36.0, 120.0, 50.0


def map_svg(points: Sequence[SweepPoint], down: str, across: str) -> str:
    """Return the gain over the values of two parameters: the darker the more, with the number of the schedule."""
    settings = [dict(point.settings) for point in points]
    rows, cols = (list(dict.fromkeys(each[name] for each in settings)) for name in (down, across))
    families = list(dict.fromkeys(_family(point.advice) for point in points))
    most = max(1.05, *(point.advice.speedup for point in points))
    width, bottom = (WIDTH - MAP_LEFT - RIGHT) / len(cols), MAP_TOP + MAP_CELL * len(rows)
    body = [text_at(12, 18, "gain over the baseline (number of the schedule, see below)", "faint")]
    body += [
        text_at(MAP_LEFT + width * (x + 0.5), MAP_TOP - 8, fitting(v, width), "", "middle") for x, v in enumerate(cols)
    ]
    body += [
        text_at(MAP_LEFT - 8, MAP_TOP + MAP_CELL * (y + 0.6), fitting(v, 60), "", "end") for y, v in enumerate(rows)
    ]
    body += [text_at(12, MAP_TOP - 8, fitting(f"{down} \u2193  {across} \u2192", MAP_LEFT - 20), "faint")]
    for point, at in zip(points, settings, strict=True):
        gain, family = point.advice.speedup, _family(point.advice)
        x, y = MAP_LEFT + width * cols.index(at[across]), MAP_TOP + MAP_CELL * rows.index(at[down])
        share = 0.08 + 0.92 * max(0.0, gain - 1) / (most - 1)
        about = f"{down} = {at[down]}, {across} = {at[across]}: {family}, {gain:.2f}x"
        said = fitting(f"{gain:.2f}x ({families.index(family) + 1})", width - 4)
        body.append(rect_at(x, y, width - 1, MAP_CELL - 1, "compute", about, f' fill-opacity="{share:.2f}"'))
        body.append(text_at(x + width / 2, y + MAP_CELL * 0.6, said, "on" if share > 0.75 else "", "middle"))
    legend = [f"({number_of}) {family}" for number_of, family in enumerate(families, 1)]
    body += [text_at(MAP_LEFT, bottom + 20 + 16 * line, said) for line, said in enumerate(legend)]
    return document(WIDTH, bottom + 28 + 16 * len(legend), f"Gain by {down} and {across}", body)


COMPARED_LEFT, COMPARED_ROW = 230.0, 62.0


def compared_svg(advices: Sequence[Advice]) -> str:
    """Return the workloads of a file, such as one on several systems, side by side: baseline, answer, bound."""
    longest = max(advice.serial.best_us for advice in advices) * TICKS_PER_US
    scale = TimeScale(max(1, round(longest)), COMPARED_LEFT, WIDTH - COMPARED_LEFT - 120)
    body, bottom = list[str](), MAP_TOP + COMPARED_ROW * len(advices)
    kinds = [("comm", "baseline"), ("compute", "recommended"), ("bound", "what no schedule can beat")]
    known = kinds if any(advice.bound for advice in advices) else kinds[:2]
    body += legend(known, 12, apart=60, letter=LETTER_WIDTH)
    for x, label in scale.marks():
        body.append(line_down(x, MAP_TOP - 10, bottom))
        body.append(text_at(x + 3, MAP_TOP - 12, f"{label} us", "faint"))
    for place, advice in enumerate(advices):
        y, scenario = MAP_TOP + COMPARED_ROW * place, advice.scenario
        system = f"{scenario.system.title}, {scenario.system.fabric.topology.name}"
        body.append(text_at(COMPARED_LEFT - 10, y + 15, fitting(scenario.name, COMPARED_LEFT - 20), "title", "end"))
        body.append(text_at(COMPARED_LEFT - 10, y + 31, fitting(system, COMPARED_LEFT - 20), "faint", "end"))
        for kind, one, top in (("comm", advice.serial, y + 4), ("compute", advice.recommended, y + 20)):
            right = scale.x(one.best_us * TICKS_PER_US)
            about = f"{advice.name_of(one.expression)}: {ticks_text(round(one.best_us * TICKS_PER_US))}"
            body.append(rect_at(COMPARED_LEFT, top, right - COMPARED_LEFT, 14, kind, about))
            gain = "" if one is advice.serial else f", {advice.speedup:.2f}x"
            body.append(text_at(right + 6, top + 11, f"{ticks_text(round(one.best_us * TICKS_PER_US))}{gain}", "faint"))
        name = fitting(advice.name_of(advice.recommended.expression), WIDTH - COMPARED_LEFT - 12)
        body.append(text_at(COMPARED_LEFT + 4, y + 48, name, "faint"))
        if advice.bound is not None:
            body.append(rect_at(scale.x(advice.bound.ticks) - 1, y + 1, 3, 36, "bound", ticks_text(advice.bound.ticks)))
    return document(WIDTH, bottom + 8, "Systems compared", body)


FONTS = "system-ui, Arial, Helvetica, DejaVu Sans, Liberation Sans, Noto Sans, Ubuntu, Cantarell, sans-serif"
"""Fonts of macOS and of distributions of Linux: resvg takes the first that is there, and knows no generic one."""


def png_of(drawing: str) -> bytes:
    """Return a drawing as PNG, with two pixels for each of its own; needs the extra ``magus-gpu[png]``."""
    import resvg_py  # an extra

    return bytes(resvg_py.svg_to_bytes(svg_string=drawing.replace(GENERIC_FONTS, FONTS), zoom=2))
