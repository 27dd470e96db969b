r"""Text from outside, made fit to be shown: what a terminal would obey, or show in another place, is shown as ``\x1b``.

File names, settings, strings of a scenario and tables hold what anybody wrote. Escape sequences would colour, move and
overwrite what is on the screen, marks of direction would reorder it, and characters without width would hide in it.
"""

from unicodedata import category, east_asian_width


def printable(text: str, *, block: bool = False) -> str:
    """``text`` with controls, format characters, lone surrogates and unknown characters as escapes.

    A ``block`` keeps the ends of its lines and its tabs; anything else is one line.
    """
    if block and "\n" in text:  # line by line: most of them need no second look
        return "\n".join(printable(line, block=True) for line in text.split("\n"))
    if text.isprintable():
        return text
    return "".join(each if _is_shown(each) or (block and each == "\t") else _escaped(each) for each in text)


def columns_of(text: str) -> int:
    """How many columns of a terminal printable text takes: two for a wide letter, none for a mark on another one."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(each) in "WF" else category(each) not in ("Mn", "Me") for each in text)


def _is_shown(character: str) -> bool:
    return character.isprintable() or category(character) == "Zs"  # spaces of other widths are harmless


def _escaped(character: str) -> str:
    short = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
