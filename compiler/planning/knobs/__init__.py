"""Every knob of a schedule with its rules, in the order of the canonical text: from a choice to why it cannot be."""

from .base import Knob, Rule, ScheduleRequest, with_values, words_of
from .batches import COLUMNS, LANES, PARTS, SLICES
from .engine import ENGINE
from .execution import KERNEL, LAUNCH, PER, PROTOCOL, TRANSFER, WAIT
from .serving import DEPTH, ORDER
from .structure import ALGORITHM, CHUNKS, STREAMS, TEMPLATE
from .waves import SUMS, WAVES

KNOBS: tuple[Knob, ...] = (
    *(TEMPLATE, CHUNKS, PARTS, SLICES, COLUMNS),
    *(ENGINE, STREAMS, ALGORITHM, WAVES, SUMS, LANES),
    *(TRANSFER, PROTOCOL, KERNEL, WAIT, PER, LAUNCH),
    *(ORDER, DEPTH),
)

__all__ = ["KNOBS", "Knob", "Rule", "ScheduleRequest", "with_values", "words_of"]
