"""HTML that is safe by construction: all text is escaped where it enters, and only tags made here are markup."""

from collections.abc import Iterable, Sequence
from html import escape

from ...compiler.text.printable import printable


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


def joined(parts: Iterable[Markup], between: str = "\n") -> Markup:
    """Return ``parts`` one after the other."""
    return Markup(between.join(parts))


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
