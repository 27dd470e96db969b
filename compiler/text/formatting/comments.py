"""Sentences as comments of the language, in lines that fit; text from outside cannot leave its comment."""

from ..printable import printable

WIDTH = 96
"""Characters of a line, without its sign."""


def comment_lines(sentence: str, mark: str = "") -> list[str]:
    """Return the lines of a comment that begins with ``mark``; further lines are indented by as much."""
    lines, line = [], mark
    for word in printable(sentence).split(" "):
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(mark)
        line += f"{word[:WIDTH]} "
    return [f"# {each}".rstrip() for each in (*lines, line.rstrip())]
