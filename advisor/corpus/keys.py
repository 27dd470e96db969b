"""Keys of records: hashes of all that decides what a search finds, so that what is out of date is never found."""

from functools import cache

from ...simcore.memo.memo import content_hash
from .families import Drawn
from .fingerprint import fingerprint

# Version of what ``record_of`` does: raise it with every change of the search that the fingerprint does not see.
PROCEDURE = 2


@cache
def engine_version() -> str:
    """Return the version of search, simulator and estimate; takes about a second."""
    return f"{PROCEDURE}-{fingerprint()}"


def key_of(drawn: Drawn) -> str:
    """Return the key of the record of ``drawn``: 64 hexadecimal digits."""
    return content_hash((engine_version(), drawn.scenario))
