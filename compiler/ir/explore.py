"""The search space that a file asks for."""

from dataclasses import dataclass, replace
from typing import Any

from .implementation import Implementation


@dataclass(frozen=True, slots=True)
class Explore:
    """The space to search; a limit of None means no limit.

    ``asked`` holds (word of a knob, its values) for each knob that the file names, sorted by word. The search chooses
    for the others: it tries several templates, chunks, engines and streams, and the default of each other knob. Depths
    are tried besides holding everything. ``dominance`` leaves out schedules that are assumed to be no faster than
    others of the space. ``implementations`` are those that the file asks about by name.
    """

    asked: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    staging_limit_bytes: int | None = None
    dominance: bool = True
    implementations: tuple[Implementation, ...] = ()

    @classmethod
    def of(
        cls, *, staging_limit_bytes: int | None = None, dominance: bool = True, **asked: tuple[Any, ...]
    ) -> "Explore":
        """An Explore from the values of knobs, each by its word."""
        given = tuple(sorted((word, values) for word, values in asked.items() if values))
        return cls(given, staging_limit_bytes, dominance)

    def values(self, word: str) -> tuple[Any, ...]:
        """The values that the knob of this word may have, none where the file leaves them to the search."""
        return dict(self.asked).get(word, ())

    def asking(self, word: str, values: tuple[Any, ...]) -> "Explore":
        """The same with these values of one knob."""
        return replace(self, asked=tuple(sorted({**dict(self.asked), word: values}.items())))
