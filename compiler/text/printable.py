r"""Make untrusted text safe to show: control and format characters become escapes such as ``\x1b``.

File names, settings, strings of a scenario and tables come from outside. Escape sequences would colour, move and
overwrite what is on the screen, marks of direction would reorder it, and characters without width would be invisible.
"""

from unicodedata import category, east_asian_width


def printable(text: str, *, block: bool = False) -> str:
    """Return ``text`` with control and format characters, lone surrogates and unknown characters as escapes.

    With ``block`` line ends and tabs stay; otherwise the result is one line.
    """
    if block and "\n" in text:  # line by line, because most lines are printable as they are
        return "\n".join(printable(line, block=True) for line in text.split("\n"))
    if text.isprintable():
        return text
    return "".join(
        character if _is_shown(character) or (block and character == "\t") else _escaped(character)
        for character in text
    )


def columns_of(text: str) -> int:
    """Return the columns that printable text takes: two for a wide character, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(
        2 if east_asian_width(character) in "WF" else category(character) not in ("Mn", "Me") for character in text
    )


def _is_shown(character: str) -> bool:
    return character.isprintable() or category(character) == "Zs"  # spaces of other widths are harmless


def _escaped(character: str) -> str:
    short = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
