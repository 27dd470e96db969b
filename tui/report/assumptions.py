"""What an answer rests on: hardware numbers with their origins, and what the bound takes for granted."""

from collections import Counter
from collections.abc import Iterator

from ...advisor.candidates.advice import Advice
from ...advisor.hardware_numbers import hardware_numbers
from ...compiler.ir import Provenance, System
from ...compiler.text.quantities import rate_text, ticks_text
from .markup import Markup, bullets, table, tag


def assumptions(advice: Advice) -> Iterator[Markup]:
    """Yield the numbers of the devices, where each is from, and the assumptions of the bound."""
    system = advice.scenario.system
    notes = notes_of(system)
    if notes:
        origins = Counter(note.origin.value for note in notes).most_common()
        counted = ", ".join(f"{count} {origin}" for origin, count in origins)
        yield tag("p", f"{len(notes)} hardware numbers: {counted}.")
        values = values_of(system)
        rows = [(note.path, values.get(note.path, ""), note.origin.value, _source(note)) for note in notes]
        yield tag(
            "details",
            tag("summary", "Each number with its origin and source"),
            table(("number", "value", "origin", "source"), rows, words=4),
        )
    if advice.bound is not None:
        yield tag("p", "The lower bound holds as far as:")
        yield bullets(advice.bound.assumptions)


def notes_of(system: System) -> tuple[Provenance, ...]:
    """Return the origins of the numbers of the GPU, the links and the switch, each path once."""
    switch = system.fabric.switch
    noted = (
        *system.gpu.provenance,
        *(note for link in system.fabric.links for note in link.provenance),
        *(() if switch is None else switch.provenance),
    )
    return tuple({note.path: note for note in noted}.values())


def values_of(system: System) -> dict[str, str]:
    """Return the values that decide times, by their paths, for reading."""
    values: dict[str, str] = {}
    for number in hardware_numbers(system):
        for path, attribute, value in zip(number.paths, number.attributes, number.values, strict=True):
            if attribute.endswith("_ticks"):
                values[path] = ticks_text(value)
            elif attribute.endswith("bytes_per_s"):
                values[path] = rate_text(value)
    return values


def _source(note: Provenance) -> str:
    return f"{note.source} (as {note.inherited})" if note.inherited else note.source
