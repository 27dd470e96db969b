"""Every knob of a schedule with its rules, in the order of the canonical text: from a choice to why it cannot be."""

from .base import Knob, Rule, ScheduleRequest, with_values, words_of
from .engine import ENGINE
from .execution import (
    COLUMNS,
    KERNEL,
    LANES,
    LAUNCH,
    PARTS,
    PER,
    PROTOCOL,
    SLICES,
    SPLIT_K,
    SUMS,
    TILE,
    TRANSFER,
    TREES,
    WAIT,
    WAVES,
)
from .structure import ALGORITHM, CHUNKS, DEPTH, ORDER, STREAMS, TEMPLATE

KNOBS: tuple[Knob, ...] = (
    *(TEMPLATE, CHUNKS, PARTS, SLICES, COLUMNS),
    *(ENGINE, STREAMS, ALGORITHM, WAVES, SUMS, LANES, TREES),
    *(TRANSFER, PROTOCOL, KERNEL, WAIT, PER, LAUNCH, TILE, SPLIT_K),
    *(ORDER, DEPTH),
)

__all__ = ["KNOBS", "Knob", "Rule", "ScheduleRequest", "with_values", "words_of"]
