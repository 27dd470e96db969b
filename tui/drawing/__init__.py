"""Pictures of a run. In: an OpCase and its Result. Out: the text of a trace or an SVG; each kind is a file."""

from enum import StrEnum


class Shows(StrEnum):
    """What a drawing of a run shows."""

    TIMELINE = "timeline"
    WATERFALL = "waterfall"
    LOADS = "loads"
