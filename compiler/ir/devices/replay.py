"""A profile of the writes of peers into the memory of rank 0; ``resolve/devices/replay_file.py`` reads one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Write:
    """``num_bytes`` that ``rank`` begins to send to rank 0 at ``ticks``.

    ``signal`` is set at rank 0 when all writes that name it have landed. With 0 bytes it is a flag alone: one that a
    tile sets when what it has stored has landed.
    """

    ticks: int
    rank: int
    signal: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Replay:
    """Writes in the order of time, and the file they were read from."""

    path: str
    writes: tuple[Write, ...]
