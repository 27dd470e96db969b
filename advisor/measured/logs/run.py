"""A run of a benchmark as its log tells it: the program, the ranks, and a row for each size."""

from dataclasses import dataclass

from ....compiler.text.source import Span


@dataclass(frozen=True, slots=True)
class LogDevice:
    """A rank, or the first rank of a process: its number, group and host, and the name of its GPU."""

    rank: int
    group: int
    host: str
    name: str


@dataclass(frozen=True, slots=True)
class LogRow:
    """A measured time; ``reduction`` is the operation that sums, ``none`` without one. ``span`` is its place."""

    num_bytes: int
    dtype: str
    reduction: str
    time_us: float
    is_wrong: bool
    span: Span


@dataclass(frozen=True, slots=True)
class LogRun:
    """One run. ``program`` is empty where the log does not name it; ``per_process`` are the ranks of a process."""

    program: str
    devices: tuple[LogDevice, ...]
    per_process: int
    rows: tuple[LogRow, ...]
    span: Span

    @property
    def num_ranks(self) -> int:
        """The number of ranks, 0 if the log does not say. A report may name the first rank of each process alone."""
        ranks = sorted({device.rank for device in self.devices})
        if not ranks:
            return 0
        if ranks == [number * self.per_process for number in range(len(ranks))]:
            return len(ranks) * self.per_process
        return len(ranks)
