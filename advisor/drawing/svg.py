"""What all drawings share: elements with escaped text, the colours for light and dark, and an axis of time."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from ...compiler.ir import TICKS_PER_US
from ...compiler.text.printable import columns_of, printable

STYLE = """
.magus { color-scheme: light dark; --ink: #1b1f24; --faint: #5c6570; --line: #c9ced6; --paper: #ffffff;
  --band: #f3f5f8; --compute: #4477aa; --comm: #ddaa33; --reduce: #2a8c82; --exposed: #bb3344; --on-bar: #ffffff;
  --on-comm: #1b1f24; font: 12px system-ui, sans-serif; background: var(--paper); }
@media screen and (prefers-color-scheme: dark) { .magus { --ink: #e6e9ee; --faint: #9aa4b1; --line: #3c444f;
  --paper: #14181d; --band: #1c2229; --compute: #5b93c9; --comm: #e3b64b; --reduce: #3fb0a4; --exposed: #f0737f;
  --on-bar: #0c1116; --on-comm: #0c1116; } }
.magus text { fill: var(--ink); } .magus .faint { fill: var(--faint); } .magus .title { font-weight: 600; }
.magus .paper { fill: var(--paper); } .magus .band { fill: var(--band); }
.magus .grid { stroke: var(--line); stroke-width: 1; fill: none; }
.magus .compute { fill: var(--compute); } .magus .comm { fill: var(--comm); } .magus .reduce { fill: var(--reduce); }
.magus .exposed { fill: var(--exposed); } .magus .bound { fill: var(--faint); }
.magus .bar { stroke: var(--band); stroke-width: 1; }
.magus .critical { stroke: var(--ink); stroke-width: 2; }
.magus text.on { fill: var(--on-bar); font-size: 10px; pointer-events: none; }
.magus text.on.comm { fill: var(--on-comm); }
.magus .curve { fill: none; stroke-width: 1.5; stroke: var(--compute); }
.magus .curve.other { stroke: var(--faint); stroke-dasharray: 4 3; }
"""
"""Blue, yellow and teal, which the colour-blind tell apart too; kinds also differ by lane or outline."""

LETTER_WIDTH = 6.2
"""Pixels of a letter at 10 to 12 px, on average."""


def text_at(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    """Return a text element; ``text`` is shown as it is, control characters as escapes."""
    attributes = "".join(f' {name}="{value}"' for name, value in (("class", kind), ("text-anchor", anchor)) if value)
    return f'<text x="{number(x)}" y="{number(y)}"{attributes}>{escape(printable(text))}</text>'


def rect_at(x: float, y: float, width: float, height: float, kind: str, about: str = "", more: str = "") -> str:
    """Return a rectangle; ``about`` is what a browser shows at the pointer, ``more`` are further attributes."""
    size = f'width="{number(width)}" height="{number(height)}"'
    head = f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" {size}{more}'
    return f"{head}><title>{escape(printable(about))}</title></rect>" if about else f"{head}/>"


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
    """Return the whole drawing, which has its own style and needs nothing else."""
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    name = escape(printable(title))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="magus" role="img" aria-label="{name}" {size}>'
    paper = f'<rect class="paper" width="{number(width)}" height="{number(height)}"/>'
    return "\n".join((head, f"<style>{STYLE}</style>", paper, *body, "</svg>\n"))


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
