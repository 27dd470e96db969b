"""Text that takes over a terminal, and what tells whether any of it came through."""

import unicodedata

ESCAPES = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://x\x1b\\x\x1b]8;;\x1b\\",
    "c1": "\x9b31mred\x9d0;owned\x9c",
    "next line": "a\x85b\u2028c\u2029d",
    "return": "a\rb\x08c\x7fd",
    "bidi": "\u202eevil\u202c \u2066x\u2069 \u200f\u200e\u061c",
    "hidden": "a\u200bb\u2060c\ufeffd\u00ade",
    "tags": "a\U000e0041b",
    "markup": "[red]x[/red] [@click=app.quit]y[/] [/] [[z",
}
EVERYTHING = " ".join(ESCAPES.values())
HTML = (
    "<script>alert(1)</script>",
    "\"></title></rect><image href='https://x.test/' onerror='alert(1)'/>",
    "]]> <!-- &lt;b&gt; &amp; ' \" `${x}` {x} {{x}}",
    EVERYTHING,
)
"""Text that takes over a page or a drawing."""


def is_safe(text: str) -> bool:
    """Whether a terminal would show all of the text, and obey none."""
    return all(each.isprintable() or each == "\n" or unicodedata.category(each) == "Zs" for each in text)
