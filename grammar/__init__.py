"""The grammar of the language, as text for lark, and its parse tables."""

from importlib.resources import files

__all__ = ["TABLES_FILE", "load_grammar", "load_tables"]

TABLES_FILE = "mgs.tables.json"


def load_grammar() -> str:
    """Return the text of ``mgs.lark``."""
    return files(__name__).joinpath("mgs.lark").read_text(encoding="utf-8")


def load_tables() -> str:
    """Return the text of the parse tables, empty if they cannot be read; ``compiler/text/tables.py`` checks it."""
    try:
        return files(__name__).joinpath(TABLES_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
