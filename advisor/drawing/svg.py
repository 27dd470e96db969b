"""What all drawings share: elements with escaped text, the colours for light and dark, and an axis of time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape

from ...compiler.ir import TICKS_PER_US
from ...compiler.text.printable import columns_of, printable

INK, FAINT, PAPER, BAND = "#1b1f24", "#5c6570", "#ffffff", "#f3f5f8"
_SHAPES: Mapping[str, Mapping[str, str]] = {
    "paper": {"fill": PAPER},
    "band": {"fill": BAND},
    "grid": {"fill": "none", "stroke": "#c9ced6"},
    "compute": {"fill": "#4477aa"},
    "comm": {"fill": "#ddaa33"},
    "reduce": {"fill": "#2a8c82"},
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


def document(width: float, height: float, title: str, body: Iterator[str] | list[str]) -> str:
    """Return the whole drawing on paper of its own, which needs nothing else."""
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    name, font = escape(printable(title)), 'font-family="system-ui, sans-serif" font-size="12"'
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

    def marks(self, apart: float = 90) -> Iterator[tuple[float, str]]:
        """Yield pixel and label of round times, 1, 2 or 5 times a power of ten apart and ``apart`` pixels at least."""
        step = _round_step(self.total_ticks * apart / self.width)
        decimals = next(places for places in range(4) if step * 10**places % TICKS_PER_US == 0)
        for at in range(-(-self.start_ticks // step) * step, self.end_ticks + 1, step):
            yield self.x(at), f"{at / TICKS_PER_US:.{decimals}f}"


def _round_step(least_ticks: float) -> int:
    power = TICKS_PER_US // 1000
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least_ticks:
                return factor * power
        power *= 10
