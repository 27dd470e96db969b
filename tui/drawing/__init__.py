"""Pictures of a run. In: an OpCase and its Result. Out: the text of a trace or an SVG; each kind is a file."""

from enum import StrEnum
from pathlib import Path

RANK = "{rank}"
"""Where it stands in the name of a trace, each rank has a file of its own, as torch.profiler writes them."""


class Shows(StrEnum):
    """What a drawing of a run shows."""

    TIMELINE = "timeline"
    WATERFALL = "waterfall"
    LOADS = "loads"


def of_rank(path: Path, rank: int) -> Path:
    """Return the file of a rank."""
    return path.parent / path.name.replace(RANK, str(rank))
