"""Keys of records: hashes of all that decides what a search finds, so that what is out of date is never found.

Where classes, modules or functions are renamed, what stands for them in keys stays: a search takes seconds to minutes.
"""

from functools import cache

from ...compiler.ir.topologies import TOPOLOGIES
from ...simcore.memo.memo import StoredFunctions, content_hash
from .families import Drawn
from .fingerprint import fingerprint

# Version of what ``record_of`` does: raise it with every change of the search that the fingerprint does not see.
PROCEDURE = 2

_FABRICS = {topology.name: topology for topology in TOPOLOGIES}
SWITCH, RING, FULL_MESH = (_FABRICS[name] for name in ("switch", "ring", "full_mesh"))
_IN = "magus.compiler.ir.topologies"
FUNCTIONS: StoredFunctions = {
    SWITCH.connect: (f"{_IN}.switch", "_connect"),
    SWITCH.reject: (f"{_IN}.switch", "_reject"),
    SWITCH.where: (f"{_IN}.base", "_busiest"),
    RING.connect: (f"{_IN}.ring", "_connect"),
    RING.where: (f"{_IN}.ring", "_where"),
    FULL_MESH.connect: (f"{_IN}.full_mesh", "_connect"),
    FULL_MESH.where: (f"{_IN}.full_mesh", "_where"),
    FULL_MESH.reject: (f"{_IN}.base", "_fits"),
    FULL_MESH.more_links: (f"{_IN}.base", "_no_more_links"),
    FULL_MESH.node_size: (f"{_IN}.base", "_no_nodes"),
    FULL_MESH.grid: (f"{_IN}.base", "_no_grid"),
}
"""What stands in keys for the functions of the fabrics that are drawn; of those that all share once."""


@cache
def engine_version() -> str:
    """Return the version of search, simulator and estimate; takes about a second."""
    return f"{PROCEDURE}-{fingerprint()}"


def key_of(drawn: Drawn) -> str:
    """Return the key of the record of ``drawn``: 64 hexadecimal digits."""
    return content_hash((engine_version(), drawn.scenario), FUNCTIONS)
