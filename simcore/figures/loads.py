"""Load of links and memories over time: how many bytes pass each in each bucket of the run.

Everything a bucket holds was served within it as far as the run tells: each flow is known to begin at one time and to
be delivered at another, and is spread evenly between the two. Sums over time are exact.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from ...compiler.ir import TICKS_PER_SECOND, Network
from ..program.program import FloatArray, Int64Array


class LoadKind(Enum):
    """Kind of what carries a load; the value is the word for reading."""

    LINK = "link"
    HBM = "hbm"


@dataclass(frozen=True, slots=True)
class Load:
    """Busy time of one link direction, or of the HBM of one rank, in each bucket.

    ``source`` and ``target`` are nodes of the network: a rank, or a switch from ``num_ranks`` on; both are the rank for
    HBM. ``name`` is that of the edge (``link+1``, ``up``), or ``hbm``. ``busy_ticks`` is service time, summed over the
    ``num_servers`` channels that serve side by side, each a unit in ``service_ticks``.
    """

    kind: LoadKind
    name: str
    source: int
    target: int
    service_ticks: int
    num_servers: int
    busy_ticks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loads:
    """Loads in buckets of ``[0, span_ticks)`` that are equally long, to the tick.

    ``each`` has the links and memories of the first ``period`` ranks, which the others repeat; those that carried
    nothing are left out. Rows of arrays (``[L, B]``) are in its order. A unit is ``unit_bytes``.
    """

    span_ticks: int
    num_buckets: int
    unit_bytes: int
    period: int
    each: tuple[Load, ...]

    @property
    def edges_ticks(self) -> Int64Array:
        """[B + 1] begin of each bucket, and the end of the last."""
        return bucket_edges(self.span_ticks, self.num_buckets)

    @property
    def busy_ticks(self) -> Int64Array:
        """[L, B] service time, over all channels of a memory."""
        shape = len(self.each), self.num_buckets
        return np.array([load.busy_ticks for load in self.each], np.int64).reshape(shape)

    @property
    def num_bytes(self) -> FloatArray:
        """[L, B] bytes that passed; their sums over time are whole units."""
        return self.busy_ticks * (self.unit_bytes / self._column([load.service_ticks for load in self.each]))

    @property
    def capacity_bytes_per_s(self) -> FloatArray:
        """[L] bytes per second that can pass at most."""
        ticks = np.array([load.service_ticks / load.num_servers for load in self.each])
        return self.unit_bytes * TICKS_PER_SECOND / ticks

    @property
    def utilization(self) -> FloatArray:
        """[L, B] load over capacity, from 0 to 1; 0 in a bucket without length."""
        room = np.diff(self.edges_ticks) * self._column([load.num_servers for load in self.each])
        return self.busy_ticks / np.maximum(1, room)

    def memory(self, rank: int) -> int | None:
        """Row of the HBM of any rank; None if it was idle."""
        wanted = LoadKind.HBM, rank % self.period
        return next((row for row, load in enumerate(self.each) if (load.kind, load.source) == wanted), None)

    def links(self, network: Network) -> dict[tuple[int, int], int]:
        """Rows of the links of all ranks by their ends, idle ones left out.

        Links that a shift of ranks by ``period`` maps onto each other share a row.
        """
        shifts = range(0, network.num_ranks, self.period)
        rows = [(load, row) for row, load in enumerate(self.each) if load.kind is LoadKind.LINK]
        return {network.shifted_ends((load.source, load.target), by): row for load, row in rows for by in shifts}

    @staticmethod
    def _column(values: list[int]) -> Int64Array:
        return np.array(values, np.int64).reshape(-1, 1)


NO_LOADS = Loads(0, 0, 1, 1, ())


def bucket_edges(span_ticks: int, num_buckets: int) -> Int64Array:
    """[B + 1] begin of each bucket of ``[0, span_ticks)``, and the end of the last."""
    return np.array([span_ticks * place // max(1, num_buckets) for place in range(num_buckets + 1)], np.int64)
