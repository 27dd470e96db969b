"""Checks of fields that the requests of pairs and of layers share."""

import re

from ..codes import Code
from .errors import RequestError


def names_in(field: str, words: object, form: re.Pattern[str]) -> tuple[str, ...]:
    """Return the list of names that a field holds, each of which has that ``form``.

    Raises
    ------
    RequestError
        If it is none, or another kind of name is among them.
    """
    if not isinstance(words, tuple | list):
        raise RequestError(Code.MGS310, field, "it is no list of names", f"for instance {field}=({words!r:.40},)")
    for word in words:
        if not isinstance(word, str) or not form.fullmatch(word):
            raise RequestError(Code.MGS203, field, f"{word!r:.64} is no name of that kind")
    return tuple(words)
