"""The grammar of the language, as text for lark."""

from importlib.resources import files

__all__ = ["load_grammar"]


def load_grammar() -> str:
    """Return the text of ``mgs.lark``."""
    return files(__name__).joinpath("mgs.lark").read_text(encoding="utf-8")
