"""Source text and places in it."""

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Location:
    """Line and column, both counted from 1; columns count characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Source:
    """One text with the name that diagnostics show for it."""

    path: str
    text: str = field(repr=False)
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0] + [at + 1 for at, character in enumerate(self.text) if character == "\n"]
        object.__setattr__(self, "_line_starts", tuple(starts))

    def location(self, offset: int) -> Location:
        """Return the line and column of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return Location(line, offset - self._line_starts[line - 1] + 1)

    def start_of(self, number: int) -> int:
        """Return the offset of the first character of a line, counted from 1."""
        return self._line_starts[number - 1]

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its end."""
        start = self.start_of(number)
        end = self._line_starts[number] - 1 if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of character offsets in one source."""

    source: Source
    start: int
    end: int

    @property
    def location(self) -> Location:
        """Line and column of the first character."""
        return self.source.location(self.start)

    @property
    def end_location(self) -> Location:
        """Line and column of the place after the last character."""
        return self.source.location(self.end)

    @property
    def text(self) -> str:
        """The characters of the span."""
        return self.source.text[self.start : self.end]

    def to(self, other: "Span") -> "Span":
        """Return the span from the start of this one to the end of ``other``."""
        return Span(self.source, self.start, max(self.end, other.end))
