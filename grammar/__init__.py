"""The grammar of the language, as text for lark, its parse tables, and what its words mean."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

__all__ = ["TABLES_FILE", "load_grammar", "load_tables", "load_words"]

TABLES_FILE = "mgs.tables.json"


def load_grammar() -> str:
    """Return the text of ``mgs.lark``."""
    return files(__name__).joinpath("mgs.lark").read_text(encoding="utf-8")


def load_tables() -> str:
    """Return the text of the parse tables, empty if they cannot be read; ``compiler/text`` checks it."""
    try:
        return files(__name__).joinpath(TABLES_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


@cache
def load_words() -> Mapping[str, Mapping[str, str]]:
    """Return what each word means, by the section of ``words.toml`` that it stands in: the place where it is a word."""
    import tomllib  # for editors and docs alone

    return tomllib.loads(files(__name__).joinpath("words.toml").read_text(encoding="utf-8"))
